"""How values of state are written: as JSON, and for people."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

from holdfast.common import Row


def json_of(value: Any) -> Any:
    """Convert a plain value to JSON types.

    A map whose keys are not texts is a list of pairs; bytes are in base64, numbers that are not
    finite null; dates, decimals and whatever else there is are texts.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: json_of(item) for key, item in value.items()}
        case Mapping():
            return [[json_of(key), json_of(item)] for key, item in value.items()]
        case Row() if hasattr(value, "_fields"):
            return json_of(value.as_dict())
        case list() | tuple() | set() | frozenset() | Row():
            return [json_of(item) for item in value]
    return str(value)


def text_of(value: Any) -> str:
    """Return a plain value on one line: a string as it is, anything else as JSON."""
    found = json_of(value)
    if isinstance(found, str) and found.isprintable():
        return found
    return json.dumps(found, ensure_ascii=False)
