"""The rows of an HBase table: row key, families, qualifiers, and their types."""

from __future__ import annotations

from typing import Any, NoReturn

from holdfast.common import TypeInformation, Types, type_info_of
from holdfast.datastream.connectors.hbase.bytes import coding_of
from holdfast.errors import JobDefinitionError


class HBaseTableSchema:
    """Describes the rows of a table: its row key and its columns.

    A row of the stream has one field for the row key and one for each family, in the order in which
    they are declared. The field of a family contains a row, with one field for each of its
    columns. Both are a ``Row``, a tuple, or a dict by name.

    >>> schema = HBaseTableSchema().set_row_key("id", str)
    >>> schema = schema.add_column("info", "amount", float).add_column("info", "items", int)
    >>> schema.get_row_type_info()
    RowTypeInfo(id: String, info: RowTypeInfo(amount: Double, items: Long))

    Types are type information, or Python's own types: ``int`` is ``Types.LONG()``, ``float`` is
    ``Types.DOUBLE()``, ``bytes`` is for values that you encode yourself.
    """

    def __init__(self) -> None:
        """Start without columns."""
        self._row_key: tuple[str, TypeInformation] | None = None
        self._row_key_index = 0
        self._families: dict[str, dict[str, TypeInformation]] = {}

    def set_row_key(self, row_key_name: str, type_info: Any) -> HBaseTableSchema:
        """Declare the field of the row key; it comes after the families declared so far."""
        if self._row_key is not None:
            _fail(f"has two row keys, {self._row_key[0]!r} and {row_key_name!r}")
        self._row_key = row_key_name, _checked(f"its row key {row_key_name!r}", type_info)
        self._row_key_index = len(self._families)
        return self

    def add_column(self, family: str, qualifier: str, type_info: Any) -> HBaseTableSchema:
        """Declare a column; a family is declared with its first column."""
        name = f"{family}:{qualifier}"
        if not family or not qualifier or ":" in family:
            _fail(f"has a column {name!r}; it takes a family without a colon, and a qualifier")
        columns = self._families.setdefault(family, {})
        if qualifier in columns:
            _fail(f"has two columns {name}")
        columns[qualifier] = _checked(f"its column {name}", type_info)
        return self

    def get_row_key_name(self) -> str:
        """Return the name of the field with the row key."""
        return self._key()[0]

    def get_row_key_type_info(self) -> TypeInformation:
        """Return the type of the row key."""
        return self._key()[1]

    def get_row_key_index(self) -> int:
        """Return the position of the row key among the fields."""
        return self._row_key_index

    def get_family_names(self) -> list[str]:
        """Return the families, in the order of their fields."""
        return list(self._families)

    def get_columns(self, family: str) -> dict[str, TypeInformation]:
        """Return the columns of a family by qualifier, in the order of their fields."""
        return dict(self._families[family])

    def get_field_names(self) -> list[str]:
        """Return the fields of a row: the families and the row key, in order."""
        names = self.get_family_names()
        names.insert(self._row_key_index, self.get_row_key_name())
        return names

    def get_row_type_info(self) -> TypeInformation:
        """Return the type of the rows, to declare as an operator's output type."""
        types: list[TypeInformation] = [
            Types.ROW_NAMED(list(columns), list(columns.values()))
            for columns in self._families.values()
        ]
        types.insert(self._row_key_index, self.get_row_key_type_info())
        return Types.ROW_NAMED(self.get_field_names(), types)

    def check(self) -> None:
        """Check that the schema is complete.

        Raises:
            JobDefinitionError: when there is no row key, or no column.
        """
        self._key()
        if not self._families:
            _fail("has no columns; declare them with add_column(family, qualifier, type_info)")

    def _key(self) -> tuple[str, TypeInformation]:
        if self._row_key is None:
            _fail("has no row key; declare it with set_row_key(name, type_info)")
        if self._row_key[0] in self._families:
            _fail(f"calls both its row key and a family {self._row_key[0]!r}")
        return self._row_key


def _checked(what: str, declared: Any) -> TypeInformation:
    type_info: TypeInformation | None = type_info_of(declared)
    if type_info is None or coding_of(type_info) is None:
        _fail(
            f"declares {what} as {declared!r}, which has no bytes in HBase; encode such values "
            "yourself and declare bytes"
        )
    return type_info


def _fail(problem: str) -> NoReturn:
    message = f"the schema of an HBase table {problem}"
    raise JobDefinitionError(message)
