"""A trained model at work on a data set: newcomers are added to the seen entities, then any query can be scored."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Ids, InductiveDataset
from newcomer.models.edges import Edges
from newcomer.models.embedding.encoder import States
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.embedding.model import Model
from newcomer.models.sparse import Rows
from newcomer.models.threads import one_thread
from newcomer.models.vn.soft_labels import soft_labels
from newcomer.rules.virtual_neighbors import VirtualNeighbors

TRIPLES_AT_ONCE = 1 << 16
ENTITIES_AT_ONCE = 1 << 13


class ModelScorer:
    """Scores all entities for (entity, relation, ?); implements what ranking asks for.

    Seen entities are encoded over the observed graph alone. The soft labels of newcomers' virtual triples are computed
    once, with the newcomers embedded by their stated facts: inference does not iterate.

    With ``constrained`` the score of a triple that rules infer is that of its label, the optimum under the rules, and
    not what the embeddings alone say: so a model that never saw a newcomer still says of it what the rules say.
    """

    def __init__(
        self,
        model: Model,
        seen_graph: GraphTensors,
        seen_labels: Tensor,
        dataset: InductiveDataset,
        virtual: VirtualNeighbors | None,
        labels: str,
        c: float,
        constrained: bool = False,
    ) -> None:
        self.model = model.eval()
        self.device = seen_labels.device
        self.num_entities = len(dataset.entities)
        self.everyone = torch.arange(self.num_entities, device=self.device)
        self.labels, self.c = labels, c
        with torch.no_grad():
            ones = torch.ones(len(seen_graph.facts), device=self.device)
            seen = self.model.encoder.states(seen_graph.edges(torch.cat([ones, seen_labels])))
            graphs, self.states = [seen_graph], seen
            if seen_graph.num_entities < self.num_entities:
                graphs.append(build_graph_tensors(dataset.auxiliary, self.num_entities, virtual, self.device))
                self.states = self._arrive(seen, graphs[-1])
            same = model.answers_by_input or not model.encoder.query_aware
            # Some at a time: all neighbours of everyone, in order, are gigabytes to a network that reads them in turn.
            parts = torch.split(self.everyone, ENTITIES_AT_ONCE)
            self.fixed = torch.cat([self._candidates(0, part) for part in parts]) if same else None
            self.inferred = self._infer(graphs) if constrained and labels != "none" else None

    def _arrive(self, seen: States, arrived: GraphTensors) -> States:
        """Newcomers embedded by their facts; then, where these make rules infer more, by both."""
        stated = torch.ones(len(arrived.facts), device=self.device)
        silent = torch.zeros(len(arrived.virtual), device=self.device)
        alone = self._extended(seen, arrived, torch.cat([stated, silent]))
        if len(arrived.virtual) == 0 or self.labels == "none" or not self.model.encoder.uses_virtual_edges:
            return alone
        every = torch.arange(len(silent), device=self.device)
        believed = virtual_labels(self.model, alone, arrived, every, self.labels, self.c)
        return self._extended(seen, arrived, torch.cat([stated, believed]))

    def _infer(self, graphs: list[GraphTensors]) -> "Inferred":
        """What rules add to the truth of each virtual triple, by query."""
        triples = torch.cat([graph.virtual for graph in graphs])
        added = torch.cat([self._added(graph) for graph in graphs])
        size = 2 * self.model.num_relations
        forward = triples[:, 0] * size + triples[:, 1]
        backward = triples[:, 2] * size + self.model.inverse(triples[:, 1])
        keys, order = torch.sort(torch.cat([forward, backward]), stable=True)
        answers = torch.cat([triples[:, 2], triples[:, 0]])[order]
        return Inferred(keys, answers, added.repeat(2)[order])

    def _added(self, graph: GraphTensors) -> Tensor:
        if self.labels == "hard":
            return torch.ones(len(graph.virtual), device=self.device)
        every = torch.arange(len(graph.virtual), device=self.device)
        return self.c * rule_support(self.model, self.states, graph, every)

    def _extended(self, seen: States, arrived: GraphTensors, weights: Tensor) -> States:
        edges = arrived.edges(weights)
        start = seen.edges.rows.num_rows
        newcomers = torch.arange(start, self.num_entities, device=self.device)
        rows, entries = edges.rows.pick(newcomers)
        return self.model.encoder.extend(seen, Edges(rows, edges.relations[entries], edges.weights[entries]))

    def _candidates(self, relation: int, entities: Tensor) -> Tensor:
        """(entities, d): these as answers to ``relation``."""
        return self.model.answers(self.states, entities, torch.full_like(entities, relation))

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of scores a query, the same with any number of threads: weights are learned from it."""
        with torch.no_grad(), one_thread():
            asked = torch.tensor(entities, dtype=torch.int64, device=self.device)
            queries = torch.tensor(relations, dtype=torch.int64, device=self.device)
            scores = torch.empty(len(asked), self.num_entities, device=self.device)
            vectors = self.model.encoder.embed(self.states, asked, queries)
            for relation in np.unique(relations):
                place = torch.tensor(np.flatnonzero(relations == relation), device=self.device)
                candidates = self.fixed if self.fixed is not None else self._candidates(int(relation), self.everyone)
                scores[place] = self.model.decoder.all_tails(vectors[place], queries[place], candidates).float()
            if self.inferred is not None:
                self.inferred.lift(scores, asked * 2 * self.model.num_relations + queries)
            return scores.cpu().numpy()

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float32]:
        """(n,): the score of each triple; relation ids from R on are inverses."""
        triples = torch.tensor(np.column_stack([heads, relations, tails]), dtype=torch.int64, device=self.device)
        with torch.no_grad():
            parts = [self._triple_scores(part) for part in torch.split(triples, TRIPLES_AT_ONCE)]
        return np.concatenate([np.empty(0, np.float32), *(part.cpu().numpy() for part in parts)])

    def _triple_scores(self, triples: Tensor) -> Tensor:
        scores = self.model.scores(self.states, triples).float()
        if self.inferred is None:
            return scores
        return self.inferred.lift_one(
            scores, triples[:, 0] * 2 * self.model.num_relations + triples[:, 1], triples[:, 2]
        )


@dataclass(frozen=True, eq=False)
class Inferred:
    """Queries that rules answer: ascending keys, an answer each, and what rules add to its truth."""

    keys: Tensor
    answers: Tensor
    added: Tensor

    def lift(self, scores: Tensor, asked: Tensor) -> None:
        """Give what rules infer the score of its label, in rows of scores, one a query."""
        first = torch.searchsorted(self.keys, asked)
        counts = torch.searchsorted(self.keys, asked, right=True) - first
        offsets = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])
        rows = Rows(offsets, self.answers.new_empty(int(offsets[-1])), 0).row_ids()
        places = torch.arange(len(rows), device=rows.device) + (first - offsets[:-1])[rows]
        answers, top = self.answers[places], scores.max(dim=1).values
        scores[rows, answers] = lifted(scores[rows, answers], self.added[places], top[rows])

    def lift_one(self, scores: Tensor, asked: Tensor, answers: Tensor) -> Tensor:
        """The same for single triples, with what certainly is above all else as the top."""
        if len(self.keys) == 0 or len(answers) == 0:
            return scores
        width = int(torch.cat([self.answers, answers]).max()) + 1
        keys, order = torch.sort(self.keys * width + self.answers)
        wanted = asked * width + answers
        place = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
        there = keys[place] == wanted
        return torch.where(there, lifted(scores, self.added[order][place], scores.new_tensor(CERTAIN)), scores)


CERTAIN = 30.0  # a score whose truth is one in single precision


def lifted(scores: Tensor, added: Tensor, top: Tensor) -> Tensor:
    """The score of ``truth + added``: its log odds; where that is one or more, above the top by as much as it exceeds.

    Labels end at one, yet answers have an order: those that rules make certain are ordered by how far they would go on.
    """
    rest = torch.sigmoid(-scores) - added  # what is left to certainty
    odds = torch.log(torch.sigmoid(scores) + added) - torch.log(rest.clamp_min(1e-30))
    return torch.where(rest > 1e-30, odds, torch.maximum(top, scores) + 1.0 - rest)


def rule_support(model: Model, states: States, graph: GraphTensors, which: Tensor) -> Tensor:
    """(n,): for each of these virtual triples the confidences of its groundings, as true as their premises, summed."""
    with torch.no_grad():
        grounds = graph.grounds(which)
        return grounds.support(model.truths(states, grounds.premises).float())


def virtual_labels(model: Model, states: States, graph: GraphTensors, which: Tensor, mode: str, c: float) -> Tensor:
    """(n,): labels of these virtual triples with the current embeddings; no gradient."""
    if mode != "soft":
        none = torch.zeros(len(which), device=which.device)
        return soft_labels(none, none, c, mode)
    with torch.no_grad():
        truth = model.truths(states, graph.virtual[which])
        return soft_labels(truth, rule_support(model, states, graph, which), c, mode)
