"""How much a model knows of an entity: whether its facts are enough, and which relation to learn next.

What to learn follows from the rules that are part of the model's answers and lead from an entity's fact to someone
else. (A rule that restates a fact about the same two, an inverse say, teaches nothing new.) A relation's *gain* is

    P(s) * sum over unknown relations r of P(r) * (best rule for r from s - best rule for r from what is known)

where a rule counts by its smoothed confidence and P is the share of observed entities that have the relation, each
counting by how many relations it has in common with the entity: how many more answers are expected to be right for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from newcomer.evaluation.calibration import SIDES
from newcomer.evaluation.fact_probability import HALF
from newcomer.evaluation.questions import Prober
from newcomer.graph import Graph, Mask
from newcomer.predictor.answers import Plain, plain
from newcomer.predictor.explain import Suggestion
from newcomer.predictor.fact_store import Names
from newcomer.rules.grounding import RuleIndex
from newcomer.rules.rule import Kind

LESSONS = 3  # relations to learn that are named
TELLING = 5  # questions from which on a reader is told the share of right answers: that of one or two says nothing
SAME_PAIR = (Kind.ONE, Kind.BOTH)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lesson(Plain):
    """A relation whose facts would help: which question to find the answer of, and how many others it would answer.

    ``opens`` are the questions that rules could answer then, each with the confidence of the best rule; what helps most
    comes first.
    """

    question: str
    gain: float
    opens: tuple[tuple[str, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Its fields as plain values; each opened question by name, with the confidence of its rule."""
        opens = [{"question": question, "confidence": confidence} for question, confidence in self.opens]
        return {"question": self.question, "gain": self.gain, "opens": opens}

    def __str__(self) -> str:
        opens = ", ".join(f"{question} (confidence {confidence:.2f})" for question, confidence in self.opens)
        return f"{self.question}, from which rules lead to {opens}"


@dataclass(frozen=True)
class Expected(Plain):
    """What is to be expected of one question about an entity: how many of its answers are known and how many missing.

    ``applies`` is the probability that any is missing: that the relation applies and is not filled.
    """

    question: str
    relation: str
    asked: str  # tail or head
    known: int
    applies: float
    missing: float


def expected_of(prober: Prober, entity: int, name: str, relations: Sequence[int], names: Names) -> tuple[Expected, ...]:
    """Of these oriented relations, those first of which most answers are missing."""
    size, (applies, missing) = len(names.relations), prober.missing(entity)
    known = np.bincount(prober.questions.overlay.all_facts_of(entity)[0], minlength=2 * size)
    found = [
        Expected(
            _question(one, name, names),
            names.relations[one % size],
            SIDES[one // size],
            int(known[one]),
            float(applies[one]),
            float(missing[one]),
        )
        for one in relations
    ]
    return tuple(sorted(found, key=lambda one: (-one.missing, one.relation, one.asked)))


@dataclass(frozen=True)
class Confidence(Plain):
    """How much is known of an entity.

    ``right`` is the share of first answers that were right about the validation newcomers with about as many facts
    (``like``), of ``questions`` that were asked; None where there were none. It is ``tied`` where facts lead from it,
    directly or over other newcomers, to an entity that was trained on; else no answer is likelier than it is of anyone.
    ``expected`` are the questions that `suggest` would ask, with how many answers they probably lack; most first.
    ``best``, the likeliest missing fact, is found when it is first looked at.
    """

    entity: str
    facts: int
    like: str
    questions: int
    right: float | None
    learn: tuple[Lesson, ...]
    calibrated: bool
    tied: bool
    expected: tuple[Expected, ...]
    find: Callable[[], Suggestion | None] = field(compare=False, repr=False)

    @cached_property
    def best(self) -> Suggestion | None:
        """The likeliest missing fact."""
        return self.find()

    @property
    def enough(self) -> bool:
        """Whether its facts are enough for any answer: one that is at least as likely right as wrong.

        Those of an entity that is not tied to the graph are not: what is likely of it is so of anyone.
        """
        return self.tied and self.best is not None and self.best.probability >= HALF

    def to_dict(self) -> dict[str, Any]:
        """Its figures as plain values, with the likeliest missing fact."""
        names = ("entity", "facts", "tied", "enough", "calibrated", "like", "questions", "right", "learn", "expected")
        best = None if self.best is None else {"fact": list(self.best.fact), "probability": self.best.probability}
        return {**{name: plain(getattr(self, name)) for name in names}, "best": best}

    def __str__(self) -> str:
        count = "1 known fact" if self.facts == 1 else f"{self.facts:,} known facts"
        said = [f"{self.entity} has {count}, {'enough' if self.enough else 'too few'} for an answer"]
        if self.best is not None:
            head, relation, tail = self.best.fact
            kind = "probability" if self.calibrated else "uncalibrated probability"
            said[0] += f" (the likeliest is {relation}({head}, {tail}), {kind} {self.best.probability:.2f})"
        if not self.tied:
            said.append("no fact leads to an entity that was trained on, so no answer is likelier than it is of anyone")
        elif self.right is not None and self.questions >= TELLING:
            asked = f"{self.questions:,} questions about validation newcomers with as many ({self.like})"
            said.append(f"of {asked}, {self.right:.0%} had a right first answer")
        said += [f"what would help most is {lesson}" for lesson in self.learn[:1]]
        return "; ".join(said)


@dataclass(frozen=True, eq=False)
class RuleReach:
    """What rules lead to: for each pair of oriented relations, ``known`` and ``asked``, the best rule's confidence."""

    known: npt.NDArray[np.int64]
    asked: npt.NDArray[np.int64]
    confidence: Floats

    @classmethod
    def of(cls, index: RuleIndex | None, num_relations: int) -> "RuleReach":
        """Of the rules in an index."""
        if index is None:
            return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
        rules, size = index.by_start, 2 * num_relations
        further = ~np.isin(rules.kind, SAME_PAIR)
        keys = rules.body1[further].astype(np.int64) * size + rules.head[further]
        pairs, place = np.unique(keys, return_inverse=True)
        best = np.zeros(len(pairs))
        np.maximum.at(best, place, np.nan_to_num(index.strength[rules.row[further]]))
        return cls(pairs // size, pairs % size, best)

    def lessons(self, has: Mask, likely: Floats, entity: str, names: Names) -> tuple[Lesson, ...]:
        """Relations to learn, by their gain; ``has`` says which are known, ``likely`` how likely each is to apply."""
        reached = np.zeros(len(has))
        np.maximum.at(reached, self.asked[has[self.known]], self.confidence[has[self.known]])
        more = np.maximum(self.confidence - reached[self.asked], 0.0) * likely[self.asked]
        more[has[self.asked] | has[self.known] | (self.known == self.asked)] = 0.0
        gains = likely * np.bincount(self.known, weights=more, minlength=len(has))
        order = np.argsort(-gains, kind="stable")[:LESSONS]
        return tuple(self._lesson(int(one), float(gains[one]), more, entity, names) for one in order if gains[one] > 0)

    def _lesson(self, relation: int, gain: float, more: Floats, entity: str, names: Names) -> Lesson:
        mine = np.flatnonzero((self.known == relation) & (more > 0))
        best = mine[np.argsort(-more[mine], kind="stable")][:LESSONS]
        opens = [(_question(int(self.asked[one]), entity, names), float(self.confidence[one])) for one in best]
        return Lesson(_question(relation, entity, names), gain, tuple(opens))


def _question(relation: int, entity: str, names: Names) -> str:
    size = len(names.relations)
    name = names.relations[relation % size]
    return f"{name}({entity}, ?)" if relation < size else f"{name}(?, {entity})"


@dataclass(frozen=True, eq=False)
class RelationCooccurrence:
    """Which oriented relations the entities of a graph have: a table (entities, 2 relations) of ones and zeros."""

    table: csr_array

    @classmethod
    def of(cls, observed: Graph) -> "RelationCooccurrence":
        """Of a graph."""
        rows, size = observed.adjacency, 2 * observed.num_relations
        ones = np.ones(len(rows.relations))
        table = csr_array((ones, rows.relations, rows.offsets), shape=(observed.num_entities, size), copy=True)
        table.sum_duplicates()
        return cls(table.sign())

    def counts(self, has: Mask) -> tuple[Floats, float]:
        """How often others have each relation, each counting by what it has in common, and how much all count."""
        alike = self.table @ has.astype(np.float64)
        return self.table.T @ alike, float(alike.sum())
