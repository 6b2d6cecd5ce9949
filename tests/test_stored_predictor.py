"""A model over a store: as the model alone answers with the same facts, whoever asks, in whichever process."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import newcomer
from conftest import complaint, make_dataset
from newcomer.errors import OptionError
from newcomer.models.bundle import write_bundle
from newcomer.predictor import Added, Predictor, load
from newcomer.predictor.fact_store import Skipping
from newcomer.service import stored_predictor
from newcomer.service.stored_predictor import StoredPredictor, model_version
from newcomer.store import Change, KeyReusedError, NotThereError, open_store
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import FOLDED, parts, settings

on_one_thread = pytest.fixture(autouse=True)(one_thread)
ZOE = [("zoe", "lives_in", "city1"), ("zoe", "knows", "p03")]
YAN = [("yan", "knows", "zoe"), ("yan", "lives_in", "city2")]
BOB = [("bob", "lives_in", "city3"), ("bob", "knows", "p03")]
EVE = [("p03", "knows", "eve"), ("eve", "citizen_of", "land1")]
Fact = tuple[str, str, str]


def written(folder: Path, *changes: str, **rows: list[Fact]) -> Path:
    """A trained model of the world, with other rows for some parts."""
    dataset = make_dataset(**{**parts(), **rows})
    write_bundle(folder, fit(dataset, settings("model.ensemble=yes", *changes), threads=1).bundle(dataset))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("stored") / "people")


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the kind that the preset `default` trains."""
    return written(tmp_path_factory.mktemp("folded") / "people", *FOLDED)


@pytest.fixture
def opened(place: str) -> Iterator[Callable[[Path], StoredPredictor]]:
    """Opens models over one store."""
    with ExitStack() as stack:
        yield lambda run: stack.enter_context(newcomer.open(run, place))


@pytest.fixture
def live(run: Path, opened: Callable[[Path], StoredPredictor]) -> StoredPredictor:
    return opened(run)


def plain(run: Path, *facts: list[Fact]) -> Predictor:
    """The model alone, with the same facts."""
    model = load(run)
    model.add([fact for some in facts for fact in some])
    return model


def told(model: Any, entity: str) -> dict[str, Any]:
    """All that can be asked about an entity, as plain values to the last bit."""
    return {
        "tails": [one.to_dict() for one in model.tails(entity, "citizen_of", k=5)],
        "heads": [one.to_dict() for one in model.heads("knows", entity, k=5, known=True)],
        "suggest": [one.to_dict() for one in model.suggest(entity, k=5, min_probability=0.01)],
        "classify": [
            one.to_dict() for one in model.classify([(entity, "citizen_of", "land2"), ("p01", "knows", entity)])
        ],
        "embed": model.embed(entity).tolist() + model.embed(entity, "knows").tolist(),
        "similar": model.similar(entity, k=5),
        "confidence": model.confidence(entity).to_dict(),
        "neighbors": [one.to_dict() for one in model.neighbors(entity)],
    }


@pytest.mark.parametrize("kind", ["run", "folded"])
def test_answers_are_those_of_the_model_alone_with_the_same_facts(kind, request, opened):
    folder = request.getfixturevalue(kind)
    live = opened(folder)
    live.add([*ZOE, *YAN, *BOB])
    together, alone = plain(folder, ZOE, YAN), plain(folder, BOB)
    assert told(live, "zoe") == told(together, "zoe")
    assert told(live, "yan") == told(together, "yan")
    assert told(live, "bob") == told(alone, "bob")


def test_one_of_the_model_is_asked_about_beside_newcomers_that_have_a_fact_with_it(live, run):
    live.add([*ZOE, *YAN, *EVE])
    assert told(live, "p03") == told(plain(run, ZOE, YAN, EVE), "p03")
    assert told(live, "p01") == told(load(run), "p01")
    assert "eve" not in [one.entity for one in live.tails("p03", "knows", k=40)]  # it is known


def test_vectors_of_the_model_never_move(live, run):
    before = {name: load(run).embed(name) for name in ("p03", "city1", "land1")}
    live.add([*ZOE, *YAN, *EVE])
    for name, vector in before.items():
        assert np.array_equal(live.embed(name), vector)


def test_newcomers_that_no_fact_connects_change_nothing(live):
    live.add(ZOE)
    before = told(live, "zoe")
    live.add([*BOB, *EVE, *[(f"n{i}", "lives_in", "city1") for i in range(30)]])
    assert told(live, "zoe") == before
    live.add(YAN)
    assert told(live, "zoe") != before
    live.remove("yan")
    assert told(live, "zoe") == before


def test_facts_are_checked_as_the_model_checks_them(live):
    wrong = [*ZOE, ("zoe", "likes", "p03"), ("p01", "knows", "p02"), ("p00", "lives_in", "city0")]
    assert "no relation 'likes'" in str(complaint(live.add, wrong))
    assert "trained on" in str(complaint(live.add, wrong, on_unknown_relation="skip"))
    assert live.newcomers() == []
    skipping = {"on_unknown_relation": "skip", "on_seen_fact": "skip"}
    assert live.add(wrong, **skipping) == Added(("zoe",), 2, 1, 2)
    assert live.add(wrong, **skipping) == Added((), 0, 3, 2)


def test_who_says_what_is_in_the_log(live):
    live.add(ZOE, who="ann", source="a letter", key="k")
    assert live.add(ZOE, who="ann", source="a letter", key="k").newcomers == ("zoe",)
    live.retract(ZOE[:1], who="bob")
    live.add(BOB)
    with live.store.reading() as state:
        assert [(one.kind, one.who, one.source) for one in state.log()] == [
            ("add", "ann", "a letter"),
            ("retract", "bob", ""),
            ("add", stored_predictor.NOBODY, ""),
        ]


def test_what_was_retracted_counts_no_more(live, run):
    live.add([*ZOE, *YAN])
    assert live.retract(ZOE[:1]) == Change(2, facts=1)
    assert told(live, "zoe") == told(plain(run, ZOE[1:], YAN), "zoe")
    assert live.remove("zoe", "yan") == Change(3, left=("yan", "zoe"), facts=3)
    assert "zoe" not in live
    error = complaint(live.tails, "zoe", "knows")
    assert isinstance(error, OptionError) and "'zoe' is not known" in str(error)


def test_only_newcomers_that_are_there_are_removed(live):
    live.add(ZOE)
    assert "'p01' was trained on" in str(complaint(live.remove, "zoe", "p01"))
    assert isinstance(complaint(live.remove, "zoe", "nobody"), NotThereError)
    assert [one.name for one in live.newcomers()] == ["zoe"]


def test_who_is_there(live):
    live.add([*ZOE, *YAN, *BOB])
    assert "zoe" in live and "p01" in live and "nobody" not in live and 7 not in live
    assert [one.name for one in live.newcomers()] == ["bob", "yan", "zoe"]
    assert [one.name for one in live.newcomers(after="bob", limit=1)] == ["yan"]
    assert [one.name for one in live.newcomers(prefix="z")] == ["zoe"]
    assert live.is_seen("p01") and not live.is_seen("zoe") and not live.is_seen("q0")


def test_a_scope_is_one_position_and_says_whether_it_is_complete(live, monkeypatch):
    live.add([*ZOE, *YAN])
    scope = live.scope("zoe")
    assert scope.position == 1 and scope.complete and set(scope.model.newcomers) >= {"zoe", "yan"}
    monkeypatch.setattr(stored_predictor, "MOST_CONNECTED", 1)
    scope = live.scope("zoe")
    assert not scope.complete and "zoe" in scope.model
    monkeypatch.setattr(stored_predictor, "NEARBY", 1)
    live.add(BOB)
    scope = live.scope("p03")
    assert not scope.complete and "bob" not in scope.model  # zoe was named first


def test_answers_of_several_questions_are_of_one_position(live, run):
    live.add([*ZOE, *BOB])
    asked = [("zoe", "citizen_of", "land1"), ("bob", "citizen_of", "land0"), ("zoe", "knows", "bob")]
    alone = [plain(run, ZOE), plain(run, BOB), plain(run, ZOE, BOB)]
    assert live.classify(asked) == [model.classify([one])[0] for model, one in zip(alone, asked, strict=True)]
    assert "is not a triple" in str(complaint(live.classify, [("zoe",)])) and live.classify([]) == []


def test_whoever_was_encoded_lately_is_not_encoded_again(live, monkeypatch):
    live.add([*ZOE, *YAN, *BOB])
    first, second, other = live.scope("zoe"), live.scope("yan"), live.scope("bob")
    assert first.model is second.model is not other.model
    monkeypatch.setattr(stored_predictor, "KEPT", 1)
    nobody = live.scope("p01")
    assert nobody.model is live.model
    live.add(EVE)
    scope, later = live.scope("eve"), live.scope("bob")
    assert "eve" in scope.model and later.model is not other.model
    assert told(live, "zoe") == told(live, "zoe")


def test_answers_are_recorded_with_the_model_and_the_position(live, run):
    live.add(ZOE)
    scope = live.scope("zoe")
    best = scope.model.tails("zoe", "citizen_of", k=1)[0]
    live.add(BOB)
    given = newcomer.store.GivenAnswer(
        "zoe", "citizen_of", "tails", best.entity, 1, best.probability, best.if_any, str(best.because)
    )
    assert live.record([given], scope, who="ann").ids == (1,)
    with live.store.reading() as state:
        found = state.answer(1)
    assert (found.given, found.model, found.made_from, found.who) == (given, model_version(run), 1, "ann")


def test_a_model_that_was_trained_on_a_newcomer_goes_on_with_the_store(live, opened, tmp_path):
    live.add([*ZOE, *YAN, *BOB, *[(f"n{i}", "knows", "zoe") for i in range(25)]])
    train = [*parts()["train"], *ZOE, *[(f"n{i}", "knows", "zoe") for i in range(25)]]
    grown = opened(written(tmp_path / "grown", train=train))
    assert grown.version != live.version
    assert grown.is_seen("zoe") and not grown.is_seen("yan")
    assert told(grown, "yan") == told(plain(tmp_path / "grown", YAN), "yan")
    scope = grown.scope("zoe")  # all those near it but yan were trained on
    assert scope.complete and set(scope.model.newcomers) - set(grown.model.newcomers) == {"yan"}
    assert "trained on" in str(complaint(grown.remove, "zoe"))
    assert grown.add([*ZOE, ("yan", "knows", "bob")]) == Added((), 1, 2, 0)


def test_a_request_that_is_sent_again_beside_a_later_model_is_the_same_request(live, opened, tmp_path):
    first = live.add(ZOE, key="monday")
    grown = opened(written(tmp_path / "grown", train=[*parts()["train"], *ZOE]))
    again = grown.arrived(ZOE, Skipping(), key="monday")
    assert again.change.arrived == first.newcomers == ("zoe",) and grown.store.position() == 1
    error = complaint(grown.add, [*ZOE, ("yan", "knows", "zoe")], key="monday")
    assert isinstance(error, KeyReusedError)


def test_a_fact_that_a_model_cannot_use_is_left_out_of_its_answers(live, run, opened, tmp_path):
    rich = opened(written(tmp_path / "rich", train=[*parts()["train"], ("p00", "likes", "p01")]))
    rich.add([*ZOE, ("zoe", "likes", "p05")])
    assert told(live, "zoe") == told(plain(run, ZOE), "zoe")
    assert told(rich, "zoe") == told(plain(tmp_path / "rich", ZOE, [("zoe", "likes", "p05")]), "zoe")


def ask(run: Path, place: str, facts: list[Fact], start: Any, found: Any) -> None:
    """A process that adds its own newcomers and answers about all who are there when everyone has added theirs."""
    with newcomer.open(run, place) as live:
        for fact in facts:
            live.add([fact], who="process")
        start.wait()
        found.put({name: told(live, name) for name in ("zoe", "yan", "bob", "p03")})


def test_two_processes_over_one_store_answer_alike_to_the_bit(run, place):
    with open_store(place):
        pass
    processes = multiprocessing.get_context("spawn")
    start, found = processes.Barrier(2), processes.Queue()
    both = [
        processes.Process(target=ask, args=(run, place, facts, start, found)) for facts in ([*ZOE, *BOB], [*YAN, *EVE])
    ]
    for one in both:
        one.start()
    first, second = found.get(), found.get()
    for one in both:
        one.join()
    assert first == second
    assert first["zoe"] == told(plain(run, ZOE, YAN), "zoe")
    assert first["p03"] == told(plain(run, ZOE, YAN, BOB, EVE), "p03")


def test_a_place_that_holds_no_model_or_no_store_is_refused(run, tmp_path):
    assert "does not exist" in str(complaint(newcomer.open, tmp_path / "nothing", tmp_path / "a.db"))
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to look like one" * 10)
    assert "no store of newcomers" in str(complaint(newcomer.open, run, tmp_path / "text.db"))
