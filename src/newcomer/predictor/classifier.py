"""Whether triples count as true, and how probable that is.

A calibrated model reads a triple's probability off the curve for triples, from the evidence for its tail as an answer
to (head, relation, ?); half of the triples that curve was learned from were true. Where the model has a triple
classifier (`newcomer.models.triple_classifier`), its score is the evidence: it goes by all facts of the snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from newcomer.evaluation.calibration import Curve, classifier_evidence, evidence, uncalibrated
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.models.bundle import Thresholds
from newcomer.models.embedding.scorer import Scores
from newcomer.models.triple_classifier import TripleClassifier, TripleClassifierScorer
from newcomer.predictor.answers import Verdict
from newcomer.predictor.fact_store import NamedSnapshot, Triple, known_answers

HALF = 0.5  # from which probability on a triple counts as true, where there are no thresholds


@dataclass(frozen=True, eq=False)
class VerdictMaker:
    """A model that classifies triples in one snapshot."""

    snapshot: NamedSnapshot
    curve: Curve | None
    limits: Thresholds | None

    def verdicts(self, facts: Sequence[Triple]) -> list[Verdict]:
        """One a triple; those about one head and relation are scored together, and no other scores are kept."""
        if self.snapshot.engine.model.triple_classifier is not None and facts:
            return self._classified(facts, self.snapshot.engine.model.triple_classifier)
        engine, found = self.snapshot.engine, dict[int, Verdict]()
        compares = engine.model.weights is not None or self.curve is not None  # then all tails are scored
        order = sorted(range(len(facts)), key=lambda place: (facts[place][:2], place))
        for (head, name), places in groupby(order, key=lambda place: facts[place][:2]):
            relation, identifier = self.snapshot.names.relation(name), self.snapshot.id(head)
            row = engine.scores(self.snapshot.graph, identifier, relation) if compares else None
            for place in places:
                found[place] = self._verdict(facts[place], identifier, relation, row)
        return [found[place] for place in range(len(facts))]

    def _classified(self, facts: Sequence[Triple], network: TripleClassifier) -> list[Verdict]:
        """One a triple, by the triple classifier."""
        relations = np.array([self.snapshot.names.relation(fact[1]) for fact in facts], dtype=np.int32)
        heads, tails = (np.array([self.snapshot.id(fact[end]) for fact in facts], dtype=np.int32) for end in (0, 2))
        scores = TripleClassifierScorer(network, self._known()).triple_scores(heads, relations, tails)
        if self.curve is None:
            probabilities = uncalibrated(scores, np.arange(len(scores)), shares=False)
        else:
            probabilities = self.curve.probabilities(classifier_evidence(scores), relations)
        return list(map(self._made, facts, scores.tolist(), probabilities.tolist()))

    def _known(self) -> Graph:
        """All facts of the snapshot."""
        overlay = self.snapshot.graph.overlay
        rows = overlay.own_rows
        inverse = rows.relations >= overlay.num_relations
        heads, tails = np.where(inverse, rows.tails, rows.owners), np.where(inverse, rows.owners, rows.tails)
        names = Vocabulary([self.snapshot.name_of(entity) for entity in range(overlay.num_entities)])
        stated = TripleArray(heads, rows.relations % overlay.num_relations, tails)
        return Graph.build(names, self.snapshot.names.relations, stated)

    def _verdict(self, fact: Triple, head: int, relation: int, row: Scores | None) -> Verdict:
        tail = self.snapshot.id(fact[2])
        if row is not None and self.snapshot.engine.model.weights is not None:
            score = float(row[tail])
        else:
            score = self.snapshot.engine.triple_score(self.snapshot.graph, head, relation, tail)
        if row is None:
            alone = uncalibrated(np.array([score]), np.zeros(1, np.intp), shares=False)
            return self._made(fact, score, float(alone[0]))
        return self._made(fact, score, self._probability(head, relation, tail, row))

    def _made(self, fact: Triple, score: float, probability: float) -> Verdict:
        if self.limits is None:
            is_true = probability >= HALF
        else:
            is_true = score >= self.limits.relations.get(fact[1], self.limits.overall)
        return Verdict(fact, is_true, score, probability, self.curve is not None)

    def _probability(self, head: int, relation: int, tail: int, row: Scores) -> float:
        """Of a tail, given the scores of all."""
        there, answer = self.snapshot.graph.is_present, np.array([tail])
        if self.curve is None:
            return float(uncalibrated(row[there], np.cumsum(there)[answer] - 1, shares=True)[0])
        left_out = ~there | known_answers(self.snapshot, head, relation)
        left_out[tail] = False
        return float(self.curve.probabilities(evidence(row, left_out, answer), relation)[0])
