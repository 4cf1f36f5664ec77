"""The format of state files, and the list of files that form the state of a subtask."""
