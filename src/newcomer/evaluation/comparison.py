"""Several models measured on the same questions or triples, each against the first by a paired bootstrap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from newcomer.errors import unknown_name
from newcomer.evaluation.classification import ClassificationResult
from newcomer.evaluation.measure import CLASSIFICATION, RANKING
from newcomer.evaluation.metrics import ACCURACY, METRICS, Comparison, Interval, paired_bootstrap
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
    generator, first = np.random.default_rng(seed), results[0].ranks
    models: list[ComparedModel] = []
    for result in results:
        value, interval, against = result.metrics()[metric], result.interval(metric, generator), None
        if models:
            against = paired_bootstrap(result.ranks, first, metric, generator, result.candidates)
        models.append(ComparedModel(result.measured(), value, interval, against))
    return models


def compare_classifications(results: Sequence[ClassificationResult], seed: int = 0) -> list[ComparedModel]:
    """Classifications of the same triples against the first, by resampled triples."""
    generator = np.random.default_rng(seed)
    models: list[ComparedModel] = []
    # A triple that is classified rightly as rank 1, else 2: accuracy is then Hits@1.
    ranks = [np.where(result.labels == result.predicted, 1.0, 2.0) for result in results]
    for result, mine in zip(results, ranks, strict=True):
        metrics, against = result.metrics(), None
        if models:
            found = paired_bootstrap(mine, ranks[0], "hits@1", generator, np.full(len(mine), 2))
            against = replace(found, metric=ACCURACY)
        models.append(ComparedModel(metrics, metrics[ACCURACY], result.interval, against))
    return models
