"""How fast and in how little memory Horn rules are mined.

Time and peak memory on FB15K (when NEWCOMER_DATA names a folder that has it) and on synthetic graphs with power-law
degrees, then the ratio to the same counts made by sparse matrix products in the same run. The program ends with 1 when
a bar is missed. Times are the least of several runs after one that warms up; peaks are those of a process that loads
the triples as arrays and mines them.

    python benchmarks/bench_horn.py [--threads 2] [--repeats 5] [--largest]
"""

import argparse
import gzip
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules.mining import MiningPlan
from newcomer.rules.mining.horn import mine_horn
from newcomer.rules.rule import Kind, RuleSet

EVERY_RULE = MiningPlan(min_support=2, min_head_coverage=0.0)
FILES = {
    "FB15K Subject-10 O": ("fb15k-subject-10/train",),
    "FB15K Subject-10 O+AUX": ("fb15k-subject-10/train", "fb15k-subject-10/aux"),
    "FB15K": ("fb15k/train",),
}
SECONDS_BAR = {"FB15K Subject-10 O": 0.8, "FB15K Subject-10 O+AUX": 2.9, "FB15K": 10.0}
MEMORY_BAR = 350.0  # MB, of the whole process on FB15K
RATIO_BAR = 10.0  # times faster than sparse products (which use one core), with two threads
CURVE = (10_000, 100_000, 1_000_000)
LARGEST = 10_000_000


def read_graph(folder: Path, files: tuple[str, ...]) -> Graph:
    names = ["head", "relation", "tail"]
    options = {
        "read_options": pa.csv.ReadOptions(column_names=names),
        "parse_options": pa.csv.ParseOptions(delimiter="\t", quote_char=False),
        "convert_options": pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    }
    texts = (gzip.decompress((folder / f"{file}.txt.gz").read_bytes()) for file in files)
    table = pa.concat_tables([pa.csv.read_csv(io.BytesIO(text), **options) for text in texts])
    ends = pa.chunked_array([*table["head"].chunks, *table["tail"].chunks])
    entities, relations = Vocabulary(pc.unique(ends)), Vocabulary(pc.unique(table["relation"]))
    heads, tails = (entities.ids(table[name].combine_chunks()) for name in ("head", "tail"))
    return Graph.build(
        entities, relations, TripleArray(heads, relations.ids(table["relation"].combine_chunks()), tails)
    )


def synthetic_graph(triples: int, seed: int = 0) -> Graph:
    """Power-law degrees and relation sizes; a fifth of the triples repeat another's ends with another relation."""
    rng = np.random.default_rng(seed)
    entities, relations = max(triples // 8, 10), 200
    spread = rng.permutation(entities)

    def ends(count: int) -> npt.NDArray[np.int32]:
        # The density of ranks falls as rank ** -0.6: the largest degree grows with the graph, as it does in FB15K.
        return spread[(entities * rng.random(count) ** 2.5).astype(np.int64)].astype(np.int32)

    fresh = triples * 4 // 5
    heads, tails = ends(fresh), ends(fresh)
    again = rng.integers(fresh, size=triples - fresh)
    columns = np.concatenate([heads, heads[again]]), np.concatenate([tails, tails[again]])
    kinds = (relations * rng.random(triples) ** 2).astype(np.int32)
    return numbered_graph(entities, relations, TripleArray(columns[0], kinds, columns[1]))


def numbered_graph(entities: int, relations: int, triples: TripleArray) -> Graph:
    return Graph.build(Vocabulary(map(str, range(entities))), Vocabulary(map(str, range(relations))), triples)


def named_graph(name: str) -> Graph:
    if name in FILES:
        return read_graph(Path(os.environ["NEWCOMER_DATA"]), FILES[name])
    return synthetic_graph(int(name))


def two_step_paths(graph: Graph) -> int:
    return int((graph.degrees.astype(np.int64) ** 2).sum())


def peak_megabytes() -> float:
    """The most memory this process has held.

    Linux hands ru_maxrss on from the parent to a child, so a small child of a large parent would look large there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(path: Path, threads: int, repeats: int) -> dict[str, Any]:
    """Mine one stored graph; meant for a process of its own, so that the peak is this graph's."""
    with np.load(path) as stored:
        entities, relations = (int(size) for size in stored["sizes"])
        graph = numbered_graph(entities, relations, TripleArray.of(stored["rows"]))
    mine_horn(synthetic_graph(1000), EVERY_RULE, threads)  # compiles
    seconds, rules = [], 0
    for _ in range(repeats):
        result = mine_horn(graph, EVERY_RULE, threads)
        seconds.append(result.seconds)
        rules = len(result.rules)
    peak = peak_megabytes()
    figures = {"triples": len(graph), "paths": two_step_paths(graph), "rules": rules}
    return {**figures, "seconds": min(seconds), "peak": peak}


def measure_apart(graph: Graph, threads: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder, "graph.npz")
        np.savez(stored, sizes=np.array([graph.num_entities, graph.num_relations]), rows=graph.triples.rows)
        command = [sys.executable, __file__, "--one", str(stored), "--threads", str(threads), "--repeats", str(repeats)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: dict[str, Any] = json.loads(answer)
    return figures


def sparse_products(graph: Graph) -> npt.NDArray[np.int64]:
    """Chain rules with support >= 2 by sparse products: rows of head, body1, body2, support, body size, PCA body size.

    For each first atom one product with all second atoms side by side gives every distinct (x, b2, y).
    """
    from scipy import sparse

    n, size = graph.num_entities, graph.num_relations
    edges = graph.adjacency
    rows = np.repeat(np.arange(n), np.diff(edges.offsets))
    ones = np.ones(len(rows), dtype=np.int32)
    # Only the (b2, y) that occur are columns: a product takes scratch space for every column there is.
    ends, column = np.unique(edges.relations.astype(np.int64) * n + edges.tails, return_inverse=True)
    wide = sparse.csr_matrix((ones, (rows, column)), shape=(n, len(ends)))
    has = sparse.csr_matrix((ones, (rows, edges.relations)), shape=(n, 2 * size))
    has.data[:] = 1
    forward = graph.triples
    linked = forward.heads.astype(np.int64) * n + forward.tails
    by_pair = np.argsort(linked, kind="stable")
    linked, linked_relations = linked[by_pair], forward.relations[by_pair]
    distinct = np.asarray(has.sum(axis=0)).ravel()
    by_tail = distinct[:size] < distinct[size:]
    rules: list[npt.NDArray[np.int64]] = []
    known: list[Any] = []
    order = np.argsort(edges.relations, kind="stable")
    starts = np.searchsorted(edges.relations[order], np.arange(2 * size + 1))
    for first in range(2 * size):
        mine_edges = order[starts[first] : starts[first + 1]]
        step = sparse.csr_matrix((ones[: len(mine_edges)], (rows[mine_edges], edges.tails[mine_edges])), shape=(n, n))
        reached = (step @ wide).tocoo()
        second, y = np.divmod(ends[reached.col], n)
        x = reached.row.astype(np.int64)
        counts = sparse.csr_matrix((np.ones(len(x), dtype=np.int64), (x, second)), shape=(n, 2 * size))
        known.append((has.T @ counts).tocsr())
        body = np.bincount(second, minlength=2 * size)
        pair = x * n + y
        low, high = np.searchsorted(linked, pair, "left"), np.searchsorted(linked, pair, "right")
        repeat = high - low
        hit = np.repeat(low - np.concatenate([[0], np.cumsum(repeat)[:-1]]), repeat) + np.arange(repeat.sum())
        keys, support = np.unique(
            linked_relations[hit].astype(np.int64) * 2 * size + np.repeat(second, repeat), return_counts=True
        )
        keys, support = keys[support >= 2], support[support >= 2]
        head, second = np.divmod(keys, 2 * size)
        rules.append(np.stack([head, np.full_like(head, first), second, support, body[second]], axis=1))
    table = np.concatenate(rules)
    return np.column_stack([table, _known_pairs(table, known, by_tail, size)])


def _known_pairs(
    table: npt.NDArray[np.int64], known: list[Any], by_tail: npt.NDArray[np.bool_], size: int
) -> npt.NDArray[np.int64]:
    head, first, second = table[:, 0], table[:, 1], table[:, 2]
    turn = by_tail[head]
    side = np.where(turn, head + size, head)
    start = np.where(turn, (second + size) % (2 * size), first)
    end = np.where(turn, (first + size) % (2 * size), second)
    pairs = np.empty(len(table), dtype=np.int64)
    for atom in np.unique(start):
        rows = start == atom
        pairs[rows] = np.asarray(known[atom][side[rows], end[rows]]).ravel()
    return pairs


def chain_table(rules: RuleSet) -> npt.NDArray[np.int64]:
    chains = rules.where(rules.kinds == Kind.TWO)
    ids = np.stack([chains.heads, chains.body1, chains.body2], axis=1).astype(np.int64)
    return np.column_stack([ids, chains.support, chains.body_size, chains.pca_body_size])


def in_order(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return table[np.lexsort(table.T[2::-1])]


def compare(name: str, threads: int, repeats: int) -> list[str]:
    """The ratio to sparse products, on the same counts: they are checked to be equal."""
    try:
        import scipy  # noqa: F401
    except ImportError:
        print("\nNo ratio: sparse products need scipy; install it with: pip install scipy")
        return []
    graph, limits = named_graph(name), MiningPlan(min_support=2, min_head_coverage=0.0, kinds=(Kind.TWO,))
    mine_horn(graph, limits, threads)
    runs = [mine_horn(graph, limits, threads) for _ in range(repeats)]
    ours = min(run.seconds for run in runs)
    started = time.perf_counter()
    theirs_table = sparse_products(graph)
    theirs = time.perf_counter() - started
    if not np.array_equal(in_order(theirs_table), in_order(chain_table(runs[0].rules))):
        return [f"{name}: sparse products give other counts"]
    print(f"\nchains of {name}: sparse products {theirs:.2f} s, newcomer {ours:.3f} s, ratio {theirs / ours:.1f}")
    return [] if theirs / ours >= RATIO_BAR else [f"{name}: ratio {theirs / ours:.1f} is under {RATIO_BAR}"]


def row(name: str, figures: dict[str, Any]) -> None:
    per_path = figures["seconds"] / figures["paths"] * 1e9
    print(
        f"{name:<24}{figures['triples']:>12,}{figures['paths']:>17,}{figures['rules']:>11,}"
        f"{figures['seconds']:>9.3f} s{per_path:>9.2f} ns{figures['peak']:>8.0f} MB"
    )


def real_graphs(threads: int, repeats: int) -> list[str]:
    if "NEWCOMER_DATA" not in os.environ:
        print("FB15K is left out: set NEWCOMER_DATA to the folder that holds fb15k and fb15k-subject-10")
        return []
    misses = []
    for name, bar in SECONDS_BAR.items():
        figures = measure_apart(named_graph(name), threads, repeats)
        row(name, figures)
        if figures["seconds"] > bar:
            misses.append(f"{name}: {figures['seconds']:.2f} s is over {bar} s")
        if figures["peak"] > MEMORY_BAR:
            misses.append(f"{name}: {figures['peak']:.0f} MB is over {MEMORY_BAR:.0f} MB")
    return misses


def size_curve(sizes: tuple[int, ...], threads: int, repeats: int) -> list[str]:
    """Time should not grow faster than the number of two-step paths; a factor of 1.5 is left to the caches."""
    misses, before = [], 0.0
    for triples in sizes:
        figures = measure_apart(synthetic_graph(triples), threads, repeats if triples <= 100_000 else min(repeats, 2))
        row(f"synthetic {triples:,}", figures)
        per_path = figures["seconds"] / figures["paths"]
        if before and per_path > 1.5 * before:
            misses.append(f"synthetic {triples:,}: time grew faster than the two-step paths")
        before = per_path
    return misses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", action="store_true", help="also ten million synthetic triples")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Path(options.one), options.threads, options.repeats)))
        return 0
    print(f"{'graph':<24}{'triples':>12}{'two-step paths':>17}{'rules':>11}{'time':>11}{'a path':>12}{'peak':>11}")
    misses = real_graphs(options.threads, options.repeats)
    misses += size_curve(CURVE + ((LARGEST,) if options.largest else ()), options.threads, options.repeats)
    compared = "FB15K Subject-10 O" if "NEWCOMER_DATA" in os.environ else "100000"
    misses += compare(compared, options.threads, options.repeats)
    for miss in misses:
        print(f"MISSED: {miss}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
