"""Checkpoints: when they are taken, what is in them, and where they are.

Knows no executor. The coordinator is pure: events in, instructions out, the clock handed in. Only
`store`, `savepoints` and `lock` touch a file system, which is handed in too.
"""
