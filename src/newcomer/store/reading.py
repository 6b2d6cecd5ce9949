"""One state of a store, as it was at one position of the log: whatever is read of it belongs together."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from sqlalchemy import Connection, select, tuple_

from newcomer.errors import check_name
from newcomer.store import logbook, schema, texts
from newcomer.store.faults import NotThereError
from newcomer.store.naming import batches, ids_of, names_of, parts_of
from newcomer.store.records import (
    Component,
    Counts,
    Decision,
    Entry,
    Fact,
    Newcomer,
    Statement,
    StoredAnswer,
)
from newcomer.store.writing import facts_about

LIMIT = 100  # what a page has unless more is asked for
MOST = 1_000_000  # what a page may have
OPEN = "open"  # answers that nobody has decided on
LAST_CHARACTER = 0x10FFFF


class Reading:
    """What a store held at ``position``; it reads that state even while others write."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        books = schema.read_books(connection)
        self.position = books["position"]
        self.count = Counts(books["newcomers"], books["facts"], books["answers"])
        self._names: dict[int, str] = {}

    def log(self, after: int = 0, limit: int = LIMIT) -> list[Entry]:
        """The entries that follow a position, with their changes; for whoever follows the log."""
        return logbook.entries(self._connection, texts.number("a position", after, 0), _limit(limit))

    def newcomers(self, after: str = "", limit: int = LIMIT, prefix: str = "") -> list[Newcomer]:
        """A page of those whose name begins with ``prefix`` and follows ``after``, by name (code points)."""
        after, prefix = (texts.text("the name", one, texts.NAME_LENGTH) for one in (after, prefix))
        table, least, end = schema.newcomers.c, max(after, prefix), _following(prefix)
        name = tuple_(table.start, table.rest)
        query = select(table.start, table.rest, table.position, table.at)
        query = query.where(table.start >= parts_of(least)[0], name > parts_of(after), name >= parts_of(prefix))
        if end:
            query = query.where(table.start <= parts_of(end)[0], name < parts_of(end))
        found = self._connection.execute(query.order_by(table.start, table.rest).limit(_limit(limit)))
        return [Newcomer(start + rest, position, logbook.moment(at)) for start, rest, position, at in found]

    def facts_of(self, names: Iterable[str]) -> list[Statement]:
        """The current facts of entities, each once, in the order of the log."""
        found = facts_about(self._connection, ids_of(self._connection, texts.names(names)).values())
        changes: dict[int, Any] = {}
        for batch in batches(set(found.values())):
            query = select(schema.changes).where(schema.changes.c.position.in_(batch))
            changes.update((row.position, row) for row in self._connection.execute(query))
        facts = [(position, fact) for fact, position in self._named(found).items()]
        return [_statement(fact, True, changes[position]) for position, fact in sorted(facts)]

    def history(self, name: str) -> list[Statement]:
        """Everything that was stated about an entity, and retracted, in the order of the log."""
        ids = list(ids_of(self._connection, [texts.name(name)]).values())
        table, changes = schema.statements, schema.changes.c
        found: dict[tuple[int, int], Any] = {}
        for end in (table.c.head, table.c.tail):
            query = select(table, changes.at, changes.who, changes.source).where(end.in_(ids))
            rows = self._connection.execute(query.join(schema.changes, changes.position == table.c.position))
            found.update(((row.position, row.place), row) for row in rows)
        names = self._words(end for row in found.values() for end in (row.head, row.relation, row.tail))
        return [
            _statement((names[row.head], names[row.relation], names[row.tail]), bool(row.stated), row)
            for _, row in sorted(found.items())
        ]

    def component(self, names: Iterable[str], is_seen: Callable[[str], bool], most: int = 10_000) -> Component:
        """The newcomers that facts between newcomers connect to these, themselves included, and all their facts.

        Breadth first, so that where there are more than ``most``, the nearest are found. Entities that the model was
        trained on, and names that no fact is about, are left out.
        """
        most, complete = texts.number("most", most, 1), True
        level = {name: identifier for name, identifier in self._ids(names).items() if not is_seen(name)}
        checked, members, facts = set(level.values()), set[str](), dict[Fact, int]()
        while level:
            room = most - len(members)
            complete = complete and len(level) <= room
            level = dict(sorted(level.items())[:room])
            found = facts_about(self._connection, level.values())
            facts.update(self._named(found))
            ends = {end for row in found for end in row[:2]}
            members.update(name for name, identifier in level.items() if identifier in ends)
            fresh, checked = ends - checked, checked | ends
            level = {name: end for end, name in self._words(fresh).items() if not is_seen(name)}
        return Component(tuple(sorted(members)), tuple(sorted(facts)), complete)

    def near(self, entity: str, limit: int = LIMIT) -> list[str]:
        """Newcomers that have a fact with an entity; of many, those that were named first."""
        found: set[int] = set()
        for identifier in self._ids([entity]).values():
            for end, other in (("head", "tail"), ("tail", "head")):
                mine, others = schema.facts.c[end], schema.facts.c[other]
                query = select(others).distinct().join(schema.newcomers, schema.newcomers.c.id == others)
                query = query.where(mine == identifier, others != identifier).order_by(others).limit(_limit(limit))
                found.update(self._connection.execute(query).scalars())
        names = self._words(found)
        return [names[one] for one in sorted(found)[:limit]]

    def answers(
        self,
        entity: str | None = None,
        min_probability: float = 0.0,
        decision: Literal["accept", "reject", "unsure", "open"] | None = None,
        after: int = 0,
        limit: int = LIMIT,
    ) -> list[StoredAnswer]:
        """A page of the answers whose ids follow ``after``, by id; "open" are those that nobody has decided on."""
        table = schema.answers.c
        which = [table.id > texts.number("the id of an answer", after, 0)]
        which.append(table.probability >= texts.share("the least probability", min_probability))
        if decision is not None:
            check_name("decision", decision, (*texts.VERDICTS, OPEN))
            which.append(table.verdict.is_(None) if decision == OPEN else table.verdict == decision)
        if entity is not None:
            which.append(table.entity == self._ids([entity]).get(entity))
        return logbook.answers(self._connection, which, _limit(limit))

    def answer(self, identifier: int) -> StoredAnswer:
        """One answer."""
        number = texts.number("the id of an answer", identifier, 1)
        found = logbook.answers(self._connection, [schema.answers.c.id == number], 1)
        if not found:
            raise NotThereError(f"the store has no answer {number:,}; it has {self.count.answers:,}, from 1 on")
        return found[0]

    def decisions(self, answer: int) -> list[Decision]:
        """All decisions on an answer, in their order; the last one counts."""
        return logbook.decisions(self._connection, schema.decisions.c.answer == self.answer(answer).id)

    def _ids(self, names: Iterable[str]) -> dict[str, int]:
        return ids_of(self._connection, texts.names(names))

    def _words(self, ids: Iterable[int]) -> dict[int, str]:
        """The names of ids; each is read once."""
        wanted = set(ids)
        self._names.update(names_of(self._connection, wanted - self._names.keys()))
        return {one: self._names[one] for one in wanted}

    def _named(self, found: dict[tuple[int, int, int], int]) -> dict[Fact, int]:
        """Facts by name, with their positions."""
        names = self._words({one for row in found for one in row})
        return {(names[head], names[relation], names[tail]): at for (head, tail, relation), at in found.items()}


def _statement(fact: Fact, is_stated: bool, change: Any) -> Statement:
    return Statement(fact, is_stated, change.position, logbook.moment(change.at), change.who, change.source)


def _limit(limit: int) -> int:
    return min(texts.number("the limit", limit, 1), MOST)


def _following(prefix: str) -> str:
    """The first text after all that begin with a prefix; empty where there is none."""
    stem = prefix.rstrip(chr(LAST_CHARACTER))
    if not stem:
        return ""
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no characters
