"""State in columns: the keys of an operator in one hash index, and a numpy column per state."""
