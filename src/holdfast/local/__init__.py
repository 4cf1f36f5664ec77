"""The local engine: runs a small job in the process of its program, without Spark."""
