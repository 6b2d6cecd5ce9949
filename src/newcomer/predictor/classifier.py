"""Whether triples count as true, and how probable that is.

A calibrated model reads a triple's probability off the curve for triples, from the evidence for its tail as an answer
to (head, relation, ?); half of the triples that curve was learned from were true. Where the model has a triple
classifier (`newcomer.models.triple_classifier`), its score is the evidence: it goes by all facts of the snapshot.
"""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from newcomer.evaluation.calibration import Curve, classifier_evidence, evidence, uncalibrated
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.models.bundle import Thresholds
from newcomer.models.embedding.scorer import Scores
from newcomer.models.engine import InferenceEngine
from newcomer.models.triple_classifier import TripleClassifier, TripleClassifierScorer
from newcomer.predictor.answers import Verdict
from newcomer.predictor.fact_store import Names, Triple
from newcomer.predictor.snapshot import NamedSnapshot, known_answers

HALF = 0.5  # from which probability on a triple counts as true, where there are no thresholds


class VerdictMaker:
    """A model that classifies triples in one snapshot."""

    def __init__(
        self,
        engine: InferenceEngine,
        names: Names,
        snapshot: NamedSnapshot,
        curve: Curve | None,
        limits: Thresholds | None,
    ) -> None:
        self.engine, self.names, self.snapshot, self.curve, self.limits = engine, names, snapshot, curve, limits

    def verdicts(self, facts: Sequence[Triple]) -> list[Verdict]:
        """One a triple; those about one head and relation are scored together, and no other scores are kept."""
        if self.engine.model.triple_classifier is not None and facts:
            return self._classified(facts, self.engine.model.triple_classifier)
        found: dict[int, Verdict] = {}
        order = sorted(range(len(facts)), key=lambda place: (facts[place][:2], place))
        for (head, name), places in groupby(order, key=lambda place: facts[place][:2]):
            relation = self.names.relation(name)
            row = self._row(head, relation)
            for place in places:
                found[place] = self._verdict(facts[place], relation, row)
        return [found[place] for place in range(len(facts))]

    def _row(self, head: str, relation: int) -> Scores | None:
        """The scores of all tails, where a verdict depends on more than its own."""
        needed = self.engine.model.weights is not None or self.curve is not None
        return self.engine.scores(self.snapshot.graph, self.snapshot.id(head), relation) if needed else None

    def _classified(self, facts: Sequence[Triple], network: TripleClassifier) -> list[Verdict]:
        """One a triple, by the triple classifier."""
        relations = np.array([self.names.relation(fact[1]) for fact in facts], dtype=np.int32)
        heads, tails = (np.array([self.snapshot.id(fact[end]) for fact in facts], dtype=np.int32) for end in (0, 2))
        scores = TripleClassifierScorer(network, self._known()).triple_scores(heads, relations, tails)
        if self.curve is None:
            probabilities = uncalibrated(scores, np.arange(len(scores)), shares=False)
        else:
            probabilities = self.curve.probabilities(classifier_evidence(scores), relations)
        rows = zip(facts, scores.tolist(), probabilities.tolist(), strict=True)
        return [self._made(fact, score, probability) for fact, score, probability in rows]

    def _known(self) -> Graph:
        """All facts of the snapshot."""
        overlay = self.snapshot.graph.overlay
        rows = [
            np.stack([np.full(len(tails), entity), relations, tails], axis=1)
            for entity in range(overlay.num_entities)
            for relations, tails in [overlay.all_facts_of(entity)]
        ]
        triples = np.concatenate(rows)
        stated = TripleArray.of(triples[triples[:, 1] < overlay.num_relations])
        names = Vocabulary([self.snapshot.name_of(entity) for entity in range(overlay.num_entities)])
        return Graph.build(names, self.names.relations, stated)

    def _verdict(self, fact: Triple, relation: int, row: Scores | None) -> Verdict:
        return self._made(fact, self._score(fact, relation, row), self._probability(fact, relation, row))

    def _made(self, fact: Triple, score: float, probability: float) -> Verdict:
        if self.limits is None:
            is_true = probability >= HALF
        else:
            is_true = score >= self.limits.relations.get(fact[1], self.limits.overall)
        return Verdict(fact, is_true, score, probability, self.curve is not None)

    def _score(self, fact: Triple, relation: int, row: Scores | None) -> float:
        if row is not None and self.engine.model.weights is not None:
            return float(row[self.snapshot.id(fact[2])])
        head, tail = self.snapshot.id(fact[0]), self.snapshot.id(fact[2])
        return self.engine.triple_score(self.snapshot.graph, head, relation, tail)

    def _probability(self, fact: Triple, relation: int, row: Scores | None) -> float:
        if row is None:
            score = np.array([self._score(fact, relation, row)])
            return float(uncalibrated(score, np.zeros(1, np.intp), False)[0])
        answer = np.array([self.snapshot.id(fact[2])])
        there = self.snapshot.graph.is_present
        if self.curve is None:
            return float(uncalibrated(row[there], np.cumsum(there)[answer] - 1, shares=True)[0])
        left_out = ~there | known_answers(self.snapshot, self.snapshot.id(fact[0]), relation)
        left_out[answer] = False
        return float(self.curve.probabilities(evidence(row, left_out, answer), relation)[0])
