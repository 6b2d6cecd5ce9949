"""Compiled search for symmetric paths: seeded random walks there and back, and completions.

A path of length ``2k`` leaves ``start`` along oriented relations ``r1..rk`` to a middle node and returns along their
inverses, in reverse order, to another entity. Every node of a path is met once, so its two arms share the middle only.
All randomness is a hash of (seed, start, number of the walk): no walk depends on what else is asked, or on threads.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Adjacency, Ids, Offsets
from newcomer.rules.compiled import compiled, edges_of, inverse_of, is_among, row_of, with_room

Draw = np.uint64

MAX_ARM = 3
NODES = 2 * MAX_ARM + 1
NONE = -1
COMPLETION_STEPS = 1000  # edges looked at before the search for one completion is given up

_STRIDE = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64: the golden ratio, and its two multipliers
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


class WalkGraph(NamedTuple):
    """A graph as walks take it."""

    rows: Adjacency
    num_relations: int


@compiled
def _mixed(state: Draw) -> Draw:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@compiled
def _stream(state: Draw, number: int) -> Draw:
    """The state of the stream with this number under another one."""
    return _mixed(state + (np.uint64(number) + np.uint64(1)) * _STRIDE)


@compiled
def _below(state: Draw, size: int) -> np.int64:
    """A number in 0..size-1 from the upper half of a mixed state."""
    return np.int64(((_mixed(state) >> _HALF) * np.uint64(size)) >> _HALF)


@compiled
def _met(nodes: Ids, count: int, node: int) -> bool:
    seen = False
    for place in range(count):
        seen |= nodes[place] == node
    return seen


@compiled
def _walk_out(rows: Adjacency, start: int, arm: int, state: Draw, nodes: Ids, kind: Ids) -> bool:
    """Any edge at each step; False when a step leads nowhere or back onto the path."""
    nodes[0] = start
    for step in range(arm):
        first, end = row_of(rows.offsets, nodes[step])
        if first == end:
            return False
        edge = first + _below(state + np.uint64(step) * _STRIDE, end - first)
        if _met(nodes, step + 1, rows.tails[edge]):
            return False
        kind[step], nodes[step + 1] = rows.relations[edge], rows.tails[edge]
    return True


@compiled
def _walk_back(graph: WalkGraph, arm: int, state: Draw, nodes: Ids, kind: Ids) -> bool:
    """Only edges that keep the symmetry; False as soon as there is none, or the drawn one meets the path."""
    for step in range(arm):
        relation = inverse_of(kind[arm - 1 - step], graph.num_relations)
        first, end = edges_of(graph.rows.offsets, graph.rows.relations, nodes[arm + step], relation)
        if first == end:
            return False
        tail = graph.rows.tails[first + _below(state + np.uint64(arm + step) * _STRIDE, end - first)]
        if _met(nodes, arm + step + 1, tail):
            return False
        nodes[arm + step + 1] = tail
    return True


@compiled
def walk_paths(
    graph: WalkGraph, starts: Ids, arms: Ids, walks: int, seed: int
) -> tuple[Ids, Ids]:  # (found, MAX_ARM), (found, NODES)
    """The types and nodes of all walks that came back, start by start; unused places hold -1."""
    kinds = np.empty((walks, MAX_ARM), dtype=np.int32)
    nodes = np.empty((walks, NODES), dtype=np.int32)
    found = 0
    for start in starts:
        kinds, nodes = with_room(kinds, found, found + walks), with_room(nodes, found, found + walks)
        own = _stream(_stream(np.uint64(0), seed), start)
        for walk in range(walks):
            state = _stream(own, walk)
            arm = arms[_below(state, len(arms))]
            state += _STRIDE
            kinds[found, :], nodes[found, :] = NONE, NONE
            if _walk_out(graph.rows, start, arm, state, nodes[found], kinds[found]) and _walk_back(
                graph, arm, state, nodes[found], kinds[found]
            ):
                found += 1
    return kinds[:found], nodes[:found]


@compiled
def _completion(graph: WalkGraph, start: int, end: int, kind: Ids, state: Draw, nodes: Ids) -> int:
    """Walk a type from its far end until one edge is missing; the number of nodes met, 0 where that fails.

    Depth first from a random edge at each node: what exists is found within `COMPLETION_STEPS`.
    """
    arm = MAX_ARM
    while kind[arm - 1] == NONE:
        arm -= 1
    steps = 2 * arm - 1
    first, size, turn, taken = np.empty((4, steps), dtype=np.int64)
    nodes[0], depth, fresh = end, 0, True
    for _ in range(COMPLETION_STEPS):
        if fresh:
            relation = kind[depth] if depth < arm else inverse_of(kind[steps - depth], graph.num_relations)
            first[depth], last = edges_of(graph.rows.offsets, graph.rows.relations, nodes[depth], relation)
            size[depth], taken[depth] = last - first[depth], 0
            state += _STRIDE
            turn[depth] = _below(state, max(size[depth], 1))
        if taken[depth] == size[depth]:
            depth, fresh = depth - 1, False
            if depth < 0:
                return 0
            continue
        tail = graph.rows.tails[first[depth] + (turn[depth] + taken[depth]) % size[depth]]
        taken[depth] += 1
        fresh = tail != start and not _met(nodes, depth + 1, tail)
        if fresh:
            depth += 1
            nodes[depth] = tail
            if depth == steps:
                return depth + 1
    return 0


@compiled
def complete_pair(graph: WalkGraph, start: int, end: int, kind: Ids, seed: int) -> tuple[int, int]:
    """The node one edge away from the start, and the first node towards it from the end; -1, -1 without any.

    Where that edge is known the pair has the path after all and nothing is missing.
    """
    state = _stream(_stream(_stream(np.uint64(0), seed), start), -2 - end)
    for step in range(MAX_ARM):
        state = _stream(state, kind[step])
    nodes = np.empty(NODES, dtype=np.int32)
    met = _completion(graph, start, end, kind, state, nodes)
    first, last = edges_of(graph.rows.offsets, graph.rows.relations, start, kind[0])
    if met == 0 or is_among(graph.rows.tails, first, last, nodes[met - 1]):
        return NONE, NONE
    return nodes[met - 1], nodes[1]


@compiled
def count_common(
    begins: Offsets, end_places: Offsets, end_starts: Offsets, end_types: Offsets, least_pairs: int, least: float
) -> npt.NDArray[np.int64]:  # (rules, 3): premise, conclusion, pairs with both
    """Every ``premise => conclusion`` that is confident enough and leaves a pair to complete.

    Paths are sorted by their own start and type (``begins``), then end; ``end_places`` has the end of each,
    ``end_types`` the types by end.
    """
    types = len(begins) - 1
    common, touched = np.zeros(types, dtype=np.int64), np.empty(types, dtype=np.int64)
    rules, found = np.empty((16, 3), dtype=np.int64), 0
    for premise in range(types):
        pairs = begins[premise + 1] - begins[premise]
        if pairs < least_pairs:
            continue
        met = 0
        for path in range(begins[premise], begins[premise + 1]):
            for place in range(end_starts[end_places[path]], end_starts[end_places[path] + 1]):
                other = end_types[place]
                if common[other] == 0:
                    touched[met] = other
                    met += 1
                common[other] += 1
        for conclusion in np.sort(touched[:met]):
            both = common[conclusion]
            common[conclusion] = 0
            if both == pairs or both / pairs < least:
                continue
            rules = with_room(rules, found, found + 1)
            rules[found, 0], rules[found, 1], rules[found, 2] = premise, conclusion, both
            found += 1
    return rules[:found]


@compiled
def complete_rules(
    graph: WalkGraph, starts: Ids, kinds: Ids, ends: Ids, begins: Offsets, rules: npt.NDArray[np.int64], seed: int
) -> npt.NDArray[np.int64]:  # (groundings, 4): rule, path of the premise, missing tail, first node from the end
    """One completion for each rule and each pair that has its premise and lacks its conclusion."""
    lacking = 0
    for rule in range(len(rules)):
        lacking += begins[rules[rule, 0] + 1] - begins[rules[rule, 0]] - rules[rule, 2]
    groundings, found = np.empty((lacking, 4), dtype=np.int64), 0
    for rule in range(len(rules)):
        premise, conclusion = rules[rule, 0], rules[rule, 1]
        for path in range(begins[premise], begins[premise + 1]):
            if is_among(ends, begins[conclusion], begins[conclusion + 1], ends[path]):
                continue
            tail, near = complete_pair(graph, starts[path], ends[path], kinds[begins[conclusion]], seed)
            if tail != NONE:
                groundings[found, 0], groundings[found, 1] = rule, path
                groundings[found, 2], groundings[found, 3] = tail, near
                found += 1
    return groundings[:found]
