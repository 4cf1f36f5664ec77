"""Keyed state: key groups, tables, views, serializers, state files, chains and backends.

Imports nothing by itself. The way in is `holdfast.state.backend`; the public interfaces and
descriptors are in `holdfast.datastream.state`.
"""
