"""Access control and resource limits of a server."""
