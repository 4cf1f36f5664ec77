"""Google Cloud Storage (``gs://``), through pyarrow.

Settings have the names of Google's connector for Hadoop. The store has no directories; pyarrow
lists one only if an object represents it, which other programs do not make. So a directory is
listed here by the names of all objects below it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from pyarrow import fs

from holdfast.filesystem.arrow import ArrowFileSystem, made, status_of
from holdfast.filesystem.arrow_errors import StoreErrors, check_exists
from holdfast.filesystem.base import FileStatus
from holdfast.filesystem.options import scheme_and_address

_ENDPOINT: Final = "fs.gs.storage.root.url"
_TYPE: Final = "fs.gs.auth.type"
_KEY_FILE: Final = "fs.gs.auth.service.account.json.keyfile"
#: what earlier versions of the connector call it, and Flink's documentation
_OLDER_KEY_FILE: Final = "google.cloud.auth.service.account.json.keyfile"
_ACT_AS: Final = "fs.gs.auth.impersonation.service.account"
_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"

_NOBODY: Final = "UNAUTHENTICATED"
_BY_FILE: Final = "SERVICE_ACCOUNT_JSON_KEYFILE"
#: both: the key file if there is one, or what Google's own tools find
_DEFAULT: Final = ("APPLICATION_DEFAULT", "COMPUTE_ENGINE")
#: how long a call is repeated; Google's client would do so for 15 minutes
_LONGEST: Final = timedelta(seconds=20)
#: the environment is that of all threads
_environment = threading.Lock()

#: the essence of a message: a code, and what the store or the client says
_MESSAGE: Final = re.compile(
    r"google::cloud::Status\((\w+): (?:.*?with a last message of )?(.*?)"
    r"(?: error_info=|\)(?:\. Detail|$))",
    re.DOTALL,
)
_UNDERLYING: Final = "The underlying error message was: "
_ADVICE: Final = (
    (
        r"UNAUTHENTICATED|PERMISSION_DENIED|access token|credentials",
        f"check {_KEY_FILE}, or the environment variable {_VARIABLE}; {_TYPE}={_NOBODY} sends no "
        "credentials",
    ),
    (r"CURL error", f"check the network, and {_ENDPOINT} if it is set"),
)


def _essence(message: str) -> str:
    if not (found := _MESSAGE.search(message)):
        return message
    code, told = found.groups()
    return f"{code}: {told.rpartition(_UNDERLYING)[2]}"


class GoogleFileSystem(ArrowFileSystem):
    """One bucket."""

    _errors = StoreErrors(_essence, _ADVICE)

    def list_directory(self, path: str) -> list[FileStatus]:
        """List the objects below a path, each by the first part of its name after the path."""
        with self.errors("list", path):
            selected = fs.FileSelector(path, allow_not_found=True, recursive=True)
            found = self._arrow.get_file_info(selected)
        listed = {}
        for info in found:
            name, deeper, _ = info.path[len(path) + 1 :].partition("/")
            listed[name, bool(deeper) or info.type == fs.FileType.Directory] = info
        return [
            FileStatus(name, 0, 0, True) if is_directory else status_of(info)
            for (name, is_directory), info in sorted(listed.items(), key=lambda item: item[0])
        ]

    def read(self, path: str) -> bytes:
        """Read in one request: a file that is replaced meanwhile is read as it was or as it is.

        With two, pyarrow asks for a version of the file that may be gone, and the read fails.
        """
        with (
            self.errors("read", path),
            self._arrow.open_input_stream(path, compression=None) as file,
        ):
            return bytes(file.read())

    def _connect(self, root: str, options: Mapping[str, str]) -> Any:
        arguments, key_file = gcs_arguments(options)
        with _credentials_from(key_file):
            return made("GcsFileSystem", retry_time_limit=_LONGEST, **arguments)

    #: what pyarrow raises if there is no object for the directory above
    _missing = (FileNotFoundError,)

    def _make_top(self) -> None:
        check_exists(self._look_at_top, f"there is no bucket '{self._top}'")


def gcs_arguments(options: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of ``pyarrow.fs.GcsFileSystem``, and the key file if there is one.

    Raises:
        ValueError: when a setting has a value that is not supported.
    """
    kind = (options.get(_TYPE) or _DEFAULT[0]).strip().upper()
    if kind not in (_NOBODY, _BY_FILE, *_DEFAULT):
        known = ", ".join((*_DEFAULT, _BY_FILE, _NOBODY))
        message = f"{_TYPE} is '{options[_TYPE]}'; supported values are {known}"
        raise ValueError(message)
    key_file = options.get(_KEY_FILE) or options.get(_OLDER_KEY_FILE) or None
    if kind == _BY_FILE and not key_file:
        message = f"{_TYPE} is {_BY_FILE}, but {_KEY_FILE} is not set"
        raise ValueError(message)
    endpoint = options.get(_ENDPOINT)
    scheme, address = scheme_and_address(endpoint) if endpoint else (None, None)
    arguments = {
        "anonymous": kind == _NOBODY or None,
        "target_service_account": options.get(_ACT_AS) or None,
        "scheme": scheme or "https",  # pyarrow's own default for anonymous access is HTTP
        "endpoint_override": address,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    return given, None if kind == _NOBODY else key_file


@contextmanager
def _credentials_from(key_file: str | None) -> Iterator[None]:
    """Let Google's client take a key file, which it reads when it is made.

    pyarrow has no argument for it.
    """
    if key_file is None:
        yield
        return
    with _environment:
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = key_file
        try:
            yield
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before
