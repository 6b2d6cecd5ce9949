"""Metrics by hand, by their definitions and by enumeration; bootstrap intervals by what they must cover."""

from itertools import permutations
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.evaluation import metrics
from newcomer.evaluation.metrics import MEASURED, METRICS, bootstrap, expected_summary, summary, wilson

RANKS = np.array([1.0, 2.0, 4.0, 11.0])
CANDIDATES = np.array([11, 5, 9, 15])


def test_a_worked_example():
    found = summary(RANKS, CANDIDATES)
    assert found == pytest.approx(
        {
            "mr": 4.5,
            "mrr": (1 + 1 / 2 + 1 / 4 + 1 / 11) / 4,
            "hits@1": 0.25,
            "hits@3": 0.5,
            "hits@10": 0.75,
            "amri": 1 - 14 / 18,  # 14 places lost; in random order 5 + 2 + 4 + 7
        }
    )


def test_a_shared_place_is_no_hit_when_its_mean_is_below():
    assert summary(np.array([1.5, 3.5, 10.5]), np.array([20, 20, 20]))["hits@1"] == 0.0
    assert summary(np.array([1.5, 3.5, 10.5]), np.array([20, 20, 20]))["hits@3"] == pytest.approx(1 / 3)
    assert summary(np.array([1.5, 3.5, 10.5]), np.array([20, 20, 20]))["hits@10"] == pytest.approx(2 / 3)


def test_the_best_middle_and_worst_ranks():
    candidates = np.array([7, 1, 12])
    best, middle, worst = np.ones(3), (candidates + 1) / 2, candidates.astype(float)
    assert summary(best, candidates) == dict.fromkeys(METRICS, 1.0)
    assert summary(middle, candidates)["amri"] == pytest.approx(0.0)
    assert summary(worst, candidates)["amri"] == pytest.approx(-1.0)


def test_of_nothing_every_metric_is_nan():
    nothing = np.empty(0)
    assert all(isnan(value) for value in summary(nothing, nothing.astype(np.int64)).values())
    assert all(isnan(value) for value in expected_summary(nothing.astype(np.int64)).values())


def test_the_index_of_answers_without_rivals_is_nan():
    assert isnan(summary(np.ones(2), np.ones(2, dtype=np.int64))["amri"])


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_reduces_the_last_axis_only(name):
    ranks, candidates = np.stack([RANKS, RANKS[::-1], RANKS + 1]), np.stack([CANDIDATES] * 3)
    each = [float(METRICS[name](r, c)) for r, c in zip(ranks, candidates, strict=True)]
    assert METRICS[name](ranks, candidates).tolist() == pytest.approx(each)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_expected_metrics_average_over_all_orders_of_the_tied(tied):
    found = expected_summary(np.array(tied))
    assert set(found) == set(MEASURED)
    for name, value in found.items():
        each = [
            np.mean(
                [summary(np.array([1.0 + order.index(0)]), np.array([9]))[name] for order in permutations(range(m))]
            )
            for m in tied
        ]
        assert value == pytest.approx(float(np.mean(each)))


def test_an_interval_holds_the_metric_and_narrows_with_more_queries(monkeypatch):
    monkeypatch.setattr(metrics, "LEVEL", 0.9)
    generator = np.random.default_rng(3)
    widths = []
    for size in (100, 10_000):
        ranks, candidates = generator.integers(1, 101, size).astype(float), np.full(size, 100)
        found = bootstrap("mr", ranks, candidates, generator)
        assert found.low < summary(ranks, candidates)["mr"] < found.high
        assert found.level == 0.9
        widths.append(found.high - found.low)
    # The width of a mean's interval is 2 * 1.645 standard errors, and these ranks spread by 28.9.
    assert widths == pytest.approx([2 * 1.645 * 2.89, 2 * 1.645 * 0.289], rel=0.2)


def test_an_interval_of_equal_ranks_is_a_point_and_of_nothing_is_nan():
    generator = np.random.default_rng(0)
    found = bootstrap("mrr", np.full(5, 4.0), np.full(5, 9), generator)
    assert (found.low, found.high) == (0.25, 0.25)
    assert isnan(bootstrap("mrr", np.empty(0), np.empty(0, dtype=np.int64), generator).low)


def test_a_resample_keeps_each_rank_with_its_candidates():
    found = bootstrap("amri", (CANDIDATES + 1) / 2, CANDIDATES, np.random.default_rng(0))
    assert (found.low, found.high) == (0.0, 0.0)  # every answer in the middle of its own candidates


def test_an_interval_follows_its_seed_alone(monkeypatch):
    def draw(seed: int) -> metrics.Interval:
        return bootstrap("mrr", RANKS, CANDIDATES, np.random.default_rng(seed))

    at_once = draw(1)
    assert at_once == draw(1)
    assert at_once != draw(2)
    monkeypatch.setattr(metrics, "DRAWS_AT_ONCE", 9)  # two resamples of four ranks at a time
    assert draw(1) == at_once


def test_intervals_of_shares_by_hand():
    few = wilson(2, 10)  # as textbooks have it
    assert (few.low, few.high, few.level) == (pytest.approx(0.0567, abs=1e-4), pytest.approx(0.5098, abs=1e-4), 0.95)
    assert wilson(0, 4).low == 0 and wilson(4, 4).high == 1 and isnan(wilson(0, 0).low) and isnan(wilson(0, 0).high)


@given(st.integers(1, 400).flatmap(lambda asked: st.tuples(st.integers(0, asked), st.just(asked))))
def test_the_ends_of_an_interval_are_the_shares_from_which_so_many_are_just_likely_enough(counts):
    right, asked = counts
    found, share = wilson(right, asked), right / asked
    assert 0 <= found.low <= share <= found.high <= 1
    for end in (found.low, found.high):
        if 0 < end < 1:  # so far from it in standard errors, as they are if the end is the truth
            assert abs(share - end) == pytest.approx(1.959964 * (end * (1 - end) / asked) ** 0.5, rel=1e-4, abs=1e-9)
    if right < asked:
        assert wilson(right + 1, asked).low >= found.low
