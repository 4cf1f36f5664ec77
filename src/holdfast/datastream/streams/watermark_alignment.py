"""Checks for watermark alignment, which needs a source with watermarks that can be paused."""

from __future__ import annotations

from holdfast.common.watermark_strategy import NoWatermarks, WatermarkStrategy
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.errors import JobDefinitionError, JobTypeError


def check_alignment(source: Source, strategy: WatermarkStrategy | None) -> None:
    """Check the strategy of a source.

    Raises:
        JobDefinitionError: if it has an alignment, and the source cannot be paused or the strategy
            generates no watermarks.
    """
    if strategy is None or strategy.alignment is None:
        return
    if source.reads_rows or isinstance(source, FunctionSource):
        reason = f"a {type(source).__name__} cannot be paused; leave out with_watermark_alignment"
    elif isinstance(strategy.generator, NoWatermarks):
        reason = (
            "it generates no watermarks that could be compared; use another strategy, such as "
            "WatermarkStrategy.for_bounded_out_of_orderness"
        )
    else:
        return
    raise JobDefinitionError(
        "from_source: the strategy has a watermark alignment (group "
        f"'{strategy.alignment.group}'), but {reason}"
    )


def check_strategy(strategy: WatermarkStrategy) -> None:
    """Check a strategy that is not assigned at a source.

    Raises:
        TypeError: if it is not a WatermarkStrategy.
        JobDefinitionError: if it has an alignment.
    """
    if not isinstance(strategy, WatermarkStrategy):
        given = f"{strategy!r} ({type(strategy).__name__})"
        message = f"assign_timestamps_and_watermarks: expected a WatermarkStrategy; got {given}"
        raise JobTypeError(message)
    if strategy.alignment is not None:
        raise JobDefinitionError(
            "assign_timestamps_and_watermarks: the strategy has a watermark alignment (group "
            f"'{strategy.alignment.group}'), and only a source can be paused; pass the strategy to "
            "from_source(source, strategy, ...), or leave out with_watermark_alignment. Source "
            "functions and DataFrames cannot be paused"
        )
