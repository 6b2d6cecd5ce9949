"""What each command says of the same newcomers: figures by hand, and of a small model against its commands."""

from collections import defaultdict
from functools import cache

import numpy as np
import pytest
import torch

from newcomer.data.cut import FactsCut
from newcomer.evaluation.calibration import calibration_error
from newcomer.evaluation.measure import Evaluation
from newcomer.evaluation.suggest import FIRST, MODEL, SHOWN, SuggestionTest, by_verb, suggestion_test
from newcomer.evaluation.suggestions import RELATIONS
from newcomer.evaluation.verbs import PREDICTED, Judged, VerbTest, verb_figures
from newcomer.models.bundle import Bundle
from newcomer.predictor import Predictor
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import NEWCOMERS, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
MORE = [(f"q{i}", "knows", f"p{i + step:02}") for i in range(NEWCOMERS) for step in (5, 9)]
DATASET = world(aux=[*parts()["aux"], *MORE, ("q0", "knows", "q1")])
Fact = tuple[str, str, str]


def test_figures_counted_by_hand():
    predicted = [(5, 0, 1, 0.9, True), (5, 0, 2, 0.05, False), (6, 1, 2, 0.08, True)]
    classified = [(5, 0, 1, 0.9, True), (5, 0, 2, 0.6, False), (6, 1, 2, 0.2, True), (6, 1, 3, 0.1, False)]
    test = VerbTest(Judged.of(predicted), Judged.of(classified), {5: True, 6: False, 7: False})
    about, probability = np.array([5, 5, 6, 7]), np.array([0.9, 0.3, 0.4, 0.2])
    found = verb_figures(test, about, probability, np.array([True, False, True, False]))
    assert (found["predict"]["answers"], found["predict"]["right"]) == (3, pytest.approx(2 / 3))
    assert found["predict"]["ece"] == pytest.approx((0.1 + 2 * abs(0.065 - 0.5)) / 3)
    triples = found["classify"]
    assert (triples["answers"], triples["right"], triples["accuracy"]) == (4, 0.5, 0.5)
    assert (triples["true"]["answers"], triples["true"]["right"]) == (2, 0.5)
    assert triples["true"]["probability"] == pytest.approx(0.75) and triples["false"]["right"] == 0.5
    enough, few = found["confidence"]["enough"], found["confidence"]["too_few"]
    assert (enough["newcomers"], enough["answers"], enough["right"]) == (1, 2, 0.5)
    assert (few["newcomers"], few["answers"], few["probability"]) == (2, 2, pytest.approx(0.3))
    assert [row["answers"] for row in few["bins"]] == [1, 1] and [row["right"] for row in few["bins"]] == [0.0, 1.0]


def test_of_nothing_there_are_no_figures():
    none = np.empty(0)
    found = verb_figures(VerbTest(Judged.of([]), Judged.of([]), {}), none, none, none.astype(bool))
    assert found["predict"]["answers"] == found["classify"]["true"]["answers"] == 0
    assert found["confidence"]["enough"]["newcomers"] == 0 and np.isnan(found["confidence"]["enough"]["right"])


@cache
def trained() -> Bundle:
    changes = ("model.ensemble=yes", "model.constrained=no", "training.epochs=1")
    return fit(DATASET, settings(*changes), threads=1).bundle(DATASET)


@cache
def measured(cut: FactsCut | None = None) -> SuggestionTest:
    evaluation = Evaluation(trained(), DATASET, torch.device("cpu"), 1, 0, cut)
    return suggestion_test(evaluation, "known", None, 99)


@cache
def shown() -> Predictor:
    """The model with what is left of the newcomers' facts."""
    model = Predictor(trained(), threads=1)
    for name in model.newcomers:
        if name in model:
            model.remove(name)
    model.add(measured().dataset.auxiliary.named())
    return model


def rows_of(judged: Judged) -> dict[tuple[str, int], list[tuple[Fact, float, bool]]]:
    """The facts of each question with their figures; the model has the ids of its data set."""
    names, size, found = DATASET.entities, len(DATASET.relations), defaultdict(list)
    for newcomer, relation, answer, probability, right in zip(
        *(column.tolist() for column in vars(judged).values()), strict=True
    ):
        head, tail = (newcomer, answer) if relation < size else (answer, newcomer)
        fact = names[head], DATASET.relations[relation % size], names[tail]
        found[names[newcomer], relation].append((fact, probability, right))
    return found


def test_predicted_is_what_each_question_would_be_answered_by():
    rows, size, model = rows_of(measured().verbs.predicted), len(DATASET.relations), shown()
    assert len(rows) == len(measured().newcomers) * min(RELATIONS, 2 * size)
    for (entity, relation), found in rows.items():
        name = DATASET.relations[relation % size]
        if relation < size:
            wanted = [((entity, name, one.entity), one.probability) for one in model.tails(entity, name, PREDICTED)]
        else:
            wanted = [((one.entity, name, entity), one.probability) for one in model.heads(name, entity, PREDICTED)]
        assert {fact for fact, _, _ in found} == {fact for fact, _ in wanted}
        probabilities = {fact: probability for fact, probability, _ in found}
        assert probabilities == pytest.approx(dict(wanted), rel=1e-4)


def test_classified_are_the_masked_facts_and_what_predict_lists_beside_them():
    test, size = measured(), len(DATASET.relations)
    predicted, rows = rows_of(test.verbs.predicted), rows_of(test.verbs.classified)
    hidden, newcomers = defaultdict(set), [DATASET.entities[one] for one in test.newcomers.tolist()]
    for fact in withheld(test):
        for entity, relation in ((fact[0], 0), (fact[2], size)):
            if entity in newcomers:
                hidden[entity, relation + DATASET.relations.id(fact[1])].add(fact)
    assert set(rows) == set(hidden) and any(len(entities_of(fact) & set(newcomers)) == 2 for fact in withheld(test))
    for question, found in rows.items():
        beside = {fact for fact, _, _ in predicted.get(question, ())}
        assert {fact for fact, _, _ in found} == hidden[question] | beside
        assert len(found) == len({fact for fact, _, _ in found})
        verdicts = shown().classify([fact for fact, _, _ in found])
        assert [one.probability for one in verdicts] == pytest.approx([row[1] for row in found], rel=1e-4)
    true = set(DATASET.known().named()) - set(test.dataset.known_facts().named())
    for judged in (test.verbs.predicted, test.verbs.classified):
        assert all(right is (fact in true) for found in rows_of(judged).values() for fact, _, right in found)


def withheld(test: SuggestionTest) -> list[Fact]:
    """The facts that were masked."""
    return sorted(set(DATASET.auxiliary.named()) - set(test.dataset.auxiliary.named()))


def entities_of(fact: Fact) -> set[str]:
    return {fact[0], fact[2]}


def test_enough_is_what_confidence_says():
    test, model = measured(), shown()
    said = {DATASET.entities[one]: enough for one, enough in test.verbs.enough.items()}
    assert said == {name: model.confidence(name).enough for name in said}
    assert set(test.verbs.enough) == set(test.newcomers.tolist())


def test_the_ten_likeliest_are_split_by_what_confidence_says():
    test = measured()
    found, mine = by_verb(test), test.suggested[MODEL]
    groups = found["confidence"]
    assert groups["enough"]["newcomers"] + groups["too_few"]["newcomers"] == len(test.newcomers)
    first = mine.where(mine.place < FIRST)
    assert groups["enough"]["answers"] + groups["too_few"]["answers"] == len(first.right)
    assert found["predict"]["ece"] == calibration_error(test.verbs.predicted.probability, test.verbs.predicted.right)
    assert len(mine.right) == SHOWN * len(test.newcomers)


def test_what_a_cut_withholds_was_not_masked():
    cut = measured(FactsCut(2))
    asked = {fact for found in rows_of(cut.verbs.classified).values() for fact, _, _ in found}
    kept = set(FactsCut(2).of(DATASET).auxiliary.named())
    masked = kept - set(cut.dataset.auxiliary.named())
    assert masked and masked <= asked
    questions = {(end, fact[1], side) for fact in masked for side, end in enumerate(fact[::2])}
    size = len(DATASET.relations)
    for entity, relation in rows_of(cut.verbs.classified):
        assert (entity, DATASET.relations[relation % size], relation // size) in questions
