"""Benchmarks of Holdfast side by side with its peers; run with ``python -m benchmarks``.

Where to read first: `measure` says how a rate is measured, `workloads` what is run on which
system with how many records, `records` what the records are. The programs themselves stand in
`own` (Holdfast) and `peers` (PyFlink, PySpark, Bytewax); each runs in a process of its own.
"""
