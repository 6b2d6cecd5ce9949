"""What the tests share: files made on the spot, triples by name, and errors that must be one sentence."""

import gc
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from newcomer.data.dataset import parts_of
from newcomer.data.tables import NamedTriples, assemble
from newcomer.errors import InputError, NewcomerError
from newcomer.evaluation.ranking import Progress, Queries, RankingProtocol, RankingResult, Scorer, evaluate_under
from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
from newcomer.store import open_store
from newcomer.store.store import Store
from postgres import HOW, database, schemas, server

settings.register_profile(
    "pinned",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("pinned")

NOBODY = 65534
DATA = os.environ.get("NEWCOMER_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="NEWCOMER_DATA names no folder with the published data sets")

Row = tuple[str, ...]


def rows(named: NamedTriples) -> list[Row]:
    """What a reader found, as (head, relation, tail) or (head, relation, tail, label)."""
    entities, relations, triples = named.entities.to_pylist(), named.relations.to_pylist(), named.triples
    found = [(entities[h], relations[r], entities[t]) for h, r, t in triples.rows.tolist()]
    if triples.labels is None:
        return found
    return [(*row, str(label)) for row, label in zip(found, triples.labels.tolist(), strict=True)]


def parts_by_name(dataset: InductiveDataset) -> dict[str, list[Row]]:
    """Each part of a data set as a sorted list of rows."""
    entities, relations = list(dataset.entities), list(dataset.relations)
    found: dict[str, list[Row]] = {}
    for role, triples in parts_of(dataset).items():
        labels = [()] * len(triples) if triples.labels is None else [(str(x),) for x in triples.labels.tolist()]
        named = [(entities[h], relations[r], entities[t]) for h, r, t in triples.rows.tolist()]
        found[role] = sorted((*row, *label) for row, label in zip(named, labels, strict=True))
    return found


def make_dataset(**parts: Iterable[tuple[str, str, str]]) -> InductiveDataset:
    """A data set out of triples by name: train=, aux=, valid=, test=."""
    listed = {role: list(triples) for role, triples in parts.items()}
    graph = named_graph([row for triples in listed.values() for row in triples])
    ids = {
        role: TripleArray.of(
            [(graph.entities.id(h), graph.relations.id(r), graph.entities.id(t)) for h, r, t in triples]
        )
        for role, triples in listed.items()
    }
    return assemble("made", graph.entities.names, graph.relations.names, ids)


def evaluate(
    dataset: InductiveDataset,
    scorer: Scorer,
    full: Graph | None = None,
    queries: Queries | None = None,
    progress: Progress | None = None,
    **protocol: str,
) -> RankingResult:
    """The ranking under one protocol."""
    return evaluate_under(dataset, scorer, [RankingProtocol(**protocol)], full, queries, progress)[0]


def complaint(call: Callable[..., Any], *arguments: Any, **options: Any) -> NewcomerError:
    """The error a call ends in: ours, one sentence on one line, with the file where it is about one."""
    with pytest.raises(NewcomerError) as caught:
        call(*arguments, **options)
    text = str(caught.value)
    assert text and "\n" not in text and "Traceback" not in text
    if isinstance(caught.value, InputError):
        assert text.startswith(caught.value.path)
    return caught.value


@pytest.fixture
def only_new_garbage() -> Iterator[None]:
    """Collecting garbage looks at what the test makes alone: what a suite has made takes half a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Writes a file under the test's folder and gives its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that any user may enter, for tests about what a user may not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def without_rights() -> Iterator[None]:
    """Permissions count in this block, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def named_graph(triples: Iterable[tuple[str, str, str]]) -> Graph:
    """From (head, relation, tail) names; ids follow the alphabet."""
    rows = list(triples)
    entities = Vocabulary(sorted({name for h, _, t in rows for name in (h, t)}))
    relations = Vocabulary(sorted({r for _, r, _ in rows}))
    ids = [(entities.id(h), relations.id(r), entities.id(t)) for h, r, t in rows]
    return Graph.build(entities, relations, TripleArray.of(ids))


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a database in PostgreSQL, the same for all tests of a process."""
    with server() as url:
        if url is None:
            pytest.skip(HOW)
        with database(url) as made:
            yield made


@pytest.fixture(params=("sqlite", "postgresql"))
def fresh_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes empty places for stores, in each of the databases."""
    if request.param == "sqlite":
        numbers = count()
        yield lambda: str(tmp_path / f"store{next(numbers)}.db")
    else:
        with schemas(request.getfixturevalue("postgres")) as make:
            yield make


@pytest.fixture
def place(fresh_place: Callable[[], str]) -> str:
    """An empty place for a store."""
    return fresh_place()


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    """An empty store."""
    with open_store(place) as opened:
        yield opened


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small trained model."""
    return trained(tmp_path_factory.mktemp("people") / "model")


@pytest.fixture(scope="session")
def other_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of another one, which knows the same entities."""
    return trained(tmp_path_factory.mktemp("people") / "model", "seed=1")


def trained(folder: Path, *changes: str) -> Path:
    """A model of the small world, written to a folder."""
    from newcomer.models.bundle import write_bundle
    from newcomer.training.pipeline import fit
    from training_world import settings, world

    dataset = world()
    write_bundle(folder, fit(dataset, settings("model.ensemble=yes", *changes), threads=1).bundle(dataset))
    return folder
