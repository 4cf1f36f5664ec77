"""Large state on two hosts: ``python -m benchmarks large``; see `benchmarks.large.command`."""
