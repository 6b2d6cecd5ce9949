"""Random requests, against a store of plain sets and lists: the same outcomes, and the same is read afterwards."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from newcomer.errors import NewcomerError
from newcomer.store import open_store
from newcomer.store.places import url_of
from store_oracle import Oracle, Told
from store_world import an_answer, is_seen

NEWCOMERS = ["a", "A", "é", "e\u0301", "x" * 3_000]
names = st.sampled_from(NEWCOMERS)
ends = names | st.sampled_from(["seen1"])
facts = st.tuples(ends, st.sampled_from(["knows", "a"]), ends).filter(lambda f: not (is_seen(f[0]) and is_seen(f[2])))
who = st.sampled_from(["ann", "bob"])
keys = st.none() | st.sampled_from(["k1", "k2", "k3"])
requests = st.one_of(
    st.tuples(st.just("add"), st.lists(facts, max_size=4), who, keys),
    st.tuples(st.just("add"), st.lists(facts, min_size=1, max_size=8), who, st.none()),
    st.tuples(st.just("retract"), st.lists(facts, max_size=1), who, keys),
    st.tuples(st.just("remove"), st.lists(names, max_size=2), who, keys),
    st.tuples(st.just("record"), st.lists(st.builds(an_answer, names), max_size=3), who, keys),
    st.tuples(st.just("decide"), st.integers(1, 4), st.sampled_from(["accept", "reject"]), who, keys),
)


def ask(store, request):
    """What a store does with a request, as the oracle says it."""
    kind, *arguments, name, key = request
    options = {"who": name, "key": key}
    if kind == "add":
        options["is_seen"] = is_seen
    if kind == "record":
        options |= {"model": "m", "made_from": 0}
    try:
        return tuple(getattr(store, kind)(*arguments, **options))
    except NewcomerError:
        return "refused"


@settings(max_examples=25)
@given(st.lists(requests, min_size=5, max_size=25))
def test_a_store_is_as_the_oracle_says(fresh_place: Callable[[], str], asked):
    place, oracle = fresh_place(), Oracle(is_seen)
    with open_store(place) as store:
        for request in asked:
            kind, *arguments = request
            assert ask(store, request) == getattr(oracle, kind)(*arguments), request
        with store.reading() as state:
            compare(state, oracle)
    the_history_gives_the_current_view(place)


def compare(state, oracle):
    assert state.position == len(oracle.log)
    assert state.count == (len(oracle.newcomers), len(oracle.facts), len(oracle.answers))
    assert [one.name for one in state.newcomers()] == sorted(oracle.newcomers)
    assert [told(entry) for entry in state.log()] == [in_order(entry) for entry in oracle.log]
    assert [entry.position for entry in state.log()] == list(range(1, len(oracle.log) + 1))
    for name in NEWCOMERS:
        stated = {one.fact: one.position for one in state.facts_of([name])}
        assert stated == {fact: oracle.facts[fact] for fact in oracle.facts_of({name})}
        events = [(f, True) for t in oracle.log for f in t.stated] + [
            (f, False) for t in oracle.log for f in t.retracted
        ]
        mine = sorted(event for event in events if name in (event[0][0], event[0][2]))
        assert sorted((one.fact, one.is_stated) for one in state.history(name)) == mine
        members = oracle.component(name)
        found = state.component([name], is_seen)
        assert set(found.newcomers) == members and found.complete
        assert set(found.facts) == set(oracle.facts_of(members))
        assert [one.given for one in state.answers(entity=name)] == [a for a in oracle.answers if a.entity == name]
    for entity in ("seen1", "a"):
        near = {end for fact in oracle.facts_of({entity}) for end in (fact[0], fact[2])} & oracle.newcomers - {entity}
        assert set(state.near(entity)) == near
    verdicts = {one.id: one.decision.verdict for one in state.answers() if one.decision}
    assert verdicts == oracle.verdicts
    accepted = sorted(answer for answer, verdict in oracle.verdicts.items() if verdict == "accept")
    assert [one.id for one in state.answers(decision="accept")] == accepted


def told(entry):
    verdict = entry.decision and (entry.decision.answer, entry.decision.verdict)
    return in_order(
        Told(
            entry.who,
            entry.kind,
            entry.key,
            entry.stated,
            entry.retracted,
            entry.arrived,
            entry.left,
            entry.answers,
            verdict,
        )
    )


def in_order(entry: Told) -> Told:
    """What is removed has no order of its own."""
    return entry._replace(retracted=tuple(sorted(entry.retracted)))


def the_history_gives_the_current_view(place: str) -> None:
    """The tables that never change hold all that the others do."""
    engine = create_engine(url_of(place))
    with engine.connect() as connection:
        view: dict[tuple[int, ...], int] = {}
        rows = connection.execute(
            text("SELECT head, tail, relation, position, stated FROM statements ORDER BY position")
        )
        for *fact, position, stated in rows:
            assert (tuple(fact) in view) != bool(stated)
            if stated:
                view[tuple(fact)] = position
            else:
                del view[tuple(fact)]
        found = connection.execute(text("SELECT head, tail, relation, position FROM facts"))
        assert view == {tuple(fact): position for *fact, position in found}
        present = connection.execute(text("SELECT newcomer, present FROM presences ORDER BY position"))
        here = {newcomer for newcomer, is_present in dict(map(tuple, present)).items() if is_present}
        assert here == set(connection.execute(text("SELECT id FROM newcomers")).scalars())
    engine.dispose()
