"""What training is given: which facts the protocol allows, the rules of them, and what these conclude.

Covers newcomer.models.rule_engine.
"""

from dataclasses import replace

import numpy as np
import pytest

from conftest import complaint, make_dataset, named_graph, parts_by_name
from newcomer.errors import DatasetError
from newcomer.graph import Graph, InductiveDataset, Overlay, TripleArray
from newcomer.graph.types import seen_count
from newcomer.models.bundle.rules import problem_of
from newcomer.models.rule_engine import ground
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.rule import COLUMNS, Kind, Rule, RuleSet
from newcomer.rules.virtual_neighbors import Grounder, NeighborLimits, VirtualNeighbors, virtual_neighbors
from newcomer.training.preparation import prepare, renamed_rules, under_protocol
from training_world import NEWCOMERS, parts, settings, world

DATASET = world()


def same_rules(one: RuleSet, other: RuleSet) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


def concluded(found: VirtualNeighbors | None, dataset: InductiveDataset) -> set[tuple[str, str, str]]:
    assert found is not None
    return set(Graph.build(dataset.entities, dataset.relations, found.triples).named())


def test_rules_conclude_about_seen_entities_and_newcomers():
    prepared = prepare(DATASET, settings("rules.paths=no"))
    assert concluded(prepared.seen_neighbors, DATASET) >= set(parts_by_name(DATASET)["valid"])
    assert prepared.num_seen == len(DATASET.entities) - NEWCOMERS
    found = ground(prepared.rules, Overlay.of_dataset(DATASET), DATASET.newcomers, settings("rules.paths=no"), 1)
    assert concluded(found, DATASET) >= set(parts_by_name(DATASET)["test"])


def test_the_settings_reach_the_miner_and_the_grounder():
    config = settings(
        "rules.kinds=one,two",
        "rules.min_support=3",
        "rules.min_head_coverage=0.2",
        "rules.min_head_size=6",
        "rules.min_confidence=0.5",
        "rules.measure=standard",
        "rules.neighbor_min_support=4",
        "rules.max_per_entity=1",
        "rules.walks=7",
        "seed=5",
    )
    prepared = prepare(DATASET, config)
    plan = MiningPlan((Kind.ONE, Kind.TWO), min_support=3, min_head_coverage=0.2, min_head_size=6)
    rules = mine_rules(DATASET.observed, plan, 5).rules
    assert same_rules(prepared.rules, rules)
    limits, everyone = NeighborLimits(0.5, "standard", 4, 6, 1), np.arange(prepared.num_seen, dtype=np.int32)
    found = virtual_neighbors(Grounder(rules, limits), Overlay.of(DATASET.observed), everyone, PathLimits(walks=7), 5)
    assert concluded(prepared.seen_neighbors, DATASET) == concluded(found, DATASET)
    assert np.array_equal(prepared.seen_neighbors.premises, found.premises)  # type: ignore[union-attr]


def test_no_more_rules_with_constants_than_wanted():
    counts = [
        int((prepare(DATASET, settings("rules.kinds=one,constant", *most)).rules.kinds == Kind.CONSTANT).sum())
        for most in ([], ["rules.max_constants=3"])
    ]
    assert counts[0] > counts[1] == 3


def test_given_rules_are_used_instead_of_mined_ones():
    relation = DATASET.relations.id
    rule = Rule(Kind.ONE, relation("citizen_of"), relation("knows"), support=9, body_size=9, pca_body_size=9)
    prepared = prepare(DATASET, settings("rules.paths=no"), RuleSet.of([rule], len(DATASET.relations)))
    known = {(h, t) for h, r, t in DATASET.observed.named() if r == "knows"}
    found = concluded(prepared.seen_neighbors, DATASET)
    assert found and all(r == "citizen_of" and (h, t) in known for h, r, t in found)


@pytest.mark.parametrize("changes", [["model.labels=none"], ["rules.kinds=", "rules.paths=no"]])
def test_nothing_is_mined_or_grounded_where_virtual_neighbours_are_not_wanted(changes):
    prepared = prepare(DATASET, settings(*changes))
    assert len(prepared.rules) == 0 and prepared.rules.num_relations == len(DATASET.relations)
    assert prepared.seen_neighbors is None


def test_paths_alone_conclude_too():
    prepared = prepare(DATASET, settings("rules.kinds=", "rules.walks=300"))
    assert len(prepared.rules) == 0
    assert prepared.seen_neighbors is not None and set(prepared.seen_neighbors.kinds.tolist()) <= {1}


def test_under_the_inductive_protocol_newcomers_facts_do_not_matter_for_what_is_trained_on():
    other = world(aux=[("q0", "knows", "p01"), ("p00", "citizen_of", "q0"), ("q1", "lives_in", "q2")])
    one, two = (prepare(data, settings()) for data in (DATASET, other))
    assert same_rules(one.rules, two.rules)
    assert concluded(one.seen_neighbors, DATASET) == concluded(two.seen_neighbors, other)
    assert parts_by_name(one.dataset) == parts_by_name(DATASET)


def test_refreshed_mines_newcomers_facts_and_changes_nothing_else():
    prepared = prepare(DATASET, settings("protocol=refreshed"))
    assert prepared.dataset is DATASET
    rules = mine_rules(DATASET.known_facts(), MiningPlan()).rules
    assert same_rules(prepared.rules, rules)
    assert not same_rules(prepared.rules, prepare(DATASET, settings()).rules)


def test_under_the_transductive_protocol_everyone_is_seen():
    prepared = prepare(DATASET, settings("protocol=transductive"))
    dataset = prepared.dataset
    assert dataset.entities == DATASET.entities and dataset.relations == DATASET.relations
    assert set(dataset.observed.named()) == {*DATASET.observed.named(), *DATASET.auxiliary.named()}
    assert len(dataset.auxiliary) == len(dataset.newcomers) == 0
    assert prepared.num_seen == len(DATASET.entities)
    assert same_rules(prepared.rules, mine_rules(DATASET.known_facts(), MiningPlan()).rules)
    assert concluded(prepared.seen_neighbors, dataset) >= set(parts_by_name(DATASET)["test"])
    assert under_protocol(DATASET, "refreshed") is DATASET


def test_entities_without_any_fact_have_no_vector_behind_those_with_one():
    without_facts = make_dataset(**{**parts(), "test": [("a stranger", "knows", "p01")]})
    assert seen_count(without_facts.observed) == len(without_facts.entities) - NEWCOMERS - 1
    assert seen_count(Graph.build(without_facts.entities, without_facts.relations, TripleArray.empty())) == 0


def test_a_graph_without_facts_is_refused():
    empty = replace(DATASET, observed=DATASET.auxiliary, auxiliary=DATASET.auxiliary)
    nothing = Graph.build(DATASET.entities, DATASET.relations, TripleArray.empty())
    error = complaint(prepare, replace(empty, observed=nothing), settings())
    assert isinstance(error, DatasetError) and "has no observed facts to train on; give a data set" in str(error)


def test_newcomers_in_front_are_refused():
    graph = named_graph([("b", "r", "c")])
    entities, relations = named_graph([("a", "r", "b"), ("b", "r", "c")]).entities, graph.relations
    observed = Graph.build(entities, relations, TripleArray.of([(1, 0, 2)]))
    auxiliary = Graph.build(entities, relations, TripleArray.of([(0, 0, 1)]))
    dataset = InductiveDataset("turned", observed, auxiliary, TripleArray.empty(), TripleArray.empty())
    assert "do not start with the seen entities" in str(complaint(prepare, dataset, settings()))


def test_rules_are_renamed_by_what_they_say():
    source = make_dataset(train=[("a", "r", "b"), ("b", "s", "c"), ("c", "t", "a")])
    target = make_dataset(train=[("a", "zz", "b"), ("x", "t", "b"), ("a", "r", "x")])  # neither s nor c
    r, s, t = (source.relations.id(name) for name in "rst")
    a, c = source.entities.id("a"), source.entities.id("c")
    rules = RuleSet.of(
        [
            Rule(Kind.TWO, t, r, t + 3, support=3, body_size=4, pca_body_size=5, head_size=6),
            Rule(Kind.ONE, t, s),
            Rule(Kind.ONE, s, t),
            Rule(Kind.CONSTANT, t + 3, r, head_constant=a, body_constant=a, support=1),
            Rule(Kind.CONSTANT, t, r, head_constant=a, body_constant=c),
            Rule(Kind.EXISTS, t, r + 3, head_constant=a),
        ],
        3,
    )
    renamed = renamed_rules(rules, source, target)
    texts = rules.texts(source.relations, source.entities)
    assert renamed.num_relations == len(target.relations)
    assert renamed.texts(target.relations, target.entities) == [texts[0], texts[3], texts[5]]
    assert renamed.support.tolist() == [3, 1, -1] and renamed.head_size.tolist()[0] == 6


def test_renamed_rules_of_atoms_side_by_side_can_be_stored():
    source = make_dataset(train=[("a", "r", "b"), ("a", "s", "b"), ("a", "t", "b")])
    target = make_dataset(train=[("a", "s", "b"), ("a", "t", "b")], aux=[("n", "r", "b")])  # r is the last one here
    r, s, t = (source.relations.id(name) for name in "rst")
    rules = RuleSet.of([Rule(Kind.BOTH, t, r, s), Rule(Kind.BOTH, t, r, s + 3), Rule(Kind.TWO, t, r, s)], 3)
    renamed = renamed_rules(rules, source, target)
    names = target.relations
    assert problem_of(renamed, len(target.entities)) is None
    assert renamed.body1.tolist() == [names.id("s"), names.id("r"), names.id("r")]
    assert renamed.body2.tolist() == [names.id("r"), names.id("s") + 3, names.id("s")]
