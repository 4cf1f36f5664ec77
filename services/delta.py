"""The jars of Delta for Spark, and the newest Spark that has them."""

from __future__ import annotations

from typing import Final

from services.artifacts import Artifact

#: packages of Delta lag behind Spark's releases
PYSPARK: Final = "4.1.4"
#: for that version of Spark, which has all else that they need
DELTA: Final = (
    Artifact("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    *(
        Artifact("io.delta", f"delta-{name}", "4.4.0")
        for name in ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
    ),
)
