"""`ColumnTables`: the keys and columns of all operators of a subtask that have state in columns."""

from __future__ import annotations

from holdfast.state.columns.table import ColumnTable


class ColumnTables:
    """A table per operator; its states with namespaces have a table of their own."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, bool], ColumnTable] = {}

    def of(self, operator: str, namespaced: bool = False) -> ColumnTable:
        """Return the table of an operator; it is made when it is first asked for."""
        place = operator, namespaced
        if place not in self._tables:
            self._tables[place] = ColumnTable(operator)
        return self._tables[place]

    def forget_unused_keys(self) -> None:
        """Forget the keys of operators without columns, so that they do not pile up."""
        for table in self._tables.values():
            if len(table) and not table.columns:
                table.clear()

    def compact(self) -> bool:
        """Free the slots of keys without state; call it when no earlier marks are needed.

        Return whether any rows were moved.
        """
        moved = [table.compact() for table in self._with_columns()]
        return any(moved)

    def dead_slots(self) -> int:
        """Return how many slots `compact` would free."""
        return sum(len(table.many_dead()) for table in self._with_columns())

    def _with_columns(self) -> list[ColumnTable]:
        return [table for table in self._tables.values() if table.columns]
