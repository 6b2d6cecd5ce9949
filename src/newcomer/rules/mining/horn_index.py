"""The graph as rule mining wants it: edges grouped by relation, and neighbours with all relations that lead to them.

Everything is a flat integer array, so that compiled code can walk it. ``offset[i]:offset[i + 1]`` is always row ``i``.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newcomer.graph import Graph, Ids, Mask, Offsets
from newcomer.rules.compiled import compiled

Array = npt.NDArray[Any]


class MiningIndex(NamedTuple):
    """A graph's edges (inverses included) in the three orders that counting needs."""

    tails: Ids  # edges by entity, relation, tail
    group_offsets: Offsets  # entity -> its groups; a group holds the edges of one entity and one relation
    group_relations: Ids
    group_starts: Offsets  # group -> its edges
    group_entities: Ids
    relation_offsets: Offsets  # oriented relation -> its groups
    relation_groups: Offsets
    link_offsets: Offsets  # entity -> its links; a link is a distinct neighbour, sorted
    link_entities: Ids
    link_starts: Offsets  # link -> the oriented relations that lead there, sorted
    link_relations: Ids


class HeadFigures(NamedTuple):
    """What each relation looks like as a rule's head."""

    sizes: Offsets  # triples of the relation
    by_tail: Mask  # whether the PCA side is the tail: the inverse is the more functional direction
    swapped: Mask  # whether triangles are cheaper to find from the tail


def build_index(graph: Graph) -> MiningIndex:
    """All three orders of a graph's edges; linear in the number of edges but for sorting each entity's row."""
    edges = graph.adjacency
    group_offsets, group_relations, group_starts, group_entities = _groups(edges.offsets, edges.relations)
    relation_groups = np.argsort(group_relations, kind="stable")
    counts = np.bincount(group_relations, minlength=2 * graph.num_relations)
    links = _links(edges.offsets, edges.relations, edges.tails)
    return MiningIndex(
        edges.tails,
        group_offsets,
        group_relations,
        group_starts,
        group_entities,
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]),
        relation_groups,
        *links,
    )


def head_figures(graph: Graph, index: MiningIndex) -> HeadFigures:
    """Size, PCA side and cheaper side of every relation."""
    size = graph.num_relations
    distinct = np.diff(index.relation_offsets)
    degrees = np.diff(index.link_offsets).astype(np.float64)
    triples = graph.triples
    # Marking an entity's links is paid once a group, looking through the other end's links once a triple.
    at_heads = np.bincount(triples.relations, degrees[triples.heads], minlength=size)
    at_tails = np.bincount(triples.relations, degrees[triples.tails], minlength=size)
    grouped = np.bincount(index.group_relations, degrees[index.group_entities], minlength=2 * size)
    swapped = at_heads + grouped[size:] < at_tails + grouped[:size]
    return HeadFigures(graph.relation_counts.astype(np.int64), distinct[:size] < distinct[size:], swapped)


@compiled
def _groups(offsets: Offsets, relations: Ids) -> tuple[Offsets, Ids, Offsets, Ids]:
    entities = len(offsets) - 1
    total = 0
    for entity in range(entities):
        for edge in range(offsets[entity], offsets[entity + 1]):
            if edge == offsets[entity] or relations[edge] != relations[edge - 1]:
                total += 1
    group_offsets = np.empty(entities + 1, np.int64)
    group_relations = np.empty(total, np.int32)
    group_starts = np.empty(total + 1, np.int64)
    group_entities = np.empty(total, np.int32)
    group = 0
    for entity in range(entities):
        group_offsets[entity] = group
        for edge in range(offsets[entity], offsets[entity + 1]):
            if edge == offsets[entity] or relations[edge] != relations[edge - 1]:
                group_relations[group] = relations[edge]
                group_starts[group] = edge
                group_entities[group] = entity
                group += 1
    group_offsets[entities] = group
    group_starts[group] = len(relations)
    return group_offsets, group_relations, group_starts, group_entities


@compiled
def _links(offsets: Offsets, relations: Ids, tails: Ids) -> tuple[Offsets, Ids, Offsets, Ids]:
    entities = len(offsets) - 1
    link_offsets = np.empty(entities + 1, np.int64)
    link_entities = np.empty(len(tails), np.int32)
    link_starts = np.empty(len(tails) + 1, np.int64)
    link_relations = np.empty(len(tails), np.int32)
    link = 0
    for entity in range(entities):
        link_offsets[entity] = link
        start, end = offsets[entity], offsets[entity + 1]
        keys = np.empty(end - start, np.int64)
        for i in range(end - start):
            keys[i] = (np.int64(tails[start + i]) << 32) | np.int64(relations[start + i])
        keys.sort()
        for i in range(end - start):
            tail = keys[i] >> 32
            link_relations[start + i] = keys[i] & 0xFFFFFFFF
            if i == 0 or tail != keys[i - 1] >> 32:
                link_entities[link] = tail
                link_starts[link] = start + i
                link += 1
    link_offsets[entities] = link
    link_starts[link] = len(tails)
    return link_offsets, link_entities[:link].copy(), link_starts[: link + 1].copy(), link_relations
