"""Both engines side by side: ``python -m benchmarks engines``; see `benchmarks.engines.command`."""
