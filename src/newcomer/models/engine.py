"""A trained model in memory, and the inference engine: scores of every candidate for (entity, relation, ?).

Validation, evaluation and the predictor all ask this one, in any snapshot of newcomers. A query is answered by itself,
so that a score depends on the model, the facts that are known and the query, and on nothing else that is asked.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.config import Config
from newcomer.graph import Graph, Ids, Overlay, TripleArray, about_newcomers
from newcomer.models.embedding.graph_tensors import GraphTensors
from newcomer.models.embedding.model import Model
from newcomer.models.embedding.newcomers import Component, EncodedComponent, NewcomerEncoder
from newcomer.models.embedding.scorer import EmbeddingScorer, Members, Scores, Snapshot
from newcomer.models.ensemble import Column, Signals, Weights, added_up, ensemble_scores, feature_names, parts
from newcomer.models.propagation.network import Propagation
from newcomer.models.propagation.scorer import PropagationScorer
from newcomer.models.rule_engine import RuleEngine
from newcomer.models.triple_classifier import TripleClassifier
from newcomer.rules.grounding import Floats
from newcomer.rules.limits import in_threads, thread_count
from newcomer.rules.ranking import OnlineRules
from newcomer.rules.rule import RuleSet
from newcomer.rules.statistics import GraphSignals, GraphStatistics, graph_signals
from newcomer.rules.virtual_neighbors import VirtualNeighbors

AT_ONCE = 128  # queries whose tables are made together
CELLS_AT_ONCE = 1 << 21  # candidates of these queries, all together


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """What a training ends with, and what a folder holds."""

    config: Config
    observed: Graph
    rules: RuleSet
    embedding: Model
    graph: GraphTensors  # of seen entities, with their virtual neighbours
    labels: Tensor  # of these virtual triples
    neighbors: VirtualNeighbors | None = None
    support: Tensor | None = None  # what rules add to their truth, before it is weighed, where that is known
    weights: Weights | None = None  # of the ensemble
    propagation: Propagation | None = None
    triple_classifier: TripleClassifier | None = None

    @property
    def num_seen(self) -> int:
        return self.graph.num_entities

    @property
    def device(self) -> torch.device:
        return self.labels.device

    @cached_property
    def encoder(self) -> NewcomerEncoder:
        """The embedding with its seen entities encoded."""
        return NewcomerEncoder(self.embedding.eval(), self.config.model, self.graph, self.labels, self.support)


class Scored(NamedTuple):
    """Everyone as an answer to a query; (entities,) each.

    ``confidence`` is that of the best rule, smoothed and 0 of whom none infers, ``parts`` what each feature adds to the
    scores; there is neither where the embedding alone decides.
    """

    scores: Scores
    confidence: Floats | None
    parts: dict[str, Column]


@dataclass(frozen=True, eq=False)
class StoredNewcomers:
    """Newcomers' facts that a model comes with, by id, and what was computed of them before, where that is known."""

    facts: TripleArray = field(default_factory=TripleArray.empty)
    virtual: VirtualNeighbors | None = None
    labels: Tensor | None = None
    support: Tensor | None = None
    vectors: Tensor | None = None  # (newcomers of the vocabulary, d)


class InferenceEngine:
    """A trained model and the newcomers it comes with, ready to be asked.

    Newcomers that the vocabulary knows have its ids, whether or not anything is known of them.
    """

    def __init__(self, model: TrainedModel, stored: StoredNewcomers | None = None, threads: int | None = None) -> None:
        stored = stored or StoredNewcomers()
        self.model, self.threads = model, threads
        self.overlay = Overlay.of(model.observed, stored.facts, model.num_seen)
        self.encoder = model.encoder
        self.embedding = EmbeddingScorer(self.encoder, len(model.observed.entities))
        self.rules = RuleEngine.of(model.rules, self.overlay.base, model.config)
        self.propagation = (
            None if model.propagation is None else PropagationScorer(model.propagation, self.overlay.base, model.device)
        )
        self._statistics: GraphStatistics | None = None
        self._last_propagation: tuple[Snapshot, int, int, Column] | None = None
        self._inferred: WeakKeyDictionary[EncodedComponent, EncodedComponent] = WeakKeyDictionary()
        if model.config.model.ensemble:  # counted now, not when the first query comes
            _ = self.overlay.arrays, self.overlay.base.counts
        self.initial = self._initial_snapshot(stored)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features of the ensemble, in their order."""
        return feature_names(self.model.config.model.graph_statistics, self.propagation is not None)

    def _initial_snapshot(self, stored: StoredNewcomers) -> Snapshot:
        """All newcomers of the vocabulary, encoded together."""
        first, size = self.model.num_seen, self.overlay.num_entities
        is_present = np.ones(size, dtype=bool)
        is_present[first:] = np.diff(self.overlay.base.rows.offsets)[first:] > 0
        if first == size:
            return Snapshot(self.overlay, (), is_present)
        facts = about_newcomers(stored.facts, first)
        component = Component(np.arange(first, size, dtype=np.int32), facts)
        virtual = stored.virtual
        if virtual is None and self.encoder.uses_virtual_edges:
            present = Component(np.flatnonzero(is_present[first:]).astype(np.int32) + first, facts)
            virtual = self.rules.virtual_neighbors(present, self.threads)
        encoded = self.encoder.encode(component, virtual, stored.labels, stored.support, stored.vectors, self.threads)
        return Snapshot(self.overlay, (Members(encoded, component.ids),), is_present)

    def encode(self, component: Component) -> EncodedComponent:
        """The vectors of connected newcomers."""
        virtual = self.rules.virtual_neighbors(component) if self.encoder.uses_virtual_edges else None
        return self.encoder.encode(component, virtual)

    def with_virtual_neighbors(self, encoded: EncodedComponent) -> EncodedComponent:
        """A component with what rules infer about it; found now where its vectors did not need it."""
        if self.encoder.uses_virtual_edges or encoded.virtual is not None:
            return encoded
        if encoded not in self._inferred:
            vectors = encoded.states.layers[0][len(encoded.near) :]
            virtual = self.rules.virtual_neighbors(encoded.component)
            self._inferred[encoded] = self.encoder.encode(encoded.component, virtual, vectors=vectors)
        return self._inferred[encoded]

    def statistics(self, snapshot: Snapshot) -> GraphStatistics | None:
        """What is counted over all facts of a snapshot; None of models that do not use it."""
        if not self.model.config.model.graph_statistics:
            return None
        found = self._statistics
        if found is None or found.overlay is not snapshot.overlay:
            found = self._statistics = GraphStatistics(snapshot.overlay)
        return found

    def online_rules(self, snapshot: Snapshot, relation: int) -> OnlineRules | None:
        """The online rules of a relation, if it has any."""
        statistics = self.statistics(snapshot)
        return None if statistics is None else statistics.online_rules(relation)

    def scores(self, snapshot: Snapshot, entity: int, relation: int) -> Scores:
        """(entities,): everyone as an answer to (entity, oriented relation, ?)."""
        if self.model.weights is None:
            return self.embedding.scores(snapshot, entity, relation)
        return ensemble_scores(self.signals(snapshot, entity, relation), self.model.weights)

    def scored(self, snapshot: Snapshot, entity: int, relation: int) -> Scored:
        """The scores, and what they are made of."""
        if self.model.weights is None:
            return Scored(self.embedding.scores(snapshot, entity, relation), None, {})
        signals = self.signals(snapshot, entity, relation)
        found = dict(zip(self.feature_names, parts(signals, self.model.weights), strict=True))
        return Scored(added_up(found.values()), signals.rules.confidence, found)

    def scored_many(self, snapshot: Snapshot, entities: Ids, relations: Ids) -> list[Scored]:
        """The same of many queries on as many threads as there are, without the parts."""
        weights = self.model.weights
        if weights is None:
            queries = zip(entities.tolist(), relations.tolist(), strict=True)
            return [self.scored(snapshot, *query) for query in queries]
        found = self.signals_of_many(snapshot, entities, relations)
        return [Scored(ensemble_scores(one, weights), one.rules.confidence, {}) for one in found]

    def triple_score(self, snapshot: Snapshot, head: int, relation: int, tail: int) -> float:
        """The score of one triple: by the ensemble as an answer among all, else by itself."""
        if self.model.weights is None:
            return self.embedding.triple_score(snapshot, head, relation, tail)
        return float(self.scores(snapshot, head, relation)[tail])

    def signals(self, snapshot: Snapshot, entity: int, relation: int) -> Signals:
        """All that the ensemble is computed from."""
        graph = self._graph_signals(snapshot, entity, relation)
        return self._signals(snapshot, (entity, relation), graph, self._propagation(snapshot, entity, relation))

    def _graph_signals(self, snapshot: Snapshot, entity: int, relation: int) -> GraphSignals:
        """Those that neither embedding nor propagation network is asked for."""
        assert self.rules.ranker is not None  # where there is an ensemble
        return graph_signals(self.rules.ranker, snapshot.overlay, self.statistics(snapshot), entity, relation)

    def _signals(
        self, snapshot: Snapshot, query: tuple[int, int], graph: GraphSignals, propagation: Column | None
    ) -> Signals:
        embedding, overlay = self.embedding.scores(snapshot, *query), snapshot.overlay
        return Signals(overlay.num_seen, overlay.is_unobserved, embedding, *graph, propagation)

    def _propagation(self, snapshot: Snapshot, entity: int, relation: int) -> Column | None:
        if self.propagation is None:
            return None
        last = self._last_propagation  # reasons are asked for after answers, and a query takes its time
        if last is not None and last[0] is snapshot and last[1:3] == (entity, relation):
            return last[3]
        asked = np.array([entity], dtype=np.int32), np.array([relation], dtype=np.int32)
        found: Column = self.propagation.scores(snapshot.overlay, *asked)[0]
        self._last_propagation = snapshot, entity, relation, found
        return found

    def signals_of_many(self, snapshot: Snapshot, entities: Ids, relations: Ids) -> list[Signals]:
        """As `signals`, for many queries on as many threads as there are; on a GPU they are propagated together."""
        queries = list(zip(entities.tolist(), relations.tolist(), strict=True))
        distinct = list(dict.fromkeys(queries))
        _ = snapshot.overlay.arrays, self.statistics(snapshot)  # made once, before many threads want them
        graph = in_threads(lambda query: self._graph_signals(snapshot, *query), distinct, thread_count(self.threads))
        rows: list[Column | None] = [None] * len(distinct)
        if self.propagation is not None:
            entity, relation = np.array(distinct, dtype=np.int32).reshape(-1, 2).T
            rows = list(self.propagation.scores(snapshot.overlay, entity, relation, self.threads))
        found = {one[0]: self._signals(snapshot, *one) for one in zip(distinct, graph, rows, strict=True)}
        return [found[query] for query in queries]


class SnapshotScorer:
    """An engine asked in one snapshot by ids; implements what ranking and classification ask for.

    With ``embedding_only`` the embedding is asked, though the model has an ensemble.
    """

    def __init__(self, engine: InferenceEngine, snapshot: Snapshot, embedding_only: bool = False) -> None:
        self.engine, self.snapshot = engine, snapshot
        self.weights: Weights | None = None if embedding_only else engine.model.weights

    @property
    def num_entities(self) -> int:
        return self.snapshot.num_entities

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of scores a query."""
        found = np.empty((len(entities), self.num_entities), dtype=np.float32)
        for part in query_batches(len(entities), self.num_entities):
            found[part] = self._scores(entities[part], relations[part])
        return found

    def _scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        if self.weights is not None:
            signals = self.engine.signals_of_many(self.snapshot, entities, relations)
            return np.stack([ensemble_scores(one, self.weights) for one in signals])
        queries = list(zip(entities.tolist(), relations.tolist(), strict=True))
        rows = {query: self.engine.embedding.scores(self.snapshot, *query) for query in dict.fromkeys(queries)}
        return np.stack([rows[query] for query in queries])

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float32]:
        """(n,): the score of each triple; relation ids from R on are inverses."""
        found = np.empty(len(heads), dtype=np.float32)
        if self.weights is None:
            for place, triple in enumerate(zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)):
                found[place] = self.engine.embedding.triple_score(self.snapshot, *triple)
            return found
        for part in query_batches(len(heads), self.num_entities):
            found[part] = self._scores(heads[part], relations[part])[np.arange(len(heads[part])), tails[part]]
        return found


def query_batches(queries: int, entities: int) -> Iterator[slice]:
    """Some queries at a time, so few that the tables of all candidates are no burden."""
    step = max(1, min(AT_ONCE, CELLS_AT_ONCE // max(entities, 1)))
    return (slice(start, min(start + step, queries)) for start in range(0, queries, step))
