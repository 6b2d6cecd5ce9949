"""Changes of a store: each is one transaction, under one lock, with one position in the log.

The lock is the row `newcomer_store` (PostgreSQL) or the whole file (SQLite). It is held until the transaction ends, so
positions have no gaps and grow in the order of commits.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Table, and_, bindparam, column, delete, insert, select, update, values

from newcomer.errors import OptionError, shown
from newcomer.store import schema
from newcomer.store.faults import KeyReusedError, NotThereError
from newcomer.store.naming import batches, digest, ids_of, names_of, parts_of
from newcomer.store.records import Change, Fact, GivenAnswer, Recorded

Row = tuple[int, int, int]  # head, tail, relation: in the order of the table's key
FACTS = schema.facts.c
PARTS = ("head", "tail", "relation")


class Request(NamedTuple):
    """What is asked for, by whom; ``content`` is what makes it the same request as another one with its key."""

    kind: str
    who: str
    key: str | None
    content: Sequence[Any]
    source: str = ""

    @property
    def digest(self) -> bytes:
        """Of all that was asked for."""
        return sha256(json.dumps([self.kind, self.source, self.content]).encode()).digest()


class Writing:
    """A change as it is made, by the one transaction that holds the lock."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self.connection, self.request = connection, request
        self.books = schema.read_books(connection, hold=True)
        self.at = round(datetime.now(UTC).timestamp() * 1_000_000)  # microseconds since 1970
        self.named = self.books["names"]  # ids up to this one were there before: no fact is about those that come

    @property
    def last(self) -> int:
        """The position of the last change that was made."""
        return self.books["position"]

    @property
    def position(self) -> int:
        """The position that this change gets."""
        return self.last + 1

    def first_outcome(self) -> list[Any] | None:
        """What the request came to where its key was used before; None where it was not."""
        if self.request.key is None:
            return None
        table = schema.requests
        query = select(table.c.digest, table.c.outcome)
        found = self.connection.execute(
            query.where(table.c.who == self.request.who, table.c.key == self.request.key)
        ).one_or_none()
        if found is None:
            return None
        if found.digest != self.request.digest:
            problem = f"the key {shown(self.request.key)} of {shown(self.request.who)} stands for another request"
            raise KeyReusedError(f"{problem}; give this one a key of its own")
        outcome: list[Any] = json.loads(found.outcome)
        return outcome

    def close(self, outcome: Change | Recorded) -> None:
        """Write the log entry, if anything changed, the counters, and what the key stands for."""
        request = self.request
        if outcome.position == self.position:
            entry = {"position": self.position, "at": self.at, "who": request.who, "kind": request.kind}
            self._insert(schema.changes, [entry | {"key": request.key, "source": request.source}])
            self.books["position"] = self.position
            self.connection.execute(update(schema.books).values(self.books))
        if request.key is not None:
            row = {"who": request.who, "key": request.key, "digest": request.digest, "outcome": json.dumps(outcome)}
            self._insert(schema.requests, [row])

    def add(self, facts: Sequence[Fact], newcomers: Collection[str]) -> Change:
        """State facts; ``newcomers`` are the ends that the model was not trained on."""
        for fact in facts:
            if fact[0] not in newcomers and fact[2] not in newcomers:
                problem = "is about two entities that the model was trained on"
                raise OptionError(f"the fact {shown(fact, 200)} {problem}; give facts of newcomers")
        ids = self._ids(name for fact in facts for name in fact)
        rows = dict.fromkeys((ids[head], ids[tail], ids[relation]) for head, relation, tail in facts)
        known = self._known(rows)
        fresh = [row for row in rows if row not in known]
        here = self._here([ids[name] for name in newcomers])
        arrived = sorted(name for name in newcomers if ids[name] not in here)
        if not fresh and not arrived:
            return Change(self.last, repeated=len(facts))
        columns = ("head", "tail", "relation", "position")
        self._insert(schema.facts, [dict(zip(columns, (*row, self.position), strict=True)) for row in fresh])
        self._insert(schema.newcomers, [self._newcomer(name) | {"id": ids[name]} for name in arrived])
        self._remember(fresh, True)
        self._attend([ids[name] for name in arrived], True)
        return Change(self.position, arrived=tuple(arrived), facts=len(fresh), repeated=len(facts) - len(fresh))

    def retract(self, facts: Sequence[Fact]) -> Change:
        """Retract facts that are there; newcomers that are left without any go."""
        ids = ids_of(self.connection, {name for fact in facts for name in fact})
        rows = {(ids.get(fact[0], 0), ids.get(fact[2], 0), ids.get(fact[1], 0)): fact for fact in facts}
        missing = rows.keys() - self._known(rows)
        if missing:
            named = sorted(rows[row] for row in missing)
            raise _not_there(f"fact {shown(named[0], 200)}", len(named), "retract what was stated")
        if not rows:
            return Change(self.last)
        left = self._forget(list(rows))
        return Change(self.position, left=left, facts=len(rows), repeated=len(facts) - len(rows))

    def remove(self, newcomers: Sequence[str]) -> Change:
        """Retract all facts of newcomers; others that are left without any go, too."""
        ids = ids_of(self.connection, newcomers)
        here = self._here(ids.values())
        missing = [name for name in newcomers if ids.get(name) not in here]
        if missing:
            raise _not_there(f"newcomer {shown(missing[0])}", len(missing), "check the name")
        rows = sorted(facts_about(self.connection, here))
        if not rows:
            return Change(self.last)
        return Change(self.position, left=self._forget(rows), facts=len(rows))

    def record(self, answers: Sequence[GivenAnswer], model: str, made_from: int) -> Recorded:
        """Write answers down."""
        if made_from > self.last:
            raise NotThereError(f"the log has no position {made_from:,} yet; its last one is {self.last:,}")
        if not answers:
            return Recorded(self.last)
        ids = self._ids(name for one in answers for name in (one.entity, one.relation, one.answer))
        first, rows = self.books["answers"] + 1, []
        for number, one in enumerate(answers, first):
            named = {part: ids[getattr(one, part)] for part in ("entity", "relation", "answer")}
            place = {"id": number, "position": self.position, "model": model, "made_from": made_from}
            rows.append(one._asdict() | named | place)
        self._insert(schema.answers, rows)
        self.books["answers"] += len(rows)
        return Recorded(self.position, tuple(range(first, first + len(rows))))

    def decide(self, answer: int, verdict: str, note: str) -> Change:
        """Write a decision down; it is the answer's latest one."""
        latest = {"verdict": verdict, "decided": self.position}
        found = self.connection.execute(update(schema.answers).where(schema.answers.c.id == answer).values(latest))
        if found.rowcount == 0:
            raise NotThereError(f"the store has no answer {answer:,}; it has {self.books['answers']:,}, from 1 on")
        row = {"position": self.position, "answer": answer, "verdict": verdict, "note": note}
        self._insert(schema.decisions, [row])
        return Change(self.position)

    def _ids(self, names: Iterable[str]) -> dict[str, int]:
        """The ids of names; those that have none get one."""
        distinct = dict.fromkeys(names)
        ids = ids_of(self.connection, distinct)
        fresh = [name for name in distinct if name not in ids]
        ids.update(zip(fresh, count(self.books["names"] + 1), strict=False))
        self.books["names"] += len(fresh)
        self._insert(schema.names, [{"id": ids[name], "name": name, "digest": digest(name)} for name in fresh])
        return ids

    def _newcomer(self, name: str) -> dict[str, Any]:
        start, rest = parts_of(name)
        return {"start": start, "rest": rest, "position": self.position, "at": self.at}

    def _known(self, rows: Iterable[Row]) -> set[Row]:
        """Those of the facts that are stated."""
        found: set[Row] = set()
        for batch in batches(row for row in rows if max(row) <= self.named):
            wanted = values(*(column(part, BigInteger) for part in PARTS)).data(list(batch)).cte("wanted")
            query = select(wanted).join(schema.facts, and_(*(FACTS[part] == wanted.c[part] for part in PARTS)))
            found.update((head, tail, relation) for head, tail, relation in self.connection.execute(query))
        return found

    def _here(self, ids: Iterable[int]) -> set[int]:
        """Those of the ids that are newcomers of the store."""
        found: set[int] = set()
        for batch in batches(one for one in ids if one <= self.named):
            query = select(schema.newcomers.c.id).where(schema.newcomers.c.id.in_(batch))
            found.update(self.connection.execute(query).scalars())
        return found

    def _forget(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Delete facts from the current view; who is left without any leaves, and is named."""
        if rows:
            each = delete(schema.facts).where(*(FACTS[part] == bindparam(f"the_{part}") for part in PARTS))
            named = [{f"the_{part}": one for part, one in zip(PARTS, row, strict=True)} for row in rows]
            self.connection.execute(each, named)
        self._remember(rows, False)
        left = self._without_facts({end for head, tail, _ in rows for end in (head, tail)})
        for leaving in batches(left):
            self.connection.execute(delete(schema.newcomers).where(schema.newcomers.c.id.in_(leaving)))
        self._attend(left, False)
        return tuple(sorted(names_of(self.connection, left).values()))

    def _without_facts(self, ids: Iterable[int]) -> list[int]:
        """The newcomers among the ids that no fact is about."""
        found: list[int] = []
        newcomer = schema.newcomers.c.id
        as_head, as_tail = (select(end).where(end == newcomer).exists() for end in (FACTS.head, FACTS.tail))
        for batch in batches(sorted(ids)):
            query = select(newcomer).where(newcomer.in_(batch), ~as_head, ~as_tail)
            found += self.connection.execute(query).scalars()
        return found

    def _remember(self, rows: Sequence[Row], stated: bool) -> None:
        """Facts that come or go, in the history."""
        self.books["facts"] += len(rows) if stated else -len(rows)
        columns = ("position", "stated", "place", "head", "tail", "relation")
        values = ((self.position, int(stated), place, *row) for place, row in enumerate(rows))
        self._insert(schema.statements, [dict(zip(columns, row, strict=True)) for row in values])

    def _attend(self, ids: Sequence[int], present: bool) -> None:
        """Newcomers that come or go, in the history."""
        self.books["newcomers"] += len(ids) if present else -len(ids)
        entry = {"position": self.position, "present": int(present)}
        self._insert(schema.presences, [entry | {"newcomer": newcomer} for newcomer in ids])

    def _insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self.connection.execute(insert(table), rows)


def _not_there(first: str, many: int, hint: str) -> NotThereError:
    others = f" (and {many - 1:,} more)" if many > 1 else ""
    return NotThereError(f"the {first} is not in the store{others}; {hint}")


def facts_about(connection: Connection, ids: Iterable[int]) -> dict[Row, int]:
    """The facts that entities are heads or tails of, and the change that each was stated with."""
    found: dict[Row, int] = {}
    for batch in batches(ids):
        for end in (FACTS.head, FACTS.tail):
            query = select(schema.facts).where(end.in_(batch))
            found.update((row[:3], row[3]) for row in map(tuple, connection.execute(query)))
    return found
