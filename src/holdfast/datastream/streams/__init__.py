"""What a stream can be connected with, joined with and split into; each call adds a node."""
