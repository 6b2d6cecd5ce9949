"""A trained propagation network asked over an overlay: messages go along all known facts, newcomers' included.

The network learns on the observed graph, but of relations and of no entity (`newcomer.training.propagation`). So it
serves any graph of these relations; where newcomers bring more facts than were observed, most of what is known of a
candidate is what they state about it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from newcomer.graph import Adjacency, Base, Ids, Overlay
from newcomer.models.device import one_thread
from newcomer.models.propagation.attribution import Chain, Question, attributed_chains
from newcomer.models.propagation.edges import PropagationEdges, propagation_edges, silent_hubs
from newcomer.models.propagation.inference import KnownEdges, QueryPropagation
from newcomer.models.propagation.network import Propagation, batch_size
from newcomer.rules.limits import in_threads, thread_count


class PropagationScorer:
    """The log of each candidate's share in the softmax over all seen entities, in any overlay over one base."""

    def __init__(self, network: Propagation, base: Base, device: torch.device) -> None:
        self.device = torch.device("cpu") if network.is_sparse else device
        self.network, self.base = network.to(self.device).eval(), base
        self._known_relations: npt.NDArray[np.bool_] = network.known_relations.cpu().numpy() > 0
        self._is_hub = silent_hubs(np.diff(base.observed.offsets), network.hub_facts)
        self._base_edges = replace(self._edges(base.rows), silent=self._is_hub)
        on_cpu = self.device.type == "cpu"
        self._by_query = QueryPropagation(self.network, self._base_edges) if on_cpu else None
        self._last: tuple[Overlay, KnownEdges] | None = None
        self._last_parts: tuple[Overlay, list[PropagationEdges]] | None = None

    def scores(
        self, overlay: Overlay, entities: Ids, relations: Ids, threads: int | None = 1
    ) -> npt.NDArray[np.float32]:
        """(queries, entities): log shares; zeros for a relation that no observed fact has, and for a silent hub.

        On a CPU so many ``threads`` share the queries (None: one a core).
        """
        found = np.zeros((len(entities), overlay.num_entities), dtype=np.float32)
        known = np.flatnonzero(self._known_relations[relations] & ~self._are_hubs(entities))
        asked = np.stack([entities[known], relations[known]], axis=1).astype(np.int64)
        distinct, places = np.unique(asked, axis=0, return_inverse=True)  # one query may have many answers
        for part, shares in self._all_log_shares(overlay, distinct, threads):
            of_these = (places >= part.start) & (places < part.stop)
            found[known[of_these]] = shares[places[of_these] - part.start]
        return found

    def _all_log_shares(
        self, overlay: Overlay, queries: npt.NDArray[np.int64], threads: int | None
    ) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """The log shares of some queries at a time."""
        # On a CPU one by one: what is asked together is rounded differently, and takes as long.
        step = 1 if self._by_query is not None else batch_size(self._base_edges, overlay.num_entities)
        parts = [slice(start, start + step) for start in range(0, len(queries), step)]
        if self._by_query is not None:
            self._known_edges(overlay, self._by_query)  # made once, before many threads want them
        with one_thread():
            workers = 1 if self._by_query is None else thread_count(threads)
            found = in_threads(lambda part: self._log_shares(overlay, queries[part]), parts, workers)
        return zip(parts, found, strict=True)

    def chains(self, overlay: Overlay, entity: int, relation: int, answer: int) -> list[Chain]:
        """The chains of facts by which messages lead to an answer; none where `scores` are zeros."""
        if not self._known_relations[relation] or self._are_hubs(np.array([entity]))[0]:
            return []
        question = Question(entity, relation, answer, overlay.num_entities, overlay.num_seen)
        return attributed_chains(self.network, self._parts(overlay), question)

    def _are_hubs(self, entities: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Which of these entities send no messages."""
        found = entities < len(self._is_hub)
        found[found] = self._is_hub[entities[found]]
        return found

    def _log_shares(self, overlay: Overlay, queries: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """(queries, entities), for rows of entity and oriented relation."""
        torch.set_num_threads(1)  # in every thread anew
        with torch.no_grad():
            if self._by_query is not None:
                known = self._known_edges(overlay, self._by_query)
                scores = torch.stack([self._by_query.scores(known, *query) for query in queries.tolist()])
            else:
                sources, relations = torch.from_numpy(queries).to(self.device).unbind(dim=1)
                scores = self.network(self._parts(overlay), sources, relations, overlay.num_entities)
            shares = scores - torch.logsumexp(scores[:, : overlay.num_seen], dim=1, keepdim=True)
        found: npt.NDArray[np.float32] = shares.cpu().numpy()
        return found

    def _known_edges(self, overlay: Overlay, network: QueryPropagation) -> KnownEdges:
        """The edges of base and delta, and what follows from them for all queries; those of the last one are kept."""
        last = self._last
        if last is None or last[0] is not overlay:
            delta = self._edges(overlay.delta) if len(overlay.delta.tails) else None
            last = self._last = overlay, network.known(overlay.is_removed, delta)
        return last[1]

    def _parts(self, overlay: Overlay) -> list[PropagationEdges]:
        """The edges of base and delta; those of the last one are kept."""
        last = self._last_parts
        if last is None or last[0] is not overlay:
            more = [self._edges(overlay.delta)] if len(overlay.delta.tails) else []
            last = self._last_parts = overlay, [self._without(overlay), *more]
        return last[1]

    def _edges(self, rows: Adjacency) -> PropagationEdges:
        """The edges of the facts in rows that are from both ends; those of unknown relations are left out."""
        stated = (rows.relations < self.base.num_relations) & self._known_relations[rows.relations]
        facts = np.stack([rows.owners[stated], rows.relations[stated], rows.tails[stated]]).astype(np.int64)
        starts, relations, ends = torch.from_numpy(facts).to(self.device)
        return propagation_edges(starts, relations, ends, self.base.num_relations, len(rows.offsets) - 1)

    def _without(self, overlay: Overlay) -> PropagationEdges:
        """The base's edges without those of removed newcomers."""
        if len(overlay.removed) == 0:
            return self._base_edges
        rows = self._base_edges.rows
        removed = torch.from_numpy(overlay.is_removed.copy()).to(self.device)
        hidden = removed[rows.row_ids] | removed[rows.columns]
        return self._base_edges.with_weights(self._base_edges.weights.masked_fill(hidden, 0.0))
