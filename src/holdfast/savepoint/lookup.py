"""Lookup of operators and states by name; errors list the existing ones."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.state.errors import StateLookupError
from holdfast.state.format.catalog import SavedState
from holdfast.state.live.operator_state import MODES


def find_operator(operators: Mapping[str, OperatorImage], name: str) -> tuple[str, OperatorImage]:
    """Return an operator by its uid, or by its name if it is unique."""
    if name in operators:
        return name, operators[name]
    found = [uid for uid, image in operators.items() if image.name == name]
    if len(found) == 1:
        return found[0], operators[found[0]]
    known = ", ".join(f"'{uid}' ({image.name})" for uid, image in sorted(operators.items()))
    count = "no operator has" if not found else f"{len(found)} operators have"
    message = f"{count} the uid or name '{name}'; there are {known or 'none'}"
    raise StateLookupError(message)


def find_state(
    image: OperatorImage, name: str, keyed: bool = True, windowed: bool | None = None
) -> SavedState:
    """Return a state of an operator; ``windowed`` selects one of two states of the same name."""
    same_sort = [state for state in states_of(image) if (state.kind not in MODES) is keyed]
    found = [s for s in same_sort if s.name == name and windowed in (None, s.namespaced)]
    if len(found) == 1:
        return found[0]
    what = "keyed state" if keyed else "operator state"
    if found:
        message = (
            f"operator '{image.name}' has two {what}s '{name}', one of them per window; use "
            "windowed=True or windowed=False"
        )
        raise StateLookupError(message)
    known = ", ".join(sorted({repr(state.name) for state in same_sort}))
    message = f"operator '{image.name}' has no {what} {name!r}; it has {known or 'none'}"
    raise StateLookupError(message)


def states_of(image: OperatorImage) -> list[SavedState]:
    """Return the states of an operator, each once.

    A state that was written under several types has no type here: it is inferred from the values.
    """
    alike: dict[tuple[str, str, bool], list[SavedState]] = {}
    for state in image.states:
        alike.setdefault((state.name, state.kind, state.namespaced), []).append(state)
    return [
        variants[0] if len(variants) == 1 else _untyped(variants) for variants in alike.values()
    ]


def _untyped(variants: list[SavedState]) -> SavedState:
    first = variants[0]
    types = (None,) * len(first.types)
    pickled = any(variant.pickled for variant in variants)
    return SavedState(first.name, first.kind, types, first.namespaced, pickled, first.expires)
