"""Ranking the test queries of FB15K Subject-10: seconds, memory, and the same figures as PyKEEN's evaluator.

    python benchmarks/bench_evaluation.py [DATA] [--device cuda] [--threads 2] [--pykeen PYTHON]

DATA is a data set's folder; without it the set is looked for in NEWCOMER_DATA. Three scorers are ranked by, each in a
process of its own:

    plain     DistMult: a vector an entity, d = 100
    embedding the preset paper-fb15k with random weights: candidates are embedded anew for each relation that is asked
    rules     the rules that this preset mines, without an embedding; always on the CPU

Seconds are those of ranking all queries, filters included, with a scorer at hand; memory is what that takes at most
beyond the data and the scorer. Neither depends on how good the scorer is.

PYTHON is the interpreter of an environment with PyKEEN (1.11), which is no dependency of this project. Both evaluators
get the same embeddings of a DistMult that was trained briefly, the same filter and the same number of threads, and take
turns on the CPU; PyKEEN has the batch size that suits it best. Rounded to quarters, the embeddings have exact
scores and many ties: there the figures have to agree as far as PyKEEN's single precision goes.
"""

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional

from bench_training import memory
from harness import Bar, best_of, data_folder, finish, in_child
from newcomer.config import load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.evaluation.ranking import Queries, RankingProtocol, Scorer, evaluate_under, queries_of
from newcomer.graph import InductiveDataset, Overlay
from newcomer.models.embedding.decoders import DistMult
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.embedding.model import Model, build_model
from newcomer.models.engine import InferenceEngine, SnapshotScorer, StoredNewcomers, TrainedModel
from newcomer.models.vn.encoder import VNEncoder
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.rules.rule import RuleSet
from newcomer.training.preparation import Prepared, prepare, under_protocol

DATA, PRESET, DIM = "fb15k-subject-10", "paper-fb15k", 100
SECONDS = {"cpu": 60.0, "cuda": 2.0}
GIGABYTES = 1.0
REPEATS = {"plain": 5, "embedding": 2, "rules": 5}
IN_CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import bench_evaluation
bench_evaluation.measure(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
"""
EPOCHS, BATCH, LEARNING_RATE = 2, 1024, 0.01
BATCH_SIZES = (8, 16, 32, 64, 128)  # that PyKEEN may choose from
ROUNDS = 5
PYKEEN_BAR = 1.0  # our seconds of theirs
DECIMAL, LAST_DIGIT = 1e-4, 1e-6
Vectors = tuple[Tensor, Tensor]  # of entities, of relations


def random_vectors(dataset: InductiveDataset) -> Vectors:
    generator = torch.Generator().manual_seed(0)
    sizes = len(dataset.entities), len(dataset.relations)
    return torch.randn(sizes[0], DIM, generator=generator), torch.randn(sizes[1], DIM, generator=generator)


def plain(dataset: InductiveDataset, vectors: Vectors, device: torch.device) -> Scorer:
    """A DistMult: the VN network without layers, with newcomers among the seen entities."""
    everyone = under_protocol(dataset, "transductive")
    generator, (num_entities, num_relations) = torch.Generator(), map(len, vectors)
    encoder = VNEncoder(num_entities, num_relations, DIM, 0.0, generator, layers=0, query_aware=False)
    model = Model(encoder, DistMult(num_relations, DIM, generator))
    with torch.no_grad():
        encoder.vectors.copy_(vectors[0])
        model.decoder.vectors.copy_(vectors[1])
    config = with_overrides(load_preset(PRESET), ["model.labels=none", "rules.paths=false"])
    graph = build_graph_tensors(everyone.observed, num_entities, None, device)
    no_rules, no_labels = RuleSet.empty(num_relations), torch.empty(0, device=device)
    return asked(TrainedModel(config, everyone.observed, no_rules, model.to(device), graph, no_labels))


def asked(model: TrainedModel, newcomers: StoredNewcomers | None = None, threads: int | None = None) -> SnapshotScorer:
    engine = InferenceEngine(model, newcomers, threads)
    return SnapshotScorer(engine, engine.initial)


def figures(dataset: InductiveDataset, scorer: Scorer, ties: str = "mean") -> dict[str, float]:
    return evaluate_under(dataset, scorer, [RankingProtocol(ties=ties)])[0].metrics()


@cache
def prepared(dataset: InductiveDataset, threads: int) -> Prepared:
    return prepare(dataset, load_preset(PRESET), threads=threads)


def embedding(dataset: InductiveDataset, device: torch.device, threads: int) -> Scorer:
    ready, config = prepared(dataset, threads), load_preset(PRESET)
    graph = build_graph_tensors(ready.dataset.observed, ready.num_seen, ready.seen_neighbors, device)
    model = build_model(config.model, ready.num_seen, len(dataset.relations), 0).to(device)
    labels = torch.full((len(graph.virtual),), 0.5, device=device)
    parts = config, ready.dataset.observed, ready.rules, model, graph, labels, ready.seen_neighbors
    return asked(TrainedModel(*parts), StoredNewcomers(ready.dataset.auxiliary.triples), threads)


def rules(dataset: InductiveDataset, threads: int) -> Scorer:
    ready = prepared(dataset, threads)
    return RuleScorer(RuleRanker.of(ready.rules), Overlay.of_dataset(ready.dataset), threads)


def measure(data: str, kind: str, device: str, threads: int) -> None:
    """In a process of its own: one scorer's seconds and memory."""
    torch.set_num_threads(threads)
    dataset, place = load_dataset(data), torch.device(device)
    scorers: dict[str, Callable[[], Scorer]] = {
        "plain": lambda: plain(dataset, random_vectors(dataset), place),
        "embedding": lambda: embedding(dataset, place, threads),
        "rules": lambda: rules(dataset, threads),
    }
    scorer = scorers[kind]()
    hand_back_memory()
    idle, on_device = memory("VmRSS"), torch.cuda.memory_allocated() if device == "cuda" else 0
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew: the scorer is not counted
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = best_of(REPEATS[kind], lambda: figures(dataset, scorer))
    found = {"seconds": seconds, "bytes": memory("VmHWM") - idle, "queries": len(queries_of(dataset))}
    if device == "cuda":
        found["device_bytes"] = torch.cuda.max_memory_allocated() - on_device
    print(json.dumps({**found, "candidates": len(dataset.entities)}))


def hand_back_memory() -> None:
    """What preparing has freed goes back to the system: else ranking would use it unseen."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def speed(data: str, device: str, threads: int) -> list[Bar]:
    bars = []
    for kind, repeats in REPEATS.items():
        place = "cpu" if kind == "rules" else device
        said = in_child(IN_CHILD, str(Path(__file__).parent), data, kind, place, str(threads)).said
        detail = f"{said['queries']:,.0f} queries x {said['candidates']:,.0f} candidates, best of {repeats}, {place}"
        taken = max(said["bytes"], said.get("device_bytes", 0.0)) / 1e9
        bars += [
            Bar(f"{kind}: seconds", said["seconds"], SECONDS[place], detail=detail),
            Bar(f"{kind}: GB beyond the scorer", taken, GIGABYTES),
        ]
    return bars


def trained(dataset: InductiveDataset) -> Vectors:
    """A DistMult of all known facts after a few epochs; the other tails of a batch are a fact's negatives."""
    facts = torch.from_numpy(dataset.known_facts().triples.rows.astype(np.int64))
    entities, relations = (vectors.mul_(0.3).requires_grad_() for vectors in random_vectors(dataset))
    optimiser, generator = torch.optim.Adam([entities, relations], LEARNING_RATE), torch.Generator().manual_seed(0)
    for _ in range(EPOCHS):
        for places in torch.split(torch.randperm(len(facts), generator=generator), BATCH):
            heads, asked, tails = facts[places].unbind(dim=1)
            scores = (entities[heads] * relations[asked]) @ entities[tails].mT
            optimiser.zero_grad()
            torch.autograd.backward(functional.cross_entropy(scores, torch.arange(len(places))))
            optimiser.step()
    return entities.detach(), relations.detach()


def rounded(vectors: Vectors) -> Vectors:
    """Multiples of a quarter: products are multiples of 1/64, and so small that their sums are exact in any order."""
    entities, relations = ((4 * one).round() / 4 for one in vectors)
    return entities, relations


class Pykeen:
    """PyKEEN's evaluator at work in another process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def rank(self, batch_size: int) -> dict[str, float]:
        """Seconds, and the mean reciprocal rank by the way ties are broken."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(batch_size, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("PyKEEN gave no answer; its error is above")
        said: dict[str, float] = json.loads(line)
        return said


@contextmanager
def pykeen(python: str, dataset: InductiveDataset, vectors: Vectors, threads: int) -> Iterator[Pykeen]:
    """PyKEEN with these embeddings, this data set's queries and the known filter."""
    with tempfile.TemporaryDirectory() as folder:
        files = {"entities": vectors[0].numpy(), "relations": vectors[1].numpy()}
        files |= {"known": dataset.known().triples.rows.astype(np.int64), **sides(dataset, queries_of(dataset))}
        for name, rows in files.items():
            np.save(Path(folder) / f"{name}.npy", rows)
        command = [python, str(Path(__file__).with_name("pykeen_ranks.py")), folder, str(threads)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Pykeen(process)
            finally:
                process.kill()


def sides(dataset: InductiveDataset, queries: Queries) -> dict[str, npt.NDArray[np.int64]]:
    """The triples whose tails are asked for, and those whose heads are; a side that nobody asks for is left out."""
    inverse = queries.relation >= len(dataset.relations)
    forth = np.stack([queries.entity, queries.relation, queries.answer], axis=1)[~inverse]
    back = np.stack([queries.answer, queries.relation - len(dataset.relations), queries.entity], axis=1)[inverse]
    return {side: rows.astype(np.int64) for side, rows in (("tail", forth), ("head", back)) if len(rows)}


def against_pykeen(dataset: InductiveDataset, python: str, threads: int) -> list[Bar]:
    torch.set_num_threads(threads)
    vectors = trained(dataset)
    ours, theirs, difference = in_turns(dataset, vectors, python, threads)
    detail = f"best of {ROUNDS} in turns, {threads} threads"
    return [
        Bar("our seconds / PyKEEN's", ours / theirs, PYKEEN_BAR, detail=f"{ours:.2f} s, {theirs:.2f} s; {detail}"),
        Bar("MRR, ours and PyKEEN's: apart by so many units of the fourth decimal", difference / DECIMAL, 0.5),
        exactly(dataset, rounded(vectors), python, threads),
    ]


def in_turns(dataset: InductiveDataset, vectors: Vectors, python: str, threads: int) -> tuple[float, float, float]:
    """Our best seconds, theirs, and how far the figures are apart."""
    scorer = plain(dataset, vectors, torch.device("cpu"))
    ours, theirs = [], []
    with pykeen(python, dataset, vectors, threads) as other:
        other.rank(BATCH_SIZES[-1])  # the first time is longer for both
        mine = figures(dataset, scorer)["mrr"]
        tried = {size: other.rank(size)["seconds"] for size in BATCH_SIZES}
        size = min(tried, key=tried.__getitem__)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            figures(dataset, scorer)
            ours.append(time.perf_counter() - start)
            said = other.rank(size)
            theirs.append(said["seconds"])
    print(f"MRR {mine:.6f}, PyKEEN's {said['mean']:.6f} with batches of {size}")
    return min(ours), min(theirs), abs(mine - said["mean"])


def exactly(dataset: InductiveDataset, vectors: Vectors, python: str, threads: int) -> Bar:
    """The largest difference over the ways to break ties, where both have the same scores to the last bit."""
    scorer = plain(dataset, vectors, torch.device("cpu"))
    with pykeen(python, dataset, vectors, threads) as other:
        said = other.rank(BATCH_SIZES[1])
    ties = ("optimistic", "mean", "pessimistic")
    found = {name: figures(dataset, scorer, name)["mrr"] for name in ties}
    detail = ", ".join(f"{name} {found[name]:.6f} and {said[name]:.6f}" for name in ties)
    difference = max(abs(found[name] - said[name]) for name in ties)
    return Bar(
        "MRR with exact scores and ties: apart by so many millionths", difference / LAST_DIGIT, 1.0, detail=detail
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="the folder of a data set")
    parser.add_argument("--device", default="cpu", choices=sorted(SECONDS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pykeen", metavar="PYTHON", help="an interpreter that has PyKEEN")
    options = parser.parse_args()
    data = options.data or data_folder(DATA)
    if data is None:
        return
    bars = speed(str(data), options.device, options.threads)
    if options.pykeen is None:
        print("skipped: PyKEEN's evaluator (--pykeen names an interpreter that has it)")
    else:
        bars += against_pykeen(load_dataset(data), options.pykeen, options.threads)
    finish(bars)


if __name__ == "__main__":
    main()
