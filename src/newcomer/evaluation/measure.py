"""A trained model measured on the test part of a data set: its answers ranked, or its triples classified.

Several models are measured on the same questions or triples, each against the first by a paired bootstrap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from newcomer.data.cut import CutDataset, FactsCut
from newcomer.errors import DatasetError, OptionError, shown, unknown_name
from newcomer.evaluation.alignment import AlignedModel, rule_scorer_for, scorer_for
from newcomer.evaluation.calibration import AnswerRecorder, Answers, Probabilities
from newcomer.evaluation.classification import ClassificationResult, RelationThresholds, classify, reclassified
from newcomer.evaluation.metrics import ACCURACY, METRICS, Comparison, Interval, paired_bootstrap
from newcomer.evaluation.ranking import (
    FILTERS,
    Progress,
    RankingProtocol,
    RankingResult,
    Scorer,
    align,
    evaluate_under,
    queries_of,
)
from newcomer.evaluation.reliability import SHOWN, answers_of_triples, calibrated, shown_answers
from newcomer.evaluation.stored import calibration_of, decides_by_probability, thresholds_in
from newcomer.graph import Graph, InductiveDataset, Mask
from newcomer.models.bundle import Bundle, dataset_hash
from newcomer.models.device import limited_threads

RANKING, CLASSIFICATION, SUGGESTION = TASKS = ("link-prediction", "triple-classification", "suggest")
NEWCOMERS, PROBABILITIES, VALID = THRESHOLDS = ("newcomers", "probabilities", "valid")  # what thresholds are found on
HALF = RelationThresholds(0.5)  # of probabilities


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model and the data set it is measured on; the seed is that of resampling and of made-up triples.

    With a ``cut``, newcomers are known by fewer facts than the data set has of them. ``thresholds`` are those for
    newcomers, which the model was stored with, those of valid, or none where a probability of a half makes a triple
    true. Unless stated, test's newcomers are classified by probabilities, where a network has learned them from
    labels, else by the thresholds for newcomers, where the model has any; all others by those of valid.
    """

    bundle: Bundle
    dataset: InductiveDataset
    device: torch.device
    threads: int | None = None
    seed: int = 0
    cut: FactsCut | None = None
    thresholds: str | None = None

    @property
    def thresholds_from(self) -> str:
        """What the thresholds were found on."""
        if self.thresholds is not None:
            return self.thresholds
        stored = thresholds_in(self.bundle, self.dataset.relations) is not None
        if not (stored and len(self.dataset.test_newcomers)):
            return VALID
        return PROBABILITIES if decides_by_probability(self.bundle.metrics, self.bundle.config) else NEWCOMERS

    @property
    def stored_thresholds(self) -> RelationThresholds | None:
        """Those of the model, where they are to be used."""
        if self.thresholds_from == VALID:
            return None
        if self.thresholds_from == PROBABILITIES:
            calibration = calibration_of(self.bundle)
            if calibration is None or calibration.triples is None:
                raise OptionError(
                    "the model's probabilities of triples are not calibrated: it was trained without validation; pass "
                    "--thresholds valid, or train it again"
                )
            return HALF
        stored = thresholds_in(self.bundle, self.dataset.relations)
        if stored is None:
            raise OptionError(
                "the model has no thresholds for newcomers: it was trained without validation, or before there were "
                "any; pass --thresholds valid, or train it again"
            )
        return stored

    @cached_property
    def visible(self) -> InductiveDataset:
        """The data set with the facts that the model may see."""
        if self.cut is None:
            return self.dataset
        cut = self.cut.of(self.dataset)
        _check_untrained(self.bundle, cut)
        return cut

    @property
    def generator(self) -> np.random.Generator:
        """A fresh one: two models get the same questions, and one alone the same as beside others."""
        return np.random.default_rng(self.seed)


def _check_untrained(bundle: Bundle, dataset: CutDataset) -> None:
    """Refuse to withhold from a model what it was trained on."""
    facts = dataset.withheld
    trained_on = align(bundle.observed, dataset).contains(facts.heads, facts.relations, facts.tails)
    if trained_on.any():
        count = f"{int(trained_on.sum()):,} of the {len(facts):,}"
        raise OptionError(
            f"the model was trained on {count} facts that the cut to {dataset.cut.most} would withhold; "
            "leave out --known-facts, or train under the protocol inductive or refreshed"
        )


@dataclass(frozen=True, eq=False)
class RankedTest:
    """All questions of test as the model ranks them and, where asked for, its parts by themselves.

    Of the filters the one that was asked for comes first. A model has rules or not; where they take no part in its
    answers, it is the embedding alone.
    """

    model: list[RankingResult]
    embedding: list[RankingResult]
    rules: list[RankingResult]
    unknown: int  # questions about newcomers along a relation that the model does not have
    shown: Answers  # what a user would be shown in answer to the questions that make the figures
    probabilities: Probabilities | None  # of these answers, where the model is calibrated


@dataclass(frozen=True, eq=False)
class ClassifiedTest:
    """Test triples as true or false, and how probable each is."""

    result: ClassificationResult
    triples: Answers
    probabilities: Probabilities | None  # of these triples, where the model is calibrated


def check_same_data(bundle: Bundle, dataset: InductiveDataset, run: Path, place: str) -> None:
    """Refuse another data set than the one trained on."""
    if dataset_hash(dataset) != bundle.dataset_hash:
        raise DatasetError(
            f"{place}: is not the data set {shown(bundle.dataset_name)} that {run} was trained on (its content has "
            "another hash); name the place of that one with --data, or pass --any-data to evaluate on this one"
        )


def default_task(dataset: InductiveDataset) -> str:
    """Classification where test says which triples are false, else ranking."""
    return RANKING if dataset.test.labels is None else CLASSIFICATION


def rank_test(
    evaluation: Evaluation,
    protocol: RankingProtocol,
    full: Graph | None = None,
    with_parts: bool = False,
    progress: Progress | None = None,
) -> RankedTest:
    """Rank the answers of test under a protocol, and with a full graph under the other filter too, in one pass."""
    other = "known" if protocol.filter == "full" else "full"
    protocols = [protocol] if full is None else [protocol, replace(protocol, filter=other)]
    bundle, dataset, queries = evaluation.bundle, evaluation.visible, queries_of(evaluation.dataset)
    true = FILTERS[protocol.filter](dataset, full)

    def ranked(scorer: Scorer) -> list[RankingResult]:
        return evaluate_under(dataset, scorer, protocols, full, queries, progress)

    with limited_threads(evaluation.threads):
        scorer = scorer_for(bundle, dataset, evaluation.device, evaluation.threads)
        embedding = scorer.embedding
        recorded = AnswerRecorder(scorer, dataset, true, embedding is not None, SHOWN)
        by_model = ranked(recorded)
        by_embedding = ranked(embedding) if with_parts and embedding is not None else []
    has_rules = len(bundle.rules) > 0  # without any, only frequencies would be left to rank by
    by_rules = ranked(rule_scorer_for(bundle, dataset, evaluation.threads)) if with_parts and has_rules else []
    asked = headline(by_model[0]).queries
    answers = shown_answers(recorded, scorer, asked)
    calibration = calibration_of(bundle)
    probabilities = calibrated(calibration.answers if calibration else None, answers, scorer)
    unknown = int((~scorer.alignment.knows(asked.relation)).sum())
    return RankedTest(by_model, by_embedding, by_rules, unknown, answers, probabilities)


def headline(result: RankingResult) -> RankingResult:
    """The questions that make the figures: those about newcomers, or all where there is none."""
    about_newcomers = result.queries.group == "newcomer"
    return result.take(about_newcomers) if about_newcomers.any() else result


def outside_headline(result: RankingResult) -> RankingResult:
    """The questions that `headline` leaves out."""
    groups = result.queries.group
    left_out: Mask = (groups == "seen") & (groups == "newcomer").any()
    return result.take(left_out)


def classify_test(evaluation: Evaluation) -> ClassificationResult:
    """The test triples as true or false, by the thresholds of the evaluation."""
    if evaluation.thresholds_from == PROBABILITIES:
        return classify_with_probabilities(evaluation).result
    return _classified(evaluation)[1]


def classify_with_probabilities(evaluation: Evaluation) -> ClassifiedTest:
    """As `classify_test`, with the probabilities of the triples."""
    scorer, result = _classified(evaluation)
    with limited_threads(evaluation.threads):
        triples = answers_of_triples(scorer, evaluation.visible, result)
    calibration = calibration_of(evaluation.bundle)
    probabilities = calibrated(calibration.triples if calibration else None, triples, scorer)
    if evaluation.thresholds_from == PROBABILITIES and probabilities is not None:
        known = scorer.alignment.knows(result.triples.relations)
        of_all = np.zeros(len(known))  # along a relation that the model lacks, 0
        of_all[known] = probabilities
        result = reclassified(result, of_all, HALF, evaluation.generator)
    return ClassifiedTest(result, triples, probabilities)


def _classified(evaluation: Evaluation) -> tuple[AlignedModel, ClassificationResult]:
    dataset = evaluation.visible
    with limited_threads(evaluation.threads):
        scorer = scorer_for(evaluation.bundle, dataset, evaluation.device, evaluation.threads)
        return scorer, classify(dataset, scorer, evaluation.generator, evaluation.stored_thresholds)


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
