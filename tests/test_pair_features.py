"""Features of pairs: against dense matrices, and what it does not depend on."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.models.triple_classifier import PairFeatures, feature_count, pair_ids

ENTITIES, RELATIONS = 9, 3
triples = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)), min_size=1
)


def graph_of(rows: list[tuple[int, int, int]]) -> Graph:
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)]), Vocabulary([f"r{i}" for i in range(RELATIONS)])
    return Graph.build(*names, TripleArray.of(rows))


def expected(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Roles and neighbour roles (entities, 2R) and proximity (5, entities, entities), straight from what they mean."""
    counts, tied = np.zeros((ENTITIES, 2 * RELATIONS)), np.zeros((ENTITIES, ENTITIES))
    for head, relation, tail in set(rows):
        counts[head, relation] += 1
        counts[tail, relation + RELATIONS] += 1
        tied[head, tail] = tied[tail, head] = 1
    roles, degrees = np.log1p(counts), tied.sum(axis=1)
    walk = tied / np.maximum(degrees, 1)[:, None]
    chance = np.where(degrees > 0, degrees / tied.sum(), 1.0)
    lifts = [np.linalg.matrix_power(walk, length) / chance for length in range(2, 7)]
    return roles, walk @ roles, np.log1p(np.stack(lifts))


@given(triples)
def test_roles_neighbour_roles_and_proximity_are_as_defined(rows):
    heads, tails = (ids.ravel().astype(np.int32) for ids in np.indices((ENTITIES, ENTITIES)))
    found = PairFeatures(graph_of(rows)).of(heads, tails)
    roles, neighbor_roles, near = expected(rows)
    assert found.shape == (ENTITIES**2, feature_count(RELATIONS)) and found.dtype == np.float32
    parts = [roles[heads], roles[tails], neighbor_roles[heads], neighbor_roles[tails], near[:, heads, tails].T]
    np.testing.assert_allclose(found, np.concatenate(parts, axis=1), rtol=1e-5, atol=1e-6)


@given(triples)
def test_proximity_is_the_same_both_ways(rows):
    around = PairFeatures(graph_of(rows))
    heads, tails = (ids.ravel().astype(np.int32) for ids in np.indices((ENTITIES, ENTITIES)))
    one, other = around.of(heads, tails), around.of(tails, heads)
    np.testing.assert_allclose(one[:, 8 * RELATIONS :], other[:, 8 * RELATIONS :], rtol=1e-5, atol=1e-6)


def test_an_entity_without_facts_is_far_from_everyone():
    found = PairFeatures(graph_of([(0, 0, 1)])).of(np.array([5, 0], dtype=np.int32), np.array([0, 6], dtype=np.int32))
    assert not found[:, 8 * RELATIONS :].any() and found[1, 0] == np.float32(np.log(2))


def test_facts_between_the_same_two_are_one_pair():
    graph = graph_of([(0, 0, 1), (1, 2, 0), (0, 1, 2), (2, 0, 2), (1, 1, 0)])
    pair = pair_ids(graph)
    ends = [frozenset((h, t)) for h, _, t in graph.triples.rows.tolist()]
    for one in range(len(ends)):
        for other in range(len(ends)):
            assert (pair[one] == pair[other]) == (ends[one] == ends[other])
