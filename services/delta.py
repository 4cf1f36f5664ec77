"""The jars of Delta for Spark, and the versions of Spark that have them."""

from __future__ import annotations

from typing import Final

from services.artifacts import Artifact

_VERSION: Final = "4.4.0"


def _delta_for(spark: str) -> tuple[Artifact, ...]:
    """The jars for a version of Spark, which has all else that they need."""
    return (
        Artifact("io.delta", f"delta-spark_{spark}_2.13", _VERSION),
        *(
            Artifact("io.delta", f"delta-{name}", _VERSION)
            for name in ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
        ),
    )


#: the newest Spark that has packages of Delta and of Iceberg
PYSPARK: Final = "4.1.4"
DELTA: Final = _delta_for("4.1")
#: the newest Spark that has a package of Delta; packages lag behind Spark's releases
NEWEST_PYSPARK: Final = "4.2.0"
NEWEST_DELTA: Final = _delta_for("4.2")
