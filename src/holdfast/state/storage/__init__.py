"""The storage of state files."""
