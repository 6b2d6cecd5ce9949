"""Names and their ids: an id a name, given in the order in which names turn up, and never taken back."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

from sqlalchemy import Connection, select

from newcomer.store import schema

BATCH = 500  # values in one statement: SQLite takes 32,766
T = TypeVar("T")


def batches(values: Iterable[T]) -> Iterator[Sequence[T]]:
    """The values in their order, so many at a time as one statement takes."""
    rest = iter(values)
    while batch := list(islice(rest, BATCH)):
        yield batch


def digest(name: str) -> bytes:
    """What a name is found by."""
    return blake2b(name.encode(), digest_size=16).digest()


def parts_of(name: str) -> tuple[str, str]:
    """A name as an index can sort it: what the index holds, and the rest, which few have."""
    return name[: schema.START], name[schema.START :]


def ids_of(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """The ids of the names that have one."""
    found: dict[str, int] = {}
    for batch in batches(map(digest, names)):
        query = select(schema.names.c.name, schema.names.c.id).where(schema.names.c.digest.in_(batch))
        found.update((name, identifier) for name, identifier in connection.execute(query))
    return found


def names_of(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    """The names of ids."""
    found: dict[int, str] = {}
    for batch in batches(ids):
        query = select(schema.names.c.id, schema.names.c.name).where(schema.names.c.id.in_(batch))
        found.update((identifier, name) for identifier, name in connection.execute(query))
    return found
