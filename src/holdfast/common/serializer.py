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
    same fields are equal. Saved state records the name of the class, and each value the version
    that wrote it.
    """

    #: increase it when the format that `serialize` writes changes
    version: ClassVar[int] = 0

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Append the element's bytes to the stream."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read one element from the stream and leave the stream just after it."""

    def reader(self, version: int) -> Callable[[BytesIO], T] | None:
        """Return a function that reads elements of a version of this class; None if not supported.

        It is called for all versions up to this one before a job starts, and again when state is
        read. Override it in a class that can read earlier versions.
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
