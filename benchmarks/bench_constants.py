"""Rules about one variable and chains of three atoms: compiled counting against plain Python, the same counts.

With NEWCOMER_DATA set also FB15K Subject-10's observed graph: rules, seconds and peak memory for several limits, and
what several numbers of samples find.
"""

import time
from collections import Counter, defaultdict
from functools import partial

import numpy as np

from harness import Bar, best_of, data_folder, finish, in_child
from newcomer.data import load_dataset
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules.mining.chains import ChainLimits, mine_chains
from newcomer.rules.mining.constants import ConstantLimits, mine_constants
from newcomer.rules.rule import Kind, RuleSet

THREADS = 2
CONSTANT_SECONDS = 3.0  # FB15K Subject-10, every limit below
CHAIN_SECONDS = 30.0  # FB15K Subject-10, the default number of samples
MEMORY_BAR = 150.0  # MB, beyond what importing and reading took
LOAD = """
from newcomer.data import load_dataset
from newcomer.rules.mining.chains import mine_chains
from newcomer.rules.mining.chains import ChainLimits
from newcomer.rules.mining.constants import ConstantLimits, mine_constants
graph = load_dataset("fb15k-subject-10").observed
"""
MINE_BOTH = """
mine_constants(graph, ConstantLimits(min_support=3), threads=2)
mine_chains(graph, ChainLimits(min_support=3), threads=2)
"""


def synthetic(entities: int, triples: int, relations: int, seed: int = 0) -> Graph:
    """A graph whose tails follow a power law."""
    rng = np.random.default_rng(seed)
    tails = (entities * rng.random(triples) ** 3).astype(np.int32)
    rows = np.stack([rng.integers(entities, size=triples), rng.integers(relations, size=triples), tails], axis=1)
    names = Vocabulary(f"e{i}" for i in range(entities))
    return Graph.build(names, Vocabulary(f"r{i}" for i in range(relations)), TripleArray.of(rows))


def plain_constants(graph: Graph, limits: ConstantLimits) -> int:
    """How many CONSTANT rules there are, counted with dictionaries."""
    size, rows = graph.num_relations, defaultdict(list)
    for head, relation, tail in graph.triples.rows.tolist():
        rows[head].append((relation, tail))
        rows[tail].append((relation + size, head))
    sizes, members = Counter(atom for atoms in rows.values() for atom in atoms), defaultdict(list)
    for x, atoms in rows.items():
        for atom in atoms:
            members[atom].append(x)
    found = 0
    for head, those in members.items():
        if len(those) >= limits.min_support:
            support = Counter(atom for x in those for atom in rows[x])
            found += sum(
                atom != head and count >= limits.min_support and count / sizes[atom] >= limits.min_confidence
                for atom, count in support.items()
            )
    return found


def speed_of_constants() -> Bar:
    graph, limits = synthetic(10_000, 100_000, 20), ConstantLimits(kinds=(Kind.CONSTANT,))
    found = len(mine_constants(graph, limits, THREADS))
    compiled = best_of(3, lambda: mine_constants(graph, limits, THREADS))
    started = time.perf_counter()
    assert plain_constants(graph, limits) == found > 0
    plain = time.perf_counter() - started
    return Bar("constants: plain Python / compiled", plain / compiled, 5, at_least=True, detail=f"{compiled:.3f} s")


def plain_chains(graph: Graph, rules: RuleSet) -> list[tuple[int, int]]:
    """Support and body size of each rule, counted with sets."""
    size, steps, starts = graph.num_relations, defaultdict(list), defaultdict(list)
    facts = set(map(tuple, graph.triples.rows.tolist()))
    for head, relation, tail in facts:
        for q, a, b in ((relation, head, tail), (relation + size, tail, head)):
            if (a, q) not in steps:
                starts[q].append(a)
            steps[a, q].append(b)
    counts = []
    for rule in rules:
        pairs = {
            (x, y)
            for x in starts[rule.body1]
            for z in steps.get((x, rule.body1), ())
            for w in steps.get((z, rule.body2), ())
            for y in steps.get((w, rule.body3), ())
            if len({x, y, z, w}) == 4
        }
        counts.append((sum((x, rule.head, y) in facts for x, y in pairs), len(pairs)))
    return counts


def speed_of_chains() -> Bar:
    """Compiled: sampling and counting of all candidates. Plain: counting alone, of a few, scaled to all."""
    graph = synthetic(2_000, 20_000, 20)
    limits = ChainLimits(200_000, min_support=1, min_confidence=0.0, max_pairs=10**9, max_steps=10**12)
    result = mine_chains(graph, limits, threads=THREADS)
    compiled = best_of(3, lambda: mine_chains(graph, limits, threads=THREADS))
    few = result.where(np.arange(0, len(result), max(1, len(result) // 20)))
    started = time.perf_counter()
    assert plain_chains(graph, few) == list(zip(few.support.tolist(), few.body_size.tolist(), strict=True))
    plain = (time.perf_counter() - started) / len(few) * len(result)
    return Bar("chains: plain Python / compiled", plain / compiled, 5, at_least=True, detail=f"{compiled:.2f} s")


def constants_of(graph: Graph) -> Bar:
    print(f"\n{'min support':>12}{'confidence':>12}{'constant':>12}{'exists':>10}{'time':>10}")
    slowest = 0.0
    for support in (5, 3):
        for confidence in (0.3, 0.1, 0.05):
            limits = ConstantLimits(min_support=support, min_confidence=confidence)
            kinds = mine_constants(graph, limits, THREADS).kinds
            seconds = best_of(3, partial(mine_constants, graph, limits, THREADS))
            counts = [int((kinds == kind).sum()) for kind in limits.kinds]
            print(f"{support:>12}{confidence:>12}{counts[0]:>12,}{counts[1]:>10,}{seconds:>8.2f} s")
            slowest = max(slowest, seconds)
    return Bar("constants of FB15K Subject-10, seconds of those allowed", slowest / CONSTANT_SECONDS, 1)


def chains_of(graph: Graph) -> Bar:
    print(f"\n{'samples':>12}{'rules':>10}{'>= 0.3':>10}{'>= 0.5':>10}{'time':>10}")
    mine_chains(graph, ChainLimits(samples=100_000), threads=THREADS)
    seconds = 0.0
    for samples in (1_000_000, 5_000_000, ChainLimits().samples):
        started = time.perf_counter()
        result = mine_chains(graph, ChainLimits(samples, min_support=3), threads=THREADS)
        smoothed, seconds = result.smoothed_confidence, time.perf_counter() - started
        print(
            f"{samples:>12,}{len(result):>10,}"
            f"{int((smoothed >= 0.3).sum()):>10,}{int((smoothed >= 0.5).sum()):>10,}{seconds:>8.2f} s"
        )
    return Bar("chains of FB15K Subject-10, seconds of those allowed", seconds / CHAIN_SECONDS, 1)


def memory_of_both() -> Bar:
    loaded, mined = (in_child(code).peak_bytes / 1e6 for code in (LOAD, LOAD + MINE_BOTH))
    detail = f"{loaded:.0f} MB after reading, {mined:.0f} MB at most"
    return Bar("memory of mining both, of that allowed", (mined - loaded) / MEMORY_BAR, 1, detail=detail)


def main() -> None:
    bars = [speed_of_constants(), speed_of_chains()]
    if data_folder("fb15k-subject-10") is not None:
        graph = load_dataset("fb15k-subject-10").observed
        bars += [constants_of(graph), chains_of(graph)]
        bars.append(memory_of_both())
    finish(bars)


if __name__ == "__main__":
    main()
