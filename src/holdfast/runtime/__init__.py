"""Runs one subtask of one level for one epoch, in any process. Imports no Spark."""
