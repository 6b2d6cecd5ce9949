"""A durable store of newcomers, in a SQLite file or in PostgreSQL (extra ``store``).

An append-only log of facts stated and retracted, answers given and decisions on them, with who and when; and the
current view of it. Its reads and changes cost the same however many newcomers there are.

    store = open_store("town.db")
    store.add([("zoe", "lives_in", "city1")], is_seen=model_knows, who="registry")
    with store.reading() as state:
        state.component(["zoe"], model_knows).facts
"""

from pathlib import Path
from typing import TYPE_CHECKING

from newcomer.errors import StoreError, optional
from newcomer.store.faults import KeyReusedError, NewerStoreError, NotThereError, StoreBusyError
from newcomer.store.records import (
    Change,
    Component,
    Counts,
    Decision,
    Entry,
    Fact,
    GivenAnswer,
    Newcomer,
    Recorded,
    Statement,
    StoredAnswer,
)

if TYPE_CHECKING:
    from newcomer.store.store import Store

__all__ = [
    "Change",
    "Component",
    "Counts",
    "Decision",
    "Entry",
    "Fact",
    "GivenAnswer",
    "KeyReusedError",
    "Newcomer",
    "NewerStoreError",
    "NotThereError",
    "Recorded",
    "Statement",
    "StoreBusyError",
    "StoreError",
    "StoredAnswer",
    "open_store",
]


def open_store(place: "str | Path", wait_seconds: float = 30.0) -> "Store":
    """Open a store: a path, ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/DATABASE``.

    An empty place becomes a store, and the schema of an older one is brought forward. Who has to wait for other
    writers for longer than ``wait_seconds`` gets a `StoreBusyError`.
    """
    optional("sqlalchemy", "a store of newcomers", "store")
    from newcomer.store.store import open_place

    return open_place(place, wait_seconds)
