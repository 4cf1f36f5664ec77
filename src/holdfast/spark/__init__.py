"""The only package that imports pyspark: session, epochs as Spark jobs, DataFrames in and out."""
