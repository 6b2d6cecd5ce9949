"""Where a store may lie, what is said of places where it cannot, and that no password is ever said."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from conftest import complaint, without_rights
from newcomer import errors
from newcomer.errors import InputError, MissingExtraError, OptionError, StoreError
from newcomer.store import open_store
from newcomer.store.places import url_of
from postgres import as_admin, database
from store_world import added

SECRET = "s3cret"


@pytest.mark.parametrize("form", ["{0}", "sqlite:///{0}"])
def test_a_store_lies_in_a_file(tmp_path, form):
    path = tmp_path / "a ü% store.db"
    with open_store(form.format(path)) as store:
        added(store, "a knows b")
    with open_store(path) as store:
        assert store.position() == 1 and repr(store) == f"Store({str(path)!r})"


def test_a_relative_path_is_one_of_the_folder_one_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("town.db", "sqlite:///town.db"):
        open_store(place).close()
    assert (tmp_path / "town.db").is_file()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_store_lies_in_a_database(postgres, scheme):
    with database(postgres) as place:
        with open_store(scheme + place.removeprefix("postgresql")) as store:
            added(store, "a knows b")
            assert SECRET not in repr(store) and make_url(place).database in repr(store)
        with open_store(place) as store:
            assert store.position() == 1


def test_an_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "empty.db").touch()
    with open_store(tmp_path / "empty.db") as store:
        assert store.position() == 0


def test_every_commit_is_handed_to_the_disk(store):
    with store.reading() as state:
        run = state._connection.exec_driver_sql
        if state._connection.dialect.name == "sqlite":
            assert run("PRAGMA journal_mode").scalar_one() == "wal" and run("PRAGMA synchronous").scalar_one() == 2
        else:
            assert run("SHOW synchronous_commit").scalar_one() == "on"


def test_a_server_that_would_not_wait_for_the_disk_is_told_to(postgres):
    with database(postgres) as place:
        with as_admin(place) as run:
            run(f"ALTER DATABASE {make_url(place).database} SET synchronous_commit = off")
        with open_store(place) as store, store.reading() as state:
            assert state._connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("mysql://u:s3cret@h/d", "a store cannot lie in 'mysql'; give sqlite:///FILE, postgresql://... or a path"),
        (
            "postgresql://u:s3cret@h:port/d",
            "a store that begins with 'postgresql://' cannot be read; give postgresql://",
        ),
        ("://", "a store that begins with '://' cannot be read"),
        ("sqlite://", "needs a file, and '' is none; give its path or sqlite:///FILE, without options"),
        ("sqlite:///:memory:", "needs a file, and ':memory:' is none"),
        ("sqlite:///a.db?mode=ro", "give its path or sqlite:///FILE, without options"),
        (":memory:", "needs a file, and ':memory:' is none"),
        ("", "needs a file, and '' is none"),
    ],
)
def test_urls_that_name_no_place(place, problem):
    error = complaint(open_store, place)
    assert isinstance(error, OptionError) and problem in str(error) and SECRET not in str(error)


@pytest.mark.parametrize(
    "place",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/town",
        f"postgresql://ann@127.0.0.1:1/town?password={SECRET}",
        f"postgresql://ann:{SECRET}@127.0.0.1:1/town?connect_timeout={SECRET}",
        f"postgresql://ann:p%40{SECRET}@127.0.0.1:1/town?connect_timeout=p%40{SECRET}",
    ],
)
def test_a_server_that_does_not_answer(place):
    error = complaint(open_store, place)
    assert isinstance(error, StoreError) and SECRET not in str(error)
    assert str(error).startswith("postgresql://ann@127.0.0.1:1/town: ")
    assert str(error).endswith("; check the server, the URL and the rights of its user")


def test_a_database_that_is_not_there(postgres):
    place = make_url(postgres).set(database="nowhere").render_as_string(hide_password=False)
    assert '"nowhere" does not exist; check the server, the URL' in str(complaint(open_store, place))


def test_a_user_who_may_not_make_tables(postgres):
    with database(postgres) as place, as_admin(place) as run:
        run("CREATE ROLE guest LOGIN PASSWORD 's3cret'")
        try:
            guest = make_url(place).set(username="guest", password=SECRET).render_as_string(hide_password=False)
            assert "permission denied for schema public" in str(complaint(open_store, guest))
        finally:
            run("DROP ROLE guest")


def test_a_database_that_holds_no_unicode(postgres):
    with as_admin(postgres) as run:
        run("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        try:
            place = make_url(postgres).set(database="latin").render_as_string(hide_password=False)
            problem = "its encoding is LATIN1, which does not hold all names; create the database with ENCODING 'UTF8'"
            assert problem in str(complaint(open_store, place))
        finally:
            run("DROP DATABASE latin WITH (FORCE)")


def test_a_place_with_other_tables(place):
    engine = create_engine(url_of(place))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE towns (id INTEGER)"))
    engine.dispose()
    before = Path(place).read_bytes() if Path(place).is_file() else b""
    error = complaint(open_store, place)
    assert "is no store of newcomers: it holds the table 'towns'; give the store a database or a schema" in str(error)
    assert not before or Path(place).read_bytes() == before


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda path: path.write_bytes(b"zoe\tlives_in\tcity1\n" * 100),
            "is no store of newcomers; name one, or",
        ),
        (lambda path: path.mkdir(), "is a folder; name a file in it"),
    ],
)
def test_files_that_are_no_stores(tmp_path, make, problem):
    path = tmp_path / "facts.tsv"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    error = complaint(open_store, path)
    assert isinstance(error, StoreError) and str(error).startswith(f"{path}: {problem}")
    assert not path.is_file() or path.read_bytes() == before


def test_paths_that_lead_nowhere(tmp_path):
    assert "its folder does not exist; make it first" in str(complaint(open_store, tmp_path / "no" / "store.db"))
    assert "is no file" in str(complaint(open_store, "/dev/null"))
    assert isinstance(complaint(open_store, tmp_path / ("x" * 300)), InputError)


def test_a_file_that_may_not_be_written(public_folder):
    path = public_folder / "store.db"
    with open_store(path) as store:
        added(store, "a knows b")
    path.chmod(0o444)
    with without_rights():
        error = complaint(open_store, path)
    assert str(error).startswith(f"{path}: ") and str(error).endswith(
        "; check the file, its folder and the space on the disk"
    )


def test_a_damaged_file(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        for number in range(50):
            added(store, f"a{number} knows b")
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    error = complaint(reads_all, path)
    assert isinstance(error, StoreError) and str(path) in str(error)


def reads_all(path: Path) -> None:
    with open_store(path) as store, store.reading() as state:
        state.log(limit=100)


def test_a_full_disk(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        added(store, "a knows b")
        with store.reading() as state:  # the limit is one of the connection, which is used again
            state._connection.exec_driver_sql("PRAGMA max_page_count = 1")
        error = complaint(added, store, *(f"a{number} knows b{number}" for number in range(2_000)))
        assert "database or disk is full; check the file, its folder and the space on the disk" in str(error)
        with store.reading() as state:
            state._connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
            assert state.position == 1 and state.count.facts == 1


def test_a_server_that_ends_a_connection(postgres):
    with database(postgres) as place, open_store(place) as store:
        added(store, "a knows b")
        with as_admin(postgres) as run:
            name = make_url(place).database
            ends = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            run(ends)
            assert added(store, "b knows c").position == 2  # one that was idle is replaced

            def cut_off() -> None:
                with store.reading() as state:
                    run(ends)
                    state.newcomers()

            error = complaint(cut_off)
        assert isinstance(error, StoreError) and "terminating connection" in str(error)
        assert store.position() == 2


@pytest.mark.parametrize("missing", ["sqlalchemy", "psycopg"])
def test_what_is_not_installed_is_named(monkeypatch, missing):
    found = errors.import_module

    def without(package: str) -> object:
        if package == missing:
            raise ImportError
        return found(package)

    monkeypatch.setattr(errors, "import_module", without)
    error = complaint(open_store, "postgresql://ann@127.0.0.1:1/town")
    assert isinstance(error, MissingExtraError) and "pip install 'newcomer[store]'" in str(error)


def test_the_file_is_an_ordinary_database(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        added(store, "a knows b")
    rows = sqlite3.connect(tmp_path / "store.db").execute("SELECT start FROM newcomers ORDER BY start").fetchall()
    assert rows == [("a",), ("b",)]
