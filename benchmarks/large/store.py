"""A small S3 server with its objects on a disk, which counts the bytes of their contents.

The server of the tests keeps all objects in memory. This one knows what pyarrow's client asks for,
and no more: objects in parts or whole, ranges, listings, deletions. It checks no signature.
"""

from __future__ import annotations

import io
import re
import shutil
import socket
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

__all__ = ["BUCKET", "Store"]

BUCKET = "kept"
_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_WHEN = "2020-01-01T00:00:00.000Z"


class Store:
    """The server, in threads of this process.

    Attributes:
        address: host and port.
        received: bytes of objects that were written.
        sent: bytes of objects that were read.
    """

    def __init__(self, listening: socket.socket, folder: Path) -> None:
        """Serve at a socket; objects are files below the folder, under the names that they have."""
        self.folder = folder
        (folder / "objects" / BUCKET).mkdir(parents=True)
        (folder / "drafts").mkdir()
        self.received = self.sent = 0
        self._lock = threading.Lock()
        #: held while an object is made of its parts
        self.completing = threading.Lock()
        self.address: tuple[str, int] = listening.getsockname()
        self._server = _Server(self.address, _Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        self._server.store = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def count(self, received: int = 0, sent: int = 0) -> None:
        """Add to the counts; from any thread."""
        with self._lock:
            self.received += received
            self.sent += sent

    def size(self) -> int:
        """Return how large all objects are together."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def close(self) -> None:
        """Stop serving; the objects stay."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Chunks(io.RawIOBase):
    """The contents of a body that HTTP sends in chunks."""

    def __init__(self, sent: BinaryIO) -> None:
        self._sent = sent
        self._left = 0
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left and not self._ended:
            self._left = int(self._sent.readline(), 16)
            self._ended = not self._left
            if self._ended:
                self._sent.readline()
        piece = self._sent.read(min(len(buffer), self._left))
        self._left -= len(piece)
        if not self._left and not self._ended:
            self._sent.readline()
        buffer[: len(piece)] = piece
        return len(piece)


def _pieces(sent: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        piece = sent.read(min(size, _PIECE))
        if not piece:
            message = "the client has gone"
            raise ConnectionError(message)
        size -= len(piece)
        yield piece


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    store: Store


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        # NB: small answers must not wait for more
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        path = self._path()
        if self._is_bucket() and path.is_dir():
            self._answer(200)
        elif path.is_file():
            self._headers(200, path.stat().st_size)
        else:
            self._answer(404)

    def do_GET(self) -> None:
        query = self._query()
        if "list-type" in query:
            self._list(query)
            return
        path = self._path()
        try:
            file = path.open("rb")
        except OSError:
            self._error(404, "NoSuchKey")
            return
        with file:
            self._send(file, path.stat().st_size)

    def do_PUT(self) -> None:
        path, query = self._path(), self._query()
        if "partNumber" in query:
            path = self._parts(query) / f"{int(query['partNumber']):06d}"
            if not path.parent.is_dir():
                self._drain()
                self._error(404, "NoSuchUpload")
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        copied = self.headers.get("x-amz-copy-source")
        if copied is not None:
            self._drain()
            shutil.copyfile(self._objects() / unquote(copied).lstrip("/"), path)
            self._xml(f"<CopyObjectResult><ETag>&quot;0&quot;</ETag><LastModified>{_WHEN}"
                      "</LastModified></CopyObjectResult>")  # fmt: skip
            return
        draft = self._drafts() / uuid.uuid4().hex
        with draft.open("wb") as file:
            for piece in self._body():
                file.write(piece)
        if self.path.endswith("/"):  # an empty object that stands for a directory
            path.mkdir(parents=True, exist_ok=True)
            draft.unlink()
        else:
            self.server.store.count(received=draft.stat().st_size)
            draft.replace(path)
        self._answer(200)

    def do_POST(self) -> None:
        query, body = self._query(), b"".join(self._body())
        if "delete" in query:
            for key in _KEY.findall(body.decode()):
                self._delete(self._path() / unescape(key))
            self._xml("<DeleteResult></DeleteResult>")
        elif "uploads" in query:
            upload = uuid.uuid4().hex
            (self._drafts() / upload).mkdir()
            self._xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                      "</InitiateMultipartUploadResult>")  # fmt: skip
        else:
            with self.server.store.completing:
                self._complete(self._parts(query), self._path())
            self._xml("<CompleteMultipartUploadResult><ETag>&quot;0&quot;</ETag>"
                      "</CompleteMultipartUploadResult>")  # fmt: skip

    def _complete(self, parts: Path, path: Path) -> None:
        """Make an object of its parts, unless a client that asks again has it already."""
        if not parts.is_dir() and path.is_file():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        first, *others = sorted(parts.iterdir())
        with first.open("ab") as whole:
            for part in others:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole, _PIECE)
        first.replace(path)
        shutil.rmtree(parts)

    def do_DELETE(self) -> None:
        query = self._query()
        if "uploadId" in query:
            shutil.rmtree(self._parts(query), ignore_errors=True)
        else:
            self._delete(self._path())
        self._answer(204)

    # Places

    def _objects(self) -> Path:
        return self.server.store.folder / "objects"

    def _drafts(self) -> Path:
        return self.server.store.folder / "drafts"

    def _parts(self, query: dict[str, str]) -> Path:
        return self._drafts() / Path(query["uploadId"]).name

    def _path(self) -> Path:
        key = unquote(urlsplit(self.path).path).strip("/")
        if ".." in key.split("/"):
            message = f"strange key {key!r}"
            raise ValueError(message)
        return self._objects() / key

    def _query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def _is_bucket(self) -> bool:
        return "/" not in urlsplit(self.path).path.strip("/")

    def _delete(self, path: Path) -> None:
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        else:
            path.unlink(missing_ok=True)

    # Listings

    def _list(self, query: dict[str, str]) -> None:
        """All of it at once: nobody here has so many objects that pages would be needed."""
        bucket, prefix = self._path(), query.get("prefix", "")
        around = bucket / prefix.rpartition("/")[0]
        flat = "delimiter" not in query
        found = sorted(around.rglob("*") if flat else around.iterdir()) if around.is_dir() else []
        # a prefix that is a directory is an empty object, too
        objects: list[tuple[str, Path | None]] = (
            [(prefix, None)] if prefix.endswith("/") and around.is_dir() else []
        )
        folders: list[str] = []
        for path in found:
            key = path.relative_to(bucket).as_posix()
            if not key.startswith(prefix):
                continue
            if path.is_dir():
                folders.append(key)
            else:
                objects.append((key, path))
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_WHEN}</LastModified>"
            f"<Size>{0 if path is None else path.stat().st_size}</Size></Contents>"
            for key, path in objects
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(key)}/</Prefix></CommonPrefixes>"
            for key in folders
            if not flat
        )
        self._xml(
            f"<ListBucketResult><Name>{bucket.name}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<IsTruncated>false</IsTruncated><KeyCount>{len(objects) + len(folders)}</KeyCount>"
            f"{contents}{common}</ListBucketResult>"
        )

    # Bytes

    def _body(self) -> Iterator[bytes]:
        """Yield what was sent; the client puts chunks of its own into those of HTTP."""
        length = int(self.headers.get("Content-Length", 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            yield from _pieces(self.rfile, length)
            return
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        sent = io.BufferedReader(_Chunks(self.rfile), _PIECE) if chunked else self.rfile
        while size := int(sent.readline().split(b";")[0], 16):
            yield from _pieces(sent, size)
            sent.readline()
        while sent.readline().strip():  # trailers
            continue
        if chunked:
            sent.read()

    def _drain(self) -> None:
        for _ in self._body():
            continue

    def _send(self, file: BinaryIO, size: int) -> None:
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        first, last = 0, size - 1
        if asked is not None:
            first, last = int(asked[1]), min(int(asked[2] or last), last)
        length = last - first + 1
        extra = {"Content-Range": f"bytes {first}-{last}/{size}"} if asked else {}
        self._headers(206 if asked else 200, length, extra)
        self.server.store.count(sent=length)
        if length:
            self.connection.sendfile(file, first, length)

    # Answers

    def _headers(self, status: int, length: int, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
        self.end_headers()

    def _answer(self, status: int, body: bytes = b"") -> None:
        self._headers(status, len(body))
        self.wfile.write(body)

    def _xml(self, body: str) -> None:
        self._answer(200, f'<?xml version="1.0" encoding="UTF-8"?>{body}'.encode())

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())
