"""The schema of a store: how it is made and brought forward, and that no query looks through a whole table."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, inspect, text

from conftest import complaint
from newcomer.store import NewerStoreError, open_store, schema
from newcomer.store.places import url_of
from store_world import added, an_answer, is_seen

MORE = ("ALTER TABLE newcomers ADD COLUMN note {text}", "UPDATE newcomers SET note = 'of ' || start")
BROKEN = ("CREATE TABLE more (id {integer})", "INSERT INTO nothing VALUES (1)")


@contextmanager
def connected(place: str) -> Iterator[Any]:
    engine = create_engine(url_of(place))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def test_queries_know_the_columns_that_there_are(place):
    open_store(place).close()
    with connected(place) as connection:
        found = inspect(connection)
        for table in schema.metadata.tables.values():
            assert {column["name"] for column in found.get_columns(table.name)} == set(table.columns.keys())
        assert set(found.get_table_names()) == set(schema.metadata.tables)


def test_an_older_store_is_brought_forward(place, monkeypatch):
    with open_store(place) as store:
        added(store, "a knows b")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, MORE, ("CREATE TABLE more (id {integer})",)))
    for _ in range(2):
        with open_store(place) as store:
            assert store.position() == 1
    with connected(place) as connection:
        assert connection.execute(text("SELECT version FROM newcomer_store")).scalar_one() == 3
        assert set(connection.execute(text("SELECT note FROM newcomers")).scalars()) == {"of a", "of b"}


def test_a_migration_that_fails_leaves_the_schema_before_it(place, monkeypatch):
    with open_store(place) as store:
        added(store, "a knows b")
    first = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*first, MORE, BROKEN))
    assert "nothing" in str(complaint(open_store, place))
    monkeypatch.setattr(schema, "MIGRATIONS", (*first, MORE))
    with open_store(place) as store:
        assert store.position() == 1
    with connected(place) as connection:
        assert not inspect(connection).has_table("more")


def test_a_newer_store_is_left_alone(place, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, MORE))
        open_store(place).close()
    error = complaint(open_store, place)
    assert isinstance(error, NewerStoreError)
    problem = "was written by a newer version: its schema is 2, this version knows 1; install a newer newcomer"
    assert str(error).endswith(problem)


@pytest.fixture
def statements() -> Iterator[list[tuple[str, Any]]]:
    """What is sent to databases in a test, with its parameters."""
    sent: list[tuple[str, Any]] = []

    def listen(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        sent.append((statement, parameters[0] if many else parameters))

    event.listen(Engine, "before_cursor_execute", listen)
    yield sent
    event.remove(Engine, "before_cursor_execute", listen)


def test_no_query_looks_through_a_whole_table(tmp_path, statements):
    with open_store(tmp_path / "store.db") as store:
        ask_everything(store)
    database = sqlite3.connect(tmp_path / "store.db")
    looked_through = set()
    for statement, parameters in statements:
        if statement.startswith(("SELECT", "WITH", "UPDATE", "DELETE")) and "sqlite_master" not in statement:
            for *_, step in database.execute(f"EXPLAIN QUERY PLAN {statement}", parameters):
                if step.startswith("SCAN"):
                    looked_through.add(step.split()[1])
    # One row; and values that stand in the statement itself.
    assert looked_through <= {"newcomer_store", "wanted", "CONSTANT", *"0123456789", "(subquery-1)"}
    assert "newcomer_store" in looked_through


def ask_everything(store):
    added(store, "a knows b", "b knows c", "c knows seen1", "d knows c", key="k")
    added(store, "a knows b", "e knows c")
    store.retract([("a", "knows", "b"), ("e", "knows", "c")], who="ann")
    store.remove(["c", "d"], who="ann")
    added(store, "a knows b", "b knows c", "c knows seen1")
    store.record([an_answer("a"), an_answer("b")], model="m", made_from=1, who="ann")
    store.decide(1, "accept", who="ann")
    with store.reading() as state:
        state.component(["a"], is_seen)
        state.newcomers("a", 10, "b")
        state.newcomers()
        state.near("seen1")
        state.facts_of(["a", "b"])
        state.history("c")
        state.log(1, 2)
        for filters in ({}, {"entity": "a"}, {"entity": "a", "decision": "open"}, {"decision": "accept"}):
            state.answers(**filters)
        state.answer(1)
        state.decisions(1)
