"""Learning what a model's scores are worth from the newcomers that were held out.

*Answers*: the best candidates of every question of the exam, without those that the newcomer's facts state already; as
they are shown to a user. Right is whatever the data set states: the drawn triple and any other observed or valid fact,
also one that left the graph with the newcomers. What is true but not stated counts as wrong, so that a probability is
chance that an answer would be found in the data.

*Triples*: the drawn ones, and one made-up false one for each (`newcomer.evaluation.classification.corrupted`); of an
exam with labels the triples as they are. *Thresholds* are found on the same triples.

The model that is examined learned from the graph without the newcomers; the final one, whose scores are then read by
these curves, learned from all of it in the same way.
"""

from typing import Any

import numpy as np

from newcomer.errors import DatasetError
from newcomer.evaluation.breakdown import facts_groups, known_facts
from newcomer.evaluation.calibration import (
    AnswerRecorder,
    Answers,
    Calibration,
    Curve,
    ask,
    classifier_evidence,
    fit_curve,
    triple_evidence,
)
from newcomer.evaluation.classification import (
    TripleScorer,
    checked_scores,
    corrupted,
    cross_fitted,
    thresholds_of,
)
from newcomer.evaluation.ranking import align
from newcomer.graph import Graph, InductiveDataset, TripleArray, concatenate
from newcomer.models.scorer import Scorer
from newcomer.training.holdout import HoldOut


def calibrate(
    exam: HoldOut,
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
    heard = AnswerRecorder(scorer, exam.dataset, true, shares)
    for _ in ask(heard, exam.queries.entity, exam.queries.relation, len(exam.dataset.entities)):
        pass
    answers = heard.answers()
    curve = fit_curve(answers.evidence, answers.right, answers.relation, answers.question)
    triples = _triples_curve(exam, scorer, judge, exam_triples(exam, source, seed))
    return Calibration(curve, triples, first_right(answers, exam.dataset)).to_dict(exam.dataset.relations)


def _true(exam: HoldOut, source: InductiveDataset) -> Graph:
    """All that the data set states about those in the exam; neither test nor the data set's own newcomers."""
    stated = concatenate([source.observed.triples, source.valid.positives])
    return align(Graph.build(source.entities, source.relations, stated), exam.dataset)


def _triples_curve(
    exam: HoldOut, scorer: Scorer, judge: TripleScorer | None, triples: TripleArray | None
) -> Curve | None:
    """None where no false triple can be made up: everything is stated."""
    if triples is None or triples.labels is None:
        return None
    if judge is None:
        evidence = triple_evidence(exam.dataset, scorer, triples)
    else:
        evidence = classifier_evidence(judge.triple_scores(triples.heads, triples.relations, triples.tails))
    return fit_curve(evidence, triples.labels > 0, triples.relations, np.arange(len(triples)))


def exam_triples(exam: HoldOut, source: InductiveDataset, seed: int) -> TripleArray | None:
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


def newcomer_thresholds(exam: HoldOut, scorer: TripleScorer, source: InductiveDataset, seed: int) -> dict[str, Any]:
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
