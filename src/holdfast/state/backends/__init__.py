"""Where a running subtask keeps its keyed state: in memory, or in a RocksDB of the host."""
