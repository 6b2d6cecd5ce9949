"""Whether triples count as true, and how true they are.

A calibrated model reads a triple's probability off the curve for triples, from the evidence for its tail as an answer to
(head, relation, ?); half of the triples that curve was learned from were true. Where the model has a judge of triples
(`newcomer.training.triple_classifier`), its score is the evidence: it goes by all facts that are known in this state.
"""

from collections.abc import Sequence
from itertools import groupby, islice

import numpy as np

from newcomer.evaluation.calibration import Curve, evidence, judged_evidence, uncalibrated
from newcomer.graph import Graph, TripleArray, Vocabulary, concatenate
from newcomer.models.bundle import Thresholds
from newcomer.models.triple_classifier import TripleClassifier, TripleClassifierScorer
from newcomer.predictor.answers import Verdict
from newcomer.predictor.engine import InferenceEngine, Scores
from newcomer.predictor.fact_store import Triple
from newcomer.predictor.snapshot import State

HALF = 0.5  # from which probability on a triple counts as true, where there are no thresholds


class Judge:
    """A model that classifies in one state of newcomers."""

    def __init__(
        self,
        mind: InferenceEngine,
        state: State,
        curve: Curve | None,
        limits: Thresholds | None,
        network: TripleClassifier | None = None,
    ) -> None:
        self.mind, self.state, self.curve, self.limits, self.network = mind, state, curve, limits, network

    def verdicts(self, facts: Sequence[Triple]) -> list[Verdict]:
        """One a triple; those about one head and relation are scored together, and no other scores are kept."""
        if self.network is not None and facts:
            return self._judged(facts, self.network)
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

    def _judged(self, facts: Sequence[Triple], network: TripleClassifier) -> list[Verdict]:
        """One a triple, by the judge."""
        state, relations = self.state, np.array([self.mind.names.relation(fact[1]) for fact in facts], dtype=np.int32)
        heads, tails = (np.array([state.candidate(fact[end]) for fact in facts], dtype=np.int32) for end in (0, 2))
        scores = TripleClassifierScorer(network, _known(self.mind, state)).triple_scores(heads, relations, tails)
        if self.curve is None:
            probabilities = uncalibrated(scores, np.arange(len(scores)), shares=False)
        else:
            probabilities = self.curve.probabilities(judged_evidence(scores), relations)
        rows = zip(facts, scores.tolist(), probabilities.tolist(), strict=True)
        return [self._said(fact, score, probability) for fact, score, probability in rows]

    def _verdict(self, fact: Triple, relation: int, row: Scores | None) -> Verdict:
        return self._said(fact, self._score(fact, relation, row), self._probability(fact, relation, row))

    def _said(self, fact: Triple, score: float, probability: float) -> Verdict:
        if self.limits is None:
            is_true = probability >= HALF
        else:
            is_true = score >= self.limits.relations.get(fact[1], self.limits.overall)
        return Verdict(fact, is_true, score, probability, self.curve is not None)

    def _score(self, fact: Triple, relation: int, row: Scores | None) -> float:
        if row is not None and self.mind.blend is not None:
            return float(row[self.state.candidate(fact[2])])
        return self.mind.triple_score(self.state, fact[0], relation, fact[2])

    def _probability(self, fact: Triple, relation: int, row: Scores | None) -> float:
        answer = np.array([self.state.candidate(fact[2])])
        if row is None:
            return float(uncalibrated(np.array([self._score(fact, relation, row)]), np.zeros(1, np.intp), False)[0])
        if self.curve is None:
            return float(uncalibrated(row, answer, shares=True)[0])
        left_out = self.mind.known(self.state, fact[0], relation)
        left_out[answer] = False
        return float(self.curve.probabilities(evidence(row, left_out, answer), relation)[0])


def _known(mind: InferenceEngine, state: State) -> Graph:
    """All facts that are known, between candidates by their places."""
    everyone = Vocabulary([*islice(mind.names.entities, mind.names.num_seen), *state.newcomers])
    told = [
        (state.candidate(head), relation, state.candidate(tail))
        for name in state.newcomers
        for head, relation, tail in state.book.facts[name]
    ]
    triples = concatenate([mind.observed.triples, TripleArray.of(told)])
    return Graph.build(everyone, mind.names.relations, triples)
