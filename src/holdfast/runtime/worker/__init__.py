"""What a worker process has once, independent of the engine."""
