"""State of a running subtask: tables that track changes, and the views that functions use."""
