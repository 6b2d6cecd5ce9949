"""The schedule of a training: what each stage costs, and what is made smaller where time or memory does not suffice.

Sizes go down a ladder, step by step, until what is left to do fits: first the vectors, which add least beside the rest,
then what is asked to learn weights and probabilities, and the steps of the propagation network. Where not even few of
these fit, there is no such network, and the ladder begins again from its top without it. What a step is usually worth
stands in the user guide, with how it was measured.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from newcomer.config import Config
from newcomer.config.settings import flat_settings, merged, nested_settings
from newcomer.data.split import HOLDOUT_TEST
from newcomer.errors import OptionError, shown
from newcomer.graph import InductiveDataset, seen_count
from newcomer.training.calibration import MADE_UP, masked_newcomers
from newcomer.training.continuation import final_epochs
from newcomer.training.ensemble import THINNED, THINNED_QUERIES
from newcomer.training.holdout import MOST, drawn_rate
from newcomer.training.prices import Prices
from newcomer.training.propagation import num_steps

MINING, VECTORS, PROPAGATION = "mining rules", "vectors", "propagation"
ASKED = 32  # relations of a newcomer with masked facts, at most
OVERRUN, GRACE = 2.0, 5.0  # of a stage, before it is cut short
MARGIN = 0.9  # of the time is given away: estimates are no promises
FIXED = 0.2  # of a batch's time that does not depend on the length of vectors
COPIES = 7  # of the vectors in memory: with gradients, their squares, the best ones, and checkpoints
RULE_BYTES, FACT_BYTES, BASE_BYTES = 60, 400, 450_000_000


@dataclass(frozen=True)
class Limits:
    """How long a training may take, in seconds, and how much memory, in bytes; None: as it needs."""

    seconds: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        for name, unit, value in (("time", "seconds", self.seconds), ("memory", "bytes", self.memory)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < math.inf):
                raise OptionError(f"the {name} limit is {shown(value)}, but must be a number of {unit} above 0")


class Stage(NamedTuple):
    """A part of a training, and about how many seconds it takes."""

    name: str
    seconds: float


class Rung(NamedTuple):
    """Sizes at most: of vectors, epochs, shares of what is asked and of the propagation steps, and hubs that send."""

    dim: int
    epochs: int
    asked: float
    steps: float
    hub_facts: int = 0  # 0: as the settings say


LADDER = (
    Rung(128, 12, 1.0, 1.0),
    Rung(64, 8, 1.0, 1.0),
    Rung(64, 6, 0.75, 1.0, 1000),
    Rung(64, 6, 0.5, 1.0, 500),
    Rung(64, 6, 0.5, 0.5, 500),
    Rung(48, 4, 0.35, 0.25, 200),
    Rung(32, 4, 0.25, 0.125, 200),
    Rung(32, 2, 0.2, 0.125, 200),
    Rung(16, 1, 0.15, 0.125, 200),
    Rung(128, 12, 1.0, 0.0),
    Rung(64, 8, 1.0, 0.0),
    Rung(64, 6, 0.5, 0.0),
    Rung(48, 4, 0.35, 0.0),
    Rung(32, 3, 0.25, 0.0),
    Rung(32, 2, 0.15, 0.0),
    Rung(16, 2, 0.1, 0.0),
    Rung(16, 1, 0.05, 0.0),
)


@dataclass(frozen=True)
class Schedule:
    """The settings as they fit, what the stages cost with them, and what had to be made smaller."""

    config: Config
    stages: tuple[Stage, ...]
    memory: float
    limits: Limits
    smaller: dict[str, tuple[Any, Any]]  # settings by name: as asked, and as they fit
    question: float = 0.0  # what one costs without the propagation network

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(one.seconds for one in self.stages)

    def most(self, stage: str) -> float:
        """Seconds after which a stage is cut short: twice what it was said to take, where time is limited."""
        planned = sum(one.seconds for one in self.stages if one.name == stage)
        return math.inf if self.limits.seconds is None else OVERRUN * planned + GRACE


def scheduled(
    config: Config, dataset: InductiveDataset, prices: Prices, limits: Limits, mined: bool = False, spent: float = 0.0
) -> Schedule:
    """The largest sizes with which what is left of a training fits; the smallest ones where none does.

    ``mined`` says that the rules of the whole graph are there already, ``spent`` how many seconds have gone.
    """
    chosen = _schedule(config, dataset, prices, limits, mined)
    for rung in LADDER:
        if _fits(chosen, limits, spent):
            break
        smaller = _at_most(config, rung)
        share = prices.of_propagation(config, smaller)
        scaled = replace(prices, step=share * prices.step, propagated=share * prices.propagated)
        chosen = _schedule(smaller, dataset, scaled, limits, mined)
    return replace(chosen, smaller=_difference(config, chosen.config))


def _difference(asked: Config, found: Config) -> dict[str, tuple[Any, Any]]:
    before, now = flat_settings(asked.to_dict()), flat_settings(found.to_dict())
    return {name: (before[name], now[name]) for name in now if before[name] != now[name]}


def _fits(schedule: Schedule, limits: Limits, spent: float) -> bool:
    in_time = limits.seconds is None or spent + schedule.seconds <= MARGIN * limits.seconds
    return in_time and (limits.memory is None or schedule.memory <= limits.memory)


def _schedule(config: Config, dataset: InductiveDataset, prices: Prices, limits: Limits, mined: bool) -> Schedule:
    stages = tuple(one for one in _stages(config, dataset, prices, mined) if one.seconds > 0)
    return Schedule(config, stages, memory_needed(config, dataset, prices), limits, {}, prices.question)


def _at_most(config: Config, rung: Rung) -> Config:
    """The settings with none above those of a rung."""
    model, training = config.model, config.training
    changed: dict[str, Any] = {
        "model.dim": min(model.dim, rung.dim),
        "training.epochs": min(training.epochs, rung.epochs),
        "training.calibration_questions": max(1, round(rung.asked * training.calibration_questions)),
    }
    if training.validation_queries is not None:
        changed["training.validation_queries"] = max(1, round(rung.asked * training.validation_queries))
    if model.propagation and rung.steps:
        changed["training.propagation_steps"] = max(1, round(rung.steps * training.propagation_steps))
        if rung.hub_facts and model.propagation_hubs is not None:
            changed["model.propagation_hubs"] = min(model.propagation_hubs or rung.hub_facts, rung.hub_facts)
    elif model.propagation:
        changed["model.propagation"] = False
    return with_settings(config, changed)


def with_settings(config: Config, named: dict[str, Any]) -> Config:
    """The settings with some changed, by their full names."""
    return merged(config, nested_settings(named))


def _stages(config: Config, dataset: InductiveDataset, prices: Prices, mined: bool) -> Iterator[Stage]:
    training, facts = config.training, len(dataset.observed)
    searches = training.validation_rate > 0
    batches = training.batches_of(facts)
    per_number = FIXED + (1 - FIXED) * config.model.dim / prices.dim
    epoch = batches * prices.batch * per_number
    yield Stage(MINING, (1 + searches - mined) * prices.mining)
    yield Stage("inferring virtual neighbours", (not mined) * prices.grounding)
    if searches:
        yield Stage(VECTORS, training.epochs * epoch)
        yield from _learning(config, dataset, prices)
    if not searches or training.final_fit:
        epochs = final_epochs(config, training.epochs) if searches else training.epochs
        yield Stage("vectors of the whole graph", epochs * epoch)
        share = prices.warm if searches else 1.0
        yield Stage("propagation in the whole graph", share * _steps(config, dataset) * prices.step)


def _learning(config: Config, dataset: InductiveDataset, prices: Prices) -> Iterator[Stage]:
    """What comes after the vectors of the search."""
    queries = _queries(config, dataset)
    question = prices.question + (prices.propagated if config.model.propagation else 0.0)
    asked = min(ASKED, 2 * len(dataset.relations)) * masked_newcomers(config, len(dataset.relations))
    yield Stage(PROPAGATION, _steps(config, dataset) * prices.step)
    if config.model.ensemble:
        weighed = queries + min(queries, MOST) + len(THINNED) * min(queries, THINNED_QUERIES)
        yield Stage("weights of the ensemble", weighed * question)
    yield Stage("probabilities", (queries + asked + 2 * min(queries, MADE_UP)) * question)


def _queries(config: Config, dataset: InductiveDataset) -> int:
    """How many a validation has, about: a share of the valid triples, or of the facts that stand in for them."""
    training, asked = config.training, len(dataset.valid) or HOLDOUT_TEST * len(dataset.observed)
    drawn = max(1, round(drawn_rate(dataset, config) / 100 * asked))
    return min(training.validation_queries or drawn, drawn)


def _steps(config: Config, dataset: InductiveDataset) -> int:
    if not config.model.propagation:
        return 0
    return num_steps(len(dataset.observed), config.training.propagation_steps)


def memory_needed(config: Config, dataset: InductiveDataset, prices: Prices) -> float:
    """Bytes that the process holds at most, about."""
    vectors = 4 * COPIES * config.model.dim * seen_count(dataset.observed)
    rules = 2 * RULE_BYTES * 2 * (config.rules.max_constants or 0) * config.mines_rules
    steps = prices.memory if config.model.propagation else 0
    return max(BASE_BYTES + FACT_BYTES * len(dataset.observed) + vectors + rules, steps + vectors)
