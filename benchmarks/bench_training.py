"""Training on a CPU: an epoch of the paper's settings and its parts, the structure-aware layer, growth, propagation.

The epoch and the layer need NEWCOMER_DATA. Growth is that of a step (one mini-batch of always the same size) on made-up
graphs of ten facts an entity; ``--largest`` adds one of ten million facts. Ratios are measured on one thread in seconds
of the CPU: what else the machine does then hardly matters, while threads that wait for each other lose far more
to it than their share. Steps and epochs run as `fit` runs them, with sums in a fixed order. Parts are timed by wrapping
the functions of `PARTS` from outside.
"""

import argparse
import functools
import inspect
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from harness import Bar, Child, data_folder, finish, in_child
from newcomer.config import Config, load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.models import sparse
from newcomer.models.embedding.encoder import Edges
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.vn.encoder import VNEncoder
from newcomer.models.vn.layers import StructureLayer
from newcomer.training import embedding as loop
from newcomer.training.checkpoint import Figures, RunState
from newcomer.training.embedding import Trainer
from newcomer.training.pipeline import Listener, fit
from newcomer.training.preparation import prepare
from newcomer.training.propagation import PropagationTrainer
from newcomer.training.runtime import deterministic

CPU = torch.device("cpu")
DATA, PRESET, EPOCHS = "fb15k-subject-10", "paper-fb15k", 2
EPOCH_SECONDS, EPOCH_GIGABYTES = 60.0, 3.0
LAYER_BAR = 5.0  # times faster than gather + index_add
SPARSE_ENTITIES, FRONTIER_BAR = 20_000, 50.0  # times faster than over all entities
GROWTH_BAR = 1.5  # of a triple's share with ten times as many triples
SIZES = (100_000, 1_000_000, 10_000_000)
FACTS_AN_ENTITY, RELATIONS, FACTS_A_BATCH, STEPS = 10, 200, 1000, 3
FANOUT, FANOUT_BAR = 3, 1.0  # memory of a step with neighbours drawn, of that with all of them

LABELS, BACKWARD, REST = "virtual labels", "backward, the rest", "everything else"
PARTS: tuple[tuple[Any, str, str], ...] = (
    (Trainer, "epoch", REST),
    (Trainer, "_queries", "drawing facts and negatives"),
    (Trainer, "_weights_without", "masking facts, edges"),
    (GraphTensors, "edges", "masking facts, edges"),
    (Trainer, "_simulate_newcomers", "choosing simulated newcomers"),
    (VNEncoder, "states", "structure layers"),
    (VNEncoder, "extend", "structure layers of simulated newcomers"),
    (VNEncoder, "states_with_newcomers", "structure layers, both at once"),
    (loop, "soft_labels", LABELS),
    (VNEncoder, "embed", "query layer"),
    (Trainer, "_virtual_loss", "decoder and loss"),
    (Trainer, "_fact_loss", "decoder and loss"),
    (Trainer, "_penalty", "decoder and loss"),
    (Tensor, "backward", BACKWARD),
    (torch.nn.utils, "clip_grad_norm_", "optimiser"),
    (torch.optim.Adam, "step", "optimiser"),
)
IN_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import bench_training; bench_training.{call}\n"
Outcome = tuple[Tensor, ...]


class Stopwatch:
    """Seconds of the parts of a program, each without the parts inside it; what labels need counts for the labels."""

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.wait = wait  # until the device has done all its work
        self._open: list[str] = []
        self._since = 0.0

    @property
    def current(self) -> str:
        return self._open[-1] if self._open else REST

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        if self.current == LABELS:
            yield
            return
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def _switch(self) -> None:
        self.wait()
        now = time.perf_counter()
        if self._open:
            self.seconds[self.current] += now - self._since
        self._since = now

    def wrapped(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            with self.part(part):
                return function(*arguments, **options)

        return timed

    def table(self) -> str:
        total = sum(self.seconds.values())
        rows = sorted(self.seconds.items(), key=lambda item: -item[1])
        lines = [f"  {seconds:8.3f} s  {100 * seconds / total:5.1f} %  {part}" for part, seconds in rows]
        return "\n".join(lines)


@contextmanager
def watched(watch: Stopwatch) -> Iterator[None]:
    """Time every part while this lasts, and the backward pass of neighbour sums by the part that took them."""
    with ExitStack() as patches:
        for owner, name, part in PARTS:
            patches.enter_context(mock.patch.object(owner, name, watch.wrapped(getattr(owner, name), part)))
        for name, method in _sums(watch, sparse._WeightedSum).items():
            patches.enter_context(mock.patch.object(sparse._WeightedSum, name, staticmethod(method)))
        yield


def _sums(watch: Stopwatch, kind: type) -> dict[str, Callable[..., Any]]:
    forwards, backwards = (inspect.unwrap(getattr(kind, name)) for name in ("forward", "backward"))

    def forward(ctx: Any, *arguments: Any) -> Any:
        ctx.part = watch.current
        return forwards(ctx, *arguments)

    def backward(ctx: Any, *gradients: Tensor) -> Any:
        with watch.part(f"backward, neighbour sums of: {ctx.part}"):
            return backwards(ctx, *gradients)

    return {"forward": forward, "backward": backward}


class _EpochParts(Listener):
    """Keeps the parts of each epoch; what was timed before the first one, the rehearsal, is forgotten."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.epochs: list[dict[str, float]] = []

    def stage(self, what: str) -> None:
        self.watch.seconds.clear()

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        self.epochs.append(dict(self.watch.seconds))
        self.watch.seconds.clear()


def child(call: str) -> Child:
    return in_child(IN_CHILD.format(call=call), str(Path(__file__).parent))


def train_epochs(threads: int) -> None:
    """In a process of its own: a whole fit of a few epochs, reading and mining included."""
    config = with_overrides(load_preset(PRESET), [f"training.epochs={EPOCHS}", "training.validation_rate=0"])
    parts = _EpochParts(Stopwatch())
    with watched(parts.watch):
        fit(load_dataset(DATA), config, device="cpu", threads=threads, report=parts)
    print(json.dumps(min(parts.epochs, key=lambda epoch: sum(epoch.values()))))


def epoch(threads: int) -> list[Bar]:
    done = child(f"train_epochs({threads})")
    watch = Stopwatch()
    watch.seconds.update(done.said)
    print(f"{DATA}, {PRESET}, {threads} threads: the best of {EPOCHS} epochs\n{watch.table()}")
    detail = f"reading, mining and training {done.seconds:.0f} s in all"
    return [
        Bar("seconds an epoch", sum(done.said.values()), EPOCH_SECONDS, detail=detail),
        Bar("GB at most, from reading to the last epoch", done.peak_bytes / 1e9, EPOCH_GIGABYTES),
    ]


def layer_on(edges: Edges, num_relations: int, dim: int) -> tuple[Callable[[], Outcome], Callable[[], Outcome]]:
    """One layer, forward and backward, by the sparse product and by a vector for each edge."""
    generator, device = torch.Generator().manual_seed(0), edges.weights.device
    layer = StructureLayer(num_relations, dim, generator).to(device)
    with torch.no_grad():
        layer.alpha.uniform_(0.5, 1.5)
    size = (edges.rows.num_rows, dim)
    vectors = torch.randn(size, generator=generator).to(device).requires_grad_()
    gradient = torch.randn(size, generator=generator).to(device)

    def outcome(result: Tensor) -> Outcome:
        return (result.detach(), *torch.autograd.grad(result, (layer.alpha, layer.weight, vectors), gradient))

    return lambda: outcome(layer(edges, vectors, vectors)), lambda: outcome(gathered_layer(layer, edges, vectors))


def gathered_layer(layer: StructureLayer, edges: Edges, vectors: Tensor) -> Tensor:
    """The layer by gather and index_add; `index_select` has the faster backward pass of the ways to gather."""
    row, nothing = edges.rows.row_ids, vectors.new_zeros(edges.rows.num_rows)
    degree = nothing.index_add(0, row, edges.weights).clamp_min(1e-6)
    values = layer.alpha.index_select(0, edges.relations) * edges.weights / degree[row]
    messages = vectors.index_select(0, edges.rows.columns) * values[:, None]
    gathered = torch.zeros_like(vectors).index_add(0, row, messages) + vectors
    return torch.tanh(gathered @ layer.weight)


def same(first: Outcome, second: Outcome) -> bool:
    """Equal up to rounding: sums of many terms are compared relative to the largest."""
    pairs = zip(first, second, strict=True)
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5 * float(b.abs().max())) for a, b in pairs)


def half_true(graph: GraphTensors) -> Edges:
    """The edges with every virtual triple at label one half."""
    labels = torch.full((len(graph.virtual),), 0.5, device=graph.facts.device)
    return graph.edges(torch.cat([torch.ones(len(graph.facts), device=labels.device), labels]))


def layer() -> Bar:
    config = load_preset(PRESET)
    prepared = prepare(load_dataset(DATA), config)
    graph = build_graph_tensors(prepared.dataset.observed, prepared.num_seen, prepared.seen_neighbors, CPU)
    by_product, by_gathering = layer_on(half_true(graph), graph.num_relations, config.model.dim)
    assert same(by_product(), by_gathering())
    torch.set_num_threads(1)
    # Both without the demand for a fixed order of sums, which slows index_add several times.
    fast, slow = (best_cpu_seconds(5, work) for work in (by_product, by_gathering))
    detail = f"{1000 * slow:.0f} ms against {1000 * fast:.0f} ms forward and backward, same results"
    return Bar(
        "structure layer: gather + index_add / sparse product", slow / fast, LAYER_BAR, at_least=True, detail=detail
    )


def frontier_propagation() -> Bar:
    """Training propagation on a sparse graph: over all entities, or over the frontier only."""
    generator, count = np.random.default_rng(0), SPARSE_ENTITIES
    heads = generator.integers(count, size=2 * count, dtype=np.int32)
    tails = ((heads + 1 + generator.integers(10, size=len(heads))) % count).astype(np.int32)
    relations = generator.integers(10, size=len(heads), dtype=np.int32)
    vocabularies = (Vocabulary(map(str, range(many))) for many in (count, 10))
    graph = Graph.build(next(vocabularies), next(vocabularies), TripleArray(heads, relations, tails))
    taken = []
    for is_sparse in (True, False):
        with deterministic(CPU, 1):
            trainer = PropagationTrainer(graph, count, 100, 0, CPU, is_sparse)
            trainer.step(0)
            taken.append(best_cpu_seconds(2, functools.partial(trainer.step, 1)))
    detail = f"{1000 * taken[1]:.0f} ms against {1000 * taken[0]:.0f} ms, {len(graph):,} facts, {count:,} entities"
    name = "a step of training propagation, all entities / the frontier"
    return Bar(name, taken[1] / taken[0], FRONTIER_BAR, at_least=True, detail=detail)


class _FewSteps(Trainer):
    """A trainer whose epochs end after some steps."""

    def _batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        yield from islice(super()._batches(generator), STEPS)


def made_up(facts: int, generator: np.random.Generator) -> Graph:
    """Heads at random, tails with a few busy ones among them: the share of the first x entities is the root of x."""
    entities = facts // FACTS_AN_ENTITY
    tails = (entities * generator.random(facts) ** 2).astype(np.int32)
    heads, relations = (generator.integers(0, below, facts, dtype=np.int32) for below in (entities, RELATIONS))
    vocabularies = (Vocabulary(map(str, range(count))) for count in (entities, RELATIONS))
    return Graph.build(next(vocabularies), next(vocabularies), TripleArray(heads, relations, tails))


def step_settings(facts: int, fanout: int | None) -> Config:
    config = with_overrides(load_preset(PRESET), ["model.labels=none"])
    training = replace(config.training, batches=max(1, facts // FACTS_A_BATCH), fanout=fanout)
    return replace(config, training=training)


def take_steps(facts: int, fanout: int | None = None) -> None:
    """In a process of its own: the best time of a step, and the memory of steps beyond that of an idle program."""
    idle = memory("VmRSS")
    graph = made_up(facts, np.random.default_rng(0))
    training_graph = build_graph_tensors(graph, graph.num_entities, None, CPU)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew: building the graph is no step
    with deterministic(CPU, 1):
        trainer = _FewSteps(step_settings(facts, fanout), training_graph, CPU)
        seconds = best_cpu_seconds(3, lambda: trainer.epoch(0)) / STEPS
    print(json.dumps({"seconds": seconds, "bytes": memory("VmHWM") - idle, "triples": len(graph)}))


def best_cpu_seconds(repeats: int, work: Callable[[], object]) -> float:
    """The least CPU time, whoever else had it in between."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def memory(mark: str) -> int:
    """Resident bytes of this process now (VmRSS) or at most (VmHWM)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(mark))


def growth(sizes: tuple[int, ...]) -> list[Bar]:
    dim = load_preset(PRESET).model.dim
    print(f"a step of {FACTS_A_BATCH:,} facts on a whole graph, d = {dim}, one thread, CPU seconds, best of 3")
    bars, taken = [], []
    for facts in sizes:
        taken.append(steps_on(facts))
        if len(taken) > 1:
            bars += growth_bars(*taken[-2:])
    return bars + drawn_neighbours(sizes[-1], taken[-1])


def steps_on(facts: int, fanout: int | None = None) -> dict[str, float]:
    said = child(f"take_steps({facts}, {fanout})").said
    drawn = f", {fanout} neighbours drawn" if fanout else ""
    print(f"  {said['triples']:12,.0f} triples{drawn}: {said['seconds']:.3f} s a step, {said['bytes'] / 1e6:,.0f} MB")
    return said


def growth_bars(small: dict[str, float], large: dict[str, float]) -> list[Bar]:
    bars, more = [], large["triples"] - small["triples"]
    for what, unit, scale in (("seconds", "us", 1e6), ("bytes", "bytes", 1.0)):
        ratio = (large[what] / large["triples"]) / (small[what] / small["triples"])
        detail = f"each further triple: {scale * (large[what] - small[what]) / more:.2f} {unit} a step"
        name = f"{what} of a step a triple, {large['triples'] / 1e6:.1f} / {small['triples'] / 1e6:.1f} million"
        bars.append(Bar(name, ratio, GROWTH_BAR, detail=detail))
    return bars


def drawn_neighbours(facts: int, whole: dict[str, float]) -> list[Bar]:
    """The memory of a step with a few neighbours drawn, where the loop uses that setting."""
    if not fanout_matters():
        print("skipped: training.fanout changes nothing yet")
        return []
    drawn = steps_on(facts, FANOUT)
    detail = f"{drawn['bytes'] / 1e6:,.0f} MB, {drawn['seconds']:.3f} s against {whole['seconds']:.3f} s a step"
    ratio = drawn["bytes"] / whole["bytes"]
    return [Bar(f"memory of a step, {FANOUT} neighbours drawn / all", ratio, FANOUT_BAR, detail=detail)]


def fanout_matters() -> bool:
    graph = made_up(10 * FACTS_A_BATCH, np.random.default_rng(0))
    training_graph = build_graph_tensors(graph, graph.num_entities, None, CPU)
    with deterministic(CPU, 1):
        settings = (step_settings(len(graph), fanout) for fanout in (None, 1))
        losses = {_FewSteps(config, training_graph, CPU).epoch(0).loss for config in settings}
    return len(losses) > 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", action="store_true", help="steps on ten million facts too")
    parser.add_argument("--threads", type=int, default=2, help="of the epoch")
    options = parser.parse_args()
    bars = [*growth(SIZES if options.largest else SIZES[:2]), frontier_propagation()]
    if data_folder(DATA) is not None:
        bars += [layer(), *epoch(options.threads)]
    finish(bars)


if __name__ == "__main__":
    main()
