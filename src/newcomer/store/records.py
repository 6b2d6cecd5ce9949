"""What a store takes and returns: plain named tuples of names, numbers and moments (UTC)."""

from datetime import datetime
from typing import Literal, NamedTuple

Fact = tuple[str, str, str]  # head, relation, tail
Direction = Literal["tails", "heads"]  # what was asked for
Verdict = Literal["accept", "reject", "unsure"]


class Change(NamedTuple):
    """What adding, retracting or removing did: newcomers that came and that went, by name, and numbers of facts.

    ``position`` is that of the log entry; where nothing changed, the last one there was. ``facts`` were stated or
    retracted, ``repeated`` were given twice or stated already.
    """

    position: int
    arrived: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    facts: int = 0
    repeated: int = 0


class GivenAnswer(NamedTuple):
    """An answer of a model: to which question, as the how-manieth, how probable, and why."""

    entity: str
    relation: str
    direction: Direction
    answer: str
    rank: int
    probability: float
    if_any: float
    reason: str = ""


class Recorded(NamedTuple):
    """The log position of answers that were recorded, and their ids in the order in which they were given."""

    position: int
    ids: tuple[int, ...] = ()


class Decision(NamedTuple):
    """What someone decided on an answer."""

    position: int
    answer: int
    verdict: Verdict
    note: str
    at: datetime
    who: str


class StoredAnswer(NamedTuple):
    """A recorded answer; ``made_from`` is the log position of the facts that the model saw.

    ``decision`` is the latest one, or None.
    """

    id: int
    given: GivenAnswer
    model: str
    made_from: int
    position: int
    at: datetime
    who: str
    decision: Decision | None


class Newcomer(NamedTuple):
    """A newcomer that is there, and the change that it came with."""

    name: str
    position: int
    at: datetime


class Statement(NamedTuple):
    """A fact that was stated, or retracted (``is_stated`` is false): in which change, when, by whom, from where."""

    fact: Fact
    is_stated: bool
    position: int
    at: datetime
    who: str
    source: str


class Entry(NamedTuple):
    """A log entry and what changed with it. Facts are in the order in which they were given."""

    position: int
    at: datetime
    who: str
    kind: str
    key: str | None
    source: str
    stated: tuple[Fact, ...] = ()
    retracted: tuple[Fact, ...] = ()
    arrived: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    answers: tuple[int, ...] = ()
    decision: Decision | None = None


class Component(NamedTuple):
    """Newcomers that facts between newcomers connect, by name, and all their facts.

    Where there are more than were asked for, it is not ``complete``: those furthest away are left out, and facts may
    lead to them.
    """

    newcomers: tuple[str, ...]
    facts: tuple[Fact, ...]
    complete: bool


class Counts(NamedTuple):
    """How many newcomers and facts are there, and how many answers were ever recorded."""

    newcomers: int
    facts: int
    answers: int
