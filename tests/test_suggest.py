"""Suggestions measured: figures counted by hand on made-up ones, and of a small model against what it would show."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint
from newcomer.data.cut import WithheldDataset
from newcomer.errors import DatasetError
from newcomer.evaluation.calibration import calibration_error
from newcomer.evaluation.measure import Evaluation
from newcomer.evaluation.suggest import (
    BREAKDOWNS,
    FIRST,
    FREQUENCY,
    LEVELS,
    MODEL,
    RULES,
    SHOWN,
    Suggested,
    SuggestionTest,
    by_known_facts,
    by_relation,
    recall_at,
    suggestion_figures,
    suggestion_test,
)
from newcomer.evaluation.verbs import Judged, VerbTest
from newcomer.graph import Graph, InductiveDataset, TripleArray, concatenate
from newcomer.models.bundle import Bundle, read_bundle, write_bundle
from newcomer.predictor import Predictor
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
NAMES = ["knows", "lives_in"]
Row = tuple[int, int, int, int, float, bool, bool]  # as the columns of `Suggested`
NOBODY = WithheldDataset.without(DATASET, np.zeros(len(DATASET.auxiliary), dtype=bool))


def suggested(rows: list[Row]) -> Suggested:
    types = (np.int32, np.int32, np.int32, np.int64, np.float64, bool, bool)
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    return Suggested(*(np.array(column, dtype=kind) for column, kind in zip(columns, types, strict=True)))


def made_up(rows: list[Row], known: list[int], missing: list[int]) -> SuggestionTest:
    """About newcomers 10, 12, 14 and so on."""
    newcomers = np.arange(10, 10 + 2 * len(known), 2, dtype=np.int32)
    counts = np.array(known, dtype=np.int32), np.array(missing, dtype=np.int32)
    verbs = VerbTest(Judged.of([]), Judged.of([]), dict.fromkeys(newcomers.tolist(), False))
    return SuggestionTest(NOBODY, "known", newcomers, *counts, NAMES, {MODEL: suggested(rows)}, True, verbs)


HAND: list[Row] = [
    (10, 0, 1, 0, 0.96, True, False),
    (10, 1, 2, 1, 0.92, False, True),
    (10, 2, 3, 2, 0.55, True, False),
    (10, 0, 5, FIRST, 0.5, True, True),  # the eleventh
    (12, 0, 1, 0, 0.75, False, False),
    (12, 3, 1, 1, 0.2, True, True),
]
TEST = made_up(HAND, [1, 3], [4, 2])


def test_figures_counted_by_hand():
    found = suggestion_figures(TEST, TEST.suggested[MODEL])
    metrics = found["metrics"]
    assert metrics["precision@0.5"] == 3 / 5 and metrics["recall@0.5"] == 3 / 6 and metrics["precision@0.9"] == 1 / 2
    # The ten likeliest of each: all but the eleventh.
    assert metrics["right"] == 3 / 5 and metrics["second_values"] == 2 / 5
    assert metrics["probability"] == pytest.approx((0.96 + 0.92 + 0.55 + 0.75 + 0.2) / 5)
    off = 2 * abs(0.94 - 0.5) + abs(0.55 - 1) + abs(0.75 - 0) + abs(0.2 - 1)
    assert metrics["ece"] == pytest.approx(off / 5)
    counts = {row["from"]: row for row in found["thresholds"]}
    assert tuple(counts) == LEVELS
    first, three, ten = found["by_k"]
    assert [one["k"] for one in found["by_k"]] == [1, 3, FIRST] and three["answers"] == ten["answers"] == 5
    assert {name: ten[name] for name in ("right", "probability", "ece")} == {
        name: metrics[name] for name in ("right", "probability", "ece")
    }
    assert (first["answers"], first["right"]) == (2, 1 / 2) and first["probability"] == pytest.approx(0.855)
    assert first["ece"] == pytest.approx((abs(0.96 - 1) + 0.75) / 2)
    assert [one["answers"] for one in first["bins"]] == [1, 1]
    off = 2 * abs(0.94 - 0.5) + 2 * abs(0.525 - 1) + 0.75
    assert counts[0.5].pop("ece") == pytest.approx(off / 5)
    assert [one["answers"] for one in counts[0.5].pop("bins")] == [2, 1, 2]
    assert counts[0.5] == {
        "from": 0.5,
        "suggestions": 5,
        "right": 3 / 5,
        "probability": pytest.approx((0.96 + 0.92 + 0.55 + 0.5 + 0.75) / 5),
        "recall": 3 / 6,
        "second_values": 2 / 5,
    }
    assert [counts[level]["suggestions"] for level in LEVELS] == [5, 3, 3, 2, 2, 1]
    assert [counts[level]["recall"] for level in LEVELS] == pytest.approx([3 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6])
    assert counts[0.9]["second_values"] == 1 / 2 and counts[0.95]["second_values"] == 0
    assert [row["answers"] for row in found["bins"]] == [1, 2, 1, 2]
    assert [row["answers"] for row in found["bins_first"]] == [1, 1, 1, 2]


def test_rows_by_hand():
    bare, rich = by_known_facts(TEST, TEST.suggested[MODEL])
    assert bare["by"] == "facts" and (bare["group"], rich["group"]) == ("1", "2-5")
    assert (bare["newcomers"], bare["suggestions"], bare["right"], bare["recall"]) == (1, 4, 3 / 4, 3 / 4)
    assert (rich["newcomers"], rich["suggestions"], rich["right"], rich["recall"]) == (1, 1, 0, 0)
    assert rich["ece"] == pytest.approx((0.75 + 0.8) / 2) and rich["probability"] == 0.75
    rows = by_relation(TEST, TEST.suggested[MODEL])
    assert [(row["group"], row["asked"], row["suggestions"]) for row in rows] == [
        ("knows", "tail", 3),
        ("knows", "head", 1),
        ("lives_in", "tail", 1),
    ]
    assert rows[0]["right"] == pytest.approx(2 / 3) and rows[0]["probability"] == pytest.approx((0.96 + 0.5 + 0.75) / 3)


def test_of_nothing_there_are_no_figures():
    test = made_up([], [2], [0])
    figures = suggestion_figures(test, test.suggested[MODEL])
    assert np.isnan(figures["metrics"]["precision@0.5"]) and figures["metrics"]["recall@0.5"] == 0
    assert figures["bins"] == [] and by_relation(test, test.suggested[MODEL]) == []
    assert recall_at(test, test.suggested[MODEL], 0.5) == 0


ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 99), st.sampled_from([0.1, 0.5, 0.7, 0.95]))
    | st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 99), st.floats(0, 1)),
    max_size=30,
)


@st.composite
def any_suggestions(draw) -> SuggestionTest:
    """Any suggestions, in the order in which they are made."""
    rows: list[Row] = []
    drawn = sorted(draw(ROWS), key=lambda row: (row[0], -row[3]))
    for newcomer, relation, answer, probability in drawn:
        place = sum(row[0] == 10 + 2 * newcomer for row in rows)
        rows.append((10 + 2 * newcomer, relation, answer, place, probability, draw(st.booleans()), draw(st.booleans())))
    right = [sum(row[5] for row in rows if row[0] == 10 + 2 * one) for one in range(5)]
    return made_up(rows, draw(st.lists(st.integers(0, 200), min_size=5, max_size=5)), [one + 1 for one in right])


@given(any_suggestions())
def test_rows_add_up(test):
    found = test.suggested[MODEL]
    likely, total = found.where(found.probability >= 0.5), test.missing.sum()
    facts, relations = (BREAKDOWNS[by](test, found) for by in ("facts", "relation"))
    assert sum(row["newcomers"] for row in facts) == len(test.newcomers)
    for rows in (facts, relations):
        assert sum(row["suggestions"] for row in rows) == len(likely.right)
        hits = sum(row["right"] * row["suggestions"] for row in rows if row["suggestions"])
        assert hits == pytest.approx(likely.right.sum())
        assert sum(row["probability"] * row["suggestions"] for row in rows if row["suggestions"]) == pytest.approx(
            likely.probability.sum()
        )
    assert [row["suggestions"] for row in relations] == sorted((row["suggestions"] for row in relations), reverse=True)
    metrics = suggestion_figures(test, found)["metrics"]
    assert metrics["recall@0.5"] == pytest.approx(likely.right.sum() / total)
    first = found.where(found.place < FIRST)
    if len(first.right):
        assert metrics["ece"] == calibration_error(first.probability, first.right)
        assert metrics["right"] == first.right.mean() and metrics["second_values"] == first.second.mean()


@given(any_suggestions(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_recall_at_a_precision_is_the_best_of_all_beginnings(test, precision):
    found = test.suggested[MODEL]
    order = sorted(range(len(found.right)), key=lambda place: (-found.probability[place], place))
    hits = [int(found.right[order[:size]].sum()) for size in range(1, len(order) + 1)]
    enough = [one for size, one in enumerate(hits, 1) if one / size >= precision]
    assert recall_at(test, found, precision) == pytest.approx(max(enough, default=0) / test.missing.sum())


@cache
def trained(*changes: str) -> Bundle:
    with TemporaryDirectory() as folder:
        write_bundle(
            Path(folder) / "m", fit(DATASET, settings("training.epochs=1", *changes), threads=1).bundle(DATASET)
        )
        return read_bundle(Path(folder) / "m")


BLENDED = ("model.ensemble=yes", "model.constrained=no")


def measured(
    *changes: str, dataset: InductiveDataset = DATASET, full: Graph | None = None, most: int = 99, seed: int = 0
) -> SuggestionTest:
    evaluation = Evaluation(trained(*changes), dataset, torch.device("cpu"), 1, seed)
    return suggestion_test(evaluation, "known" if full is None else "full", full, most)


def named(test: SuggestionTest, newcomer: int, relation: int, answer: int) -> tuple[str, str, str]:
    """A suggested fact; the model has the names of this data set, and their ids."""
    size, name = len(DATASET.relations), DATASET.entities
    head, tail = (newcomer, answer) if relation < size else (answer, newcomer)
    return name[head], test.relations[relation % size], name[tail]


def facts_of(test: SuggestionTest, found: Suggested) -> list[tuple[str, str, str]]:
    columns = found.newcomer.tolist(), found.relation.tolist(), found.answer.tolist()
    return [named(test, *row) for row in zip(*columns, strict=True)]


def test_the_model_has_the_ids_of_its_data_set():
    names = trained(*BLENDED).observed.entities.names_of(np.arange(len(DATASET.entities)))
    assert names == list(DATASET.entities)


def test_what_is_suggested_is_what_a_user_would_be_shown():
    test, shown = measured(*BLENDED), Predictor(trained(*BLENDED), threads=1)
    for name in shown.newcomers:
        if name in shown:
            shown.remove(name)
    shown.add(test.dataset.auxiliary.named())
    mine = test.suggested[MODEL]
    for newcomer in test.newcomers.tolist():
        own = mine.where(mine.newcomer == newcomer)
        wanted = shown.suggest(DATASET.entities[newcomer], SHOWN)
        assert len(wanted) == len(own.right) == SHOWN and own.place.tolist() == list(range(SHOWN))
        assert {one.fact for one in wanted} == set(facts_of(test, own))
        np.testing.assert_allclose(own.probability, [one.probability for one in wanted], rtol=1e-4)


@pytest.mark.parametrize("name", [MODEL, RULES, FREQUENCY])
def test_right_is_what_is_true_and_not_known(name):
    test = measured(*BLENDED)
    known, true = set(test.dataset.known_facts().named()), set(DATASET.known().named())
    found = test.suggested[name]
    facts = facts_of(test, found)
    assert not set(facts) & known
    assert found.right.tolist() == [fact in true for fact in facts] and found.right.any()
    assert (np.diff(found.probability)[np.diff(found.newcomer) == 0] <= 0).all()
    newcomers = [DATASET.entities[one] for one in test.newcomers.tolist()]
    assert [sum(one in fact[::2] for fact in known) for one in newcomers] == test.known_facts.tolist()
    assert [sum(one in fact[::2] for fact in true - known) for one in newcomers] == test.missing.tolist()
    assert len(test.dataset.withheld) and test.calibrated and test.filter == "known"


def test_frequency_is_the_share_of_those_who_have_the_same_answer():
    test = measured(*BLENDED)
    found, observed = test.suggested[FREQUENCY], DATASET.observed
    size, seen = len(DATASET.relations), int(DATASET.is_seen.sum())
    for relation, answer, probability in zip(
        found.relation.tolist(), found.answer.tolist(), found.probability.tolist(), strict=True
    ):
        inverse = relation + size if relation < size else relation - size
        having = int((observed.adjacency.of(answer)[0] == inverse).sum())
        assert probability == pytest.approx(having / (seen + 1))


def test_second_values_are_those_of_functional_relations_that_are_filled():
    many = [(f"p{one:02}", "lives_in", f"q{one}") for one in range(4)]  # where one of them lives, others do
    test = measured(*BLENDED, dataset=world(aux=[*parts()["aux"], *many]))
    masked, observed = test.dataset, DATASET.observed
    owners, relations = observed.adjacency.owners, observed.adjacency.relations
    seen = set()
    for found in test.suggested.values():
        for newcomer, relation, second in zip(
            found.newcomer.tolist(), found.relation.tolist(), found.second.tolist(), strict=True
        ):
            counts = np.unique(owners[relations == relation], return_counts=True)[1]
            functional = ((counts > 1).sum() + 0.5) / (len(counts) + 1) <= 0.05
            filled = relation in masked.auxiliary.adjacency.of(newcomer)[0]
            assert second == (functional and filled)
            seen.add((bool(functional), bool(filled)))
    assert seen == {(True, True), (True, False), (False, True), (False, False)}


def test_more_is_right_where_more_is_true():
    plain = measured(*BLENDED)
    mine = plain.suggested[MODEL]
    wrong = facts_of(plain, mine.where(~mine.right))[0]
    row = [(DATASET.entities.id(wrong[0]), DATASET.relations.id(wrong[1]), DATASET.entities.id(wrong[2]))]
    stated = concatenate([DATASET.known().triples, TripleArray.of(row)])
    full = measured(*BLENDED, full=Graph.build(DATASET.entities, DATASET.relations, stated))
    about = full.suggested[MODEL]
    assert full.filter == "full" and facts_of(full, about) == facts_of(plain, mine)
    changed = [
        fact for fact, is_right in zip(facts_of(full, about), about.right != mine.right, strict=True) if is_right
    ]
    assert set(changed) == {wrong} and full.missing.sum() == plain.missing.sum() + len(changed)


def test_as_many_newcomers_as_are_asked_for_by_the_seed():
    assert len(measured(*BLENDED, most=2).newcomers) == 2
    one, same = (measured(*BLENDED, seed=3) for _ in range(2))
    assert np.array_equal(one.suggested[MODEL].probability, same.suggested[MODEL].probability)
    drawn = {tuple(sorted(measured(*BLENDED, seed=seed).dataset.auxiliary.named())) for seed in range(4)}
    assert len(drawn) > 1


def test_a_network_alone_has_nothing_beside_it_and_may_lack_calibration():
    test = measured("training.validation_rate=0", "rules.kinds=", "model.encoder=mean", "model.labels=none")
    assert not test.calibrated and len(test.suggested[MODEL].right) > 0
    assert len(test.suggested[RULES].right) == len(test.suggested[FREQUENCY].right) == 0


def test_newcomers_without_two_relations_cannot_be_asked_about():
    bare = world(aux=[row for row in parts()["aux"] if row[1] == "lives_in"])
    evaluation = Evaluation(trained(*BLENDED), replace(bare, name="bare"), torch.device("cpu"), 1, 0)
    error = complaint(suggestion_test, evaluation, "known", None, 9)
    assert isinstance(error, DatasetError) and "bare has no newcomer with facts along two relations" in str(error)
    assert "newcomer split" in str(error)
