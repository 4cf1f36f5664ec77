"""Subtasks that Spark runs epoch by epoch, and the processes that keep them in between."""
