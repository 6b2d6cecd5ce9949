"""Why an answer is given (newcomer.predictor.explain): rules that hold, shares that add up, facts that decide.

Covers newcomer.predictor.conclusions.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from newcomer.models.ensemble import feature_names
from newcomer.models.rule_engine import RuleEngine
from newcomer.predictor import Predictor
from newcomer.predictor.answers import Grounding
from newcomer.predictor.conclusions import in_order
from newcomer.predictor.explain import Query
from nn_oracle import one_thread
from test_predictor import ATLANTIS, BLENDED, DATASET, EVERY_KIND, HEARING, forgetful, model, trained
from training_world import FOLDED, parts, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["constrained", "blended"])
def test_rules_that_infer_an_answer_are_named_with_true_premises(changes):
    predictor = forgetful(*changes)
    predictor.add(ATLANTIS)
    answers = {a.entity: a for a in predictor.tails("Atlantis", "citizen_of", k=40)}
    because = answers["land1"].because
    known = {*DATASET.observed.named(), *ATLANTIS}
    first = because.groundings[0]
    assert len(because) == len(because.groundings) > 0
    assert all(premise in known for grounding in because for premise in grounding.premises)
    assert [g.confidence for g in because] == sorted((g.confidence for g in because), reverse=True)
    home = next(g for g in because if g.rule == "lives_in(x,z), city_in(z,y) => citizen_of(x,y)")
    assert home.premises == (("Atlantis", "lives_in", "city1"), ("city1", "city_in", "land1")) and home.support == 18
    assert str(home).startswith("lives_in(Atlantis, city1) and city_in(city1, land1); rule lives_in(x,z), city_in(z,y)")
    assert str(because) == str(first)
    assert len(answers["p20"].because) == 0 and str(answers["p20"].because) != str(first)
    back = next(a for a in predictor.heads("citizen_of", "land1", k=60) if a.entity == "Atlantis")
    assert back.because.groundings == because.groundings


@pytest.mark.parametrize("changes", [(), BLENDED, (*FOLDED, *BLENDED)], ids=["constrained", "blended", "folded"])
def test_the_strongest_reason_is_found_without_telling_all(changes):
    predictor = forgetful(EVERY_KIND, *changes)
    predictor.add(ATLANTIS)
    asked = [("Atlantis", "citizen_of"), ("Atlantis", "knows"), ("p00", "citizen_of")]
    found = [one.because for name, relation in asked for one in predictor.tails(name, relation, k=40)]
    firsts = [because.strongest for because in found]  # before all of them are told
    assert firsts == [next(iter(because), None) for because in found]
    assert None in firsts and max(map(len, found)) > 1


def among_friends_of_tea(*changes: str) -> Predictor:
    """A model with symmetric paths: who likes tea works at the bank, mostly."""
    staff = [(f"p{i:02}", "works_at", "shop" if i == 4 else "bank") for i in range(5)]
    friends_of_tea = [(f"p{i:02}", "likes", "tea") for i in range(5)]
    dataset = replace(world(train=[*parts()["train"], *staff, *friends_of_tea]), name="tea")
    predictor = Predictor(trained(*changes, dataset=dataset), threads=1)
    predictor.add([*ATLANTIS, ("ann", "likes", "tea"), ("ann", "works_at", "bank")])
    return predictor


@pytest.mark.parametrize("changes", [(), BLENDED, (*FOLDED, *BLENDED)], ids=["constrained", "blended", "folded"])
def test_short_cuts_change_no_reason(changes, monkeypatch):
    """Paths that were walked when a newcomer came are not walked again, and who is not tied to it is not looked at."""
    predictor = among_friends_of_tea(*changes)

    def reasons() -> list[tuple[Grounding, ...]]:
        asked = [(name, relation) for name in ("Atlantis", "ann", "q0") for relation in ("works_at", "citizen_of")]
        found = [answer for name, relation in asked for answer in predictor.tails(name, relation, k=60)]
        return [answer.because.groundings for answer in found]

    short = reasons()
    monkeypatch.setattr(RuleEngine, "has_all_paths", lambda *_: False)
    monkeypatch.setattr(Query, "connected", property(lambda self: set(self.snapshot.newcomers)))
    assert reasons() == short
    assert any(" ~ " in one.rule for many in short for one in many) and any(not many for many in short)


def test_reasons_for_seen_entities_come_from_observed_facts():
    answer = next(a for a in model().tails("p00", "citizen_of", k=40) if a.entity == "land0")
    assert (("p00", "lives_in", "city0"), ("city0", "city_in", "land0")) in [g.premises for g in answer.because]
    assert answer.because.without is None


@pytest.mark.parametrize(
    "changes", [BLENDED, (*FOLDED, *BLENDED), (*FOLDED, *BLENDED, HEARING)], ids=["blended", "folded", "hearing"]
)
def test_a_score_is_the_sum_of_what_each_voice_gives(changes):
    predictor = model(EVERY_KIND, *changes)
    predictor.add(ATLANTIS)
    names = feature_names(HEARING in changes, has_propagation=False)
    asked = [("Atlantis", "citizen_of"), ("q0", "knows"), ("p00", "citizen_of")]
    found = [answer for name, relation in asked for answer in predictor.tails(name, relation, k=40)]
    found += predictor.heads("citizen_of", "land1", k=40)
    for answer in found:
        parts = answer.because.parts
        assert tuple(parts) == names
        total = np.float32(0.0)
        for part in parts.values():
            total += np.float32(part)
        assert answer.score == total
    for voice in names:
        assert len({answer.because.parts[voice] for answer in found}) > 1, f"{voice} says the same of all"
    one = predictor.suggest("Atlantis", k=1)[0]
    assert sum(one.because.parts.values()) == pytest.approx(one.score, abs=1e-5)


def test_where_the_network_alone_decides_a_score_has_no_parts():
    assert model().tails("q0", "citizen_of")[0].because.parts == {}


@pytest.mark.parametrize("entity", ["Atlantis", "p04", "q0"])
def test_attention_adds_up_to_the_vector(entity):
    predictor = model("model.residual=no", "model.labels=none")
    predictor.add(ATLANTIS)
    weighed = predictor.tails(entity, "citizen_of")[0].because.weighed
    facts = {n.fact for n in predictor.neighbors(entity)}
    assert {w.fact for w in weighed} == facts
    assert sum(w.share for w in weighed) == pytest.approx(1.0, abs=1e-5)
    others = [w.fact[2] if w.fact[0] == entity else w.fact[0] for w in weighed]
    total = sum(w.share * predictor.embed(other) for w, other in zip(weighed, others, strict=True))
    np.testing.assert_allclose(total, predictor.embed(entity, "citizen_of"), atol=1e-5)


def test_encoders_without_the_query_aware_layer_weigh_nothing():
    assert model("model.encoder=mean").tails("q0", "citizen_of")[0].because.weighed == ()


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["constrained", "blended"])
def test_the_deciding_fact_decides(changes):
    predictor = forgetful(*changes)
    predictor.add(ATLANTIS)
    decided = 0
    for k in (1, 3, 8):
        answers = predictor.tails("Atlantis", "citizen_of", k=k)
        for answer in answers:
            falls = []
            for fact in ATLANTIS:
                other = forgetful(*changes)
                other.add([one for one in ATLANTIS if one != fact])
                falls.append(answer.entity not in [a.entity for a in other.tails("Atlantis", "citizen_of", k=k)])
            found = answer.because.without
            assert (found is not None) == any(falls)
            if found is not None:
                assert falls[ATLANTIS.index(found)]
                decided += 1
    assert decided > 0


def test_the_only_fact_of_a_newcomer_decides_all():
    predictor = forgetful()
    predictor.add([("Utopia", "lives_in", "city2")])
    before = predictor._snapshot
    assert predictor.tails("Utopia", "citizen_of", k=2)[1].because.without == ("Utopia", "lives_in", "city2")
    assert predictor._snapshot is before and torch.is_grad_enabled()


def test_reasons_are_those_of_the_time_of_the_question():
    predictor = forgetful()
    predictor.add(ATLANTIS)
    answer = next(a for a in predictor.tails("Atlantis", "citizen_of", k=40) if a.entity == "land1")
    predictor.remove("Atlantis")
    assert len(answer.because) > 0 and answer.because.weighed


def test_of_reasons_that_read_alike_in_strength_the_shorter_goes_first():
    fact = ("a", "r", "b")
    long = Grounding("long", 0.563, 100, (fact, fact, fact))
    short = Grounding("short", 0.558, 5, (fact, fact))
    strong = Grounding("strong", 0.9, 2, (fact, fact, fact))
    assert in_order([long, short, strong]) == (strong, short, long)
