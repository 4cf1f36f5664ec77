"""Subtasks that run permanently: slots, the channels between them, and rounds.

The protocol is in `docs/internals/resident.md`.
"""
