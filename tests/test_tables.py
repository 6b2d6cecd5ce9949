"""From names to ids: the numbering depends on the names alone."""

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import complaint, make_dataset, parts_by_name, rows
from newcomer.data import tables
from newcomer.data.tables import NAME_TYPE, ROLES, ReadReport, TripleCollector, assemble, distinct, encode
from newcomer.errors import InputError
from newcomer.graph import TripleArray

NAME = st.text("abzZé日 0", min_size=1, max_size=2)
TRIPLES = st.lists(st.tuples(NAME, NAME, NAME), max_size=12)


def collect(triples: list[tuple[str, str, str]], by_columns: bool = False) -> tables.NamedTriples:
    collector = TripleCollector(Path("some.tsv"))
    for start in range(0, len(triples), 3):
        chunk = triples[start : start + 3]
        if by_columns:
            collector.add_columns(
                [pa.array(column, pa.string()).dictionary_encode() for column in zip(*chunk, strict=True)]
            )
        else:
            for row in chunk:
                collector.add_row(*row)
    return collector.finish()


@given(st.lists(st.tuples(NAME, NAME, NAME), min_size=1, max_size=30), st.integers(1, 4), st.integers(0, 8))
@settings(max_examples=200)
def test_rows_and_columns_in_chunks_of_any_size_come_out_as_they_went_in(
    triples: list[tuple[str, str, str]], chunk: int, at_least: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TripleCollector, "CHUNK", chunk)
        patch.setattr(tables._Numbering, "AT_LEAST", at_least)
        by_row, by_column = collect(triples), collect(triples, by_columns=True)
    assert rows(by_row) == rows(by_column) == triples
    assert len(by_row) == by_row.report.rows == len(triples)
    assert len(set(by_row.entities.to_pylist())) == len(by_row.entities)


def test_rows_before_and_after_columns_keep_their_order_and_labels() -> None:
    collector = TripleCollector(Path("some.tsv"), labelled=True)
    collector.add_row("a", "r", "b", 0)
    columns = [pa.array([name], pa.string()).dictionary_encode() for name in ("c", "r", "d")]
    collector.add_columns(columns, np.array([1], dtype=np.int8))
    collector.add_row("e", "r", "f", 0)
    assert rows(collector.finish()) == [("a", "r", "b", "0"), ("c", "r", "d", "1"), ("e", "r", "f", "0")]


def test_nothing_gathered_is_an_error() -> None:
    collector = TripleCollector(Path("some.tsv"))
    collector.report.skip(InputError("some.tsv", "is odd", 7))
    assert "some.tsv: holds no triple (1 lines were skipped)" in str(complaint(collector.finish))


def test_the_first_few_bad_lines_are_remembered() -> None:
    report = ReadReport()
    for number in range(1, 10):
        report.skip(InputError("some.tsv", "is odd", number))
    assert report.skipped == 9
    assert report.bad_lines == [f"some.tsv, line {number}: is odd" for number in range(1, 6)]


@given(TRIPLES, TRIPLES, TRIPLES, TRIPLES, st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_ids_depend_on_the_names_alone(train, aux, valid, test, shuffler: random.Random) -> None:  # type: ignore[no-untyped-def]
    parts = dict(zip(ROLES, (train, aux, valid, test), strict=True))
    dataset = make_dataset(**parts)
    assert list(dataset.entities) == numbered([[n for h, _, t in p for n in (h, t)] for p in parts.values()])
    assert list(dataset.relations) == numbered([[r for _, r, _ in p] for p in parts.values()])
    named = parts_by_name(dataset)
    assert {role: set(rows) for role, rows in named.items()} == {role: set(rows) for role, rows in parts.items()}
    assert all(len(set(rows)) == len(rows) for rows in named.values())
    assert np.array_equal(dataset.observed.triples.rows, sorted_rows(dataset.observed.triples))

    read_parts = {role: collect(shuffled(rows, shuffler)) for role, rows in parts.items() if rows}
    if not read_parts:
        return
    entities, relations, arrays = encode(list(read_parts.values()))
    again = assemble("made", entities, relations, dict(zip(read_parts, arrays, strict=True)))
    assert again.entities == dataset.entities and again.relations == dataset.relations
    assert np.array_equal(again.observed.triples.rows, dataset.observed.triples.rows)
    assert np.array_equal(again.auxiliary.triples.rows, dataset.auxiliary.triples.rows)


def numbered(names_by_part: list[list[str]]) -> list[str]:
    """Names of train, then those aux adds, then the rest, each sorted."""
    train, aux, *rest = (set(names) for names in names_by_part)
    others = set().union(*rest)
    return sorted(train) + sorted(aux - train) + sorted(others - aux - train)


def shuffled(triples: list[tuple[str, str, str]], shuffler: random.Random) -> list[tuple[str, str, str]]:
    repeated = triples + triples[:2]
    shuffler.shuffle(repeated)
    return repeated


def sorted_rows(triples: TripleArray) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(sorted(map(tuple, triples.rows.tolist())), dtype=np.int32).reshape(-1, 3)


def test_many_names_are_in_order_too() -> None:
    names = [f"{i * 7919 % 1000:03}" for i in range(1000)]
    train = [(a, "r", b) for a, b in pairwise(names[:401])]
    aux = [(a, "r", "000") for a in names[401:800]]
    dataset = make_dataset(train=train, aux=aux, test=[(a, "r", "000") for a in names[800:]])
    assert list(dataset.entities) == sorted(names[:401]) + sorted(names[401:800]) + sorted(names[800:])


def test_names_no_part_uses_are_dropped() -> None:
    dataset = assemble("made", pa.array(["x", "b", "a"]), pa.array(["s", "r"]), {"train": TripleArray.of([(1, 1, 2)])})
    assert (list(dataset.entities), list(dataset.relations)) == (["a", "b"], ["r"])


def test_each_triple_stands_once_with_each_label_in_the_order_of_its_first_row() -> None:
    triples = TripleArray.of([(3, 0, 1), (0, 0, 1), (3, 0, 1), (3, 0, 1), (0, 0, 1)])
    labelled = TripleArray(triples.heads, triples.relations, triples.tails, np.array([1, 0, 0, 1, 0], dtype=np.int8))
    assert distinct(triples).heads.tolist() == [3, 0]
    kept = distinct(labelled)
    assert list(zip(kept.heads.tolist(), kept.labels.tolist(), strict=True)) == [(3, 1), (0, 0), (3, 0)]  # type: ignore[union-attr]


def test_names_are_dictionary_encoded_with_32_bits() -> None:
    assert pa.array(["a"]).dictionary_encode().type == NAME_TYPE
