"""What the parts of a training cost: from timed steps, without leaving a trace, and from counts."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

from conftest import make_dataset
from newcomer.graph import InductiveDataset
from newcomer.models.device import choose_device
from newcomer.rules.rule import RuleSet
from newcomer.training import prices
from newcomer.training.embedding import EpochReport
from newcomer.training.preparation import prepare
from newcomer.training.prices import BY_FACT, BY_SAMPLE, BY_SQUARED_DEGREE, SAMPLES, Prices, measured, mining_seconds
from newcomer.training.propagation import HUB_FACTS
from nn_oracle import one_thread
from training_world import FOLDED, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET, CPU = world(), choose_device("cpu")
ENSEMBLE = (*FOLDED, "model.ensemble=yes")


def prices_of(*changes: str, dataset: InductiveDataset = DATASET, **given: Any) -> Prices:
    return measured(dataset, settings(*ENSEMBLE, *changes), CPU, 1, **given)


def test_every_part_has_a_price():
    found = prices_of("model.propagation=yes")
    numbers = asdict(found) | found.messages
    del numbers["messages"]
    assert all(math.isfinite(value) and value >= 0 for value in numbers.values()) and set(HUB_FACTS) <= set(numbers)
    for name in ("mining", "grounding", "batch", "step", "question"):
        assert getattr(found, name) > 0, name
    assert found.dim == 8 and 0 < found.warm < 1
    assert 1e7 < found.memory < 1e12  # bytes: with torch a process has some hundred million


def test_what_is_not_there_costs_nothing():
    plain = prices_of("model.propagation=no")
    assert plain.step == plain.warm == plain.propagated == 0 and plain.question > 0
    assert prices_of("model.ensemble=no", "model.propagation=no").question == 0
    without = prices_of("model.propagation=no", "rules.kinds=", "rules.paths=no", "model.labels=none")
    assert without.mining == without.grounding == 0


def test_rules_that_are_there_are_asked_as_they_are(monkeypatch):
    asked: list[RuleSet] = []
    build = prices.TrainedModel

    def noted(config: Any, observed: Any, rules: RuleSet, *others: Any) -> Any:
        asked.append(rules)
        return build(config, observed, rules, *others)

    monkeypatch.setattr(prices, "TrainedModel", noted)
    config = settings(*ENSEMBLE, "model.propagation=no")
    prepared = prepare(DATASET, config, threads=1)
    measured(DATASET, config, CPU, 1)
    measured(DATASET, config, CPU, 1, prepared)
    assert len(asked[0]) == 0 and len(asked[1]) == len(prepared.rules) > 0


@pytest.mark.parametrize("facts", [1, 3])
def test_a_few_facts_have_a_price_too(facts):
    tiny = make_dataset(train=[("a", "r", "b"), ("b", "s", "c"), ("c", "r", "d")][:facts])
    found = prices_of("model.propagation=yes", dataset=tiny)
    assert found.batch > 0 and found.step >= 0 and math.isfinite(found.question)


def star(leaves: int) -> InductiveDataset:
    return make_dataset(train=[("hub", "r", f"e{number:05}") for number in range(leaves)])


@pytest.mark.parametrize("leaves", [10, 500])
def test_mining_is_priced_by_squared_degrees_and_facts(leaves):
    by_pairs, by_chains = settings("rules.kinds=one,two"), settings("rules.kinds=one,two,three")
    degrees = leaves**2 + leaves  # one hub, and as many leaves
    wanted = BY_SQUARED_DEGREE * degrees + BY_FACT * leaves
    assert mining_seconds(star(leaves), by_pairs, 1) == pytest.approx(wanted)
    assert mining_seconds(star(leaves), by_chains, 1) == pytest.approx(wanted + SAMPLES * BY_SAMPLE)
    assert mining_seconds(star(leaves), settings("rules.kinds="), 1) == 0


def test_a_hub_makes_mining_dearer_than_a_ring_of_as_many_facts():
    ring = make_dataset(train=[(f"e{number}", "r", f"e{(number + 1) % 300}") for number in range(300)])
    assert mining_seconds(star(300), settings(), 1) > 1.5 * mining_seconds(ring, settings(), 1)


def test_no_state_outside_changes():
    torch.manual_seed(3)
    np.random.seed(3)
    before = np.random.get_state()[1].copy(), torch.get_num_threads(), torch.is_grad_enabled()
    prices_of("model.propagation=yes")
    after = np.random.get_state()[1], torch.get_num_threads(), torch.is_grad_enabled()
    assert np.array_equal(before[0], after[0]) and before[1:] == after[1:]


def test_memory_is_the_most_that_was_held_and_is_not_told_everywhere(monkeypatch):
    before, held = prices.peak_memory(), np.ones(8_000_000)
    after = prices.peak_memory()
    assert after >= before and held.nbytes < after < 1e12  # bytes
    del held
    assert prices.peak_memory() >= after
    monkeypatch.setattr(prices.sys, "platform", "win32")
    assert prices.peak_memory() == 0


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Network:
    """A step takes a second for each of its queries, and three more the first time."""

    device, batch_size = torch.device("cpu"), 64

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked = clock, list[tuple[int, int]]()

    def step(self, number: int) -> torch.Tensor:
        self.asked.append((number, self.batch_size))
        self.clock.now += self.batch_size + 3.0 * (len(self.asked) == 1)
        return torch.zeros(())


@pytest.mark.parametrize("long", [1.0, 1e9])
def test_a_step_is_priced_by_a_part_of_its_queries_and_by_all_where_it_is_quick(monkeypatch, long):
    clock = Clock()
    monkeypatch.setattr(prices, "time", clock)
    monkeypatch.setattr(prices, "LONG", long)
    network = Network(clock)
    assert prices._step_seconds(network) == 64.0  # type: ignore[arg-type]
    sizes = [8] if long == 1.0 else [8, 64]
    assert network.asked == [(number, size) for size in sizes for number in range(2 * prices.STEPS)]


def test_the_first_steps_are_not_timed(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(prices, "time", clock)
    lengths = iter([100.0, 50.0, 1.0, 3.0])

    def step(number: int) -> None:
        clock.now += next(lengths)

    assert prices._seconds(step, 2) == 2.0


class Epochs:
    """An epoch takes three seconds, and one more for each batch."""

    def __init__(self, clock: Clock, count: int) -> None:
        self.clock, self.count = clock, count

    def epoch(self, _: int) -> EpochReport:
        self.clock.now += 3.0 + self.count
        return EpochReport(0.0, 0.0, 0.0, 0.0)


def test_a_batch_is_priced_without_what_an_epoch_costs_once(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(prices, "time", clock)
    assert prices._batch_seconds(Epochs(clock, 5)) == 1.0  # type: ignore[arg-type]
    assert prices._batch_seconds(Epochs(clock, 1)) == 4.0  # type: ignore[arg-type]
