"""Formats of messages (JSON, CSV, Avro) and of files (Parquet, Avro), under PyFlink's names."""
