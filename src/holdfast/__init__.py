"""Apache Flink's stateful stream processing API in Python, with Apache Spark as the engine.

Modules and names are PyFlink's: a DataStream job runs when ``pyflink`` in its imports becomes
``holdfast``. `holdfast.datastream` holds the API, `holdfast.common` the types, rows, time and
configuration that it takes.
"""

__all__ = ["__version__"]

#: The one place where the version is written; the build reads it from here.
__version__ = "0.1.0"
