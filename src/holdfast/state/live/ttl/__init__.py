"""State with a time-to-live."""
