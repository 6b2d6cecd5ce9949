"""A trained model in memory: the parts that answer queries, wherever they come from."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from newcomer.config import Config
from newcomer.graph import Graph, TripleArray
from newcomer.models.embedding.graph_tensors import GraphTensors
from newcomer.models.embedding.model import Model
from newcomer.models.embedding.newcomers import NewcomerEncoder
from newcomer.models.ensemble import Weights
from newcomer.models.propagation.network import Propagation
from newcomer.models.triple_classifier import TripleClassifier
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import VirtualNeighbors


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
        settings = self.config.model
        options = settings.labels, settings.soft_label_c, settings.constrained
        return NewcomerEncoder(self.embedding.eval(), self.graph, self.labels, *options, self.support)


@dataclass(frozen=True, eq=False)
class StoredNewcomers:
    """Newcomers' facts that a model comes with, by id, and what was computed of them before, where that is known."""

    facts: TripleArray = field(default_factory=TripleArray.empty)
    virtual: VirtualNeighbors | None = None
    labels: Tensor | None = None
    support: Tensor | None = None
    vectors: Tensor | None = None  # (newcomers of the vocabulary, d)
