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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.errors import DatasetError
from newcomer.graph import Graph, Ids, Mask, Offsets, offsets_of
from newcomer.rules.compiled import compiled, inverse_of, lower_bound, with_room
from newcomer.rules.limits import MAX_SEED, require_seed, thread_count
from newcomer.rules.mining.index import MiningIndex, build_index, tail_side
from newcomer.rules.mining.plan import Progress
from newcomer.rules.rule import Kind, RuleSet, concatenate_rules

ROUND = 1 << 18  # samples between two looks at the clock
SAMPLING_SHARE = 0.5  # of the seconds, the rest is for counting
MOST_RELATIONS = 32_767  # four relations of a rule still fit one 64-bit key
BODIES = 4096  # bodies counted between two looks at the clock
Draws = npt.NDArray[np.float64]
Ends = Ids  # (ends, 2): y and w


@dataclass(frozen=True)
class ChainLimits:
    """How much to look, and which rules are kept.

    ``samples`` is the budget. ``seconds`` ends sampling and counting early: the most often hit are counted first, and
    half of the time is for sampling. ``min_confidence`` is of smoothed confidence. ``max_candidates`` keeps those most
    often hit. ``max_steps`` bounds the work on a body: no new start is taken once so many edges have been followed.
    """

    samples: int = 20_000_000
    seconds: float | None = None
    min_hits: int = 2
    min_support: int = 5
    min_confidence: float = 0.05
    max_pairs: int = 2_000
    max_steps: int = 1_000_000
    max_candidates: int = 4_000_000


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


@dataclass(frozen=True, eq=False)
class ChainCandidates:
    """Rules to be counted: body ``i`` with the heads ``starts[i]:starts[i + 1]``; the most often hit bodies first."""

    bodies: Offsets
    starts: Offsets
    heads: Ids

    @classmethod
    def of(cls, bodies: Offsets, heads: Ids, hits: Offsets) -> "ChainCandidates":
        """From one row a rule, sorted by body, then head."""
        firsts = np.flatnonzero(np.diff(bodies, prepend=-1))
        sizes = np.diff(np.append(firsts, len(bodies)))
        order = np.argsort(-np.add.reduceat(hits, firsts), kind="stable") if len(firsts) else firsts
        starts = offsets_of(sizes[order])
        rows = np.repeat(firsts[order] - starts[:-1], sizes[order]) + np.arange(len(bodies))
        return cls(bodies[firsts[order]], starts, heads[rows])


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


class _Scratch(NamedTuple):
    """One thread's notes on entities; stamps only grow, so that they need no wiping."""

    stamp: Offsets  # (1,) the last stamp given
    ends: Offsets  # the stamp of the start that last reached it as y
    reached: Offsets  # how many starts of the body at hand reached it; zero between bodies
    found: Offsets  # the stamp of the z that last listed it as y, and its place in that list
    places: Offsets
    listed: Offsets  # the stamp of the body that last listed its ends as z, and where these are
    list_starts: Offsets
    list_ends: Offsets


class ChainCounter:
    """Counts candidates and keeps the rules."""

    def __init__(self, graph: Graph, index: MiningIndex, limits: ChainLimits, seed: int) -> None:
        self._index, self._limits = index, limits
        self._size, self._entities = graph.num_relations, graph.num_entities
        self._by_tail, self._head_sizes = tail_side(graph), graph.relation_counts
        shuffled = np.random.default_rng([seed, MAX_SEED]).permutation(len(index.group_relations))
        # Groups by relation, in random order within each.
        self._starts = shuffled[np.argsort(index.group_relations[shuffled], kind="stable")]
        self._parts: list[RuleSet] = []

    def run(self, pool: ThreadPoolExecutor, workers: int, deadline: float, candidates: ChainCandidates) -> None:
        """Count the candidates, the most often hit first, while there is time."""
        size = self._entities
        scratch = [_Scratch(np.zeros(1, np.int64), *np.zeros((7, size), np.int64)) for _ in range(workers)]
        for start in range(0, len(candidates.bodies), BODIES):
            if time.monotonic() > deadline:
                return
            stop = min(start + BODIES, len(candidates.bodies))
            # Each thread takes every n-th body, with scratch space of its own.
            shares = [np.arange(start + i, stop, workers) for i in range(workers)]
            self._parts.extend(pool.map(lambda *job: self._count(candidates, *job), shares, scratch))

    def _count(self, candidates: ChainCandidates, which: Offsets, scratch: _Scratch) -> RuleSet:
        limits = self._limits
        starts, sizes = candidates.starts[which], candidates.starts[which + 1] - candidates.starts[which]
        places = offsets_of(sizes)
        heads = candidates.heads[np.repeat(starts - places[:-1], sizes) + np.arange(places[-1])]
        bodies = candidates.bodies[which]
        support, pca, pairs = _count_bodies(
            self._index, self._starts, bodies, places, heads, self._by_tail, limits.max_pairs, limits.max_steps, scratch
        )
        rest, r3 = np.divmod(np.repeat(bodies, sizes), 2 * self._size)
        r1, r2 = np.divmod(rest, 2 * self._size)
        rules = RuleSet.of_columns(
            self._size, len(heads), kinds=Kind.THREE, heads=heads, body1=r1, body2=r2, body3=r3, support=support,
            body_size=np.repeat(pairs, sizes), pca_body_size=pca, head_size=self._head_sizes[heads],
        )  # fmt: skip
        return rules.where((support >= limits.min_support) & (rules.smoothed_confidence >= limits.min_confidence))

    def rules(self) -> RuleSet:
        """The rules that were kept, in canonical order."""
        return concatenate_rules(self._parts, self._size).sorted()


@compiled
def _group_of(offsets: Offsets, relations: Ids, entity: int, relation: int) -> int:
    """The group with an entity's edges of one relation, or -1.

    Takes two arrays rather than the index: handing over a tuple of arrays costs more than this search.
    """
    end = offsets[entity + 1]
    group = lower_bound(relations, offsets[entity], end, relation)
    return group if group < end and relations[group] == relation else -1


@compiled
def _next_stamp(scratch: _Scratch) -> int:
    scratch.stamp[0] += 1
    return int(scratch.stamp[0])


@compiled
def _list_ends(
    index: MiningIndex, z: int, r2: int, r3: int, scratch: _Scratch, ends: Ends, used: int
) -> tuple[Ends, int, int]:
    """Append the distinct y behind z, each with its w, or -1 if there are several; what is used now, edges followed."""
    stamp, steps = _next_stamp(scratch), 1
    second = _group_of(index.group_offsets, index.group_relations, z, r2)
    if second < 0:
        return ends, used, steps
    for middle in range(index.group_starts[second], index.group_starts[second + 1]):
        w = index.tails[middle]
        third = -1 if w == z else _group_of(index.group_offsets, index.group_relations, w, r3)
        steps += 1
        if third < 0:
            continue
        low, high = index.group_starts[third], index.group_starts[third + 1]
        ends = with_room(ends, used, used + high - low)
        steps += high - low
        for last in range(low, high):
            y = index.tails[last]
            if y == z or y == w:
                continue
            if scratch.found[y] == stamp:
                ends[scratch.places[y], 1] = -1
                continue
            scratch.found[y], scratch.places[y] = stamp, used
            ends[used, 0], ends[used, 1] = y, w
            used += 1
    return ends, used, steps


@compiled
def _reach(index: MiningIndex, start: int, stamp: int, scratch: _Scratch, ends: Ends) -> tuple[int, int]:
    """Mark every y of a start, whose z have been listed: how many there are, and how many were looked at."""
    x = index.group_entities[start]
    pairs, steps = 0, 0
    for edge in range(index.group_starts[start], index.group_starts[start + 1]):
        z = index.tails[edge]
        if z == x:
            continue
        low, high = scratch.list_starts[z], scratch.list_ends[z]
        steps += high - low
        for place in range(low, high):
            y = ends[place, 0]
            if y != x and ends[place, 1] != x and scratch.ends[y] != stamp:
                scratch.ends[y] = stamp
                scratch.reached[y] += 1
                pairs += 1
    return pairs, steps


@compiled
def _count_facts(
    index: MiningIndex, x: int, stamp: int, pairs: int, heads: Ids, by_tail: Mask, scratch: _Scratch,
    support: Offsets, pca: Offsets,
) -> None:  # fmt: skip
    """What the pairs of one start add to each head's support, and to PCA body pairs that look at x."""
    for i in range(len(heads)):
        group = _group_of(index.group_offsets, index.group_relations, x, heads[i])
        if group < 0:
            continue
        if not by_tail[heads[i]]:
            pca[i] += pairs
        for edge in range(index.group_starts[group], index.group_starts[group + 1]):
            if scratch.ends[index.tails[edge]] == stamp:
                support[i] += 1


@compiled
def _count_known_ends(
    index: MiningIndex, ends: Ends, heads: Ids, by_tail: Mask, scratch: _Scratch, pca: Offsets
) -> None:
    """Add up the PCA body pairs that look at y, and forget which were reached."""
    size = len(by_tail)
    for place in range(len(ends)):
        y = ends[place, 0]
        pairs = scratch.reached[y]
        if pairs == 0:
            continue
        scratch.reached[y] = 0
        for i in range(len(heads)):
            if by_tail[heads[i]] and _group_of(index.group_offsets, index.group_relations, y, heads[i] + size) >= 0:
                pca[i] += pairs


@compiled
def _count_body(
    index: MiningIndex, starts: Offsets, body: int, heads: Ids, by_tail: Mask, max_pairs: int, max_steps: int,
    scratch: _Scratch, ends: Ends, support: Offsets, pca: Offsets,
) -> tuple[Ends, int]:  # fmt: skip
    """The pairs of a body that were counted; adds to the support and PCA body size of its heads."""
    size = len(by_tail)
    r1, r2, r3 = body // (4 * size * size), body // (2 * size) % (2 * size), body % (2 * size)
    own, used, pairs, steps = _next_stamp(scratch), 0, 0, 0
    at, last = index.relation_offsets[r1], index.relation_offsets[r1 + 1]
    while at < last and pairs < max_pairs and steps < max_steps:
        start = starts[at]
        for edge in range(index.group_starts[start], index.group_starts[start + 1]):
            z = index.tails[edge]
            if scratch.listed[z] != own:
                scratch.listed[z], scratch.list_starts[z] = own, used
                ends, used, followed = _list_ends(index, z, r2, r3, scratch, ends, used)
                scratch.list_ends[z] = used
                steps += followed
        stamp = _next_stamp(scratch)
        more, followed = _reach(index, start, stamp, scratch, ends)
        if more > 0:
            _count_facts(index, index.group_entities[start], stamp, more, heads, by_tail, scratch, support, pca)
        pairs, steps, at = pairs + more, steps + followed, at + 1
    _count_known_ends(index, ends[:used], heads, by_tail, scratch, pca)
    return ends, pairs


@compiled
def _count_bodies(
    index: MiningIndex, starts: Offsets, bodies: Offsets, places: Offsets, heads: Ids, by_tail: Mask,
    max_pairs: int, max_steps: int, scratch: _Scratch,
) -> tuple[Offsets, Offsets, Offsets]:  # fmt: skip
    """Support and PCA body size of each rule, body size of each body."""
    support, pca = np.zeros(len(heads), np.int64), np.zeros(len(heads), np.int64)
    pairs, ends = np.zeros(len(bodies), np.int64), np.empty((1024, 2), np.int32)
    for i in range(len(bodies)):
        own = slice(places[i], places[i + 1])
        ends, pairs[i] = _count_body(
            index, starts, bodies[i], heads[own], by_tail, max_pairs, max_steps, scratch, ends, support[own], pca[own]
        )
    return support, pca, pairs
