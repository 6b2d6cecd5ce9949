"""Triple classification: is a stated triple true? Yes where its score reaches its relation's threshold.

Thresholds come from labelled triples: those of valid, or those about newcomers that were held out. A relation's
threshold is the exact optimum of accuracy over every cut between distinct scores; a relation without a labelled triple
takes the overall threshold, the optimum over all of them together. With a *prior* of k all labelled triples together
weigh as much as k of a relation's own when its threshold is found: with few of its own it is near to the overall one.
Of equally good cuts one is taken so:

    between two scores   the widest gap wins, among equally wide ones the lowest, and the threshold is its middle
    outside of all       only where no cut between scores is as good: the overall threshold if it lies there, else the
                         nearest one that does; of "all true" and "all false" the nearer to the overall threshold,
                         "all true" where that does not decide (the overall threshold itself is then the lowest score)

A data set without labels gets one made-up false triple for each true one, see `corrupted`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from newcomer.errors import DatasetError, OptionError, shown
from newcomer.evaluation.metrics import Interval, Values, bootstrap_mean
from newcomer.graph import Graph, Ids, InductiveDataset, Mask, TripleArray, Vocabulary, concatenate

PRIOR = 100.0  # of thresholds found on few triples
FOLDS = 5


class TripleScorer(Protocol):
    """Anything that scores triples."""

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids, /) -> npt.NDArray[Any]:
        """Scores of shape (n,), higher is truer; minus infinity is allowed (no evidence at all)."""


@dataclass(frozen=True)
class RelationThresholds:
    """From which score on a triple counts as true: by relation id, and for relations that have none."""

    overall: float
    relations: Mapping[int, float] = field(default_factory=dict, hash=False)

    def accepts(self, relations: Ids, scores: npt.NDArray[Any]) -> Mask:
        """Whether each triple counts as true; in double precision, where no threshold is rounded onto a score."""
        found = [self.relations.get(relation, self.overall) for relation in relations.tolist()]
        true: Mask = scores >= np.array(found, dtype=np.float64)
        return true

    def by_name(self, relations: Vocabulary) -> dict[str, float]:
        """The thresholds of relations that have one, by name."""
        return {relations[relation]: threshold for relation, threshold in self.relations.items()}


def fit_thresholds(relations: Ids, scores: npt.NDArray[Any], labels: Mask, prior: float = 0.0) -> RelationThresholds:
    """The thresholds with the highest accuracy on these labelled triples; ``prior`` as the module says."""
    if len(scores) == 0:
        raise DatasetError("there is no labelled triple to find thresholds with; the data set needs a valid part")
    values = scores.astype(np.float64)
    overall = best_threshold(values, labels)
    each = {}
    for relation in np.unique(relations).tolist():
        mine = relations == relation
        if prior:
            each[relation] = best_threshold(values, labels, overall, mine + prior / len(values))
        else:
            each[relation] = best_threshold(values[mine], labels[mine], overall)
    return RelationThresholds(overall, each)


def best_threshold(scores: Values, labels: Mask, near: float | None = None, weights: Values | None = None) -> float:
    """The cut with the highest accuracy; ties as the module says, ``near`` being the overall threshold."""
    values, place = np.unique(scores, return_inverse=True)
    gained = np.bincount(place, np.where(labels, -1.0, 1.0) * (1.0 if weights is None else weights))
    correct = np.concatenate([[0.0], np.cumsum(gained)])  # with the k lowest scores false, beside all true
    best = np.flatnonzero(correct == correct.max())
    inner = best[(best > 0) & (best < len(values))]
    if len(inner):
        low, high = values[inner - 1], values[inner]
        # Halves, because the difference of two huge scores is no longer a number.
        widest = int(np.argmax(high / 2 - low / 2))
        false, true = float(low[widest]), float(high[widest])
        middle = false / 2 + true / 2
        return middle if false < middle <= true else true  # halfway where a number lies there
    lowest, beyond = float(values[0]), float(np.nextafter(values[-1], np.inf))
    near = lowest if near is None else near
    cuts = [min(near, lowest)] if best[0] == 0 else []
    cuts += [max(near, beyond)] if best[-1] == len(values) else []
    return min(cuts, key=lambda cut: 0.0 if cut == near else abs(cut - near))


@dataclass(frozen=True, eq=False)
class ClassificationResult:
    """Labelled test triples, their scores and thresholds; ``interval`` is that of the accuracy."""

    triples: TripleArray
    scores: Values
    thresholds: RelationThresholds
    relations: Vocabulary
    interval: Interval
    made_up: tuple[str, ...] = ()

    @property
    def labels(self) -> Mask:
        """Per triple, whether it is true."""
        return _labels(self.triples)

    @property
    def predicted(self) -> Mask:
        """Per triple, whether it counts as true."""
        return self.thresholds.accepts(self.triples.relations, self.scores)

    def metrics(self) -> dict[str, float]:
        """Accuracy; precision, recall and F1 of "true"; area under the ROC curve; NaN where there is nothing to count.

        The area is that of the scores of all relations together, which the thresholds do not enter.
        """
        labels, predicted = self.labels, self.predicted
        right = int((labels & predicted).sum())
        return {
            "accuracy": float((labels == predicted).mean()),
            "precision": _share(right, int(predicted.sum())),
            "recall": _share(right, int(labels.sum())),
            "f1": _share(2 * right, int(predicted.sum()) + int(labels.sum())),
            "auc": roc_auc(self.scores, labels),
        }

    def by_relation(self) -> list[dict[str, Any]]:
        """A row for each relation that test asks about, in id order; infinite thresholds as words."""
        labels, right, rows = self.labels, self.labels == self.predicted, []
        for relation in np.unique(self.triples.relations).tolist():
            mine = self.triples.relations == relation
            threshold = self.thresholds.relations.get(relation, self.thresholds.overall)
            row = {"relation": self.relations[relation], "triples": int(mine.sum()), "true": int(labels[mine].sum())}
            row |= {"threshold": threshold if np.isfinite(threshold) else str(threshold)}
            rows.append(row | {"accuracy": float(right[mine].mean())})
        return rows


def _labels(triples: TripleArray) -> Mask:
    return np.ones(len(triples), dtype=bool) if triples.labels is None else triples.labels > 0


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def roc_auc(scores: npt.NDArray[Any], labels: Mask) -> float:
    """How often a true triple scores above a false one, over all pairs, ties at half; NaN where there is no pair."""
    values, place = np.unique(scores, return_inverse=True)
    true = np.bincount(place[labels], minlength=len(values))
    false = np.bincount(place[~labels], minlength=len(values))
    below = np.cumsum(false) - false
    # In whole numbers, so that no pair is lost to rounding.
    return _share(int((true * (2 * below + false)).sum()), 2 * int(true.sum()) * int(false.sum()))


def classify(
    dataset: InductiveDataset,
    scorer: TripleScorer,
    generator: np.random.Generator,
    thresholds: RelationThresholds | None = None,
) -> ClassificationResult:
    """Find thresholds on valid (unless they are given), then classify the test triples.

    Where a part has no labels, false triples are made up with the generator, those of test first: they are the same
    whatever the thresholds. The interval of the accuracy resamples test triples; the thresholds stay.
    """
    made_up = ["test"] if dataset.test.labels is None else []
    test = labelled(dataset, dataset.test, generator)
    if len(test) == 0:
        raise DatasetError(f"there is no triple to classify in data set {shown(dataset.name)}; it needs a test part")
    if thresholds is None:
        made_up = ["valid"] * (dataset.valid.labels is None) + made_up
        valid = labelled(dataset, dataset.valid, generator)
        scores = checked_scores(dataset, scorer, valid)
        thresholds = fit_thresholds(valid.relations, scores, _labels(valid))
    scores = checked_scores(dataset, scorer, test)
    right = thresholds.accepts(test.relations, scores) == _labels(test)
    interval = bootstrap_mean(right, generator)
    return ClassificationResult(test, scores, thresholds, dataset.relations, interval, tuple(made_up))


def reclassified(
    result: ClassificationResult, scores: Values, thresholds: RelationThresholds, generator: np.random.Generator
) -> ClassificationResult:
    """The same triples by other scores and thresholds, with the interval resampled as before."""
    changed = replace(result, scores=scores, thresholds=thresholds)
    return replace(changed, interval=bootstrap_mean(changed.predicted == changed.labels, generator))


def thresholds_of(triples: TripleArray, scores: Values) -> RelationThresholds:
    """The thresholds of labelled triples with these scores."""
    return fit_thresholds(triples.relations, scores, _labels(triples), PRIOR)


def cross_fitted(triples: TripleArray, scores: Values, generator: np.random.Generator) -> dict[str, float]:
    """Area under the ROC curve, and the accuracy of labelled triples by thresholds from the other folds of them."""
    labels = _labels(triples)
    fold, predicted = generator.permutation(len(triples)) % FOLDS, np.zeros(len(triples), dtype=bool)
    for number in range(FOLDS):
        asked, others = fold == number, fold != number
        if asked.any() and others.any():
            found = fit_thresholds(triples.relations[others], scores[others], labels[others], PRIOR)
            predicted[asked] = found.accepts(triples.relations[asked], scores[asked])
    return {"auc": roc_auc(scores, labels), "accuracy": float((predicted == labels).mean())}


def checked_scores(dataset: InductiveDataset, scorer: TripleScorer, triples: TripleArray) -> Values:
    """The scores, checked; the scorer gets copies, because not every scorer can take read-only columns."""
    columns = (column.copy() for column in (triples.heads, triples.relations, triples.tails))
    scores = scorer.triple_scores(*columns).astype(np.float64)
    check_scores(dataset, triples, scores)
    return scores


def check_scores(dataset: InductiveDataset, triples: TripleArray, scores: Values) -> None:
    """Refuse scores that no threshold can lie between."""
    wrong = np.flatnonzero(np.isnan(scores) | (scores == np.inf))
    if len(wrong):
        value, names = scores[wrong[0]], _written(dataset, triples.rows[wrong[0]].tolist())
        raise OptionError(f"the scorer gave {value} to {names}; no threshold fits such a score, mend the model")


def _written(dataset: InductiveDataset, triple: list[int]) -> str:
    head, relation, tail = triple
    names = dataset.entities[head], dataset.relations[relation], dataset.entities[tail]
    return f"({', '.join(shown(name) for name in names)})"


def labelled(dataset: InductiveDataset, triples: TripleArray, generator: np.random.Generator) -> TripleArray:
    """The triples as they are if they have labels; else labelled true, and followed by as many made-up false ones."""
    if triples.labels is not None:
        return triples
    both = concatenate([triples, corrupted(dataset, triples, generator)])
    labels = np.repeat(np.array([1, 0], dtype=np.int8), len(triples))
    return TripleArray(both.heads, both.relations, both.tails, labels)


def corrupted(dataset: InductiveDataset, triples: TripleArray, generator: np.random.Generator) -> TripleArray:
    """One triple for each of these with one end replaced, never a triple that the data set states as true.

    Where exactly one end is new, it stays and the other is replaced, so that the question is about the newcomer;
    otherwise a coin decides. A seen entity is replaced by a seen one and a new one by a new one, or newness alone would
    tell what is made up. It is drawn from those that stand on this side of the relation in observed or auxiliary facts;
    where none of them makes an unstated triple, from all of its kind; then from all entities; at last, where a coin
    decided, the other end is replaced in the same way.
    """
    replacements = _Replacements(dataset, triples)
    new_head, new_tail = ~dataset.is_seen[triples.heads], ~dataset.is_seen[triples.tails]
    replaces_head = np.where(new_head == new_tail, generator.random(len(triples)) < 0.5, new_tail)
    either = (new_head == new_tail).tolist()
    rows = [
        replacements.replaced(row, at_head, is_free, generator)
        for row, at_head, is_free in zip(triples.rows.tolist(), replaces_head.tolist(), either, strict=True)
    ]
    return TripleArray.of(rows)


class _Replacements:
    """What an end of a triple may be replaced by."""

    def __init__(self, dataset: InductiveDataset, triples: TripleArray) -> None:
        stated = concatenate([dataset.known().triples, triples.positives])
        everyone = np.arange(len(dataset.entities), dtype=np.int32)
        self.dataset, self.facts = dataset, dataset.known_facts().triples
        self.true = Graph.build(dataset.entities, dataset.relations, stated).adjacency
        self.kinds = everyone[~dataset.is_seen], everyone[dataset.is_seen], everyone
        self._pools: dict[tuple[int, bool], Ids] = {}

    def replaced(
        self, triple: list[int], at_head: bool, is_free: bool, generator: np.random.Generator
    ) -> tuple[int, int, int]:
        """The triple with one end replaced; the other end is tried only if ``is_free``."""
        head, relation, tail = triple
        for side_is_head in (at_head, not at_head) if is_free else (at_head,):
            if side_is_head:
                new = self._drawn(tail, relation + len(self.dataset.relations), head, generator)
            else:
                new = self._drawn(head, relation, tail, generator)
            if new is not None:
                return (new, relation, tail) if side_is_head else (head, relation, new)
        names = _written(self.dataset, triple)
        raise DatasetError(f"no false triple can be made of {names}: every replacement of an end is stated as true")

    def _drawn(self, kept: int, asked: int, replaced: int, generator: np.random.Generator) -> int | None:
        """An entity that makes no true triple with ``kept`` along ``asked``, from the narrowest pool that has one."""
        relations, tails = self.true.of(kept)
        true = tails[slice(*np.searchsorted(relations, [asked, asked + 1]))]
        is_seen = bool(self.dataset.is_seen[replaced])
        for pool in (self._in_relation(asked, is_seen), self.kinds[is_seen], self.kinds[2]):
            left = np.setdiff1d(pool, true, assume_unique=True)
            if len(left):
                return int(left[generator.integers(len(left))])
        return None

    def _in_relation(self, asked: int, is_seen: bool) -> Ids:
        """The entities of one kind on the asked side of a relation, sorted."""
        if (asked, is_seen) not in self._pools:
            ends = self.facts.tails if asked < len(self.dataset.relations) else self.facts.heads
            found = np.unique(ends[self.facts.relations == asked % len(self.dataset.relations)])
            self._pools[asked, is_seen] = found[self.dataset.is_seen[found] == is_seen]
        return self._pools[asked, is_seen]
