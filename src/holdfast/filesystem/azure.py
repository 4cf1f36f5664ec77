"""Azure Blob Storage and Data Lake Storage (``abfs://``, ``abfss://``), through pyarrow.

Settings have the names of Hadoop's ABFS driver. An account with a hierarchical namespace has
directories; others have only names. The calls that are used here do the same in both.

pyarrow begins a file by making an empty one. A file that must appear complete is therefore written
as a draft, and copied: the store makes the copy, in one step. A draft is in a directory of its own:

    <directory>/.<name>.<random>.tmp/<name>

because pyarrow deletes a directory with one request, and a file with four: it leases the file, so
that an object for the directory above can be made before.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.common.secrets import MASK
from holdfast.filesystem.arrow import ArrowFileSystem, made
from holdfast.filesystem.arrow_errors import StoreErrors, check_exists
from holdfast.filesystem.base import FileSystemError, draft_of, is_draft, join
from holdfast.filesystem.options import is_true, scheme_and_address

_AZURE: Final = "fs.azure."
_ENDPOINT: Final = "abfs.endpoint"
_HTTPS: Final = "always.use.https"
_TYPE: Final = "account.auth.type"
_KEY: Final = "account.key"
_TOKEN: Final = "sas.fixed.token"
_CLIENT: Final = "account.oauth2.client.id"
_SECRET: Final = "account.oauth2.client.secret"
_LOGIN: Final = "account.oauth2.client.endpoint"

_TYPES: Final = ("SharedKey", "SAS", "OAuth")
#: the domain that pyarrow knows by itself
_PUBLIC: Final = "core.windows.net"
_TRIES: Final = 5

#: the essence of a message; more lines follow, such as the time of the request
_MESSAGE: Final = re.compile(r"Azure Error: \[(\w*)\] ([^\n]*)")
#: an exception in C++, with the name of its class as compilers write it
_EXCEPTION: Final = re.compile(r"failed: \w*?(?:Exception|error)E?: (.*)")
#: a file was replaced by a shorter one between the two requests that read it
_REPLACED: Final = "InvalidRange"
#: the secret of a SAS token, as part of an address
_SIGNATURE: Final = re.compile(r"(?<=\bsig=)[^&\s'\"]+")


def _essence(message: str) -> str:
    if found := _MESSAGE.search(message):
        return ": ".join(filter(None, found.groups()))
    if found := _EXCEPTION.search(message):
        return found[1]
    return message


class AzureFileSystem(ArrowFileSystem):
    """One container of an account."""

    #: what pyarrow raises if the directory above is missing
    _missing = (FileNotFoundError,)
    #: without advice: if the settings make no sense, they are what the error is about
    _errors = StoreErrors(_essence)
    _is_checked = False

    def read(self, path: str) -> bytes:
        """Read a file; again, if it is replaced meanwhile."""
        for _ in range(_TRIES - 1):
            try:
                return super().read(path)
            except FileSystemError as error:
                if _REPLACED not in str(error.__cause__):
                    raise
                time.sleep(0.01)
        return super().read(path)

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a draft, and copy it."""
        folder, _, name = path.rpartition("/")
        draft = join(folder, draft_of(name))
        try:
            self._write(join(draft, name), data)
            with self.errors("write", path):
                self._arrow.copy_file(join(draft, name), path)
        finally:
            with suppress(FileSystemError):
                self.delete_tree(draft)

    def delete(self, path: str) -> None:
        """Delete a file, or a draft that was left over."""
        try:
            super().delete(path)
        except FileSystemError:
            if not is_draft(path.rpartition("/")[2]):
                raise
            self.delete_tree(path)

    @contextmanager
    def errors(self, action: str, path: str, target: str | None = None) -> Iterator[None]:
        """Do the same as for others, but keep a SAS token out of messages and tracebacks."""
        with super().errors(action, path, target):
            try:
                yield
            except FileSystemError:
                raise
            except self._failures as error:
                if not _SIGNATURE.search(str(error)):
                    raise
                kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
                raise kind(_SIGNATURE.sub(MASK, str(error))) from None

    def _connect(self, root: str, options: Mapping[str, str]) -> Any:
        settings = AzureSettings(root, options)
        self._errors = StoreErrors(_essence, settings.advice())
        return made("AzureFileSystem", **settings.arguments())

    @property
    def _arrow(self) -> Any:
        """What is called, of pyarrow.

        The first call is one of those in which pyarrow handles the error that there are no valid
        credentials. In others, such as opening a file, this error ends the process.
        """
        if not self._is_checked:
            self._client.get_file_info(f"{self._top}/.holdfast")
            self._is_checked = True
        return self._client

    def _move(self, source: str, target: str) -> None:
        self._arrow.copy_file(source, target)
        self._arrow.delete_file(source)

    def _make_top(self) -> None:
        account = urlsplit(self._root).netloc.rpartition("@")[2]
        check_exists(self._look_at_top, f"there is no container '{self._top}' in {account}")


class AzureSettings:
    """What Hadoop's settings say about one account.

    A setting for one account, ``fs.azure.<name>.<account>.dfs.core.windows.net``, overrides the
    general one.
    """

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        """Take the settings for an address without a path.

        Raises:
            ValueError: when the address does not name a container and an account, or when the
                kind of credentials is not supported.
        """
        split = urlsplit(root)
        self._options = options
        self._scheme = split.scheme
        container, _, self._host = split.netloc.rpartition("@")
        account, _, rest = self._host.partition(".")
        service, _, self._domain = rest.partition(".")
        if not container or not account or service not in ("dfs", "blob") or not self._domain:
            message = (
                f"'{root}' is not an address of Azure, which is {split.scheme}://"
                "<container>@<account>.dfs.core.windows.net/<path>"
            )
            raise ValueError(message)
        self._account = account
        #: what the credentials are; empty if no setting says anything about them
        self._kind = self._kind_of_credentials()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``pyarrow.fs.AzureFileSystem``.

        Without credentials in the settings, pyarrow looks for them where Azure's own tools do.

        Raises:
            ValueError: when a setting has a value that is not supported.
        """
        arguments = {"account_name": self._account, **self._place(), **self._credentials()}
        return {name: value for name, value in arguments.items() if value is not None}

    def advice(self) -> tuple[tuple[str, str], ...]:
        """Return what to do about an error: patterns of messages, and the settings to check."""
        name = self._name_of_credentials()
        return (
            ("Authori[sz]ation|Authentication|GetToken|Credential", f"check {name}"),
            (
                "Fail to get a new connection|resolve|Timeout waiting for socket",
                f"check the network, the account in the address, and {_AZURE}{_ENDPOINT} if it is "
                "set",
            ),
            ("ResourceNotFound", f"check the account '{self._account}' in the address"),
        )

    def _place(self) -> dict[str, Any]:
        if not (endpoint := self._setting(_ENDPOINT)):
            if self._domain == _PUBLIC:
                return {}
            services = ("blob", "dfs")
            return {f"{name}_storage_authority": f".{name}.{self._domain}" for name in services}
        secure = self._scheme == "abfss" or is_true(self._setting(_HTTPS), default=True)
        scheme, address = scheme_and_address(endpoint, secure)
        return {
            "blob_storage_authority": address,
            "dfs_storage_authority": address,
            "blob_storage_scheme": scheme,
            "dfs_storage_scheme": scheme,
        }

    def _credentials(self) -> dict[str, Any]:
        kind = self._kind
        if kind == "SharedKey":
            return {"account_key": self._checked_key()}
        if kind == "SAS":
            # NB: pyarrow appends it to an address as it is
            return {"sas_token": f"?{self._needed(_TOKEN).lstrip('?')}"}
        if kind == "OAuth" and self._setting(_SECRET):
            return {
                "tenant_id": _tenant(self._needed(_LOGIN)),
                "client_id": self._needed(_CLIENT),
                "client_secret": self._setting(_SECRET),
            }
        return {"client_id": self._setting(_CLIENT)} if kind == "OAuth" else {}

    def _kind_of_credentials(self) -> str:
        if (told := self._setting(_TYPE)) is not None:
            for known in _TYPES:
                if told.strip().lower() == known.lower():
                    return known
            message = f"{_AZURE}{_TYPE} is '{told}'; supported values are {', '.join(_TYPES)}"
            raise ValueError(message)
        if self._setting(_KEY):
            return "SharedKey"
        return "SAS" if self._setting(_TOKEN) else ""

    def _checked_key(self) -> str:
        # NB: a key that is not base64 would end the process
        key = self._needed(_KEY).strip()
        try:
            base64.b64decode(key, validate=True)
        except binascii.Error:
            message = f"{self._name(_KEY)} is not a key of an account, which is text in base64"
            raise ValueError(message) from None
        return key

    def _needed(self, name: str) -> str:
        if not (value := self._setting(name)):
            message = f"{self._name(name)} is not set"
            raise ValueError(message)
        return value

    def _setting(self, name: str) -> str | None:
        general = self._options.get(_AZURE + name)
        return self._options.get(f"{_AZURE}{name}.{self._host}", general) or None

    def _name(self, name: str) -> str:
        """Return the name of a setting as it is set, or as it could be."""
        return _AZURE + name if _AZURE + name in self._options else f"{_AZURE}{name}.{self._host}"

    def _name_of_credentials(self) -> str:
        if self._kind == "OAuth":
            return f"{self._name(_CLIENT)} and {self._name(_SECRET)}"
        if self._kind == "SAS":
            return self._name(_TOKEN)
        others = "" if self._kind else ", or what Azure's own tools use, such as AZURE_CLIENT_ID"
        return self._name(_KEY) + others


def _tenant(login: str) -> str:
    """Return the tenant in an address such as ``https://login.microsoftonline.com/<tenant>/…``."""
    if not (found := urlsplit(login).path.strip("/").partition("/")[0]):
        message = f"{_AZURE}{_LOGIN} is '{login}', which names no tenant"
        raise ValueError(message)
    return found
