"""A store pushed to a SPARQL endpoint: it has what an export has, whatever happened on the way, and nothing twice."""

import random
from collections.abc import Iterator
from pathlib import Path

import pyoxigraph
import pytest

from conftest import complaint
from newcomer.errors import EndpointError
from newcomer.exchange import push, sparql
from newcomer.exchange.provenance import BASE, quads
from newcomer.exchange.push import Push, Pushed
from newcomer.exchange.sparql import Endpoint
from newcomer.store import open_store
from newcomer.store.store import Store
from sparql_world import DROPPED, engine, facts_and_origins, oxigraph
from sparql_world import Endpoint as Server
from store_world import added, an_answer

SERVERS = {"engine": engine, "oxigraph": oxigraph}
NASTY = (
    'say "hi"',
    "back\\slash",
    "\\u0022 } } ; DROP ALL ; #",
    "<a> > <b>",
    "two\nlines\ttab\r",
    "%41 é 日本 \U0001f600",
    "_:b1",
)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparql, "WAITS", (0.0, 0.0, 0.0))


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "town.db") as store:
        yield store


@pytest.fixture
def server() -> Iterator[Server]:
    with engine() as running:
        yield running


def pushed(store: Store, server: Server, base: str = BASE, what: str = "both") -> Pushed:
    return Push(store, Endpoint(server.url), base, what).run()


def exported(store: Store, **options: str) -> set[str]:
    """What an export has, as an RDF store has it: numbers may be written in several ways."""
    with store.reading() as state:
        content = "".join(f"{quad} .\n" for quad in quads(state, **options))
    loaded = pyoxigraph.Store()
    loaded.load(content.encode(), format=pyoxigraph.RdfFormat.N_QUADS)
    return {str(quad) for quad in loaded}


def live_on(store: Store, rng: random.Random) -> None:
    """Something happens in a store."""
    people, relations = [f"n{i}" for i in range(4)], ["knows", "likes"]
    with store.reading() as state:
        there = [one.name for one in state.newcomers()]
        facts = [one.fact for one in state.facts_of(there)]
        answers = state.count.answers
    kind = rng.choice(["add", "add", "retract", "remove", "record", "decide", "decide"])
    who = rng.choice(["ann", "bob"])
    if kind == "add":
        more = [
            (rng.choice(people), rng.choice(relations), rng.choice([*people, "seen1"]))
            for _ in range(rng.randint(1, 4))
        ]
        store.add(more, is_seen=lambda name: name.startswith("seen"), who=who, source=rng.choice([None, "a letter"]))
    elif kind == "retract" and facts:
        store.retract(rng.sample(facts, rng.randint(1, min(2, len(facts)))), who=who)
    elif kind == "remove" and there:
        store.remove([rng.choice(there)], who=who)
    elif kind == "record":
        given = [an_answer(rng.choice(people), rng.random(), answer=rng.choice(people)) for _ in range(2)]
        store.record(given, model="m1", made_from=0, who=who)
    elif kind == "decide" and answers:
        store.decide(rng.randint(1, answers), rng.choice(["accept", "accept", "reject", "unsure"]), who=who, note="so")


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("seed", range(4))
def test_an_endpoint_has_what_an_export_has_after_any_history(town, kind, seed, monkeypatch):
    monkeypatch.setattr(push, "BATCH", 3)
    rng = random.Random(seed)
    with SERVERS[kind]() as server:
        for _ in range(5):
            for _ in range(rng.randint(1, 12)):
                live_on(town, rng)
            pushed(town, server)
            assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))
            assert exported(town) <= server.quads()


def test_a_push_begins_where_the_last_one_ended(town, server):
    added(town, "zoe lives_in seen1", "zoe knows max", source="a letter")
    first = pushed(town, server)
    assert first == Pushed(facts=2, requests=1, began=0, position=1)
    assert pushed(town, server) == Pushed(began=1, position=1)
    assert len(server.updates) == 1
    town.retract([("zoe", "knows", "max")], who="ann")
    town.record([an_answer("zoe")], model="m1", made_from=1, who="ann")
    town.decide(1, "accept", who="ann")
    assert pushed(town, server) == Pushed(retracted=1, decisions=1, requests=1, began=1, position=4)


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("status", [503, DROPPED])
@pytest.mark.parametrize("stop", range(4))
def test_a_push_that_was_stopped_goes_on_where_it_stopped(town, server, monkeypatch, status, made, stop):
    monkeypatch.setattr(push, "BATCH", 2)
    added(town, *(f"n{i} knows n{i + 1}" for i in range(5)))
    town.retract([("n0", "knows", "n1")], who="ann")
    added(town, "n0 knows n1")
    server.faults[:] = [*[None] * (1 + stop), *[(status, made)] * 4]  # the first request asks for the mark
    error = complaint(pushed, town, server)
    assert isinstance(error, EndpointError) and "4 times; try again later: what is done stays" in str(error)
    server.asked.clear()
    whole = 4  # requests: two facts each, one with a retraction, and a last one with the mark
    assert pushed(town, server).requests == len(server.updates) == whole - stop - made
    assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))


@pytest.mark.parametrize("fault", [(503, False), (503, True), (429, False), (DROPPED, True), (500, False)])
def test_an_update_whose_answer_was_lost_is_sent_again_and_changes_nothing(town, server, fault):
    added(town, "zoe lives_in seen1", "zoe knows max")
    town.retract([("zoe", "knows", "max")], who="ann")
    server.faults[:] = [fault, None, fault, fault, fault]
    assert pushed(town, server).requests == 1
    assert len(server.updates) == 4 and len(set(server.updates)) == 1
    assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))


def test_two_pushes_at_once_lead_to_the_same(town, server):
    added(town, "zoe lives_in seen1")
    pushed(town, server)
    town.retract([("zoe", "lives_in", "seen1")], who="ann")
    added(town, "zoe knows seen1")
    late = Endpoint(server.url)
    marks = late.select
    behind = Push(town, late, BASE)
    late.select = lambda text: (marks(text), pushed(town, server))[0]  # the other one does it all in between
    behind.run()
    assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))


def test_an_endpoint_that_was_set_back_is_brought_forward_again(town):
    added(town, "zoe lives_in seen1")
    with engine() as first, engine() as second:
        pushed(town, first)
        added(town, "max lives_in seen1")
        pushed(town, first)
        assert pushed(town, second).facts == 2
        assert first.quads() == second.quads()


def test_a_store_that_is_behind_its_endpoint_is_another_store(town, server, tmp_path):
    added(town, "zoe lives_in seen1")
    added(town, "max lives_in seen1")
    pushed(town, server)
    before = server.quads()
    with open_store(tmp_path / "other.db") as other:
        added(other, "eve lives_in seen1")
        assert "give this one a --base of its own" in str(complaint(pushed, other, server))
        assert server.quads() == before
        pushed(other, server, base="https://example.org/other/")
    assert before < server.quads()
    assert sum("lives_in" in quad for quad in server.quads()) == 3


def test_facts_and_answers_can_be_pushed_alone_in_any_order(town, server):
    added(town, "zoe lives_in seen1")
    town.record(
        [an_answer("zoe", answer="seen2"), an_answer("zoe", answer="seen3")], model="m1", made_from=1, who="ann"
    )
    town.decide(1, "accept", who="ann")
    town.decide(2, "accept", who="ann")
    town.decide(2, "reject", who="bob")
    assert pushed(town, server, what="answers") == Pushed(decisions=3, requests=1, position=5)
    assert facts_and_origins(server.quads()) == facts_and_origins(exported(town, what="answers"))
    assert pushed(town, server, what="facts").facts == 1
    assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))
    pushed(town, server)
    assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))


@pytest.mark.parametrize("kind", SERVERS)
def test_no_name_or_note_is_taken_for_a_part_of_an_update(town, kind):
    with SERVERS[kind]() as server:
        for number, name in enumerate(NASTY, start=1):
            town.add([(name, name, "seen1")], is_seen=lambda one: one == "seen1", who=name, source=name)
            town.record([an_answer(name, answer=name, relation=name, reason=name)], model=name, made_from=0, who=name)
            town.decide(number, "accept", who=name, note=name)
        pushed(town, server)
        assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))
        town.retract([(name, name, "seen1") for name in NASTY], who="ann")
        pushed(town, server)
        assert facts_and_origins(server.quads()) == facts_and_origins(exported(town))


def test_a_mark_that_nobody_wrote_is_refused(town, server):
    added(town, "zoe lives_in seen1")
    pushed(town, server)
    Endpoint(server.url).update(
        f"INSERT DATA {{ GRAPH <{BASE}provenance> {{ <{BASE}pushed/both> <urn:newcomer-vocabulary:position> <x:y> }} }}"
    )
    assert "is no mark of a push; remove it" in str(complaint(pushed, town, server))


def test_how_far_it_is_can_be_followed(town, server, monkeypatch):
    monkeypatch.setattr(push, "BATCH", 1)
    for number in range(3):
        added(town, f"n{number} knows seen1")
    told: list[tuple[int, int]] = []
    Push(town, Endpoint(server.url), BASE).run(lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
