"""Serializers written by the user: `TypeSerializer`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from io import BytesIO
from typing import ClassVar, Generic, TypeVar

__all__ = ["TypeSerializer", "VoidNamespaceSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values of one type to a stream of bytes and reads them back.

    An instance is a type: ``ValueStateDescriptor("at", PointSerializer())``. Both methods are
    called in the workers; a serializer must be picklable. Two serializers of one class with the
    same fields are equal. Saved state is known by the name of the class, and each value by the
    version that wrote it.
    """

    #: raise it when `serialize` begins to write something else
    version: ClassVar[int] = 0

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Append the element's bytes to the stream."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read one element from the stream and leave the stream just after it."""

    def reader(self, version: int) -> Callable[[BytesIO], T] | None:
        """Return what reads an element that a version of this class wrote; None: nothing does.

        It is asked for all versions up to this one before a job starts, and again where state is
        read. A class that can still read what it wrote before overrides it.
        """
        return self.deserialize if version == self.version else None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class VoidNamespaceSerializer(TypeSerializer[bytes]):
    """The serializer of state that has no namespace: it writes nothing."""

    def serialize(self, element: bytes, stream: BytesIO) -> None:
        """Write nothing."""

    def deserialize(self, stream: BytesIO) -> bytes:
        """Return the empty bytes."""
        return b""
