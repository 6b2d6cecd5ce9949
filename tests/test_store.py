"""A store of newcomers: what is stated, retracted, answered and decided, in both databases."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from conftest import complaint
from newcomer.errors import OptionError
from newcomer.store import Change, Counts, KeyReusedError, NotThereError, Recorded, open_store
from newcomer.store.texts import NAME_LENGTH
from store_world import added, an_answer, is_seen

ZOE = ("zoe", "lives_in", "seen_city")
KNOWS = ("zoe", "knows", "max")
FOREVER = "x" * NAME_LENGTH


def test_facts_of_newcomers_are_there_after_they_are_added(store):
    assert added(store, "zoe lives_in seen_city", "zoe knows max") == Change(1, ("max", "zoe"), (), 2, 0)
    with store.reading() as state:
        assert state.position == 1 and state.count == Counts(newcomers=2, facts=2, answers=0)
        assert [one.name for one in state.newcomers()] == ["max", "zoe"]
        assert {one.fact for one in state.facts_of(["zoe"])} == {ZOE, KNOWS}
        assert [one.fact for one in state.facts_of(["max"])] == [KNOWS]
        assert state.facts_of(["nobody"]) == [] and state.history("nobody") == []


def test_repeated_facts_change_nothing_and_are_counted(store):
    added(store, "zoe knows max")
    assert added(store, "zoe knows max", "zoe knows max") == Change(1, repeated=2)
    assert added(store, "zoe knows max", "zoe likes max", "zoe likes max") == Change(2, facts=1, repeated=2)
    assert added(store) == Change(2)
    with store.reading() as state:
        assert [len(entry.stated) for entry in state.log()] == [1, 1]


def test_who_and_when_stand_with_each_fact(store):
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    added(store, "zoe knows max", who="ann", source="a letter")
    added(store, "zoe likes max", who="bob")
    with store.reading() as state:
        first, second = state.facts_of(["zoe", "max"])
    assert (first.who, first.source, second.who, second.source) == ("ann", "a letter", "bob", "")
    assert before <= first.at <= second.at <= datetime.now(UTC) + timedelta(milliseconds=1)
    assert (first.position, second.position) == (1, 2)


def test_a_fact_that_was_retracted_can_be_stated_again(store):
    added(store, "zoe knows max", "zoe lives_in seen_city")
    assert store.retract([KNOWS, KNOWS], who="bob") == Change(2, left=("max",), facts=1, repeated=1)
    assert added(store, "zoe knows max") == Change(3, arrived=("max",), facts=1)
    with store.reading() as state:
        told = [(one.fact, one.is_stated, one.position, one.who) for one in state.history("max")]
        assert told == [(KNOWS, True, 1, "ann"), (KNOWS, False, 2, "bob"), (KNOWS, True, 3, "ann")]
        assert state.count == Counts(2, 2, 0)


def test_one_of_several_facts_between_two_is_retracted(store):
    added(store, "zoe knows max", "zoe likes max", "max knows zoe")
    assert store.retract([KNOWS], who="ann") == Change(2, facts=1)
    with store.reading() as state:
        assert {one.fact for one in state.facts_of(["zoe"])} == {("zoe", "likes", "max"), ("max", "knows", "zoe")}


def test_facts_that_are_not_there_are_not_retracted(store):
    added(store, "zoe knows max")
    error = complaint(store.retract, [KNOWS, ("zoe", "likes", "max"), ("a", "b", "c")], who="ann")
    assert isinstance(error, NotThereError)
    assert str(error) == "the fact ('a', 'b', 'c') is not in the store (and 1 more); retract what was stated"
    with store.reading() as state:
        assert state.position == 1 and state.count.facts == 1


def test_those_known_by_a_removed_newcomer_alone_go_too(store):
    added(store, "zoe knows max", "zoe knows eve", "eve lives_in seen_city", "zoe lives_in seen_city", "zoe is zoe")
    assert store.remove(["zoe"], who="ann") == Change(2, left=("max", "zoe"), facts=4)
    with store.reading() as state:
        assert [one.name for one in state.newcomers()] == ["eve"]
        assert [one.fact for one in state.facts_of(["eve"])] == [("eve", "lives_in", "seen_city")]
    error = complaint(store.remove, ["eve", "max", "zoe"], who="ann")
    assert isinstance(error, NotThereError)
    assert str(error) == "the newcomer 'max' is not in the store (and 1 more); check the name"
    assert store.remove([], who="ann") == store.retract([], who="ann") == Change(2)


def test_seen_entities_are_no_newcomers(store):
    error = complaint(added, store, "zoe knows max", "seen1 knows seen2")
    assert isinstance(error, OptionError)
    assert "('seen1', 'knows', 'seen2') is about two entities that the model was trained on" in str(error)
    assert store.position() == 0
    assert added(store, "zoe knows seen1").arrived == ("zoe",)
    assert complaint(store.remove, ["seen1"], who="ann")


def test_whom_another_model_does_not_know_arrives_with_a_fact_that_is_stated(store):
    added(store, "zoe knows seen1")
    assert store.add([("zoe", "knows", "seen1")], is_seen=lambda _: False, who="ann") == Change(2, ("seen1",), (), 0, 1)
    with store.reading() as state:
        assert [entry.arrived for entry in state.log()] == [("zoe",), ("seen1",)]


def test_the_same_key_stands_for_the_same_change(store):
    first = added(store, "zoe knows max", key="k1")
    store.retract([KNOWS], who="ann", key="k2")
    assert added(store, "zoe knows max", key="k1") == first
    assert store.retract([KNOWS], who="ann", key="k2") == Change(2, left=("max", "zoe"), facts=1)
    assert added(store, "zoe knows max", who="bob", key="k1").position == 3
    assert store.position() == 3
    with store.reading() as state:
        assert [(entry.who, entry.key) for entry in state.log()] == [("ann", "k1"), ("ann", "k2"), ("bob", "k1")]


def test_a_key_remembers_that_nothing_changed(store):
    added(store, "zoe knows max")
    assert added(store, "zoe knows max", key="k") == Change(1, repeated=1)
    store.remove(["zoe"], who="ann")
    assert added(store, "zoe knows max", key="k") == Change(1, repeated=1)
    assert store.position() == 2


@pytest.mark.parametrize(
    "other",
    [
        lambda store: added(store, "zoe knows eve", key="k"),
        lambda store: added(store, "zoe knows max", key="k", source="a letter"),
        lambda store: store.retract([KNOWS], who="ann", key="k"),
        lambda store: store.record([an_answer()], model="m", made_from=0, who="ann", key="k"),
    ],
)
def test_a_key_for_another_request_is_an_error(store, other):
    added(store, "zoe knows max", key="k")
    error = complaint(other, store)
    assert isinstance(error, KeyReusedError)
    assert str(error) == "the key 'k' of 'ann' stands for another request; give this one a key of its own"
    assert store.position() == 1


def test_a_key_still_stands_for_its_change_when_the_model_has_learned_more(store):
    first = added(store, "zoe knows max", key="k")
    assert store.add([KNOWS], is_seen=lambda _: True, who="ann", key="k") == first


def test_a_request_that_failed_leaves_its_key_free(store):
    complaint(store.retract, [KNOWS], who="ann", key="k")
    assert added(store, "zoe knows max", key="k").position == 1


def test_answers_are_recorded_and_decided_on(store):
    added(store, "a knows seen1", "b knows seen1")
    given = [an_answer("a", 0.9), an_answer("b", 0.2, direction="heads", rank=3), an_answer("a", 0.4, answer="seen2")]
    assert store.record(given, model="m1", made_from=1, who="worker") == Recorded(2, (1, 2, 3))
    assert store.decide(2, "reject", who="ann", note="no").position == 3
    assert store.decide(2, "accept", who="bob").position == 4
    with store.reading() as state:
        first, second, third = state.answers()
        assert [one.given for one in (first, second, third)] == given
        assert (first.model, first.made_from, first.position, first.who, first.decision) == ("m1", 1, 2, "worker", None)
        assert second.decision is not None
        assert (second.decision.verdict, second.decision.note, second.decision.who) == ("accept", "", "bob")
        assert [(one.verdict, one.note) for one in state.decisions(2)] == [("reject", "no"), ("accept", "")]
        assert state.answer(3) == third and state.count.answers == 3
        assert state.log(after=1)[0].answers == (1, 2, 3)
        assert [entry.decision for entry in state.log(after=2)] == state.decisions(2)


def test_answers_are_paged_and_filtered(store):
    given = [an_answer(name, probability) for name in "abc" for probability in (0.1, 0.5, 0.9)]
    store.record(given, model="m", made_from=0, who="worker")
    store.decide(3, "accept", who="ann")
    store.decide(5, "unsure", who="ann")
    with store.reading() as state:

        def ids(**filters: object) -> list[int]:
            return [one.id for one in state.answers(**filters)]

        assert ids(limit=4) == [1, 2, 3, 4] and ids(after=7) == [8, 9]
        assert ids(entity="b") == [4, 5, 6] and ids(entity="nobody") == []
        assert ids(min_probability=0.5, after=2) == [3, 5, 6, 8, 9]
        assert ids(decision="accept") == [3] and ids(decision="unsure") == [5] and ids(decision="reject") == []
        assert ids(decision="open", entity="b") == [4, 6] and ids(decision="open", min_probability=0.9) == [6, 9]


def test_recording_nothing_is_no_change(store):
    assert store.record([], model="m", made_from=0, who="worker") == Recorded(0)
    assert store.position() == 0


def test_answers_that_are_not_there_cannot_be_decided_on(store):
    store.record([an_answer()], model="m", made_from=0, who="worker")
    problem = "the store has no answer 2; it has 1, from 1 on"
    assert str(complaint(store.decide, 2, "accept", who="ann")) == problem
    with store.reading() as state:
        assert str(complaint(state.answer, 2)) == str(complaint(state.decisions, 2)) == problem
    assert store.position() == 1


def test_answers_are_made_from_what_was_there(store):
    error = complaint(store.record, [an_answer()], model="m", made_from=1, who="worker")
    assert str(error) == "the log has no position 1 yet; its last one is 0"


def test_the_log_is_followed_page_by_page(store):
    for number in range(5):
        added(store, f"n{number} knows seen1", key=f"k{number}")
    with store.reading() as state:
        pages = [state.log(after, 2) for after in (0, 2, 4, 5)]
    assert [[entry.position for entry in page] for page in pages] == [[1, 2], [3, 4], [5], []]
    assert [entry.stated for page in pages for entry in page] == [((f"n{n}", "knows", "seen1"),) for n in range(5)]
    assert {entry.kind for page in pages for entry in page} == {"add"}


def test_a_component_leads_along_newcomers_only(store):
    added(store, "a knows b", "b knows c", "c knows seen1", "seen1 knows d", "d likes d")
    with store.reading() as state:
        found = state.component(["c", "seen1", "nobody"], is_seen)
        assert found.newcomers == ("a", "b", "c") and found.complete
        assert found.facts == (("a", "knows", "b"), ("b", "knows", "c"), ("c", "knows", "seen1"))
        assert state.component(["d"], is_seen).facts == (("d", "likes", "d"), ("seen1", "knows", "d"))
        assert state.component([], is_seen) == state.component(["seen1"], is_seen) == ((), (), True)


def test_a_component_that_is_too_large_is_cut_where_it_is_furthest(store):
    added(store, "a r b", "b r c", "c r d", "d r e")
    with store.reading() as state:
        assert state.component(["c"], is_seen, 5).complete
        cut = state.component(["c"], is_seen, 3)
        assert cut.newcomers == ("b", "c", "d") and not cut.complete
        assert cut.facts == (("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d"), ("d", "r", "e"))
        assert state.component(["c", "a"], is_seen, 1).newcomers == ("a",)
    added(store, "x r y", "x r z")
    with store.reading() as state:
        assert state.component(["x"], is_seen, 2) == (("x", "y"), (("x", "r", "y"), ("x", "r", "z")), False)


def test_newcomers_near_a_seen_entity(store):
    added(store, "b knows seen1", "seen1 knows a", "a knows seen1", "c knows seen2", "d knows a", "a likes a")
    with store.reading() as state:
        assert state.near("seen1") == ["b", "a"] and state.near("seen1", 1) == ["b"]
        assert state.near("a") == ["d"] and state.near("nobody") == []


def test_newcomers_come_in_pages_by_name(store):
    names = ["a", "B", "ab", "ab ", "ä", "abc", "日本", "😀", "\ud7ff", "\ue000", "a%", "a_", "\U0010ffff", FOREVER]
    names += [FOREVER[:-1] + end for end in "ayz"] + ["x" * 700, "x" * 600, "x" * 599 + "y"]
    store.add([(name, "is", "seen1") for name in names], is_seen=is_seen, who="ann")
    with store.reading() as state:
        assert [one.name for one in state.newcomers()] == sorted(names)
        assert [one.name for one in state.newcomers(prefix="ab")] == ["ab", "ab ", "abc"]
        for prefix in ["a", "x", "x" * 600, "x" * 650, FOREVER, "\ud7ff", "\U0010ffff", "z", "a%"]:
            wanted = sorted(name for name in names if name.startswith(prefix))
            assert [one.name for one in state.newcomers(prefix=prefix)] == wanted
            assert paged(state, prefix) == wanted
        assert [one.name for one in state.newcomers(after="ac", limit=2)] == [n for n in sorted(names) if n > "ac"][:2]


def paged(state, prefix):
    found, after = [], ""
    while page := state.newcomers(after, 2, prefix):
        found += [one.name for one in page]
        after = found[-1]
    return found


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE facts; --", "a\nb\t", " padded ", "e\u0301", "é", "😀" * 2_500, "%s", ":x"]
)
def test_any_text_is_a_name(place, name):
    with open_store(place) as store:
        store.add([(name, name, "seen1")], is_seen=is_seen, who=name[:200], source=name, key=name[:200])
        store.record([an_answer(name, reason=name)], model=name[:200], made_from=1, who="w")
        store.decide(1, "unsure", who="w", note=name)
    with open_store(place) as store, store.reading() as state:
        assert [one.name for one in state.newcomers()] == [name]
        assert [one.fact for one in state.history(name)] == [(name, name, "seen1")]
        assert state.answer(1).given.reason == name and state.decisions(1)[0].note == name
        assert state.log()[0].key == name[:200]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a\0b", r"the name 'a\x00b' has a NUL character, which cannot be stored; leave it out"),
        ("a\ud800", r"the name 'a\ud800' has half of a surrogate pair"),
        (" ", "the name ' ' is empty; give words"),
        (FOREVER + "x", "has 10,001 characters; at most 10,000 can be stored"),
        (7, "the name 7 is no text; give one"),
    ],
)
def test_what_no_database_holds_is_refused_before_anything_is_written(store, name, problem):
    error = complaint(store.add, [("zoe", "knows", "max"), ("zoe", "knows", name)], is_seen=is_seen, who="ann")
    assert isinstance(error, OptionError) and problem in str(error)
    assert problem in str(complaint(store.remove, [name], who="ann"))
    assert store.position() == 0


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda s: s.add("zoe", is_seen=is_seen, who="a"), "facts are 'zoe', but must be a list"),
        (
            lambda s: s.add([("a", "b")], is_seen=is_seen, who="a"),
            "('a', 'b') is not a fact; give (head, relation, tail)",
        ),
        (lambda s: s.add(["abc"], is_seen=is_seen, who="a"), "'abc' is not a fact"),
        (lambda s: s.add([ZOE], is_seen=is_seen, who=""), "the name of who asks '' is empty"),
        (lambda s: s.add([ZOE], is_seen=is_seen, who="a", key=""), "the key '' is empty"),
        (lambda s: s.add([ZOE], is_seen=is_seen, who="a", key="k" * 201), "has 201 characters; at most 200"),
        (lambda s: s.add([ZOE], is_seen=is_seen, who="a", source="\0"), "the source '\\x00' has a NUL"),
        (lambda s: s.remove("zoe", who="a"), "names are 'zoe', but must be a list of names"),
        (lambda s: s.decide(1, "acept", who="a"), "unknown decision 'acept'; did you mean 'accept'?"),
        (lambda s: s.decide("1", "accept", who="a"), "the id of an answer is '1', but must be an integer from 1"),
        (lambda s: s.decide(2**70, "accept", who="a"), "must be an integer from 1"),
        (
            lambda s: recorded(s, probability=1.5),
            "the probability of an answer is 1.5, but must be a number from 0 to 1",
        ),
        (lambda s: recorded(s, probability=float("nan")), "the probability of an answer is nan"),
        (lambda s: recorded(s, rank=0), "the rank of an answer is 0, but must be an integer from 1"),
        (lambda s: recorded(s, direction="tail"), "unknown direction 'tail'; did you mean 'tails'?"),
        (
            lambda s: s.record([("a", "b")], model="m", made_from=0, who="a"),
            "is no answer; give a GivenAnswer",
        ),
        (lambda s: recorded(s, reason="\0"), "the reason '\\x00' has a NUL"),
        (lambda s: s.record([], model="", made_from=0, who="a"), "the model '' is empty"),
        (lambda s: s.record([], model="m", made_from=-1, who="a"), "made from is -1, but must be an integer from 0"),
    ],
)
def test_values_that_cannot_be_are_refused(store, call, problem):
    assert problem in str(complaint(call, store))
    assert store.position() == 0


def recorded(store, **parts):
    store.record([an_answer(**parts)], model="m", made_from=0, who="a")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda state: state.newcomers(limit=0), "the limit is 0, but must be an integer from 1"),
        (lambda state: state.newcomers(after="\0"), "has a NUL character"),
        (lambda state: state.newcomers(prefix="\udc00"), "has half of a surrogate pair"),
        (lambda state: state.log(after=-1), "a position is -1, but must be an integer from 0"),
        (lambda state: state.component(["a"], is_seen, 0), "most is 0, but must be an integer from 1"),
        (lambda state: state.answers(decision="yes"), "unknown decision 'yes'"),
        (
            lambda state: state.answers(min_probability=2),
            "the least probability is 2, but must be a number from 0 to 1",
        ),
        (lambda state: state.facts_of("zoe"), "names are 'zoe', but must be a list of names"),
    ],
)
def test_questions_that_cannot_be_are_refused(store, call, problem):
    with store.reading() as state:
        assert problem in str(complaint(call, state))


def test_many_facts_at_once(store):
    facts = [(f"n{i}", "knows", f"n{i // 2}") for i in range(3_000)]
    change = store.add(facts, is_seen=is_seen, who="ann")
    assert change == Change(1, tuple(sorted(f"n{i}" for i in range(3_000))), (), 3_000, 0)
    with store.reading() as state:
        assert state.component(["n7"], is_seen) == (change.arrived, tuple(sorted(facts)), True)
        assert state.log()[0].stated == tuple(facts)
    assert store.add(facts, is_seen=is_seen, who="ann") == Change(1, repeated=3_000)
    assert store.retract(facts[1:], who="ann") == Change(2, left=tuple(sorted(change.arrived)[1:]), facts=2_999)
    with store.reading() as state:
        assert state.count == Counts(1, 1, 0)


def test_what_one_reads_does_not_move_while_others_write(place):
    with open_store(place) as store, open_store(place) as other:
        added(store, "a knows b", "b knows seen1")
        store.record([an_answer()], model="m", made_from=1, who="w")
        with store.reading() as state:
            before = everything(state)
            other.decide(1, "accept", who="ann")
            other.remove(["a"], who="ann")
            added(other, "b knows c", "seen1 knows z")
            assert everything(state) == before
            with other.reading() as later:
                assert later.position == 5 and everything(later) != before
        assert store.position() == 5


def everything(state):
    return (
        state.position,
        state.count,
        state.log(),
        state.newcomers(),
        state.facts_of(["a", "b", "c"]),
        state.history("b"),
        state.component(["b"], is_seen),
        state.near("seen1"),
        state.answers(),
        state.decisions(1),
    )


def test_threads_share_a_store(store):
    def work(number: int) -> list[int]:
        positions = [added(store, f"t{number}-{count} knows seen1").position for count in range(10)]
        with store.reading() as state:
            assert state.count.facts == state.position >= positions[-1]
        return positions

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert sorted(position for positions in found for position in positions) == list(range(1, 81))


def test_a_failed_block_leaves_the_connection_free(store):
    added(store, "a knows b")
    for _ in range(30):  # more than there are connections
        with pytest.raises(ZeroDivisionError), store.reading() as state:
            assert state.position == 1
            raise ZeroDivisionError
    assert added(store, "b knows c").position == 2


def test_a_change_that_breaks_off_changes_nothing(store, monkeypatch):
    from newcomer.store.writing import Writing

    added(store, "a knows b")
    for step in ("_attend", "_remember", "close", "_insert"):
        with monkeypatch.context() as broken:
            broken.setattr(Writing, step, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                added(store, "b knows c", key="k")
    with store.reading() as state:
        assert state.count == Counts(2, 1, 0) and state.position == 1 and state.history("c") == []
    assert added(store, "b knows c", key="k") == Change(2, ("c",), (), 1, 0)
