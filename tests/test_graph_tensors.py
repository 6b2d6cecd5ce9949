"""Triples as edges: every edge knows its triple, hiding one leaves no trace, what rests on it is found."""

import numpy as np
import pytest
import torch

from newcomer.graph import Graph, Overlay, TripleArray
from newcomer.models.embedding.decoders import DECODERS
from newcomer.models.embedding.graph_tensors import GraphTensors, Groundings, build_graph_tensors
from newcomer.models.embedding.model import ENCODERS
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import Grounder, NeighborLimits, VirtualNeighbors, virtual_neighbors
from nn_oracle import edges_of, lists_of, one_thread
from rule_oracle import graph_of, random_rows, random_rules

ENTITIES, RELATIONS = 12, 3
CPU = torch.device("cpu")
ANY = NeighborLimits(min_confidence=0.0, min_support=1)
SEEDS = range(4)
on_one_thread = pytest.fixture(autouse=True)(one_thread)


def inferred(seed: int) -> tuple[Graph, VirtualNeighbors]:
    rng = np.random.default_rng(seed)
    graph = graph_of([*random_rows(rng, ENTITIES, RELATIONS, 40), (3, 1, 3)], ENTITIES, RELATIONS)
    rules = random_rules(rng, ENTITIES, RELATIONS, 12)
    found = virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), np.arange(ENTITIES, dtype=np.int32))
    assert len(found) > 20
    return graph, found


def built(seed: int) -> tuple[GraphTensors, Graph, VirtualNeighbors]:
    graph, virtual = inferred(seed)
    return build_graph_tensors(graph, ENTITIES, virtual, CPU), graph, virtual


def all_ones(training: GraphTensors) -> torch.Tensor:
    return torch.ones(len(training.facts) + len(training.virtual), dtype=torch.float64)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_triple_is_an_edge_of_its_head_and_inverted_of_its_tail(seed):
    training, graph, virtual = built(seed)
    expected = []
    for number, (h, r, t) in enumerate([*graph.triples.rows.tolist(), *virtual.triples.rows.tolist()]):
        expected += [(h, r, t, number), (t, r + RELATIONS, h, number)]
    columns = training.rows.row_ids, training.relations, training.rows.columns, training.sources
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == sorted(expected)
    assert training.facts.tolist() == graph.triples.rows.tolist()
    assert training.virtual.tolist() == virtual.triples.rows.tolist()
    assert training.rows.num_rows == training.rows.width == ENTITIES


@pytest.mark.parametrize("seed", SEEDS)
def test_hiding_a_triple_hides_both_of_its_edges_and_no_other(seed):
    training, graph, _ = built(seed)
    for number in range(len(training.facts) + len(training.virtual)):
        weights = all_ones(training)
        weights[number] = 0.0
        hidden = training.edges(weights).weights == 0
        assert hidden.tolist() == (training.sources == number).tolist()
        assert int(hidden.sum()) == 2
    loop = graph.triples.rows.tolist().index([3, 1, 3])
    assert training.rows.row_ids[training.sources == loop].tolist() == [3, 3]


@pytest.mark.parametrize("name", ENCODERS)
def test_an_entity_with_a_hidden_fact_is_as_in_a_graph_without_it(name):
    """A degree that still counts the edge would tell that it is there."""
    graph, _ = inferred(0)
    training = build_graph_tensors(graph, ENTITIES, None, CPU)
    encoder = ENCODERS[name](ENTITIES, RELATIONS, 4, 0.0, torch.Generator().manual_seed(0)).double()
    encoder.attach(DECODERS["distmult"](RELATIONS, 4, torch.Generator().manual_seed(0)).double())
    encoder.prepare(training.edges(all_ones(training)), 0)
    for number in range(len(graph)):
        weights = all_ones(training)
        weights[number] = 0.0
        rest = graph.triples.take(np.arange(len(graph)) != number)
        smaller = Graph.build(graph.entities, graph.relations, rest)
        without = build_graph_tensors(smaller, ENTITIES, None, CPU)
        states = [encoder.states(training.edges(weights)), encoder.states(without.edges(all_ones(without)))]
        ask = torch.arange(ENTITIES).repeat(2), torch.arange(2 * ENTITIES) % (2 * RELATIONS)
        torch.testing.assert_close(*(encoder.embed(state, *ask) for state in states))


def resting_on(training: GraphTensors, facts: list[int]) -> list[int]:
    """The virtual triples that no longer stand without these facts."""
    visible = torch.ones(len(training.facts))
    visible[facts] = 0.0
    standing = training.standing(visible)
    assert set(standing.tolist()) <= {0.0, 1.0}
    return torch.nonzero(standing == 0)[:, 0].tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_rests_on_facts_is_what_some_grounding_infers_from_one_of_them(seed):
    training, graph, virtual = built(seed)
    facts = [tuple(row) for row in graph.triples.rows.tolist()]
    rng = np.random.default_rng(seed)
    batches = [[number] for number in range(len(facts))] + [rng.permutation(len(facts))[:5].tolist() for _ in range(5)]
    found = set()
    for batch in batches:
        hidden = {facts[number] for number in batch}
        expected = [
            place
            for place in range(len(virtual))
            if any(hidden & set(premises) for _, _, premises in virtual.reasons(place))
        ]
        assert resting_on(training, batch) == expected
        found.update(expected)
    assert found == set(range(len(virtual)))  # each one rests on some fact
    assert resting_on(training, []) == []


def premises_of(groundings: Groundings) -> torch.Tensor:
    """(groundings, 3, 3): -1 where there are fewer."""
    return groundings.premises.reshape(-1, 3, 3).masked_fill(groundings.absent[:, :, None], -1)


def test_groundings_keep_their_confidence_and_premises():
    training, _, virtual = built(1)
    groundings = training.groundings
    assert groundings.rows.offsets.tolist() == virtual.offsets.tolist()
    assert groundings.confidence.tolist() == pytest.approx(virtual.grounding_strength.tolist())
    assert premises_of(groundings).tolist() == virtual.premises.tolist()
    filled = groundings.premises.reshape(-1, 3, 3)
    assert torch.equal(filled[groundings.absent], filled[:, :1].expand_as(filled)[groundings.absent])
    chosen = training.grounds(torch.tensor([3, 0, 3]))
    expected = [virtual.premises[int(virtual.offsets[k]) : int(virtual.offsets[k + 1])].tolist() for k in (3, 0, 3)]
    assert premises_of(chosen).tolist() == [row for one in expected for row in one]
    assert chosen.rows.sizes.tolist() == [len(one) for one in expected]


def test_virtual_triples_of_entities_beyond_the_seen_ones_are_left_out():
    _, virtual = inferred(2)
    seen = 8
    rows = [row for row in inferred(2)[0].triples.rows.tolist() if max(row[0], row[2]) < seen]
    graph = graph_of(rows, ENTITIES, RELATIONS)
    training = build_graph_tensors(graph, seen, virtual, CPU)
    kept = [place for place, (h, _, t) in enumerate(virtual.triples.rows.tolist()) if max(h, t) < seen]
    assert 0 < len(kept) < len(virtual)
    assert training.virtual.tolist() == virtual.triples.rows[kept].tolist()
    offsets, premises = training.groundings.rows.offsets, premises_of(training.groundings)
    for place, old in enumerate(kept):
        mine = slice(int(offsets[place]), int(offsets[place + 1]))
        theirs = slice(int(virtual.offsets[old]), int(virtual.offsets[old + 1]))
        assert premises[mine].tolist() == virtual.premises[theirs].tolist()
    assert training.rows.num_rows == training.rows.width == seen


@pytest.mark.parametrize("nothing", [None, "no conclusions"])
def test_a_graph_without_virtual_triples(nothing):
    graph, _ = inferred(0)
    none = virtual_neighbors(Grounder(RuleSet.empty(RELATIONS)), Overlay.of(graph), np.arange(ENTITIES, dtype=np.int32))
    training = build_graph_tensors(graph, ENTITIES, None if nothing is None else none, CPU)
    assert training.virtual.shape == (0, 3) and training.groundings.premises.shape == (0, 3)
    assert training.groundings.rows.offsets.tolist() == [0]
    assert resting_on(training, list(range(len(graph)))) == []
    assert lists_of(training.edges(all_ones(training))) == lists_of(
        edges_of(
            [[(r, t, 1.0) for r, t in zip(*graph.adjacency.of(e), strict=True)] for e in range(ENTITIES)], ENTITIES
        )
    )


def test_a_graph_without_triples():
    graph = Graph.build(*(inferred(0)[0].entities, inferred(0)[0].relations), TripleArray.empty())
    training = build_graph_tensors(graph, ENTITIES, inferred(0)[1], CPU)
    assert len(training.facts) == 0 and len(training.virtual) > 0  # premises from elsewhere, as newcomers have
    assert training.dependents.num_rows == 0
