"""The limits of chain mining, and its second half: exact or estimated figures of the candidates that sampling found.

See `newcomer.rules.mining.chains` for what is counted and how.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from newcomer.graph import Graph, Ids, Mask, Offsets, offsets_of
from newcomer.rules.compiled import compiled, lower_bound, with_room
from newcomer.rules.limits import MAX_SEED
from newcomer.rules.mining.index import MiningIndex, tail_side
from newcomer.rules.rule import Kind, RuleSet, concatenate_rules

BODIES = 4096  # bodies counted between two looks at the clock
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
