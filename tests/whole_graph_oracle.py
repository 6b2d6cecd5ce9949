"""Seen entities and newcomers in one graph, encoded at once: the oracle of components that are encoded apart."""

import torch
from torch import Tensor

from newcomer.graph import InductiveDataset
from newcomer.models.embedding.encoder import Edges, States
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors, soft_labels
from newcomer.models.embedding.model import Model
from newcomer.rules.virtual_neighbors import VirtualNeighbors


def whole_states(
    model: Model,
    seen_graph: GraphTensors,
    seen_labels: Tensor,
    dataset: InductiveDataset,
    virtual: VirtualNeighbors | None,
    labels: str = "soft",
    c: float = 0.01,
) -> States:
    """Everyone's vectors: newcomers by their facts, then, where these make rules infer more, by both."""
    with torch.no_grad():
        seen = model.encoder.states(seen_graph.edges(torch.cat([torch.ones(len(seen_graph.facts)), seen_labels])))
        if seen_graph.num_entities == len(dataset.entities):
            return seen
        graph = build_graph_tensors(dataset.auxiliary, len(dataset.entities), virtual, torch.device("cpu"))
        stated, nothing = torch.ones(len(graph.facts)), torch.zeros(len(graph.virtual))
        alone = _extended(model, seen, graph, torch.cat([stated, nothing]))
        if len(nothing) == 0 or labels == "none" or not model.encoder.uses_virtual_edges:
            return alone
        found = soft_labels(nothing, nothing, c, labels)
        if labels == "soft":
            grounds = graph.grounds(torch.arange(len(nothing)))
            support = grounds.support(model.truths(alone, grounds.premises).float())
            found = soft_labels(model.truths(alone, graph.virtual), support, c)
        return _extended(model, seen, graph, torch.cat([stated, found]))


def _extended(model: Model, seen: States, graph: GraphTensors, weights: Tensor) -> States:
    edges = graph.edges(weights)
    rows, entries = edges.rows.pick(torch.arange(seen.edges.rows.num_rows, graph.num_entities))
    return model.encoder.extend(seen, Edges(rows, edges.relations[entries], edges.weights[entries]))
