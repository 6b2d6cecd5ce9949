"""Virtual neighbours against rules applied by brute force, over overlays as they were loaded and derived.

Covers newcomer.rules.grounding.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from conftest import make_dataset
from newcomer.errors import OptionError
from newcomer.graph import InductiveDataset, Overlay, TripleArray
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.rule import Kind, Rule, RuleSet, parse_rule
from newcomer.rules.virtual_neighbors import (
    LOGIC,
    PATH,
    Grounder,
    NeighborLimits,
    Sought,
    VirtualNeighbors,
    virtual_neighbors,
)
from overlay_world import ENTITIES as MORE
from overlay_world import RELATIONS as KINDS
from overlay_world import changes, own
from rule_oracle import graph_of, groundings, random_rows, random_rules

ENTITIES, RELATIONS = 7, 3
ANY = NeighborLimits(min_confidence=0.0, min_support=1)


def as_set(found: VirtualNeighbors) -> set[tuple]:
    return {
        (tuple(found.triples.rows[i].tolist()), rule, tuple(premises))
        for i in range(len(found))
        for _, rule, premises in found.reasons(i)
    }


@pytest.mark.parametrize("seed", range(60))
def test_groundings_equal_brute_force(seed):
    rng = np.random.default_rng(seed)
    facts = set(random_rows(rng, ENTITIES, RELATIONS, int(rng.integers(0, 25))))
    seen = ENTITIES - seed % 3  # the last ones have just arrived
    observed = {fact for fact in facts if max(fact[0], fact[2]) < seen}
    overlay = Overlay.of(
        graph_of(sorted(observed), ENTITIES, RELATIONS), TripleArray.of(sorted(facts - observed)), seen
    )
    rules = random_rules(rng, ENTITIES, RELATIONS, 25)

    def own_of(one: int) -> set[tuple[int, int, int]]:
        return {fact for fact in (observed if one < seen else facts) if one in fact[::2]}

    for entity in range(ENTITIES):
        found = virtual_neighbors(Grounder(rules, ANY), overlay, np.array([entity], dtype=np.int32))
        expected = {
            (conclusion, i, premises)
            for i, rule in enumerate(rules)
            for conclusion, premises in groundings(rule, entity, own_of, ENTITIES, RELATIONS)
        }
        assert as_set(found) == expected


@hypothesis_settings(max_examples=40)
@given(changes(30), st.integers(0, 10_000))
def test_groundings_over_a_derived_overlay_are_those_of_its_facts(change, seed):
    rules = random_rules(np.random.default_rng(seed), MORE, KINDS, 25)
    grounder, derived, fresh, now = Grounder(rules, ANY), change.derived, change.fresh, change.now
    paths = PathLimits(walks=50, min_pairs=1, min_confidence=0.01)
    for entity in range(change.num_entities):
        rows = [sorted(grounder.ground(overlay, entity).tolist()) for overlay in (derived, fresh)]
        assert rows[0] == rows[1]
        asked = np.array([entity], dtype=np.int32)
        one, other = (virtual_neighbors(Grounder(rules, ANY), overlay, asked, paths) for overlay in (derived, fresh))
        assert one.triples.rows.tolist() == other.triples.rows.tolist()
        assert one.premises.tolist() == other.premises.tolist()
        assert one.grounding_rule.tolist() == other.grounding_rule.tolist()
        assert one.confidence.tolist() == other.confidence.tolist()
        if entity % 4 == 0:
            expected = {
                (conclusion, i, premises)
                for i, rule in enumerate(rules)
                for conclusion, premises in groundings(
                    rule, entity, lambda one: own(now, one), change.num_entities, KINDS
                )
            }
            assert as_set(virtual_neighbors(Grounder(rules, ANY), derived, asked)) == expected


@pytest.mark.parametrize("seed", range(10))
def test_asking_for_all_is_asking_for_each(seed):
    rng = np.random.default_rng(seed)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 20), ENTITIES, RELATIONS)
    rules = random_rules(rng, ENTITIES, RELATIONS, 20)
    everyone = np.arange(ENTITIES, dtype=np.int32)
    together = virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), everyone)
    apart = [virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), everyone[i : i + 1]) for i in range(ENTITIES)]
    assert as_set(together) == set().union(*map(as_set, apart))
    assert len(together) == len({tuple(row) for row in together.triples.rows.tolist()})
    threaded = virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), everyone, threads=3)
    assert threaded.premises.tolist() == together.premises.tolist()


OBSERVED = [
    ("Spain", "borders", "Portugal"), ("Portugal", "borders", "Spain"), ("Portugal", "in_region", "Europe"),
    ("Spain", "in_region", "Europe"), ("Brazil", "speaks", "Portuguese"), ("Brazil", "in_region", "Americas"),
]  # fmt: skip


def geography(facts: list[tuple[str, str, str]]) -> tuple[InductiveDataset, RuleSet]:
    dataset = make_dataset(train=OBSERVED, aux=facts)
    texts = {
        "borders(x,z), in_region(z,y) => in_region(x,y)": (188, 200),
        "borders(y,x) => borders(x,y)": (95, 100),
        "speaks(x,z), speaks(w,z), in_region(w,y) => in_region(x,y)": (82, 100),
    }
    rules = []
    for text, (support, body) in texts.items():
        shape = parse_rule(text, dataset.relations)
        rules.append(
            Rule(**{**shape.__dict__, "support": support, "body_size": body, "pca_body_size": body, "head_size": 300})
        )
    return dataset, RuleSet.of(rules, len(dataset.relations))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_sought_is_all_that_is_concluded_of_it(seed):
    rng = np.random.default_rng(seed)
    overlay = Overlay.of(graph_of(random_rows(rng, ENTITIES, RELATIONS, 20), ENTITIES, RELATIONS))
    rules, ends, found = random_rules(rng, ENTITIES, RELATIONS, 25), np.array([0, 2, 5], dtype=np.int32), 0
    for entity, relation in product(range(ENTITIES), range(2 * RELATIONS)):
        sought, asked = Sought(relation, ends), np.array([entity], dtype=np.int32)
        for limits in (ANY, replace(ANY, max_per_entity=1)):
            some, every = (
                as_set(virtual_neighbors(Grounder(rules, limits), overlay, asked, PathLimits(walks=20), sought=one))
                for one in (sought, None)
            )
            facts = {
                (entity, relation, end) if relation < RELATIONS else (end, relation - RELATIONS, entity)
                for end in ends.tolist()
            }
            assert some <= every and {one for one in every if one[0] in facts} <= some
            found += len(some)
    assert found > 0


def test_a_newcomer_with_a_handful_of_facts_gets_neighbours_with_reasons():
    dataset, rules = geography([("Atlantis", "borders", "Portugal"), ("Atlantis", "speaks", "Portuguese")])
    ids, relations = dataset.entities, dataset.relations
    found = virtual_neighbors(Grounder(rules), Overlay.of_dataset(dataset), np.array([ids.id("Atlantis")]))
    named = {
        (ids[h], relations[r], ids[t]): round(float(c), 2)
        for (h, r, t), c in zip(found.triples.rows.tolist(), found.confidence, strict=True)
    }
    assert named == {
        ("Atlantis", "in_region", "Europe"): 0.94,
        ("Atlantis", "in_region", "Americas"): 0.82,
        ("Portugal", "borders", "Atlantis"): 0.95,
    }
    europe = next(i for i, t in enumerate(found.triples.tails) if ids[t] == "Europe")
    [(source, rule, premises)] = list(found.reasons(europe))
    assert source == LOGIC
    assert found.rules[rule].text(relations) == "borders(x,z), in_region(z,y) => in_region(x,y)"
    assert [(ids[h], relations[r], ids[t]) for h, r, t in premises] == [
        ("Atlantis", "borders", "Portugal"),
        ("Portugal", "in_region", "Europe"),
    ]


def test_newcomers_that_are_tied_to_each_other_learn_from_each_other():
    dataset, rules = geography([("Atlantis", "borders", "Lyonesse"), ("Lyonesse", "in_region", "Europe")])
    ids, relations = dataset.entities, dataset.relations
    found = virtual_neighbors(Grounder(rules), Overlay.of_dataset(dataset), np.array([ids.id("Atlantis")]))
    concluded = [(ids[h], relations[r], ids[t]) for h, r, t in found.triples.rows.tolist()]
    assert ("Atlantis", "in_region", "Europe") in concluded


def test_a_seen_entity_learns_nothing_from_an_arrival():
    before, rules = geography([("Atlantis", "speaks", "Portuguese")])
    after, _ = geography([("Atlantis", "speaks", "Portuguese"), ("Atlantis", "borders", "Spain")])
    spain = np.array([before.entities.id("Spain")])
    answers = [as_set(virtual_neighbors(Grounder(rules), Overlay.of_dataset(d), spain)) for d in (before, after)]
    assert answers[0] == answers[1]


def test_several_groundings_of_one_conclusion_stand_together_and_the_best_counts():
    rules = RuleSet.of(
        [
            Rule(Kind.ONE, 0, 1, support=9, body_size=10, pca_body_size=10, head_size=50),
            Rule(Kind.ONE, 0, 2, support=19, body_size=20, pca_body_size=20, head_size=50),
        ],
        3,
    )
    graph = graph_of([(0, 1, 1), (0, 2, 1)], 2, 3)
    found = virtual_neighbors(Grounder(rules, NeighborLimits(min_support=1)), Overlay.of(graph), np.array([0]))
    assert found.triples.rows.tolist() == [[0, 0, 1]]
    assert found.grounding_counts.tolist() == [2]
    assert found.confidence.tolist() == [0.95]


def test_the_cap_keeps_the_best_of_each_entity():
    rng = np.random.default_rng(5)
    graph = graph_of(random_rows(rng, ENTITIES, RELATIONS, 20), ENTITIES, RELATIONS)
    rules = random_rules(rng, ENTITIES, RELATIONS, 30)
    entity = np.array([2], dtype=np.int32)
    everything = virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), entity)
    capped = virtual_neighbors(
        Grounder(rules, NeighborLimits(0.0, min_support=1, max_per_entity=4)), Overlay.of(graph), entity
    )
    assert len(everything) > 4 and len(capped) == 4
    order = np.lexsort((-everything.grounding_counts, -everything.confidence))
    assert sorted(capped.confidence.tolist()) == sorted(everything.confidence[order[:4]].tolist())


def test_weak_and_poorly_supported_rules_do_not_conclude():
    rng = np.random.default_rng(1)
    rules = random_rules(rng, ENTITIES, RELATIONS, 50)
    kept = Grounder(rules, NeighborLimits(0.5, "standard", min_support=20)).rules
    assert 0 < len(kept) < 50
    assert (kept.confidence >= 0.5).all() and (kept.support >= 20).all()


def test_a_measure_that_no_rule_states_is_refused():
    unknown = RuleSet.of([Rule(Kind.ONE, 0, 1, support=9, body_size=10)], 3)
    with pytest.raises(OptionError, match="do not state their pca confidence; use the measure 'standard'"):
        Grounder(unknown, NeighborLimits(min_support=1))
    assert len(Grounder(unknown, NeighborLimits(measure="standard", min_support=1)).rules) == 1


def test_paths_join_the_conclusions():
    rng = np.random.default_rng(3)
    graph = graph_of(random_rows(rng, 12, 2, 50), 12, 2)
    rules = RuleSet.empty(2)
    paths = PathLimits(walks=4000, min_pairs=3, min_confidence=0.5)
    found = virtual_neighbors(Grounder(rules, ANY), Overlay.of(graph), np.arange(12), paths)
    assert len(found) > 0 and set(found.grounding_source.tolist()) == {PATH}
    assert not graph.contains(found.triples.heads, found.triples.relations, found.triples.tails).any()
    for triple in range(len(found)):
        for _, rule, premises in found.reasons(triple):
            assert found.path_rules.confidence[rule] >= 0.5
            assert len(premises) == 3 and graph.contains(*np.array(premises).T).all()


@pytest.mark.parametrize(
    "wrong", [{"min_confidence": 1.5}, {"measure": "pcaa"}, {"min_support": 0}, {"max_per_entity": 0}]
)
def test_limits_out_of_range_are_refused(wrong):
    with pytest.raises(OptionError):
        NeighborLimits(**wrong)


def test_nothing_to_conclude_is_an_empty_answer():
    graph = graph_of([], ENTITIES, RELATIONS)
    found = virtual_neighbors(
        Grounder(RuleSet.empty(RELATIONS), ANY), Overlay.of(graph), np.arange(ENTITIES), PathLimits()
    )
    assert len(found) == 0 and found.degrees(ENTITIES).tolist() == [0] * ENTITIES
