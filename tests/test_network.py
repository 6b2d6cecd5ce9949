"""Propagation: its scores against the formulas, and what follows from messages going along edges alone.

Covers newcomer.models.propagation.edges.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from newcomer.data import load_dataset
from newcomer.models.propagation.edges import propagation_edges, silent_hubs
from newcomer.models.propagation.network import DIM, LAYERS, Propagation, batch_size
from nn_oracle import one_thread
from propagation_oracle import RELATIONS, all_scores_by_hand, drawn, edges_of, network_of, scores_by_hand, seeded

on_one_thread = pytest.fixture(autouse=True)(one_thread)
ENTITIES = 14  # two of which have no edges
KINDS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
SOURCES, QUERIES = torch.tensor([0, 5, 5, 13, 11]), torch.tensor([0, 2, 4, 1, 1])


@KINDS
@pytest.mark.parametrize("facts", [drawn(0), drawn(1), drawn(2, count=60), []])
def test_scores_and_gradients_are_those_of_the_formulas(sparse, facts):
    net = network_of(2, sparse)
    found = net([edges_of(facts, ENTITIES)], SOURCES, QUERIES, ENTITIES)
    wanted = all_scores_by_hand(net, facts, SOURCES, QUERIES, ENTITIES)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    weights, learned = torch.randn(found.shape, generator=seeded(9)), list(net.parameters())
    gradients = [torch.autograd.grad((one * weights).sum(), learned, materialize_grads=True) for one in (found, wanted)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(net([edges_of(facts, ENTITIES)], SOURCES, QUERIES, ENTITIES), wanted.detach())


@pytest.mark.parametrize("silent", [[3], [0, 5, 11], list(range(ENTITIES))])
def test_silent_entities_receive_and_do_not_send(silent):
    net, facts = network_of(2, sparse=True), drawn(2, count=60)
    hubs = np.isin(np.arange(ENTITIES), silent)
    found = net([replace(edges_of(facts, ENTITIES), silent=hubs)], SOURCES, QUERIES, ENTITIES)
    for row, source, query in zip(found, SOURCES.tolist(), QUERIES.tolist(), strict=True):
        wanted = scores_by_hand(net, facts, source, query, ENTITIES, silent)
        torch.testing.assert_close(row, wanted, rtol=1e-4, atol=1e-5)
    if 0 in silent:  # a source is no exception
        assert len(torch.unique(found[0])) == 2


def test_a_hub_has_more_facts_than_others():
    assert silent_hubs(np.array([3, 4, 5]), 4).tolist() == [False, False, True]
    assert not silent_hubs(np.array([3, 4, 5]), 0).any()


@KINDS
@pytest.mark.parametrize("count", [2, 3])
def test_a_graph_in_parts_is_the_whole_graph(sparse, count):
    """The first part has the facts of the first entities, the others those that join further ones to them."""
    net, facts, sizes = network_of(1, sparse), drawn(3, count=40), [8, 11, ENTITIES][-count:]
    parts, left = [], facts
    for size in sizes:
        parts.append(edges_of([fact for fact in left if max(fact[::2]) < size], size))
        left = [fact for fact in left if max(fact[::2]) >= size]
    assert not left and all(len(part.relations) for part in parts)
    wanted = all_scores_by_hand(net, facts, SOURCES, QUERIES, ENTITIES)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            found = net(parts, SOURCES, QUERIES, ENTITIES)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    found[0, 3].backward()
    assert net.scales.grad is not None and net.scales.grad.any()


def thinned(facts: list[tuple[int, int, int]], masked: int) -> tuple[list[tuple[int, int, int]], torch.Tensor]:
    """The facts without those between the ends of one of them, and 1 or 0 for each edge of all."""
    ends = set(facts[masked][::2])
    edges = edges_of(facts, ENTITIES)
    pairs = zip(edges.rows.row_ids.tolist(), edges.rows.columns.tolist(), strict=True)
    weights = torch.tensor([float({row, column} != ends) for row, column in pairs])
    return [fact for fact in facts if set(fact[::2]) != ends], weights


@KINDS
@pytest.mark.parametrize("gradients", [False, True])
def test_a_masked_edge_is_as_if_it_were_not_there(sparse, gradients):
    net, facts = network_of(0, sparse), drawn(1)
    left, weights = thinned(facts, 4)
    assert 0 < weights.sum() < len(weights)
    edges = edges_of(facts, ENTITIES)
    with torch.set_grad_enabled(gradients):
        found = net([edges.with_weights(weights)], SOURCES, QUERIES, ENTITIES)
        torch.testing.assert_close(found, net([edges_of(left, ENTITIES)], SOURCES, QUERIES, ENTITIES))
        assert not torch.allclose(found, net([edges], SOURCES, QUERIES, ENTITIES))


@KINDS
def test_scores_follow_entities_wherever_they_stand(sparse):
    facts, order = drawn(2), torch.randperm(ENTITIES, generator=seeded(3)).tolist()
    moved = [(order[head], relation, order[tail]) for head, relation, tail in facts]
    net = network_of(0, sparse)
    found = net([edges_of(facts, ENTITIES)], torch.tensor([2]), torch.tensor([4]), ENTITIES)
    again = net([edges_of(moved, ENTITIES)], torch.tensor([order[2]]), torch.tensor([4]), ENTITIES)
    torch.testing.assert_close(again[:, order], found)


@KINDS
def test_messages_come_as_far_as_there_are_layers(sparse):
    """A chain of entities, and two without any edge."""
    net, length = network_of(0, sparse), LAYERS + 3
    chain = [(one, 0, one + 1) for one in range(length - 1)]

    def scores(facts: list[tuple[int, int, int]], relation: int) -> torch.Tensor:
        return net([edges_of(facts, length + 2)], torch.tensor([0]), torch.tensor([relation]), length + 2)[0]

    found = scores(chain, 1)
    torch.testing.assert_close(found[length], found[length + 1])
    assert len(set(found[: LAYERS + 1].tolist())) == LAYERS + 1
    if sparse:
        assert len(found[LAYERS + 1 :].unique()) == 1
    changed = scores([*chain[:-1], (length - 2, 2, length - 1)], 1)  # the last edge, which no message has come to
    torch.testing.assert_close(changed[: LAYERS - 1], found[: LAYERS - 1])
    assert not torch.allclose(scores(chain, 2), found)


@KINDS
def test_without_any_edge_all_but_the_source_are_the_same(sparse):
    found = network_of(0, sparse)([edges_of([], 9)], torch.tensor([4]), torch.tensor([0]), 9)[0]
    torch.testing.assert_close(found[[1, 2, 3, 5, 6, 7, 8]], found[:1].expand(7))
    assert not torch.isclose(found[4], found[0])


def assert_alone_as_together(net: Propagation, parts: list, sources: torch.Tensor, queries: torch.Tensor, size: int):
    with torch.no_grad():
        together = net(parts, sources, queries, size)
        assert net(parts, sources[:0], queries[:0], size).shape == (0, size)
        for place in range(len(queries)):
            one = slice(place, place + 1)
            assert torch.equal(net(parts, sources[one], queries[one], size)[0], together[place])
        backwards = net(parts, sources.flip(0), queries.flip(0), size)
        assert torch.equal(backwards.flip(0), together)


@KINDS
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_query_has_the_same_bits_whatever_else_is_asked(sparse, count):
    size, rng = 300, np.random.default_rng(0)
    parts = [edges_of(drawn(seed, size - 20 * (count - seed), 900 // 9**seed), size) for seed in range(count)]
    sources, queries = (torch.from_numpy(rng.integers(most, size=13)) for most in (size, 2 * RELATIONS))
    assert_alone_as_together(network_of(0, sparse), parts, sources, queries, size)


@KINDS
@pytest.mark.skipif("NEWCOMER_DATA" not in os.environ, reason="needs NEWCOMER_DATA")
def test_a_query_of_a_published_graph_has_the_same_bits_whatever_else_is_asked(sparse):
    dataset = load_dataset("fb15k-subject-10")
    columns = torch.from_numpy(dataset.observed.triples.rows.astype(np.int64)).unbind(dim=1)
    size, relations = len(dataset.entities), dataset.observed.num_relations
    net, rng = Propagation(relations, seeded(), sparse).eval(), np.random.default_rng(0)
    sources = torch.from_numpy(rng.choice(columns[0].numpy(), size=4))
    queries = torch.from_numpy(rng.integers(2 * relations, size=4))
    assert_alone_as_together(net, [propagation_edges(*columns, relations, size)], sources, queries, size)


def test_the_same_seed_gives_the_same_network_whatever_was_drawn_before():
    torch.manual_seed(1)
    first = Propagation(RELATIONS, seeded()).state_dict()
    torch.manual_seed(2)
    again, other = (Propagation(RELATIONS, seeded(seed)).state_dict() for seed in (0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["queries"], other["queries"])
    assert first["queries"].shape == (2 * RELATIONS, DIM) and not first["known_relations"].any()


def test_other_weights_leave_the_places_of_edges():
    edges = edges_of(drawn(0), ENTITIES)
    other = edges.with_weights(torch.zeros_like(edges.weights))
    assert other.rows is edges.rows and other.by_relation is edges.by_relation and other.numbers is edges.numbers
    assert not other.degrees.any() and edges.degrees.sum() == len(edges.relations)
    known = edges.with_weights(edges.weights, edges.degrees + 1)
    assert torch.equal(known.degrees, edges.degrees + 1)


def test_as_many_queries_are_asked_together_as_memory_allows():
    edges = edges_of(drawn(0), ENTITIES)
    sizes = [batch_size(edges, count) for count in (ENTITIES, 100 * ENTITIES, 10**9)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 100 * sizes[2] and sizes[2] == 1
