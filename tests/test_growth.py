"""The next model of a graph that has grown: what it learns from, and what it says of answers given before."""

from pathlib import Path

import pytest

import newcomer
from conftest import parts_by_name
from newcomer.models.bundle import read_bundle, write_bundle
from newcomer.predictor import load
from newcomer.service import growth
from newcomer.store import GivenAnswer, open_store
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import FOLDED, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
ZOE = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03")]
Q0 = ("q0", "likes", "zoe")  # a newcomer that the model was stored with, by a relation that it lacks


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, dataset = tmp_path_factory.mktemp("growth") / "people", world()
    write_bundle(folder, fit(dataset, settings("model.ensemble=yes", *FOLDED), threads=1).bundle(dataset))
    return folder


def given(entity: str, answer: str, relation: str = "citizen_of", heads: bool = False) -> GivenAnswer:
    return GivenAnswer(entity, relation, "heads" if heads else "tails", answer, 1, 0.5, 0.5)


@pytest.fixture
def town(run: Path, tmp_path: Path) -> Path:
    """A store with newcomers, one of whom left, and answers, two of which are accepted."""
    place = tmp_path / "town.db"
    with newcomer.open(run, place) as live:
        live.add([*ZOE, ("yan", "knows", "p01"), ("yan", "lives_in", "city2")])
        live.remove("yan")
        live.store.add([Q0], is_seen=live.is_seen, who="ann")
        answers = [given("zoe", "land1"), given("zoe", "land2"), given("p05", "q1", "knows"), given("yan", "land2")]
        live.store.record(answers, model="m", made_from=1, who="job")
        live.store.decide(1, "accept", who="ann")
        live.store.decide(2, "reject", who="ann")
        live.store.decide(3, "accept", who="ann")
    return place


def test_the_next_graph_is_the_old_one_and_what_the_store_holds(run, town):
    found = newcomer.growth_of(run, town)
    old = parts_by_name(world())
    now_seen = [fact for fact in old["aux"] if fact[0] == "q0"]
    assert parts_by_name(found.dataset) == {
        **{"train": sorted([*old["train"], *ZOE, Q0, *now_seen]), "valid": [], "test": []},
        "aux": [fact for fact in old["aux"] if fact[0] != "q0"],
    }
    assert (found.dataset.name, found.position) == ("made+store@7", 7)
    assert (found.facts, found.accepted, found.entities, found.relations) == (3 + len(now_seen), 0, 2, 1)
    names = list(found.dataset.entities)
    assert names[: len(names) - 3] == sorted(names[: len(names) - 3]) and names[-3:] == ["q1", "q2", "q3"]


def test_accepted_answers_are_facts_where_that_is_asked_for(run, town):
    found = newcomer.growth_of(run, town, accepted=True)
    train = parts_by_name(found.dataset)["train"]
    assert ("zoe", "citizen_of", "land1") in train and ("p05", "knows", "q1") in train
    assert ("zoe", "citizen_of", "land2") not in train and ("yan", "citizen_of", "land2") not in train
    assert found.accepted == 2 + 2 and found.facts == newcomer.growth_of(run, town).facts  # two facts of q1 with it


def test_the_next_model_knows_the_newcomers_and_goes_on_growing(run, town, tmp_path):
    model = newcomer.grow(run, town, tmp_path / "next", accepted=True, threads=1)
    assert model.names.seen("zoe") >= 0 and "likes" in model.relations and "q2" in model.newcomers
    assert read_bundle(tmp_path / "next").config.to_dict() == read_bundle(run).config.to_dict()
    with newcomer.open(tmp_path / "next", town) as live:
        live.add([("bob", "likes", "zoe")])
        assert [one.entity for one in live.heads("likes", "zoe", known=True, k=40) if one.entity == "bob"]
    again = newcomer.growth_of(tmp_path / "next", town)
    assert again.dataset.name == "made+store@8" and (again.facts, again.entities, again.relations) == (1, 1, 0)
    assert newcomer.growth_of(tmp_path / "next", town, accepted=True).accepted == 0


def test_a_store_that_holds_nothing_gives_the_same_graph(run, tmp_path):
    found = newcomer.growth_of(run, tmp_path / "empty.db")
    old = parts_by_name(world())
    assert parts_by_name(found.dataset) == {**old, "valid": [], "test": []}
    assert (found.facts, found.accepted, found.entities, found.relations) == (0, 0, 0, 0)


def test_answers_given_before_are_asked_of_both_models(run, tmp_path):
    place, dataset = tmp_path / "town.db", world(train=[*parts()["train"], *ZOE])
    write_bundle(tmp_path / "next", fit(dataset, settings("model.ensemble=yes"), threads=1).bundle(dataset))
    bob = [("bob", "lives_in", "city3")]
    with newcomer.open(run, place) as live:
        live.add([*ZOE, *bob])
        answers = [given("bob", "land1"), given("zoe", "land0"), given("zoe", "land1")]
        answers.append(given("zoe", "p05", "knows", heads=True))
        others = [given("nobody", "land1"), given("zoe", "p03", "knows"), given("p01", "zoe", "likes")]
        live.store.record([*answers, *others], model="m", made_from=1, who="job")
    found = newcomer.ask_again(run, tmp_path / "next", place)
    assert (found["asked"], found["known"], found["unasked"]) == (4, 1, 2)
    old, new = (beside(folder, bob) for folder in (run, tmp_path / "next"))
    moves = [two[0] - one[0] for one, two in zip(old, new, strict=True)]
    assert found["probability_before"] == pytest.approx(sum(one for one, _ in old) / 4)
    assert found["probability_after"] == pytest.approx(sum(one for one, _ in new) / 4)
    assert found["moved"] == pytest.approx(sum(map(abs, moves)) / 4)
    assert [abs(one["after"] - one["before"]) for one in found["most"]] == sorted(map(abs, moves), reverse=True)
    assert (found["first_before"], found["first_after"]) == (sum(one for _, one in old), sum(one for _, one in new))
    assert found["stayed_first"] == sum(one[1] and two[1] for one, two in zip(old, new, strict=True))


def beside(folder: Path, bob: list[tuple[str, str, str]]) -> list[tuple[float, bool]]:
    """How a model alone answers the four questions: the probability of the answer, and whether it is the first."""
    with_bob, with_zoe = load(folder), load(folder)
    with_bob.add(bob)
    with_zoe.add(ZOE)  # for one that was trained on her, they are known
    asked = [(with_bob, "bob", "land1"), (with_zoe, "zoe", "land0"), (with_zoe, "zoe", "land1")]
    found = [
        (
            model.classify([(who, "citizen_of", land)])[0].probability,
            model.tails(who, "citizen_of", 1)[0].entity == land,
        )
        for model, who, land in asked
    ]
    probability = with_zoe.classify([("p05", "knows", "zoe")])[0].probability
    return [*found, (probability, with_zoe.heads("knows", "zoe", 1)[0].entity == "p05")]


def test_only_the_last_answers_are_asked_again(run, town):
    with open_store(town) as store, store.reading() as state:
        count = state.count.answers
    found = newcomer.ask_again(run, run, town, most=2)
    assert found["asked"] + found["known"] + found["unasked"] == 2 < count
    same = newcomer.ask_again(run, run, town, most=growth.MOVED)
    assert same["moved"] == 0 and same["first_before"] == same["first_after"] == same["stayed_first"]
    assert (same["asked"], same["unasked"]) == (3, 1)  # yan has left
