"""Plans as SVG pictures.

Levels are bands from top to bottom. In a band, a called operator is to the right of its caller;
thin lines are calls. Thick lines are exchanges: each goes from below its source to a lane of its
own beside the bands, and from there to its target, so that no line leads behind a box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from xml.sax import saxutils

from holdfast.plan.model import Exchange, Plan, PlannedOperator
from holdfast.printable import printable

#: lengths in pixels
_CHARACTER: Final = 7
_BOX: Final = 28
_ROW: Final = 54
_GAP: Final = 40
_MARGIN: Final = 14
_TITLE: Final = 40
_BETWEEN: Final = 12
_LANE: Final = 9
#: how far below its box an exchange turns, and how far above a box its label is
_TURN: Final = 5
_ABOVE: Final = 4
#: longer names are cut
_LONGEST: Final = 40

#: colours that can be read on light and on dark
_STYLE: Final = """
  text { font: 12px sans-serif; fill: #1c313a }
  .level { fill: #eceff1; stroke: #b0bec5 }
  .operator { fill: #ffffff; stroke: #546e7a }
  .source { fill: #e0f2f1; stroke: #00796b }
  .title { fill: #546e7a }
  .label { font-size: 11px; fill: #00695c }
  .call { fill: none; stroke: #546e7a }
  .exchange { fill: none; stroke: #00897b; stroke-width: 2; stroke-linejoin: round }
"""
_ARROWS: Final = """<defs>
  <marker id="thin" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"
   orient="auto">
    <path d="M0 0 8 4 0 8z" fill="#546e7a"/></marker>
  <marker id="thick" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="5" markerHeight="5"
   orient="auto">
    <path d="M0 0 8 4 0 8z" fill="#00897b"/></marker>
</defs>"""


class _Box(NamedTuple):
    """An operator in the picture."""

    operator: PlannedOperator
    x: int
    y: int
    width: int


class _Band(NamedTuple):
    """A level in the picture."""

    title: str
    y: int
    right: int
    bottom: int
    boxes: tuple[_Box, ...]


def to_svg(plan: Plan) -> str:
    """Return a picture: a band for each level, thin lines for calls, thick ones for exchanges."""
    lanes = _lanes(plan.exchanges)
    left = _MARGIN + _LANE * (1 + max(lanes, default=-1))
    bands = list(_bands(plan, left))
    right, bottom = max(band.right for band in bands), bands[-1].bottom
    boxes = {box.operator.id: box for band in bands for box in band.boxes}
    turns = _turns([boxes[ex.source] for ex in plan.exchanges])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{right + _MARGIN}" '
        f'height="{bottom + _MARGIN}" viewBox="0 0 {right + _MARGIN} {bottom + _MARGIN}">',
        f"<title>{_escape(plan.name)}</title>",
        f"<style>{_STYLE}</style>",
        _ARROWS,
        *(line for band in bands for line in _drawn_band(band, left, right)),
        *(line for box in boxes.values() for line in _calls(box, boxes)),
        *(
            _exchange(boxes[ex.source], boxes[ex.target], _MARGIN + _LANE * lane, turns[ex.source])
            for ex, lane in zip(plan.exchanges, lanes, strict=True)
        ),
        *(line for box in boxes.values() for line in _drawn_box(box)),
        *_arrivals(plan, boxes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# --- Layout ---


def _bands(plan: Plan, left: int) -> Iterator[_Band]:
    y = _MARGIN
    for title, operators in plan.titled_levels():
        band = _band(title, left, y, operators)
        yield band
        y = band.bottom + _BETWEEN


def _band(title: str, left: int, y: int, operators: Sequence[PlannedOperator]) -> _Band:
    places = _places(operators)
    columns = [0] * (1 + max(column for column, _ in places.values()))
    for op in operators:
        column, _ = places[op.id]
        columns[column] = max(columns[column], _width(_name(op)))
    lefts = [left + _GAP // 2 + sum(columns[:i]) + i * _GAP for i in range(len(columns))]
    boxes = []
    for op in operators:
        column, row = places[op.id]
        boxes.append(_Box(op, lefts[column], y + _TITLE + row * _ROW, _width(_name(op))))
    right = max(lefts[-1] + columns[-1], left + _width(title)) + _MARGIN
    bottom = max(box.y for box in boxes) + _ROW - _MARGIN
    return _Band(title, y, right, bottom, tuple(boxes))


def _places(operators: Sequence[PlannedOperator]) -> dict[int, tuple[int, int]]:
    """Return the column and the row of each operator.

    The first operator that one calls is on its row, and each further one starts a new row; so does
    one that is not called.
    """
    by_id = {op.id: op for op in operators}
    columns = dict.fromkeys(by_id, 0)
    for op in operators:  # NB: each comes after everything that calls it
        for call in op.calls:
            columns[call.target] = max(columns[call.target], columns[op.id] + 1)
    rows: dict[int, int] = {}

    def place(number: int, row: int) -> None:
        rows[number] = row
        for call in by_id[number].calls:
            if call.target not in rows:
                is_first = row not in (rows.get(other.target) for other in by_id[number].calls)
                place(call.target, row if is_first else 1 + max(rows.values()))

    for op in operators:
        if op.id not in rows:
            place(op.id, 1 + max(rows.values(), default=-1))
    return {number: (columns[number], row) for number, row in rows.items()}


def _lanes(exchanges: Sequence[Exchange]) -> list[int]:
    """Return a lane for each exchange, counted from the left; overlapping ones differ."""
    ends: list[int] = []
    lanes: dict[int, int] = {}
    for ex in sorted(exchanges, key=lambda ex: (ex.source_level, -ex.target_level)):
        free = [lane for lane, end in enumerate(ends) if end < ex.source_level]
        lane = free[0] if free else len(ends)
        ends[lane : lane + 1] = [ex.target_level]
        lanes[ex.id] = lane
    return [lanes[ex.id] for ex in exchanges]


def _turns(sources: Sequence[_Box]) -> dict[int, int]:
    """Return where the exchanges of an operator turn; different for each operator of a row."""
    rows: dict[int, list[int]] = {}
    for source in sources:
        row = rows.setdefault(source.y, [])
        if source.operator.id not in row:
            row.append(source.operator.id)
    return {
        number: y + _BOX + _TURN * (1 + place)
        for y, row in rows.items()
        for place, number in enumerate(row)
    }


def _width(text: str) -> int:
    return len(text) * _CHARACTER + 2 * _MARGIN


def _escape(text: str) -> str:
    """Escape a text for XML, without control characters."""
    return saxutils.escape(printable(text))


def _name(operator: PlannedOperator) -> str:
    name = operator.name
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


# --- Drawing ---


def _drawn_band(band: _Band, left: int, right: int) -> Iterator[str]:
    yield (
        f'<rect class="level" x="{left}" y="{band.y}" width="{right - left}" '
        f'height="{band.bottom - band.y}" rx="6"/>'
    )
    yield f'<text class="title" x="{left + _MARGIN}" y="{band.y + 17}">{_escape(band.title)}</text>'


def _drawn_box(box: _Box) -> Iterator[str]:
    kind, corner = ("source", _BOX // 2) if box.operator.node.is_source else ("operator", 3)
    yield (
        f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{_BOX}" '
        f'rx="{corner}"><title>{_escape(box.operator.name)}</title></rect>'
    )
    yield (
        f'<text x="{box.x + box.width // 2}" y="{box.y + 18}" text-anchor="middle">'
        f"{_escape(_name(box.operator))}</text>"
    )


def _calls(box: _Box, boxes: dict[int, _Box]) -> Iterator[str]:
    for call in box.operator.calls:
        to = boxes[call.target]
        x, y, to_y = box.x + box.width, box.y + _BOX // 2, to.y + _BOX // 2
        bends = f"C{x + _GAP // 2} {y} {to.x - _GAP // 2} {to_y} {to.x} {to_y}"
        yield f'<path class="call" marker-end="url(#thin)" d="M{x} {y} {bends}"/>'
        if call.tag is not None:
            yield _label(to, call.tag)


def _exchange(source: _Box, target: _Box, lane: int, turn: int) -> str:
    down = f"M{source.x + _MARGIN} {source.y + _BOX} V{turn}"
    route = f"{down} H{lane} V{target.y + _BOX // 2} H{target.x}"
    return f'<path class="exchange" marker-end="url(#thick)" d="{route}"/>'


def _arrivals(plan: Plan, boxes: dict[int, _Box]) -> Iterator[str]:
    """Return the labels of the exchanges to an operator, which are written above it."""
    for number, box in boxes.items():
        arriving = [ex for ex in plan.exchanges if ex.target == number]
        if arriving:
            yield _label(box, ", ".join(dict.fromkeys(map(_arrival, arriving))))


def _arrival(ex: Exchange) -> str:
    return str(ex.partitioning) if ex.tag is None else f"{ex.partitioning} of {ex.tag}"


def _label(box: _Box, text: str) -> str:
    return f'<text class="label" x="{box.x}" y="{box.y - _ABOVE}">{_escape(text)}</text>'
