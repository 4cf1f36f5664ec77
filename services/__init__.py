"""Real servers, for tests and for trying things out: ``make services`` and ``make services-stop``.

Their classes come from Maven Central through the client that Spark brings along, once, into a cache
folder; each server runs in a Java process of its own, on free ports of this machine, with its files
in one folder.
"""
