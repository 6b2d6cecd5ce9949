"""Figures that sum up ranks, their confidence intervals and differences, and what they can be expected to be at best.

A rank is a number from 1 (best) to the query's number of candidates, with halves where ties are shared. Every metric
reduces the last axis, so that one call sums up many resamples; of no ranks at all every metric is NaN.

    mr       mean rank
    mrr      mean of 1 / rank
    hits@k   share of the ranks that are at most k
    amri     adjusted mean rank index, 1 - sum(rank - 1) / sum((candidates - 1) / 2): 1 when every answer is first,
             0 for random order, below 0 for worse; it compares queries with many and with few candidates
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]

SAMPLES, LEVEL = 1000, 0.95  # resamples, and the share of them that an interval holds
DRAWS_AT_ONCE = 1 << 20


def hits(k: int, ranks: Values, candidates: Counts) -> Values:
    """Share of the ranks that are at most ``k``."""
    return mean(ranks <= k)


def adjusted_mean_rank_index(ranks: Values, candidates: Counts) -> Values:
    """1 minus the mean rank's distance from 1, as a share of that of a random order; NaN where it has none."""
    at_random = (candidates - 1).sum(axis=-1) / 2
    lost = (ranks - 1).sum(axis=-1)
    share = np.full(np.shape(lost), np.nan)
    np.divide(lost, at_random, out=share, where=at_random > 0)
    return 1.0 - share


def mean(values: npt.NDArray[Any]) -> Values:
    """The mean over the last axis, NaN of nothing."""
    if values.shape[-1] == 0:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.mean(axis=-1), dtype=np.float64)


def summary(ranks: Values, candidates: Counts) -> dict[str, float]:
    """Every metric of these ranks, by name."""
    return {name: float(metric(ranks, candidates)) for name, metric in METRICS.items()}


def expected_summary(tied: Counts) -> dict[str, float]:
    """The expected value of those reported, when each answer stands at random among the ``tied`` best candidates."""
    harmonic = np.cumsum(1.0 / np.arange(1, tied.max(initial=0) + 1))
    found = {"mr": (tied + 1) / 2, "mrr": harmonic[tied - 1] / tied}
    found |= {f"hits@{k}": np.minimum(k, tied) / tied for k in (1, 3, 10)}
    return {name: float(mean(found[name])) for name in MEASURED}


@dataclass(frozen=True)
class Interval:
    """A confidence interval: ``level`` of the resamples lie from ``low`` to ``high``."""

    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Comparison:
    """How far a metric of one result is above that of another, and how sure that is."""

    metric: str
    difference: float
    interval: Interval
    p_value: float


def bootstrap(metric: str, ranks: Values, candidates: Counts, generator: np.random.Generator) -> Interval:
    """The percentile interval of a metric over queries drawn anew, with replacement."""
    figure = METRICS[metric]
    return _percentiles(_resampled(lambda drawn: figure(ranks[drawn], candidates[drawn]), len(ranks), generator))


def bootstrap_mean(values: npt.NDArray[Any], generator: np.random.Generator) -> Interval:
    """The percentile interval of a mean (of what was right or wrong: a share) over values drawn anew."""
    return _percentiles(_resampled(lambda drawn: mean(values[drawn]), len(values), generator))


def wilson(right: int, asked: int) -> Interval:
    """Wilson's score interval of a share, which holds for few answers, too; NaN of none."""
    if asked == 0:
        return Interval(np.nan, np.nan, LEVEL)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, square = right / asked, z * z / asked
    middle, half = share + square / 2, z * np.sqrt(share * (1 - share) / asked + square / asked / 4)
    low, high = ((middle + sign * half) / (1 + square) for sign in (-1, 1))
    return Interval(max(min(float(low), share), 0.0), min(max(float(high), share), 1.0), LEVEL)  # whatever is rounded


def paired_bootstrap(
    ranks_a: Values, ranks_b: Values, metric: str, generator: np.random.Generator, candidates: Counts
) -> Comparison:
    """Metric of ``a`` minus metric of ``b``, whose ranks answer the same queries in the same order.

    A resample draws queries, and each query brings both of its ranks: what makes a query hard for both cancels out. The
    p-value is two-sided: twice the share of resamples at zero or on its rarer side, with one more counted there (so it
    is never 0), at most 1.
    """
    figure = METRICS[metric]

    def difference(drawn: Places) -> Values:
        return figure(ranks_a[drawn], candidates[drawn]) - figure(ranks_b[drawn], candidates[drawn])

    values = _resampled(difference, len(ranks_a), generator)
    whole = float(difference(np.arange(len(ranks_a))))
    return Comparison(metric, whole, _percentiles(values), _two_sided(values))


def _two_sided(differences: Values) -> float:
    if len(differences) == 0 or np.isnan(differences).any():
        return np.nan
    other_side = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (other_side + 1) / (len(differences) + 1))


def _resampled(statistic: Callable[[Places], Values], size: int, generator: np.random.Generator) -> Values:
    """The statistic of each resample, many resamples at a time but never more than memory bears; none of nothing."""
    if size == 0:
        return np.empty(0)
    step = max(1, DRAWS_AT_ONCE // size)
    draws = (
        generator.integers(size, size=(min(step, SAMPLES - start), size), dtype=np.int64)
        for start in range(0, SAMPLES, step)
    )
    return np.concatenate([statistic(drawn) for drawn in draws])


def _percentiles(values: Values) -> Interval:
    if len(values) == 0:
        return Interval(np.nan, np.nan, LEVEL)
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), LEVEL)


METRICS: dict[str, Callable[[Values, Counts], Values]] = {
    "mr": lambda ranks, _: mean(ranks),
    "mrr": lambda ranks, _: mean(1.0 / ranks),
    "hits@1": partial(hits, 1),
    "hits@3": partial(hits, 3),
    "hits@10": partial(hits, 10),
    "amri": adjusted_mean_rank_index,
}
MEASURED = ("mrr", "hits@1", "hits@3", "hits@10", "mr")  # those that are reported of a ranking
ACCURACY = "accuracy"  # of a classification, beside these
