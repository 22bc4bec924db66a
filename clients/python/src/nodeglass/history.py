"""A range of the history, and its conversion to a pandas frame."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from . import models

if TYPE_CHECKING:
    import pandas


STATISTICS = ("min", "mean", "max")


@dataclass(frozen=True)
class History(models.History):
    """Minimum, mean and maximum of metrics over a range of time. All series have the same steps."""

    metrics: List[str] = field(default_factory=list)
    """The metrics that were asked for, also those without a series."""

    def times(self) -> List[datetime]:
        """Start of each step, in UTC."""
        return [self.start + timedelta(seconds=self.step_s * step) for step in range(self.steps)]

    def to_pandas(self, statistic: str = "all") -> "pandas.DataFrame":
        """A tidy frame: a row per step and GPU or host, with the step's start as `DatetimeIndex` in UTC.

        The columns are `node`, `gpu`, and of each metric `METRIC_min`, `METRIC_mean` and `METRIC_max`, or with
        `statistic="mean"` just `METRIC`. A step without samples is `NA`, never zero, so that gaps stay gaps.
        """
        if statistic not in ("all", "min", "mean", "max"):
            raise ValueError(f"the statistic must be all, min, mean or max, not {statistic!r}")
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install 'nodeglass[pandas]'") from error
        index = pandas.date_range(self.start, periods=self.steps, freq=f"{self.step_s}s", name="time")
        rows: Dict[Tuple[str, Any], Dict[str, Any]] = {}
        metrics: List[str] = []
        for series in self.series:
            columns = rows.setdefault((series.node, series.gpu), {"node": series.node, "gpu": series.gpu})
            for column, values in _columns(series, statistic):
                # Whole numbers with gaps need a type of their own in pandas.
                columns[column] = pandas.array(values, dtype="Int64")
                if column not in metrics:
                    metrics.append(column)
        frames = [pandas.DataFrame(columns, index=index) for columns in rows.values()]
        if not frames:
            empty: Dict[str, Any] = {"node": [], "gpu": []}
            for metric in self.metrics:
                empty.update({name: pandas.array([], dtype="Int64") for name in _column_names(metric, statistic)})
            return pandas.DataFrame(empty, index=index[:0])
        return pandas.concat(frames)[["node", "gpu", *metrics]]


def _column_names(metric: str, statistic: str) -> List[str]:
    return [metric] if statistic != "all" else [f"{metric}_{name}" for name in STATISTICS]


def _columns(series: models.Series, statistic: str) -> List[Tuple[str, Any]]:
    statistics = STATISTICS if statistic == "all" else (statistic,)
    values = [getattr(series, name) for name in statistics]
    return list(zip(_column_names(series.metric, statistic), values))
