"""Chains of three atoms, found by sampling: r1(x,z), r2(z,w), r3(w,y) => r(x,y).

Variables take different values (object identity): x, y, z and w are four entities, in the body as in the head, so a
body can never rest on the very fact it concludes. Atoms are oriented, as in `newcomer.rules.rule`.

A sample is a fact r(x,y), an edge from x to some z and an edge from y to some w, each drawn at random; every relation
between z and w closes a body, and its rule is a candidate with one hit more. Half of the facts are drawn from all facts
alike; for the others a relation is drawn first, so that small relations are sampled too.

Candidates with enough hits are then counted, all heads of one body at once. Starts x are taken in a random order, each
with all the y its body reaches, until no start is left, or ``max_pairs`` distinct pairs (x,y) are met. In the first
case all four figures are exact. In the second, support, body size and PCA body size are those of the starts taken:
their quotients are estimates of the confidences, and they themselves are lower bounds. Nothing is scaled up, so that a
count is always a count of something. PCA bodies are those of `newcomer.rules.mining.horn`; head size is that of
the relation.

The same graph, seed and number of samples give the same rules, whatever the number of threads. Only ``seconds``, if it
is given, makes the result depend on the machine. Memory: 16 bytes for each of at most ``max_candidates`` candidates, a
few copies of them while they are sorted, and for each thread 56 bytes an entity and the ends of one body at a time.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from newcomer.errors import DatasetError
from newcomer.graph import Graph, Ids, Offsets
from newcomer.rules.compiled import compiled, inverse_of, lower_bound, with_room
from newcomer.rules.limits import require_seed, thread_count
from newcomer.rules.mining.chain_counting import ChainCandidates, ChainCounter, ChainLimits
from newcomer.rules.mining.index import MiningIndex, build_index
from newcomer.rules.mining.plan import Progress
from newcomer.rules.rule import RuleSet

ROUND = 1 << 18  # samples between two looks at the clock
SAMPLING_SHARE = 0.5  # of the seconds, the rest is for counting
MOST_RELATIONS = 32_767  # four relations of a rule still fit one 64-bit key
Draws = npt.NDArray[np.float64]


def mine_chains(
    graph: Graph,
    limits: ChainLimits | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RuleSet:
    """Rules with bodies of three atoms, in canonical order; ``progress`` counts samples."""
    limits, workers = limits or ChainLimits(), thread_count(threads)
    require_seed(seed)
    if graph.num_relations > MOST_RELATIONS:
        raise DatasetError(
            f"chains of three atoms take at most {MOST_RELATIONS:,} relations, not {graph.num_relations:,}"
        )
    started, seconds = time.monotonic(), math.inf if limits.seconds is None else limits.seconds
    index = build_index(graph)
    with ThreadPoolExecutor(workers) as pool:
        sampler = _Sampler(graph, index, limits, seed)
        sampler.run(pool, workers, started + SAMPLING_SHARE * seconds, progress)
        counter = ChainCounter(graph, index, limits, seed)
        counter.run(pool, workers, started + seconds, sampler.candidates())
    return counter.rules()


class _Sampler:
    """Collects candidates with their hits, a round of samples at a time."""

    def __init__(self, graph: Graph, index: MiningIndex, limits: ChainLimits, seed: int) -> None:
        self._index, self._limits, self._seed = index, limits, seed
        self._size, self._triples = graph.num_relations, graph.triples
        self._by_relation = np.argsort(graph.triples.relations, kind="stable")
        self._used = np.flatnonzero(graph.relation_counts)
        self._ends = np.cumsum(graph.relation_counts[self._used], dtype=np.int64)
        self._keys, self._hits = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self._fresh: list[Offsets] = []
        self._fresh_size = 0
        self._rounds, self._samples = 0, 0

    def run(self, pool: ThreadPoolExecutor, workers: int, deadline: float, progress: Progress | None) -> None:
        """Sample until the budget is used up, or the time for it."""
        while self._samples < self._limits.samples and time.monotonic() <= deadline:
            size = min(ROUND, self._limits.samples - self._samples)
            self._round(pool, workers, size)
            self._rounds, self._samples = self._rounds + 1, self._samples + size
            if progress is not None:
                progress(self._samples, self._limits.samples)

    def _round(self, pool: ThreadPoolExecutor, workers: int, size: int) -> None:
        if len(self._triples) == 0:
            return
        rng = np.random.default_rng([self._seed, self._rounds])
        facts, draws = self._facts(rng, size), rng.random((size, 2))

        def work(facts: Offsets, draws: Draws) -> Offsets:
            t = self._triples
            return _sample(self._index, t.heads, t.relations, t.tails, facts, draws, self._size)

        for found in pool.map(work, np.array_split(facts, workers), np.array_split(draws, workers)):
            self._fresh.append(found)
            self._fresh_size += len(found)
        # Merging only when there is as much new as old keeps the work near linear.
        if self._fresh_size > max(ROUND, len(self._keys)):
            self._merge()

    def _facts(self, rng: np.random.Generator, size: int) -> Offsets:
        """Every second fact is drawn from a relation that is drawn first."""
        facts = rng.integers(len(self._triples), size=size)
        which = rng.integers(len(self._used), size=len(facts[1::2]))
        ends, within = self._ends[which], rng.random(len(which))
        starts = np.concatenate([[0], self._ends[:-1]])[which]
        facts[1::2] = self._by_relation[starts + (within * (ends - starts)).astype(np.int64)]
        return facts

    def _merge(self) -> None:
        fresh = np.concatenate([np.empty(0, np.int64), *self._fresh])
        weights = np.concatenate([self._hits, np.ones(len(fresh), np.int64)])
        keys, which = np.unique(np.concatenate([self._keys, fresh]), return_inverse=True)
        hits = np.bincount(which, weights, len(keys)).astype(np.int64)
        if len(keys) > self._limits.max_candidates:
            best = np.sort(np.argsort(-hits, kind="stable")[: self._limits.max_candidates])
            keys, hits = keys[best], hits[best]
        self._keys, self._hits, self._fresh, self._fresh_size = keys, hits, [], 0

    def candidates(self) -> ChainCandidates:
        """The candidates with enough hits."""
        self._merge()
        enough = self._hits >= self._limits.min_hits
        bodies, heads = np.divmod(self._keys[enough], max(self._size, 1))
        return ChainCandidates.of(bodies, heads.astype(np.int32), self._hits[enough])


@compiled
def _drawn_link(index: MiningIndex, entity: int, draw: float) -> tuple[int, int]:
    """A random edge of an entity, as its place among the links' relations and the entity it leads to."""
    first, last = index.link_offsets[entity], index.link_offsets[entity + 1]
    start, end = index.link_starts[first], index.link_starts[last]
    place = start + np.int64(draw * (end - start))
    link = lower_bound(index.link_starts, first, last, place + 1) - 1  # the last that starts at or before the place
    return place, index.link_entities[link]


@compiled
def _sample(
    index: MiningIndex, heads: Ids, relations: Ids, tails: Ids, facts: Offsets, draws: Draws, size: int
) -> Offsets:
    """The rules that the samples close, one key for each time: body as three digits, then the head."""
    found = np.empty(1024, np.int64)
    used = 0
    for i in range(len(facts)):
        x, y = heads[facts[i]], tails[facts[i]]
        if x == y:
            continue
        first, z = _drawn_link(index, x, draws[i, 0])
        last, w = _drawn_link(index, y, draws[i, 1])
        if z == x or z == y or w == x or w == y or w == z:
            continue
        link = lower_bound(index.link_entities, index.link_offsets[z], index.link_offsets[z + 1], w)
        if link == index.link_offsets[z + 1] or index.link_entities[link] != w:
            continue
        r1 = np.int64(index.link_relations[first])
        r3 = np.int64(inverse_of(index.link_relations[last], size))
        low, high = index.link_starts[link], index.link_starts[link + 1]
        found = with_room(found, used, used + high - low)
        for place in range(low, high):
            body = (r1 * (2 * size) + index.link_relations[place]) * (2 * size) + r3
            found[used] = body * size + relations[facts[i]]
            used += 1
    return found[:used].copy()
