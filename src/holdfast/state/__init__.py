"""Keyed state: key groups, tables, views, serializers, state files, heads and backends.

This package imports nothing by itself. The entry point is `holdfast.state.backend`; the public
interfaces and descriptors are in `holdfast.state.descriptors`.
"""
