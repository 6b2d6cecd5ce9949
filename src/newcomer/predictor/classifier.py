"""Whether triples count as true, and how probable that is.

A triple's probability is that of the fact, the same as of an answer or a suggestion, and from a half on it counts as
true. A model that learned from triples labelled true and false goes by these: by the thresholds found on them, or by a
curve for triples half of which are true. Where it has a triple classifier (`newcomer.models.triple_classifier`), that
one's score is the evidence: it goes by all facts of the snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from newcomer.evaluation.calibration import Curve, classifier_evidence, uncalibrated
from newcomer.evaluation.fact_probability import HALF
from newcomer.evaluation.questions import Places, Prober, Question
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.models.bundle import Thresholds
from newcomer.models.triple_classifier import TripleClassifierScorer
from newcomer.predictor.answers import Verdict
from newcomer.predictor.fact_store import NamedSnapshot, Triple


@dataclass(frozen=True, eq=False)
class VerdictMaker:
    """A model that classifies triples in one snapshot; ``labelled`` is the curve of labelled triples, if it has one."""

    snapshot: NamedSnapshot
    prober: Prober
    labelled: Curve | None
    limits: Thresholds | None

    def verdicts(self, facts: Sequence[Triple]) -> list[Verdict]:
        """One a triple; those about one head and relation are asked about together, and no other scores are kept."""
        found, classified = dict[int, Verdict](), self._classified(facts)
        order = sorted(range(len(facts)), key=lambda place: (facts[place][:2], place))
        for (head, name), places in groupby(order, key=lambda place: facts[place][:2]):
            question = self.prober.questions.ask(self.snapshot.id(head), self.snapshot.names.relation(name))
            for place in places:
                found[place] = self._verdict(facts[place], question, None if classified is None else classified[place])
        return [found[place] for place in range(len(facts))]

    def _verdict(self, fact: Triple, question: Question, classified: float | None) -> Verdict:
        tail, engine = np.array([self.snapshot.id(fact[2])]), self.snapshot.engine
        if classified is not None:
            score = classified
        elif engine.model.weights is not None:
            score = float(question.scores[tail[0]])
        else:
            score = engine.triple_score(self.snapshot.graph, question.entity, question.relation, int(tail[0]))
        probability = float(self.prober.probabilities(question, tail)[0])
        among = self._among_labelled(question, tail, classified)
        if self.limits is not None:
            is_true = score >= self.limits.relations.get(fact[1], self.limits.overall)
        else:
            is_true = (probability if among is None else among) >= HALF
        return Verdict(fact, is_true, score, probability, self.prober.calibration is not None, among)

    def _among_labelled(self, question: Question, tail: Places, classified: float | None) -> float | None:
        """The probability among triples half of which are true, where labels told which are."""
        if self.labelled is not None:
            found = question.evidence(tail) if classified is None else classifier_evidence(np.array([classified]))
            return float(self.labelled.probabilities(found, question.relation)[0])
        if classified is None:
            return None
        return float(uncalibrated(np.array([classified]), np.zeros(1, dtype=np.intp), shares=False)[0])

    def _classified(self, facts: Sequence[Triple]) -> Sequence[float] | None:
        """The scores of a triple classifier, where the model has one."""
        network = self.snapshot.engine.model.triple_classifier
        if network is None or not facts:
            return None
        relations = np.array([self.snapshot.names.relation(fact[1]) for fact in facts], dtype=np.int32)
        heads, tails = (np.array([self.snapshot.id(fact[end]) for fact in facts], dtype=np.int32) for end in (0, 2))
        scores: list[float] = (
            TripleClassifierScorer(network, self._known()).triple_scores(heads, relations, tails).tolist()
        )
        return scores

    def _known(self) -> Graph:
        """All facts of the snapshot."""
        overlay = self.snapshot.graph.overlay
        rows = overlay.own_rows
        inverse = rows.relations >= overlay.num_relations
        heads, tails = np.where(inverse, rows.tails, rows.owners), np.where(inverse, rows.owners, rows.tails)
        names = Vocabulary([self.snapshot.name_of(entity) for entity in range(overlay.num_entities)])
        stated = TripleArray(heads, rows.relations % overlay.num_relations, tails)
        return Graph.build(names, self.snapshot.names.relations, stated)
