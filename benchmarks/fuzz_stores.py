"""Stores of newcomers for command lines, and endpoints to push them to: right ones, damaged ones, and what is none."""

from pathlib import Path
from random import Random

from fuzz_files import mutated
from fuzz_folders import put
from fuzz_world import World, entities

STORE_FILES = ("", "-wal", "-shm", "-journal")  # what lies in the place of a store
NO_STORES = (
    *(
        "",
        ".",
        ":memory:",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://a:b@h/x",
        "postgresql://[",
        "x" * 300,
        "nowhere/x.db",
    ),
    *("postgresql://a:s3cret@127.0.0.1:1/x?connect_timeout=2", "sqlite:///town.db?mode=ro", "/proc/x.db", "\udcff.db"),
)
NO_ENDPOINTS = (
    *(
        "",
        "localhost",
        "ftp://h/x",
        "http://",
        "http://h:0/x",
        "http://a:s3cret@h/x",
        "http://é/",
        "http://h/\n",
        "//h",
    ),
    *("http://127.0.0.1:1/update", "https://127.0.0.1:1/update?x=y", "http://127.0.0.1:99999/"),
)
BASES = ("urn:x:", "https://example.org/", "", "no iri", "urn:é:", "http://h/<", "a" * 300 + ":")
NEWCOMERS = ("t:n0", "t:n1", "t:n2")


def store(rng: Random, world: World, place: Path, damaged: bool, strange: bool) -> str:
    """A store in a place; ``strange`` names what is none, else it may be a file that is not there yet."""
    if strange:
        return rng.choice(NO_STORES)
    content = (world.folder / "town.db").read_bytes()
    if damaged:
        put(place, rng.choice((mutated(rng, content), content[: rng.randrange(len(content))], b"", b"precious")))
    elif rng.random() < 0.8:
        put(place, content)
    return f"sqlite:///{place.name}" if rng.random() < 0.2 else place.name


def words(rng: Random, name: str, wrong: bool) -> str | None:
    """The value of an option that only commands over a store have; None where it is none of these."""
    if name in ("to", "query"):  # nobody answers there
        return rng.choice(NO_ENDPOINTS) if wrong else "http://127.0.0.1:1/update"
    if name == "base":
        return rng.choice(BASES) if wrong else BASES[0]
    if name == "named":
        return rng.choice(entities() if wrong else NEWCOMERS)
    if name == "decision":
        return rng.choice(("open", "accept", "reject", "unsure"))
    return None
