"""Symmetric-path rules: all newcomers of a split, one newcomer alone, and compiled walks against plain Python ones.

With NEWCOMER_DATA set also FB15K Subject-10: what 100, 1,000 and 10,000 walks conclude, and how much of it is true.
"""

import random
import time
from bisect import bisect_left, bisect_right

import numpy as np

from harness import Bar, best_of, data_folder, finish
from newcomer.data import load_dataset
from newcomer.data.describe import neighbours_per_predicted_fact
from newcomer.graph import Adjacency, Graph, Ids, InductiveDataset, Overlay, TripleArray, Vocabulary, concatenate
from newcomer.rules.mining.symmetric_paths import PathGroundings, PathLimits, symmetric_paths, virtual_edges
from newcomer.rules.mining.symmetric_walks import WalkGraph


def synthetic(entities: int, triples: int, relations: int, seed: int) -> Graph:
    """A graph whose tails follow a power law."""
    rng = np.random.default_rng(seed)
    tails = (entities * rng.random(triples) ** 3).astype(np.int32)
    rows = np.stack([rng.integers(entities, size=triples), rng.integers(relations, size=triples), tails], axis=1)
    names = Vocabulary(f"e{i}" for i in range(entities))
    return Graph.build(names, Vocabulary(f"r{i}" for i in range(relations)), TripleArray.of(rows))


def plain_walk(graph: Adjacency, start: int, num_relations: int, rng: random.Random) -> bool:
    """The same walk in plain Python; whether it came back."""
    arm = rng.choice((1, 2, 3))
    nodes, kind = [start], list[int]()
    for step in range(2 * arm):
        relations, tails = graph.of(nodes[-1])
        low, high = 0, len(relations)
        if step >= arm:
            wanted = (kind[2 * arm - 1 - step] + num_relations) % (2 * num_relations)
            low, high = bisect_left(relations, wanted), bisect_right(relations, wanted)
        if low == high:
            return False
        place = rng.randrange(low, high)
        if int(tails[place]) in nodes:
            return False
        kind.append(int(relations[place]))
        nodes.append(int(tails[place]))
    return True


def speed_of_walks(graph: Graph, starts: Ids) -> Bar:
    walks, rng = 1000, random.Random(0)
    ready, limits = WalkGraph(graph.adjacency, graph.num_relations), PathLimits(walks=walks)
    compiled = best_of(3, lambda: symmetric_paths(ready, starts, limits, 0))
    plain = best_of(
        1, lambda: [plain_walk(graph.adjacency, int(e), graph.num_relations, rng) for e in starts for _ in range(walks)]
    )
    return Bar(
        "plain Python / compiled, the same walks", plain / compiled, 5, at_least=True, detail=f"{compiled:.3f} s"
    )


def cost_of_one(adjacency: Adjacency, size: int, asked: Ids) -> Bar:
    all_of_them = best_of(3, lambda: virtual_edges(adjacency, asked, size, threads=1)) / len(asked)
    one = best_of(5, lambda: [virtual_edges(adjacency, [int(e)], size) for e in asked[:10]]) / 10
    return Bar("one entity alone / its share of a batch", one / all_of_them, 5, detail=f"{1000 * one:.2f} ms")


def lift(dataset: InductiveDataset, found: PathGroundings) -> tuple[Ids, float]:
    """The distinct triples, and what they add to the neighbours per predicted fact."""
    triples = np.unique(np.stack([found.entities, found.relations, found.others], axis=1), axis=0)
    more = np.bincount(triples[:, 0], minlength=len(dataset.entities)).astype(np.int32)
    degrees = dataset.auxiliary.degrees
    before = neighbours_per_predicted_fact(dataset, degrees) or 0.0
    return triples, (neighbours_per_predicted_fact(dataset, degrees + more) or 0.0) - before


def true_share(dataset: InductiveDataset, full: Graph, triples: Ids) -> float:
    """The share of the triples that the original graph holds."""
    entity = full.entities.ids(dataset.entities.names)
    relation = full.relations.ids(dataset.relations.names)
    size = len(dataset.relations)
    inverse = triples[:, 1] >= size
    relations = relation[triples[:, 1] % size] + np.where(inverse, full.num_relations, 0)
    return float(full.contains(entity[triples[:, 0]], relations, entity[triples[:, 2]]).mean())


def subject_10() -> list[Bar]:
    if data_folder("fb15k-subject-10") is None or data_folder("fb15k") is None:
        return []
    dataset, full = load_dataset("fb15k-subject-10"), load_dataset("fb15k").known()
    merged = Graph.build(
        dataset.entities, dataset.relations, concatenate([dataset.observed.triples, dataset.auxiliary.triples])
    )
    asked, size = dataset.test_newcomers, merged.num_relations
    print(f"{'graph':>9} {'walks':>6} {'seconds':>8} {'groundings':>10} {'triples':>8} {'lift':>6} {'true':>5}")
    for name, facts in (("merged", merged.adjacency), ("own facts", Overlay.of_dataset(dataset).own_rows)):
        for walks in (100, 1000, 10_000):
            start = time.perf_counter()
            found = virtual_edges(facts, asked, size, PathLimits(walks=walks))
            seconds = time.perf_counter() - start
            triples, gain = lift(dataset, found)
            share = true_share(dataset, full, triples)
            print(
                f"{name:>9} {walks:>6} {seconds:>8.2f} {len(found):>10,} {len(triples):>8,} {gain:>+6.2f} {share:>5.2f}"
            )
    return [cost_of_one(Overlay.of_dataset(dataset).own_rows, size, asked)]


def main() -> None:
    graph = synthetic(entities=5000, triples=50_000, relations=50, seed=0)
    starts = np.arange(20, dtype=np.int32)
    virtual_edges(graph.adjacency, starts, graph.num_relations)  # compile outside the measured part
    finish([speed_of_walks(graph, starts), cost_of_one(graph.adjacency, graph.num_relations, starts), *subject_10()])


if __name__ == "__main__":
    main()
