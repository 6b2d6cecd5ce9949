"""A trained model at work on a data set: newcomers are added to the seen entities, then any query can be scored."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Ids, InductiveDataset
from newcomer.nn.encoders import States
from newcomer.nn.layers import Edges
from newcomer.nn.model import Model
from newcomer.nn.soft_labels import soft_labels
from newcomer.rules.neighbors import VirtualNeighbors
from newcomer.training.graph import TrainingGraph, build_training_graph


class ModelScorer:
    """Scores all entities for (entity, relation, ?); implements what ranking asks for.

    Seen entities are encoded over the observed graph alone. The soft labels of newcomers' virtual triples are computed
    once, with the newcomers embedded by their stated facts: inference does not iterate.
    """

    def __init__(
        self,
        model: Model,
        seen_graph: TrainingGraph,
        seen_labels: Tensor,
        dataset: InductiveDataset,
        virtual: VirtualNeighbors | None,
        labels: str,
        c: float,
    ) -> None:
        self.model = model.eval()
        self.device = seen_labels.device
        self.num_entities = len(dataset.entities)
        with torch.no_grad():
            self.states = self._states(seen_graph, seen_labels, dataset, virtual, labels, c)
            everyone = torch.arange(self.num_entities, device=self.device)
            self.everyone = everyone
            self.fixed = None if model.encoder.query_aware else self._candidates(0)

    def _states(
        self,
        seen_graph: TrainingGraph,
        seen_labels: Tensor,
        dataset: InductiveDataset,
        virtual: VirtualNeighbors | None,
        labels: str,
        c: float,
    ) -> States:
        ones = torch.ones(len(seen_graph.facts), device=self.device)
        seen = self.model.encoder.states(seen_graph.edges(torch.cat([ones, seen_labels])))
        if seen_graph.num_entities == self.num_entities:
            return seen
        arrived = build_training_graph(dataset.auxiliary, self.num_entities, virtual, self.device)
        stated = torch.ones(len(arrived.facts), device=self.device)
        silent = torch.zeros(len(arrived.virtual), device=self.device)
        alone = self._extended(seen, arrived, torch.cat([stated, silent]))
        if len(arrived.virtual) == 0 or labels == "none":
            return alone
        believed = virtual_labels(self.model, alone, arrived, torch.arange(len(silent), device=self.device), labels, c)
        return self._extended(seen, arrived, torch.cat([stated, believed]))

    def _extended(self, seen: States, arrived: TrainingGraph, weights: Tensor) -> States:
        edges = arrived.edges(weights)
        start = seen.edges.rows.num_rows
        newcomers = torch.arange(start, self.num_entities, device=self.device)
        rows, entries = edges.rows.pick(newcomers)
        return self.model.encoder.extend(seen, Edges(rows, edges.relations[entries], edges.weights[entries]))

    def _candidates(self, relation: int) -> Tensor:
        """(entities, d): everyone as an answer to ``relation``."""
        asked = torch.full_like(self.everyone, (relation + self.model.num_relations) % (2 * self.model.num_relations))
        return self.model.encoder.embed(self.states, self.everyone, asked)

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of scores a query."""
        rows = np.empty((len(entities), self.num_entities), dtype=np.float32)
        with torch.no_grad():
            asked = torch.tensor(entities, dtype=torch.int64, device=self.device)
            queries = torch.tensor(relations, dtype=torch.int64, device=self.device)
            vectors = self.model.encoder.embed(self.states, asked, queries)
            for relation in np.unique(relations):
                which = np.flatnonzero(relations == relation)
                candidates = self.fixed if self.fixed is not None else self._candidates(int(relation))
                place = torch.tensor(which, device=self.device)
                found = self.model.decoder.all_tails(vectors[place], queries[place], candidates)
                rows[which] = found.float().cpu().numpy()
        return rows


def virtual_labels(model: Model, states: States, graph: TrainingGraph, which: Tensor, mode: str, c: float) -> Tensor:
    """(n,): labels of these virtual triples with the current embeddings; no gradient."""
    if mode != "soft":
        return soft_labels(
            torch.zeros(len(which), device=which.device),
            which[:0],
            which[:0].float(),
            torch.empty(0, 3, device=which.device),
            c,
            mode,
        )
    with torch.no_grad():
        groundings = graph.groundings
        sizes = groundings.offsets[which + 1] - groundings.offsets[which]
        row = torch.repeat_interleave(torch.arange(len(which), device=which.device), sizes)
        start = torch.repeat_interleave(groundings.offsets[which] - (torch.cumsum(sizes, 0) - sizes), sizes)
        chosen = start + torch.arange(len(start), device=which.device)
        premises = groundings.premises[chosen]
        there = premises[:, :, 1] >= 0
        truth_of_premises = torch.ones(there.shape, device=which.device)
        truth_of_premises[there] = model.truths(states, premises[there])
        truth = model.truths(states, graph.virtual[which])
        return soft_labels(truth, row, groundings.confidence[chosen], truth_of_premises, c, mode)
