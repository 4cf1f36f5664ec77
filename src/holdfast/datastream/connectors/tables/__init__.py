"""What sinks for tables share: files of columns, and commits that happen once.

Writers in parallel write Parquet files below the table, where no reader of the table sees them
(`holdfast.datastream.connectors.tables.writer`). One committer adds the files of a checkpoint to
the table in one step (`holdfast.datastream.connectors.tables.committer`).
"""
