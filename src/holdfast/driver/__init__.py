"""A job from its start to its end, independent of the engine that runs its epochs."""
