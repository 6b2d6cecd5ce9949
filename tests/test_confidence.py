"""How much a model knows of an entity: counted facts, validation figures, and what the rules need next.

Covers newcomer.predictor.confidence and newcomer.predictor.classifier (with tests/test_predictor.py).
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from conftest import complaint, named_graph
from newcomer.models.bundle import write_bundle
from newcomer.predictor import Confidence, Expected, Lesson, Predictor, Suggestion, load
from newcomer.predictor.confidence import RelationCooccurrence, RuleReach
from newcomer.predictor.fact_store import Names
from newcomer.rules.grounding import RuleIndex
from newcomer.rules.rule import Kind, Rule, RuleSet
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world(aux=[*parts()["aux"], ("q0", "knows", "q1"), ("q2", "knows", "q1"), ("q3", "knows", "q3")])
ROWS = [("a", "borders", "b"), ("a", "speaks", "l"), ("b", "speaks", "l"), ("b", "in", "c"), ("c", "in", "c")]
GRAPH = named_graph(ROWS)
BORDERS, SPEAKS, IN = (GRAPH.relations.id(name) for name in ("borders", "speaks", "in"))
SIZE = len(GRAPH.relations)
NAMES = Names(GRAPH.entities, GRAPH.relations, GRAPH.num_entities)


def mask(*relations: int) -> np.ndarray:
    has = np.zeros(2 * SIZE, dtype=bool)
    has[list(relations)] = True
    return has


def teaching(*rules: Rule) -> RuleReach:
    listed = RuleSet.of(rules, SIZE)
    return RuleReach.of(RuleIndex(listed, listed.smoothed_confidence), SIZE)


def two(head: int, first: int, second: int, support: int, body: int) -> Rule:
    return Rule(Kind.TWO, head, first, second, support=support, body_size=body, pca_body_size=body, head_size=99)


def test_the_lesson_is_the_relation_from_which_rules_lead_to_more_right_answers():
    rules = teaching(
        two(IN, BORDERS, IN, 15, 20),  # smoothed: 0.6
        two(IN, BORDERS, SPEAKS, 5, 20),  # a weaker way to the same
        two(SPEAKS, BORDERS, SPEAKS, 5, 20),  # 0.2
        two(IN, SPEAKS, BORDERS, 10, 20),  # 0.4: known already, so that borders adds only 0.2
    )
    likely = np.zeros(2 * SIZE)
    likely[[BORDERS, SPEAKS, IN]] = 0.5, 1.0, 0.8
    lessons = rules.lessons(mask(SPEAKS), likely, "x", NAMES)
    assert [lesson.question for lesson in lessons] == ["borders(x, ?)"]
    assert lessons[0].gain == pytest.approx(0.5 * 0.8 * (0.6 - 0.4))  # what it speaks is known
    assert lessons[0].opens == (("in(x, ?)", pytest.approx(0.6)),)
    assert str(lessons[0]) == "borders(x, ?), from which rules lead to in(x, ?) (confidence 0.60)"
    nothing_known = rules.lessons(mask(), likely, "x", NAMES)
    assert nothing_known[0].gain == pytest.approx(0.5 * (0.8 * 0.6 + 1.0 * 0.2))
    assert nothing_known[0].gain > nothing_known[1].gain == pytest.approx(1.0 * 0.8 * 0.4)
    assert rules.lessons(mask(BORDERS, SPEAKS, IN), likely, "x", NAMES) == ()


def test_rules_that_restate_a_fact_about_the_same_two_teach_nothing():
    restating = Rule(Kind.ONE, IN, BORDERS, support=9, body_size=9, pca_body_size=9, head_size=9)
    assert teaching(restating).lessons(mask(), np.ones(2 * SIZE), "x", NAMES) == ()
    assert RuleReach.of(None, SIZE).lessons(mask(), np.ones(2 * SIZE), "x", NAMES) == ()


def test_a_rule_teaches_from_both_of_its_ends():
    lessons = teaching(two(IN, BORDERS, SPEAKS, 5, 5)).lessons(mask(), np.ones(2 * SIZE), "x", NAMES)
    assert {lesson.question: lesson.opens[0][0] for lesson in lessons} == {
        "borders(x, ?)": "in(x, ?)",
        "speaks(?, x)": "in(?, x)",
    }


def test_company_counts_by_what_is_in_common():
    counts, total = RelationCooccurrence.of(GRAPH).counts(mask(SPEAKS, BORDERS))
    # a has both, b one (and the inverse of borders), the others none
    assert total == 3
    wanted = np.zeros(2 * SIZE)
    wanted[[BORDERS, SPEAKS, IN, BORDERS + SIZE]] = 2, 3, 1, 1
    assert counts.tolist() == wanted.tolist()


@cache
def predictor() -> Predictor:
    fitted = fit(DATASET, settings("model.ensemble=yes", "model.constrained=no", "training.epochs=1"), device="cpu")
    with TemporaryDirectory() as folder:
        write_bundle(Path(folder) / "m", fitted.bundle(DATASET))
        return load(Path(folder) / "m", threads=1)


def test_confidence_counts_facts_and_says_how_such_newcomers_fared():
    model = predictor()
    found = model.confidence("q1")
    assert (found.entity, found.facts, found.like) == ("q1", 4, "2-5") and found.calibrated
    asked, right = model.calibration.first_right["2-5"]
    assert found.questions == asked > 0 and found.right == right / asked
    assert model.confidence("q3").facts == 3  # to know oneself is one fact
    stated = [row for row in model.bundle.observed.named() if "p05" in row]
    assert model.confidence("p05").facts == len(stated)
    assert "is not known" in str(complaint(model.confidence, "nobody"))


def test_what_is_expected_is_told_for_each_question_that_suggestions_ask():
    model = predictor()
    size, found = len(model.relations), model.confidence("q1").expected
    asked = {one.question: one for one in found}
    assert len(asked) == len(found) == 2 * size  # few enough for all of them
    assert [one.missing for one in found] == sorted((one.missing for one in found), reverse=True)
    stated = [row for row in model.bundle.auxiliary.named() if "q1" in row]
    for one in found:
        end = 0 if one.asked == "tail" else 2
        assert one.known == sum(row[1] == one.relation and row[end] == "q1" for row in stated)
        assert one.question == f"{one.relation}({'q1, ?' if end == 0 else '?, q1'})"
        assert 0 < one.applies < 1 and one.missing >= one.applies
    # Nobody lives in two cities, and everyone is the citizen of a land.
    assert asked["lives_in(q1, ?)"].known == 1 and asked["citizen_of(q1, ?)"].known == 0
    assert asked["citizen_of(q1, ?)"].applies > 0.5 > asked["lives_in(q1, ?)"].applies
    assert asked["lives_in(q1, ?)"].missing < asked["citizen_of(q1, ?)"].missing
    written = model.confidence("q1").to_dict()["expected"]
    assert written[0] == {name: getattr(found[0], name) for name in Expected.__dataclass_fields__}


def test_the_best_answer_decides_whether_it_is_enough():
    model = predictor()
    found = model.confidence("q1")
    assert found.best == model.suggest("q1", 1)[0]
    assert found.enough == (found.best.probability >= 0.5)
    sure, unsure = (
        replace(found, find=lambda probability=probability: suggestion(probability)) for probability in (0.5, 0.49)
    )
    assert sure.enough and not unsure.enough
    assert not replace(found, find=lambda: None).enough
    far = replace(sure, tied=False)  # what is likely of it is so of anyone
    assert not far.enough and "too few for an answer" in str(far)


def suggestion(probability: float) -> Suggestion:
    return Suggestion(("x", "in", "c"), 1.0, probability, probability, None)


def test_confidence_in_words():
    lesson = Lesson("borders(x, ?)", 0.3, (("in(x, ?)", 0.6),))
    found = Confidence("x", 1, "1", 8, 0.75, (lesson, lesson), True, True, (), lambda: suggestion(0.3))
    assert str(found) == (
        "x has 1 known fact, too few for an answer (the likeliest is in(x, c), probability 0.30); of 8 questions about "
        "validation newcomers with as many (1), 75% had a right first answer; what would help most is borders(x, ?), "
        "from which rules lead to in(x, ?) (confidence 0.60)"
    )
    told = ["had a right first answer" in str(replace(found, questions=count)) for count in (1, 4, 5)]
    assert told == [False, False, True]  # one or two questions say nothing
    plain = Confidence("x", 2, "2-5", 0, None, (), False, True, (), lambda: suggestion(0.7))
    assert (
        str(plain)
        == "x has 2 known facts, enough for an answer (the likeliest is in(x, c), uncalibrated probability 0.70)"
    )


def test_what_was_to_be_learned_is_no_longer_named_once_it_is_known():
    model = Predictor(replace(predictor().bundle, auxiliary=None), threads=1)
    model.add([("new", "knows", "p03")])
    lessons = {lesson.question: dict(lesson.opens) for lesson in model.confidence("new").learn}
    assert lessons["lives_in(new, ?)"]["citizen_of(new, ?)"] > 0.6  # where one lives, one is a citizen
    model.add([("new", "lives_in", "city1")])
    assert "lives_in(new, ?)" not in [lesson.question for lesson in model.confidence("new").learn]
