"""The schedule of a training: what stages cost, and what is made smaller until the rest fits."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint
from newcomer.config import Config, load_preset, with_overrides
from newcomer.config.settings import flat_settings
from newcomer.training.prices import BY_MESSAGES, Prices
from newcomer.training.schedule import (
    COPIES,
    GRACE,
    LADDER,
    MARGIN,
    MINING,
    OVERRUN,
    PROPAGATION,
    VECTORS,
    Limits,
    Schedule,
    scheduled,
)
from training_world import FOLDED, settings, world

DATASET = world()  # 72 facts of 33 entities, 6 valid triples
PRICES = Prices(
    mining=10.0,
    grounding=3.0,
    batch=2.0,
    dim=8,
    step=1.0,
    warm=0.5,
    question=0.1,
    propagated=0.2,
    messages={0: 100.0, 1000: 100.0, 700: 100.0, 500: 50.0, 300: 30.0, 200: 20.0},
    memory=900_000_000,
)
LARGE = with_overrides(
    load_preset("default"),
    ["model.propagation=yes", "training.batches=50", "training.epochs=30", "model.dim=200"],
)
SIZES = (
    *("model.dim", "model.propagation", "training.epochs", "training.validation_queries"),
    *("training.calibration_questions", "training.propagation_steps"),
)


def planned(config: Config = LARGE, prices: Prices = PRICES, **given: Any) -> Schedule:
    limits = Limits(given.pop("seconds", None), given.pop("memory", None))
    return scheduled(config, DATASET, prices, limits, **given)


def sizes_of(schedule: Schedule) -> dict[str, Any]:
    found = flat_settings(schedule.config.to_dict())
    return {name: found[name] for name in SIZES}


def is_no_less(more: Schedule, less: Schedule) -> bool:
    """Whether the one has the network and the other does not, or else all sizes are as large at least."""
    large, small = sizes_of(more), sizes_of(less)
    if large["model.propagation"] != small["model.propagation"]:
        return bool(large["model.propagation"])
    return all(int(large[name]) >= int(small[name]) for name in SIZES)


def costs(schedule: Schedule) -> dict[str, float]:
    return {stage.name: stage.seconds for stage in schedule.stages}


def test_each_stage_costs_its_steps_times_their_price():
    asked = settings(
        *(*FOLDED, "training.optimiser=adagrad", "training.final_share=0.5", "model.ensemble=yes"),
        *("model.propagation=yes", "training.propagation_steps=6", "training.calibration_questions=16"),
    )
    found = planned(asked)
    # 4 epochs of 3 batches; 6 steps; the final fit has half of the epochs and of the steps
    queries, question = 3, 0.1 + 0.2  # half of the valid triples are asked
    asked_at_most = 8 * 2  # relations either way, and newcomers who are asked about each
    assert costs(found) == pytest.approx(
        {
            MINING: 2 * 10.0,
            "inferring virtual neighbours": 3.0,
            VECTORS: 4 * 3 * 2.0,
            PROPAGATION: 6 * 1.0,
            "weights of the ensemble": (2 + 3) * queries * question,
            "probabilities": (queries + asked_at_most + 2 * queries) * question,
            "vectors of the whole graph": 2 * 3 * 2.0,
            "propagation in the whole graph": 3 * 1.0,
        }
    )
    assert found.seconds == pytest.approx(sum(costs(found).values())) and found.smaller == {}


def test_rules_that_are_there_cost_nothing_and_those_of_the_search_still_do():
    before, after = costs(planned(settings())), costs(planned(settings(), mined=True))
    assert after[MINING] == before[MINING] / 2 and "inferring virtual neighbours" not in after
    assert after[VECTORS] == before[VECTORS]


def test_a_tenth_of_the_facts_stands_in_for_valid_triples():
    weighed = [
        scheduled(settings("model.ensemble=yes", "model.propagation=no"), dataset, PRICES, Limits())
        for dataset in (DATASET, world(valid=[]))
    ]
    three, four = (costs(one)["weights of the ensemble"] for one in weighed)  # half of 6, and of 7.2
    assert four / three == pytest.approx(4 / 3)


def test_without_a_search_all_is_learned_once_and_from_the_beginning():
    found = costs(planned(settings(*FOLDED, "training.validation_rate=0", "model.propagation=no")))
    assert found == pytest.approx(
        {MINING: 10.0, "inferring virtual neighbours": 3.0, "vectors of the whole graph": 4 * 3 * 2.0}
    )


def test_without_a_final_fit_the_whole_graph_costs_nothing():
    found = costs(planned(with_overrides(LARGE, ["training.final_fit=no"])))
    assert VECTORS in found and not any("whole graph" in name for name in found)


def test_a_batch_of_shorter_vectors_costs_less_but_for_what_does_not_depend_on_them():
    long, short = (costs(planned(settings(f"model.dim={dim}")))[VECTORS] for dim in (8, 4))
    assert short == pytest.approx(0.6 * long)


def test_what_fits_is_as_it_was_asked_for():
    free = planned()
    for limits in (
        {},
        {"seconds": free.seconds / MARGIN + 1},
        {"memory": free.memory},
        {"seconds": 1e9, "memory": 1e15},
    ):
        found = planned(**limits)
        assert found.config == LARGE and found.smaller == {}
    assert planned(seconds=free.seconds).smaller  # estimates are no promises


def test_what_is_made_smaller_is_named_with_what_it_was():
    found = planned(seconds=1500)
    assert found.seconds <= MARGIN * 1500 and found.smaller
    before, now = flat_settings(LARGE.to_dict()), flat_settings(found.config.to_dict())
    assert found.smaller == {name: (before[name], now[name]) for name in now if now[name] != before[name]}
    assert set(found.smaller) <= set(SIZES)


@pytest.mark.parametrize("limits", [{"seconds": 0.001}, {"memory": 1}, {"seconds": 0.001, "memory": 1}], ids=str)
def test_where_nothing_fits_the_smallest_sizes_are_left(limits):
    found, last = planned(**limits), LADDER[-1]
    assert sizes_of(found) == {
        "model.dim": last.dim,
        "model.propagation": False,
        "training.epochs": last.epochs,
        "training.validation_queries": round(last.asked * (LARGE.training.validation_queries or 0)),
        "training.calibration_questions": round(last.asked * LARGE.training.calibration_questions),
        "training.propagation_steps": LARGE.training.propagation_steps,
    }


def test_nothing_becomes_larger_than_it_was_asked_for():
    small = settings(*FOLDED, "model.propagation=no", "training.epochs=1", "training.calibration_questions=1")
    found = planned(small, seconds=0.001)
    assert found.config.model.dim == 8 and found.config.training.epochs == 1
    assert found.config.training.calibration_questions == 1 and found.config.model.propagation is False


@pytest.mark.parametrize(("asked", "found"), [(0, 500), (700, 500), (200, 200), (None, None)])
def test_hubs_are_silent_before_there_are_fewer_steps(asked, found):
    config = with_overrides(LARGE, [f"model.propagation_hubs={'none' if asked is None else asked}"])
    dear = replace(PRICES, batch=0.001, question=0.0, propagated=0.0, step=1.0, mining=0.0, grounding=0.0)
    all_send = planned(config, dear)
    smaller = planned(config, dear, seconds=(0.8 * all_send.seconds) / MARGIN)
    assert smaller.config.model.propagation_hubs == found
    half = BY_MESSAGES * 50 / 100 + 1 - BY_MESSAGES  # messages that are left
    if asked == 0:
        assert smaller.config.training.propagation_steps == config.training.propagation_steps
        assert costs(smaller)[PROPAGATION] == pytest.approx(half * costs(all_send)[PROPAGATION])


def test_no_limit_on_queries_stays_none():
    found = planned(with_overrides(LARGE, ["training.validation_queries=none"]), seconds=0.001)
    assert found.config.training.validation_queries is None


def test_every_rung_has_less_than_the_one_before_and_without_the_network_the_ladder_begins_again():
    with_network, without = ([one for one in LADDER if bool(one.steps) is found] for found in (True, False))
    assert (*with_network, *without) == LADDER and without[0][:3] == with_network[0][:3]
    for rungs in (with_network, without):
        for one, later in pairwise(rungs):
            assert all(after <= before for before, after in zip(one[:4], later[:4], strict=True)) and later != one
    assert all(rung.dim % 2 == 0 for rung in LADDER)  # complex numbers
    found = ladder_of(PRICES)
    assert len(found) > 5 and found[-1].seconds < 0.1 * found[0].seconds


def ladder_of(prices: Prices) -> list[Schedule]:
    """All that comes out of any limit of time, the largest first."""
    found = [planned(prices=prices)]
    while (found[-1].smaller or len(found) == 1) and len(found) <= len(LADDER):
        smaller = planned(prices=prices, seconds=(found[-1].seconds - 1e-6) / MARGIN)
        if sizes_of(smaller) == sizes_of(found[-1]):
            break
        found.append(smaller)
    return found


PRICE = st.floats(0.0, 10.0)


@given(
    limits=st.lists(st.floats(0.01, 1e5), min_size=2, max_size=2).map(sorted),
    prices=st.tuples(PRICE, PRICE, PRICE, PRICE),
    spent=st.floats(0.0, 1000.0),
)
def test_more_time_never_gives_less(limits, prices, spent):
    batch, step, question, propagated = prices
    now = replace(PRICES, batch=batch, step=step, question=question, propagated=propagated)
    less, more = (planned(prices=now, seconds=seconds, spent=spent) for seconds in limits)
    assert is_no_less(more, less)


@given(limits=st.lists(st.floats(1e6, 1e10), min_size=2, max_size=2).map(sorted))
def test_more_memory_never_gives_less(limits):
    large = with_overrides(LARGE, ["model.dim=100000"])
    less, more = (planned(large, memory=memory) for memory in limits)
    assert is_no_less(more, less)


def test_time_that_has_gone_is_not_there_any_more():
    seconds = planned().seconds / MARGIN + 1
    assert planned(seconds=seconds).smaller == {} and planned(seconds=seconds, spent=2.0).smaller


def test_memory_is_that_of_vectors_and_of_the_propagation_steps():
    alone, both = settings("model.propagation=no"), settings("model.ensemble=yes", "model.propagation=yes")
    twice = planned(with_overrides(alone, ["model.dim=16"])).memory
    assert twice - planned(alone).memory == 4 * COPIES * 8 * 33
    assert planned(both).memory == PRICES.memory + 4 * COPIES * 8 * 33 > planned(alone).memory
    tight = planned(both, memory=PRICES.memory)
    assert tight.config.model.propagation is False and tight.memory <= PRICES.memory


def test_a_stage_is_cut_short_only_where_time_is_limited():
    assert planned().most(VECTORS) == planned(memory=1e12).most(VECTORS) == math.inf
    found = planned(seconds=1e9)
    assert found.most(VECTORS) == OVERRUN * costs(found)[VECTORS] + GRACE
    assert found.most("what is not planned") == GRACE


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "10m"])
def test_a_limit_is_a_number_above_zero(value):
    assert f"the time limit is {value!r}" in str(complaint(Limits, value)).replace('"', "'")
    assert "must be a number of bytes above 0" in str(complaint(Limits, None, value))
