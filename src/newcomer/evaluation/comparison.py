"""Several models measured on the same questions or triples, each against the first by a paired bootstrap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from newcomer.errors import unknown_name
from newcomer.evaluation.classification import ClassificationResult
from newcomer.evaluation.measure import CLASSIFICATION, RANKING
from newcomer.evaluation.metrics import ACCURACY, METRICS, Comparison, Interval, Values, paired_bootstrap
from newcomer.evaluation.ranking import RankingResult


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """One of several models: its value of the metric they are compared by, and how far that is above the first's."""

    metrics: Mapping[str, float]
    value: float
    interval: Interval
    comparison: Comparison | None


def metric_task(metric: str) -> str:
    """The task that a metric belongs to."""
    if metric == ACCURACY:
        return CLASSIFICATION
    if metric not in METRICS:
        raise unknown_name("metric", metric, (*METRICS, ACCURACY))
    return RANKING


def compare_rankings(results: Sequence[RankingResult], metric: str, seed: int = 0) -> list[ComparedModel]:
    """Rankings of the same questions against the first, by resampled questions."""
    generator, models = np.random.default_rng(seed), []
    for place, result in enumerate(results):
        value, interval = result.metrics()[metric], result.interval(metric, generator)
        against = None
        if place:
            against = paired_bootstrap(result.ranks, results[0].ranks, metric, generator, result.candidates)
        models.append(ComparedModel(result.measured(), value, interval, against))
    return models


def compare_classifications(results: Sequence[ClassificationResult], seed: int = 0) -> list[ComparedModel]:
    """Classifications of the same triples against the first, by resampled triples."""
    generator, models = np.random.default_rng(seed), []
    first = _as_ranks(results[0])
    for place, result in enumerate(results):
        ranks = _as_ranks(result)
        against = paired_bootstrap(ranks, first, "hits@1", generator, np.full(len(ranks), 2)) if place else None
        named = None if against is None else replace(against, metric=ACCURACY)
        models.append(ComparedModel(result.metrics(), result.metrics()[ACCURACY], result.interval, named))
    return models


def _as_ranks(result: ClassificationResult) -> Values:
    """A triple that is classified rightly as rank 1, else 2: accuracy is then Hits@1."""
    return np.where(result.labels == result.predicted, 1.0, 2.0)
