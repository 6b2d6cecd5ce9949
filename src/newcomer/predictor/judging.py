"""Whether triples count as true, and how true they are.

A calibrated model reads a triple's truth off the curve for triples, from the evidence for its tail as an answer to
(head, relation, ?); half of the triples that curve was learned from were true.
"""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from newcomer.bundle import Thresholds
from newcomer.predictor.answers import Verdict
from newcomer.predictor.book import Triple
from newcomer.predictor.state import Mind, Scores, State
from newcomer.tasks.calibration import Curve, evidence, plain_truths

HALF = 0.5  # from which truth on a triple counts as true, where there are no thresholds


class Judge:
    """A model that classifies in one state of newcomers."""

    def __init__(self, mind: Mind, state: State, curve: Curve | None, limits: Thresholds | None) -> None:
        self.mind, self.state, self.curve, self.limits = mind, state, curve, limits

    def verdicts(self, facts: Sequence[Triple]) -> list[Verdict]:
        """One a triple; those about one head and relation are scored together, and no other scores are kept."""
        found: dict[int, Verdict] = {}
        order = sorted(range(len(facts)), key=lambda place: (facts[place][:2], place))
        for (head, name), places in groupby(order, key=lambda place: facts[place][:2]):
            relation = self.mind.names.relation(name)
            row = self._row(head, relation)
            for place in places:
                found[place] = self._verdict(facts[place], relation, row)
        return [found[place] for place in range(len(facts))]

    def _row(self, head: str, relation: int) -> Scores | None:
        """The scores of all tails, where a verdict depends on more than its own."""
        needed = self.mind.blend is not None or self.curve is not None
        return self.mind.scores(self.state, head, relation) if needed else None

    def _verdict(self, fact: Triple, relation: int, row: Scores | None) -> Verdict:
        score, truth = self._score(fact, relation, row), self._truth(fact, relation, row)
        if self.limits is None:
            is_true = truth >= HALF
        else:
            is_true = score >= self.limits.relations.get(fact[1], self.limits.overall)
        return Verdict(fact, is_true, score, truth, self.curve is not None)

    def _score(self, fact: Triple, relation: int, row: Scores | None) -> float:
        if row is not None and self.mind.blend is not None:
            return float(row[self.state.candidate(fact[2])])
        return self.mind.triple_score(self.state, fact[0], relation, fact[2])

    def _truth(self, fact: Triple, relation: int, row: Scores | None) -> float:
        answer = np.array([self.state.candidate(fact[2])])
        if row is None:
            return float(plain_truths(np.array([self._score(fact, relation, row)]), np.zeros(1, np.intp), False)[0])
        if self.curve is None:
            return float(plain_truths(row, answer, shares=True)[0])
        left_out = self.mind.known(self.state, fact[0], relation)
        left_out[answer] = False
        return float(self.curve.truths(evidence(row, left_out, answer), relation)[0])
