"""The word count of ``examples/word_count.py`` in bare PySpark, for `first_result_job`."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from examples.word_count import LINES, split


def main() -> None:
    """Count the words and print the counts."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    words = spark.sparkContext.parallelize(LINES).flatMap(split)
    counts = words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
    for count in counts.collect():
        print(count, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
