"""Propagation on a CPU: sums of messages against the plain ones, pairs near a source, and what a frontier reaches."""

import numpy as np
import pytest
import torch

from newcomer.models.propagation.cpu import (
    Pairs,
    distances,
    find_frontier,
    message_sums,
    messages_of,
    summed_pairs,
)
from newcomer.models.propagation.network import LAYERS, over_all, plain_message_sums
from nn_oracle import one_thread
from propagation_oracle import RELATIONS, all_scores_by_hand, drawn, edges_of, network_of, seeded

on_one_thread = pytest.fixture(autouse=True)(one_thread)
ENTITIES = 14


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sums_and_their_gradients_are_the_plain_ones(count):
    parts = []
    for seed in range(count):
        edges = edges_of(drawn(seed, 8 + 2 * seed), 8 + 2 * seed)
        parts.append(edges.with_weights((torch.rand(len(edges.relations), generator=seeded(seed)) < 0.8).float()))
    given = [torch.randn(*shape, 4, generator=seeded(5), requires_grad=True) for shape in ((12, 2), (2 * RELATIONS,))]
    found = message_sums(parts, *given, ENTITIES)
    wanted = over_all([plain_message_sums(one, *given) for one in parts], ENTITIES)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn(found.shape, generator=seeded(7))
    gradients = [torch.autograd.grad((one * weights).sum(), given) for one in (found, wanted)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_plain_sums_are_those_by_hand():
    facts = drawn(1)
    vectors, scales = torch.randn(ENTITIES, 2, 4, generator=seeded(5)), torch.randn(6, 4, generator=seeded(6))
    wanted = torch.zeros_like(vectors)
    for head, relation, tail in facts:
        wanted[head] += scales[relation] * vectors[tail]
        wanted[tail] += scales[relation + RELATIONS] * vectors[head]
    torch.testing.assert_close(plain_message_sums(edges_of(facts, ENTITIES), vectors, scales), wanted)


def test_the_background_may_be_given_beforehand():
    facts, own = drawn(1, 8), [(11, 0, 3), (2, 1, 11), (11, 2, 9)]
    net, query, parts = network_of(), (torch.tensor([11, 2]), torch.tensor([0, 4])), [edges_of(facts, 8)]
    parts.append(edges_of(own, ENTITIES))
    with torch.no_grad():
        background = [net.background_of(one) for one in parts]
        found = net(parts, *query, ENTITIES, background=background)
        wanted = all_scores_by_hand(net, [*facts, *own], *query, ENTITIES)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        assert torch.equal(found, net(parts, *query, ENTITIES))
        other = net(parts, *query, ENTITIES, background=[background[0] + 1, background[1]])
    assert not torch.allclose(found, other)


def test_pairs_are_summed_and_added_once():
    first = Pairs(torch.tensor([1, 0]), torch.tensor([0, 1]), torch.tensor([[1.0], [2.0]]))
    summed = summed_pairs([first, Pairs(torch.tensor([1]), torch.tensor([0]), torch.tensor([[4.0]]))], 2)
    assert [part.flatten().tolist() for part in summed] == [[0, 1], [1, 0], [2.0, 5.0]]
    assert summed.added_to(torch.ones(2, 2, 1))[:, :, 0].tolist() == [[1.0, 3.0], [6.0, 1.0]]


def test_messages_go_by_inverse_relations_and_not_along_masked_edges():
    edges = edges_of([(0, 1, 2), (3, 2, 0)], 4)
    pairs = Pairs(torch.tensor([0, 5]), torch.tensor([7, 7]), torch.ones(2, 1))
    scales = torch.arange(6.0)[:, None]
    sent = messages_of(pairs, edges, scales)
    received = sorted(zip(sent.entities.tolist(), sent.vectors[:, 0].tolist(), strict=True))
    assert received == [(2, 4.0), (3, 2.0)]  # 2 receives by the inverse of 1; an entity without a row sends nothing
    assert sent.queries.tolist() == [7, 7]
    assert not messages_of(pairs, edges.with_weights(torch.zeros_like(edges.weights)), scales).vectors.any()


def test_distances_are_numbers_of_edges():
    chain = edges_of([(place, 0, place + 1) for place in range(6)], 9)
    assert distances([chain], 2, LAYERS, 9).tolist() == [2, 1, 0, 1, 2, 3, 4, 5, 5]
    shorter = edges_of([(2, 1, 6), (6, 1, 8)], 9)
    assert distances([chain, shorter], 2, LAYERS, 9).tolist() == [2, 1, 0, 1, 2, 2, 1, 5, 2]
    masked = chain.with_weights(((chain.rows.row_ids != 3) & (chain.rows.columns != 3)).float())
    assert distances([masked], 2, LAYERS, 9).tolist() == [2, 1, 0, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_frontier_is_all_that_is_near_and_its_sums_are_those_of_all_edges(count):
    parts = [edges_of(drawn(seed, 30, 12), 30) for seed in range(count)]
    sources, entities = np.array([3, 8, 3]), 32
    frontier = find_frontier(parts, sources, LAYERS, entities)
    within = np.stack([distances(parts, int(source), LAYERS, entities) for source in sources])
    found = within[frontier.queries, frontier.entities]
    assert np.array_equal(found, np.sort(found)) and frontier.within[-1] == len(found) == (within <= LAYERS).sum()
    assert np.array_equal(frontier.within, [(within <= steps).sum() for steps in range(LAYERS + 1)])
    scales = torch.randn(2 * RELATIONS, 4, generator=seeded(1))
    places = torch.from_numpy(frontier.entities), torch.from_numpy(frontier.queries)
    for layer in range(LAYERS):
        known, reached = frontier.within[layer : layer + 2].tolist()
        vectors = torch.randn(known, 4, generator=seeded(layer))
        table = torch.zeros(entities, 3, 4).index_put(tuple(one[:known] for one in places), vectors)
        wanted = message_sums(parts, table, scales, entities)[tuple(one[:reached] for one in places)]
        torch.testing.assert_close(frontier.message_sums(layer, vectors, scales), wanted)
