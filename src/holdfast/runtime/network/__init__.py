"""Connections between the processes of a job: found, authenticated, encrypted."""
