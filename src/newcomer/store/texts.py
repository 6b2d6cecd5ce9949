"""Texts and numbers that a store takes: each is checked before anything is written.

PostgreSQL keeps no NUL character, and UTF-8 has no half of a surrogate pair. What one database refuses is refused for
both.
"""

import math
from collections.abc import Iterable, Sequence

from newcomer.errors import OptionError, check_name, shown
from newcomer.store.records import Fact, GivenAnswer

NAME_LENGTH = 10_000
WHO_LENGTH = 200  # also of keys and models: they are indexed as they are
NOTE_LENGTH = 100_000
DIRECTIONS = ("tails", "heads")
VERDICTS = ("accept", "reject", "unsure")


def text(what: str, value: object, limit: int) -> str:
    """A text that both databases can hold."""
    if not isinstance(value, str):
        raise OptionError(f"{what} {shown(value)} is no text; give one")
    if len(value) > limit:
        raise OptionError(f"{what} {shown(value)} has {len(value):,} characters; at most {limit:,} can be stored")
    if "\0" in value:
        raise OptionError(f"{what} {shown(value)} has a NUL character, which cannot be stored; leave it out")
    try:
        value.encode()
    except UnicodeEncodeError:
        problem = "has half of a surrogate pair, which is no character; read it with the right encoding"
        raise OptionError(f"{what} {shown(value)} {problem}") from None
    return value


def words(what: str, value: object, limit: int = WHO_LENGTH) -> str:
    """A text that says something."""
    if not text(what, value, limit).strip():
        raise OptionError(f"{what} {shown(value)} is empty; give words")
    return str(value)


def name(value: object) -> str:
    """The name of an entity or of a relation."""
    return words("the name", value, NAME_LENGTH)


def names(values: Iterable[str]) -> list[str]:
    """Names, each once, in their order."""
    if isinstance(values, str):
        raise OptionError(f"names are {shown(values)}, but must be a list of names")
    return list(dict.fromkeys(map(name, values)))


def facts(rows: Iterable[Sequence[str]]) -> list[Fact]:
    """Facts of three names each."""
    if isinstance(rows, str):
        raise OptionError(f"facts are {shown(rows)}, but must be a list of (head, relation, tail)")
    checked: set[object] = set()  # a name turns up in many facts
    return [_fact(row, checked) for row in rows]


def _fact(row: Sequence[str], checked: set[object]) -> Fact:
    if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != 3:
        raise OptionError(f"{shown(row)} is not a fact; give (head, relation, tail)")
    for one in row:
        if not isinstance(one, str) or one not in checked:
            checked.add(name(one))
    return row[0], row[1], row[2]


def ends(stated: Iterable[Fact]) -> set[str]:
    """Everyone whom facts are about."""
    return {end for head, _, tail in stated for end in (head, tail)}


def number(what: str, value: object, least: int) -> int:
    """An integer from ``least`` on."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise OptionError(f"{what} is {shown(value)}, but must be an integer from {least}")
    return value


def given(answers: Iterable[GivenAnswer]) -> list[GivenAnswer]:
    """Answers whose parts can be stored."""
    return [_given(answer) for answer in answers]


def _given(answer: GivenAnswer) -> GivenAnswer:
    if not isinstance(answer, GivenAnswer):
        raise OptionError(f"{shown(answer)} is no answer; give a GivenAnswer")
    check_name("direction", answer.direction, DIRECTIONS)
    return GivenAnswer(
        entity=name(answer.entity),
        relation=name(answer.relation),
        direction=answer.direction,
        answer=name(answer.answer),
        rank=number("the rank of an answer", answer.rank, 1),
        probability=share("the probability of an answer", answer.probability),
        if_any=share("the probability of an answer if there is one", answer.if_any),
        reason=text("the reason", answer.reason, NOTE_LENGTH),
    )


def share(what: str, value: object) -> float:
    """A probability."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1 or math.isnan(value):
        raise OptionError(f"{what} is {shown(value)}, but must be a number from 0 to 1")
    return float(value)
