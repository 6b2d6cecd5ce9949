"""Learning what a model's scores are worth from the newcomers that were held out.

*Answers*: the best candidates of every question of the exam, without those that the newcomer's facts state already; as
they are shown to a user. Right is whatever the data set states: the drawn triple and any other observed or valid fact,
also one that left the graph with the newcomers. What is true but not stated counts as wrong, so that a truth is the
chance that an answer would be found in the data.

*Triples*: the drawn ones, and one made-up false one for each (`newcomer.tasks.triple_classification.corrupted`); of an
exam with labels the triples as they are. *Thresholds* are found on the same triples.

The model that is examined learned from the graph without the newcomers; the final one, whose scores are then read by
these curves, learned from all of it in the same way.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from newcomer.bundle import Bundle
from newcomer.config import Config
from newcomer.errors import DatasetError, shown
from newcomer.graph import UNKNOWN, Graph, InductiveDataset, TripleArray, Vocabulary, concatenate
from newcomer.tasks.breakdown import facts_groups, known_facts
from newcomer.tasks.calibration import (
    Answers,
    Calibration,
    Curve,
    Overheard,
    ask,
    fit_curve,
    judged_evidence,
    triple_evidence,
)
from newcomer.tasks.link_prediction import Scorer, align
from newcomer.tasks.triple_classification import (
    RelationThresholds,
    TripleScorer,
    checked_scores,
    corrupted,
    cross_fitted,
    thresholds_of,
)
from newcomer.training.validation import Exam

CALIBRATION = "calibration"  # where a model keeps it, among what was measured
THRESHOLDS = "thresholds"


def calibration_of(bundle: Bundle) -> Calibration | None:
    """What a model knows of the worth of its scores; None where it was trained without validation."""
    content = bundle.metrics.get(CALIBRATION)
    return None if content is None else Calibration.from_dict(content, bundle.observed.relations)


def thresholds_in(bundle: Bundle, relations: Vocabulary) -> RelationThresholds | None:
    """A model's thresholds for newcomers in the ids of these relations; None where it has none."""
    content = bundle.metrics.get(THRESHOLDS)
    if content is None:
        return None
    try:
        named = {str(name): float(value) for name, value in content["relations"].items()}
        each = {relations.id(name): value for name, value in named.items()}
        return RelationThresholds(
            float(content["overall"]), {number: value for number, value in each.items() if number != UNKNOWN}
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"the thresholds in metrics.json are none that newcomer wrote ({shown(str(error))})"
        raise DatasetError(f"{problem}; train the model again") from None


def decides_by_truth(metrics: Mapping[str, Any], config: Config) -> bool:
    """Whether a model's truths of triples, not its scores, say what counts as true: those of a network among labels.

    Scores of the final model are on another scale than those that thresholds were found on; truths, which go by shares
    and ranks among answers, are not. A judge's scores are on the same.
    """
    found, calibration = metrics.get(THRESHOLDS), metrics.get(CALIBRATION)
    if config.model.judge or not found or found.get("made_up", True):
        return False
    return calibration is not None and calibration.get("triples") is not None


def calibrate(
    exam: Exam,
    scorer: Scorer,
    source: InductiveDataset,
    shares: bool,
    seed: int,
    judge: TripleScorer | None = None,
) -> dict[str, Any]:
    """What a scorer's answers to an exam were worth, as a model keeps it; ``source`` is what the exam was cut from.

    Where there is a ``judge``, triples are left to it.
    """
    true = _true(exam, source)
    heard = Overheard(scorer, exam.dataset, true, shares)
    for _ in ask(heard, exam.queries.entity, exam.queries.relation, len(exam.dataset.entities)):
        pass
    answers = heard.answers()
    curve = fit_curve(answers.evidence, answers.right, answers.relation, answers.question)
    triples = _triples_curve(exam, scorer, judge, exam_triples(exam, source, seed))
    return Calibration(curve, triples, first_right(answers, exam.dataset)).to_dict(exam.dataset.relations)


def _true(exam: Exam, source: InductiveDataset) -> Graph:
    """All that the data set states about those in the exam; neither test nor the data set's own newcomers."""
    stated = concatenate([source.observed.triples, source.valid.positives])
    return align(Graph.build(source.entities, source.relations, stated), exam.dataset)


def _triples_curve(exam: Exam, scorer: Scorer, judge: TripleScorer | None, triples: TripleArray | None) -> Curve | None:
    """None where no false triple can be made up: everything is stated."""
    if triples is None or triples.labels is None:
        return None
    if judge is None:
        evidence = triple_evidence(exam.dataset, scorer, triples)
    else:
        evidence = judged_evidence(judge.triple_scores(triples.heads, triples.relations, triples.tails))
    return fit_curve(evidence, triples.labels > 0, triples.relations, np.arange(len(triples)))


def exam_triples(exam: Exam, source: InductiveDataset, seed: int) -> TripleArray | None:
    """True and false triples of an exam; None where no false one can be made up."""
    if exam.has_labels:
        return exam.dataset.test
    drawn = exam.dataset.test.take(np.unique(exam.queries.triple)).positives
    try:
        made_up = corrupted(exam.dataset, drawn, np.random.default_rng([seed, 3]))
    except DatasetError:
        return None
    true = _true(exam, source)
    made_up = made_up.take(~true.contains(made_up.heads, made_up.relations, made_up.tails))
    both = concatenate([drawn, made_up])
    labels = (np.arange(len(both)) < len(drawn)).astype(np.int8)
    return TripleArray(both.heads, both.relations, both.tails, labels)


def newcomer_thresholds(exam: Exam, scorer: TripleScorer, source: InductiveDataset, seed: int) -> dict[str, Any]:
    """From which score on triples about those held out count as true, and how that was found; empty if it cannot be."""
    triples = exam_triples(exam, source, seed)
    if triples is None or triples.labels is None or len(np.unique(triples.labels)) < 2:
        return {}
    scores = checked_scores(exam.dataset, scorer, triples)
    found = thresholds_of(triples, scores)
    if not np.isfinite([found.overall, *found.relations.values()]).all():
        return {}  # where scores are not finite, no cut between them is
    return {
        "overall": found.overall,
        "relations": found.by_name(exam.dataset.relations),
        "triples": len(triples),
        "made_up": not exam.has_labels,
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
