"""The responses of the API, with Flink's field names."""
