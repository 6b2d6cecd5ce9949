"""The splitting rule against a plain reading of it, and against the published splits."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conftest import DATA, Row, complaint, make_dataset, needs_data, parts_by_name
from newcomer.data import split
from newcomer.data.dataset import read_dataset
from newcomer.data.split import SplitRule, hold_out, split_graph
from newcomer.errors import DatasetError, OptionError
from newcomer.graph import InductiveDataset, TripleArray

ENTITY = st.sampled_from([f"e{i}" for i in range(14)])
TRIPLE = st.tuples(ENTITY, st.sampled_from(["r", "s"]), ENTITY)
GRAPHS = st.tuples(
    st.lists(TRIPLE, min_size=8, max_size=40, unique=True),
    st.lists(TRIPLE, max_size=8, unique=True),
    st.lists(TRIPLE, min_size=1, max_size=12, unique=True),
)
SIDES = st.sampled_from(["subject", "object", "both"])


def ends(triples: Iterable[Row]) -> set[str]:
    return {name for row in triples for name in (row[0], row[2])}


def by_the_rule(
    source: dict[str, list[Row]], drawn: list[Row], candidates: set[str], both_new: bool
) -> dict[str, set[Row]]:
    """The rule as it is stated, triple by triple."""
    train = {row for row in source["train"] if not {row[0], row[2]} & candidates}
    seen = ends(train)
    aux = {
        (h, r, t) for h, r, t in source["train"] if (h in candidates and t in seen) or (t in candidates and h in seen)
    }
    arrived = candidates & ends(aux)
    if both_new:
        test = {row for row in drawn if row[0] in arrived and row[2] in arrived}
    else:
        test = {(h, r, t) for h, r, t in drawn if (h in arrived and t in seen) or (t in arrived and h in seen)}
    valid = {row for row in source["valid"] if row[0] in seen and row[2] in seen}
    return {"train": train, "aux": aux, "valid": valid, "test": test}


def sets(dataset: InductiveDataset) -> dict[str, set[Row]]:
    return {role: set(rows) for role, rows in parts_by_name(dataset).items()}


def named(dataset: InductiveDataset, triples: TripleArray) -> list[Row]:
    entities, relations = list(dataset.entities), list(dataset.relations)
    return [(entities[h], relations[r], entities[t]) for h, r, t in triples.rows.tolist()]


@given(
    GRAPHS, SIDES, st.sampled_from([{"rate": 10}, {"rate": 50.0}, {"rate": 100}, {"triples": 1}, {}]), st.integers(0, 3)
)
@settings(max_examples=200)
def test_a_split_is_what_the_rule_says(graph, side: str, amount: dict[str, float], seed: int) -> None:  # type: ignore[no-untyped-def]
    dataset = make_dataset(train=graph[0], valid=graph[1], test=graph[2])
    rule = SplitRule(side, seed=seed, **amount)  # type: ignore[arg-type]
    drawn = named(dataset, dataset.test.take(split._draw(len(dataset.test), rule)))
    columns = {"subject": (0,), "object": (2,), "both": (0, 2)}[side]
    expected = by_the_rule(parts_by_name(dataset), drawn, {row[c] for row in drawn for c in columns}, side == "both")
    if not expected["train"]:
        assert isinstance(complaint(split_graph, dataset, rule), DatasetError)
        return
    result = split_graph(dataset, rule)
    assert sets(result) == expected
    assert ends(expected["aux"]) - ends(expected["train"]) == {result.entities[i] for i in result.newcomers}


@given(GRAPHS, st.sets(ENTITY, max_size=5), SIDES)
@settings(max_examples=200)
def test_a_split_around_given_newcomers_asks_all_their_test_triples(graph, newcomers: set[str], side: str) -> None:  # type: ignore[no-untyped-def]
    dataset = make_dataset(train=graph[0], valid=graph[1], test=graph[2])
    newcomers &= set(dataset.entities)
    expected = by_the_rule(parts_by_name(dataset), graph[2], newcomers, both_new=False)
    assume(expected["train"])
    ids = dataset.entities.ids(sorted(newcomers))
    assert sets(split_graph(dataset, SplitRule(side), ids)) == expected


@given(GRAPHS, st.sets(ENTITY, max_size=5), st.booleans())
@settings(max_examples=100)
def test_test_triples_that_are_not_drawn_can_be_kept_for_training(
    graph, newcomers: set[str], given_names: bool
) -> None:  # type: ignore[no-untyped-def]
    dataset = make_dataset(train=graph[0], valid=graph[1], test=graph[2])
    rule, ids = SplitRule("subject", rate=40, keep_test=True), None
    drawn = named(dataset, dataset.test.take(split._draw(len(dataset.test), rule)))
    arriving = {head for head, _, _ in drawn}
    if given_names:
        arriving = newcomers & set(dataset.entities)
        ids = dataset.entities.ids(sorted(arriving))
        drawn = [row for row in graph[2] if {row[0], row[2]} & arriving]
    parts = parts_by_name(dataset)
    parts["train"] = [*parts["train"], *(row for row in graph[2] if row not in drawn)]
    expected = by_the_rule(parts, drawn, arriving, both_new=False)
    assume(expected["train"])
    assert sets(split_graph(dataset, rule, ids)) == expected


@given(GRAPHS, SIDES)
@settings(max_examples=100)
def test_a_split_is_found_again_from_the_entities_its_train_lacks(graph, side: str) -> None:  # type: ignore[no-untyped-def]
    dataset = make_dataset(train=graph[0], valid=graph[1], test=graph[2])
    try:
        published = split_graph(dataset, SplitRule(side, rate=40))
    except DatasetError:
        assume(False)
    assert_found_again(dataset, published)


def assert_found_again(original: InductiveDataset, published: InductiveDataset) -> None:
    """The aux newcomers alone would not do: candidates among candidates only occur in no file."""
    seen = ends(published.observed.named())
    newcomers = original.entities.ids([name for name in original.entities if name not in seen])
    again, expected = sets(split_graph(original, SplitRule(), newcomers)), sets(published)
    assert all(again[role] == expected[role] for role in ("train", "aux", "valid"))
    assert again["test"] >= {(h, r, t) for h, r, t in expected["test"] if h in seen or t in seen}


@needs_data
@pytest.mark.parametrize("name", ["fb15k-subject-5", "fb15k-subject-10", "fb15k-object-5", "fb15k-object-10"])
def test_the_published_splits_come_out_exactly(name: str) -> None:
    published = read_dataset(Path(DATA) / name).dataset
    assert len(published.test) and len(published.newcomers)
    assert_found_again(read_dataset(Path(DATA) / "fb15k").dataset, published)


def chain(length: int) -> list[tuple[str, str, str]]:
    return [(f"e{i:03}", "r", f"e{i + 1:03}") for i in range(length)]


@pytest.mark.parametrize(
    ("amount", "size"), [({"rate": 10}, 6), ({}, 6), ({"rate": 0.1}, 1), ({"triples": 17}, 17), ({"rate": 100}, 60)]
)
def test_so_many_test_triples_are_drawn_each_once(amount: dict[str, float], size: int) -> None:
    drawn = split._draw(60, SplitRule(**amount))  # type: ignore[arg-type]
    assert len(drawn) == len(set(drawn.tolist())) == size and set(drawn.tolist()) <= set(range(60))


def test_the_seed_decides_the_draw() -> None:
    dataset = make_dataset(train=chain(200), test=[(h, "s", t) for h, _, t in chain(100)])
    first, again, other = (sets(split_graph(dataset, SplitRule(rate=20, seed=seed))) for seed in (5, 5, 6))
    assert first == again != other and first["test"]


def test_a_graph_without_test_triples_is_held_out_first() -> None:
    dataset = make_dataset(train=chain(400), valid=[("e000", "v", "e001")])
    held = hold_out(dataset, seed=1)
    found = sets(held)
    assert found["train"] | found["test"] | (found["valid"] - {("e000", "v", "e001")}) == set(chain(400))
    assert not found["train"] & found["test"] and ("e000", "v", "e001") in found["valid"]
    assert len(held.test) == 40 and len(held.valid) == 20 + 1
    assert sets(split_graph(dataset, SplitRule(rate=50, seed=1))) == sets(split_graph(held, SplitRule(rate=50, seed=1)))
    assert sets(hold_out(dataset, seed=2)) != found == sets(hold_out(dataset, seed=1))


def test_false_test_triples_are_never_drawn() -> None:
    source = make_dataset(train=chain(30), test=[("e001", "s", "e020"), ("e002", "s", "e021")])
    test = TripleArray(source.test.heads, source.test.relations, source.test.tails, np.array([0, 1], dtype=np.int8))
    labelled = InductiveDataset("labelled", source.observed, source.auxiliary, source.valid, test)
    result = split_graph(labelled, SplitRule(rate=100))
    assert {result.entities[i] for i in result.newcomers} == {"e002"}


def test_facts_of_earlier_newcomers_go_back_into_the_graph_first() -> None:
    links = chain(60)
    test = [("e003", "s", "e030"), ("e050", "s", "e010")]
    parted = make_dataset(train=links[:40], aux=links[40:], valid=[("e001", "v", "e055")], test=test)
    whole = make_dataset(train=links, valid=[("e001", "v", "e055")], test=test)
    rule = SplitRule(rate=50, seed=2)
    assert sets(split_graph(parted, rule)) == sets(split_graph(whole, rule))
    assert sets(split_graph(parted, rule))["aux"]


def test_what_cannot_be_split_says_why() -> None:
    star = make_dataset(train=[("a", "r", f"t{i}") for i in range(5)], test=[("a", "r", "t9")])
    assert "every training triple touches a newcomer" in str(complaint(split_graph, star, SplitRule(rate=100)))
    assert "6 triples cannot be drawn from the 1 of test" in str(complaint(split_graph, star, SplitRule(triples=6)))
    tiny = make_dataset(train=[("a", "r", "b")])
    assert "only 1 to draw them from" in str(complaint(split_graph, tiny, SplitRule()))


@pytest.mark.parametrize(
    "rule",
    [
        {"unseen": "subjct"},
        {"rate": 0},
        {"rate": -1},
        {"rate": 100.1},
        {"rate": float("nan")},
        {"triples": 0},
        {"rate": 5, "triples": 5},
        {"seed": -1},
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule: dict[str, object]) -> None:
    assert isinstance(complaint(SplitRule, **rule), OptionError)


@pytest.mark.parametrize(("size", "tests", "valids"), [(2, 1, 0), (3, 1, 0), (9, 1, 0), (11, 1, 1), (30, 3, 2)])
def test_small_graphs_are_held_out_with_every_seed(size: int, tests: int, valids: int) -> None:
    dataset = make_dataset(train=chain(size))
    held = [hold_out(dataset, seed) for seed in range(30)]
    assert {(len(h.observed), len(h.valid), len(h.test)) for h in held} == {(size - tests - valids, valids, tests)}
    drawn = {frozenset(named(h, h.test)) for h in held}
    assert len(drawn) > 1
