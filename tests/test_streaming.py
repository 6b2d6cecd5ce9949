"""Newcomers out of a pipe: a party as soon as it is complete, answered as a file's, and forgotten."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from conftest import complaint
from newcomer.predictor import FactError, NewcomerStream, Predictor, batching
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
Triple = tuple[str, str, str]
FACTS: list[Triple | None] = [
    ("zoe", "lives_in", "city1"),
    ("yan", "knows", "zoe"),
    ("yan", "lives_in", "city3"),
    ("p03", "knows", "ann"),
    None,
    None,
    ("bob", "knows", "cyd"),
    ("dan", "knows", "cyd"),
    ("cyd", "lives_in", "city4"),
    ("q0", "knows", "p05"),
]
PARTIES = [("zoe", "yan"), ("ann",), ("bob", "cyd", "dan"), ("q0",)]


@pytest.fixture(scope="module")
def model() -> Predictor:
    dataset = world()
    return Predictor(fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))


def test_facts_that_follow_each_other_make_a_party_which_is_answered_as_alone(model):
    before = model.newcomers
    found = NewcomerStream(model).batches(enumerate(FACTS))
    for batch, party in zip(found, PARTIES, strict=True):
        assert batch.newcomers == party
        alone = model.copy()
        alone.add([fact for fact in FACTS if fact is not None and set(party) & set(fact)])
        assert batch.model.newcomers == alone.newcomers
        for name in party:
            assert batch.model.tails(name, "citizen_of", 5) == alone.tails(name, "citizen_of", 5)
    assert model.newcomers == before


def test_no_fact_is_taken_before_it_is_needed_and_no_party_kept(model, only_new_garbage):
    taken: list[int] = []

    def facts() -> Iterator[tuple[int, Triple]]:
        for number in range(30):
            taken.append(number)
            yield number, (f"new{number}", "lives_in", f"city{number % 6}")

    gone = []
    for count, batch in enumerate(NewcomerStream(model).batches(facts())):
        assert taken[-1] == min(count + 1, 29)  # the first fact of the next one shows that this one is complete
        gone.append(weakref.ref(batch.model))
        del batch
        gc.collect()
        assert sum(one() is not None for one in gone) <= 1
    assert len(gone) == 30


@pytest.mark.parametrize(
    ("facts", "complains"),
    [
        ([("zoe", "likes", "city1")], "no relation 'likes'"),
        ([("p01", "knows", "p02")], "two entities that the model was trained on"),
        ([("zoe", "knows", " ")], "not empty"),
        ([("zoe", "knows", "p01"), ("ann", "knows", "p02"), ("zoe", "knows", "p03")], "'zoe' was answered about"),
        ([("zoe", "knows", "p01"), ("ann", "knows", "p02"), ("ann", "knows", "zoe")], "'zoe' was answered about"),
        ([("q0", "knows", "p01"), None, ("ann", "knows", "q0")], "'q0' was answered about"),
    ],
)
def test_an_error_names_the_fact_by_its_number(model, facts, complains):
    numbered = [(10 * place, fact) for place, fact in enumerate(facts)]
    error = complaint(lambda: list(NewcomerStream(model).batches(numbered)))
    assert isinstance(error, FactError) and complains in str(error) and error.place == 10 * (len(facts) - 1)


def test_only_so_many_who_went_are_remembered(model, monkeypatch):
    monkeypatch.setattr(batching, "REMEMBERED", 2)
    names = ["ann", "bob", "cyd", "ann"]  # ann comes back when two others have gone after her
    facts = [(name, "lives_in", "city1") for name in names]
    assert [batch.newcomers for batch in NewcomerStream(model).batches(enumerate(facts))] == [(name,) for name in names]
    assert "'cyd' was" in str(complaint(lambda: list(NewcomerStream(model).batches(enumerate([*facts, facts[2]])))))


def test_facts_with_unknown_relations_are_skipped_and_end_nothing(model):
    facts = [("zoe", "lives_in", "city1"), ("ann", "likes", "zoe"), ("zoe", "knows", "p01")]
    batches = NewcomerStream(model, on_unknown_relation="skip")
    assert [batch.newcomers for batch in batches.batches(enumerate(facts))] == [("zoe",)]
    assert (batches.facts, batches.unknown_relations) == (3, 1)
    assert "on_unknown_relation" in str(complaint(NewcomerStream, model, on_unknown_relation="never"))


def test_known_facts_end_no_party_and_whoever_they_introduce_is_asked_about_with_the_last_of_them(model):
    known = [row for row in parts()["train"] if "p07" in row]
    facts = [("zoe", "lives_in", "city1"), *known[:-1], known[0], ("yan", "knows", "zoe"), known[-1], None, *known]
    stream = NewcomerStream(model)
    first, second = stream.batches(enumerate(facts))
    assert first.newcomers == ("p07",) and first.model is model
    assert second.newcomers == ("zoe", "yan") and stream.known == 2 * len(known) + 1
    waiting = iter(enumerate(facts))
    next(NewcomerStream(model).batches(waiting))
    assert [fact for _, fact in waiting] == [None, *known]  # no fact was taken after its last one
