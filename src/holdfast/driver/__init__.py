"""A job from its start to its end, whatever runs its epochs: Spark, or this process."""
