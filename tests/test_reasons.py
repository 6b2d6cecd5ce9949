"""Reasons (newcomer.predictor.reasons): what a feature adds is exact, most comes first, and none says nothing."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from newcomer.models import ensemble
from newcomer.models.engine import InferenceEngine, Scored
from newcomer.models.propagation.scorer import PropagationScorer
from newcomer.predictor import Answer, Predictor, reasons
from newcomer.predictor import predictor as predictor_module
from newcomer.predictor.answers import Chain, Evidence, Grounding, Similar, Weighed
from newcomer.predictor.explain import Explanation, Query
from newcomer.predictor.reasons import NOTHING, ONE_FEATURE, Case, Parts, added_by_each, parts_of, typical_parts
from nn_oracle import one_thread
from test_explain import among_friends_of_tea
from test_predictor import ATLANTIS, BLENDED, EVERY_KIND, HEARING, model
from training_world import FOLDED

on_one_thread = pytest.fixture(autouse=True)(one_thread)
ALL = (EVERY_KIND, *FOLDED, *BLENDED, HEARING)
PATHS = (*ALL, "model.propagation=yes", "training.propagation_steps=9")
GROUPS = ("rules", "embedding", "linked", "frequency", "unobserved", "similarity")
FACT = ("zoe", "knows", "p03")


def with_atlantis(*changes: str) -> Predictor:
    predictor = model(*changes)
    predictor.add([*ATLANTIS, ("p07", "knows", "Atlantis")])
    return predictor


def answers_of(predictor: Predictor) -> list[Answer]:
    """All answers to some queries, about a newcomer and about a seen entity."""
    found = [answer for name in ("Atlantis", "p00") for answer in predictor.tails(name, "citizen_of", k=60)]
    return [*found, *predictor.heads("knows", "Atlantis", k=60), *predictor.heads("citizen_of", "land1", k=60)]


def test_the_score_is_that_of_the_typical_candidate_and_what_each_feature_adds():
    answers = answers_of(with_atlantis(*ALL))
    for answer in answers:
        because = answer.because
        assert because.typical + sum(because.adds.values()) == pytest.approx(answer.score, abs=1e-5)
        assert list(because.adds.values()) == sorted(because.adds.values(), reverse=True)
    assert {name for answer in answers for name in answer.because.adds} == set(GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_without_a_feature_the_score_is_lower_by_what_it_is_said_to_add(group, monkeypatch):
    """Lower than it was, beside that of the typical candidate, which is without the feature as well."""
    predictor, asked = with_atlantis(*ALL), [("Atlantis", "citizen_of"), ("Atlantis", "knows"), ("p00", "citizen_of")]

    def inferred() -> dict[tuple[str, str, str], Answer]:
        found = [(*query, answer) for query in asked for answer in predictor.tails(*query, k=60)]
        return {(name, relation, one.entity): one for name, relation, one in found if "rules" in one.because.adds}

    before = inferred()
    for name, feature in ensemble.FEATURES.items():
        if ONE_FEATURE.get(name, name) == group:
            nothing = feature._replace(of=lambda signals: np.zeros(len(signals.embedding), dtype=np.float32))
            monkeypatch.setitem(ensemble.FEATURES, name, nothing)
    after = inferred()
    assert before.keys() == after.keys() and len(before) > 5
    for place, answer in before.items():
        added = answer.because.adds[group]
        lower = (answer.score - answer.because.typical) - (after[place].score - after[place].because.typical)
        assert lower == pytest.approx(added, abs=1e-4)


def test_the_typical_candidate_has_the_median_of_every_feature():
    predictor = with_atlantis(*ALL)
    query, _ = predictor._query(predictor._snapshot, "Atlantis", predictor.names.relation("knows"), False)
    kept, parts = ~query.left_out, {name: column.copy() for name, column in query.scored.parts.items()}
    rules = sum(parts.pop(name) for name in ONE_FEATURE)
    for name, column in {**parts, "rules": rules}.items():
        assert query.typical.of[name] == np.median(column[kept]), name
    assert 1 < kept.sum() < len(kept) and len(query.typical.of) == len(parts) + 1


def test_of_very_many_entities_some_at_even_distances_stand_for_all(monkeypatch):
    column = np.arange(10, dtype=np.float32)
    scored = Scored(column, (column > 2) * 0.5, {"embedding": column, "rule_odds": -column})
    everyone = np.ones(10, dtype=bool)
    assert typical_parts(scored, everyone) == Parts({"embedding": 4.5, "rules": -4.5}, True)
    monkeypatch.setattr(reasons, "COMPARED", 4)
    assert typical_parts(scored, everyone).of["embedding"] == 4.5  # of 0, 3, 6, 9
    assert typical_parts(scored, column != 9).of["embedding"] == 3
    assert typical_parts(scored, (column == 1) | (column == 2)) == Parts({"embedding": 1.5, "rules": -1.5}, False)
    assert typical_parts(scored, column < 0) == Parts({}, False)  # no candidate, no answer
    assert parts_of(scored, 2) == Parts({"embedding": 2.0, "rule_odds": -2.0}, False)


def test_where_rules_infer_neither_they_are_no_reason():
    own = {"rule_rank": 1.0, "rule_odds": 0.5, "linked": 0.0, "frequency": 2.0}
    typical = {"rules": 0.25, "linked": 0.0, "frequency": 0.5}
    assert added_by_each(Parts(own, False), Parts(typical, False)) == {"frequency": 2.75, "linked": 0.0}
    joined = added_by_each(Parts({**own, "linked": 3.0}, False), Parts(typical, False))
    assert joined == {"linked": 4.25, "frequency": 1.5}
    for inferred in ((True, False), (False, True), (True, True)):
        found = added_by_each(Parts(own, inferred[0]), Parts(typical, inferred[1]))
        assert list(found.items()) == [("frequency", 1.5), ("rules", 1.25), ("linked", 0.0)]


@pytest.mark.parametrize("changes", [ALL, PATHS, BLENDED], ids=["all", "propagation", "attention"])
def test_reasons_are_ordered_by_what_they_add_and_none_adds_nothing(changes):
    count = 0
    for answer in answers_of(with_atlantis(*changes))[::7]:
        found, adds = answer.because.reasons, answer.because.adds
        assert all(one.adds == adds[one.feature] and abs(one.adds) >= 0.005 for one in found)
        assert {one.feature for one in found} == {name for name, added in adds.items() if round(added, 2)}
        assert all(first.adds >= second.adds for first, second in pairwise(found))
        assert all(str(one).startswith("speaks for: ") == (one.adds > 0) == one.speaks_for for one in found)
        assert all(f"({one.adds:+.2f})" in str(one) and one.sentence in str(one) for one in found)
        assert not any(nothing in str(one) for one in found for nothing in ("confidence 0.00", "(0%)", "0.00 lower"))
        count += len(found)
    assert count > 20


@pytest.mark.parametrize("changes", [ALL, BLENDED, ()], ids=["all", "attention", "network alone"])
def test_as_text_reasons_are_the_first_one(changes):
    firsts = set()
    for answer in answers_of(with_atlantis(*changes)):
        text, found = str(answer.because), answer.because.reasons
        assert text == (found[0].sentence if found and found[0].speaks_for else NOTHING) and "\n" not in text
        firsts.add(found[0].feature if found else None)
    assert len(firsts) > 1


def test_the_first_reason_is_found_without_looking_for_the_others(monkeypatch):
    answers = answers_of(with_atlantis(*PATHS))
    monkeypatch.setattr(PropagationScorer, "chains", None)
    looked: list[str] = []
    monkeypatch.setattr(Query, "weighed", property(lambda _: looked.append("weighed") or ()))
    monkeypatch.setattr(Query, "concluded", lambda *_: looked.append("concluded"))
    monkeypatch.setattr(Query, "in_words", lambda *_: looked.append("words"))
    seen = set()
    for answer in answers:
        first = next(iter(answer.because.adds))
        if first in ("propagation", "frequency", "unobserved"):
            str(answer.because)
            seen.add(first)
    assert "frequency" in seen and looked == []


def test_reasons_of_suggestions_ask_no_question_again_while_memory_lasts(monkeypatch):
    predictor, asked, inner = with_atlantis(*BLENDED), [], InferenceEngine.scored
    monkeypatch.setattr(InferenceEngine, "scored", lambda self, *query: asked.append(query) or inner(self, *query))
    texts = []
    for kept in (predictor_module.KEPT_SCORES, 0):
        monkeypatch.setattr(predictor_module, "KEPT_SCORES", kept)
        found = predictor.suggest("Atlantis", k=9)
        asked.clear()
        texts.append([[str(reason) for reason in one.because.reasons] for one in found])
        assert bool(asked) == (kept == 0)
    assert texts[0] == texts[1] != []


def test_without_an_ensemble_rules_come_first_and_then_attention():
    for answer in answers_of(with_atlantis()):
        found, rules = answer.because.reasons, answer.because.groundings
        assert all(one.adds is None and str(one) == f"because {one.sentence}" for one in found)
        assert [one.feature for one in found] == [*(["rules"] if rules else []), "embedding"]
        assert found[-1].sentence.startswith("the encoder gave" if rules else "no rule infers it; the encoder gave")
        assert not rules or (found[0].sentence, found[0].evidence) == (str(rules[0]), rules)
        assert answer.because.adds == {} and answer.because.typical is None
    [alone] = model("model.encoder=mean", "rules.kinds=").tails("q0", "citizen_of", k=1)[0].because.reasons
    assert str(alone) == "because no rule infers it; its vector alone decides"


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["network alone", "ensemble"])
def test_symmetric_paths_are_no_reason_in_an_ensemble(changes, monkeypatch):
    monkeypatch.setattr(Explanation, "adds", {"rules": 1.0})  # else nobody would look for rules
    answers = among_friends_of_tea(*changes).tails("ann", "works_at", k=60)
    [shop] = [answer.because for answer in answers if answer.entity == "shop"]
    [path] = shop.groundings
    first = shop.reasons[0]
    assert path.is_path and " ~ " in path.rule and shop.best is not None
    for one in (first, shop.best):
        assert (one.sentence, one.evidence) == (("no rule infers it", ()) if changes else (str(path), (path,)))


def case(feature: str, adds: float, *evidence: Evidence, count: int = 0, is_unobserved: bool = False) -> Case:
    return Case(feature, adds, evidence, "zoe", "knows(?, p03)", lambda: count, is_unobserved)


def said(*arguments: object, **options: object) -> str:
    found = reasons.reason(case(*arguments, **options))
    assert found is not None
    return found.sentence


STRONG, WEAK = Grounding("a => b", 0.5, 4, (FACT,)), Grounding("c => b", 0.004, 9, (FACT,))
LIKE = Similar("p05", 0.6, (FACT, FACT, FACT))
WORDS: list[tuple[Callable[[], str], str]] = [
    (lambda: said("rules", 1.0, STRONG, WEAK), "knows(zoe, p03); rule a => b, confidence 0.50, support 4"),
    (lambda: said("rules", 1.0, WEAK), "only rules infer it that are hardly ever right (confidence below 0.005)"),
    (lambda: said("rules", -1.0), "no rule infers it"),
    (lambda: said("rules", -1.0, STRONG), f"what rules say of it counts for less: {STRONG}"),
    (
        lambda: said("embedding", 1.0, Weighed(FACT, 0.4), Weighed(FACT, 0.004)),
        "its vector fits that of zoe, which rests most on knows(zoe, p03) (40%)",
    ),
    (lambda: said("embedding", -1.0), "its vector does not fit that of zoe"),
    (lambda: said("linked", 1.0, FACT), "already joined by knows(zoe, p03)"),
    (lambda: said("linked", -1.0), "no known fact joins it and zoe"),
    (lambda: said("frequency", 1.0, count=1200), "knows(?, p03) is known of 1,200 entities"),
    (lambda: said("frequency", 1.0, count=1), "knows(?, p03) is known of 1 entity"),
    (lambda: said("frequency", -1.0), "knows(?, p03) is known of no entity"),
    (lambda: said("unobserved", -3.0, is_unobserved=True), "it has no observed facts"),
    (lambda: said("unobserved", 3.0), "it has observed facts"),
    (
        lambda: said("similarity", 1.0, LIKE),
        "similar to p05, a known answer: knows(zoe, p03) and knows(zoe, p03) (60% of the similarity)",
    ),
    (lambda: said("similarity", -1.0, LIKE), "it has less in common with the known answers than others"),
    (lambda: said("similarity", -1.0), "it shares no fact with the known answers"),
    (
        lambda: said("propagation", 1.0, Chain((FACT,), 0.8), Chain((FACT,), 0.001)),
        "connected by knows(zoe, p03); without this chain its log share by propagation would be 0.80 lower",
    ),
    (lambda: said("propagation", 1.0), "paths of known facts lead from zoe to it (propagation)"),
    (
        lambda: said("propagation", -1.0, Chain((FACT,), 0.8)),
        "paths of known facts lead from zoe to others rather than to it (propagation)",
    ),
]


@pytest.mark.parametrize(("say", "words"), WORDS, ids=[str(place) for place in range(len(WORDS))])
def test_reasons_say_in_words_what_they_rest_on(say, words):
    assert say() == words


def test_what_a_reader_would_see_as_nothing_is_left_out():
    assert reasons.reason(case("linked", 0.004, FACT)) is None is reasons.reason(case("linked", -0.004, FACT))
    found = reasons.reason(case("rules", 1.0, STRONG, WEAK))
    assert found is not None and found.evidence == (STRONG,)
    assert "confidence below 0.01" in str(WEAK)


def test_every_feature_has_words():
    assert set(reasons.SENTENCES) == {ONE_FEATURE.get(name, name) for name in ensemble.FEATURES}
