"""The sources of a subtask: readers with a position, and loops of source functions."""
