"""Formats of messages: JSON, CSV and Avro, under PyFlink's names."""
