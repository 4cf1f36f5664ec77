"""The logical graph: what the user's calls build. Frozen nodes, nothing runs, imports nobody."""
