"""Newcomers encoded at the cost of their own neighbourhood, beside seen entities that are encoded once.

Seen entities are encoded when a model is loaded, and never again. Connected newcomers are encoded together in a small
graph of their own: the seen entities that their facts, virtual neighbours and premises name, then the newcomers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from newcomer.config import ModelConfig
from newcomer.graph import Graph, Ids, TripleArray, Vocabulary
from newcomer.models.embedding.encoder import Edges, QueryTable, States
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors, soft_labels
from newcomer.models.embedding.model import Model
from newcomer.models.sparse import Rows
from newcomer.rules.virtual_neighbors import VirtualNeighbors

MANY = 64  # newcomers of a component: from here on what does not depend on the query is computed once
LABELS_AT_ONCE = 1 << 14  # each has some premises, and each of these two vectors
AT_ONCE = 1 << 13  # entities encoded at once: all neighbours of everyone, in order, take gigabytes


@dataclass(frozen=True, eq=False)
class Component:
    """Newcomers that are encoded together, with ids of their own and ascending, and their facts.

    Those whom the model's vocabulary knows have its ids, others follow. So what is computed for a component depends on
    its facts alone: not on when it came, nor on who else is there.
    """

    ids: Ids
    facts: TripleArray


@dataclass(frozen=True, eq=False)
class EncodedComponent:
    """A component and its vectors; its newcomer ``k`` stands at place ``len(near) + k`` of the states."""

    component: Component
    near: Tensor  # ids of the seen entities in this graph, ascending
    states: States
    graph: GraphTensors
    virtual: VirtualNeighbors | None  # with the ids of the component
    labels: Tensor  # of each virtual triple
    support: Tensor | None  # what rules add to its truth, before it is weighed; where answers are scored by labels

    @property
    def size(self) -> int:
        return len(self.component.ids)

    @property
    def places(self) -> Tensor:
        """(newcomers,): their places."""
        return torch.arange(self.size, device=self.near.device) + len(self.near)


class NewcomerEncoder:
    """A model and its encoded seen entities, ready to encode newcomers."""

    def __init__(
        self, model: Model, settings: ModelConfig, graph: GraphTensors, labels: Tensor, support: Tensor | None = None
    ) -> None:
        self.model, self.encoder, self.device = model, model.encoder, labels.device
        self.num_seen, self.num_relations = graph.num_entities, graph.num_relations
        self.mode, self.c = settings.labels, settings.soft_label_c
        self.constrained = settings.constrained and self.mode != "none"
        self.graph, self.labels = graph, labels
        self._tables: WeakKeyDictionary[EncodedComponent, QueryTable] = WeakKeyDictionary()
        with torch.no_grad():
            self.states = self.encoder.states(graph.edges(graph.weights(labels)))
            self.support = self._support(graph, support, partial(model.truths, self.states))

    @property
    def uses_virtual_edges(self) -> bool:
        """Whether vectors or scores depend on what rules infer about newcomers."""
        return self.encoder.uses_virtual_edges or self.constrained

    @property
    def _needs_support(self) -> bool:
        return self.constrained and self.mode == "soft"

    def _support(
        self, graph: GraphTensors, support: Tensor | None, truths: Callable[[Tensor], Tensor]
    ) -> Tensor | None:
        """The support of each virtual triple by its groundings, by the truths of triples; as given, where known."""
        if not self.constrained:
            return None
        every = torch.arange(len(graph.virtual), device=self.device)
        if not self._needs_support:
            return torch.zeros(len(every), device=self.device)
        if support is None:
            grounds = graph.grounds(every)
            support = grounds.support(truths(grounds.premises).float())
        return support

    def lift(self, support: Tensor) -> Tensor:
        """What rules add to the truth of virtual triples with this support."""
        return self.c * support if self.mode == "soft" else torch.ones_like(support)

    def seen(self, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): vectors of seen entities for these queries, from their own edges only."""
        states, places = self.around(entities)
        return self.encoder.embed(states, places, queries)

    def around(self, entities: Tensor) -> tuple[States, Tensor]:
        """A graph of seen entities with their own edges only, and the place of each there."""
        asked, places = torch.unique(entities, return_inverse=True)
        edges = self.states.edges
        own, entries = edges.rows.pick(asked)
        others, columns = torch.unique(own.columns, return_inverse=True)
        nodes = torch.cat([asked, others])
        rows = Rows(own.offsets, columns + len(asked), len(nodes)).knowing(own.row_ids, own.sizes)
        layers = tuple(layer[nodes] for layer in self.states.layers)
        return States(layers, Edges(rows, edges.relations[entries], edges.weights[entries]), nodes), places

    def everyone(self, query: int) -> Tensor:
        """(seen, d): all seen entities as answers, embedded for an oriented relation."""
        if self.model.answers_by_input:
            return self.states.layers[0]
        if self._seen_table is not None:
            return self._seen_table(query)
        return self._in_parts(self.states, torch.arange(self.num_seen, device=self.device), query)

    @cached_property
    def _seen_table(self) -> QueryTable | None:
        return self.encoder.query_table(self.states)

    def newcomers(self, encoded: list[EncodedComponent], query: int) -> list[Tensor]:
        """(newcomers, d) of each component: as answers, embedded for an oriented relation."""
        if self.model.answers_by_input:
            return [self.encoder.plain(one.states, one.places) for one in encoded]
        found = {one: table(query) for one in encoded if (table := self._table(one)) is not None}
        others = [one for one in encoded if one not in found]
        found |= dict(zip(others, self._embedded(others, query), strict=True))
        return [found[one] for one in encoded]

    def _table(self, encoded: EncodedComponent) -> QueryTable | None:
        """What is computed once for a large component, where its vectors depend on queries."""
        if encoded.size < MANY:
            return None
        if encoded not in self._tables:
            table = self.encoder.query_table(encoded.states, len(encoded.near))
            if table is None:
                return None
            self._tables[encoded] = table
        return self._tables[encoded]

    def _embedded(self, encoded: list[EncodedComponent], query: int) -> tuple[Tensor, ...]:
        if len(encoded) > 1 and self.encoder.batch_invariant:
            states, places = side_by_side(encoded)
            vectors = self.encoder.embed(states, places, torch.full_like(places, query))
            return torch.split(vectors, [one.size for one in encoded])
        return tuple(self._in_parts(one.states, one.places, query) for one in encoded)

    def _in_parts(self, states: States, places: Tensor, query: int) -> Tensor:
        """(n, d): entities embedded for one query, some at a time."""
        parts = torch.split(places, AT_ONCE)
        return torch.cat([self.encoder.embed(states, part, torch.full_like(part, query)) for part in parts])

    def attention(self, states: States, place: int, query: int) -> Tensor | None:
        """(edges,): the attention to each edge of an entity for a query; None of encoders without any."""
        entity = torch.tensor([place], device=self.device)
        return self.encoder.attention(states, entity, torch.full_like(entity, query))

    def encode(
        self,
        component: Component,
        virtual: VirtualNeighbors | None,
        labels: Tensor | None = None,
        support: Tensor | None = None,
        vectors: Tensor | None = None,
        threads: int | None = 1,
    ) -> EncodedComponent:
        """Encode newcomers by their facts (or take their ``vectors``); then, where rules infer more, by both.

        Where the labels (and the support of rules, if that is needed) are known, premises are not looked at.
        """
        used = virtual
        if virtual is not None and labels is not None and (support is not None or not self._needs_support):
            used = virtual.without_groundings()
        named = [component.facts.heads, component.facts.tails]
        if used is not None:
            named += [used.triples.heads, used.triples.tails, used.premises[:, :, [0, 2]].reshape(-1)]
        near = np.unique(np.concatenate(named))
        near = near[(near >= 0) & (near < self.num_seen)]
        graph = self._graph_of(component, near, used)
        places = torch.from_numpy(near.astype(np.int64)).to(self.device)
        with torch.no_grad():
            labels, states = self._labelled(places, graph, labels, vectors, threads)
            added = self._support(graph, support, partial(self._truths, places, states))
        return EncodedComponent(component, places, states, graph, virtual, labels, added)

    def _graph_of(self, component: Component, near: Ids, virtual: VirtualNeighbors | None) -> GraphTensors:
        """Facts and virtual triples with places instead of ids; both ascend alike, so that sums keep their order."""
        ids = np.concatenate([near, component.ids])

        def placed(triples: TripleArray) -> TripleArray:
            heads, tails = (np.searchsorted(ids, ends).astype(np.int32) for ends in (triples.heads, triples.tails))
            return TripleArray(heads, triples.relations, tails)

        relations = Vocabulary(pa.nulls(self.num_relations, pa.string()))
        facts = Graph.build(Vocabulary(pa.nulls(len(ids), pa.string())), relations, placed(component.facts))
        if virtual is None:
            return build_graph_tensors(facts, len(ids), None, self.device)
        ends = virtual.premises[:, :, [0, 2]]
        premises = virtual.premises.copy()
        premises[:, :, [0, 2]] = np.where(ends < 0, ends, np.searchsorted(ids, ends))
        moved = replace(virtual, triples=placed(virtual.triples), premises=premises)
        return build_graph_tensors(facts, len(ids), moved, self.device)

    def _labelled(
        self,
        near: Tensor,
        graph: GraphTensors,
        labels: Tensor | None,
        vectors: Tensor | None,
        threads: int | None,
    ) -> tuple[Tensor, States]:
        """The labels of virtual triples, where they are not known yet, and the encoded newcomers."""
        if labels is not None and self.encoder.uses_virtual_edges:
            return labels, self._extended(near, graph, graph.weights(labels))
        nothing = torch.zeros(len(graph.virtual), device=self.device)
        alone = self._extended(near, graph, graph.weights(nothing), vectors, threads)
        if labels is None:
            labels = self._soft_labels(near, graph, alone)
        if not (self.encoder.uses_virtual_edges and bool(labels.any())):
            return labels, alone
        return labels, self._extended(near, graph, graph.weights(labels))

    def _soft_labels(self, near: Tensor, graph: GraphTensors, states: States) -> Tensor:
        """The labels of virtual triples, with the newcomers encoded by their facts."""
        nothing = torch.zeros(len(graph.virtual), device=self.device)
        if len(nothing) == 0 or self.mode != "soft":
            return soft_labels(nothing, nothing, self.c, self.mode)
        # Conclusions and premises are about the same few entities: their truths are computed together.
        found, every = [], torch.arange(len(nothing), device=self.device)
        for part in torch.split(every, LABELS_AT_ONCE):
            grounds = graph.grounds(part)
            truths = self._truths(near, states, torch.cat([graph.virtual[part], grounds.premises]))
            support = grounds.support(truths[len(part) :])
            found.append(soft_labels(truths[: len(part)], support, self.c))
        return torch.cat(found)

    def _extended(
        self,
        near: Tensor,
        graph: GraphTensors,
        weights: Tensor,
        vectors: Tensor | None = None,
        threads: int | None = 1,
    ) -> States:
        """The newcomers beside seen entities whose own edges nobody needs here."""
        nothing = near.new_empty(0)
        no_rows = Rows(near.new_zeros(len(near) + 1), nothing, graph.num_entities)
        layers = tuple(layer[near] for layer in self.states.layers)
        seen = States(layers, Edges(no_rows, nothing, weights[:0]), near)
        edges = graph.edges(weights)
        rows, entries = edges.rows.pick(torch.arange(len(near), graph.num_entities, device=self.device))
        of_newcomers = Edges(rows, edges.relations[entries], edges.weights[entries])
        if vectors is not None:
            return seen.joined(vectors, of_newcomers)
        return self.encoder.extend(seen, of_newcomers, threads)

    def _truths(self, near: Tensor, states: States, triples: Tensor) -> Tensor:
        """(n,): truths of a component's triples in 0..1: seen ends with all their edges, newcomers with theirs."""
        model = self.model
        if model.answers_by_input:
            heads, relations, tails = model.oriented(triples, len(near)).unbind(dim=1)
            of_heads, all_seen = self._asked(near, states, heads, relations), bool((tails < len(near)).all())
            of_tails = states.layers[0][tails] if all_seen else model.answers(states, tails, relations)
        else:
            heads, relations, tails = triples.unbind(dim=1)
            ends, queries = torch.cat([heads, tails]), torch.cat([relations, model.inverse(relations)])
            of_heads, of_tails = self._asked(near, states, ends, queries).chunk(2)
        return torch.sigmoid(model.decoder.triples(of_heads, relations, of_tails))

    def _asked(self, near: Tensor, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): entities as queries ask for them; each that is asked the same several times is embedded once."""
        size = 2 * self.num_relations
        distinct, places = torch.unique(entities * size + queries, return_inverse=True)
        entities, queries = distinct // size, distinct % size
        is_seen = entities < len(near)
        vectors = states.layers[0].new_empty(len(distinct), states.layers[0].shape[1])
        vectors[is_seen] = self.seen(near[entities[is_seen]], queries[is_seen])
        vectors[~is_seen] = self.encoder.embed(states, entities[~is_seen], queries[~is_seen])
        return vectors[places]


def side_by_side(encoded: list[EncodedComponent]) -> tuple[States, Tensor]:
    """Several components in one graph, and the places of their newcomers; for encoders that use no ids."""
    shifts = np.cumsum([0, *(len(one.near) + one.size for one in encoded)])
    states = [one.states for one in encoded]
    edges = [one.edges for one in states]
    before = np.cumsum([0, *(len(one.rows.columns) for one in edges)])
    starts = [one.rows.offsets[:-1] + int(shift) for one, shift in zip(edges, before[:-1], strict=True)]
    offsets = torch.cat([*starts, starts[0].new_tensor([int(before[-1])])])
    columns = torch.cat([one.rows.columns + int(shift) for one, shift in zip(edges, shifts[:-1], strict=True)])
    rows = Rows(offsets, columns, int(shifts[-1]))
    together = Edges(rows, torch.cat([one.relations for one in edges]), torch.cat([one.weights for one in edges]))
    layers = tuple(torch.cat(parts) for parts in zip(*(one.layers for one in states), strict=True))
    places = [one.places + int(shift) for one, shift in zip(encoded, shifts[:-1], strict=True)]
    return States(layers, together), torch.cat(places)
