"""Checkpoints: when they are taken, what they contain, and where they are stored.

Independent of executors. The coordinator is pure: events in, instructions out, with the time as an
argument. Only `store`, `savepoints` and `lock` use a file system, which is an argument too.
"""
