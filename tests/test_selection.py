"""What goes back into a graph: what is stated still and accepted still, in the order of the log."""

import random

import pytest

from newcomer.exchange import selection
from newcomer.exchange.selection import COLUMNS, accepted_answers, current_facts, entries, rows, stated_by
from newcomer.store import open_store
from store_world import added, an_answer
from test_push import live_on


def facts_in(state, since=0):
    return [(one.change.position, fact) for one in current_facts(state, since) for fact in one.facts]


@pytest.mark.parametrize("seed", range(5))
def test_current_facts_are_those_that_the_store_has(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(selection, "PAGE", 3)
    rng = random.Random(seed)
    with open_store(tmp_path / "town.db") as store:
        for _ in range(40):
            live_on(store, rng)
        with store.reading() as state:
            names = [one.name for one in state.newcomers()]
            expected = {(one.position, one.fact) for one in state.facts_of(names)}
            found = facts_in(state)
            assert set(found) == expected and len(found) == len(expected) == state.count.facts
            assert [position for position, _ in found] == sorted(position for position, _ in found)
            for since in (0, 7, 20, state.position):
                assert facts_in(state, since) == [one for one in found if one[0] > since]
            accepted = {one.id for one in accepted_answers(state)}
            latest = {one.id: one.decision for one in state.answers(limit=1000)}
            assert accepted == {one for one, decision in latest.items() if decision and decision.verdict == "accept"}
            assert {one.id for one in accepted_answers(state, 20)} == {
                one for one in accepted if latest[one].position > 20
            }
            assert [one.position for one in entries(state)] == list(range(1, state.position + 1))
            assert [one.position for one in entries(state, 3, 5)] == [4, 5]


def test_facts_of_a_change_keep_their_order_and_who_stated_them(tmp_path):
    with open_store(tmp_path / "town.db") as store:
        added(store, "zoe knows max", "zoe lives_in seen1", "abe knows zoe", who="ann", source="a letter")
        store.retract([("zoe", "lives_in", "seen1")], who="bob")
        added(store, "zoe lives_in seen1", who="eve")
        with store.reading() as state:
            first, second = current_facts(state)
            assert first.facts == (("zoe", "knows", "max"), ("abe", "knows", "zoe"))
            assert (first.change.who, first.change.source, second.change.who) == ("ann", "a letter", "eve")
            found = list(rows(state, "facts"))
    assert [tuple(one) for one in found] == [tuple(COLUMNS)] * 3
    assert [one["origin"] for one in found] == ["a letter", "a letter", ""]
    assert [(one["kind"], one["position"], one["who"]) for one in found[1:]] == [
        ("stated", 1, "ann"),
        ("stated", 3, "eve"),
    ]


def test_an_answer_states_a_fact_at_the_end_that_was_asked_for():
    assert stated_by(an_answer("zoe", answer="seen2")) == ("zoe", "lives_in", "seen2")
    assert stated_by(an_answer("zoe", answer="seen2", direction="heads")) == ("seen2", "lives_in", "zoe")


def test_an_accepted_answer_comes_with_its_decision(tmp_path):
    with open_store(tmp_path / "town.db") as store:
        store.record([an_answer("zoe", 0.9), an_answer("max", 0.1)], model="m1", made_from=0, who="job")
        store.decide(1, "accept", who="ann", note="asked her")
        with store.reading() as state:
            (found,) = rows(state)
            assert list(rows(state, "facts")) == []
            assert list(rows(state, "answers", since=2)) == []
    at = found.pop("at")
    assert at.startswith("20") and found == {
        **{"head": "zoe", "relation": "lives_in", "tail": "seen1", "kind": "accepted", "position": 2, "who": "ann"},
        **{"origin": None, "answer": 1, "model": "m1", "probability": 0.9, "if_any": 0.9},
        **{"reason": "as rule 7 infers", "note": "asked her"},
    }
