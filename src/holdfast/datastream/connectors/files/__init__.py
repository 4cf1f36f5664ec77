"""Files as source and sink: see `holdfast.datastream.connectors.file_system`."""
