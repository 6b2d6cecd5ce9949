"""Triple classification against every cut and every pair, and made-up false triples against what is stated as true."""

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from math import inf, isnan, nan, nextafter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import complaint, make_dataset, needs_data
from newcomer.data import load_dataset
from newcomer.evaluation.classification import (
    RelationThresholds,
    best_threshold,
    classify,
    corrupted,
    cross_fitted,
    fit_thresholds,
    labelled,
    reclassified,
    roc_auc,
)
from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray, Vocabulary

Triple = tuple[int, int, int]
SCORES = st.sampled_from([-inf, -1.0, 0.0, 0.5, nextafter(0.5, 1), 1.0, 3.0])
LABELLED = st.lists(st.tuples(st.integers(0, 2), SCORES, st.booleans()), min_size=1, max_size=12)


@dataclass
class TableScorer:
    """Looks its scores up, shape (entities, relations, entities), and remembers what it was asked."""

    table: npt.NDArray[np.floating]
    asked: list[TripleArray] = field(default_factory=list)

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids, /) -> npt.NDArray[np.floating]:
        assert heads.dtype == relations.dtype == tails.dtype == np.int32
        self.asked.append(TripleArray(heads, relations, tails))
        return self.table[heads, relations, tails]


def columns(rows: list[tuple[int, float, bool]]) -> tuple[Ids, npt.NDArray[np.floating], npt.NDArray[np.bool_]]:
    relations, scores, labels = zip(*rows, strict=True)
    return np.array(relations, dtype=np.int32), np.array(scores), np.array(labels)


def right(scores: npt.NDArray[np.floating], labels: npt.NDArray[np.bool_], threshold: float) -> int:
    return int(((scores >= threshold) == labels).sum())


def every_cut(scores: npt.NDArray[np.floating]) -> list[float]:
    return [*scores.tolist(), nextafter(float(scores.max()), inf)]


@given(LABELLED)
def test_no_cut_is_better(rows):
    relations, scores, labels = columns(rows)
    found = fit_thresholds(relations, scores, labels)
    best = max(right(scores, labels, cut) for cut in every_cut(scores))
    assert right(scores, labels, found.overall) == best
    assert found.relations.keys() == set(relations.tolist())
    for relation, threshold in found.relations.items():
        mine = relations == relation
        best = max(right(scores[mine], labels[mine], cut) for cut in every_cut(scores[mine]))
        assert right(scores[mine], labels[mine], threshold) == best


@given(LABELLED, st.integers(0, 99))
def test_thresholds_do_not_depend_on_the_order_of_triples(rows, seed):
    relations, scores, labels = columns(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    assert fit_thresholds(relations[order], scores[order], labels[order]) == fit_thresholds(relations, scores, labels)


@given(LABELLED)
def test_a_monotone_map_of_scores_leaves_the_accuracy(rows):
    relations, scores, labels = columns(rows)
    plain = fit_thresholds(relations, scores, labels).accepts(relations, scores)
    for change in (np.arctan, lambda x: np.where(x > 0, 100 * x, x) - 7, lambda x: x.astype(np.float64) * 1e-3):
        changed = change(scores)
        assume(len(np.unique(changed)) == len(np.unique(scores)))
        predicted = fit_thresholds(relations, changed, labels).accepts(relations, changed)
        assert (predicted == labels).sum() == (plain == labels).sum()


ROUND = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([-2.0, 0.0, 1.0, 1.5, 4.0, 5.0]), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(ROUND, ROUND, st.integers(-3, 3), st.integers(-8, 8))
def test_another_scale_of_scores_changes_no_verdict(valid, test, power, shift):
    relations, scores, labels = columns(valid)
    asked, others, _ = columns(test)
    factor = 2.0**power  # with such factors and round scores nothing is lost to rounding
    found = fit_thresholds(relations, scores, labels).accepts(asked, others)
    scaled = fit_thresholds(relations, factor * scores + shift, labels).accepts(asked, factor * others + shift)
    assert scaled.tolist() == found.tolist()


@pytest.mark.parametrize(
    ("true", "false", "near", "threshold"),
    [
        ([3.0, 2.0], [0.0, 1.0], None, 1.5),
        ([3.0, 0.0], [1.0], None, 2.0),  # all true and the cut below 3 are equally good: between scores wins
        ([2.0, 8.0, 9.0], [0.0, 3.0, 4.0], None, 6.0),  # below 2 (gap of 2) and below 8 (gap of 4)
        ([1.0, 5.0], [0.0, 4.0], None, 0.5),  # equal gaps: the lower
        ([2.0, 3.0], [], None, 2.0),
        ([2.0, 3.0], [], 1.0, 1.0),  # all true already by the overall threshold
        ([2.0, 3.0], [], 2.5, 2.0),  # as far down as needed
        ([], [2.0, 3.0], 9.0, 9.0),
        ([], [2.0, 3.0], 2.5, nextafter(3.0, inf)),
        ([1.0], [2.0], 0.0, 0.0),  # all true or all false: the nearer to the overall threshold
        ([1.0], [2.0], 5.0, 5.0),
        ([1.0], [2.0], 1.25, 1.0),
        ([1.0], [2.0], 1.75, nextafter(2.0, inf)),
        ([1.0], [2.0], None, 1.0),
        ([1.0], [1.0], None, 1.0),
        ([5.0], [-inf], None, 5.0),
        ([-inf], [], None, -inf),
        ([nextafter(1.0, 2)], [1.0], None, nextafter(1.0, 2)),  # no number between them
        ([1.5e308], [-1.5e308], None, 0.0),
    ],
)
def test_how_equally_good_cuts_are_told_apart(true, false, near, threshold):
    scores, labels = np.array(true + false), np.array([True] * len(true) + [False] * len(false))
    assert best_threshold(scores, labels, near) == threshold


def test_a_relation_without_labelled_triples_takes_the_overall_threshold():
    found = fit_thresholds(*columns([(0, 4.0, True), (0, 2.0, False), (2, 9.0, True), (2, 8.0, False)]))
    assert found.relations == {0: 3.0, 2: 8.5}
    assert found.overall == 3.0  # 3 of 4, as 8.5 would; the gap from 2 to 4 is wider
    asked, thresholds = np.array([1, 2, 0, 7], dtype=np.int32), np.array([3.0, 8.5, 3.0, 3.0])
    assert found.accepts(asked, thresholds).all() and not found.accepts(asked, np.nextafter(thresholds, 0)).any()
    assert found.by_name(Vocabulary(["a", "b", "c"])) == {"a": 3.0, "c": 8.5}


def test_a_relation_with_nothing_false_leans_on_the_overall_threshold():
    found = fit_thresholds(*columns([(0, 4.0, True), (0, 2.0, False), (1, 9.0, True), (2, 1.0, False), (3, 2.5, True)]))
    assert found.overall == 2.25
    assert found.relations == {0: 3.0, 1: 2.25, 2: 2.25, 3: 2.25}


def test_a_threshold_is_not_rounded_to_the_precision_of_the_scores():
    low, high = np.float32(1.0), np.nextafter(np.float32(1.0), np.float32(2.0))
    scores, relations = np.array([low, high]), np.zeros(2, dtype=np.int32)
    found = fit_thresholds(relations, scores, np.array([False, True]))
    assert float(low) < found.overall < float(high)
    assert found.accepts(relations, scores).tolist() == [False, True]


@given(LABELLED)
def test_the_area_counts_pairs(rows):
    _, scores, labels = columns(rows)
    pairs = [1.0 if t > f else 0.5 if t == f else 0.0 for t, f in product(scores[labels], scores[~labels])]
    found = roc_auc(scores, labels)
    assert isnan(found) if not pairs else found == pytest.approx(sum(pairs) / len(pairs), abs=1e-15)


@given(LABELLED)
def test_the_area_of_turned_scores_is_the_rest(rows):
    _, scores, labels = columns(rows)
    assume(labels.any() and not labels.all())
    assert roc_auc(scores, labels) + roc_auc(-scores, labels) == pytest.approx(1.0)
    assert roc_auc(np.exp(scores), labels) == roc_auc(scores, labels)


def stated(labelled_rows: list[tuple[Triple, int]]) -> TripleArray:
    rows = TripleArray.of([triple for triple, _ in labelled_rows])
    return TripleArray(rows.heads, rows.relations, rows.tails, np.array([y for _, y in labelled_rows], dtype=np.int8))


def labelled_world(test: list[tuple[Triple, int]]) -> InductiveDataset:
    """Relation 0 has labelled valid triples, relation 1 has none."""
    names = Vocabulary(["a", "b", "c", "new"]), Vocabulary(["r", "s"])
    observed = Graph.build(*names, TripleArray.of([(0, 0, 1), (1, 1, 2)]))
    auxiliary = Graph.build(*names, TripleArray.of([(3, 1, 0)]))
    valid = stated([((0, 0, 2), 1), ((1, 0, 0), 1), ((2, 0, 0), 0), ((2, 0, 1), 0)])
    return InductiveDataset("labelled", observed, auxiliary, valid, stated(test))


TEST = [((3, 0, 0), 1), ((3, 0, 1), 1), ((3, 0, 2), 0), ((3, 1, 1), 0), ((3, 1, 2), 1)]


def scores_of(**rows: float) -> TableScorer:
    """Scores by the digits of a triple: t302=1.5 is (3, 0, 2)."""
    table = np.zeros((4, 2, 4))
    for name, score in rows.items():
        table[tuple(int(digit) for digit in name[1:])] = score
    return TableScorer(table)


VALID_SCORES = {"t002": 6.0, "t100": 4.0, "t200": 2.0, "t201": 1.0}  # threshold 3


def test_other_scores_give_other_verdicts_and_another_interval():
    scorer = scores_of(**VALID_SCORES, t300=3.0, t301=2.0, t302=1.0, t311=5.0, t312=7.0)
    result = classify(labelled_world(TEST), scorer, np.random.default_rng(0))
    anew = reclassified(result, result.labels * 1.0, RelationThresholds(0.5), np.random.default_rng(0))
    assert anew.metrics()["accuracy"] == 1.0 and result.metrics()["accuracy"] < 1.0
    assert (anew.interval.low, anew.interval.high, anew.interval.level) == (1.0, 1.0, result.interval.level)
    assert result.interval.low < 1.0 and anew.triples is result.triples


def test_a_worked_example():
    scorer = scores_of(**VALID_SCORES, t300=3.0, t301=2.0, t302=1.0, t311=5.0, t312=7.0)
    result = classify(labelled_world(TEST), scorer, np.random.default_rng(0))
    assert result.thresholds == RelationThresholds(3.0, {0: 3.0})
    assert result.predicted.tolist() == [True, False, False, True, True]
    assert result.metrics() == pytest.approx(
        {"accuracy": 3 / 5, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "auc": 4 / 6}
    )
    assert [(row["relation"], row["triples"], row["true"], row["threshold"]) for row in result.by_relation()] == [
        ("r", 3, 2, 3.0),
        ("s", 2, 1, 3.0),
    ]
    assert [row["accuracy"] for row in result.by_relation()] == pytest.approx([2 / 3, 1 / 2])
    assert 0.0 <= result.interval.low < 3 / 5 < result.interval.high <= 1.0
    assert result.made_up == ()


def test_figures_of_nothing_are_nan():
    scorer = scores_of(**VALID_SCORES)
    result = classify(labelled_world([((3, 0, 2), 0)]), scorer, np.random.default_rng(0))
    found = result.metrics()
    assert found["accuracy"] == 1.0
    assert all(isnan(found[name]) for name in ("precision", "recall", "f1", "auc"))
    written = result.by_relation()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written == [{"relation": "r", "triples": 1, "true": 0, "threshold": 3.0, "accuracy": 1.0}]
    assert (result.interval.low, result.interval.high) == (1.0, 1.0)


@given(st.lists(st.floats(-5, 5), min_size=5, max_size=5), st.lists(st.booleans(), min_size=5, max_size=5))
def test_thresholds_never_look_at_test(scores, labels):
    names = ("t300", "t301", "t302", "t311", "t312")
    scorer = scores_of(**VALID_SCORES, **dict(zip(names, scores, strict=True)))
    test = [(triple, int(label)) for (triple, _), label in zip(TEST, labels, strict=True)]
    result = classify(labelled_world(test), scorer, np.random.default_rng(0))
    assert result.thresholds == RelationThresholds(3.0, {0: 3.0})


def test_given_thresholds_are_used_and_valid_is_left_alone():
    scorer = scores_of(t300=3.0, t312=7.0)
    given_ones = RelationThresholds(5.0, {0: 0.0})
    result = classify(labelled_world(TEST), scorer, np.random.default_rng(0), given_ones)
    assert result.predicted.tolist() == [True, True, True, False, True]
    assert len(scorer.asked) == 1


def test_the_interval_follows_its_seed():
    def interval(seed: int) -> tuple[float, float]:
        generator = np.random.default_rng(seed)
        scorer = scores_of(**VALID_SCORES, t300=3.0)
        dataset = labelled_world([(triple, label) for triple, label in TEST for _ in range(41)])
        found = classify(dataset, scorer, generator).interval
        return found.low, found.high

    assert interval(1) == interval(1) != interval(2)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (np.array([0.0, nan, 0.0, 0.0]), "gave nan to ('b', 'r', 'a')"),
        (np.array([0.0, 0.0, inf, 0.0]), "gave inf to ('c', 'r', 'a')"),
    ],
)
def test_scores_that_no_threshold_fits_are_refused(scores, words):
    class Odd:
        def triple_scores(self, heads: Ids, relations: Ids, tails: Ids, /) -> npt.NDArray[np.floating]:
            return scores

    assert words in str(complaint(classify, labelled_world(TEST), Odd(), np.random.default_rng(0)))


def test_a_missing_part_is_refused():
    scorer, generator = scores_of(), np.random.default_rng(0)
    whole = labelled_world(TEST)
    no_valid = InductiveDataset("x", whole.observed, whole.auxiliary, TripleArray.empty(), whole.test)
    assert "needs a valid part" in str(complaint(classify, no_valid, scorer, generator))
    no_test = InductiveDataset("x", whole.observed, whole.auxiliary, whole.valid, TripleArray.empty())
    assert "no triple to classify in data set 'x'" in str(complaint(classify, no_test, scorer, generator))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[InductiveDataset, dict[str, list[Triple]]]:
    entities, relations = draw(st.integers(2, 7)), draw(st.integers(1, 2))
    triple = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1), st.integers(0, entities - 1))
    parts = {role: draw(st.lists(triple, max_size=7)) for role in ("train", "aux", "valid")}
    parts["test"] = draw(st.lists(triple, min_size=1, max_size=6))
    names = Vocabulary(f"e{i}" for i in range(entities)), Vocabulary(f"r{i}" for i in range(relations))
    train, aux = (Graph.build(*names, TripleArray.of(parts[role])) for role in ("train", "aux"))
    valid, test = (TripleArray.of(parts[role]) for role in ("valid", "test"))
    return InductiveDataset("drawn", train, aux, valid, test), parts


def stand_ins(parts: dict[str, list[Triple]], size: int, triple: Triple, side: int) -> set[Triple]:
    """Every triple that may be made of one by replacing one end, by the definition."""
    true = {row for role in ("train", "aux", "valid", "test") for row in parts[role]}
    seen = {end for h, _, t in parts["train"] for end in (h, t)}
    in_relation = {row[side] for role in ("train", "aux") for row in parts[role] if row[1] == triple[1]}
    kind = {e for e in range(size) if (e in seen) == (triple[side] in seen)}
    for pool in (in_relation & kind, kind, set(range(size))):
        made = {tuple(e if place == side else end for place, end in enumerate(triple)) for e in pool} - true
        if made:
            return made
    return set()


@given(worlds(), st.integers(0, 9))
def test_made_up_triples_against_their_definition(world, seed):
    dataset, parts = world
    size, seen = len(dataset.entities), {end for h, _, t in parts["train"] for end in (h, t)}
    wanted = []
    for triple in parts["test"]:
        new_head, new_tail = triple[0] not in seen, triple[2] not in seen
        sides = (0, 2) if new_head == new_tail else (2,) if new_head else (0,)
        wanted.append(set().union(*(stand_ins(parts, size, triple, side) for side in sides)))
    if not all(wanted):
        assert "no false triple" in str(complaint(corrupted, dataset, dataset.test, np.random.default_rng(seed)))
        return
    found = corrupted(dataset, dataset.test, np.random.default_rng(seed))
    assert all(tuple(row) in allowed for row, allowed in zip(found.rows.tolist(), wanted, strict=True))
    again = corrupted(dataset, dataset.test, np.random.default_rng(seed))
    assert found.rows.tolist() == again.rows.tolist()


def test_every_stand_in_is_as_likely_as_another():
    train = [("a", "r", f"t{i}") for i in (1, 3, 4)] + [("b", "r", f"t{i}") for i in range(8)] + [("c", "s", "d")]
    dataset = make_dataset(train=train, aux=[("new", "r", "t6")], test=[("new", "r", "t0")])
    often = dataset.test.take(np.zeros(3000, dtype=np.int64))
    made = corrupted(dataset, often, np.random.default_rng(0))
    assert set(dataset.entities.names_of(made.heads)) == {"new"}
    counts = Counter(dataset.entities.names_of(made.tails))
    assert counts.keys() == {"t1", "t2", "t3", "t4", "t5", "t7"}  # not t0 and t6, which are true; only tails of r
    assert all(400 < count < 600 for count in counts.values())


def test_a_coin_decides_where_both_ends_are_seen():
    train = [(f"h{i}", "r", f"t{i}") for i in range(9)]
    dataset = make_dataset(train=train, test=[("h0", "r", "t1")])
    often = dataset.test.take(np.zeros(400, dtype=np.int64))
    made = corrupted(dataset, often, np.random.default_rng(0))
    kept_heads = int((made.heads == often.heads).sum())
    assert kept_heads + int((made.tails == often.tails).sum()) == 400
    assert 150 < kept_heads < 250


def test_labels_are_kept_or_made():
    dataset = make_dataset(train=[("a", "r", "b"), ("c", "r", "d")], aux=[("new", "r", "b")], test=[("new", "r", "d")])
    made = labelled(dataset, dataset.test, np.random.default_rng(0))
    assert made.labels is not None and made.labels.tolist() == [1, 0]
    assert dataset.entities.names_of(made.tails)[0] == "d"
    assert made.heads[0] == made.heads[1] and made.tails[0] != made.tails[1]
    given_ones = stated([((0, 0, 1), 0)])
    assert labelled(dataset, given_ones, np.random.default_rng(0)) is given_ones


def test_a_data_set_without_labels_is_classified():
    parts = {
        "train": [(f"h{i}", "r", f"t{j}") for i in range(4) for j in range(4) if i != j],
        "valid": [("h0", "r", "t0"), ("h1", "r", "t1")],
        "aux": [("new", "r", "t0")],
        "test": [("new", "r", "t1"), ("new", "r", "t2")],
    }
    dataset = make_dataset(**parts)
    table = np.zeros((9, 1, 9))
    true = dataset.known().triples
    table[true.heads, true.relations, true.tails] = 1.0
    result = classify(dataset, TableScorer(table), np.random.default_rng(0))
    assert result.made_up == ("valid", "test")
    assert result.metrics() == dict.fromkeys(("accuracy", "precision", "recall", "f1", "auc"), 1.0)
    assert result.labels.tolist() == [True, True, False, False]


@needs_data
def test_made_up_triples_of_a_published_split():
    dataset = load_dataset("fb15k-subject-10")
    made = corrupted(dataset, dataset.test, np.random.default_rng(0))
    assert not dataset.known().contains(made.heads, made.relations, made.tails).any()
    assert (made.heads == dataset.test.heads).all() and (made.relations == dataset.test.relations).all()
    assert dataset.is_seen[made.tails].all()


def test_few_triples_move_a_threshold_little_and_many_much():
    # Relation 0 has 400 triples with their cut at 0, relation 1 some with theirs at 5.
    rng = np.random.default_rng(0)

    def made(count: int, cut: float) -> tuple[np.ndarray, np.ndarray]:
        scores = rng.normal(scale=4.0, size=count) + cut
        return scores, scores > cut

    common = made(400, 0.0)
    found = {}
    for count in (5, 2000):
        own = made(count, 5.0)
        scores, labels = (np.concatenate(pair) for pair in zip(common, own, strict=True))
        relations = np.repeat(np.array([0, 1], dtype=np.int32), [400, count])
        thresholds = fit_thresholds(relations, scores, labels, prior=100.0)
        found[count] = thresholds.relations[1] - thresholds.overall, thresholds.relations[1]
        free = fit_thresholds(relations, scores, labels)
        assert (free.accepts(relations, scores) == labels)[relations == 1].all()
    assert abs(found[5][0]) < 0.5 and abs(found[2000][1] - 5.0) < 0.1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_a_firm_threshold_is_the_best_of_all_cuts_by_its_weights(rows):
    relations = np.array([row[0] for row in rows], dtype=np.int32)
    scores, labels = np.array([float(row[1]) for row in rows]), np.array([row[2] for row in rows])
    found = fit_thresholds(relations, scores, labels, prior=7.0)

    def worth(relation: int, cut: float) -> float:
        weights = (relations == relation) + 7.0 / len(rows)
        return float((weights * ((scores >= cut) == labels)).sum())

    for relation, threshold in found.relations.items():
        best = max(worth(relation, cut) for cut in (*np.arange(-3.5, 4.0), np.inf))
        assert worth(relation, threshold) == pytest.approx(best)


def test_an_accuracy_that_is_cross_fitted_learns_nothing_from_noise():
    rows = [(i % 5, 0, (i + 1 + i // 5 % 3) % 5) for i in range(400)]
    labels = np.random.default_rng(2).integers(2, size=400).astype(np.int8)
    triples = TripleArray(*TripleArray.of(rows).rows.T, labels)
    found = cross_fitted(triples, np.random.default_rng(1).normal(size=400), np.random.default_rng(0))
    assert 0.4 < found["accuracy"] < 0.6 and 0.4 < found["auc"] < 0.6


def test_a_cross_fitted_verdict_is_by_thresholds_of_the_others():
    scores = np.array([0.0, 6.0, 10.0, 11.0, 12.0])  # five triples, five folds: each is judged by the other four
    triples = TripleArray(
        *TripleArray.of([(0, 0, tail) for tail in range(5)]).rows.T, np.array([0, 0, 1, 1, 1], np.int8)
    )
    found = cross_fitted(triples, scores, np.random.default_rng(0))
    assert found == {"auc": 1.0, "accuracy": 0.8}  # without it the middle between 0 and 10 is below 6
