"""State in a RocksDB of the host, for more than memory holds."""
