"""The operator of windows over columns."""
