"""Notices code that was run, attributes that were set, and files that were written elsewhere."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from holdfast.common.types import Row, RowKind

#: what nothing that is read may do, by the name of Python's audit event
_FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen"),
    *("socket.connect", "socket.bind", "ctypes.dlopen", "pty.spawn", "webbrowser.open"),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_MODULE = "holdfast_fuzz_canary"


class Canary:
    """Watches this process; make one per process, since an audit hook stays for ever.

    Attributes:
        directory: where the module is that no pickle may import.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._touched = directory / "touched"
        (directory / f"{_MODULE}.py").write_text(
            f"open({str(self._touched)!r}, 'w').close()\ndef run(*args): pass\n"
        )
        sys.path.append(str(directory))
        self._allowed: tuple[str, ...] = ()
        self._watching = False
        self._seen: list[str] = []
        self._classes = _attributes()
        sys.addaudithook(self._audit)

    @contextmanager
    def watching(self, *allowed: Path) -> Iterator[list[str]]:
        """Yield what was noticed; files may be written below these directories only."""
        self._seen = found = []
        self._allowed = (*map(str, allowed), "/dev/null")
        self._watching = True
        try:
            yield found
        finally:
            self._watching = False
            if self._touched.exists():
                self._touched.unlink()
                sys.modules.pop(_MODULE, None)
                found.append("code run: a module that only a pickle names was imported")
            if _attributes() != self._classes:
                found.append("code run: an attribute of a class was changed")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event in _FORBIDDEN:
            self._seen.append(f"code run: {event}")
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self._note_file(os.path.realpath(os.fsdecode(path)))
        elif event in ("os.mkdir", "os.rename", "os.link", "os.symlink"):
            target = arguments[0] if event == "os.mkdir" else arguments[1]
            self._note_file(os.path.realpath(os.fsdecode(target)))

    def _note_file(self, path: str) -> None:
        if not path.startswith(self._allowed) and "__pycache__" not in path:
            self._seen.append(f"file outside: {path}")

    def payload(self, random: Random) -> bytes:
        """Return a pickle that would do harm if it were trusted."""
        return random.choice(_PAYLOADS)(self)


def _attributes() -> dict[str, Any]:
    """What a forged pickle might set on classes that are shared."""
    kept: dict[str, Any] = {}
    for kind in (Row, RowKind, type(RowKind.INSERT)):
        kept |= {f"{kind.__name__}.{name}": id(value) for name, value in vars(kind).items()}
    kept |= {f"INSERT.{name}": id(value) for name, value in vars(RowKind.INSERT).items()}
    return {name: value for name, value in kept.items() if "__abstract" not in name}


def _call(module: str, name: str, *arguments: Any) -> bytes:
    """GLOBAL, arguments, REDUCE."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + pickle.dumps(arguments, 2)[2:-1] + b"R."


def _build(module: str, name: str, state: Any) -> bytes:
    """GLOBAL, a state, BUILD: sets attributes of the class itself."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + pickle.dumps(state, 2)[2:-1] + b"b."


_PAYLOADS: list[Callable[[Canary], bytes]] = [
    lambda canary: _call(_MODULE, "run", 1),
    lambda canary: _call("os", "system", f"touch {canary._touched}"),
    lambda canary: _call("builtins", "eval", f"open({str(canary._touched)!r}, 'w')"),
    lambda canary: _call("builtins", "exec", f"import {_MODULE}"),
    lambda canary: _call("subprocess", "Popen", ("touch", str(canary._touched))),
    lambda canary: _call("holdfast.common.types", "Row.__init_subclass__"),
    lambda canary: _build("holdfast.common.types", "Row", (None, {"__eq__": 1})),
    lambda canary: _build("holdfast.common.types", "RowKind", {"INSERT": 1}),
    lambda canary: _call("builtins", "bytearray", 1 << 33),
    lambda canary: _call("decimal", "Decimal", "1e999999999"),
    lambda canary: b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b".",
    lambda canary: b"\x80\x04" + b"]" + b"\x94h\x00a" * 10 + b".",
]
