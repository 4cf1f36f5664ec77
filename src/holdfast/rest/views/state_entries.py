"""The response with the entries of a state, page by page.

Entries are read from a checkpoint or savepoint, never from the running job, which is therefore not
delayed. A request reads the state files of one subtask, or of several small ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.rest.errors import Refusal
from holdfast.rest.shapes import state as shapes
from holdfast.rest.site import ServedJob
from holdfast.rest.views.state import LARGEST, kept, one_at_a_time, plain, read
from holdfast.savepoint import Savepoint, StateData
from holdfast.savepoint.data import RowPlace
from holdfast.savepoint.savepoint import WINDOW_CONTENTS
from holdfast.state.errors import StateLookupError

#: rows of a page, unless a client wants fewer or more
_ROWS: Final = 50
#: maximum length of the text of a key or value
_LONGEST: Final = 1000
_PLACE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,15})", re.ASCII)


def entries(job: ServedJob, query: Mapping[str, Any]) -> shapes.StateEntries:
    """Return entries of a state in a checkpoint; by default in the last retained one."""
    seen = job.history.look(lambda history: kept(history, query.get("checkpoint")))
    if seen is None:
        raise Refusal(404, "there is no checkpoint yet; a state is read from a checkpoint")
    place, most = _place(query.get("after")), query.get("rows", _ROWS)
    try:
        data = _data(read(seen), query)
    except StateLookupError as error:
        raise Refusal(404, str(error)) from None
    size = data.part_size(place.part)
    if size > LARGEST:
        raise Refusal(
            413,
            f"a subtask has {size} bytes of state, more than the driver reads for a client "
            f"({LARGEST}); use 'holdfast state show' or 'holdfast state export'",
        )
    with one_at_a_time:
        rows, after = data.page(place, most, LARGEST)
    return shapes.StateEntries(
        checkpoint=seen.id,
        timestamp=seen.triggered,
        operator=query["operator"],
        state=query["state"],
        rows=[_row(row) for row in rows],
        next=None if after is None else f"{after.part}.{after.row}",
    )


def _place(text: str | None) -> RowPlace:
    if text is None:
        return RowPlace()
    found = _PLACE.fullmatch(text)
    if found is None:
        raise Refusal(400, f"'after' must be the 'next' of an answer; got {text[:50]!r}")
    return RowPlace(int(found.group(1)), int(found.group(2)))


def _data(saved: Savepoint, query: Mapping[str, Any]) -> StateData:
    operator, state = query["operator"], query["state"]
    if state == WINDOW_CONTENTS.removeprefix("\0"):
        return saved.windows(operator)
    known = saved.operators.get(operator)
    if known is not None and any(one.name == state and not one.keyed for one in known.states):
        return saved.operator_state(operator, state)
    windowed = query.get("windowed")
    return saved.keyed_state(operator, state, None if windowed is None else windowed == "true")


def _row(row: Mapping[str, Any]) -> shapes.StateRow:
    return shapes.StateRow(
        key=_text(row["key"]) if "key" in row else None,
        window=_text(row["window"]) if "window" in row else None,
        value=_text(row["value"]),
        subtask=row.get("subtask"),
        accessed=plain(row.get("accessed")),
    )


def _text(value: Any) -> str:
    text = msgspec.json.encode(plain(value), enc_hook=str).decode()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
