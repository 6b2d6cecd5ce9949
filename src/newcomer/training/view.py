"""The part of a graph that a mini-batch is embedded over: all of it, or neighbours drawn around the batch.

With a fanout each entity looks at that many of its visible neighbours, drawn anew for every batch, and only what is
reached from the batch is embedded: the cost of a step then follows from the batch, not from the graph.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from newcomer.models.embedding.encoder import Edges
from newcomer.models.embedding.graph_tensors import GraphTensors
from newcomer.models.sparse import Rows


@dataclass(frozen=True, eq=False)
class View:
    """Edges between entities that have places of their own: ``nodes`` are their ids, ascending (all where None)."""

    edges: Edges
    nodes: Tensor | None = None

    def places(self, entities: Tensor) -> Tensor:
        """Where these entities stand; they must be within the view."""
        return entities if self.nodes is None else torch.searchsorted(self.nodes, entities.contiguous())

    def triples(self, triples: Tensor) -> Tensor:
        """Triples (n, 3) with places for their ends."""
        if self.nodes is None:
            return triples
        heads, relations, tails = triples.unbind(dim=1)
        return torch.stack([self.places(heads), relations, self.places(tails)], dim=1)


def around(
    graph: GraphTensors, weights: Tensor, entities: Tensor, fanout: int, hops: int, generator: torch.Generator
) -> View:
    """What is at most ``hops`` drawn edges away from ``entities``; those at the rim have no edges."""
    reached = frontier = torch.unique(entities)
    rows, entries = [frontier[:0]], [frontier[:0]]
    for _ in range(hops):
        drawn_rows, drawn = _draw(graph, weights, frontier, fanout, generator)
        rows.append(frontier[drawn_rows])
        entries.append(drawn)
        found = torch.unique(graph.rows.columns[drawn])
        frontier = found[~torch.isin(found, reached)]
        reached = torch.cat([reached, frontier]).sort().values
    return View(_edges(graph, weights, reached, torch.cat(rows), torch.cat(entries)), reached)


def _draw(
    graph: GraphTensors, weights: Tensor, entities: Tensor, fanout: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """At most ``fanout`` visible edges of each entity: whose (a place among ``entities``) and which, ascending."""
    rows, entries = graph.rows.pick(entities)
    visible = weights[graph.sources[entries]] > 0
    rows, entries = rows.where(visible), entries[visible]
    row = rows.row_ids()
    keys = torch.rand(len(entries), generator=generator, dtype=torch.float64, device=generator.device)
    order = torch.argsort(row + keys)  # by row, at random within
    first = order[torch.arange(len(order), device=row.device) - rows.offsets[row] < fanout].sort().values
    return row[first], entries[first]


def _edges(graph: GraphTensors, weights: Tensor, nodes: Tensor, rows: Tensor, entries: Tensor) -> Edges:
    """Edges (entity, entry of the graph) as rows of ``nodes``."""
    place, order = torch.sort(torch.searchsorted(nodes, rows), stable=True)
    entries = entries[order]
    offsets = torch.searchsorted(place, torch.arange(len(nodes) + 1, device=place.device))
    columns = torch.searchsorted(nodes, graph.rows.columns[entries])
    return Edges(Rows(offsets, columns, len(nodes)), graph.relations[entries], weights[graph.sources[entries]])
