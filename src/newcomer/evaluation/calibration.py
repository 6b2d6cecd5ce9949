"""From scores to probabilities: of the answers that are given a probability of 0.8, about 80 % shall be right.

Probabilities are learned from questions whose answers are known. An answer's *evidence* is two numbers: the log
odds of its share in the softmax over the twenty best candidates that are not known already, and the logarithm of its
rank. (A share among all candidates would depend on the many unlikely ones: their sum differs from one kind of newcomer
to another, and tells little about the best.) Both are weighed, the share's weight never below 0 and the rank's never
above, so that a higher score never has a lower probability. From there to probability leads

    a logistic curve (Platt, with his smoothed targets) where right or wrong answers are few, else
    an isotonic one: the best of all rising curves (pool adjacent violators), with one more right answer at its lower
    end and one more wrong one at its upper end, so that nothing is certain; straight between the blocks' middles, in
    log odds, and flat beyond them
    and for each oriented relation a slope and a shift of the log odds, held near to 1 and 0 by a normal prior: with few
    questions the curve of all, with many its own

An expected calibration error is the mean distance between probability and share of right answers over ten bins of
probability, each counting by its answers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.evaluation.metrics import Values, mean, wilson
from newcomer.evaluation.ranking import MEMORY_LIMIT, SCORE_BYTES, Scorer
from newcomer.graph import UNKNOWN, Graph, Ids, InductiveDataset, Mask, Offsets, TripleArray, Vocabulary

CERTAIN = 1e-9  # what is left to others at least, where logarithms need something
SHARED_AMONG = 20  # best candidates, among which an answer has its share
RECORDED = 20  # answers a question
ENOUGH_FOR_KNOTS = 100  # right answers, and wrong ones, for a curve of any shape
PRIOR_PRECISION = (16.0, 2.0)  # of a relation's slope and shift: one over the variance of their prior
ROUNDS = 100  # of Newton's method, which needs about six
BINS = 10
SIDES = ("tail", "head")  # what a question asks for: along a relation, or along its inverse

Probabilities = npt.NDArray[np.float64]


def uncalibrated(scores: npt.NDArray[Any], places: npt.NDArray[np.integer], shares: bool) -> Probabilities:
    """Probabilities of candidates without any calibration: softmax over all scores, or sigmoid of each score."""
    exact = scores.astype(np.float64)
    if shares:
        odds = np.exp(exact - exact.max())
        found: Probabilities = (odds / odds.sum())[places]
        return found
    return sigmoid(exact[places])


def evidence(scores: npt.NDArray[Any], left_out: Mask, places: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """(places, 2): log odds of the share, and logarithm of the rank, of candidates among those not left out.

    Equals share the mean of their ranks. A candidate that is not among the best is compared with all of these. The
    places must be of candidates that are not left out.
    """
    if len(places) == 0:  # where all are left out, say
        return np.empty((0, 2))
    candidates = scores[~left_out]
    chosen = scores[places].astype(np.float64)
    first = np.sort(np.partition(candidates, max(len(candidates) - SHARED_AMONG, 0))[-SHARED_AMONG:]).astype(np.float64)
    total = first[-1] + np.log(np.exp(first - first[-1]).sum())
    # Counted, not sorted: the places are few.
    above = np.array([np.count_nonzero(candidates > score) for score in scores[places]])
    equal = np.array([np.count_nonzero(candidates == score) for score in scores[places]])
    ranks = above + (equal + 1) / 2
    share = np.minimum(chosen - total, -CERTAIN)  # its logarithm
    others = np.where(chosen >= first[0], -np.expm1(share), 1.0)
    return np.column_stack([share - np.log(others), np.log(ranks)])


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of a scorer, a row an answer: those to one question together, best first."""

    question: Offsets
    entity: Ids
    relation: Ids
    place: Offsets  # among the answers to the question, from 0
    evidence: npt.NDArray[np.float64]  # (answers, 2)
    plain: Probabilities
    right: Mask

    def __len__(self) -> int:
        return len(self.right)

    def where(self, mask: Mask) -> "Answers":
        """Some of them."""
        return Answers(*(column[mask] for column in vars(self).values()))


class AnswerRecorder:
    """A scorer that passes on another's scores, and records the best answers to each question once.

    Answers that are known already, from observed or auxiliary facts, are left out; right is what ``true`` holds.
    """

    def __init__(
        self, inner: Scorer, dataset: InductiveDataset, true: Graph, shares: bool, top: int = RECORDED
    ) -> None:
        self.inner, self.shares, self.top = inner, shares, top
        self.known, self.true = dataset.known_facts(), true
        self._recorded: dict[tuple[int, int], tuple[npt.NDArray[np.float64], Probabilities, Mask]] = {}

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[Any]:
        """One row of scores a query."""
        rows = self.inner.scores(entities, relations)
        for entity, relation, row in zip(entities.tolist(), relations.tolist(), rows, strict=True):
            if (relation, entity) not in self._recorded:
                self._recorded[relation, entity] = self._best(entity, relation, row)
        return rows

    def _best(
        self, entity: int, relation: int, row: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float64], Probabilities, Mask]:
        left_out, right = (_answers_in(graph, entity, relation) for graph in (self.known, self.true))
        places = best(row, left_out, self.top)
        return evidence(row, left_out, places), uncalibrated(row, places, self.shares), right[places]

    def answers(self) -> Answers:
        """All recorded answers, by relation and entity."""
        order = sorted(self._recorded)
        found = [self._recorded[key] for key in order]
        counts = np.array([len(right) for _, _, right in found], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        keys = np.array(order, dtype=np.int32).reshape(-1, 2)
        return Answers(
            np.repeat(np.arange(len(counts)), counts),
            np.repeat(keys[:, 1], counts),
            np.repeat(keys[:, 0], counts),
            np.arange(counts.sum()) - np.repeat(starts, counts),
            np.concatenate([np.empty((0, 2)), *(one for one, _, _ in found)]),
            np.concatenate([np.empty(0), *(plain for _, plain, _ in found)]),
            np.concatenate([np.empty(0, dtype=bool), *(right for _, _, right in found)]),
        )


def _answers_in(graph: Graph, entity: int, relation: int) -> Mask:
    mask = np.zeros(graph.num_entities, dtype=bool)
    relations, tails = graph.adjacency.of(entity)
    mask[tails[relations == relation]] = True
    return mask


def best(scores: npt.NDArray[Any], left_out: Mask, k: int) -> npt.NDArray[np.intp]:
    """The places of the k highest scores, highest first, of equals the first one first."""
    there = np.flatnonzero(~left_out)
    if len(there) > k:
        least = np.partition(scores[there], len(there) - k)[len(there) - k]
        there = there[scores[there] >= least]
    order = np.argsort(-scores[there], kind="stable")[:k]
    found: npt.NDArray[np.intp] = there[order]
    return found


def ask(scorer: Scorer, entities: Ids, relations: Ids, num_entities: int) -> Iterable[tuple[Offsets, npt.NDArray[Any]]]:
    """Rows of scores, relation by relation and as many at a time as memory allows: which questions, and their rows."""
    order = np.lexsort((entities, relations))
    step = max(1, MEMORY_LIMIT // (num_entities * SCORE_BYTES))
    for start in range(0, len(order), step):
        which = order[start : start + step]
        yield which, scorer.scores(entities[which], relations[which])


def classifier_evidence(odds: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """(triples, 2): the evidence of triples with a triple classifier's log odds, and no rank."""
    return np.column_stack([odds, np.zeros(len(odds))]).astype(np.float64)


def triple_evidence(
    dataset: InductiveDataset, scorer: Scorer, triples: TripleArray
) -> tuple[npt.NDArray[np.float64], Values]:
    """(triples, 2): the evidence for each tail as an answer to (head, relation, ?), other known answers left out; and
    its score, (triples,).
    """
    found, scores = np.empty((len(triples), 2)), np.empty(len(triples))
    for place, row, left_out in triple_rows(dataset, scorer, triples):
        tail = triples.tails[place : place + 1]
        found[place], scores[place] = evidence(row, left_out, tail)[0], row[tail[0]]
    return found, scores


def triple_rows(
    dataset: InductiveDataset, scorer: Scorer, triples: TripleArray
) -> Iterable[tuple[int, npt.NDArray[Any], Mask]]:
    """Of each triple (its place) the scores of all tails, and the other known answers to (head, relation, ?)."""
    known = dataset.known_facts()
    for which, rows in ask(scorer, triples.heads, triples.relations, len(dataset.entities)):
        for place, row in zip(which.tolist(), rows, strict=True):
            left_out = _answers_in(known, int(triples.heads[place]), int(triples.relations[place]))
            left_out[triples.tails[place]] = False
            yield place, row, left_out


@dataclass(frozen=True)
class RelationCurve:
    """How one oriented relation's log odds depart from the curve of all, learned from so many questions."""

    slope: float
    shift: float
    questions: int


@dataclass(frozen=True, eq=False)
class Curve:
    """From evidence to probability.

    Log odds are the weighed evidence plus ``shift``, or interpolated between ``knots`` where there are any: pairs of
    weighed evidence and log odds, both ascending.
    """

    share: float
    rank: float
    shift: float
    knots: npt.NDArray[np.float64]  # (knots, 2)
    relations: Mapping[int, RelationCurve] = field(default_factory=dict)

    def odds(self, evidence: npt.NDArray[np.float64]) -> Values:
        """Log odds by the curve of all relations."""
        weighed = self.share * evidence[:, 0] - self.rank * evidence[:, 1]
        if len(self.knots) == 0:
            return np.asarray(weighed + self.shift)
        return np.interp(weighed, self.knots[:, 0], self.knots[:, 1])

    def probabilities(self, evidence: npt.NDArray[np.float64], relations: Ids | int) -> Probabilities:
        """Probabilities of answers to questions along these oriented relations."""
        odds, asked = self.odds(evidence), np.broadcast_to(relations, len(evidence))
        for relation in np.unique(asked).tolist():
            own, mine = self.relations.get(relation), asked == relation
            if own is not None:
                odds[mine] = own.slope * odds[mine] + own.shift
        return sigmoid(odds)


def fit_curve(
    evidence: npt.NDArray[np.float64],
    right: Mask,
    relations: Ids,
    questions: Offsets,
    precision: tuple[float, float] = PRIOR_PRECISION,
) -> Curve:
    """The curve fitted to these answers; ``questions`` are the question of each, ``precision`` that of the prior."""
    share, rank, shift = _logistic(evidence, right)
    knots = np.empty((0, 2))
    if min(right.sum(), (~right).sum()) >= ENOUGH_FOR_KNOTS:
        values, probabilities = isotonic(share * evidence[:, 0] - rank * evidence[:, 1], right)
        knots = np.column_stack([values, np.log(probabilities) - np.log1p(-probabilities)])
    curve = Curve(share, rank, shift, knots)
    return Curve(
        share, rank, shift, knots, relation_curves(curve.odds(evidence), right, relations, questions, precision)
    )


def relation_curves(
    odds: Values, right: Mask, relations: Ids, questions: Offsets, precision: tuple[float, float]
) -> dict[int, RelationCurve]:
    """How each oriented relation departs from the log odds of all."""
    own = {}
    for relation in np.unique(relations).tolist():
        mine = relations == relation
        columns = np.column_stack([odds[mine], np.ones(mine.sum())])
        weights = regression(columns, right[mine].astype(np.float64), np.array([1.0, 0.0]), np.array(precision))
        own[relation] = RelationCurve(max(float(weights[0]), 0.0), float(weights[1]), len(np.unique(questions[mine])))
    return own


def _logistic(evidence: npt.NDArray[np.float64], right: Mask) -> tuple[float, float, float]:
    """Weights of share and rank, none below 0, and the shift, by Platt's method."""
    good, bad = int(right.sum()), int((~right).sum())
    targets = np.where(right, (good + 1) / (good + 2), 1 / (bad + 2))
    columns = np.column_stack([evidence[:, 0], -evidence[:, 1], np.ones(len(right))])
    loose, fixed = 1e-6, 1e12  # precision: a weight that must not be negative is held at 0
    weights = np.zeros(3)
    for held in ((), (1,), (0,), (0, 1)):
        precision = np.array([fixed if place in held else loose for place in range(3)])
        weights = regression(columns, targets, np.zeros(3), precision)
        if all(weights[place] >= -1e-9 or place in held for place in (0, 1)):
            break
    share, rank, shift = weights.tolist()
    return max(share, 0.0), max(rank, 0.0), shift


def regression(columns: npt.NDArray[np.float64], targets: Values, guess: Values, precision: Values) -> Values:
    """Logistic regression with a normal prior around ``guess``; Newton's steps, halved until they lead down."""

    def loss(weights: Values) -> float:
        odds = columns @ weights
        fit = (np.logaddexp(0.0, odds) - targets * odds).sum()
        return float(fit + 0.5 * (precision * (weights - guess) ** 2).sum())

    weights = guess.copy()
    for _ in range(ROUNDS):
        probabilities = sigmoid(columns @ weights)
        # Plain sums: a library's matrix product may add in another order on another number of cores.
        slope = (columns * (probabilities - targets)[:, None]).sum(axis=0) + precision * (weights - guess)
        bend = np.einsum("ni,n,nj->ij", columns, probabilities * (1 - probabilities), columns) + np.diag(precision)
        step = np.linalg.solve(bend, slope)
        now = loss(weights)
        while loss(weights - step) > now and np.abs(step).max() > 1e-12:
            step /= 2
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            break
    return weights


def isotonic(values: Values, right: Mask) -> tuple[Values, Probabilities]:
    """The rising probabilities nearest to what is right, in blocks: their mean values and probabilities, within (0, 1).

    One more right answer stands at the lowest value and one more wrong one at the highest, see the module.
    """
    from scipy.optimize import isotonic_regression

    distinct, place = np.unique(values, return_inverse=True)
    counts = np.bincount(place, minlength=len(distinct)).astype(np.float64)
    good = np.bincount(place[right], minlength=len(distinct)).astype(np.float64)
    good[0] += 1
    counts[0] += 1
    counts[-1] += 1
    starts = isotonic_regression(good / counts, weights=counts).blocks[:-1]
    # Rounding may leave apart blocks of the same probability.
    starts = starts[np.diff(np.add.reduceat(good, starts) / np.add.reduceat(counts, starts), prepend=-1.0) > 0]
    sizes, sums = np.add.reduceat(counts, starts), np.add.reduceat(good, starts)
    return np.add.reduceat(counts * distinct, starts) / sizes, sums / sizes


def sigmoid(odds: npt.NDArray[np.float64]) -> Probabilities:
    """Probabilities of log odds."""
    probabilities: Probabilities = 1 / (1 + np.exp(-odds.clip(-500, 500)))
    return probabilities


def curve_to_dict(curve: Curve, relations: Vocabulary) -> dict[str, Any]:
    """A curve as JSON can hold it, with relations by name."""
    own = [
        {"relation": relations[relation % len(relations)], "asked": SIDES[relation // len(relations)], **asdict(one)}
        for relation, one in sorted(curve.relations.items())
    ]
    weights = {"share": curve.share, "rank": curve.rank, "shift": curve.shift}
    return {**weights, "knots": curve.knots.tolist(), "relations": own}


def curve_from_dict(content: Mapping[str, Any], relations: Vocabulary) -> Curve:
    """What `curve_to_dict` gave."""
    own = {}
    for row in content["relations"]:
        plain = relations.id(row["relation"])
        if plain == UNKNOWN:
            raise ValueError(f"the relation {row['relation']} is not the model's")
        own[plain + SIDES.index(row["asked"]) * len(relations)] = RelationCurve(
            float(row["slope"]), float(row["shift"]), int(row["questions"])
        )
    knots = np.array(content["knots"], dtype=np.float64).reshape(-1, 2)
    share, rank, shift = (float(content[name]) for name in ("share", "rank", "shift"))
    return Curve(share, rank, shift, knots, own)


def reliability(probabilities: Probabilities, right: Mask) -> list[dict[str, Any]]:
    """The bins that have answers, lowest first: their ends, number, mean probability and share of right answers.

    ``right_low`` and ``right_high`` are the ends of Wilson's interval of that share: a bin with few answers may well be
    off by chance.
    """
    number = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    found = []
    for place in np.unique(number).tolist():
        mine = number == place
        row = {"low": place / BINS, "high": (place + 1) / BINS, "answers": int(mine.sum())}
        row |= {"probability": float(probabilities[mine].mean()), "right": float(right[mine].mean())}
        interval = wilson(int(right[mine].sum()), row["answers"])
        found.append(row | {"right_low": interval.low, "right_high": interval.high})
    return found


def calibration_error(probabilities: Probabilities, right: Mask) -> float:
    """The expected calibration error, see the module; NaN where there is no answer."""
    bins = reliability(probabilities, right)
    distances = (one["answers"] * abs(one["probability"] - one["right"]) for one in bins)
    return float(sum(distances) / len(probabilities)) if bins else float("nan")


def believed(probabilities: Probabilities, right: Mask) -> dict[str, Any]:
    """How far probabilities can be believed: how many, their mean, the share that is right, the error and its bins."""
    return {
        "answers": len(right),
        "probability": float(mean(probabilities)),
        "right": float(mean(right)),
        "ece": calibration_error(probabilities, right),
        "bins": reliability(probabilities, right),
    }
