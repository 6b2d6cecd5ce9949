"""Propagation by its formulas, one query, entity and fact at a time; and small graphs to try it on."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from newcomer.models.propagation.edges import PropagationEdges, propagation_edges
from newcomer.models.propagation.network import DIM, Propagation

RELATIONS = 3
Fact = tuple[int, int, int]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network_of(seed: int = 0, sparse: bool = False) -> Propagation:
    """One whose parameters are not those of a fresh one, most of which are 0 or 1."""
    generator = seeded(seed)
    found = Propagation(RELATIONS, generator, sparse)
    with torch.no_grad():
        for one in found.parameters():
            one += 0.2 * torch.randn(one.shape, generator=generator)
    return found.eval()


def drawn(seed: int, entities: int = 12, count: int = 14) -> list[Fact]:
    """Facts, of which one is stated twice, and one leads back to where it comes from."""
    rng = np.random.default_rng(seed)
    facts = [tuple(int(rng.integers(most)) for most in (entities, RELATIONS, entities)) for _ in range(count)]
    return [*facts, facts[0], (3, 1, 3)]  # type: ignore[list-item]


def edges_of(facts: Sequence[Fact], entities: int) -> PropagationEdges:
    heads, relations, tails = torch.tensor(facts, dtype=torch.int64).reshape(-1, 3).unbind(dim=1)
    return propagation_edges(heads, relations, tails, RELATIONS, entities)


def scores_by_hand(
    net: Propagation, facts: Sequence[Fact], source: int, query: int, entities: int, silent: Sequence[int] = ()
) -> Tensor:
    """(entities,): the scores; in a sparse network only entities that messages have reached have a vector."""
    edges = [(h, r, t) for h, r, t in facts] + [(t, r + RELATIONS, h) for h, r, t in facts]  # seen from the first end
    degree = [1 + sum(one[0] == v for one in edges) for v in range(entities)]
    query_vector, zero = net.queries[query], torch.zeros(DIM)
    vectors = {} if net.is_sparse else dict.fromkeys(range(entities), zero)
    vectors[source] = query_vector
    for layer in range(net.layers):
        sums: dict[int, Tensor] = defaultdict(lambda: zero)
        sums[source] = sums[source] + query_vector
        for v, r, u in edges:
            if u in vectors and u not in silent:
                sums[v] = sums[v] + net.scales[layer, r] * vectors[u]
        after = {}
        for v in {*vectors, *sums}:
            before, s = vectors.get(v, zero), sums[v] * (1 + torch.tanh(net.gates[layer](query_vector)))
            parts = torch.cat([before, torch.sign(s) * torch.log1p(s.abs()), s / degree[v]])
            after[v] = before + torch.relu(net.norms[layer](net.mixes[layer](parts)))
        vectors = after
    table = torch.stack([vectors.get(v, zero) for v in range(entities)])
    inner = torch.relu(net.first(torch.cat([table, query_vector.expand(entities, DIM)], dim=1)))
    return inner @ net.last[0]


def all_scores_by_hand(
    net: Propagation, facts: Sequence[Fact], sources: Tensor, queries: Tensor, entities: int
) -> Tensor:
    pairs = zip(sources.tolist(), queries.tolist(), strict=True)
    return torch.stack([scores_by_hand(net, facts, *one, entities) for one in pairs])
