"""A Kubernetes of one node, for scripts/try_kubernetes.py."""
