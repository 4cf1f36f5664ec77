"""The parts of a window operation; users import them from ``holdfast.datastream.window``.

`windows` are the groups themselves, `assigners` put records into them, `triggers` decide when a
window fires, and `evictors` remove records before or after that. All of them are values:
they are part of the graph, and whatever changes is kept in state.
"""
