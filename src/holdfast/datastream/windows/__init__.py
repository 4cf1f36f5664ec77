"""What a window operation is made of; users import it from ``holdfast.datastream.window``.

`windows` are the groups themselves, `assigners` put records into them, `triggers` say when a window
is looked at, and `evictors` take records out of it before or after that. All of them are values:
they travel in the graph, and what changes is kept in state.
"""
