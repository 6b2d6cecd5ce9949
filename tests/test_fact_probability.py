"""The probability of a fact: what was put into simulated examples comes out, and what must hold of any examples."""

import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint
from newcomer.errors import DatasetError
from newcomer.evaluation.applicability import EVIDENCE
from newcomer.evaluation.calibration import Curve, RelationCurve, calibration_error, sigmoid
from newcomer.evaluation.fact_probability import RISING, Calibration, FactCurve, FactExamples, fit_fact_curve
from newcomer.graph import Vocabulary

RELATIONS = Vocabulary(["knows", "lives_in"])
ANSWERS = 3  # to each question
WEIGHTS = np.array([0.8, 0.5, 0.3, 0.2, -0.7])


def of_examples(curve, examples):
    """The probabilities of all answers."""
    which = examples.question
    evidence = examples.answer_evidence, examples.room, examples.rule_odds
    return curve.probabilities(examples.relation[which], examples.applies_evidence[which], *evidence)


def simulated(
    questions: int, seed: int, rises: tuple[float, float, float] = (1.0, 0.0, 1.0), shift: float = 0.0
) -> tuple[FactExamples, np.ndarray]:
    """Examples, and how probable each answer really was.

    What share, rule and room are worth can be chosen; ``shift`` is what the answers along relation 0 have more.
    """
    rng = np.random.default_rng(seed)
    evidence = np.column_stack(
        [rng.normal(-1, 1.5, (questions, 3)), rng.normal(1, 0.3, questions), rng.random(questions) < 0.5]
    )
    relation = rng.integers(2 * len(RELATIONS), size=questions)
    applying = sigmoid(evidence @ WEIGHTS)
    applies = rng.random(questions) < applying
    question, place = np.repeat(np.arange(questions), ANSWERS), np.tile(np.arange(ANSWERS), questions)
    share, rule = rng.normal(0.5 - place, 1.0), rng.normal(-1, 2, len(place))
    room = rng.choice([1.0, 0.5, 0.1], size=len(place))
    if_any = sigmoid(rises[0] * share + rises[1] * rule + shift * (relation[question] == 0)) * room ** rises[2]
    right = (rng.random(len(place)) < if_any) & applies[question]
    examples = FactExamples(
        rng.integers(50, size=questions).astype(np.int32),
        relation.astype(np.int32),
        evidence,
        applies,
        applies.astype(np.int64),
        question,
        rng.integers(99, size=len(place)).astype(np.int32),
        place,
        np.column_stack([share, np.log(place + 1)]),
        room,
        rule,
        right,
    )
    return examples, if_any * applying[question]


@cache
def fitted(*about: object) -> FactCurve:
    return fit_fact_curve(simulated(*about)[0])  # type: ignore[arg-type]


def test_the_probabilities_that_were_put_in_come_out():
    examples, truth = simulated(5000, 1)
    found = of_examples(fitted(5000, 0), examples)
    assert calibration_error(found, examples.right) < 0.02
    assert np.abs(found - truth).mean() < 0.03 and np.corrcoef(found, truth)[0, 1] > 0.97
    assert found.min() < 0.02 and found.max() > 0.7
    applies = sigmoid(fitted(5000, 0).applying(examples.applies_evidence))
    assert np.abs(applies - sigmoid(examples.applies_evidence @ WEIGHTS)).mean() < 0.03


def test_a_relation_whose_answers_are_right_more_often_has_higher_probabilities():
    examples, truth = simulated(3000, 1, (1.0, 0.0, 1.0), 2.0)
    found = of_examples(fitted(3000, 0, (1.0, 0.0, 1.0), 2.0), examples)
    for relation in range(2 * len(RELATIONS)):
        mine = examples.relation[examples.question] == relation
        assert found[mine].mean() == pytest.approx(truth[mine].mean(), abs=0.03)


ADVERSE = ((1.0, 0.0, 1.0), (-1.0, -0.5, 0.0), (0.0, 0.0, 0.0))


@pytest.mark.parametrize("rises", ADVERSE, ids=["as it should be", "turned over", "noise"])
@pytest.mark.parametrize("questions", [3, 40, 2000])
def test_better_evidence_never_has_a_lower_probability(rises, questions):
    curve = fitted(questions, 3, rises)
    assert (curve.together[:RISING] >= 0).all() and (np.diff(curve.knots, axis=0) >= 0).all()
    rng, steps = np.random.default_rng(0), np.linspace(-6, 6, 25)
    for relation in range(2 * len(RELATIONS)):
        applies = np.tile(rng.normal(size=EVIDENCE), (len(steps), 1))
        fixed = {"share": np.zeros(25), "rank": np.zeros(25), "room": np.full(25, 0.5), "rule": np.zeros(25)}
        rising = {"share": steps, "rank": np.linspace(-5, 0, 25), "room": np.linspace(0, 1, 25), "rule": steps}
        for name, values in rising.items():
            now = {**fixed, name: values}
            evidence = np.column_stack([now["share"], -now["rank"]])
            found = curve.probabilities(relation, applies, evidence, now["room"], now["rule"])
            assert (np.diff(found) >= -1e-15).all() and (found > 0).all() and (found < 1).all(), name
        # The same of evidence that speaks for the relation, by what was learned of it.
        better = applies + np.linspace(0, 3, 25)[:, None] * np.sign(curve.applies[:3].tolist() + [0.0] * 2)
        found = curve.probabilities(relation, better, np.zeros((25, 2)), fixed["room"], fixed["rule"])
        assert (np.diff(found) >= -1e-15).all()


def test_share_rule_and_room_do_count():
    curve = fitted(2000, 3, (1.0, 0.7, 1.0))
    applies = np.ones((2, EVIDENCE))
    plain, low, high = np.zeros((2, 2)), np.array([1.0, 1.0]), np.array([-1.0, 1.0])
    by_share = curve.probabilities(0, applies, np.column_stack([high, np.zeros(2)]), low, np.zeros(2))
    by_rule = curve.probabilities(0, applies, plain, low, high)
    by_room = curve.probabilities(0, applies, plain, np.array([0.1, 1.0]), np.zeros(2))
    for found in (by_share, by_rule, by_room):
        assert found[1] > found[0] + 0.05


def test_weights_are_held_at_nothing_among_however_many_examples():
    curve = fitted(12000, 0, (-1.5, -1.5, 0.0))
    assert (curve.together[:RISING] >= 0).all() and (curve.together[:RISING] == 0).any()
    examples, truth = simulated(3000, 1, (-1.5, -1.5, 0.0))
    assert of_examples(curve, examples).mean() == pytest.approx(truth.mean(), abs=0.02)


@pytest.mark.parametrize("questions", [3, 2000])
def test_one_asked_about_alone_has_the_same_probability_to_the_bit(questions):
    curve, (examples, _) = fitted(2000, 3, (1.0, 0.7, 1.0)), simulated(questions, 8)
    together = of_examples(curve, examples)
    rng = np.random.default_rng(0)
    for answer in rng.permutation(len(together))[:50].tolist():
        question = examples.question[answer]
        for relatives in ([answer], [answer, *rng.integers(len(together), size=6)]):
            found = curve.probabilities(
                int(examples.relation[question]),
                np.repeat(examples.applies_evidence[question][None], len(relatives), axis=0),
                examples.answer_evidence[relatives],
                examples.room[relatives],
                examples.rule_odds[relatives],
            )
            assert found[0] == together[answer]


def test_examples_that_are_joined_keep_their_questions():
    one, other = simulated(4, 0)[0], simulated(6, 1)[0]
    nothing = other._replace(
        **{name: getattr(other, name)[:0] for name in FactExamples._fields[5:]}  # questions without any answer
    )
    found = FactExamples.joined([one, nothing, other])
    assert len(found.entity) == 16 and len(found.right) == (4 + 6) * ANSWERS
    assert np.array_equal(found.question[: 4 * ANSWERS], one.question)
    assert np.array_equal(found.question[4 * ANSWERS :], other.question + 10)
    for name in ("relation", "entity", "applies", "missing", "applies_evidence"):
        wanted = np.concatenate([getattr(part, name)[part.question] for part in (one, other)])
        assert np.array_equal(getattr(found, name)[found.question], wanted)
    for name in ("answer", "place", "answer_evidence", "room", "rule_odds", "right"):
        assert np.array_equal(getattr(found, name), np.concatenate([getattr(one, name), getattr(other, name)]))
    assert all(np.array_equal(*pair) for pair in zip(FactExamples.joined([one]), one, strict=True))


@given(st.integers(1, 30), st.integers(0, 5))
def test_what_was_learned_from_few_stays_near_to_what_it_began_with(questions, seed):
    curve = fit_fact_curve(simulated(questions, seed)[0])
    assert len(curve.knots) == 0 and np.isfinite(of_examples(curve, simulated(50, 9)[0])).all()


def calibration(questions: int) -> Calibration:
    return Calibration(
        Curve(0.5, 0.25, -1.0, np.empty((0, 2)), {3: RelationCurve(1.5, -0.5, 7)}),
        Curve(0.5, 0.0, 0.1, np.array([[0.0, -1.0], [1.0, 2.0]])),
        {"1": (3, 2), "2-5": (9, 9)},
        fitted(questions, 3),
    )


@pytest.mark.parametrize("questions", [40, 2000])
def test_all_of_a_calibration_comes_back_from_json(questions):
    written = calibration(questions)
    assert written.facts is not None and (len(written.facts.knots) > 0) is (questions > 40)
    content = json.loads(json.dumps(written.to_dict(RELATIONS), allow_nan=False))
    found = Calibration.from_dict(content, RELATIONS)
    assert found.to_dict(RELATIONS) == content and found.facts is not None and found.triples is not None
    examples = simulated(30, 4)[0]
    assert np.array_equal(of_examples(found.facts, examples), of_examples(written.facts, examples))
    assert found.answers.relations == written.answers.relations and found.first_right == written.first_right
    # Relations go by name: in another order of ids each still has its own curve.
    turned = Calibration.from_dict(content, Vocabulary(["lives_in", "knows"]))
    assert turned.answers.relations == {2: RelationCurve(1.5, -0.5, 7)}
    assert turned.facts is not None and turned.facts.relations[1] == written.facts.relations[0]


def test_where_there_are_no_facts_or_triples_none_come_back():
    content = Calibration(Curve(0.5, 0.25, -1.0, np.empty((0, 2))), None).to_dict(RELATIONS)
    found = Calibration.from_dict(json.loads(json.dumps(content)), RELATIONS)
    assert found.triples is None and found.facts is None and found.first_right == {}


DAMAGE = {
    "facts are left out": lambda content: content.pop("facts"),
    "facts are a word": lambda content: content.update(facts="many"),
    "one weight less": lambda content: content["facts"]["together"].pop(),
    "one more of applying": lambda content: content["facts"]["applies"].append(1.0),
    "no weights": lambda content: content["facts"].pop("applies"),
    "a weight is a word": lambda content: content["facts"].update(applies=["a"] * (EVIDENCE + 1)),
    "half a knot": lambda content: content["facts"].update(knots=[[1.0]]),
    "no answers": lambda content: content["facts"].pop("answers"),
    "another's relation": lambda content: content["facts"]["relations"][0].update(relation="eats"),
    "no side": lambda content: content["facts"]["relations"][0].update(asked="both"),
    "counts are one": lambda content: content.update(first_right={"1": [3]}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_nobody_wrote_is_refused(damage):
    content = json.loads(json.dumps(calibration(40).to_dict(RELATIONS)))
    damage(content)
    error = complaint(Calibration.from_dict, content, RELATIONS)
    assert isinstance(error, DatasetError) and "the calibration in metrics.json is not one" in str(error)
    assert "train the model again" in str(error)


@pytest.mark.parametrize("content", [3, None, [], "text", {}], ids=str)
def test_nor_is_anything_else_a_calibration(content):
    assert "train the model again" in str(complaint(Calibration.from_dict, content, RELATIONS))
