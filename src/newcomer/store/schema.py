"""The tables of a store, and the numbered migrations that make them.

    newcomer_store   one row: the version, the last position, the last id of a name, counts; whoever writes locks it
    names            id and text of every entity and relation; found by a digest, as an index takes no long texts
    changes          the log: an entry a change, never changed
    requests         idempotency keys: a digest of what was asked, and the first outcome
    statements       the history of facts: stated or retracted, with the change; never changed
    facts            the current view of it
    presences        the history of newcomers: came or went; never changed
    newcomers        the current view of it, in the order of names, of which an index takes the start alone
    answers          answers given; ``decided`` is the position of the latest decision, all else is never changed
    decisions        decisions on answers, never changed

There are no foreign keys: one module writes, one change at a time, and checking each row would cost more than the row.
Texts compare by code point in both databases (collation C in PostgreSQL), as Python's do.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.types import TypeEngine

from newcomer.errors import StoreError
from newcomer.store.faults import NewerStoreError
from newcomer.store.places import keep_write_ahead_log, reads, writes

Migration = Sequence[str]
MIGRATION_LOCK = 0x6E6577636F6D6572  # of PostgreSQL: held while a schema is made or changed
START = 600  # characters of a name that an index row of PostgreSQL holds in any script

TYPES = {
    "sqlite": {"integer": "INTEGER", "text": "TEXT", "bytes": "BLOB", "real": "REAL", "by_key": "WITHOUT ROWID"},
    "postgresql": {
        "integer": "BIGINT",
        "text": 'TEXT COLLATE "C"',
        "bytes": "BYTEA",
        "real": "DOUBLE PRECISION",
        "by_key": "",
    },
}

MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE newcomer_store (
            id {integer} PRIMARY KEY CHECK (id = 1), version {integer} NOT NULL, position {integer} NOT NULL,
            names {integer} NOT NULL, newcomers {integer} NOT NULL, facts {integer} NOT NULL, answers {integer} NOT NULL
        )""",
        "INSERT INTO newcomer_store VALUES (1, 0, 0, 0, 0, 0, 0)",
        """CREATE TABLE names (
            id {integer} PRIMARY KEY, name {text} NOT NULL, digest {bytes} NOT NULL UNIQUE
        )""",
        """CREATE TABLE changes (
            position {integer} PRIMARY KEY, at {integer} NOT NULL, who {text} NOT NULL, kind {text} NOT NULL,
            key {text}, source {text} NOT NULL
        )""",
        """CREATE TABLE requests (
            who {text} NOT NULL, key {text} NOT NULL, digest {bytes} NOT NULL, outcome {text} NOT NULL,
            PRIMARY KEY (who, key)
        )""",
        """CREATE TABLE statements (
            position {integer} NOT NULL, place {integer} NOT NULL, stated {integer} NOT NULL, head {integer} NOT NULL,
            relation {integer} NOT NULL, tail {integer} NOT NULL, PRIMARY KEY (position, place)
        ) {by_key}""",
        "CREATE INDEX statements_head ON statements (head)",
        "CREATE INDEX statements_tail ON statements (tail)",
        """CREATE TABLE facts (
            head {integer} NOT NULL, tail {integer} NOT NULL, relation {integer} NOT NULL, position {integer} NOT NULL,
            PRIMARY KEY (head, tail, relation)
        ) {by_key}""",
        "CREATE INDEX facts_tail ON facts (tail, head)",
        """CREATE TABLE presences (
            position {integer} NOT NULL, newcomer {integer} NOT NULL, present {integer} NOT NULL,
            PRIMARY KEY (position, newcomer)
        ) {by_key}""",
        """CREATE TABLE newcomers (
            start {text} NOT NULL, rest {text} NOT NULL, id {integer} NOT NULL UNIQUE, position {integer} NOT NULL,
            at {integer} NOT NULL, PRIMARY KEY (start, id)
        ) {by_key}""",
        """CREATE TABLE answers (
            id {integer} PRIMARY KEY, position {integer} NOT NULL, entity {integer} NOT NULL,
            relation {integer} NOT NULL, direction {text} NOT NULL, answer {integer} NOT NULL, rank {integer} NOT NULL,
            probability {real} NOT NULL, if_any {real} NOT NULL, reason {text} NOT NULL, model {text} NOT NULL,
            made_from {integer} NOT NULL, verdict {text}, decided {integer}
        )""",
        "CREATE INDEX answers_position ON answers (position)",
        "CREATE INDEX answers_entity ON answers (entity, verdict, id)",
        "CREATE INDEX answers_verdict ON answers (verdict, id)",
        """CREATE TABLE decisions (
            position {integer} PRIMARY KEY, answer {integer} NOT NULL, verdict {text} NOT NULL, note {text} NOT NULL
        )""",
        "CREATE INDEX decisions_answer ON decisions (answer)",
    ),
)

metadata = MetaData()


def _table(title: str, integers: str, texts: str = "", binary: str = "", reals: str = "") -> Table:
    """A table as queries see it."""
    kinds: tuple[tuple[str, TypeEngine[Any]], ...] = (
        (integers, BigInteger()),
        (texts, Text()),
        (binary, LargeBinary()),
        (reals, Double()),
    )
    return Table(title, metadata, *(Column(name, kind) for listed, kind in kinds for name in listed.split()))


books = _table("newcomer_store", "id version position names newcomers facts answers")
names = _table("names", "id", "name", "digest")
changes = _table("changes", "position at", "who kind key source")
requests = _table("requests", "", "who key outcome", "digest")
statements = _table("statements", "position place stated head relation tail")
facts = _table("facts", "head tail relation position")
presences = _table("presences", "position newcomer present")
newcomers = _table("newcomers", "id position at", "start rest")
answers = _table(
    "answers",
    "id position entity relation answer rank made_from decided",
    "direction reason model verdict",
    reals="probability if_any",
)
decisions = _table("decisions", "position answer", "verdict note")


def read_books(connection: Connection, hold: bool = False) -> dict[str, int]:
    """Position and counts, of the schema that this version knows; who holds them is the only one who writes."""
    query = select(books).with_for_update() if hold else select(books)
    found = dict(connection.execute(query).mappings().one())
    if found["version"] != len(MIGRATIONS):
        problem = f"the schema of the store is {found['version']} and no longer {len(MIGRATIONS)}"
        raise StoreError(f"{problem}, as when it was opened; open it again")
    return {str(name): value for name, value in found.items()}


def migrate(engine: Engine, place: str) -> None:
    """Bring a store, or an empty place, to the newest schema; each migration is a transaction of its own.

    Several processes may do so at once: each step is made by the one that holds the lock.
    """
    with reads(engine) as connection:
        version = _version(connection, place)
    keep_write_ahead_log(engine)
    while version < len(MIGRATIONS):
        with writes(engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            version = _version(connection, place)
            if version < len(MIGRATIONS):
                for statement in MIGRATIONS[version]:
                    connection.execute(text(statement.format(**TYPES[connection.dialect.name])))
                version += 1
                connection.execute(update(books).values(version=version))


def _version(connection: Connection, place: str) -> int:
    """The version of the schema; 0 of an empty place, and an error where something else lies there."""
    _must_be_unicode(connection, place)
    looking = inspect(connection)
    if not looking.has_table(books.name):
        others = sorted(looking.get_table_names())
        if others:
            problem = f"is no store of newcomers: it holds the table {others[0]!r}"
            raise StoreError(f"{place}: {problem}; give the store a database or a schema of its own")
        return 0
    version = connection.execute(select(books.c.version)).scalar_one()
    if version > len(MIGRATIONS):
        problem = f"was written by a newer version: its schema is {version}, this version knows {len(MIGRATIONS)}"
        raise NewerStoreError(f"{place}: {problem}; install a newer newcomer")
    return int(version)


def _must_be_unicode(connection: Connection, place: str) -> None:
    if connection.dialect.name == "postgresql":
        encoding = connection.execute(select(func.current_setting("server_encoding"))).scalar_one()
        if encoding != "UTF8":
            problem = f"its encoding is {encoding}, which does not hold all names"
            raise StoreError(f"{place}: {problem}; create the database with ENCODING 'UTF8'")
