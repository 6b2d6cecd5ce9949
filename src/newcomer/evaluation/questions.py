"""Questions about entities in one snapshot, and how probable it is that their answers are facts.

The probability of a fact is asked for from one of its ends: from the newcomer, or from the head where both are new or
neither is. So it does not depend on which question the fact was an answer to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.evaluation.applicability import Floats, RelationProfiles
from newcomer.evaluation.calibration import Probabilities, best, evidence, sigmoid, uncalibrated
from newcomer.evaluation.fact_probability import APPLIES, Calibration, weighed_evidence
from newcomer.graph import Ids, Mask, Overlay
from newcomer.models.embedding.scorer import Scores, Snapshot
from newcomer.models.engine import InferenceEngine, Scored
from newcomer.models.ensemble import UNKNOWN

KEPT = 64  # entities whose evidence is kept for further questions
POOL = 20  # answers to each question, at least, that are looked at: the best by score need not be the likeliest
CONSIDERED = 20  # facts more than these, whose probability is asked for from the end that counts
RULELESS = float(np.log(UNKNOWN) - np.log1p(-UNKNOWN))
Places = npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Question:
    """(entity, oriented relation, ?) with the scores of all candidates, the answers known, and who is no candidate."""

    entity: int
    relation: int
    scored: Scored
    known: Ids
    left_out: Mask  # who is not there, and the known answers
    _evidence: dict[bytes, Floats] = field(default_factory=dict)

    @property
    def scores(self) -> Scores:
        return self.scored.scores

    def evidence(self, places: Places) -> Floats:
        """(places, 2): see `newcomer.evaluation.calibration`; a known answer as if it were not known."""
        asked = places.tobytes()
        if asked not in self._evidence:  # two probabilities rest on it
            self._evidence[asked] = self._evidence_of(places)
        return self._evidence[asked]

    def _evidence_of(self, places: Places) -> Floats:
        is_known = np.isin(places, self.known)
        found = np.empty((len(places), 2))
        found[~is_known] = evidence(self.scores, self.left_out, places[~is_known])
        for number in np.flatnonzero(is_known).tolist():
            place = places[number : number + 1]
            left_out = self.left_out.copy()
            left_out[place] = False
            found[number] = evidence(self.scores, left_out, place)[0]
        return found

    def rule_odds(self, places: Places) -> Floats:
        """(places,): log odds of the best rule's confidence."""
        if self.scored.confidence is None:
            return np.full(len(places), RULELESS)
        found = self.scored.confidence[places].astype(np.float64).clip(UNKNOWN, 1 - UNKNOWN)
        return np.asarray(np.log(found) - np.log1p(-found))


class Questions:
    """What can be asked in one snapshot."""

    def __init__(self, engine: InferenceEngine, snapshot: Snapshot, profiles: RelationProfiles) -> None:
        self.engine, self.snapshot, self.profiles = engine, snapshot, profiles
        self._applies: dict[int, Floats] = {}
        self._asked_once: set[int] = set()  # of these entities one relation was looked at
        self._tied: dict[int, bool] = {}

    @property
    def overlay(self) -> Overlay:
        return self.snapshot.overlay

    def ask(self, entity: int, relation: int, scored: Scored | None = None) -> Question:
        """A question, scored now unless that was done before."""
        known = self.overlay.all_answers(entity, relation)
        scored = scored or self.engine.scored(self.snapshot, entity, relation)
        return Question(entity, relation, scored, known, self._left_out(known))

    def left_out(self, entity: int, relation: int) -> Mask:
        """(entities,): who is no candidate."""
        return self._left_out(self.overlay.all_answers(entity, relation))

    def _left_out(self, known: Ids) -> Mask:
        mask: Mask = ~self.snapshot.is_present
        mask[known] = True
        return mask

    def applies(self, entity: int) -> Floats:
        """(2 relations, EVIDENCE): what is known of whether each relation applies to an entity."""
        found = self._applies.get(entity)  # held here: whoever asks at the same time may clear what is kept
        if found is None:
            if len(self._applies) >= KEPT:
                self._applies.clear()
            found = self._applies[entity] = self.profiles.evidence(entity, *self.overlay.all_facts_of(entity))
        return found

    def applies_to(self, entity: int, relation: int) -> Floats:
        """(EVIDENCE,): the same of one relation, which is found sooner than of all; of an entity's next one all are."""
        if entity in self._applies or entity in self._asked_once:
            one_of_all: Floats = self.applies(entity)[relation]
            return one_of_all
        if len(self._asked_once) >= KEPT:
            self._asked_once.clear()
        self._asked_once.add(entity)
        alone: Floats = self.profiles.evidence(entity, *self.overlay.all_facts_of(entity), relation)[0]
        return alone

    def applies_without(self, entity: int, relation: int, answer: int) -> Floats:
        """(EVIDENCE,): the same of one relation, as if one of its facts were not known."""
        relations, tails = self.overlay.all_facts_of(entity)
        along = [relation, self.inverse(relation)] if answer == entity else [relation]  # a loop stands there twice
        others = ~np.isin(relations, along) | (tails != answer)
        found: Floats = self.profiles.evidence(entity, relations[others], tails[others], relation)[0]
        return found

    def room(self, question: Question, places: Places) -> Floats:
        """(places,): of those who answer the relation as often as this one, the share that do so once more.

        1 of who never did; less of the entity itself, where the relation joins few to themselves.
        """
        known = np.isin(places, question.known).tolist()
        rows = zip(places.tolist(), known, strict=True)
        return np.array([self._room(question, place, is_known) for place, is_known in rows])

    def _room(self, question: Question, answer: int, is_known: bool) -> float:
        inverse = self.inverse(question.relation)
        count = len(self.overlay.all_answers(answer, inverse)) - is_known
        share = 1.0 if count == 0 else self.profiles.share_with_more(inverse, count)
        return share * self.profiles.loop_share(question.relation) if answer == question.entity else share

    def is_tied(self, entity: int) -> bool:
        """Whether facts lead from an entity to one that was trained on: else nothing speaks for any answer."""
        if entity not in self._tied:
            found, ahead, tied = {entity}, [entity], entity < self.snapshot.num_seen
            while ahead and not tied:
                tails = self.overlay.all_facts_of(ahead.pop())[1]
                tied = bool((tails < self.snapshot.num_seen).any())
                fresh = set(tails.tolist()) - found
                found |= fresh
                ahead += fresh
            self._tied |= dict.fromkeys(found, tied)
        return self._tied[entity]

    def base_rate(self, relation: int, answer: int) -> float:
        """The share of the seen entities that have this very answer."""
        seen = self.snapshot.num_seen
        having = len(self.overlay.answers(answer, self.inverse(relation))) if answer < seen else 0
        return (having + 0.5) / (seen + 1)

    def inverse(self, relation: int) -> int:
        """An oriented relation the other way round."""
        size = self.profiles.num_relations
        return relation + size if relation < size else relation - size

    def asked_from_answer(self, question: Question, places: Places) -> Mask:
        """Which facts are asked about from the end of their answer."""
        is_new = places >= self.snapshot.num_seen
        answer_is_head = question.relation >= self.profiles.num_relations
        found: Mask = is_new & answer_is_head if question.entity >= self.snapshot.num_seen else is_new | answer_is_head
        return found


@dataclass(frozen=True, eq=False)
class Prober:
    """What answers to the questions of a snapshot are worth, by a model's calibration."""

    questions: Questions
    calibration: Calibration | None

    def probabilities(self, question: Question, places: Places) -> Probabilities:
        """That the answers are facts."""
        found = self.from_entity(question, places)
        for number in np.flatnonzero(self.questions.asked_from_answer(question, places)).tolist():
            found[number] = self.from_answer(question.entity, question.relation, int(places[number]))
        return found

    def missing(self, entity: int) -> tuple[Probabilities, Floats]:
        """(2 relations,) both: that a relation applies and is not filled, and how many of its answers are missing.

        The number is that probability times the mean excess of those who have more answers.
        """
        curve = None if self.calibration is None else self.calibration.facts
        odds = weighed_evidence(self.questions.applies(entity), APPLIES if curve is None else curve.applies)
        applies = sigmoid(odds)
        return applies, applies * self.questions.profiles.excess(entity, self.questions.overlay.all_facts_of(entity)[0])

    def from_answer(self, entity: int, relation: int, answer: int) -> float:
        """The same of one answer, asked from its end."""
        other = self.questions.ask(answer, self.questions.inverse(relation))
        return float(self.from_entity(other, np.array([entity]))[0])

    def if_any(self, question: Question, places: Places) -> Probabilities:
        """That the answers are right if there is an answer that is not known."""
        if self.calibration is not None:
            return self.calibration.answers.probabilities(question.evidence(places), question.relation)
        there, engine = self.questions.snapshot.is_present, self.questions.engine
        return uncalibrated(question.scores[there], np.cumsum(there)[places] - 1, engine.model.weights is not None)

    def from_entity(self, question: Question, places: Places) -> Probabilities:
        """That they are facts, asked from the entity, whichever end that is."""
        curve = None if self.calibration is None else self.calibration.facts
        if curve is None:  # nothing was learned about facts that are masked
            return self.if_any(question, places)
        questions, relation, is_known = self.questions, question.relation, np.isin(places, question.known)
        applies = np.repeat(questions.applies_to(question.entity, relation)[None], len(places), axis=0)
        for number in np.flatnonzero(is_known).tolist():
            applies[number] = questions.applies_without(question.entity, relation, int(places[number]))
        room = questions.room(question, places)
        found = curve.probabilities(relation, applies, question.evidence(places), room, question.rule_odds(places))
        if questions.is_tied(question.entity):
            return found
        return np.minimum(found, [questions.base_rate(relation, place) for place in places.tolist()])


class Likely(NamedTuple):
    """A fact that is likely missing: an answer to a question along an oriented relation, and its figures."""

    relation: int
    place: int
    score: float
    probability: float
    if_any: float
    from_answer: bool  # whether the fact is asked about from the end of the answer


def likeliest(
    prober: Prober, entity: int, questions: Iterable[Question], k: int, allowed: Mask | None = None
) -> list[Likely]:
    """The k facts of an entity that are most likely missing, by probability; each once.

    The questions are about the entity, and taken one after the other. Facts that are asked about from their other end
    are, if they are among the likeliest as asked from this one. Of few that are listed each has the place that it has
    in a list of ``POOL``.
    """
    answers = []
    for question in questions:
        left_out = question.left_out if allowed is None else question.left_out | ~allowed
        answers.append(best_answers(prober, question, max(k, POOL), left_out))
    return likeliest_among(prober, entity, answers, k)


def likeliest_among(prober: Prober, entity: int, answers: Iterable[Sequence[Likely]], k: int) -> list[Likely]:
    """The same of the `best_answers` to some questions about the entity."""
    found: dict[tuple[int, int], Likely] = {}
    size = prober.questions.profiles.num_relations
    for one in chain.from_iterable(answers):
        key = one.place, one.relation % (size if one.place == entity else 2 * size)
        found.setdefault(key, one)
    considered = sorted(found.values(), key=_order)[: max(k, POOL) + CONSIDERED]
    return sorted((settled(prober, entity, one) for one in considered), key=_order)[:k]


def answers_to(prober: Prober, question: Question, k: int, left_out: Mask) -> list[Likely]:
    """The k best answers to a question, by score."""
    return [settled(prober, question.entity, one) for one in best_answers(prober, question, k, left_out)]


def best_answers(prober: Prober, question: Question, k: int, left_out: Mask) -> list[Likely]:
    """The same, with probabilities as asked from the entity."""
    places = best(question.scores, left_out, k)
    columns = (
        places.tolist(),
        question.scores[places].tolist(),
        prober.from_entity(question, places).tolist(),
        prober.if_any(question, places).tolist(),
        prober.questions.asked_from_answer(question, places).tolist(),
    )
    return [Likely(question.relation, *row) for row in zip(*columns, strict=True)]


def settled(prober: Prober, entity: int, one: Likely) -> Likely:
    """With its probability from the end that counts; if there is an answer it is never less, though learned apart."""
    probability = one.probability
    if one.from_answer:
        probability = prober.from_answer(entity, one.relation, one.place)
    return one._replace(probability=probability, if_any=max(one.if_any, probability))


def _order(one: Likely) -> tuple[float, float, int, int]:
    return -one.probability, -one.score, one.relation, one.place
