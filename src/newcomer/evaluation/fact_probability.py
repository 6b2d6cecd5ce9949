"""The probability of a fact: that its relation applies and is not filled yet, times that the answer is right then.

    P(x, r, y)  ~  P(r applies to x, and is not filled) * P(y is right | it does) * P(y is not filled)

The first is a logistic regression on the evidence of `newcomer.evaluation.applicability`; the second a curve of the
answer's share and rank (`newcomer.evaluation.calibration`), learned on the questions that do have an answer; the third
is counted: what share of the seen entities that are answers as often as y are so once more. How the three go together
with the confidence of the best rule, the number of known facts and whether r has an answer already, and what that is
worth, is learned on all questions that suggestions ask, those without any answer included.
A probability therefore means the same whatever was asked: a fact is as likely in a list of suggestions as it is as an
answer to a question, or by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.errors import DatasetError, shown
from newcomer.evaluation.applicability import EVIDENCE
from newcomer.evaluation.calibration import (
    ENOUGH_FOR_KNOTS,
    Curve,
    Probabilities,
    RelationCurve,
    curve_from_dict,
    curve_to_dict,
    fit_curve,
    isotonic,
    regression,
    relation_curves,
    sigmoid,
)
from newcomer.graph import Ids, Mask, Offsets, Vocabulary

# Before anything is learned: what the evidence says of most graphs, and the product itself.
APPLIES = (0.3, 0.6, 0.1, 0.0, -1.0, -0.5)
TOGETHER = (1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
RISING = 6  # the first weights, which are never negative
FIRMNESS, HOLDING = 1.0, 1e12  # precision of the prior around these, and of one that holds a weight at 0
RELATION_PRECISION = (64.0, 32.0)  # of how a relation departs from all: most answers to a question are wrong together
SMALLEST = 1e-9
HALF = 0.5  # from which probability on a fact counts as true
Floats = npt.NDArray[np.float64]


class FactExamples(NamedTuple):
    """Answers to many questions about newcomers, and whether they are right; ``question`` tells whose each is."""

    entity: Ids  # (questions,)
    relation: Ids  # (questions,): oriented
    applies_evidence: Floats  # (questions, EVIDENCE)
    applies: Mask  # (questions,): whether an answer is missing
    missing: Offsets  # (questions,): how many are
    question: Offsets  # (answers,)
    answer: Ids
    place: Offsets  # among the answers to its question, from 0
    answer_evidence: Floats  # (answers, 2)
    room: Floats  # (answers,): the share of those who are answers as often as this one that are so once more
    rule_odds: Floats  # (answers,): log odds of the confidence of the best rule
    right: Mask

    @classmethod
    def joined(cls, parts: "Sequence[FactExamples]") -> "FactExamples":
        """All questions of some parts."""
        columns = cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        starts = np.cumsum([0, *(len(part.entity) for part in parts[:-1])])
        shift = np.repeat(starts, [len(part.answer) for part in parts])
        return columns._replace(question=columns.question + shift)


@dataclass(frozen=True, eq=False)
class FactCurve:
    """From evidence to the probability of a fact; weights of what goes up with it are never negative."""

    applies: Floats  # (EVIDENCE + 1,)
    answers: Curve
    together: Floats  # (9,): see `_columns`
    knots: Floats  # (knots, 2): weighed evidence and log odds, both ascending; none where little was learned from
    relations: Mapping[int, RelationCurve]

    def applying(self, evidence: Floats) -> Floats:
        """Log odds that a relation applies and is not filled, for evidence (n, EVIDENCE)."""
        return weighed_evidence(evidence, self.applies)

    def probabilities(
        self, relation: Ids | int, applies: Floats, evidence: Floats, room: Floats, rule_odds: Floats
    ) -> Probabilities:
        """Of answers along oriented relations, or along one; as in `FactExamples`, but a row an answer."""
        relations = np.broadcast_to(relation, len(evidence))
        answers = self.answers.probabilities(evidence, relations)
        weighed = _weighed(_columns(applies, self.applying(applies), answers, room, rule_odds), self.together)
        odds = weighed if len(self.knots) == 0 else np.interp(weighed, self.knots[:, 0], self.knots[:, 1])
        for one in np.unique(relations).tolist():
            own, mine = self.relations.get(one), relations == one
            if own is not None:
                odds[mine] = own.slope * odds[mine] + own.shift
        return sigmoid(odds)

    def to_dict(self, relations: Vocabulary) -> dict[str, Any]:
        """As JSON can hold it, with relations by name."""
        own = curve_to_dict(Curve(0.0, 0.0, 0.0, self.knots, self.relations), relations)
        return {
            "applies": self.applies.tolist(),
            "answers": curve_to_dict(self.answers, relations),
            "together": self.together.tolist(),
            "knots": own["knots"],
            "relations": own["relations"],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], relations: Vocabulary) -> "FactCurve":
        """What `to_dict` gave."""
        own = curve_from_dict({"share": 0, "rank": 0, "shift": 0, **content}, relations)
        applies, together = (np.array(content[name], dtype=np.float64) for name in ("applies", "together"))
        if applies.shape != (EVIDENCE + 1,) or together.shape != (len(TOGETHER),):
            raise ValueError("it has another number of weights")
        return cls(applies, curve_from_dict(content["answers"], relations), together, own.knots, own.relations)


def weighed_evidence(evidence: Floats, weights: npt.ArrayLike) -> Floats:
    """(n,): log odds of evidence (n, EVIDENCE) by these weights, of which the last one is added as it is."""
    return _weighed(_with_one(evidence), np.asarray(weights))


def _with_one(columns: Floats) -> Floats:
    return np.column_stack([columns, np.ones(len(columns))])


def _weighed(columns: Floats, weights: Floats) -> Floats:
    """The weighed sum of each row: not a product of matrices, whose last digits differ with the number of rows."""
    return np.asarray((columns * weights).sum(axis=1))


def _columns(applies: Floats, applying: Floats, answers: Probabilities, room: Floats, rule_odds: Floats) -> Floats:
    """(n, 9): logarithm and log odds of applying and of being right, logarithm of the room, odds of the best rule.

    Then how many facts are known (its logarithm), whether one of them is an answer already, and 1.
    """
    answer = answers.clip(SMALLEST, 1 - SMALLEST)
    odds = np.log(answer) - np.log1p(-answer)
    columns = [-np.logaddexp(0.0, -applying), applying, np.log(answer), odds, np.log(room.clip(SMALLEST, 1.0))]
    columns.append(rule_odds)
    return _with_one(np.column_stack([*columns, applies[:, 3:]]))


def fit_fact_curve(examples: FactExamples) -> FactCurve:
    """Learned from examples of both kinds; little is learned from few."""
    prior = np.array(APPLIES)
    columns = _with_one(examples.applies_evidence)
    applies = regression(columns, examples.applies.astype(np.float64), prior, np.full(len(prior), FIRMNESS))
    asked = examples.applies[examples.question]
    relations = examples.relation[examples.question]
    answered = examples.answer_evidence[asked], examples.right[asked], relations[asked], examples.question[asked]
    answers = fit_curve(*answered, RELATION_PRECISION)
    applying = _weighed(columns, applies)[examples.question]
    right = answers.probabilities(examples.answer_evidence, relations)
    known = examples.applies_evidence[examples.question]
    evidence = _columns(known, applying, right, examples.room, examples.rule_odds)
    together = _rising(evidence, examples.right)
    weighed, knots = _weighed(evidence, together), np.empty((0, 2))
    odds = weighed
    if min(examples.right.sum(), (~examples.right).sum()) >= ENOUGH_FOR_KNOTS:
        values, probabilities = isotonic(weighed, examples.right)
        knots = np.column_stack([values, np.log(probabilities) - np.log1p(-probabilities)])
        odds = np.interp(weighed, knots[:, 0], knots[:, 1])
    own = relation_curves(odds, examples.right, relations, examples.question, RELATION_PRECISION)
    return FactCurve(applies, answers, together, knots, own)


def _rising(columns: Floats, right: Mask) -> Floats:
    """Logistic weights around their prior, the first ones never below 0."""
    prior, targets = np.array(TOGETHER), right.astype(np.float64)
    held = np.zeros(len(prior), dtype=bool)
    while True:
        precision = np.where(held, HOLDING, FIRMNESS)
        weights = regression(columns, targets, np.where(held, 0.0, prior), precision)
        # Many examples still bend a held weight a little below 0: it is not looked at again.
        rising = np.where(held, 0.0, weights)[:RISING]
        if (rising >= -1e-9).all():
            return np.concatenate([rising.clip(0.0), weights[RISING:]])
        held[int(np.argmin(rising))] = True


@dataclass(frozen=True, eq=False)
class Calibration:
    """From a model's scores to probabilities: of facts, of answers to a question that has one, and of labelled triples.

    A fact's probability is the same wherever it is shown; there is none where no newcomer was held out whose relations
    could be masked. The curve of triples is for data sets that label true and false ones. ``first_right`` has, by
    number of known facts, the number of questions and of right first answers.
    """

    answers: Curve
    triples: Curve | None
    first_right: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    facts: FactCurve | None = None

    def to_dict(self, relations: Vocabulary) -> dict[str, Any]:
        """As JSON can hold it, with relations by name."""
        return {
            "answers": curve_to_dict(self.answers, relations),
            "triples": None if self.triples is None else curve_to_dict(self.triples, relations),
            "first_right": {name: list(counts) for name, counts in self.first_right.items()},
            "facts": None if self.facts is None else self.facts.to_dict(relations),
        }

    @classmethod
    def from_dict(cls, content: Any, relations: Vocabulary) -> "Calibration":
        """What `to_dict` gave; anything else is an error."""
        try:
            triples, facts = content["triples"], content["facts"]
            return cls(
                curve_from_dict(content["answers"], relations),
                None if triples is None else curve_from_dict(triples, relations),
                {str(name): (int(asked), int(right)) for name, (asked, right) in content["first_right"].items()},
                None if facts is None else FactCurve.from_dict(facts, relations),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"the calibration in metrics.json is not one that newcomer wrote ({shown(str(error))})"
            raise DatasetError(f"{problem}; train the model again") from None
