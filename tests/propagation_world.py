"""Propagation networks that were not trained, over small overlays, and the network on all facts at once beside them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from newcomer.models.propagation.edges import propagation_edges
from newcomer.models.propagation.network import Propagation
from newcomer.models.propagation.scorer import PropagationScorer
from overlay_world import ENTITIES, RELATIONS, SEEN, Fact, overlay_of

CPU = torch.device("cpu")
KINDS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def network_of(relations: int, sparse: bool = False, known: int | None = None) -> Propagation:
    """One that knows of the first relations, or of all."""
    network = Propagation(relations, torch.Generator().manual_seed(5), sparse)
    with torch.no_grad():
        for one in network.parameters():  # a fresh one has no biases, and scores all alike that nothing reaches
            one.add_(0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(len(one))))
    for first in (0, relations):
        network.known_relations[first : first + (relations if known is None else known)] = 1.0
    return network.eval()


def scorer_of(facts: set[Fact], network: Propagation, device: torch.device = CPU) -> PropagationScorer:
    """A scorer over the base of these facts."""
    return PropagationScorer(network, overlay_of(facts).base, device)


def plainly(
    facts: set[Fact],
    network: Propagation,
    entity: int,
    relation: int,
    size: int = ENTITIES,
    silent: np.ndarray | None = None,
) -> np.ndarray:
    """By the network on all facts at once, where these entities are ``silent``."""
    heads, relations, tails = (torch.tensor(column, dtype=torch.int64) for column in zip(*sorted(facts), strict=True))
    edges = propagation_edges(heads, relations, tails, RELATIONS, size)
    if silent is not None:
        edges = replace(edges, silent=silent)
    scores = network([edges], torch.tensor([entity]), torch.tensor([relation]), size)  # with gradients: another way
    return (scores - torch.logsumexp(scores[:, :SEEN], dim=1, keepdim=True))[0].detach().numpy()
