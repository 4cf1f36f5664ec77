"""Streams whose records are rows of Arrow batches."""
