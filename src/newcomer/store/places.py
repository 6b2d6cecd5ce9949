"""Where a store lies: a SQLite file or a PostgreSQL database, connections to it, and what its errors say.

SQLite runs with a write-ahead log, so that readers see one state while another process writes, and hands every commit
to the disk before it returns. Messages never hold the password of a URL.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from newcomer.errors import OptionError, StoreError, one_line, optional, shown
from newcomer.files import looking_at
from newcomer.store.faults import StoreBusyError

BEGIN = "newcomer_begin"  # an execution option: how SQLite begins a transaction, if at all
LOCKED_OUT = ("55P03", "57014")  # PostgreSQL: lock_timeout, statement_timeout
KEEPS = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


def url_of(place: str | Path) -> URL:
    """The URL of a place: of a file where it is a plain path."""
    if isinstance(place, Path) or "://" not in place:
        return _file_url(URL.create("sqlite", database=str(place)))
    try:
        url = make_url(place)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        start = shown(place.partition("://")[0] + "://")
        hint = "give postgresql://USER:PASSWORD@HOST:PORT/DATABASE or the path of a file"
        raise OptionError(f"the URL of a store that begins with {start} cannot be read; {hint}") from None
    if backend not in ("sqlite", "postgresql", "postgres"):
        raise OptionError(f"a store cannot lie in {shown(backend)}; give sqlite:///FILE, postgresql://... or a path")
    if backend == "sqlite":
        return _file_url(url)
    return url.set(drivername="postgresql+psycopg")


def _file_url(url: URL) -> URL:
    if url.database in (None, "", ":memory:") or url.query or url.host:
        problem = f"a store in SQLite needs a file, and {shown(url.database or '')} is none"
        raise OptionError(f"{problem}; give its path or sqlite:///FILE, without options")
    return URL.create("sqlite", database=url.database)


def shown_place(url: URL) -> str:
    """A place as it stands in messages: a path, or a URL without password and options."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return URL.create("postgresql", url.username, None, url.host, url.port, url.database).render_as_string()


def engine_of(url: URL, wait_seconds: float) -> Engine:
    """Connections to a place; who waits longer than ``wait_seconds`` for other writers gets an error."""
    if url.get_backend_name() == "sqlite":
        _must_be_possible(Path(str(url.database)))
        engine = create_engine(url, connect_args={"timeout": wait_seconds}, pool_timeout=wait_seconds)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    optional("psycopg", "a store in PostgreSQL", "store")
    patience = {} if "connect_timeout" in url.query else {"connect_timeout": max(2, round(wait_seconds))}
    engine = create_engine(url, connect_args=patience, pool_pre_ping=True, pool_timeout=wait_seconds)

    def prepare(connection: Any, _: object) -> None:
        connection.execute(KEEPS)
        connection.execute(f"SET lock_timeout = {max(1, round(1_000 * wait_seconds))}")
        connection.commit()

    event.listen(engine, "connect", prepare)
    return engine


def _must_be_possible(path: Path) -> None:
    """Say what is wrong with a path before SQLite says less."""
    with looking_at(path):
        if path.is_dir():
            raise StoreError(f"{path}: is a folder; name a file in it")
        if not path.parent.is_dir():
            raise StoreError(f"{path}: its folder does not exist; make it first")
        if path.exists() and not path.is_file():
            raise StoreError(f"{path}: is no file; name a store or a file that does not exist yet")


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin as `BEGIN` says
    connection.execute("PRAGMA synchronous = FULL")


def keep_write_ahead_log(engine: Engine) -> None:
    """Have SQLite write ahead from now on; the file says so itself, so it has to be a store, or empty."""
    if engine.dialect.name == "sqlite":
        with engine.connect().execution_options(**{BEGIN: ""}) as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    begin = connection.get_execution_options().get(BEGIN, "BEGIN")
    if begin:
        connection.exec_driver_sql(begin)


@contextmanager
def writes(engine: Engine) -> Iterator[Connection]:
    """A transaction that changes something: all of it, or nothing where the block fails."""
    with engine.connect().execution_options(**{BEGIN: "BEGIN IMMEDIATE"}) as connection, connection.begin():
        yield connection


@contextmanager
def reads(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads one state, whatever others write in the meantime."""
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with connection.begin():
            yield connection


@contextmanager
def told(url: URL) -> Iterator[None]:
    """What goes wrong in a database, as one sentence."""
    try:
        yield
    except NoConnectionError as error:
        raise StoreBusyError(f"{shown_place(url)}: all connections are in use; try again") from error
    except IntegrityError:
        raise  # no user can cause it
    except DBAPIError as error:
        raise _fault(url, error) from error


def _fault(url: URL, error: DBAPIError) -> StoreError:
    place, said = shown_place(url), one_line(_without_password(url, str(error.orig)))
    if getattr(error.orig, "sqlstate", None) in LOCKED_OUT or "database is locked" in said:
        return StoreBusyError(f"{place}: another process holds it for too long; try again")
    if "file is not a database" in said:
        return StoreError(f"{place}: is no store of newcomers; name one, or a file that does not exist yet")
    if url.get_backend_name() == "sqlite":
        return StoreError(f"{place}: {said}; check the file, its folder and the space on the disk")
    return StoreError(f"{place}: {said}; check the server, the URL and the rights of its user")


def _without_password(url: URL, said: str) -> str:
    for secret in (url.password, url.query.get("password")):
        if secret:
            said = said.replace(str(secret), "***")
    return said
