"""The tag of a side output."""

from __future__ import annotations

from typing import Any, Final, Self

from holdfast.common.typeinfo import TypeInformation, Types, type_info_of

__all__ = ["OutputTag"]

#: empty as long as this process has no tag: then no result of a function is for a side output
TAGS_EXIST: Final[list[bool]] = []


class OutputTag:
    """The id and the type of a side output of an operator.

    A process function emits a record there with ``yield tag, record``. The stream of them is
    ``get_side_output(tag)``. Tags with the same id are equal, wherever they were created.
    """

    def __new__(cls, *_arguments: Any, **_named: Any) -> Self:
        """Record that there is a tag, also when one is unpickled."""
        if not TAGS_EXIST:
            TAGS_EXIST.append(True)
        return super().__new__(cls)

    def __init__(
        self, tag_id: str, type_info: TypeInformation | type | list[Any] | None = None
    ) -> None:
        """Create a tag with an id that is unique within the operator, and the type of the records.

        A list of types means a row of these types; without a type, records are pickled.
        """
        if not tag_id or type(tag_id) is not str:
            message = f"the id of a side output must be a non-empty str; got {tag_id!r}"
            raise ValueError(message)
        self.tag_id = tag_id
        self.type_info = _type_info(type_info)

    def __eq__(self, other: object) -> bool:
        return self.tag_id == other.tag_id if isinstance(other, OutputTag) else NotImplemented

    def __hash__(self) -> int:
        return hash((OutputTag, self.tag_id))

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info!r})"


def _type_info(given: TypeInformation | type | list[Any] | None) -> TypeInformation:
    if isinstance(given, list):
        return Types.ROW([type_info_of(field) for field in given])
    return Types.PICKLED_BYTE_ARRAY() if given is None else type_info_of(given)
