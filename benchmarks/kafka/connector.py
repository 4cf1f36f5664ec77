"""The jars of Spark's own Kafka connector."""

from __future__ import annotations

from pathlib import Path

from services.artifacts import Artifact, fetched

__all__ = ["connector_jars"]

#: what Spark brings along itself must not come in another version
_PRESENT = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "snappy-java", "lz4-java")
#: needed by the connector, even without tokens; repositories may lack later versions
_TOKENS = Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0")


def connector_jars(version: str) -> list[Path]:
    """Fetch the connector for a version of Spark.

    Raises:
        UnavailableError: when it cannot be had.
    """
    connector = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", version)
    jars = fetched("spark-kafka", [connector], excluded=(*_PRESENT, _TOKENS.name))
    return jars + fetched("spark-kafka-tokens", [_TOKENS], transitive=False)
