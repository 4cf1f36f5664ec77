"""The operators of a subtask, apart from the functions that are called record by record."""
