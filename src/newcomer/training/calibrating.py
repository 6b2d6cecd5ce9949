"""Learning what a model's scores are worth from the newcomers that were held out.

*Answers*: the best candidates of every question of the exam, without those that the newcomer's facts state already; as
they are shown to a user. Right is whatever the data set states: the drawn triple and any other observed or valid fact,
also one that left the graph with the newcomers. What is true but not stated counts as wrong, so that a truth is the
chance that an answer would be found in the data.

*Triples*: the drawn ones, and one made-up false one for each (`newcomer.tasks.triple_classification.corrupted`).

The model that is examined learned from the graph without the newcomers; the final one, whose scores are then read by
these curves, learned from all of it in the same way.
"""

from typing import Any

import numpy as np

from newcomer.bundle import Bundle
from newcomer.errors import DatasetError
from newcomer.graph import Graph, InductiveDataset, Mask, TripleArray, concatenate
from newcomer.tasks.breakdown import facts_groups, known_facts
from newcomer.tasks.calibration import Answers, Calibration, Curve, Overheard, ask, fit_curve, triple_evidence
from newcomer.tasks.link_prediction import Scorer, align
from newcomer.tasks.triple_classification import corrupted
from newcomer.training.validation import Exam

CALIBRATION = "calibration"  # where a model keeps it, among what was measured


def calibration_of(bundle: Bundle) -> Calibration | None:
    """What a model knows of the worth of its scores; None where it was trained without validation."""
    content = bundle.metrics.get(CALIBRATION)
    return None if content is None else Calibration.from_dict(content, bundle.observed.relations)


def calibrate(exam: Exam, scorer: Scorer, source: InductiveDataset, shares: bool, seed: int) -> dict[str, Any]:
    """What a scorer's answers to an exam were worth, as a model keeps it; ``source`` is what the exam was cut from."""
    true = _true(exam, source)
    heard = Overheard(scorer, exam.dataset, true, shares)
    for _ in ask(heard, exam.queries.entity, exam.queries.relation, len(exam.dataset.entities)):
        pass
    answers = heard.answers()
    curve = fit_curve(answers.evidence, answers.right, answers.relation, answers.question)
    triples = _triples_curve(exam, scorer, true, seed)
    return Calibration(curve, triples, first_right(answers, exam.dataset)).to_dict(exam.dataset.relations)


def _true(exam: Exam, source: InductiveDataset) -> Graph:
    """All that the data set states about those in the exam; neither test nor the data set's own newcomers."""
    stated = concatenate([source.observed.triples, source.valid.positives])
    return align(Graph.build(source.entities, source.relations, stated), exam.dataset)


def _triples_curve(exam: Exam, scorer: Scorer, true: Graph, seed: int) -> Curve | None:
    """None where no false triple can be made up: everything is stated."""
    drawn = exam.dataset.test.take(np.unique(exam.queries.triple)).positives
    try:
        made_up = corrupted(exam.dataset, drawn, np.random.default_rng([seed, 3]))
    except DatasetError:
        return None
    made_up = made_up.take(~true.contains(made_up.heads, made_up.relations, made_up.tails))
    both = concatenate([drawn, made_up])
    right: Mask = np.arange(len(both)) < len(drawn)
    evidence = triple_evidence(exam.dataset, scorer, TripleArray(both.heads, both.relations, both.tails))
    return fit_curve(evidence, right, both.relations, np.arange(len(both)))


def first_right(answers: Answers, dataset: InductiveDataset) -> dict[str, tuple[int, int]]:
    """By number of known facts: how many questions there were, and how many first answers were right."""
    first = answers.where(answers.place == 0)
    codes, names = facts_groups(known_facts(dataset)[first.entity])
    return {
        names[code]: (int((codes == code).sum()), int(first.right[codes == code].sum()))
        for code in np.unique(codes).tolist()
    }
