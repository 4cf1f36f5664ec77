"""`SchemaEvolution`: what happens to a table that lacks columns."""

from __future__ import annotations

from enum import Enum


class SchemaEvolution(Enum):
    """What happens if the sink has columns that the table lacks."""

    REFUSE = "refuse"
    ADD_COLUMNS = "add-columns"
