"""Calibrated probabilities: the rising curve against every other, weights against a grid, order, and the file."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint, make_dataset
from newcomer.errors import DatasetError
from newcomer.evaluation import calibration
from newcomer.evaluation.calibration import (
    AnswerRecorder,
    Curve,
    RelationCurve,
    ask,
    believed,
    best,
    calibration_error,
    evidence,
    fit_curve,
    isotonic,
    reliability,
    triple_evidence,
    uncalibrated,
)
from newcomer.evaluation.fact_probability import Calibration
from newcomer.evaluation.metrics import wilson
from newcomer.graph import Vocabulary

NOTHING = np.empty((0, 2))
DATASET = make_dataset(
    train=[("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d"), ("d", "s", "a")],
    aux=[("n", "r", "a"), ("n", "s", "d")],
    valid=[],
    test=[("n", "r", "b"), ("n", "r", "c")],
)


class Table:
    """A scorer whose rows are made of ids, and which counts how often it is asked."""

    def __init__(self, size: int) -> None:
        self.rows = np.random.default_rng(1).normal(size=(size, 4 * size, size)).astype(np.float32)
        self.asked = 0

    def scores(self, entities: Any, relations: Any) -> npt.NDArray[Any]:
        self.asked += len(entities)
        return self.rows[entities, relations]


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=9))
def test_an_isotonic_curve_is_the_best_of_all_that_rise(drawn):
    values, right = np.array([x for x, _ in drawn], dtype=float), np.array([is_right for _, is_right in drawn])
    # One more right answer at the lower end, one more wrong one at the upper.
    places, outcome = np.concatenate([values, [values.min(), values.max()]]), np.array([*right, True, False])
    distinct, place = np.unique(places, return_inverse=True)
    curves = []
    for cuts in product((False, True), repeat=len(distinct) - 1):
        block = np.cumsum([False, *cuts])[place]
        means, middles = (np.bincount(block, weights=one) / np.bincount(block) for one in (outcome, places))
        if (np.diff(means) > 1e-12).all():
            curves.append((float(((outcome - means[block]) ** 2).sum()), middles.tolist(), means.tolist()))
    _, middles, means = min(curves)
    found = isotonic(values, right)
    assert found[0] == pytest.approx(middles) and found[1] == pytest.approx(means)


def test_an_isotonic_curve_by_hand():
    # With one right at the lower end and one wrong at the upper: 1/2 and 0/1 pool to 1/3, 1/1 and 1/2 to 2/3.
    values, probabilities = isotonic(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, False, True, True]))
    assert probabilities == pytest.approx([1 / 3, 2 / 3])
    assert values == pytest.approx([(2 * 1 + 2) / 3, (3 + 2 * 4) / 3])
    only, half = isotonic(np.array([5.0, 5.0]), np.array([True, True]))
    assert only == pytest.approx([5.0]) and half == pytest.approx([3 / 4])


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=40))
def test_isotonic_probabilities_rise_and_are_never_certain(drawn):
    values, probabilities = isotonic(
        np.array([x for x, _ in drawn], dtype=float), np.array([right for _, right in drawn])
    )
    assert all(low < high for low, high in pairwise(values)) and all(
        low < high for low, high in pairwise(probabilities)
    )
    assert probabilities.min() > 0 and probabilities.max() < 1


def test_evidence_is_the_odds_of_the_share_and_the_rank_among_those_not_left_out():
    scores = np.log(np.array([1.0, 5.0, 2.0, 2.0, 90.0]))
    left_out = np.array([False, False, False, False, True])
    found = evidence(scores, left_out, np.array([1, 2, 3, 0]))
    assert found[:, 0] == pytest.approx(np.log([5 / 5, 2 / 8, 2 / 8, 1 / 9]))
    assert found[:, 1] == pytest.approx(np.log([1, 2.5, 2.5, 4]))
    assert evidence(scores, np.ones(5, dtype=bool), np.empty(0, dtype=np.intp)).shape == (0, 2)
    assert np.isfinite(evidence(np.array([800.0, -800.0]), np.zeros(2, dtype=bool), np.array([0, 1]))).all()


def test_only_the_best_share_and_whoever_is_below_is_compared_with_them():
    scores = np.log(np.concatenate([[30.0], np.ones(19), [0.5, 0.5], np.full(5000, 0.1)]))
    found = evidence(scores, np.zeros(len(scores), dtype=bool), np.array([0, 1, 20, 25]))
    assert found[:, 0] == pytest.approx(np.log([30 / 19, 1 / 48, 0.5 / 49, 0.1 / 49]))


def test_plain_probabilities():
    scores = np.array([0.0, np.log(3), 0.0])
    assert uncalibrated(scores, np.array([1]), shares=True) == pytest.approx([3 / 5])
    assert uncalibrated(scores, np.array([1, 0]), shares=False) == pytest.approx([3 / 4, 1 / 2])
    assert uncalibrated(np.array([-1e5, 1e5]), np.array([0, 1]), shares=False) == pytest.approx([0, 1])


def sampled(size: int, seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Evidence, and what is right with the odds that it names, and half of the rank's."""
    generator = np.random.default_rng(seed)
    found = np.column_stack([generator.normal(-1, 2, size), np.log(generator.integers(1, 11, size))])
    odds = 0.8 * found[:, 0] - 0.5 * found[:, 1] + 0.3
    return found, generator.random(size) < 1 / (1 + np.exp(-odds))


def likelihood(curve: tuple[float, float, float], found: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    odds = curve[0] * found[:, 0] - curve[1] * found[:, 1] + curve[2]
    return float((targets * odds - np.logaddexp(0, odds)).sum())


def test_few_answers_get_the_logistic_curve_that_is_most_likely():
    found, right = sampled(90)
    curve = fit_curve(found, right, np.zeros(90, np.int32), np.arange(90))
    assert len(curve.knots) == 0 and curve.share > 0 and curve.rank > 0
    good, bad = right.sum(), (~right).sum()
    targets = np.where(right, (good + 1) / (good + 2), 1 / (bad + 2))  # as Platt smooths them
    own = (curve.share, curve.rank, curve.shift)
    top = likelihood(own, found, targets)
    for step in product((-0.05, 0, 0.05), repeat=3):
        assert likelihood(tuple(np.add(own, step)), found, targets) <= top + 1e-9


def test_many_answers_get_a_rising_curve_near_to_the_probability():
    found, right = sampled(20_000)
    curve = fit_curve(found, right, np.zeros(20_000, np.int32), np.arange(20_000))
    assert len(curve.knots) > 5 and (np.diff(curve.knots, axis=0) > 0).all()
    fresh, was_right = sampled(20_000, seed=1)
    probabilities = curve.probabilities(fresh, 0)
    wanted = 1 / (1 + np.exp(-(0.8 * fresh[:, 0] - 0.5 * fresh[:, 1] + 0.3)))
    assert np.abs(probabilities - wanted).mean() < 0.02
    assert calibration_error(probabilities, was_right) < 0.02 < calibration_error(probabilities / 2, was_right)


def test_weights_that_would_turn_the_order_are_zero():
    found, right = sampled(80)
    against = fit_curve(-found, right, np.zeros(80, np.int32), np.arange(80))
    assert against.share == 0 and against.rank == 0
    assert against.probabilities(found, 5) == pytest.approx(np.full(80, right.mean()), abs=0.02)


@given(st.lists(st.integers(-30, 30), min_size=2, max_size=30), st.integers(0, 3), st.booleans())
def test_a_higher_score_never_has_a_lower_probability(scores, relation, many):
    found, right = sampled(600 if many else 60)
    curve = fit_curve(found, right, np.arange(len(right), dtype=np.int32) % 3, np.arange(len(right)))
    row = np.array(scores, dtype=np.float32) / 4
    order = best(row, np.zeros(len(row), dtype=bool), len(row))
    probabilities = curve.probabilities(evidence(row, np.zeros(len(row), dtype=bool), order), relation)
    assert (np.diff(probabilities) <= 1e-12).all()
    equal = row[order][:-1] == row[order][1:]
    assert np.array_equal(probabilities[:-1][equal], probabilities[1:][equal])


def test_a_relation_departs_from_the_curve_of_all_as_far_as_its_questions_bear_out():
    found, right = sampled(3000)
    relations = np.zeros(3000, np.int32)
    relations[:40], relations[40:1040] = 1, 2
    right[:1040] = True
    curve = fit_curve(found, right, relations, np.arange(3000) // 2)
    few, many = curve.relations[1], curve.relations[2]
    assert (few.questions, many.questions) == (20, 500)
    assert 0 < few.shift < many.shift
    at = np.zeros((1, 2))
    assert curve.probabilities(at, 9)[0] == pytest.approx(
        1 / (1 + np.exp(-curve.odds(at)[0]))
    )  # never asked: that of all
    assert curve.probabilities(at, 9)[0] < curve.probabilities(at, 1)[0] < curve.probabilities(at, 2)[0]
    mixed = curve.probabilities(np.zeros((3, 2)), np.array([9, 1, 2], np.int32))
    assert mixed == pytest.approx([curve.probabilities(at, relation)[0] for relation in (9, 1, 2)])


def test_the_same_answers_give_the_same_curve():
    found, right = sampled(500)
    one, other = (fit_curve(found, right, np.zeros(500, np.int32), np.arange(500)) for _ in range(2))
    assert one.knots.tobytes() == other.knots.tobytes() and one.relations == other.relations


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.integers(1, 12))
def test_the_best_are_those_of_a_stable_sort(scores, k):
    row, left_out = np.array(scores), np.array(scores) == 3
    wanted = [place for place in sorted(range(len(row)), key=lambda one: -row[one]) if not left_out[place]][:k]
    assert best(row, left_out, k).tolist() == wanted


def test_what_is_heard_are_the_best_answers_that_are_not_known():
    size, scorer = len(DATASET.entities), Table(len(DATASET.entities))
    heard = AnswerRecorder(scorer, DATASET, DATASET.known(), shares=True, top=3)
    n, r, s = DATASET.entities.id("n"), DATASET.relations.id("r"), DATASET.relations.id("s")
    asked = np.array([n, n, n], np.int32), np.array([s, r, r], np.int32)
    assert np.array_equal(heard.scores(*asked), scorer.rows[asked])
    heard.scores(asked[0][:1], asked[1][:1])
    found = heard.answers()
    assert found.relation.tolist() == [r] * 3 + [s] * 3 and set(found.entity.tolist()) == {n}
    assert found.question.tolist() == [0, 0, 0, 1, 1, 1] and found.place.tolist() == [0, 1, 2, 0, 1, 2]
    row, known = scorer.rows[n, r], np.zeros(size, dtype=bool)
    known[DATASET.entities.id("a")] = True
    order = best(row, known, 3)
    assert DATASET.entities.id("a") not in order
    assert np.array_equal(found.evidence[:3], evidence(row, known, order))
    assert np.array_equal(found.plain[:3], uncalibrated(row, order, shares=True))
    true = {DATASET.entities.id(name) for name in "bc"}
    assert found.right[:3].tolist() == [place in true for place in order.tolist()]
    assert len(found.where(found.place == 0)) == 2


def test_questions_are_asked_relation_by_relation_within_memory(monkeypatch):
    size, scorer = len(DATASET.entities), Table(len(DATASET.entities))
    monkeypatch.setattr(calibration, "MEMORY_LIMIT", 2 * size * calibration.SCORE_BYTES)
    entities, relations = np.array([2, 0, 1, 0, 2], np.int32), np.array([1, 0, 1, 1, 0], np.int32)
    parts = list(ask(scorer, entities, relations, size))
    assert [which.tolist() for which, _ in parts] == [[1, 4], [3, 2], [0]]
    assert all(np.array_equal(rows, scorer.rows[entities[which], relations[which]]) for which, rows in parts)


def test_a_triple_has_the_evidence_of_its_tail_beside_unknown_answers():
    scorer = Table(len(DATASET.entities))
    triples = DATASET.test
    found, scores = triple_evidence(DATASET, scorer, triples)
    assert scores.tolist() == [scorer.rows[head, relation][tail] for head, relation, tail in triples.rows.tolist()]
    for place, (head, relation, tail) in enumerate(triples.rows.tolist()):
        left_out = np.zeros(len(DATASET.entities), dtype=bool)
        left_out[DATASET.entities.id("a")] = True  # a known answer to (n, r, ?)
        assert found[place] == pytest.approx(evidence(scorer.rows[head, relation], left_out, np.array([tail]))[0])
    known = DATASET.auxiliary.triples.take(np.array([0]))
    assert np.isfinite(triple_evidence(DATASET, scorer, known)[0]).all()


def test_error_and_bins_by_hand():
    probabilities = np.array([0.05, 0.0, 0.31, 0.39, 1.0])
    right = np.array([False, True, True, False, True])
    bins = reliability(probabilities, right)
    assert [(one["low"], one["high"], one["answers"]) for one in bins] == [(0.0, 0.1, 2), (0.3, 0.4, 2), (0.9, 1.0, 1)]
    assert [one["probability"] for one in bins] == pytest.approx([0.025, 0.35, 1.0])
    assert [one["right"] for one in bins] == [0.5, 0.5, 1.0]
    assert [(one["right_low"], one["right_high"]) for one in bins] == [
        (one.low, one.high) for one in (wilson(1, 2), wilson(1, 2), wilson(1, 1))
    ]
    assert calibration_error(probabilities, right) == pytest.approx((2 * 0.475 + 2 * 0.15 + 0) / 5)
    assert np.isnan(calibration_error(probabilities[:0], right[:0]))
    found = believed(probabilities, right)
    assert (found["answers"], found["right"], found["probability"]) == (5, 0.6, pytest.approx(0.35))
    assert found["ece"] == calibration_error(probabilities, right) and found["bins"] == bins
    nothing = believed(probabilities[:0], right[:0])
    assert nothing["answers"] == 0 and nothing["bins"] == [] and np.isnan([nothing["right"], nothing["ece"]]).all()


def test_a_calibration_comes_back_from_json_with_relations_by_name():
    names, swapped = Vocabulary(["r", "s"]), Vocabulary(["s", "r"])
    answers = Curve(
        0.5,
        1.5,
        0.25,
        np.array([[0.0, -1.0], [1.0, 2.0]]),
        {1: RelationCurve(0.9, 0.1, 7), 2: RelationCurve(1.0, -0.5, 3)},
    )
    whole = Calibration(answers, Curve(1.0, 0.0, 0.0, NOTHING), {"2-5": (4, 3)})
    content = whole.to_dict(names)
    assert Calibration.from_dict(content, names).to_dict(names) == content
    found = Calibration.from_dict(content, swapped)
    assert found.answers.relations == {
        0: RelationCurve(0.9, 0.1, 7),
        3: RelationCurve(1.0, -0.5, 3),
    }  # s asked for tails, r for heads
    assert found.first_right == {"2-5": (4, 3)} and np.array_equal(found.answers.knots, answers.knots)
    alone = Calibration(answers, None).to_dict(names)
    assert Calibration.from_dict(alone, names).triples is None


@pytest.mark.parametrize(
    "change", [{"answers": 3}, {"triples": []}, {"first_right": {"1": 2}}, {"answers": {"knots": [[1]]}}, {}]
)
def test_a_calibration_that_is_none_is_refused(change):
    content = {**Calibration(Curve(1.0, 1.0, 0.0, NOTHING), None).to_dict(Vocabulary(["r"])), **change}
    if not change:
        content["answers"]["relations"] = [{"relation": "q", "asked": "tail", "slope": 1, "shift": 0, "questions": 1}]
    error = complaint(Calibration.from_dict, content, Vocabulary(["r"]))
    assert isinstance(error, DatasetError) and "train the model again" in str(error)


def test_a_weight_that_is_held_takes_no_other_with_it_however_many_answers_there_are():
    rng, count = np.random.default_rng(0), 20000
    found = np.column_stack([rng.normal(-1, 2, count), np.log(rng.integers(1, 20, count))])
    right = rng.random(count) < 1 / (1 + np.exp(-found[:, 0] - found[:, 1]))  # worse ranks are right more often
    curve = fit_curve(found, right, np.zeros(count, dtype=np.int32), np.arange(count))
    assert curve.rank == pytest.approx(0, abs=1e-6) and curve.share > 0.5
