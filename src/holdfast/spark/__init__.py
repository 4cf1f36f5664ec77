"""The only package that imports pyspark: sessions, the engines, DataFrame sources and sinks."""
