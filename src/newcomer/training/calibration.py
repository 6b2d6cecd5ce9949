"""Learning what a model's scores are worth from the newcomers that were held out.

*Answers*: the best candidates of every query of the hold-out, without those that the newcomer's facts state already; as
they are shown to a user. Right is whatever the data set states: the drawn triple and any other observed or valid fact,
also one that left the graph with the newcomers. What is true but not stated counts as wrong, so that a probability is
the chance that an answer would be found in the data.

*Facts*: what the model suggests about held-out newcomers when part of what is known of them is masked, mostly whole
relations (`newcomer.evaluation.suggestions`); right as before.

*Triples*: the drawn ones, and one made-up false one for each (`newcomer.evaluation.classification.corrupted`); of a
hold-out with labels the triples as they are. *Thresholds* are found on the same triples.

The model that is asked learned from the graph without the newcomers; the final one, whose scores are then read by
these curves, learned from all of it in the same way.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.config import Config
from newcomer.errors import DatasetError
from newcomer.evaluation.applicability import RelationProfiles
from newcomer.evaluation.breakdown import facts_groups, known_facts
from newcomer.evaluation.calibration import (
    AnswerRecorder,
    Answers,
    Curve,
    ask,
    classifier_evidence,
    fit_curve,
    triple_evidence,
)
from newcomer.evaluation.classification import (
    TripleScorer,
    check_scores,
    checked_scores,
    corrupted,
    cross_fitted,
    thresholds_of,
)
from newcomer.evaluation.fact_probability import Calibration, FactCurve, FactExamples, fit_fact_curve
from newcomer.evaluation.questions import Questions
from newcomer.evaluation.ranking import Scorer, align
from newcomer.evaluation.suggestions import RELATIONS, asked_newcomers, mask_facts, suggestion_examples
from newcomer.graph import Graph, InductiveDataset, TripleArray, concatenate
from newcomer.models.engine import InferenceEngine, StoredNewcomers
from newcomer.models.ensemble import Weights
from newcomer.training.ensemble import EnsembleLearner
from newcomer.training.holdout import HoldOut
from newcomer.training.preparation import Progress

MASKED_NEWCOMERS = 400  # held-out newcomers, of whom facts are masked to learn the probability of a fact
ROUNDS = 4  # times that each is asked about, where they are fewer
MADE_UP = 500  # true triples, at most, for each of which a false one is made up


class AskedTriples(NamedTuple):
    """True and false triples of a hold-out, with labels; the score of each, and the evidence for it."""

    triples: TripleArray
    scores: npt.NDArray[np.float64]  # (triples,)
    evidence: npt.NDArray[np.float64]  # (triples, 2)


def calibrate(
    held_out: HoldOut,
    scorer: Scorer,
    source: InductiveDataset,
    shares: bool,
    seed: int,
    facts: FactExamples | None = None,
    asked: AskedTriples | None = None,
    answers: Answers | None = None,
) -> dict[str, Any]:
    """How often answers about held-out newcomers were right, as a model keeps it; ``source`` is what they are from.

    ``facts`` are what was suggested of masked facts, ``asked`` triples that were asked about. ``answers`` are those of
    `ranked`, where the queries were asked before.
    """
    if answers is None:
        recorder = AnswerRecorder(scorer, held_out.dataset, stated_about(held_out, source), shares)
        for _ in ask(recorder, held_out.queries.entity, held_out.queries.relation, len(held_out.dataset.entities)):
            pass
        answers = recorder.answers()
    curve = fit_curve(answers.evidence, answers.right, answers.relation, answers.question)
    found = Calibration(curve, _curve_of(asked), first_right(answers, held_out.dataset), fact_curve(facts))
    return found.to_dict(held_out.dataset.relations)


def _curve_of(asked: AskedTriples | None) -> Curve | None:
    if asked is None or asked.triples.labels is None:
        return None
    triples, right = asked.triples, asked.triples.labels > 0
    return fit_curve(asked.evidence, right, triples.relations, np.arange(len(triples)))


def ranked(held_out: HoldOut, ensemble: Scorer, source: InductiveDataset) -> tuple[dict[str, float], Answers]:
    """The ranking metrics of a hold-out, and the best answers to its queries: each is asked once for both."""
    recorder = AnswerRecorder(ensemble, held_out.dataset, stated_about(held_out, source), shares=True)
    return held_out.ranking_metrics(recorder), recorder.answers()


def masked_newcomers(config: Config, relations: int) -> int:
    """Of how many newcomers facts are masked, at most."""
    asked = min(RELATIONS, 2 * relations)  # about each
    return min(MASKED_NEWCOMERS, max(1, config.training.calibration_questions // asked))


def masked_examples(
    learner: EnsembleLearner,
    weights: Weights | None,
    held_out: HoldOut,
    source: InductiveDataset,
    progress: Progress = lambda *_: None,
) -> FactExamples | None:
    """What a model with these ``weights`` suggests about held-out newcomers once facts of theirs are masked.

    Where they are few, each is asked about several times, with other facts masked. None where nothing can be masked:
    where no newcomer has two facts, or all were trained on.
    """
    dataset, config = held_out.dataset, learner.model.config
    most = masked_newcomers(config, len(dataset.relations))
    newcomers = asked_newcomers(dataset, dataset.newcomers, most, config.seed, single=True)
    if len(newcomers) == 0 or len(learner.prepared.dataset.newcomers) == 0:
        return None
    model, true = replace(learner.model, weights=weights), stated_about(held_out, source)
    profiles, parts = RelationProfiles(model.observed, model.num_seen), []
    rounds = min(ROUNDS, max(1, most // len(newcomers)))
    for number in range(rounds):
        masked = mask_facts(dataset, newcomers, [config.seed, number], single=True)
        engine = InferenceEngine(model, StoredNewcomers(masked.auxiliary.triples), learner.threads)
        questions = Questions(engine, engine.initial, profiles)
        for place, newcomer in enumerate(newcomers):
            parts.append(suggestion_examples(questions, true, np.array([newcomer])))
            progress(number * len(newcomers) + place + 1, rounds * len(newcomers))
    return FactExamples.joined(parts)


def fact_curve(examples: FactExamples | None) -> FactCurve | None:
    """The curve of facts; None where there are no examples, nothing was right, or nothing wrong."""
    if examples is None or not examples.right.any() or examples.right.all():
        return None
    return fit_fact_curve(examples)


def stated_about(held_out: HoldOut, source: InductiveDataset) -> Graph:
    """All that the data set states about those in the hold-out; neither test nor the data set's own newcomers."""
    stated = concatenate([source.observed.triples, source.valid.positives])
    return align(Graph.build(source.entities, source.relations, stated), held_out.dataset)


def held_out_triples(held_out: HoldOut, source: InductiveDataset, seed: int) -> TripleArray | None:
    """True and false triples of a hold-out; None where no false one can be made up."""
    if held_out.has_labels:
        return held_out.dataset.test
    asked = np.random.default_rng([seed, 4]).permutation(np.unique(held_out.queries.triple))[:MADE_UP]
    drawn = held_out.dataset.test.take(np.sort(asked)).positives
    try:
        made_up = corrupted(held_out.dataset, drawn, np.random.default_rng([seed, 3]))
    except DatasetError:
        return None
    true = stated_about(held_out, source)
    made_up = made_up.take(~true.contains(made_up.heads, made_up.relations, made_up.tails))
    both = concatenate([drawn, made_up])
    labels = (np.arange(len(both)) < len(drawn)).astype(np.int8)
    return TripleArray(both.heads, both.relations, both.tails, labels)


def asked_triples(
    held_out: HoldOut, scorer: Scorer, source: InductiveDataset, seed: int, classifier: TripleScorer | None = None
) -> AskedTriples | None:
    """True and false triples, asked about once; where there is a triple ``classifier``, it is asked."""
    dataset, triples = held_out.dataset, held_out_triples(held_out, source, seed)
    if triples is None:
        return None
    if classifier is not None:
        scores = checked_scores(dataset, classifier, triples)
        return AskedTriples(triples, scores, classifier_evidence(scores))
    evidence, scores = triple_evidence(dataset, scorer, triples)
    check_scores(dataset, triples, scores)
    return AskedTriples(triples, scores, evidence)


def newcomer_thresholds(asked: AskedTriples | None, held_out: HoldOut, seed: int) -> dict[str, Any]:
    """From which score on triples about those held out count as true, and how that was found; empty if it cannot be."""
    if asked is None or asked.triples.labels is None or len(np.unique(asked.triples.labels)) < 2:
        return {}
    triples, scores = asked.triples, asked.scores
    found = thresholds_of(triples, scores)
    if not np.isfinite([found.overall, *found.relations.values()]).all():
        return {}  # where scores are not finite, no cut between them is
    return {
        "overall": found.overall,
        "relations": found.by_name(held_out.dataset.relations),
        "triples": len(triples),
        "made_up": not held_out.has_labels,
        **cross_fitted(triples, scores, np.random.default_rng([seed, 5])),
    }


def first_right(answers: Answers, dataset: InductiveDataset) -> dict[str, tuple[int, int]]:
    """By number of known facts: how many questions there were, and how many first answers were right."""
    first = answers.where(answers.place == 0)
    codes, names = facts_groups(known_facts(dataset)[first.entity])
    return {
        names[code]: (int((codes == code).sum()), int(first.right[codes == code].sum()))
        for code in np.unique(codes).tolist()
    }
