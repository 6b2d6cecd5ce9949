"""What goes back into a graph: the facts that are stated of newcomers, and the answers that somebody accepted.

Both come in the order of the log, so that the same state gives the same bytes, and what follows a position is what
comes after what was taken before.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from newcomer.store import Entry, Fact, GivenAnswer, StoredAnswer
    from newcomer.store.reading import Reading

PAGE = 200  # entries of the log, or answers, that are read at once
FACTS, ANSWERS, BOTH = "facts", "answers", "both"
WHAT = (FACTS, ANSWERS, BOTH)
COLUMNS = {
    **{"head": str, "relation": str, "tail": str, "kind": str, "position": int, "at": str, "who": str, "origin": str},
    **{"answer": int, "model": str, "probability": float, "if_any": float, "reason": str, "note": str},
}


class Stated(NamedTuple):
    """The facts of a change that are stated still, in the order in which they were given."""

    change: "Entry"
    facts: "tuple[Fact, ...]"


def stated_by(given: "GivenAnswer") -> "Fact":
    """The fact that an answer states."""
    ends = (given.answer, given.entity) if given.direction == "heads" else (given.entity, given.answer)
    return ends[0], given.relation, ends[1]


def entries(state: "Reading", after: int = 0, last: int | None = None) -> "Iterator[Entry]":
    """The log after a position, up to the last one that the state has or that is named."""
    end = state.position if last is None else last
    while after < end:
        page = state.log(after, min(PAGE, end - after))
        yield from page
        after = page[-1].position


def current_facts(state: "Reading", since: int = 0) -> Iterator[Stated]:
    """Changes after a position with those of their facts that nobody has retracted since.

    A fact can be stated anew only when it was retracted; so one look for retractions is enough, and only these are
    held in memory.
    """
    retracted: dict[Fact, int] = {}
    for entry in entries(state, since):
        retracted.update(dict.fromkeys(entry.retracted, entry.position))
    for entry in entries(state, since):
        facts = tuple(fact for fact in entry.stated if retracted.get(fact, 0) < entry.position)
        if facts:
            yield Stated(entry, facts)


def accepted_answers(state: "Reading", since: int = 0) -> "Iterator[StoredAnswer]":
    """Answers whose latest decision accepts them, by id, where it was made after a position."""
    after = 0
    while page := state.answers(decision="accept", after=after, limit=PAGE):
        after = page[-1].id
        yield from (one for one in page if one.decision is not None and one.decision.position > since)


def rows(state: "Reading", what: str = BOTH, since: int = 0) -> Iterator[dict[str, Any]]:
    """The same as flat rows, in `COLUMNS`."""
    if what in (FACTS, BOTH):
        for stated in current_facts(state, since):
            change = stated.change
            told = {"kind": "stated", "position": change.position, "at": change.at.isoformat(), "who": change.who}
            for fact in stated.facts:
                yield _row(fact) | told | {"origin": change.source}
    if what in (ANSWERS, BOTH):
        for one in accepted_answers(state, since):
            yield _row(stated_by(one.given)) | _accepted(one)


def _row(fact: "Fact") -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | dict(zip(COLUMNS, fact, strict=False))


def _accepted(one: "StoredAnswer") -> dict[str, Any]:
    """Who accepted an answer and when, and what the model said."""
    given, decision = one.given, one.decision
    figures = {"probability": given.probability, "if_any": given.if_any, "reason": given.reason}
    if decision is None:
        return {}
    told = {"position": decision.position, "at": decision.at.isoformat(), "who": decision.who, "note": decision.note}
    return {"kind": "accepted", "answer": one.id, "model": one.model} | figures | told
