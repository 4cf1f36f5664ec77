"""Subtasks with a place of their own: slots, the channels between them, and rounds.

`docs/internals/resident.md` has the protocol.
"""
