"""The log of a store, and the answers and decisions in it, as they are read."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, select

from newcomer.store import schema
from newcomer.store.naming import names_of
from newcomer.store.records import Decision, Entry, Fact, GivenAnswer, StoredAnswer

START = datetime(1970, 1, 1, tzinfo=UTC)
Span = tuple[int, int]  # positions: the first and the last
NAMED = ("entity", "relation", "answer")  # columns of answers that hold ids of names


def moment(microseconds: int) -> datetime:
    """A moment as the tables have it."""
    return START + timedelta(microseconds=microseconds)


def entries(connection: Connection, after: int, limit: int) -> list[Entry]:
    """The log entries that follow a position, each with what changed."""
    changes = schema.changes
    query = select(changes).where(changes.c.position > after).order_by(changes.c.position).limit(limit)
    found = connection.execute(query).mappings().all()
    if not found:
        return []
    span = found[0]["position"], found[-1]["position"]
    parts = _statements(connection, span), _presences(connection, span), _answers(connection, span)
    decided = decisions(connection, schema.decisions.c.position.between(*span))
    return [_entry(row, *parts, {one.position: one for one in decided}) for row in found]


def _entry(
    row: RowMapping,
    statements: Mapping[Span, Sequence[Fact]],
    presences: Mapping[Span, Sequence[str]],
    answers: Mapping[int, Sequence[int]],
    decided: Mapping[int, Decision],
) -> Entry:
    position = row["position"]
    return Entry(
        **{**row, "at": moment(row["at"])},
        stated=tuple(statements.get((position, 1), ())),
        retracted=tuple(statements.get((position, 0), ())),
        arrived=tuple(sorted(presences.get((position, 1), ()))),
        left=tuple(sorted(presences.get((position, 0), ()))),
        answers=tuple(answers.get(position, ())),
        decision=decided.get(position),
    )


def _statements(connection: Connection, span: Span) -> dict[Span, list[Fact]]:
    """Facts by position and by whether they were stated (1) or retracted (0)."""
    found = _between(connection, schema.statements, span, "place")
    names = names_of(connection, {row[end] for row in found for end in ("head", "relation", "tail")})
    sorted_out: dict[Span, list[Fact]] = {}
    for row in found:
        fact = names[row["head"]], names[row["relation"]], names[row["tail"]]
        sorted_out.setdefault((row["position"], row["stated"]), []).append(fact)
    return sorted_out


def _presences(connection: Connection, span: Span) -> dict[Span, list[str]]:
    """Newcomers by position and by whether they came (1) or went (0)."""
    found = _between(connection, schema.presences, span, "newcomer")
    names = names_of(connection, {row["newcomer"] for row in found})
    sorted_out: dict[Span, list[str]] = {}
    for row in found:
        sorted_out.setdefault((row["position"], row["present"]), []).append(names[row["newcomer"]])
    return sorted_out


def _answers(connection: Connection, span: Span) -> dict[int, list[int]]:
    """The ids of answers by position."""
    sorted_out: dict[int, list[int]] = {}
    query = select(schema.answers.c.position, schema.answers.c.id).where(schema.answers.c.position.between(*span))
    for position, identifier in connection.execute(query.order_by(schema.answers.c.id)):
        sorted_out.setdefault(position, []).append(identifier)
    return sorted_out


def _between(connection: Connection, table: Table, span: Span, then: str) -> Sequence[RowMapping]:
    """The rows of some positions, in order."""
    query = select(table).where(table.c.position.between(*span)).order_by(table.c.position, table.c[then])
    return connection.execute(query).mappings().all()


def decisions(connection: Connection, which: ColumnElement[bool]) -> list[Decision]:
    """Decisions in their order."""
    table, changes = schema.decisions, schema.changes
    query = select(table, changes.c.at, changes.c.who).join(changes, changes.c.position == table.c.position)
    found = connection.execute(query.where(which).order_by(table.c.position)).mappings()
    return [Decision(**{**row, "at": moment(row["at"])}) for row in found]


def answers(connection: Connection, which: Iterable[ColumnElement[bool]], limit: int) -> list[StoredAnswer]:
    """Answers by id, each with the latest decision on it."""
    table, changes = schema.answers, schema.changes
    query = select(table, changes.c.at, changes.c.who).join(changes, changes.c.position == table.c.position)
    found = connection.execute(query.where(*which).order_by(table.c.id).limit(limit)).mappings().all()
    names = names_of(connection, {row[column] for row in found for column in NAMED})
    decided = [row["decided"] for row in found if row["decided"] is not None]
    latest = {one.answer: one for one in decisions(connection, schema.decisions.c.position.in_(decided))}
    return [_answer(row, names, latest) for row in found]


def _answer(row: RowMapping, names: Mapping[int, str], latest: Mapping[int, Decision]) -> StoredAnswer:
    given = {field: row[field] for field in GivenAnswer._fields}
    return StoredAnswer(
        id=row["id"],
        given=GivenAnswer(**given | {column: names[row[column]] for column in NAMED}),
        model=row["model"],
        made_from=row["made_from"],
        position=row["position"],
        at=moment(row["at"]),
        who=row["who"],
        decision=latest.get(row["id"]),
    )
