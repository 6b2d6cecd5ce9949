"""A trained model at work: it answers as evaluation ranks, and adding is exact, atomic, local and undone by removing.

Covers newcomer.predictor.predictor, newcomer.predictor.fact_store,
newcomer.predictor.answers, newcomer.predictor.classifier, newcomer.models.rule_engine,
newcomer.models.embedding.newcomers
and newcomer.evaluation.alignment.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import newcomer
from conftest import complaint
from newcomer.evaluation.alignment import AlignedModel, scorer_for
from newcomer.evaluation.calibration import evidence
from newcomer.evaluation.stored import calibration_of
from newcomer.graph import Adjacency, AnswerCounts, InductiveDataset
from newcomer.models.bundle import Bundle, Thresholds, read_bundle, write_bundle
from newcomer.models.embedding.model import ENCODERS
from newcomer.models.embedding.newcomers import NewcomerEncoder
from newcomer.models.rule_engine import RuleEngine
from newcomer.predictor import Predictor
from newcomer.predictor.predictor import best
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import FOLDED, choosing, citizen, lives, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
Triple = tuple[str, str, str]
TIES = [("q0", "knows", "q1"), ("q2", "knows", "q1"), ("q3", "knows", "q3"), ("club", "city_in", "land1")]
MEMBERS = [(f"p{i:02}", "member_of", "club") for i in range(0, 24, 2)]
DATASET = world(
    aux=[*parts()["aux"], *TIES, *MEMBERS]
)  # newcomers are tied to newcomers, and all members to a new club
ATLANTIS = [("Atlantis", "lives_in", "city1"), ("Atlantis", "knows", "p02"), ("p05", "knows", "Atlantis")]
BLENDED = ("model.ensemble=yes", "model.constrained=no")
HEARING = "model.graph_statistics=yes"
ASKED = ["q0", "q1", "q2", "q3", "club", "p00", "p05", "city1", "land1"]
EVERY_KIND = "rules.kinds=one,two,both,constant,exists"


@cache
def trained(*changes: str, dataset: InductiveDataset = DATASET) -> Bundle:
    fitted = fit(dataset, settings("training.epochs=1", "rules.walks=100", *changes), device="cpu")
    with TemporaryDirectory() as folder:
        write_bundle(Path(folder) / "m", fitted.bundle(dataset))
        return read_bundle(Path(folder) / "m")


def model(*changes: str) -> Predictor:
    return Predictor(trained(*changes), threads=1)


def forgetful(*changes: str) -> Predictor:
    """The model as if it had been stored without any newcomer."""
    return Predictor(replace(trained(*changes), auxiliary=None), threads=1)


def table(predictor: Predictor, asked: list[str], answers: list[str]) -> npt.NDArray[np.float32]:
    """The scores of these answers to every query about those asked."""
    engine, snapshot = predictor.engine, predictor._snapshot
    order = [snapshot.id(name) for name in answers]
    queries = [(snapshot.id(name), relation) for name in asked for relation in range(2 * len(predictor.relations))]
    return np.array([engine.scores(snapshot.graph, *query)[order] for query in queries])


def expected(scorer: AlignedModel, asked: list[str], answers: list[str], words: Sequence[str]) -> npt.NDArray[Any]:
    """The same by what evaluation ranks with; ``words`` are the relations in the model's order."""
    ids, size = DATASET.entities.ids(asked), len(DATASET.relations)
    plain = DATASET.relations.ids(list(words))
    oriented = np.concatenate([plain, plain + size]).astype(np.int32)
    rows = scorer.scores(np.repeat(ids, len(oriented)), np.tile(oriented, len(ids)))
    return rows[:, DATASET.entities.ids(answers)]


def newcomers_facts(dataset: InductiveDataset = DATASET) -> list[Triple]:
    return list(dataset.auxiliary.named())


def everything(predictor: Predictor) -> list[bytes]:
    """Answers and vectors of everyone, to the bit."""
    names = [*predictor.names.entities.names_of(range(predictor.names.num_seen)), *predictor.newcomers]
    vectors = [predictor.embed(name).tobytes() for name in names]
    asked = [predictor.embed(name, relation).tobytes() for name in names for relation in predictor.relations]
    return [*vectors, *asked, table(predictor, [*ASKED[5:], *predictor.newcomers], names).tobytes()]


CASES = [
    *[(f"model.encoder={name}",) for name in ("vn", "mean", "lstm", "lan")],
    *[(f"model.encoder={name}", "model.answers_by_input=true") for name in ("vn", "lan")],
    ("model.encoder=lan", "model.answers_by_input=true", *BLENDED),
    *[(f"model.encoder={name}", *BLENDED) for name in ("vn", "lan")],
    FOLDED,
    (*FOLDED, "model.decoder=complex", EVERY_KIND, *BLENDED),
    (*FOLDED, *BLENDED, "model.propagation=yes", "training.propagation_steps=9"),
    (*FOLDED, *BLENDED, HEARING),
    (*FOLDED, *BLENDED, HEARING, "model.propagation=yes", "training.propagation_steps=9"),
    ("protocol=refreshed", EVERY_KIND, *BLENDED, HEARING),
    ("protocol=transductive", *BLENDED, HEARING),
    ("training.final_fit=no", "rules.paths=no", *BLENDED, HEARING),
    ("model.query_aware=no", "model.decoder=transe"),
    ("protocol=refreshed", EVERY_KIND, *BLENDED),
    ("protocol=refreshed", EVERY_KIND),
    ("protocol=transductive",),
    (EVERY_KIND, *BLENDED),
    ("model.labels=none",),
    ("model.labels=hard",),
    ("rules.kinds=", "rules.paths=no"),
    ("training.final_fit=no", "rules.paths=no"),  # walks start from ids, which evaluation gives by the data set's order
]


@pytest.mark.parametrize("changes", CASES, ids=" ".join)
def test_scores_are_those_of_evaluation_whether_newcomers_are_stored_or_added(changes):
    stored, added = model(*changes), forgetful(*changes)
    facts = [*newcomers_facts(), *DATASET.observed.named()]
    stored.add([fact for fact in newcomers_facts() if not seen(stored, fact)], "skip")
    late = [fact for fact in facts if not seen(added, fact)]
    for place in np.random.default_rng(1).permutation(len(late)):
        added.add([late[place]], "skip")
    assert stored.newcomers == added.newcomers
    names = list(DATASET.entities)
    scorer = scorer_for(trained(*changes), DATASET, threads=1)
    wanted = expected(scorer, ASKED, names, stored.relations)
    assert wanted.std() > 0
    assert np.array_equal(table(stored, ASKED, names), wanted)  # to the bit: the same facts, the same engine
    np.testing.assert_allclose(table(added, ASKED, names), wanted, atol=2e-6)


def test_what_is_told_of_two_seen_entities_is_heard_neither_here_nor_by_evaluation():
    told = [("p00", "knows", "p01"), ("p02", "lives_in", "city5"), ("p04", "lives_in", "city5")]
    dataset, changes = world(aux=[*parts()["aux"], *told]), (*FOLDED, *BLENDED, HEARING)
    bundle = trained(*changes, dataset=dataset)
    predictor, scorer, names = (
        Predictor(bundle, threads=1),
        scorer_for(bundle, dataset, threads=1),
        list(dataset.entities),
    )
    asked, size = ["q0", "p02", "city5"], len(dataset.relations)
    ids, plain = dataset.entities.ids(asked), dataset.relations.ids(list(predictor.relations))
    oriented = np.concatenate([plain, plain + size]).astype(np.int32)
    wanted = scorer.scores(np.repeat(ids, len(oriented)), np.tile(oriented, len(ids)))
    np.testing.assert_allclose(table(predictor, asked, names), wanted, atol=2e-6)


def seen(predictor: Predictor, fact: Triple) -> bool:
    """Whether a fact is about two entities that were trained on."""
    return all(predictor.names.seen(name) >= 0 for name in fact[::2])


def test_rules_name_newcomers_in_the_case_that_is_about_it():
    assert model("protocol=refreshed", EVERY_KIND, *BLENDED).engine.rules.names_newcomers
    assert not model().engine.rules.names_newcomers


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["constrained", "blended"])
def test_tails_and_heads_are_in_the_order_of_evaluation_without_what_is_known(changes):
    predictor, names = model(*changes), list(DATASET.entities)
    scorer, size = scorer_for(trained(*changes), DATASET, threads=1), len(DATASET.relations)
    known = set(DATASET.known_facts().named())
    for name in ("q0", "q3", "club", "p04", "land1"):
        for relation, word in enumerate(DATASET.relations):
            for ask, oriented in ((predictor.tails, relation), (predictor.heads, relation + size)):
                pair = (name, word) if oriented < size else (word, name)
                scores = expected(scorer, [name], names, predictor.relations)[oriented]
                facts = [(name, word, n) if oriented < size else (n, word, name) for n in names]
                wanted = {n: s for n, s, fact in zip(names, scores, facts, strict=True) if fact not in known}
                answers = ask(*pair, k=100)
                assert {a.entity for a in answers} == set(wanted)
                given = [wanted[a.entity] for a in answers]
                assert all(above >= below - 2e-6 for above, below in pairwise(given))
                assert [a.entity for a in ask(*pair, k=3)] == [a.entity for a in answers[:3]]
                assert {a.entity for a in ask(*pair, k=100, known=True)} == set(names)


@pytest.mark.parametrize(
    "changes",
    [(), BLENDED, (*BLENDED, HEARING), ("model.encoder=mean",), ("protocol=refreshed", EVERY_KIND)],
    ids=str,
)
def test_removing_undoes_adding_to_the_bit(changes):
    predictor = model(*changes)
    before = everything(predictor)
    predictor.add(
        [*ATLANTIS, ("Atlantis", "knows", "q1"), ("Utopia", "knows", "Atlantis"), ("q0", "lives_in", "city4")]
    )
    assert everything(predictor) != before
    assert predictor.remove("Atlantis") == ("Atlantis", "Utopia")  # who was known by Atlantis alone goes with it
    predictor.remove("q0")
    predictor.add([fact for fact in newcomers_facts() if "q0" in fact])
    assert everything(predictor) == before
    assert not predictor._snapshot.slots  # not only as good: the same
    predictor.add([lives("Nemo", 0), ("Nemo", "knows", "p04")])
    predictor.remove("Nemo")
    assert everything(predictor) == before


@pytest.mark.parametrize("encoder", ENCODERS)
def test_seen_entities_stay_as_they_are(encoder):
    predictor = forgetful(*choosing(encoder))
    known = [name for name in DATASET.entities if name in predictor]
    before = [predictor.embed(name, relation).tobytes() for name in known for relation in predictor.relations]
    scores = table(predictor, known, known).tobytes()
    predictor.add([*newcomers_facts(), *ATLANTIS])
    assert [predictor.embed(name, relation).tobytes() for name in known for relation in predictor.relations] == before
    assert table(predictor, known, known).tobytes() == scores


def test_neither_adding_nor_embedding_looks_at_everyone(monkeypatch):
    predictor = forgetful()

    def refuse(*_: object) -> None:
        raise AssertionError("looked at everyone")

    monkeypatch.setattr(NewcomerEncoder, "everyone", refuse)
    monkeypatch.setattr(type(predictor.engine.encoder.encoder), "states", refuse)
    predictor.add(ATLANTIS)
    assert predictor.embed("Atlantis").shape == (8,) and predictor.embed("Atlantis", "knows").shape == (8,)
    encoded = predictor._snapshot.slots["Atlantis"].encoded
    around = {"city1", "p02", "p05"} | {name for n in predictor.neighbors("Atlantis") for name in n.fact[::2]}
    premises = {e for n in predictor.neighbors("Atlantis") for g in n.groundings for p in g.premises for e in p[::2]}
    assert set(DATASET.entities.names_of(encoded.near.numpy())) <= around | premises
    with pytest.raises(AssertionError, match="looked at everyone"):
        predictor.tails("Atlantis", "knows")


def test_no_question_goes_through_the_graph_for_who_has_a_relation(monkeypatch):
    predictor = model(EVERY_KIND, *BLENDED)

    count = AnswerCounts.of

    def counted(rows: Adjacency, relations: int) -> AnswerCounts:
        assert len(rows.tails) < len(DATASET.observed), "went through the graph"
        return count(rows, relations)

    monkeypatch.setattr("newcomer.graph.overlay.AnswerCounts.of", counted)
    predictor.add(ATLANTIS)
    assert predictor.tails("Atlantis", "citizen_of") and predictor.heads("knows", "p02")
    with pytest.raises(AssertionError, match="went through the graph"):
        model(EVERY_KIND, *BLENDED)


def test_what_rules_infer_about_a_newcomer_is_found_when_asked_where_its_vector_does_not_hear_it(monkeypatch):
    grounded, ground = [], RuleEngine.virtual_neighbors
    stored, predictor = model(*FOLDED, *BLENDED), forgetful(*FOLDED, *BLENDED)
    monkeypatch.setattr(
        RuleEngine, "virtual_neighbors", lambda self, *given: grounded.append(given) or ground(self, *given)
    )
    predictor.add(DATASET.auxiliary.named())
    vector = predictor.embed("q0")
    assert [str(answer.because) for answer in predictor.tails("q0", "citizen_of")] and not grounded
    found, known = predictor.neighbors("q0"), stored.neighbors("q0")
    assert len(grounded) == 1 and any(one.virtual for one in found)
    assert [(n.fact, n.virtual, n.groundings) for n in found] == [(n.fact, n.virtual, n.groundings) for n in known]
    assert [n.label for n in found] == pytest.approx([n.label for n in known], abs=1e-5)
    assert predictor.neighbors("q0") == found and len(predictor.neighbors("q1")) > 0 and len(grounded) == 1
    assert np.array_equal(predictor.embed("q0"), vector)


def test_adding_tells_what_it_did():
    predictor = forgetful()
    added = predictor.add([*ATLANTIS, ATLANTIS[0]])
    assert (added.newcomers, added.facts, added.repeated, added.skipped) == (("Atlantis",), 3, 1, 0)
    again = predictor.add(
        [ATLANTIS[0], ("Atlantis", "moon_of", "p01"), ("Moon", "moon_of", "x")], on_unknown_relation="skip"
    )
    assert (again.newcomers, again.facts, again.repeated, again.skipped) == ((), 0, 1, 2)
    assert predictor.newcomers == ("Atlantis",) and "Moon" not in predictor and "p01" in predictor
    assert predictor.add([]).facts == 0
    assert repr(predictor) == "Predictor(33 seen entities, 1 newcomers, 5 relations)"


def test_more_facts_extend_a_newcomer():
    first, whole = forgetful(), forgetful()
    for fact in ATLANTIS:
        first.add([fact])
    whole.add(ATLANTIS)
    assert everything(first) == everything(whole)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ([("Atlantis", "moon_of", "p01")], "knows no relation 'moon_of'"),
        ([("Atlantis", "live_in", "city1")], "did you mean 'lives_in'?"),
        ([("p01", "knows", "p02")], "is about two entities that the model was trained on"),
        ([("", "knows", "p02")], "has the name ''"),
        ([("Atlantis", "knows", "  ")], "has the name '  '"),
        ([("Atlantis", "knows", None)], "has the name None"),
        ([("Atlantis", "knows")], "is not a triple"),
        (["abc"], "is not a triple"),
        ("abc", "must be a list of (head, relation, tail)"),
    ],
)
def test_a_wrong_fact_is_named_and_nothing_is_added(facts, problem):
    predictor = forgetful()
    before = predictor._snapshot
    given = facts if isinstance(facts, str) else [*ATLANTIS, *facts]
    assert problem in str(complaint(predictor.add, given))
    assert predictor._snapshot is before


def test_whoever_is_not_there_cannot_be_asked_about():
    predictor = forgetful()
    for call in (predictor.embed, predictor.neighbors, predictor.suggest, predictor.similar, predictor.remove):
        assert "'Atlantis' is not known; add facts of it first" in str(complaint(call, "Atlantis"))
    assert "is not known" in str(complaint(predictor.tails, "Atlantis", "knows"))
    assert "is not known" in str(complaint(predictor.classify, [("p01", "knows", "Atlantis")]))
    assert "was trained on; only newcomers can be removed" in str(complaint(predictor.remove, "p01"))
    assert "knows no relation" in str(complaint(predictor.heads, "moon_of", "p01"))
    for k in (0, -1, 2.5, "3", True, None):
        for ask in (
            lambda k: predictor.tails("p01", "knows", k),
            lambda k: predictor.heads("knows", "p01", k),
            lambda k: predictor.suggest("p01", k),
            lambda k: predictor.similar("p01", k),
        ):
            assert str(complaint(ask, k)) == f"k is {k!r}, but must be an integer from 1"
    assert len(predictor.tails("p01", "knows", np.int64(2))) == 2
    assert "unknown on_unknown_relation 'ignore'" in str(complaint(predictor.add, [], "ignore"))


def test_probabilities_are_sigmoids_or_shares_unless_calibrated():
    plain, blended = model("training.validation_rate=0"), model(*BLENDED, "training.validation_rate=0")
    assert plain.calibration is None and blended.calibration is None
    for answer in plain.tails("q0", "citizen_of", k=5):
        assert answer.probability == pytest.approx(1 / (1 + np.exp(-answer.score)))
    assert sum(a.probability for a in blended.tails("q0", "citizen_of", k=99, known=True)) == pytest.approx(1.0)
    assert not any(one.calibrated for one in [*plain.tails("q0", "citizen_of"), *plain.suggest("q0")])
    assert not plain.classify([citizen("q0", 0)])[0].calibrated and not plain.confidence("q0").calibrated


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["constrained", "blended"])
def test_calibrated_probabilities_are_those_of_evaluation_and_keep_the_order(changes):
    predictor, curve = model(*changes), calibration_of(trained(*changes)).answers
    scorer = scorer_for(trained(*changes), DATASET, threads=1)
    for name, relation in product(("q0", "q3", "p05", "land1"), range(2 * len(predictor.relations))):
        size = len(predictor.relations)
        word = predictor.relations[relation % size]
        found = predictor.heads(word, name, 8) if relation >= size else predictor.tails(name, word, 8)
        asked = DATASET.entities.ids([name]), DATASET.relations.ids([word]) + np.int32(relation // size * size)
        known = dict.fromkeys(
            a.entity for a in (predictor.heads(word, name, 99) if relation >= size else predictor.tails(name, word, 99))
        )
        left_out = np.array([other not in known for other in DATASET.entities])
        places = DATASET.entities.ids([answer.entity for answer in found])
        wanted = curve.probabilities(evidence(scorer.scores(*asked)[0], left_out, places), relation)
        assert all(one >= other for one, other in pairwise(wanted.tolist()))
        wanted = np.maximum(wanted, [answer.probability for answer in found])  # who is a fact is right
        np.testing.assert_allclose([answer.if_any for answer in found], wanted, atol=1e-4)
        assert all(one.score >= other.score for one, other in pairwise(found))
        assert all(answer.calibrated for answer in found)
    predictor.calibration = None  # whoever wants them plain
    assert not predictor.tails("q0", "citizen_of")[0].calibrated


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["constrained", "blended"])
def test_a_fact_has_one_probability_whatever_it_is_an_answer_to(changes):
    predictor = model(*changes)
    predictor.add([("zed", "knows", "q0"), ("zed", "lives_in", "city1"), ("far", "knows", "away")])
    for name in ("zed", "q0", "p05", "land1", "far"):
        listed = {one.fact: one.probability for one in predictor.suggest(name, k=30)}
        for relation in predictor.relations:
            for answer in predictor.tails(name, relation, k=50, known=True):
                listed.setdefault((name, relation, answer.entity), answer.probability)
                assert listed[name, relation, answer.entity] == answer.probability
            for answer in predictor.heads(relation, name, k=50, known=True):
                listed.setdefault((answer.entity, relation, name), answer.probability)
                assert listed[answer.entity, relation, name] == answer.probability
        verdicts = predictor.classify(list(listed))
        assert [one.probability for one in verdicts] == list(listed.values())
        assert all(one.is_true == (one.probability >= 0.5) for one in verdicts)
        assert predictor.confidence(name).best == predictor.suggest(name, k=1)[0]
        assert predictor.confidence(name).best.probability == listed[predictor.confidence(name).best.fact]


def test_nobody_without_ties_gets_more_than_the_base_rate():
    predictor = model(*BLENDED)
    predictor.add([("far", "knows", "away")])
    seen = predictor.names.num_seen
    for one in predictor.suggest("far", k=50):
        head, relation, tail = one.fact
        other, asked = (tail, 0) if head == "far" else (head, 2)
        stated = [fact for fact in named_facts(predictor) if fact[1] == relation and fact[2 - asked] == other]
        assert one.probability <= (len(stated) + 0.5) / (seen + 1) + 1e-12
    found = predictor.confidence("far")
    assert not found.tied and not found.enough and "no fact leads to an entity that was trained on" in str(found)
    assert predictor.confidence("q0").tied


def named_facts(predictor):
    observed = predictor.bundle.observed
    rows = observed.triples.rows.tolist()
    return [(observed.entities[h], observed.relations[r], observed.entities[t]) for h, r, t in rows]


def test_only_answers_of_a_class_and_of_some_probability_are_given():
    predictor = model(*BLENDED)
    who = predictor.tails("q0", "knows", k=99)
    of_city = [one for one in who if ("lives_in", "city1") in facts_about(predictor, one.entity)]
    assert 0 < len(of_city) < len(who)
    assert predictor.tails("q0", "knows", k=99, types=["city1"]) == of_city
    least = who[3].probability
    kept = predictor.tails("q0", "knows", k=99, min_probability=least)
    assert kept == [one for one in who if one.probability >= least] and 0 < len(kept) < len(who)
    suggested = predictor.suggest("q0", k=99, types=["city1"], relations=["knows"])
    assert suggested and all(
        ("lives_in", "city1") in facts_about(predictor, next(end for end in one.fact[::2] if end != "q0"))
        for one in suggested
    )
    assert "not known" in str(complaint(predictor.tails, "q0", "knows", types=["nowhere"]))


def facts_about(predictor, name):
    snapshot = predictor._snapshot
    relations, tails = snapshot.graph.overlay.all_facts_of(snapshot.id(name))
    size = len(predictor.relations)
    return {
        (predictor.relations[relation], snapshot.name_of(tail))
        for relation, tail in zip(relations.tolist(), tails.tolist(), strict=True)
        if relation < size
    }


@pytest.mark.parametrize("changes", [(), BLENDED], ids=["constrained", "blended"])
def test_triples_are_classified_by_the_scores_of_evaluation_and_the_thresholds(changes):
    scorer = scorer_for(trained(*changes), DATASET, threads=1)
    asked = [("q0", "citizen_of", "land0"), ("p00", "citizen_of", "q1"), ("p01", "lives_in", "city1"), citizen("q2", 2)]
    ids = [DATASET.entities.ids([t[0] for t in asked]), DATASET.relations.ids([t[1] for t in asked])]
    wanted = scorer.triple_scores(*ids, DATASET.entities.ids([t[2] for t in asked]))
    limits = Thresholds(1e9, {"citizen_of": float(np.sort(wanted[[0, 1, 3]])[1]) - 1e-4})
    predictor = Predictor(replace(trained(*changes), thresholds=limits), threads=1)
    verdicts = predictor.classify(asked)
    np.testing.assert_allclose([v.score for v in verdicts], wanted, atol=2e-6)
    assert [v.fact for v in verdicts] == asked
    assert sum(v.is_true for v in verdicts) == 2 and not verdicts[2].is_true
    assert all(v.is_true == (v.probability >= 0.5) for v in model(*changes).classify(asked))


def test_suggestions_are_the_best_answers_over_all_relations():
    predictor = model()
    found = predictor.suggest("q0", k=7)
    every = [
        (answer.probability, ("q0", relation, answer.entity) if tails else (answer.entity, relation, "q0"))
        for relation in predictor.relations
        for tails in (True, False)
        for answer in (predictor.tails("q0", relation) if tails else predictor.heads(relation, "q0"))
    ]
    best_probabilities = sorted({fact: probability for probability, fact in every}.values(), reverse=True)[:7]
    assert [one.probability for one in found] == best_probabilities
    assert {one.fact for one in found}.isdisjoint(DATASET.known_facts().named())
    named = predictor.suggest("q0", k=3, relations=["citizen_of"])
    assert {one.fact[1] for one in named} == {"citizen_of"}


def test_with_many_relations_those_are_asked_that_go_together(monkeypatch):
    monkeypatch.setattr("newcomer.predictor.predictor.RELATIONS", 3)
    predictor = forgetful()
    predictor.add([("Atlantis", "lives_in", "city1")])
    asked = predictor._likely_relations(predictor._snapshot, "Atlantis")
    size = len(predictor.relations)
    names = [predictor.relations[r % size] + ("^-1" if r >= size else "") for r in asked]
    assert set(names) == {"citizen_of", "knows", "knows^-1"}  # all who live somewhere know, are known, and are citizens


@pytest.mark.parametrize("encoder", ["vn", "lan", "lstm"])
def test_the_most_similar_have_the_highest_cosine(encoder):
    predictor = model(f"model.encoder={encoder}")
    names, own = list(DATASET.entities), predictor.embed("q1")
    others = {name: predictor.embed(name) for name in names if name != "q1"}
    cosines = {n: float(v @ own / max(np.linalg.norm(v) * np.linalg.norm(own), 1e-8)) for n, v in others.items()}
    found = predictor.similar("q1", k=4)
    assert [value for _, value in found] == pytest.approx(sorted(cosines.values(), reverse=True)[:4], abs=1e-5)
    assert all(value == pytest.approx(cosines[name], abs=1e-5) for name, value in found)


def test_neighbors_are_facts_and_what_rules_infer_from_them():
    predictor = forgetful()
    predictor.add(ATLANTIS)
    found = predictor.neighbors("Atlantis")
    assert sorted(n.fact for n in found if not n.virtual) == sorted(ATLANTIS)
    virtual = {n.fact: n for n in found if n.virtual}
    home = virtual[("Atlantis", "citizen_of", "land1")]
    assert 0 < home.label <= 1
    assert home.groundings[0].premises == (("Atlantis", "lives_in", "city1"), ("city1", "city_in", "land1"))
    assert home.groundings[0].rule == "lives_in(x,z), city_in(z,y) => citizen_of(x,y)"
    of_seen = predictor.neighbors("p00")
    assert ("p00", "lives_in", "city0") in [n.fact for n in of_seen if not n.virtual]
    assert [n for n in of_seen if n.fact == ("p00", "citizen_of", "land0") and n.virtual and n.groundings]


def test_readers_see_one_state_while_others_write():
    predictor = forgetful(*BLENDED)
    predictor.add(ATLANTIS)

    def asked() -> list[tuple[str, float]]:
        return [(a.entity, a.score) for a in predictor.tails("Atlantis", "citizen_of", k=40)]

    alone = asked()
    predictor.add([("Utopia", "lives_in", "city2")])
    both = asked()
    assert alone != both
    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(lambda: [asked() for _ in range(15)]) for _ in range(2)]
        for _ in range(15):
            predictor.remove("Utopia")
            predictor.add([("Utopia", "lives_in", "city2")])
        found = [one for reader in readers for one in reader.result()]
    assert all(one in (alone, both) for one in found)


def test_a_model_is_loaded_from_its_folder(tmp_path):
    fitted = fit(DATASET, settings("training.epochs=1"), device="cpu")
    write_bundle(tmp_path / "m", fitted.bundle(DATASET))
    predictor = newcomer.load(tmp_path / "m")
    assert predictor.newcomers == ("club", "q0", "q1", "q2", "q3")
    assert "does not exist" in str(complaint(newcomer.load, tmp_path / "nothing"))


def test_the_best_are_those_of_a_full_sort():
    rng = np.random.default_rng(2)
    for size in (1, 5, 40):
        scores, left_out = rng.integers(0, 6, size).astype(np.float32), rng.random(size) < 0.3
        for k in (1, 3, 50):
            order = [place for place in np.argsort(-scores, kind="stable") if not left_out[place]][:k]
            assert best(scores, left_out, k).tolist() == order
