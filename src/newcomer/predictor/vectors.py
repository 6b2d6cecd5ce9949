"""Vectors of seen entities and of newcomers, each at the cost of its own neighbourhood.

Seen entities are encoded once, when a model is loaded, and never again. Those who arrive are encoded in a small space
of their own: the seen entities that their facts, virtual neighbours and premises speak of, then the newcomers.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional

from newcomer.graph import Graph, Ids, TripleArray, Vocabulary
from newcomer.models.baselines import MeanEncoder
from newcomer.models.edges import Edges, join_edges
from newcomer.models.embedding.encoder import States
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.embedding.model import Model
from newcomer.models.embedding.scorer import rule_support
from newcomer.models.sparse import Rows, row_softmax, weighted_sum
from newcomer.models.vn.encoder import VNEncoder
from newcomer.models.vn.layers import SLOPE, QueryLayer, row_products
from newcomer.models.vn.soft_labels import soft_labels
from newcomer.predictor.fact_store import Group
from newcomer.rules.virtual_neighbors import VirtualNeighbors

CROWD = 64  # from so many newcomers on, an arrival is asked as a crowd


@dataclass(frozen=True, eq=False)
class Arrival:
    """Newcomers that were encoded together; newcomer ``k`` of the group stands at place ``len(near) + k``."""

    group: Group
    near: Tensor  # ids of the seen entities in this space, ascending
    states: States
    graph: GraphTensors
    virtual: VirtualNeighbors | None  # with the ids of the group
    labels: Tensor  # of each virtual triple
    added: Tensor | None  # what rules add to its truth, where answers are scored by their labels

    @property
    def size(self) -> int:
        return len(self.group.names)

    @property
    def everyone(self) -> Tensor:
        """(newcomers,): their places."""
        return torch.arange(self.size, device=self.near.device) + len(self.near)

    @cached_property
    def starts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which oriented relations the newcomers have: (relation, number of the newcomer), every pair once."""
        facts, ids = self.group.facts, self.group.ids
        ends = np.concatenate([facts.heads, facts.tails])
        relations = np.concatenate([facts.relations, facts.relations + self.graph.num_relations]).astype(np.int64)
        numbers = np.minimum(np.searchsorted(ids, ends), len(ids) - 1)
        new = ids[numbers] == ends
        return np.divmod(np.unique(relations[new] * len(ids) + numbers[new]), len(ids))


class Crowd:
    """Many entities of one space, asked one thing after another: what no question changes is found once."""

    def __init__(self, layer: QueryLayer, states: States, first: int = 0) -> None:
        """Those whose places are from ``first`` on."""
        edges, vectors = states.edges, states.layers[-1]
        start = int(edges.rows.offsets[first])
        self.rows = Rows(edges.rows.offsets[first:] - start, edges.rows.columns[start:], edges.rows.width)
        self.layer, self.vectors, self.own = layer, vectors, vectors[first:]
        self.weights = edges.weights[start:]
        self.of_entity = row_products(self.own, layer.entity_map @ layer.attention[0])
        self.of_query = row_products(layer.queries, layer.query_map @ layer.attention[1])
        self.of_neighbor = row_products(vectors, layer.entity_map @ layer.attention[2])[self.rows.columns]

    def asked(self, query: int) -> Tensor:
        """(n, d): everyone as an oriented relation asks for them; as the layer itself says, to the bit."""
        logits = (self.of_entity + self.of_query[query])[self.rows.row_ids()] + self.of_neighbor
        shares = row_softmax(self.rows, functional.leaky_relu(logits, SLOPE), self.weights)
        attended = weighted_sum(self.rows, shares, self.vectors)
        return attended + self.own if self.layer.residual else attended


class Embedder:
    """A model and its seen entities, ready to embed whoever arrives."""

    def __init__(
        self,
        model: Model,
        graph: GraphTensors,
        labels: Tensor,
        mode: str,
        c: float,
        constrained: bool,
        support: Tensor | None = None,
    ) -> None:
        self.model, self.encoder, self.device = model, model.encoder, labels.device
        self.num_seen, self.num_relations = graph.num_entities, graph.num_relations
        self.mode, self.c, self.constrained = mode, c, constrained and mode != "none"
        self.graph, self.labels = graph, labels
        self._layer = self.encoder.query if isinstance(self.encoder, VNEncoder) else None
        self._crowds: WeakKeyDictionary[Arrival, Crowd] = WeakKeyDictionary()
        with torch.no_grad():
            self.states = self.encoder.states(graph.edges(self._weights(graph, labels)))
            self.added = self._added(self.model, self.states, graph, support) if self.constrained else None

    @property
    def uses_virtual_edges(self) -> bool:
        """Whether vectors or scores depend on what rules infer about those who arrive."""
        return self.encoder.uses_virtual_edges or self.constrained

    @property
    def _needs_support(self) -> bool:
        return self.constrained and self.mode == "soft"

    def _added(self, model: Model, states: States, graph: GraphTensors, support: Tensor | None) -> Tensor:
        """What rules add to the truth of each virtual triple; ``support`` where it is known."""
        if not self._needs_support:
            return torch.ones(len(graph.virtual), device=self.device)
        if support is None:
            support = rule_support(model, states, graph, torch.arange(len(graph.virtual), device=self.device))
        return self.c * support

    def seen(self, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): vectors of seen entities as these oriented relations ask for them; looks at their edges only."""
        states, places = self.around(entities)
        return self.encoder.embed(states, places, queries)

    def around(self, entities: Tensor) -> tuple[States, Tensor]:
        """Seen entities with their edges in a space of their own, and where each of them stands there."""
        asked, places = torch.unique(entities, return_inverse=True)
        edges = self.states.edges
        first = edges.rows.offsets[asked]
        sizes = edges.rows.offsets[asked + 1] - first
        offsets = torch.cat([sizes.new_zeros(1), torch.cumsum(sizes, 0)])
        entries = torch.repeat_interleave(first - offsets[:-1], sizes)
        entries += torch.arange(len(entries), device=self.device)
        others, columns = torch.unique(edges.rows.columns[entries], return_inverse=True)
        nodes = torch.cat([asked, others])
        rows = Rows(offsets, columns + len(asked), len(nodes))
        layers = tuple(layer[nodes] for layer in self.states.layers)
        return States(layers, Edges(rows, edges.relations[entries], edges.weights[entries]), nodes), places

    def everyone(self, query: int) -> Tensor:
        """(seen, d): all seen entities as answers that an oriented relation asks back."""
        if self.model.answers_by_input:
            return self.states.layers[0]
        if self._layer is not None:
            return self._seen_crowd.asked(query)
        entities = torch.arange(self.num_seen, device=self.device)
        return self.encoder.embed(self.states, entities, torch.full_like(entities, query))

    @cached_property
    def _seen_crowd(self) -> Crowd:
        return Crowd(cast(QueryLayer, self._layer), self.states)

    def all_arrived(self, arrivals: list[Arrival], query: int) -> list[Tensor]:
        """(newcomers, d) for each arrival: everyone as answers that an oriented relation asks back."""
        if self.model.answers_by_input:
            return [self.plain(arrival.states, arrival.everyone) for arrival in arrivals]
        few = [arrival for arrival in arrivals if self._layer is None or arrival.size < CROWD]
        found = dict(zip(few, self._few_arrived(few, query), strict=True))
        return [found[one] if one in found else self._crowd(one).asked(query) for one in arrivals]

    def _crowd(self, arrival: Arrival) -> Crowd:
        if arrival not in self._crowds:
            self._crowds[arrival] = Crowd(cast(QueryLayer, self._layer), arrival.states, len(arrival.near))
        return self._crowds[arrival]

    def _few_arrived(self, arrivals: list[Arrival], query: int) -> tuple[Tensor, ...]:
        if len(arrivals) > 1 and isinstance(self.encoder, VNEncoder | MeanEncoder):
            states, places = side_by_side(arrivals)
            vectors = self.encoder.embed(states, places, torch.full_like(places, query))
            return torch.split(vectors, [arrival.size for arrival in arrivals])
        # The other encoders multiply matrices, whose rounding depends on the number of rows.
        every = [(arrival.states, arrival.everyone) for arrival in arrivals]
        return tuple(self.encoder.embed(states, places, torch.full_like(places, query)) for states, places in every)

    def plain(self, states: States, places: Tensor) -> Tensor:
        """(n, d): vectors that no query asked for."""
        return self.encoder.plain(states, places)

    def plain_seen(self, entities: Tensor) -> Tensor:
        """(n, d): the same for seen entities; looks at their edges only."""
        return self.plain(*self.around(entities))

    def shares(self, states: States, place: int, query: int) -> Tensor | None:
        """(edges,): the attention to each edge of an entity that is asked a query; None of encoders without one."""
        entity, layer = torch.tensor([place], device=self.device), self._layer
        if layer is None:
            return self.encoder.attention(states, entity, torch.full_like(entity, query))
        rows, entries = states.edges.rows.pick(entity)
        last = states.layers[-1]
        asked = row_products(last[entity], layer.entity_map @ layer.attention[0])
        asked = asked + row_products(layer.queries[[query]], layer.query_map @ layer.attention[1])
        logits = asked + row_products(last[rows.columns], layer.entity_map @ layer.attention[2])
        return row_softmax(rows, functional.leaky_relu(logits, SLOPE), states.edges.weights[entries])

    def arrive(
        self,
        group: Group,
        virtual: VirtualNeighbors | None,
        labels: Tensor | None = None,
        support: Tensor | None = None,
        vectors: Tensor | None = None,
    ) -> Arrival:
        """Encode newcomers by their facts (or as it is known); then, where these make rules infer more, by both.

        Where the labels (and the support of rules, if that is needed) are known, nobody looks at premises.
        """
        used = virtual
        if virtual is not None and labels is not None and (support is not None or not self._needs_support):
            used = virtual.without_groundings()
        spoken_of = [group.facts.heads, group.facts.tails]
        if used is not None:
            spoken_of += [used.triples.heads, used.triples.tails, used.premises[:, :, [0, 2]].reshape(-1)]
        near = np.unique(np.concatenate(spoken_of))
        near = near[(near >= 0) & (near < self.num_seen)]
        graph = self._space(group, near, used)
        places = torch.from_numpy(near.astype(np.int64)).to(self.device)
        with torch.no_grad():
            labels, states = self._labelled(places, graph, labels, vectors)
            added = self._added(cast(Model, _Ends(self, places)), states, graph, support) if self.constrained else None
        return Arrival(group, places, states, graph, virtual, labels, added)

    def _space(self, group: Group, near: Ids, virtual: VirtualNeighbors | None) -> GraphTensors:
        """Facts and virtual triples with places instead of ids; both ascend alike, so that sums keep their order."""
        ids = np.concatenate([near, group.ids])

        def placed(triples: TripleArray) -> TripleArray:
            heads, tails = (np.searchsorted(ids, ends).astype(np.int32) for ends in (triples.heads, triples.tails))
            return TripleArray(heads, triples.relations, tails)

        relations = Vocabulary(pa.nulls(self.num_relations, pa.string()))
        facts = Graph.build(Vocabulary(pa.nulls(len(ids), pa.string())), relations, placed(group.facts))
        if virtual is None:
            return build_graph_tensors(facts, len(ids), None, self.device)
        ends = virtual.premises[:, :, [0, 2]]
        premises = virtual.premises.copy()
        premises[:, :, [0, 2]] = np.where(ends < 0, ends, np.searchsorted(ids, ends))
        moved = replace(virtual, triples=placed(virtual.triples), premises=premises)
        return build_graph_tensors(facts, len(ids), moved, self.device)

    def _labelled(
        self, near: Tensor, graph: GraphTensors, labels: Tensor | None, vectors: Tensor | None
    ) -> tuple[Tensor, States]:
        """The labels of an arrival's virtual triples, where they are not known yet, and the newcomers embedded."""
        if labels is not None and self.encoder.uses_virtual_edges:
            return labels, self._extended(near, graph, self._weights(graph, labels))
        silent = torch.zeros(len(graph.virtual), device=self.device)
        alone = self._extended(near, graph, self._weights(graph, silent), vectors)
        if labels is None:
            labels = self._believed(near, graph, alone)
        if not (self.encoder.uses_virtual_edges and bool(labels.any())):
            return labels, alone
        return labels, self._extended(near, graph, self._weights(graph, labels))

    def _believed(self, near: Tensor, graph: GraphTensors, states: States) -> Tensor:
        """The labels of an arrival's virtual triples, with the newcomers embedded by their facts."""
        silent = torch.zeros(len(graph.virtual), device=self.device)
        if len(silent) == 0 or self.mode == "none":
            return silent
        if self.mode == "hard":
            return torch.ones_like(silent)
        # Conclusions and premises are about the same few entities: their truths are found together.
        grounds = graph.grounds(torch.arange(len(silent), device=self.device))
        truths = _Ends(self, near).truths(states, torch.cat([graph.virtual, grounds.premises]))
        support = grounds.support(truths[len(silent) :])
        return soft_labels(truths[: len(silent)], support, self.c)

    def _weights(self, graph: GraphTensors, labels: Tensor) -> Tensor:
        """A weight a triple: facts are certain."""
        return torch.cat([torch.ones(len(graph.facts), device=self.device), labels])

    def _extended(self, near: Tensor, graph: GraphTensors, weights: Tensor, vectors: Tensor | None = None) -> States:
        """The newcomers beside seen entities whose own edges nobody needs here."""
        nothing = near.new_empty(0)
        no_rows = Rows(near.new_zeros(len(near) + 1), nothing, graph.num_entities)
        layers = tuple(layer[near] for layer in self.states.layers)
        seen = States(layers, Edges(no_rows, nothing, weights[:0]), near)
        edges = graph.edges(weights)
        rows, entries = edges.rows.pick(torch.arange(len(near), graph.num_entities, device=self.device))
        of_newcomers = Edges(rows, edges.relations[entries], edges.weights[entries])
        if vectors is None:
            return self.encoder.extend(seen, of_newcomers)
        together = (torch.cat([layers[0], vectors]),)
        return States(together, join_edges(seen.edges, of_newcomers), near, len(vectors))


class _Ends:
    """As a `Model` for the truths of an arrival's triples: seen ends with all their edges, newcomers with theirs."""

    def __init__(self, embedder: Embedder, near: Tensor) -> None:
        self.embedder, self.near = embedder, near

    def truths(self, states: States, triples: Tensor) -> Tensor:
        """(n,): truth values in 0..1."""
        model = self.embedder.model
        if model.answers_by_input:
            triples = model.oriented(triples, len(self.near))
        heads, relations, tails = triples.unbind(dim=1)
        if model.answers_by_input:
            of_heads, of_tails = self._asked(states, heads, relations), self._answers(states, tails, relations)
        else:
            ends, queries = torch.cat([heads, tails]), torch.cat([relations, model.inverse(relations)])
            vectors = self._asked(states, ends, queries)
            of_heads, of_tails = vectors[: len(heads)], vectors[len(heads) :]
        return torch.sigmoid(model.decoder.triples(of_heads, relations, of_tails))

    def _answers(self, states: States, tails: Tensor, relations: Tensor) -> Tensor:
        """(n, d): the model's answers, where these are of their own; mostly seen ones, whose vectors are there."""
        if bool((tails < len(self.near)).all()):
            return states.layers[0][tails]
        return self.embedder.model.answers(states, tails, relations)

    def _asked(self, states: States, entities: Tensor, queries: Tensor) -> Tensor:
        """(n, d): entities as queries ask for them; each that is asked the same several times is embedded once."""
        size = 2 * self.embedder.num_relations
        distinct, places = torch.unique(entities * size + queries, return_inverse=True)
        entities, queries = distinct // size, distinct % size
        is_seen = entities < len(self.near)
        vectors = states.layers[0].new_empty(len(distinct), states.layers[0].shape[1])
        vectors[is_seen] = self.embedder.seen(self.near[entities[is_seen]], queries[is_seen])
        vectors[~is_seen] = self.embedder.encoder.embed(states, entities[~is_seen], queries[~is_seen])
        return vectors[places]


def side_by_side(arrivals: list[Arrival]) -> tuple[States, Tensor]:
    """Several arrivals in one space, and the places of their newcomers; for encoders that tell nobody by an id."""
    shifts = np.cumsum([0, *(len(arrival.near) + arrival.size for arrival in arrivals)])
    states = [arrival.states for arrival in arrivals]
    edges = [one.edges for one in states]
    before = np.cumsum([0, *(len(one.rows.columns) for one in edges)])
    starts = [one.rows.offsets[:-1] + int(shift) for one, shift in zip(edges, before[:-1], strict=True)]
    offsets = torch.cat([*starts, starts[0].new_tensor([int(before[-1])])])
    columns = torch.cat([one.rows.columns + int(shift) for one, shift in zip(edges, shifts[:-1], strict=True)])
    rows = Rows(offsets, columns, int(shifts[-1]))
    together = Edges(rows, torch.cat([one.relations for one in edges]), torch.cat([one.weights for one in edges]))
    layers = tuple(torch.cat(parts) for parts in zip(*(one.layers for one in states), strict=True))
    places = [arrival.everyone + int(shift) for arrival, shift in zip(arrivals, shifts[:-1], strict=True)]
    return States(layers, together), torch.cat(places)
