"""Training on a GPU: epochs of the paper's settings and their parts, sparse products and memory, propagation.

    PYTHONPATH=src python benchmarks/device_training.py DATA --out figures.json [--full]

DATA is a data set's folder or name. The bars are those of FB15K Subject-10 on an H200 that does nothing else; on a
CPU (``--device cpu``) it is a rehearsal without bars. ``--full`` adds a whole fit: search with validation, then
the final model. What is measured is written after each part, so that a run that is cut short leaves its first parts.

Bytes of a sparse product, two ways:
    gathered   an id and a value an edge, a neighbour's vector an edge, a result an entity
    least      the same with each vector once: what must come from memory if a cache holds every vector
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from bench_training import PRESET, Stopwatch, half_true, layer_on, same, watched
from harness import Bar, finish
from newcomer.config import Config, load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.graph import InductiveDataset
from newcomer.models.device import DEVICES, choose_device
from newcomer.models.embedding.graph_tensors import GraphTensors
from newcomer.models.propagation import gpu
from newcomer.models.sparse import Rows, weighted_sum
from newcomer.training.embedding import Trainer
from newcomer.training.pipeline import Fitted, Listener, fit
from newcomer.training.propagation import PropagationTrainer

EPOCHS = 5
EPOCH_SECONDS, FIT_SECONDS = 1.5, 180.0
PEAK_BYTES_A_SECOND = 4.8e12  # HBM3e of an H200
COPIED_BYTES = {"cuda": 1 << 31, "cpu": 1 << 26}
MADE_UP_EDGES = {"cuda": 20_000_000, "cpu": 200_000}  # vectors far beyond any cache of the GPU
EDGES_AN_ENTITY = 20
ROUNDS, CALLS = 5, 10
PROPAGATION_STEPS = {"cuda": 60, "cpu": 1}
BY_KERNELS = 0.5  # of the seconds that a step of propagation takes by plain formulas


class Report:
    """Figures and bars, written anew after each part."""

    def __init__(self, path: Path | None, device: torch.device, config: Config) -> None:
        self.path, self.device = path, device
        self.bars: list[Bar] = []
        self.figures: dict[str, Any] = {
            "machine": machine(device),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "settings": config.to_dict(),
        }

    def add(self, part: str, figures: dict[str, Any]) -> None:
        """Print and keep the figures of a part."""
        self.figures[part] = figures
        print(part, json.dumps(figures, indent=2), flush=True)
        self.save()

    def bar(self, bar: Bar) -> None:
        """Hold a figure against its bound, on a GPU."""
        if self.device.type == "cuda":
            self.bars.append(bar)
            self.save()

    def save(self) -> None:
        if self.path is None:
            return
        bars = [{**asdict(bar), "kept": bar.kept} for bar in self.bars]
        draft = self.path.with_name(f"{self.path.name}.part")
        draft.write_text(json.dumps({**self.figures, "bars": bars}, indent=2), encoding="utf-8")
        draft.replace(self.path)


def machine(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


class Stages(Listener):
    """When each stage of a fit began."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, float]] = []

    def stage(self, what: str) -> None:
        self.begun.append((what, time.perf_counter()))

    def seconds(self) -> list[tuple[str, float]]:
        """The stages in their order with the seconds of each, up to now."""
        ends = [start for _, start in self.begun[1:]] + [time.perf_counter()]
        return [(what, round(end - start, 3)) for (what, start), end in zip(self.begun, ends, strict=True)]


def wait_for(device: torch.device) -> Callable[[], None]:
    """A function that returns when the device has done all its work."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Seconds a call, the best of several rounds; the first round is not counted."""
    wait, best = wait_for(device), float("inf")
    for number in range(ROUNDS + 1):
        wait()
        start = time.perf_counter()
        for _ in range(CALLS):
            work()
        wait()
        best = min(best, (time.perf_counter() - start) / CALLS) if number else best
    return best


def epochs(dataset: InductiveDataset, config: Config, report: Report) -> Fitted:
    """A fit of a few epochs without validation; an epoch ends with its loss on the CPU, so nothing is pending."""
    short = with_overrides(config, [f"training.epochs={EPOCHS}", "training.validation_rate=0"])
    stages = Stages()
    fitted = fit(dataset, short, device=report.device.type, report=stages)
    seconds = [float(record["seconds"]) for record in fitted.history]
    graph = fitted.model.graph
    figures = {
        "entities": graph.num_entities,
        "facts": len(graph.facts),
        "virtual": len(graph.virtual),
        "edges": len(graph.relations),
        "seconds": seconds,
        "stages": stages.seconds(),
        "loss": [float(record["loss"]) for record in fitted.history],
    }
    if report.device.type == "cuda":
        figures["peak_bytes"] = torch.cuda.max_memory_allocated()
    report.add("epochs", figures)
    report.bar(Bar("seconds an epoch", min(seconds), EPOCH_SECONDS, detail=f"best of {EPOCHS}"))
    return fitted


def parts(graph: GraphTensors, config: Config, report: Report) -> None:
    """One epoch with a wait around every part: the sum is more than an epoch takes without waiting."""
    trainer = Trainer(config, graph, report.device)
    trainer.epoch(0)
    watch = Stopwatch(wait_for(report.device))
    with watched(watch):
        trainer.epoch(1)
    report.add("seconds of the parts of an epoch, one after the other", dict(watch.seconds))
    print(watch.table())


def layers(graph: GraphTensors, config: Config, report: Report) -> None:
    """A structure-aware layer, forward and backward, by sparse product and by gather + index_add."""
    by_product, by_gathering = layer_on(half_true(graph), graph.num_relations, config.model.dim)
    fast, slow = (seconds_of(work, report.device) for work in (by_product, by_gathering))
    figures = {"sparse": fast, "gathered": slow, "ratio": slow / fast, "same": same(by_product(), by_gathering())}
    report.add("seconds of a structure layer, forward and backward", figures)


def products(graph: GraphTensors, config: Config, report: Report) -> None:
    """Bytes a second of the sum over neighbours, on the data set's edges and on made-up ones, beside a copy's."""
    copied = copy_speed(report.device)
    report.add("bytes a second of a copy on the device, read and written", {"copy": copied})
    made_up = random_rows(MADE_UP_EDGES[report.device.type], report.device)
    for name, rows in (("the data set's edges", graph.rows), ("made-up edges", made_up)):
        report.add(f"sparse product, {name}", product_speed(rows, config.model.dim, copied))


def copy_speed(device: torch.device) -> float:
    source = torch.zeros(COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES[device.type] / seconds_of(lambda: target.copy_(source), device)


def random_rows(edges: int, device: torch.device) -> Rows:
    """Every entity with about as many neighbours, drawn from all."""
    entities = edges // EDGES_AN_ENTITY
    generator = torch.Generator(device).manual_seed(0)
    first, second = (torch.randint(entities, (edges,), generator=generator, device=device) for _ in range(2))
    offsets = torch.zeros(entities + 1, dtype=torch.int64, device=device)
    torch.cumsum(torch.bincount(first, minlength=entities), 0, out=offsets[1:])
    return Rows(offsets, second, entities)


def product_speed(rows: Rows, dim: int, copied: float) -> dict[str, float]:
    device = rows.columns.device
    values = torch.rand(len(rows.columns), device=device)
    vectors = torch.randn(rows.width, dim, device=device)
    with torch.no_grad():
        seconds = seconds_of(lambda: weighted_sum(rows, values, vectors), device)
    gathered, least = product_bytes(rows, values, vectors)
    return {
        "edges": len(rows.columns),
        "entities": rows.num_rows,
        "seconds": seconds,
        "gathered_bytes_a_second": gathered / seconds,
        "gathered_of_peak": gathered / seconds / PEAK_BYTES_A_SECOND,
        "gathered_of_copy": gathered / seconds / copied,
        "least_bytes_a_second": least / seconds,
        "least_of_peak": least / seconds / PEAK_BYTES_A_SECOND,
        "least_of_copy": least / seconds / copied,
    }


def product_bytes(rows: Rows, values: Tensor, vectors: Tensor) -> tuple[int, int]:
    """Gathered and least, as the docstring of this file counts them."""
    entries, a_vector = len(values), vectors.shape[1] * vectors.element_size()
    both = entries * (rows.columns.element_size() + values.element_size()) + rows.num_rows * a_vector
    return both + entries * a_vector, both + rows.width * a_vector


def propagation(dataset: InductiveDataset, report: Report) -> None:
    """A step of training propagation: by kernels, where there are any, and beside it by plain formulas."""
    found = {"as it is": propagation_steps(dataset, report.device)}
    if report.device.type == "cuda" and gpu.available():
        again = propagation_steps(dataset, report.device)
        with patch.object(gpu, "available", lambda: False), patch.object(gpu, "keeps_halves", lambda: False):
            found["by formulas"] = propagation_steps(dataset, report.device)
        taken, others = found["as it is"]["seconds"], found["by formulas"]["seconds"]
        report.bar(Bar("a step of propagation by kernels, of one by plain formulas", taken / others, BY_KERNELS))
        found["as it is"]["same_again"] = again["loss"] == found["as it is"]["loss"]
    report.add("seconds of a step of training propagation", found)


def propagation_steps(dataset: InductiveDataset, device: torch.device) -> dict[str, Any]:
    """Seconds a step after a first few, the most memory, and the last loss."""
    steps, wait = PROPAGATION_STEPS[device.type], wait_for(device)
    trainer = PropagationTrainer(dataset.observed, int(dataset.is_seen.sum()), 10 * steps, 0, device)
    for number in range(2):
        trainer.step(number)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    wait()
    start = time.perf_counter()
    losses = [trainer.step(2 + number) for number in range(steps)]
    wait()
    figures = {"seconds": (time.perf_counter() - start) / steps, "loss": float(losses[-1])}
    return figures | ({"peak_bytes": torch.cuda.max_memory_allocated()} if device.type == "cuda" else {})


def whole_fit(dataset: InductiveDataset, config: Config, report: Report) -> None:
    """A fit as a user runs it: mining, search with validation, final model."""
    stages, start = Stages(), time.perf_counter()
    fitted = fit(dataset, config, device=report.device.type, report=stages)
    seconds = time.perf_counter() - start
    trained = [record["phase"] for record in fitted.history]
    figures = {
        "seconds": seconds,
        "stages": stages.seconds(),
        "epochs": {phase: trained.count(phase) for phase in sorted(set(trained))},
        "validation": fitted.metrics.get("validation"),
    }
    report.add("a whole fit", figures)
    report.bar(Bar("seconds of a whole fit", seconds, FIT_SECONDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a data set: its folder or its name")
    parser.add_argument("--device", default="cuda", choices=DEVICES)
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting")
    parser.add_argument("--full", action="store_true", help="a whole fit too")
    options = parser.parse_args()
    config, start = with_overrides(load_preset(PRESET), options.set), time.perf_counter()
    report = Report(options.out, choose_device(options.device), config)
    dataset = load_dataset(options.data)
    graph = epochs(dataset, config, report).model.graph
    for measure in (parts, layers, products):
        measure(graph, config, report)
    propagation(dataset, report)
    report.add("seconds in all, before a whole fit", {"seconds": time.perf_counter() - start})
    if options.full:
        whole_fit(dataset, config, report)
    finish(report.bars)


if __name__ == "__main__":
    main()
