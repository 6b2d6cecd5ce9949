"""The graph as rule mining wants it: edges grouped by relation, and neighbours with all relations that lead to them.

Everything is a flat integer array, so that compiled code can read it. ``offset[i]:offset[i + 1]`` is always row ``i``.
"""

from typing import NamedTuple

import numpy as np

from newcomer.graph import Adjacency, Graph, Ids, Mask, Offsets, changes, offsets_of


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


def build_index(graph: Graph) -> MiningIndex:
    """All three orders of a graph's edges."""
    edges = graph.adjacency
    owners = edges.owners
    groups = np.flatnonzero(starts_group(edges))
    group_relations = edges.relations[groups]
    # Edges come by entity, relation, tail; a stable sort by entity and tail leaves the relations of a link sorted.
    pairs = owners.astype(np.int64) * graph.num_entities + edges.tails
    order = np.argsort(pairs, kind="stable")
    links = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    return MiningIndex(
        tails=edges.tails,
        group_offsets=np.searchsorted(groups, edges.offsets),
        group_relations=group_relations,
        group_starts=np.append(groups, len(owners)),
        group_entities=owners[groups],
        relation_offsets=offsets_of(np.bincount(group_relations, minlength=2 * graph.num_relations)),
        relation_groups=np.argsort(group_relations, kind="stable"),
        link_offsets=np.searchsorted(links, edges.offsets),
        link_entities=edges.tails[order[links]],
        link_starts=np.append(links, len(owners)),
        link_relations=edges.relations[order],
    )


def tail_side(graph: Graph) -> Mask:
    """For each relation, whether PCA looks at the tail: there are more distinct tails than heads."""
    size, edges = graph.num_relations, graph.adjacency
    distinct = np.bincount(edges.relations[starts_group(edges)], minlength=2 * size)
    return np.asarray(distinct[:size] < distinct[size:])


def starts_group(edges: Adjacency) -> Mask:
    """Where an entity's edges of one relation begin."""
    return changes(edges.owners, edges.relations)
