"""Checkpoints: when they are taken, what is in them, where they are, and what follows a failure.

Knows no executor. The coordinator and the restart policies are pure: events in, decisions out, the
clock handed in. Only `store`, `savepoints` and `lock` touch a file system, which is handed in too.
"""
