"""The epochs engine: one Spark job per epoch."""
