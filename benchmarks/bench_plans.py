"""A training and its plan: how far estimates are off, what silent hubs save, and when the first model is there.

The ratios are measured on the sample and on a made-up graph of hubs, in seconds of the CPU on one thread. With
``--whole`` FB15K Subject-10 is trained by the settings that `newcomer train` has, on two threads by the clock (needs
NEWCOMER_DATA and ten minutes of an idle machine); ``--facts N`` does so with a made-up graph of so many facts, within
``--minutes``.
"""

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench_training import CPU, best_cpu_seconds
from harness import Bar, Child, data_folder, finish, in_child
from newcomer.config import load_preset
from newcomer.data import load_dataset
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.training.candidate_propagation import CandidateTrainer
from newcomer.training.pipeline import Fitted, Limits, Listener, fit
from newcomer.training.runtime import deterministic
from newcomer.training.schedule import Schedule

DATA, SCRIPTS = "fb15k-subject-10", Path(__file__).parent.parent / "scripts"
ENTITIES, HUBS, HUB_FACTS = 20_000, 8, 500
SILENT_BAR, OFF_BAR = 10.0, 3.0
FIRST_SECONDS, WHOLE_SECONDS, GIGABYTES = 60.0, 600.0, 12.0
IN_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import bench_plans; bench_plans.train(*sys.argv[2:])\n"


class Watched(Listener):
    """The plan, and when it and the first model were there."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.first_at = self.planned = self.memory = 0.0

    def schedule(self, schedule: Schedule, mined: bool) -> None:
        self.planned, self.memory = time.monotonic() - self.began + schedule.seconds, schedule.memory


def silent_hubs() -> Bar:
    """A step by drawn candidates where everyone has two facts with hubs: all send messages, or the others only."""
    generator = np.random.default_rng(0)
    near = (np.arange(ENTITIES)[:, None] + generator.integers(1, 20, size=(ENTITIES, 4))) % ENTITIES
    tails = np.concatenate([near, ENTITIES + generator.integers(HUBS, size=(ENTITIES, 2))], axis=1).astype(np.int32)
    heads = np.repeat(np.arange(ENTITIES, dtype=np.int32), 6)
    relations = np.tile(np.array([0, 1, 2, 3, 4, 5], dtype=np.int32), ENTITIES)
    names = (Vocabulary(map(str, range(count))) for count in (ENTITIES + HUBS, 6))
    graph = Graph.build(next(names), next(names), TripleArray(heads, relations, tails.ravel()))
    taken = []
    for hub_facts in (HUB_FACTS, 0):
        with deterministic(CPU, 1):
            trainer = CandidateTrainer(graph, graph.num_entities, 100, 0, 1, hub_facts)
            trainer.step(0)
            taken.append(best_cpu_seconds(2, functools.partial(trainer.step, 2)))
    detail = f"{1000 * taken[1]:.0f} ms against {1000 * taken[0]:.0f} ms, {len(graph):,} facts, {HUBS} hubs"
    name = "a step of propagation, all send / hubs silent"
    return Bar(name, taken[1] / taken[0], SILENT_BAR, at_least=True, detail=detail)


def train(data: str, minutes: str, threads: str) -> None:
    """In a process of its own: train, and tell what was planned and taken."""
    limits = Limits(None if minutes == "none" else 60 * float(minutes))
    watched, dataset = Watched(), load_dataset(data)

    def first(_: Fitted) -> None:
        watched.first_at = time.monotonic() - watched.began

    fitted = fit(
        dataset, load_preset("default"), device="cpu", threads=int(threads), report=watched, limits=limits, first=first
    )
    taken = time.monotonic() - watched.began
    validation = fitted.metrics["validation"]
    figures = {
        "planned": watched.planned,
        "memory": watched.memory,
        "taken": taken,
        "first": watched.first_at,
        "model": validation["model"]["mrr"],
        "rules": validation["rules"]["mrr"],
    }
    print(json.dumps(figures))


def trained(data: str, minutes: str = "none", threads: int = 2) -> Child:
    return in_child(IN_CHILD, str(Path(__file__).parent), data, minutes, str(threads))


def plan_bars(name: str, child: Child) -> list[Bar]:
    said = child.said
    pairs = ("seconds", said["planned"], said["taken"]), ("bytes", said["memory"], child.peak_bytes)
    return [
        Bar(
            f"{name}: {unit} planned and taken, the more / the less",
            max(planned, taken) / min(planned, taken),
            OFF_BAR,
            detail=f"{planned:,.0f} and {taken:,.0f}",
        )
        for unit, planned, taken in pairs
    ]


def whole() -> list[Bar]:
    """Subject-10 by the clock, on two threads."""
    if data_folder(DATA) is None:
        return []
    child = trained(DATA)
    said = child.said
    ahead = f"validation MRR {100 * said['model']:.1f}, rules alone {100 * said['rules']:.1f}"
    return [
        Bar("seconds to a first model of Subject-10", said["first"], FIRST_SECONDS),
        Bar("seconds of a whole training of Subject-10", said["taken"], WHOLE_SECONDS, detail=ahead),
        *plan_bars("Subject-10", child),
    ]


def large(facts: int, minutes: float) -> list[Bar]:
    """A made-up graph of so many facts, within a limit of time."""
    with tempfile.TemporaryDirectory() as place:
        data = str(Path(place) / "made-up.parquet")
        command = [sys.executable, str(SCRIPTS / "make_synthetic.py"), "--facts", str(facts), "--out", data]
        subprocess.run(command, check=True)
        child = trained(data, str(minutes))
    said = child.said
    gained = 100 * (said["model"] - said["rules"])
    return [
        Bar(f"minutes of training {facts:,} made-up facts", said["taken"] / 60, minutes),
        Bar("gigabytes of that", child.peak_bytes / 1e9, GIGABYTES),
        Bar("validation MRR beyond the rules alone", gained, 0.0, at_least=True, detail=f"rules {said['rules']:.3f}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="train FB15K Subject-10 by the clock")
    parser.add_argument("--facts", type=int, help="train a made-up graph of so many facts")
    parser.add_argument("--minutes", type=float, default=60.0, help="of that")
    options = parser.parse_args()
    bars = [silent_hubs(), *plan_bars("the sample", trained("sample", threads=1))]
    if options.whole:
        bars += whole()
    if options.facts:
        bars += large(options.facts, options.minutes)
    finish(bars)


if __name__ == "__main__":
    main()
