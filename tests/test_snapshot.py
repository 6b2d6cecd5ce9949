"""Snapshots as newcomers come and go: who has which slot and id, and what one newcomer's facts change for others.

Covers newcomer.models.embedding.scorer and newcomer.predictor.fact_store.
"""

import numpy as np
import pytest

from conftest import complaint
from newcomer.models.embedding.scorer import ABSENT
from newcomer.predictor import Predictor
from nn_oracle import one_thread
from test_predictor import ATLANTIS, BLENDED, DATASET, HEARING, forgetful, model
from training_world import FOLDED

on_one_thread = pytest.fixture(autouse=True)(one_thread)
Triple = tuple[str, str, str]
STATISTICS = (*FOLDED, *BLENDED, HEARING)


def facts_of(predictor: Predictor) -> set[Triple]:
    facts, words = predictor._snapshot.store, predictor.names.words
    stated = {words(fact) for name in predictor.newcomers for fact in facts[name]}
    return {*DATASET.observed.named(), *stated}


def check(predictor: Predictor) -> None:
    """Everyone has an id of its own, and every newcomer that is there the slot whose vector it has."""
    snapshot, graph = predictor._snapshot, predictor._snapshot.graph
    names = [name for name in [*DATASET.entities, *predictor.newcomers] if name in predictor]
    ids = {name: snapshot.id(name) for name in names}
    assert len(set(ids.values())) == len(ids) and max(ids.values()) < graph.num_entities
    for name, entity in ids.items():
        assert snapshot.name_of(entity) == name and graph.is_present[entity]
        slot = graph.slot(entity)
        assert (slot is None) == (entity < graph.num_seen)
        if slot is not None:
            members = graph.members_with(slot)
            assert members.encoded is slot.encoded and members.ids[slot.number] == entity
            assert slot.place == len(slot.encoded.near) + slot.number
    assert int(graph.is_present.sum()) == len(ids)
    present = np.concatenate([one.ids for one in graph.members])
    assert len(set(present[present != ABSENT].tolist())) == int((present != ABSENT).sum())
    stated = facts_of(predictor)
    for name, entity in ids.items():
        relations, tails = graph.overlay.all_facts_of(entity)
        size = len(predictor.relations)
        found = set()
        for relation, tail in zip(relations.tolist(), tails.tolist(), strict=True):
            ends = (name, snapshot.name_of(tail)) if relation < size else (snapshot.name_of(tail), name)
            found.add((ends[0], predictor.relations[relation % size], ends[1]))
        assert found == {fact for fact in stated if name in fact[::2]}


@pytest.mark.parametrize("make", [model, forgetful])
def test_everyone_has_an_id_a_slot_and_its_facts_whoever_comes_and_goes(make):
    predictor = make(*STATISTICS)
    check(predictor)
    steps = [
        lambda: predictor.add(ATLANTIS),
        lambda: predictor.add([("q0", "knows", "Atlantis"), ("a_first", "lives_in", "city0")]),
        lambda: predictor.remove("Atlantis"),
        lambda: predictor.add([("a_first", "knows", "z_last"), ("z_last", "knows", "p05")]),
        lambda: predictor.remove("q0") if "q0" in predictor else None,
        lambda: predictor.add(ATLANTIS),
        lambda: predictor.remove("a_first"),
    ]
    for step in steps:
        step()
        check(predictor)


def test_ids_depend_on_who_is_there_not_on_the_order_in_which_they_came():
    one, other = forgetful(*STATISTICS), forgetful(*STATISTICS)
    first, second = ATLANTIS, [("Lyonesse", "lives_in", "city1")]
    one.add(first)
    one.add(second)
    other.add(second)
    other.add(first)
    assert [one._snapshot.id(name) for name in one.newcomers] == [other._snapshot.id(name) for name in other.newcomers]


def test_a_snapshot_that_is_as_at_first_is_the_first():
    predictor = model(*STATISTICS)
    first = predictor._snapshot.graph
    predictor.add(ATLANTIS)
    assert predictor._snapshot.graph is not first
    predictor.remove("Atlantis")
    assert predictor._snapshot.graph is first is predictor.engine.initial


def test_an_entity_that_is_not_there_is_not_known():
    snapshot = model(*STATISTICS)._snapshot
    assert "Atlantis" not in snapshot and "q0" in snapshot
    assert str(complaint(snapshot.id, "Atlantis")) == "the entity 'Atlantis' is not known; add facts of it first"


def test_an_answer_is_similar_to_known_answers_by_facts_that_both_have():
    predictor, known = model(*STATISTICS), {"p05", "p07"}
    predictor.add([*ATLANTIS, ("p07", "knows", "Atlantis")])
    answers, facts = predictor.heads("knows", "Atlantis", k=40), facts_of(predictor)
    assert {one.answer for answer in answers for one in answer.because.similar} == known
    for answer in answers:
        similar, part = answer.because.similar, answer.because.parts["similarity"]
        assert {one.answer for one in similar} <= known and bool(similar) == (part != 0)
        assert sum(one.share for one in similar) == pytest.approx(1.0 if similar else 0.0)
        for one in similar:
            assert one.facts and set(one.facts) <= facts
            assert {tuple(answer.entity if end == one.answer else end for end in fact) for fact in one.facts} <= facts
            assert all("Atlantis" not in fact for fact in one.facts)


def parts_of(predictor: Predictor) -> dict[str, dict[str, float]]:
    answers = predictor.tails("Atlantis", "citizen_of", k=40)
    return {answer.entity: answer.because.parts for answer in answers if answer.entity.startswith("land")}


def test_others_who_arrive_are_counted_but_change_neither_vector_nor_rules():
    predictor = model(*STATISTICS)
    predictor.add(ATLANTIS)
    before, vector = parts_of(predictor), predictor.embed("Atlantis")
    predictor.add([("Lyonesse", "lives_in", "city1"), ("Lyonesse", "citizen_of", "land2")])
    after = parts_of(predictor)
    assert np.array_equal(predictor.embed("Atlantis"), vector)
    differing = {
        (land, feature) for land in before for feature in before[land] if after[land][feature] != before[land][feature]
    }
    assert differing == {("land2", "frequency")} and after["land2"]["frequency"] != 0
    predictor.remove("Lyonesse")
    assert parts_of(predictor) == before


def test_what_a_newcomer_states_of_seen_entities_makes_them_similar():
    predictor = model(*STATISTICS)
    predictor.add(ATLANTIS)
    [before] = [one for one in predictor.heads("knows", "Atlantis", k=40) if one.entity == "land2"]
    assert before.because.similar == ()
    predictor.add([("Lyonesse", "knows", "p05"), ("Lyonesse", "knows", "land2")])
    [after] = [one for one in predictor.heads("knows", "Atlantis", k=40) if one.entity == "land2"]
    assert [(one.answer, one.facts) for one in after.because.similar] == [("p05", (("Lyonesse", "knows", "p05"),))]
    assert after.score > before.score


def test_without_graph_statistics_nobody_is_similar():
    assert model(*FOLDED, *BLENDED).tails("q0", "citizen_of")[0].because.similar == ()
