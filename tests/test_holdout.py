"""The exam: cut out of the observed graph by the splitting rule, blind to test, asked in full or in part."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from conftest import complaint, make_dataset, parts_by_name
from newcomer.errors import DatasetError
from newcomer.evaluation.metrics import MEASURED
from newcomer.evaluation.ranking import align
from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray
from newcomer.training import holdout
from newcomer.training.holdout import HoldOut, drawn_rate, hold_out_newcomers, unseen_side
from training_world import citizen, parts, settings, world

DATASET = world()
OBSERVED = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]


class Oracle:
    """Knows what is true, with a preference among it."""

    def __init__(self, truth: Graph) -> None:
        self.truth = truth

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float64]:
        everyone = np.arange(self.truth.num_entities)
        rows = [self.truth.contains(e, r, everyone) for e, r in zip(entities, relations, strict=True)]
        return np.array(rows, dtype=np.float64)


def named(exam: HoldOut) -> list[tuple[str, str, str]]:
    names, relations = list(exam.dataset.entities), [*exam.dataset.relations]
    oriented = [*relations, *(f"-{name}" for name in relations)]
    asked = exam.queries
    columns = zip(asked.entity.tolist(), asked.relation.tolist(), asked.answer.tolist(), strict=True)
    return [(names[e], oriented[r], names[a]) for e, r, a in columns]


@pytest.mark.parametrize(
    ("test", "side"),
    [
        ([("new", "r", "a"), ("a", "r", "new"), ("new", "r", "b")], "subject"),
        ([("a", "r", "new"), ("b", "r", "new"), ("new", "r", "a")], "object"),
        ([("new", "r", "old"), ("old", "r", "new"), ("new", "r", "a")], "both"),
        ([("new", "r", "a"), ("a", "r", "new")], "subject"),
        ([("a", "r", "c")], "subject"),
        ([], "subject"),
    ],
)
def test_the_side_is_where_test_has_its_newcomers(test, side):
    aux = [("new", "r", "a"), ("old", "r", "a")]
    assert unseen_side(make_dataset(train=OBSERVED, aux=aux, test=test)) == side


@pytest.mark.parametrize("side", ["subject", "object", "both"])
def test_those_held_out_leave_the_graph_and_are_asked_about(side):
    # A fact that is asked has a newcomer at the side that was named, and its answer at the other.
    pairs = [(f"p{i:02}", "knows", f"p{(i * 7 + 1) % 24:02}") for i in range(24)]
    dataset = world(valid=pairs)
    rate = 20 if side == "both" else 30
    config = settings(f"training.validation_unseen={side}", f"training.validation_rate={rate}")
    exam = hold_out_newcomers(dataset, config)
    held, source = parts_by_name(exam.dataset), parts_by_name(dataset)
    assert exam.unseen == side and held["test"] and set(held["test"]) <= set(pairs)
    assert set(held["train"]) | set(held["aux"]) <= set(source["train"])
    arrived = set(exam.dataset.entities.names_of(exam.dataset.newcomers))
    assert arrived and not arrived & {name for h, _, t in held["train"] for name in (h, t)}
    for head, _, tail in held["test"]:
        assert (head in arrived, tail in arrived) == (side != "object", side != "subject")
    asked = 2 if side == "both" else 1
    assert len(exam.queries) == asked * len(held["test"]) and set(exam.queries.group.tolist()) == {"newcomer"}


def test_neither_test_nor_newcomers_facts_are_looked_at():
    rows = parts()
    other = world(
        test=[("q1", "knows", "p00"), ("q1", "lives_in", "city0"), ("q3", "citizen_of", "land0")],
        aux=[("q1", "knows", "p01"), ("p04", "citizen_of", "q3"), *rows["aux"][2:]],
    )
    one, two = (hold_out_newcomers(data, settings()) for data in (DATASET, other))
    assert parts_by_name(one.dataset) == parts_by_name(two.dataset)
    assert named(one) == named(two)
    everything = {*parts_by_name(one.dataset)["train"], *parts_by_name(one.dataset)["aux"]}
    assert not everything & {*rows["aux"], *rows["test"], *rows["valid"]}


def test_another_seed_holds_out_others():
    drawn = {tuple(named(hold_out_newcomers(DATASET, settings(f"seed={seed}")))) for seed in range(6)}
    assert len(drawn) > 2
    assert named(hold_out_newcomers(DATASET, settings())) == named(hold_out_newcomers(DATASET, settings()))


def test_at_most_so_many_questions_are_asked():
    config = settings("training.validation_rate=100", "training.validation_queries=none")
    everything = named(hold_out_newcomers(DATASET, config))
    few = named(hold_out_newcomers(DATASET, settings("training.validation_rate=100", "training.validation_queries=2")))
    assert len(everything) > 4 and len(few) == 2 and set(few) <= set(everything)
    enough = settings("training.validation_rate=100", f"training.validation_queries={len(everything)}")
    assert named(hold_out_newcomers(DATASET, enough)) == everything


def test_without_valid_triples_some_of_the_observed_ones_are_asked():
    for dataset in (world(valid=[]), world(valid=[("q0", "knows", "q1")])):
        exam = hold_out_newcomers(dataset, settings())
        held = parts_by_name(exam.dataset)
        assert held["test"] and set(held["test"]) <= set(parts_by_name(dataset)["train"])
        assert not set(held["test"]) & {*held["train"], *held["aux"]}


def test_false_valid_triples_are_not_asked():
    labels = np.zeros(len(DATASET.valid), dtype=np.int8)
    labels[2] = 1
    labelled = replace(DATASET, valid=TripleArray(*DATASET.valid.rows.T, labels))
    exam = hold_out_newcomers(labelled, settings("training.validation_rate=100"))
    assert [row[:3] for row in parts_by_name(exam.dataset)["test"]] == [citizen("p08", 8)]


def labelled_town(side: str) -> InductiveDataset:
    """Everybody knows someone; valid and test say which of such facts are true."""
    people = [f"p{i:02}" for i in range(24)]
    train = [*parts()["train"], ("p03", "likes", "hermit")]
    valid = [(name, "knows", people[(i * 7 + 1) % 24]) for i, name in enumerate(people)]
    test = {
        "subject": [("q0", "knows", "p01"), ("q1", "knows", "p02")],
        "object": [("p01", "knows", "q0"), ("p02", "knows", "q1")],
        "both": [("q0", "knows", "q1"), ("q1", "knows", "q0")],
    }[side]
    dataset = world(train=train, valid=valid, test=test)
    labels = np.arange(len(dataset.valid), dtype=np.int8) % 2
    asked = TripleArray(*dataset.test.rows.T, np.array([1, 0], dtype=np.int8))
    return replace(dataset, valid=TripleArray(*dataset.valid.rows.T, labels), test=asked)


@pytest.mark.parametrize("side", ["subject", "object", "both"])
def test_where_test_says_what_is_false_the_exam_does_too(side):
    dataset = labelled_town(side)
    exam = hold_out_newcomers(dataset, settings("training.validation_rate=20"))
    held, source = parts_by_name(exam.dataset), parts_by_name(dataset)
    assert exam.unseen == side and exam.has_labels
    assert {label for *_, label in held["test"]} == {"0", "1"} and set(held["test"]) <= set(source["valid"])
    arrived = set(exam.dataset.entities.names_of(exam.dataset.newcomers))
    drawn = {h for h, *_ in held["test"]} if side != "object" else set()
    drawn |= {t for _, _, t, _ in held["test"]} if side != "subject" else set()
    assert drawn <= arrived
    # Of the facts of those who were drawn the ones that tie two of them are gone, all others are told.
    expected = [row for row in source["train"] if len({row[0], row[2]} & drawn) == 1]
    assert held["aux"] == expected
    assert held["train"] == [row for row in source["train"] if not {row[0], row[2]} & drawn]
    if "p03" in drawn:
        assert "hermit" in arrived  # whose only fact it was
    # The questions are those of the true ones.
    asked = {tuple(sorted((entity, answer))) for entity, _, answer in named(exam)}
    assert asked == {tuple(sorted((h, t))) for h, _, t, label in held["test"] if label == "1"}


class TripleOracle:
    """Scores a true triple of an exam with 1 or, where it is turned round, with 0."""

    def __init__(self, exam: HoldOut, sign: float) -> None:
        self.true = {tuple(row) for row in exam.dataset.test.positives.rows.tolist()}
        self.sign = sign

    def triple_scores(self, heads: Ids, relations: Ids, tails: Ids) -> npt.NDArray[np.float64]:
        rows = zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)
        return np.array([self.sign * (row in self.true) for row in rows])


def test_who_tells_true_from_false_is_judged_so():
    exam = hold_out_newcomers(labelled_town("subject"), settings("training.validation_rate=100"))
    assert exam.classification_metrics(TripleOracle(exam, 1.0), 0) == {"auc": 1.0, "accuracy": 1.0}
    upside_down = exam.classification_metrics(TripleOracle(exam, -1.0), 0)
    assert upside_down["auc"] == 0.0 and upside_down["accuracy"] < 0.7


def test_an_exam_of_one_kind_asks_as_without_labels():
    dataset = labelled_town("subject")
    only_true = TripleArray(*dataset.valid.rows.T, np.ones(len(dataset.valid), dtype=np.int8))
    assert not hold_out_newcomers(replace(dataset, valid=only_true), settings()).has_labels


@pytest.mark.parametrize("train", [OBSERVED[:1], OBSERVED[:2], [("a", "r", "b"), ("a", "s", "b")]])
def test_a_graph_too_small_to_hold_anyone_out_says_what_to_do(train):
    error = complaint(hold_out_newcomers, make_dataset(train=train), settings())
    assert isinstance(error, DatasetError)
    assert "no newcomers to validate on can be held out" in str(error)
    assert "set training.validation_rate=0" in str(error)


def test_a_scorer_that_knows_everything_passes():
    exam = hold_out_newcomers(DATASET, settings())
    figures = exam.ranking_metrics(Oracle(exam.dataset.known()))
    assert figures == {"mrr": 1.0, "hits@1": 1.0, "hits@3": 1.0, "hits@10": 1.0, "mr": 1.0}
    assert exam.ranking_metrics(Oracle(exam.dataset.observed))["mrr"] < 0.5


def test_with_all_that_is_true_there_is_a_second_filter():
    more = [(f"p{i:02}", "citizen_of", "land0") for i in range(24)]
    full = world(train=[*parts()["train"], *more]).known()
    exam = hold_out_newcomers(DATASET, settings(), full)
    assert exam.full is not None and exam.full.entities == exam.dataset.entities
    figures = exam.ranking_metrics(Oracle(align(full, exam.dataset)))
    assert set(figures) == {*MEASURED, *(f"full_{name}" for name in MEASURED)}
    assert figures["full_mrr"] == 1.0 and figures["mrr"] < 1.0


def test_no_more_triples_are_drawn_than_are_enough(monkeypatch):
    config, dataset = settings("training.validation_rate=50"), world()
    assert drawn_rate(dataset, config) == 50
    monkeypatch.setattr(holdout, "MOST_DRAWN", 2)
    assert drawn_rate(dataset, config) == pytest.approx(100 * 2 / 6)  # of six valid triples
    assert len(hold_out_newcomers(dataset, config).dataset.test) <= 2
    alone = world(valid=[])  # a tenth of 72 facts stands in for them
    assert drawn_rate(alone, config) == pytest.approx(100 * 2 / 7.2)
