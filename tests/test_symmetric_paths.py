"""Symmetric-path rules: the paper's examples by hand, brute force on small graphs, and what must never change."""

import os
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from conftest import named_graph
from newcomer.errors import OptionError
from newcomer.graph import Graph, TripleArray, Vocabulary, concatenate
from newcomer.rules.mining.symmetric_paths import (
    PathGroundings,
    PathLimits,
    SymmetricPaths,
    symmetric_paths,
    virtual_edges,
)
from newcomer.rules.mining.symmetric_walks import MAX_ARM, WalkGraph

TABLE_1 = [
    *((name, "likes", "jazz") for name in ("Bob", "Zurich", "Sam", "Rome", "Amy", "Adam")),
    *((name, "works_at", "bank") for name in ("Bob", "Zurich", "Rome", "Amy", "Adam")),
    ("Sam", "works_at", "shop"),
]

OTHERS = ("Ann", "Ben", "Cid", "Dan")
ALEC_AND_TOM = [
    ("Alec", "plays_role", "Obi-Wan"),
    ("Obi-Wan", "role_in", "Star Wars"),
    ("Star Wars", "has_type", "science fiction"),
    ("Tom", "plays_role", "Wells"),
    ("Wells", "role_in", "The Infinite Worlds"),
    ("The Infinite Worlds", "has_type", "science fiction"),
    ("Tom", "starred_in", "The Infinite Worlds"),
    ("Alec", "plays_role", "the duke"),
    ("the duke", "role_in", "Kind Hearts"),
    ("Kind Hearts", "has_type", "comedy"),
    ("Alec", "starred_in", "Kind Hearts"),
    *((name, "plays_role", f"role of {name}") for name in OTHERS),
    *((f"role of {name}", "role_in", f"film of {name}") for name in OTHERS),
    *((f"film of {name}", "has_type", "comedy") for name in OTHERS),
    *((name, "starred_in", f"film of {name}") for name in OTHERS),
    ("Alec", "born_in", "London"),
    ("Tom", "born_in", "Oxford"),
    *((name, "born_in", f"town of {name}") for name in OTHERS),
    *((town, "city_of", "England") for town in ("London", "Oxford", *(f"town of {name}" for name in OTHERS))),
    ("Tom", "lived_in", "England"),
    *((name, "lived_in", "Malta") for name in ("Alec", *OTHERS)),
]
EVERYTHING = PathLimits(walks=20_000)


def paths_from(graph: Graph, start: int, limits: PathLimits) -> SymmetricPaths:
    return symmetric_paths(WalkGraph(graph.adjacency, graph.num_relations), np.array([start], np.int32), limits, seed=0)


def ask(graph: Graph, name: str, limits: PathLimits, seed: int = 0) -> PathGroundings:
    return virtual_edges(graph.adjacency, [graph.entities.id(name)], graph.num_relations, limits, seed, threads=1)


def named(graph: Graph, triple) -> tuple[str, str, str]:
    head, relation, tail = (int(x) for x in triple)
    size = graph.num_relations
    name = graph.relations[relation % size] + ("^-1" if relation >= size else "")
    return graph.entities[head], name, graph.entities[tail]


def reasons(graph: Graph, found: PathGroundings) -> dict[tuple[str, str, str], set[str]]:
    texts = defaultdict(set)
    for row in range(len(found)):
        triple = (found.entities[row], found.relations[row], found.others[row])
        texts[named(graph, triple)].add(found.rules.text(int(found.rule[row]), graph.relations))
    return dict(texts)


def random_graph(seed: int, entities: int, triples: int, relations: int = 2) -> Graph:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(n, size=triples) for n in (entities, relations, entities)], axis=1)
    names = Vocabulary(f"e{i}" for i in range(entities))
    return Graph.build(names, Vocabulary(f"r{i}" for i in range(relations)), TripleArray.of(rows))


def edges_by_head(graph: Graph) -> dict[int, list[tuple[int, int]]]:
    edges = defaultdict(list)
    for h, r, t in graph.triples.rows.tolist():
        edges[h].append((r, t))
        edges[t].append((r + graph.num_relations, h))
    return edges


def routes(edges, node: int, kind: tuple[int, ...], met: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every route from a node along these relations that meets no node twice, as the nodes after it."""
    if not kind:
        return [()]
    met = (*met, node)
    steps = [t for r, t in edges[node] if r == kind[0] and t not in met]
    return [(t, *rest) for t in steps for rest in routes(edges, t, kind[1:], met)]


def turned(relation: int, size: int) -> int:
    return (relation + size) % (2 * size)


def brute_ends(graph: Graph, start: int, arms: tuple[int, ...]) -> dict[tuple[int, ...], set[int]]:
    """For each type, the ends of all its symmetric paths."""
    edges, size = edges_by_head(graph), graph.num_relations
    kinds: set[tuple[int, ...]] = {()}
    ends: dict[tuple[int, ...], set[int]] = {}
    for arm in range(1, max(arms) + 1):
        kinds = {(*kind, r) for kind in kinds for r in range(2 * size)}
        for kind in kinds if arm in arms else ():
            there_and_back = (*kind, *(turned(r, size) for r in reversed(kind)))
            found = {route[-1] for route in routes(edges, start, there_and_back, ())}
            if found:
                ends[kind] = found
    return ends


def brute_rules(ends, limits: PathLimits) -> dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, int]]:
    rules = {}
    for premise, having in ends.items():
        for conclusion, others in ends.items():
            both = len(having & others)
            enough = len(having) >= limits.min_pairs and both / len(having) >= limits.min_confidence
            if premise != conclusion and enough and both < len(having):
                rules[premise, conclusion] = (both, len(having))
    return rules


def kind_of(row) -> tuple[int, ...]:
    return tuple(int(r) for r in row if r >= 0)


def found_ends(graph: Graph, start: int, limits: PathLimits) -> dict[tuple[int, ...], set[int]]:
    paths = paths_from(graph, start, limits)
    ends = defaultdict(set)
    for kind, end in zip(paths.types, paths.ends, strict=True):
        ends[kind_of(kind)].add(int(end))
    assert sum(map(len, ends.values())) == len(paths), "a type and an end stand once"
    return dict(ends)


def check_against_brute_force(graph: Graph, start: int, limits: PathLimits) -> int:
    ends = brute_ends(graph, start, tuple(n // 2 for n in limits.lengths))
    assert found_ends(graph, start, limits) == ends
    found = virtual_edges(graph.adjacency, [start], graph.num_relations, limits, threads=1)
    rules = found.rules
    kinds = [kind_of(row) for row in rules.types]
    keys = [(kinds[p], kinds[c]) for p, c in zip(rules.premises, rules.conclusions, strict=True)]
    expected = brute_rules(ends, limits)
    assert dict(zip(keys, zip(rules.common, rules.pairs, strict=True), strict=True)) == expected
    assert len(keys) == len(expected)
    check_groundings(graph, start, found, keys, ends)
    return len(found)


def check_groundings(graph: Graph, start: int, found: PathGroundings, keys, ends) -> None:
    """One row for each rule and pair that can be completed, with a node that some completion reaches."""
    edges, size = edges_by_head(graph), graph.num_relations
    conclusions = {}
    for row in range(len(found)):
        place = (keys[found.rule[row]], int(found.premises[row, 1, 2]))
        assert place not in conclusions, "one completion a pair"
        conclusions[place] = (int(found.relations[row]), int(found.premises[row, 2, 2]), int(found.others[row]))
    for premise, conclusion in keys:
        for end in ends[premise] - ends[conclusion]:
            around = (*conclusion, *(turned(r, size) for r in reversed(conclusion[1:])))
            possible = {(conclusion[0], route[0], route[-1]) for route in routes(edges, end, around, (start,))}
            got = conclusions.pop(((premise, conclusion), end), None)
            assert got in possible if possible else got is None
    assert not conclusions


def same(one: PathGroundings, two: PathGroundings) -> bool:
    columns = ("rule", "entities", "relations", "others", "premises")
    rules = ("types", "entities", "premises", "conclusions", "common", "pairs")
    return all(np.array_equal(getattr(one, c), getattr(two, c)) for c in columns) and all(
        np.array_equal(getattr(one.rules, c), getattr(two.rules, c)) for c in rules
    )


@pytest.mark.parametrize("limits", [PathLimits(lengths=(2,)), PathLimits()], ids=["short", "all"])
def test_table_1_concludes_what_sam_has_and_bob_lacks(limits):
    graph = named_graph(TABLE_1)
    found = ask(graph, "Bob", limits)
    assert reasons(graph, found) == {("Bob", "works_at", "shop"): {"likes ~ works_at ~ 0.80 (4 of 5)"}}
    assert found.confidence.tolist() == [0.8]
    assert found.rules.pairs.tolist() == [5]
    assert [named(graph, triple) for triple in found.premises[0]] == [
        ("Bob", "likes", "jazz"),
        ("jazz", "likes^-1", "Sam"),
        ("Sam", "works_at", "shop"),
    ]


def test_four_pairs_or_a_higher_bar_conclude_nothing():
    without_adam = named_graph(t for t in TABLE_1 if t[0] != "Adam")
    assert len(ask(without_adam, "Bob", PathLimits(lengths=(2,)))) == 0
    assert len(ask(named_graph(TABLE_1), "Bob", PathLimits(lengths=(2,), min_confidence=0.81))) == 0


def test_alec_starred_where_his_role_is_and_lived_where_his_city_is():
    graph = named_graph(ALEC_AND_TOM)
    found = reasons(graph, ask(graph, "Alec", EVERYTHING))
    starred = found["Alec", "starred_in", "Star Wars"]
    assert "plays_role, role_in, has_type ~ starred_in, has_type ~ 0.80 (4 of 5)" in starred
    assert "born_in, city_of ~ lived_in ~ 0.80 (4 of 5)" in found["Alec", "lived_in", "England"]
    assert {fact for fact in found if fact[1] == "starred_in"} == {("Alec", "starred_in", "Star Wars")}


def test_names_that_are_not_plain_are_quoted():
    graph = named_graph((h, r.replace("likes", "likes, a lot"), t) for h, r, t in TABLE_1)
    rules = ask(graph, "Bob", PathLimits()).rules
    assert rules.text(0, graph.relations) == '"likes, a lot" ~ works_at ~ 0.80 (4 of 5)'


def test_length_2_agrees_with_brute_force():
    limits = PathLimits(walks=20_000, lengths=(2,), min_pairs=2, min_confidence=0.3)
    graphs = (random_graph(seed, entities=12, triples=40, relations=3) for seed in range(60))
    concluded = [check_against_brute_force(graph, start, limits) for graph in graphs for start in range(12)]
    assert sum(concluded) > 200


@pytest.mark.parametrize(("lengths", "graphs"), [((4,), 16), ((2, 4), 12), ((2, 4, 6), 6)], ids=str)
def test_enough_walks_agree_with_brute_force(lengths, graphs):
    limits = PathLimits(walks=100_000, lengths=lengths, min_pairs=2, min_confidence=0.3)
    drawn = [random_graph(100 + seed, entities=9, triples=24) for seed in range(graphs)]
    assert sum(check_against_brute_force(graph, start, limits) for graph in drawn for start in (0, 1, 2)) > 20


def test_paths_are_symmetric_routes_through_the_graph_that_meet_no_node_twice():
    graph = random_graph(5, entities=40, triples=160, relations=3)
    paths = paths_from(graph, 3, PathLimits())
    assert set(paths.arms) == {1, 2, 3}
    for row in range(len(paths)):
        kind, length = kind_of(paths.types[row]), 2 * int(paths.arms[row])
        nodes = paths.nodes[row, : length + 1].tolist()
        assert nodes[0] == 3 and len(set(nodes)) == length + 1
        assert (paths.nodes[row, length + 1 :] == -1).all() and (paths.types[row, len(kind) :] == -1).all()
        back = tuple(turned(r, 3) for r in reversed(kind))
        for (head, tail), relation in zip(pairwise(nodes), kind + back, strict=True):
            assert graph.contains(head, relation, tail)


def test_a_walk_ends_where_the_symmetry_would_break():
    # Every second step exists, but never by the relation that led there: no path comes back.
    chain = [("a", "r", "b"), ("b", "s", "c"), ("c", "t", "d"), ("d", "u", "e"), ("b", "v", "f"), ("c", "w", "g")]
    graph = named_graph(chain)
    for start in range(graph.num_entities):
        assert len(paths_from(graph, start, EVERYTHING)) == 0
    # One edge more and there is exactly one, of the shortest length only.
    graph = named_graph([*chain, ("h", "r", "b")])
    paths = paths_from(graph, graph.entities.id("a"), EVERYTHING)
    assert [graph.entities[n] for n in paths.nodes[0, :3]] == ["a", "b", "h"] and len(paths) == 1


def test_fewer_walks_find_a_part_of_what_more_walks_find():
    graph = random_graph(6, entities=60, triples=300, relations=3)
    few, many = (found_ends(graph, 0, PathLimits(walks=n)) for n in (100, 1000))
    assert all(ends <= many[kind] for kind, ends in few.items())
    assert sum(map(len, few.values())) < sum(map(len, many.values()))


LOOSE = PathLimits(walks=1000, min_pairs=3, min_confidence=0.6)


@pytest.fixture(scope="module")
def dense() -> Graph:
    return random_graph(7, entities=120, triples=1500, relations=4)


def test_conclusions_are_about_the_entity_and_never_known(dense):
    found = virtual_edges(dense.adjacency, range(120), 4, LOOSE)
    assert len(found) > 100
    assert not dense.contains(found.entities, found.relations, found.others).any()
    assert (found.others != found.entities).all()
    assert (found.confidence >= LOOSE.min_confidence).all() and (found.rules.pairs[found.rule] >= LOOSE.min_pairs).all()


def test_premises_are_facts_that_meet_at_the_other_end(dense):
    found = virtual_edges(dense.adjacency, range(120), 4, LOOSE)
    first, last, far = found.premises[:, 0], found.premises[:, 1], found.premises[:, 2]
    for triple in (first, last, far):
        assert dense.contains(*triple.T).all()
    assert (first[:, 0] == found.entities).all()
    assert (last[:, 2] == far[:, 0]).all()
    assert ((first[:, 1] + 4) % 8 == last[:, 1]).all() and (far[:, 1] == found.relations).all()
    types = found.rules.types
    assert (types[found.rules.premises[found.rule], 0] == first[:, 1]).all()
    assert (types[found.rules.conclusions[found.rule], 0] == found.relations).all()
    assert types.shape[1] == MAX_ARM and len(np.unique(types, axis=0)) == len(types)


def test_threads_change_nothing(dense):
    one, two, five = (virtual_edges(dense.adjacency, range(120), 4, LOOSE, threads=n) for n in (1, 2, 5))
    assert len(one) and same(one, two) and same(one, five)


def test_an_entity_alone_gets_what_it_gets_among_all(dense):
    together = virtual_edges(dense.adjacency, range(120), 4, LOOSE)
    alone = [virtual_edges(dense.adjacency, [e], 4, LOOSE) for e in range(120)]
    for column in ("entities", "relations", "others", "premises", "confidence"):
        assert np.array_equal(np.concatenate([getattr(a, column) for a in alone]), getattr(together, column))
    assert same(together, virtual_edges(dense.adjacency, [*reversed(range(120)), 5, 5], 4, LOOSE))


def test_the_seed_decides(dense):
    zero, again, one = (virtual_edges(dense.adjacency, range(120), 4, LOOSE, seed) for seed in (0, 0, 1))
    assert same(zero, again) and not same(zero, one)


def test_an_entity_without_facts_and_an_empty_question_conclude_nothing():
    graph = Graph.build(Vocabulary("ab"), Vocabulary("r"), TripleArray.empty())
    assert len(virtual_edges(graph.adjacency, [0, 1], 1)) == 0
    nothing = virtual_edges(graph.adjacency, [], 1)
    assert len(nothing) == 0 and len(nothing.rules) == 0 and nothing.premises.shape == (0, 3, 3)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"walks": 0}, "walks is 0, but must be an integer from 1"),
        ({"lengths": ()}, "lengths is (), but must be one or more of 2, 4 and 6, each once"),
        ({"lengths": (2, 3)}, "lengths is (2, 3), but must be one or more of 2, 4 and 6, each once"),
        ({"lengths": (2, 2)}, "lengths is (2, 2), but must be one or more of 2, 4 and 6, each once"),
        ({"min_pairs": 0}, "min_pairs is 0, but must be an integer from 1"),
        ({"min_confidence": 0.0}, "min_confidence is 0.0, but must be above 0 and at most 1"),
        ({"min_confidence": float("nan")}, "min_confidence is nan, but must be above 0 and at most 1"),
    ],
)
def test_limits_out_of_range_are_refused(wrong, sentence):
    with pytest.raises(OptionError) as caught:
        PathLimits(**wrong)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("wrong", [{"entities": [6]}, {"entities": [-1]}, {"seed": -1}, {"threads": 0}], ids=str)
def test_questions_out_of_range_are_refused(wrong):
    graph = random_graph(0, entities=6, triples=10)
    with pytest.raises(OptionError, match=r"give ids in 0\.\.5|must be an integer"):
        virtual_edges(**{"adjacency": graph.adjacency, "entities": [0], "num_relations": 2, **wrong})


@pytest.mark.skipif("NEWCOMER_DATA" not in os.environ, reason="needs the published data sets in NEWCOMER_DATA")
def test_fb15k_subject_10_gains_one_and_a_half_to_two_neighbours_a_fact():
    from newcomer.data import load_dataset
    from newcomer.data.describe import neighbours_per_predicted_fact

    dataset = load_dataset("fb15k-subject-10")
    known = [dataset.observed.triples, dataset.auxiliary.triples]
    graph = Graph.build(dataset.entities, dataset.relations, concatenate(known))
    found = virtual_edges(graph.adjacency, dataset.test_newcomers, graph.num_relations)
    triples = np.unique(np.stack([found.entities, found.relations, found.others], axis=1), axis=0)
    degrees = dataset.auxiliary.degrees + np.bincount(triples[:, 0], minlength=len(dataset.entities)).astype(np.int32)
    before = neighbours_per_predicted_fact(dataset, dataset.auxiliary.degrees)
    after = neighbours_per_predicted_fact(dataset, degrees)
    assert before == pytest.approx(52.63, abs=0.01)
    assert 1.5 < after - before < 2.0
