"""The resident engine: one long barrier job of Spark per attempt."""
