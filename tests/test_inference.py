"""Propagation for one query on a CPU: against the formulas, over a base, more facts, and without who was removed."""

import numpy as np
import pytest
import torch

from newcomer.models.propagation.inference import QueryPropagation
from newcomer.models.propagation.network import Propagation
from nn_oracle import one_thread
from propagation_oracle import RELATIONS, Fact, drawn, edges_of, network_of, scores_by_hand

on_one_thread = pytest.fixture(autouse=True)(one_thread)
ENTITIES, MORE = 14, 17  # those of the base, and with those who came since
KINDS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
QUERIES = [(0, 0), (5, 2), (13, 1), (11, 4)]
NOBODY = np.zeros(MORE, dtype=bool)
NEW = [(14, 0, 3), (2, 1, 15), (15, 2, 9), (14, 2, 16)]


def scores(network: Propagation, base: list[Fact], delta: list[Fact], removed: np.ndarray, query: tuple[int, int]):
    with torch.no_grad():
        asked = QueryPropagation(network, edges_of(base, ENTITIES))
        return asked.scores(asked.known(removed, edges_of(delta, len(removed)) if delta else None), *query)


@KINDS
@pytest.mark.parametrize("facts", [drawn(0), drawn(2, count=60), [(0, 1, 2), (0, 2, 2), (2, 0, 5)], []])
def test_scores_are_those_of_the_formulas(sparse, facts):
    """In a sparse network a query reaches nearly all of the second graph, and few of the third."""
    network = network_of(2, sparse)
    for query in QUERIES:
        found, wanted = scores(network, facts, [], NOBODY[:ENTITIES], query), scores_by_hand(network, facts, *query, 14)
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-5)


@KINDS
def test_facts_since_then_count_as_those_of_the_base(sparse):
    network, facts = network_of(1, sparse), drawn(1)
    for query in [*QUERIES, (14, 3), (16, 2)]:
        found, wanted = scores(network, facts, NEW, NOBODY, query), scores_by_hand(network, facts + NEW, *query, MORE)
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-5)


@KINDS
def test_who_was_removed_has_only_the_facts_since_then(sparse):
    network, facts, removed = network_of(0, sparse), drawn(2, count=40), NOBODY.copy()
    removed[[3, 9]] = True
    left = [fact for fact in facts if not {fact[0], fact[2]} & {3, 9}]
    assert len(left) < len(facts)
    for query in [*QUERIES, (3, 1), (14, 0)]:
        found = scores(network, facts, NEW, removed, query)
        torch.testing.assert_close(
            found, scores_by_hand(network, left + NEW, *query, MORE).detach(), rtol=1e-4, atol=1e-5
        )


@KINDS
def test_a_query_has_the_same_bits_whatever_was_asked_before(sparse):
    network, facts = network_of(0, sparse), drawn(3, count=30)
    with torch.no_grad():
        asked = QueryPropagation(network, edges_of(facts, ENTITIES))
        known = asked.known(NOBODY, edges_of(NEW, MORE))
        first = [asked.scores(known, *query) for query in QUERIES]
        assert torch.equal(first[0], scores(network, facts, NEW, NOBODY, QUERIES[0]))
        asked.scores(asked.known(NOBODY, None), *QUERIES[1])
        assert all(torch.equal(asked.scores(known, *query), one) for query, one in zip(QUERIES, first, strict=True))


def test_in_a_sparse_network_all_that_nothing_reaches_are_alike_to_the_bit():
    found = scores(network_of(0, sparse=True), [(0, 1, 2), (3, RELATIONS - 1, 4)], [], NOBODY[:ENTITIES], (0, 1))
    assert len(found[[1, *range(3, ENTITIES)]].unique()) == 1 and len(found.unique()) == 3
