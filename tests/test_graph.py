import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import named_graph
from newcomer.errors import DatasetError
from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
from newcomer.graph.types import sort_unique

ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), max_size=40)


def graph_of(rows: list[tuple[int, int, int]], entities: int = 7, relations: int = 3) -> Graph:
    return Graph.build(
        Vocabulary(f"e{i}" for i in range(entities)),
        Vocabulary(f"r{i}" for i in range(relations)),
        TripleArray.of(rows),
    )


def both_ways(rows: list[tuple[int, int, int]], relations: int = 3) -> list[tuple[int, int, int]]:
    return sorted({(h, r, t) for h, r, t in rows} | {(t, r + relations, h) for h, r, t in rows})


def test_vocabulary_maps_names_and_ids_both_ways():
    vocabulary = Vocabulary(["Ö", "a b", "c"])
    assert vocabulary.id("a b") == 1
    assert vocabulary.id("nobody") == -1
    assert vocabulary.ids(["c", "nobody", "Ö"]).tolist() == [2, -1, 0]
    assert vocabulary.ids(vocabulary.names).tolist() == [0, 1, 2]
    assert vocabulary.names_of([2, 0]) == ["c", "Ö"]
    assert "c" in vocabulary and "d" not in vocabulary and len(vocabulary) == 3


@pytest.mark.parametrize("identifier", [-1, -3, 3])
def test_vocabulary_has_no_name_for_an_id_out_of_range(identifier):
    with pytest.raises(IndexError):
        Vocabulary(["a", "b", "c"])[identifier]


def test_vocabulary_refuses_a_name_twice():
    with pytest.raises(DatasetError, match="3 names holds only 2"):
        Vocabulary(["a", "b", "a"]).id("a")


@given(ROWS)
@settings(max_examples=150)
def test_triples_are_sorted_and_stand_once(rows):
    graph = graph_of(rows)
    assert [tuple(row) for row in graph.triples.rows.tolist()] == sorted(set(rows))


@given(ROWS)
@settings(max_examples=150)
def test_adjacency_holds_every_edge_in_both_directions(rows):
    graph = graph_of(rows)
    edges = [(e, int(r), int(t)) for e in range(7) for r, t in zip(*graph.adjacency.of(e), strict=True)]
    assert edges == both_ways(rows)


@given(ROWS)
@settings(max_examples=150)
def test_contains_is_membership_with_inverses(rows):
    graph = graph_of(rows)
    heads, relations, tails = (a.ravel() for a in np.meshgrid(range(-1, 8), range(-1, 7), range(-1, 8), indexing="ij"))
    found = graph.contains(heads, relations, tails)
    asked = np.stack([heads, relations, tails], axis=1)
    assert sorted(map(tuple, asked[found].tolist())) == both_ways(rows)


@given(ROWS)
@settings(max_examples=100)
def test_degrees_count_edges_that_leave_inverses_included(rows):
    graph = graph_of(rows)
    expected = [sum(h == e for h, _, _ in set(rows)) + sum(t == e for _, _, t in set(rows)) for e in range(7)]
    assert graph.degrees.tolist() == expected
    assert graph.relation_counts.tolist() == [sum(r == k for _, r, _ in set(rows)) for k in range(3)]


@given(ROWS)
@settings(max_examples=50)
def test_sorting_by_columns_equals_sorting_by_keys(rows):
    triples = TripleArray.of(rows)
    packed = sort_unique(triples, 7, 3)
    by_columns = sort_unique(triples, 2**31 - 1, 2**31 - 1)  # too large for one 64-bit key
    assert packed.rows.tolist() == by_columns.rows.tolist()


def test_graph_arrays_cannot_be_written():
    graph = graph_of([(0, 0, 1)])
    for array in (graph.triples.heads, graph.adjacency.tails, graph.degrees, graph.adjacency.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_ids_are_32_bits():
    graph = graph_of([(0, 0, 1)])
    columns = (graph.triples.heads, graph.adjacency.relations, graph.adjacency.tails, graph.degrees)
    assert {array.dtype for array in columns} == {np.dtype(np.int32)}


@pytest.mark.parametrize("row", [(7, 0, 0), (0, 3, 0), (0, 0, -1)])
def test_an_id_out_of_range_is_named(row):
    with pytest.raises(DatasetError, match="is outside 0"):
        graph_of([row])


def test_an_empty_graph_answers():
    graph = graph_of([])
    assert len(graph) == 0
    assert not graph.contains([0], [0], [0]).any()
    assert graph.adjacency.of(3)[0].size == 0


def test_from_names_and_back():
    rows = [("b", "likes", "a"), ("a", "knows", "b"), ("b", "likes", "a")]
    graph = named_graph(rows)
    assert list(graph.named()) == [("a", "knows", "b"), ("b", "likes", "a")]


def dataset() -> InductiveDataset:
    observed = graph_of([(0, 0, 1), (1, 1, 2)], 6)
    auxiliary = graph_of([(3, 0, 0), (4, 1, 3)], 6)
    test = TripleArray.of([(3, 1, 1), (5, 0, 0)])
    labelled = TripleArray(test.heads, test.relations, test.tails, np.array([1, 0], dtype=np.int8))
    return InductiveDataset("d", observed, auxiliary, TripleArray.of([(0, 1, 2)]), labelled)


def test_seen_newcomers_and_those_asked_about():
    data = dataset()
    assert np.flatnonzero(data.is_seen).tolist() == [0, 1, 2]
    assert data.newcomers.tolist() == [3, 4]
    assert data.test_newcomers.tolist() == [3]


def test_what_is_labelled_false_is_not_known():
    known = dataset().known()
    assert len(known) == 6
    assert known.contains([3, 5], [1, 0], [1, 0]).tolist() == [True, False]
