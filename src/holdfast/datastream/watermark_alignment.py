"""Where a watermark alignment is refused: on what cannot be paused, or has no watermarks."""

from __future__ import annotations

from holdfast.common.watermark_strategy import NoWatermarks, WatermarkStrategy
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.errors import JobDefinitionError


def check_alignment(source: Source, strategy: WatermarkStrategy | None) -> None:
    """Check the strategy of a source.

    Raises:
        JobDefinitionError: when it has an alignment, and the source cannot be paused or the
            strategy makes no watermarks.
    """
    if strategy is None or strategy.alignment is None:
        return
    if source.reads_rows or isinstance(source, FunctionSource):
        reason = f"a {type(source).__name__} cannot be paused; leave out with_watermark_alignment"
    elif isinstance(strategy.generator, NoWatermarks):
        reason = (
            "it makes no watermarks that could be compared; begin with another one, such as "
            "WatermarkStrategy.for_bounded_out_of_orderness"
        )
    else:
        return
    raise JobDefinitionError(
        "from_source: the strategy has a watermark alignment (group "
        f"'{strategy.alignment.group}'), but {reason}"
    )


def refuse_alignment(strategy: WatermarkStrategy) -> None:
    """Check a strategy that is not that of a source.

    Raises:
        JobDefinitionError: when it has an alignment.
    """
    if strategy.alignment is not None:
        raise JobDefinitionError(
            "assign_timestamps_and_watermarks: the strategy has a watermark alignment (group "
            f"'{strategy.alignment.group}'), and only a source can be paused; pass the strategy to "
            "from_source(source, strategy, ...), or leave out with_watermark_alignment. Source "
            "functions and DataFrames cannot be paused"
        )
