"""The driver with many slots: ``python -m benchmarks scale``; see `benchmarks.scale.command`."""
