"""DataFrames as sources: their rows become blocks of records before level 0.

The query reads one stream: the ticks, united with every streaming DataFrame of the job. Column
``source`` says whose row it is, and each source has a struct column of its own. A batch DataFrame is
read in the first epoch.
"""

from __future__ import annotations

from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from holdfast.plan.model import Plan


def input_stream(session: SparkSession, plan: Plan) -> DataFrame:
    """The stream that drives the epochs."""
    return session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()


def to_blocks(
    batch: DataFrame, plan: Plan, job: Broadcast[bytes], job_id: str, epoch: int, closing: bool
) -> DataFrame | None:
    """The blocks of this epoch's rows; None where the job reads no DataFrame."""
    return None
