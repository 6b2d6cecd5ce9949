"""Newcomers party by party: answered as each party alone is, in bounded company, whatever the order of the facts."""

import gc
import random
import weakref
from pathlib import Path

import pytest

from conftest import complaint
from newcomer.data.tables import NamedTriples, TripleCollector
from newcomer.predictor import FactError, NewcomerBatches, Predictor, check_relations
from newcomer.predictor.confidence import RelationCooccurrence
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
Triple = tuple[str, str, str]
# Two are tied by a fact, two more over a third, one is alone, and q0 is in the model already.
FACTS: list[Triple] = [
    ("zoe", "lives_in", "city1"),
    ("ann", "lives_in", "city2"),
    ("yan", "knows", "zoe"),
    ("bob", "knows", "cyd"),
    ("p03", "knows", "ann"),
    ("dan", "knows", "cyd"),
    ("yan", "lives_in", "city3"),
    ("cyd", "lives_in", "city4"),
    ("q0", "knows", "p05"),
]
PARTIES = [{"zoe", "yan"}, {"ann"}, {"bob", "cyd", "dan"}, {"q0"}]


@pytest.fixture(scope="module")
def model() -> Predictor:
    dataset = world()
    return Predictor(fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))


def named(facts: list[Triple]) -> NamedTriples:
    collector = TripleCollector(Path("made.tsv"))
    for fact in facts:
        collector.add_row(*fact)
    return collector.finish()


def answers(model: Predictor, name: str) -> list[tuple[str, float, float]]:
    return [(a.entity, a.score, a.probability) for a in model.tails(name, "citizen_of", 5)]


def test_those_tied_by_facts_come_together_in_the_order_of_the_facts(model):
    batches = NewcomerBatches(model, named(FACTS))
    found = [batch.newcomers for batch in batches.batches()]
    assert [set(party) for party in found] == PARTIES
    assert found[0] == ("zoe", "yan") and len(batches) == 7


def test_each_party_is_answered_as_if_it_had_come_alone(model):
    for batch in NewcomerBatches(model, named(FACTS)).batches():
        alone = model.copy()
        alone.add([fact for fact in FACTS if set(batch.newcomers) & set(fact)])
        for name in batch.newcomers:
            assert answers(batch.model, name) == answers(alone, name)
            assert batch.model.embed(name).tobytes() == alone.embed(name).tobytes()


def test_the_order_of_the_facts_changes_no_answer(model):
    def all_answers(facts: list[Triple]) -> dict[str, list[tuple[str, float, float]]]:
        found_batches = NewcomerBatches(model, named(facts)).batches()
        return {name: answers(batch.model, name) for batch in found_batches for name in batch.newcomers}

    shuffled = random.Random(3).sample(FACTS, len(FACTS))
    assert shuffled != FACTS and all_answers(shuffled) == all_answers(FACTS)


def test_all_at_once_is_what_adding_all_does(model):
    batch = NewcomerBatches(model, named(FACTS)).together()
    expected = model.copy()
    expected.add(FACTS)
    assert batch.model.newcomers == expected.newcomers and set(batch.newcomers) == set.union(*PARTIES)
    assert all(answers(batch.model, name) == answers(expected, name) for name in batch.newcomers)


def test_only_one_party_is_there_at_a_time_and_nothing_of_the_others_is_kept(model, only_new_garbage):
    facts = [(f"new{i}", "lives_in", f"city{i % 6}") for i in range(40)]
    before, gone = model.newcomers, []
    for batch in NewcomerBatches(model, named(facts)).batches():
        assert set(batch.model.newcomers) - set(before) == set(batch.newcomers) and len(batch.newcomers) == 1
        answers(batch.model, batch.newcomers[0])
        gone.append(weakref.ref(batch.model))
        del batch
        gc.collect()
        assert sum(one() is not None for one in gone) <= 1
    assert len(gone) == 40 and model.newcomers == before


def test_what_follows_from_the_model_alone_is_worked_out_once(model, monkeypatch):
    made: list[object] = []
    plain = RelationCooccurrence.of
    monkeypatch.setattr(RelationCooccurrence, "of", lambda observed: made.append(observed) or plain(observed))
    for batch in NewcomerBatches(model, named(FACTS)).batches():
        assert batch.model.confidence(batch.newcomers[0]).facts >= 1
    assert len(made) == 1


def test_the_model_itself_stays_as_it_was(model):
    before, stored = answers(model, "q0"), model.newcomers
    for batch in NewcomerBatches(model, named([*FACTS, ("q0", "lives_in", "city5")])).batches():
        answers(batch.model, batch.newcomers[0])
    assert model.newcomers == stored and answers(model, "q0") == before


def test_parties_without_anyone_wanted_are_left_out(model):
    batches = NewcomerBatches(model, named(FACTS))
    assert [set(batch.newcomers) for batch in batches.batches(of=["cyd", "ann", "nobody"])] == PARTIES[1:3]
    assert batches.named(["cyd", "p03", "nobody", "zoe"]) == {"cyd", "zoe"}


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_parties_are_the_connected_components_of_random_facts(model, count):
    draw = random.Random(count)
    people = [f"new{i}" for i in range(30)]
    facts = [(draw.choice(people), "knows", draw.choice([*people, "p01", "p02"])) for _ in range(count)]
    groups = [{head, tail} - {"p01", "p02"} for head, _, tail in facts]
    for _ in facts:  # joined until nothing changes: slow and plain
        groups = [set.union(*(other for other in groups if other & group)) for group in groups]
    expected = sorted({frozenset(group) for group in groups}, key=sorted)
    found = [frozenset(batch.newcomers) for batch in NewcomerBatches(model, named(facts)).batches()]
    assert sorted(found, key=sorted) == expected


@pytest.mark.parametrize(
    ("fact", "complains"),
    [
        (("zoe", "likes", "city1"), "no relation 'likes'"),
        (("p01", "knows", "p02"), "two entities that the model was trained on"),
        (("zoe", "knows", "  "), "not empty"),
    ],
)
def test_a_wrong_fact_is_found_before_anyone_is_asked_about(model, fact, complains):
    assert complains in str(complaint(NewcomerBatches, model, named([*FACTS, fact])))


def test_facts_with_unknown_relations_are_skipped_with_those_known_by_them_alone(model):
    batches = NewcomerBatches(model, named([("eve", "likes", "p01"), *FACTS, ("zoe", "likes", "bob")]), "skip")
    assert batches.unknown_relations == 2
    assert [set(batch.newcomers) for batch in batches.batches()] == PARTIES  # zoe and bob are not tied by it
    assert "skip" in str(complaint(NewcomerBatches, model, named(FACTS), "ignore"))


def test_unknown_relations_are_named_with_the_nearest(model):
    check_relations(model, ["knows"])
    assert "did you mean 'citizen_of'?" in str(complaint(check_relations, model, ["knows", "citizen_off"]))


def test_who_is_in_the_graph_by_given_facts_alone_is_asked_about_again(model):
    known = [row for row in parts()["train"] if "p07" in row]
    others = [("city1", "city_in", "land1"), ("p01", "lives_in", "city1")]
    assert len(known) == 4  # two of p07's own facts, its citizenship, and someone who knows p07
    batches = NewcomerBatches(model, named([*others, *FACTS, *known, *known]))
    assert (batches.known, batches.introduced, len(batches)) == (2 + 2 * len(known), ("p07",), 7)
    *newcomers, last = batches.batches()
    assert [set(batch.newcomers) for batch in newcomers] == PARTIES
    assert last.newcomers == ("p07",) and last.model is model
    assert [batch.newcomers for batch in batches.batches(of=["ann"])] == [("ann",)]
    assert batches.together().newcomers[-1] == "p07" and set(batches.together().newcomers[:-1]) == set.union(*PARTIES)
    assert NewcomerBatches(model, named([*others, *known[:-1]])).introduced == ()  # someone else told of p07, too


def test_facts_between_seen_entities_that_the_graph_lacks_are_skipped_if_asked_for(model):
    facts = [("p01", "knows", "p02"), *FACTS, ("p01", "lives_in", "city1")]
    batches = NewcomerBatches(model, named(facts), on_seen_fact="skip")
    assert (batches.seen_facts, batches.known) == (1, 1)
    error = complaint(NewcomerBatches, model, named([*FACTS, *facts]))
    assert isinstance(error, FactError) and (error.place, error.skipped_by) == (len(FACTS), "on_seen_fact")
    assert "on_seen_fact" in str(complaint(NewcomerBatches, model, named(FACTS), on_seen_fact="never"))
