"""NEXMark, the auction benchmark of streaming systems, on Holdfast and beside Flink.

Where to read first: `events` says what an event is, `generator` makes them, `data` keeps them in
files that every system reads, `source` reads those into Holdfast. The queries stand in `queries`,
the same computed by DuckDB in `reference`. `job` measures Holdfast, `flink_sql_job` and
`pyflink_job` its peers.

The original is https://github.com/nexmark/nexmark: the generator's proportions, the windows and
the meaning of each query are from there.
"""
