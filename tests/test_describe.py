"""Figures of a data set against counting by hand."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import DATA, Row, make_dataset, needs_data, parts_by_name
from newcomer.data.dataset import LoadedDataset, parts_of, read_dataset, write_dataset
from newcomer.data.describe import Description, band_name, degree_summary, describe, linked_pairs
from newcomer.graph import InductiveDataset

ENTITY = st.sampled_from("abcdefg")
TRIPLES = st.lists(st.tuples(ENTITY, st.sampled_from("rst"), ENTITY), max_size=14)


def described(dataset: InductiveDataset) -> Description:
    return describe(LoadedDataset(dataset, "plain", {}))


def degrees(triples: list[Row]) -> Counter[str]:
    return Counter(name for row in triples for name in (row[0], row[2]))


@given(TRIPLES.filter(bool), TRIPLES, TRIPLES, TRIPLES)
@settings(max_examples=150)
def test_figures_are_those_counted_by_hand(train, aux, valid, test) -> None:  # type: ignore[no-untyped-def]
    dataset = make_dataset(train=train, aux=aux, valid=valid, test=test)
    parts, figures = parts_by_name(dataset), described(dataset)
    known_of_newcomers = degrees(parts["aux"])
    seen, asked = set(degrees(parts["train"])), degrees(parts["test"])
    newcomers = set(known_of_newcomers) - seen
    assert figures.triples == {role: len(rows) for role, rows in parts.items()}
    assert (figures.entities, figures.relations) == (len(dataset.entities), len(dataset.relations))
    assert (figures.seen, figures.newcomers) == (len(seen), len(newcomers))
    assert figures.without_facts == len(set(dataset.entities) - seen - newcomers)
    assert figures.test_newcomers == len(newcomers & set(asked))
    observed_relations = {row[1] for row in parts["train"]}
    assert figures.relations_never_observed == len(set(dataset.relations) - observed_relations)
    assert figures.test_triples_with_such_relations == sum(r not in observed_relations for _, r, _ in parts["test"])
    ratios = [known_of_newcomers[name] / asked[name] for name in newcomers & set(asked)]
    mean = sum(ratios) / len(ratios) if ratios else None
    assert figures.neighbours_per_predicted_fact == (None if mean is None else pytest.approx(mean))
    assert sum(figures.newcomer_degrees.bands.values()) == figures.newcomer_degrees.entities == len(newcomers)
    assert figures.newcomer_degrees.largest == max((known_of_newcomers[name] for name in newcomers), default=0)


@given(TRIPLES.filter(bool), TRIPLES, TRIPLES)
@settings(max_examples=100)
def test_linked_pairs_are_those_any_known_fact_joins(train, aux, test) -> None:  # type: ignore[no-untyped-def]
    dataset = make_dataset(train=train, aux=aux, test=test)
    joined = {frozenset((row[0], row[2])) for row in train + aux}
    names = list(dataset.entities)
    expected = [frozenset((names[h], names[t])) in joined for h, _, t in dataset.test.rows.tolist()]
    assert linked_pairs(dataset, dataset.test).tolist() == expected
    assert described(dataset).test_pairs_linked == sum(expected)
    assert described(dataset).test_triples_asked == len(expected)


@given(TRIPLES.filter(bool))
@settings(max_examples=100)
def test_relations_are_classed_by_heads_per_tail_and_tails_per_head(train) -> None:  # type: ignore[no-untyped-def]
    table = described(make_dataset(train=train)).relation_table
    for summary in table:
        pairs = {(h, t) for h, r, t in train if r == summary.name}
        heads, tails = {h for h, _ in pairs}, {t for _, t in pairs}
        many_heads, many_tails = len(pairs) / len(tails) >= 1.5, len(pairs) / len(heads) >= 1.5
        assert (summary.triples, summary.kind) == (
            len(pairs),
            f"{'N' if many_heads else '1'}-{'N' if many_tails else '1'}",
        )
        assert summary.tails_per_head == pytest.approx(len(pairs) / len(heads))
        assert summary.heads_per_tail == pytest.approx(len(pairs) / len(tails))
    assert [s.triples for s in table] == sorted((s.triples for s in table), reverse=True)


def test_the_four_classes_and_the_relation_nobody_uses() -> None:
    dataset = make_dataset(
        train=[("a", "one", "b"), ("c", "one", "d")]
        + [("mother", "has child", f"child {i}") for i in range(4)]
        + [(f"town {i}", "lies in", "land") for i in range(4)]
        + [(f"actor {i}", "plays in", f"film {j}") for i in range(3) for j in range(3)],
        test=[("a", "never", "b")],
    )
    figures = described(dataset)
    kinds = {summary.name: summary.kind for summary in figures.relation_table}
    assert kinds == {"one": "1-1", "has child": "1-N", "lies in": "N-1", "plays in": "N-N", "never": "-"}
    assert figures.relation_kinds == dict.fromkeys(("1-1", "1-N", "N-1", "N-N", "-"), 1)
    assert (figures.relations_never_observed, figures.test_triples_with_such_relations) == (1, 1)


def test_degrees_by_band() -> None:
    dataset = make_dataset(train=[("hub", "r", f"leaf {i:03}") for i in range(101)] + [("leaf 000", "r", "leaf 001")])
    summary = described(dataset).seen_degrees
    assert summary.bands == {"1": 99, "2-5": 2, "6-20": 0, "21-100": 0, "over 100": 1}
    assert (summary.entities, summary.median, summary.largest) == (102, 1.0, 101)
    assert summary.mean == pytest.approx(2 * 102 / 102)
    assert [band_name(band) for band in ((1, 1), (2, 5), (101, None))] == ["1", "2-5", "over 100"]
    assert degree_summary(dataset.auxiliary.degrees[:0]).entities == 0


def test_labelled_test_triples_count_only_where_true(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tr\tb\n")
    (tmp_path / "aux.txt").write_text("n\tr\ta\nn\tr\tb\nm\tr\ta\n")
    (tmp_path / "test.txt").write_text("n\tr\ta\t1\nn\tr\tb\t-1\nm\tr\tb\t-1\n")
    figures = describe(read_dataset(tmp_path))
    assert (figures.test_triples_asked, figures.test_pairs_linked) == (1, 1)
    assert figures.neighbours_per_predicted_fact == 2.0


def test_duplicates_and_self_loops_come_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tr\tb\na\tr\tb\na\tr\ta\n")
    figures = describe(read_dataset(tmp_path))
    assert (figures.duplicates, figures.self_loops) == ({"train": 1}, {"train": 1})


def test_literals_come_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "f.nt").write_text('<http://a> <http://r> <http://b> .\n<http://a> <http://r> "1" .\n')
    assert describe(read_dataset(tmp_path / "f.nt")).literals == {"train": 1}


def test_the_description_is_json(tmp_path: Path) -> None:
    dataset = make_dataset(train=[("a", "r", "b")], aux=[("n", "r", "a")], test=[("n", "r", "b")])
    write_dataset(dataset, tmp_path / "set")
    figures = describe(read_dataset(tmp_path / "set"))
    again = json.loads(json.dumps(figures.to_json()))
    assert again["triples"] == {role: len(triples) for role, triples in parts_of(dataset).items()}
    assert again["neighbours_per_predicted_fact"] == 1.0 and again["newcomer_degrees"]["bands"]["1"] == 1


@needs_data
def test_the_figures_of_fb15k_subject_10() -> None:
    figures = describe(read_dataset(Path(DATA) / "fb15k-subject-10"))
    assert round(figures.neighbours_per_predicted_fact or 0, 2) == 52.63
    assert (figures.test_pairs_linked, figures.test_triples_asked) == (2272, 2811)
    assert figures.test_triples_with_such_relations == 80
    assert (figures.newcomers, figures.test_newcomers) == (3959, 2102)
