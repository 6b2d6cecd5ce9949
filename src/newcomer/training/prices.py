"""What the parts of a training cost on this machine: a few steps of each are taken and timed.

Rules are mined before anything is timed with them, so that their part in a question is known only then; before, a
question is priced without. Mining itself is priced by counts (`mining_seconds`).
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from newcomer.config import Config
from newcomer.graph import InductiveDataset, seen_count
from newcomer.models.device import one_thread
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.engine import InferenceEngine, TrainedModel, query_batches
from newcomer.rules.limits import thread_count
from newcomer.rules.rule import RuleSet
from newcomer.training.candidate_propagation import propagation_trainer
from newcomer.training.embedding import ShortTrainer
from newcomer.training.preparation import Prepared
from newcomer.training.propagation import HUB_FACTS, PropagationTrainer, messages_of_a_query

BATCHES, STEPS, QUESTIONS = 4, 2, 16  # timed of each, after as many more steps and questions that are not
SHARE = 8  # a step that may take long is timed with an eighth of its queries
LONG, SMALLEST = 4.0, 1e-6  # seconds
RULELESS = 1.5  # a question with rules costs so much more than one without
# Seconds of one core: rules with constants and paths of two by the squared degrees, chains by samples, symmetric paths
# by walks. Seen on graphs of 8,000 to 500,000 facts.
BY_SQUARED_DEGREE, BY_SAMPLE, BY_WALK, BY_FACT = 5e-9, 3e-7, 4e-7, 2e-6
SAMPLES = 20_000_000
BY_MESSAGES = 0.6  # of what propagation costs


@dataclass(frozen=True)
class Prices:
    """Seconds that each part takes, and the memory that was needed to find that out."""

    mining: float  # of the rules of the whole graph
    grounding: float  # of what they conclude about its entities
    batch: float  # of a mini-batch of facts, with `dim` numbers an entity
    dim: int
    step: float  # of the propagation network; 0 where there is none
    warm: float  # the share of these steps that a network of the search needs on the whole graph
    question: float  # by all that the ensemble has but the propagation network
    propagated: float  # what that adds
    messages: dict[int, float]  # of a query, by the facts of entities at most that send some; 0: of any number
    memory: int  # bytes, of the process at its largest

    def of_propagation(self, asked: Config, found: Config) -> float:
        """What share of the price of propagation is left, where fewer entities send messages than was ``asked``."""
        before, now = (self.messages.get(one.model.propagation_hubs or 0, 0.0) for one in (asked, found))
        return 1.0 if now >= before else BY_MESSAGES * now / before + 1 - BY_MESSAGES


def measured(
    dataset: InductiveDataset,
    config: Config,
    device: torch.device,
    threads: int | None,
    prepared: Prepared | None = None,
) -> Prices:
    """The prices of a data set; with its rules, where they are mined already."""
    observed, seen = dataset.observed, seen_count(dataset.observed)
    graph = build_graph_tensors(observed, seen, None, device)
    trainer = ShortTrainer(config, graph, device, 1 + BATCHES)
    batch, step, warm = _batch_seconds(trainer), 0.0, 0.0
    rules = RuleSet.empty(observed.num_relations) if prepared is None else prepared.rules
    model = TrainedModel(config, observed, rules, trainer.model, graph, trainer.labels)
    question = _question_seconds(model, threads) * (RULELESS if prepared is None and config.mines_rules else 1.0)
    propagated, hubs = 0.0, config.model.propagation_hubs or 0
    if config.model.propagation:
        most = config.training.propagation_steps
        network = propagation_trainer(observed, seen, most, 0, device, None, threads, hubs)
        step, warm = _step_seconds(network), network.WARM_STEPS
        propagated = max(0.0, _question_seconds(replace(model, propagation=network.network), threads) - question)
    return Prices(
        mining_seconds(dataset, config, threads),
        _grounding_seconds(seen, config, threads),
        batch,
        config.model.dim,
        step,
        warm,
        question,
        propagated,
        {most: messages_of_a_query(observed, most) for most in {*HUB_FACTS, hubs}} if step else {},
        peak_memory(),
    )


def mining_seconds(dataset: InductiveDataset, config: Config, threads: int | None) -> float:
    """How long mining the observed graph takes, about."""
    if not config.mines_rules:
        return 0.0
    degrees = dataset.observed.degrees.astype(np.float64)
    chains = SAMPLES * BY_SAMPLE if "three" in config.rules.kinds else 0.0
    squared = BY_SQUARED_DEGREE * float(np.minimum(degrees, 20_000.0) @ degrees)
    return (chains + squared + BY_FACT * len(dataset.observed)) / thread_count(threads)


def _grounding_seconds(seen: int, config: Config, threads: int | None) -> float:
    if config.model.labels == "none":
        return 0.0
    return BY_WALK * seen * (config.rules.walks if config.rules.paths else 0) / thread_count(threads)


def _seconds(step: Callable[[int], object], count: int) -> float:
    """The mean of some steps, after as many: the first ones make what all others use."""
    for number in range(count):
        step(number)
    started = time.perf_counter()
    for number in range(count, 2 * count):
        step(number)
    return (time.perf_counter() - started) / count


def _batch_seconds(trainer: ShortTrainer) -> float:
    """Of a batch, without what an epoch costs once, however few batches it has."""

    def epoch(number: int) -> float:
        return trainer.epoch(number).loss  # a number, so it is there by then

    most = trainer.count
    several, trainer.count = _seconds(epoch, 1), 1
    if most == 1:
        return several
    return max(several - _seconds(epoch, 1), SMALLEST) / (most - 1)


def _step_seconds(network: PropagationTrainer) -> float:
    """Of a step; where it takes long on a CPU, by a part of its queries."""
    whole = network.batch_size
    if network.device.type == "cpu":
        network.batch_size = max(1, whole // SHARE)
    scale = whole / network.batch_size

    def learned(number: int) -> float:
        return float(network.step(number))  # a number, so it is there by then

    with one_thread():
        step = scale * _seconds(learned, STEPS)
        if scale == 1.0 or step > LONG:
            return step
        network.batch_size = whole
        return _seconds(learned, STEPS)


def _question_seconds(model: TrainedModel, threads: int | None) -> float:
    """Of a question about an entity of the observed graph, asked along one of its facts."""
    if not model.config.model.ensemble:
        return 0.0
    engine, facts = InferenceEngine(model, threads=threads), model.observed.triples
    drawn = np.random.default_rng(0).integers(len(facts), size=2 * QUESTIONS)
    entities, relations = facts.heads[drawn], facts.relations[drawn]

    def ask(questions: slice) -> None:
        for part in query_batches(QUESTIONS, engine.initial.num_entities):
            asked = entities[questions][part], relations[questions][part]
            engine.signals_of_many(engine.initial, *asked)

    ask(slice(0, QUESTIONS))
    started = time.perf_counter()
    ask(slice(QUESTIONS, None))
    return (time.perf_counter() - started) / QUESTIONS


def peak_memory() -> int:
    """Bytes that this process has held at most; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
