"""Plans as pictures: a flowchart in the language of Mermaid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.plan.model import Plan, PlannedOperator
from holdfast.printable import printable

#: characters with a meaning in Mermaid, and the entities for them
_ENTITIES: Final = str.maketrans(
    {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;"}
)


def to_mermaid(plan: Plan) -> str:
    """Return a flowchart: a box for each level, thin arrows for calls, thick ones for exchanges."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield "flowchart LR"
    first = -1 if plan.rows_sources else 0
    for number, (title, operators) in enumerate(plan.titled_levels(), first):
        yield from _box("rows" if number < 0 else f"level{number}", title, operators)
    for op in plan.operators.values():
        for call in op.calls:
            yield f"  n{op.id} -->{_label(call.tag)} n{call.target}"
        for number in op.exchanges:
            ex = plan.exchanges[number]
            yield f"  n{op.id} ==>{_label(str(ex.partitioning), ex.tag)} n{ex.target}"


def _box(name: str, title: str, operators: Iterable[PlannedOperator]) -> Iterator[str]:
    yield f"  subgraph {name}[{_quoted(title)}]"
    for op in operators:
        shape = "([{}])" if op.node.is_source else "[{}]"
        yield f"    n{op.id}{shape.format(_quoted(op.name))}"
    yield "  end"


def _label(*parts: str | None) -> str:
    """Return the label of an arrow: the partitioning, the side output."""
    text = ", ".join(part for part in parts if part is not None)
    return f"|{_quoted(text)}|" if text else ""


def _quoted(text: str) -> str:
    return f'"{printable(text).translate(_ENTITIES)}"'
