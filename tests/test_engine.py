"""The inference engine: evaluation and the predictor give the same scores to the bit, whatever else is asked.

Covers newcomer.evaluation.alignment and newcomer.models.engine.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

from newcomer.data import load_dataset
from newcomer.evaluation.alignment import AlignedModel, scorer_for
from newcomer.evaluation.ranking import queries_of
from newcomer.graph import InductiveDataset
from newcomer.models.bundle import Bundle, read_bundle, write_bundle
from newcomer.models.engine import InferenceEngine, SnapshotScorer, query_batches
from newcomer.models.serialisation import load_engine
from newcomer.predictor import Predictor
from newcomer.rules.ranking import RuleEvidence
from newcomer.training.candidate_propagation import Way, way_of
from newcomer.training.pipeline import fit
from nn_oracle import one_thread
from training_world import FOLDED, parts, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
LINKS = [("q0", "knows", "q1"), ("q2", "knows", "q1"), ("q3", "knows", "q3"), ("club", "city_in", "land1")]
MEMBERS = [(f"p{i:02}", "member_of", "club") for i in range(0, 24, 2)]
WORLD = world(aux=[*parts()["aux"], *LINKS, *MEMBERS])  # some newcomers are connected, and a relation is theirs alone
ENSEMBLE = (*FOLDED, "model.ensemble=yes", "model.constrained=no")
STATISTICS = (*ENSEMBLE, "model.graph_statistics=yes")
PROPAGATION = (*STATISTICS, "model.propagation=yes", "training.propagation_steps=6")
SETTINGS = {
    "ensemble": ENSEMBLE,
    "statistics": STATISTICS,
    **dict.fromkeys(("dense propagation", "sparse propagation", "candidate propagation"), PROPAGATION),
    "vn ensemble": ("model.ensemble=yes", "model.constrained=no"),
    **{name: (f"model.encoder={name}",) for name in ("vn", "mean", "lan", "lstm")},
    "foldin": FOLDED,
}
WAYS = {"dense propagation": Way.EVERYONE, "sparse propagation": Way.FRONTIER, "candidate propagation": Way.CANDIDATES}
every_model = pytest.mark.parametrize("model", SETTINGS)


@cache
def trained(model: str) -> Bundle:
    """On the small world, read back from its folder."""
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as folder:
        patched.setattr("newcomer.training.candidate_propagation.chosen_way", lambda *_: WAYS.get(model))
        fitted = fit(WORLD, settings("training.epochs=1", "rules.walks=50", *SETTINGS[model]), device="cpu")
        if model in WAYS:
            assert way_of(fitted.model.propagation.state_dict()) is WAYS[model]
        write_bundle(Path(folder) / "m", fitted.bundle(WORLD))
        return read_bundle(Path(folder) / "m")


def every_query(dataset: InductiveDataset = WORLD) -> tuple[np.ndarray, np.ndarray]:
    relations = 2 * len(dataset.relations)
    asked = np.arange(len(dataset.entities) * relations, dtype=np.int32)
    return asked // relations, asked % relations


def by_predictor(predictor: Predictor, dataset: InductiveDataset, *asked: np.ndarray) -> np.ndarray:
    """A row of scores a query, in the ids of the data set."""
    snapshot, size = predictor._snapshot, len(dataset.relations)
    ids = [snapshot.id(name) for name in dataset.entities]
    words = [predictor.names.relation(word) for word in dataset.relations]
    relations = [*words, *(one + len(predictor.relations) for one in words)]
    assert len(words) == size
    queries = zip(*(column.tolist() for column in asked), strict=True)
    rows = [predictor.engine.scores(snapshot.graph, ids[entity], relations[relation]) for entity, relation in queries]
    return np.stack(rows)[:, ids]


@every_model
def test_evaluation_and_the_predictor_give_the_same_scores_to_every_query(model):
    asked = every_query()
    found = by_predictor(Predictor(trained(model), threads=1), WORLD, *asked)
    wanted = scorer_for(trained(model), WORLD, threads=1).scores(*asked)
    assert found.dtype == wanted.dtype == np.float32 and np.array_equal(found, wanted)
    assert len(np.unique(wanted, axis=0)) > 50


@every_model
def test_the_answers_of_the_predictor_have_these_scores(model):
    predictor, scorer = Predictor(trained(model), threads=1), scorer_for(trained(model), WORLD, threads=1)
    entities, relations = WORLD.entities, WORLD.relations
    for name in ("q0", "club", "p03", "land1"):
        for relation, word in enumerate(relations):
            for turned, answers in (
                (0, predictor.tails(name, word, k=99, known=True)),
                (len(relations), predictor.heads(word, name, k=99, known=True)),
            ):
                asked = np.array([entities.id(name)]), np.array([relation + turned])
                row = scorer.scores(*(column.astype(np.int32) for column in asked))[0]
                assert [one.score for one in answers] == [float(row[entities.id(one.entity)]) for one in answers]
                assert answers


@pytest.mark.parametrize("model", ["dense propagation", "vn"])
def test_so_they_do_on_the_sample(model, tmp_path):
    dataset, config = load_dataset("sample"), settings("training.epochs=1", "rules.walks=20", *SETTINGS[model])
    write_bundle(tmp_path / "m", fit(dataset, config, device="cpu").bundle(dataset))
    bundle, queries = read_bundle(tmp_path / "m"), queries_of(dataset)
    asked = queries.entity.astype(np.int32), queries.relation.astype(np.int32)
    wanted = scorer_for(bundle, dataset, threads=2).scores(*asked)
    assert np.array_equal(by_predictor(Predictor(bundle, threads=1), dataset, *asked), wanted)


@every_model
def test_a_score_does_not_depend_on_what_else_is_asked(model):
    scorer, (entities, relations) = scorer_for(trained(model), WORLD, threads=1), every_query()
    together = scorer.scores(entities, relations)
    order = np.random.default_rng(0).permutation(len(entities))
    twice = np.concatenate([order, order[:40]])
    assert np.array_equal(scorer.scores(entities[twice], relations[twice]), together[twice])
    for query in order[:60].tolist():
        alone = scorer.scores(entities[query : query + 1], relations[query : query + 1])
        assert np.array_equal(alone[0], together[query])
    tails = ((entities * 7 + relations) % len(WORLD.entities)).astype(np.int32)
    triples = scorer.triple_scores(entities, relations, tails)
    assert np.array_equal(
        scorer.triple_scores(*(column[order] for column in (entities, relations, tails))), triples[order]
    )
    assert scorer.scores(entities[:0], relations[:0]).shape == (0, len(WORLD.entities))
    assert scorer.triple_scores(entities[:0], relations[:0], tails[:0]).shape == (0,)


@every_model
def test_a_score_does_not_depend_on_threads(model):
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(scorer_for(trained(model), WORLD, threads=threads).scores(*every_query()))
    assert np.array_equal(*found)


@every_model
def test_facts_that_come_later_give_nearly_the_scores_of_facts_that_came_with_the_model(model):
    predictor = Predictor(trained(model), threads=1)
    for name in predictor.newcomers:
        if name in predictor:
            predictor.remove(name)
    assert not predictor.newcomers
    predictor.add(WORLD.auxiliary.named())
    asked = every_query()
    wanted = scorer_for(trained(model), WORLD, threads=1).scores(*asked)
    np.testing.assert_allclose(by_predictor(predictor, WORLD, *asked), wanted, rtol=1e-4, atol=2e-4)


# One engine -----------------------------------------------------------------------------------------------------------


def engine_of(model: str) -> InferenceEngine:
    return load_engine(trained(model), threads=1)


@pytest.mark.parametrize("model", ["ensemble", "statistics", "dense propagation", "sparse propagation"])
def test_the_signals_of_many_queries_are_those_of_each(model):
    engine, (entities, relations) = engine_of(model), every_query()
    some = np.random.default_rng(0).integers(len(entities), size=40)
    found = engine.signals_of_many(engine.initial, entities[some], relations[some])
    other = engine_of(model)
    for place, signals in zip(some.tolist(), found, strict=True):
        alone = other.signals(other.initial, int(entities[place]), int(relations[place]))
        for one, wanted in zip((*signals, *signals.rules), (*alone, *alone.rules), strict=True):
            assert one is wanted is None or isinstance(one, RuleEvidence) or np.array_equal(one, wanted)
        assert (signals.similarity is None) == (model == "ensemble")
        assert (signals.propagation is None) == ("propagation" not in model)


@pytest.mark.parametrize("model", ["ensemble", "statistics", "dense propagation", "vn ensemble"])
def test_the_parts_of_a_score_add_up_to_it(model):
    engine = engine_of(model)
    for entity in (0, engine.overlay.num_seen, engine.overlay.num_entities - 1):
        scores, confidence, parts_of = engine.scored(engine.initial, entity, 1)
        assert tuple(parts_of) == engine.feature_names
        total = np.zeros(engine.overlay.num_entities, dtype=np.float32)
        for part in parts_of.values():
            total += part
        assert np.array_equal(total, scores) and np.array_equal(scores, engine.scores(engine.initial, entity, 1))
        assert np.array_equal(confidence, engine.signals(engine.initial, entity, 1).rules.confidence)
        asked = np.array([entity], dtype=np.int32), np.array([1], dtype=np.int32)
        many = engine.scored_many(engine.initial, *asked)[0]
        assert np.array_equal(many.scores, scores) and np.array_equal(many.confidence, confidence) and not many.parts


def test_without_an_ensemble_a_score_has_no_parts():
    engine = engine_of("vn")
    scored = engine.scored(engine.initial, 0, 0)
    assert scored.parts == {} and scored.confidence is None and engine.statistics(engine.initial) is None
    assert np.array_equal(scored.scores, engine.scores(engine.initial, 0, 0))
    assert engine.online_rules(engine.initial, 0) is None
    assert np.array_equal(engine.scores(engine.initial, 0, 0), engine.embedding.scores(engine.initial, 0, 0))


@pytest.mark.parametrize("model", ["statistics", "vn ensemble"])
def test_triples_are_scored_as_answers_of_their_queries_by_an_ensemble(model):
    scorer, (entities, relations) = scorer_for(trained(model), WORLD, threads=1), every_query()
    tails = ((entities * 7 + relations) % len(WORLD.entities)).astype(np.int32)
    rows = scorer.scores(entities, relations)
    found = scorer.triple_scores(entities, relations, tails)
    assert np.array_equal(found, rows[np.arange(len(entities)), tails])
    engine = engine_of(model)
    for place in range(0, len(tails), 37):
        head, tail = (WORLD.entities[int(column[place])] for column in (entities, tails))
        ends = (trained(model).observed.entities.id(name) for name in (head, tail))
        assert engine.triple_score(engine.initial, next(ends), int(relations[place]), next(ends)) == found[place]


def test_the_embedding_of_an_ensemble_can_be_asked_alone():
    scorer: AlignedModel = scorer_for(trained("statistics"), WORLD, threads=1)
    assert scorer.embedding is not None and scorer_for(trained("vn"), WORLD).embedding is None
    engine = scorer.inner.engine
    alone = SnapshotScorer(engine, engine.initial, embedding_only=True)
    found = alone.scores(*every_query())
    assert np.array_equal(scorer.embedding.scores(*every_query()), found)
    assert not np.array_equal(scorer.scores(*every_query()), found)
    head, relation, tail = (np.array([one], dtype=np.int32) for one in (24, 1, 3))
    assert alone.triple_scores(head, relation, tail)[0] == engine.embedding.triple_score(engine.initial, 24, 1, 3)


def test_a_score_of_one_snapshot_is_not_one_of_another():
    predictor = Predictor(trained("dense propagation"), threads=1)
    engine, before = predictor.engine, predictor._snapshot.graph
    entity, relation = predictor._snapshot.id("q0"), predictor.names.relation("lives_in")
    first = engine.scores(before, entity, relation)
    predictor.add([("new", "lives_in", "city0"), ("new", "knows", "p05")])
    after = engine.scores(predictor._snapshot.graph, entity, relation)
    assert len(after) == len(first) + 1 and not np.array_equal(after[:-1], first)
    assert np.array_equal(engine.scores(before, entity, relation), first)


def test_queries_come_in_batches_whose_tables_are_small(monkeypatch):
    monkeypatch.setattr("newcomer.models.engine.CELLS_AT_ONCE", 100)
    assert [(part.start, part.stop) for part in query_batches(7, 30)] == [(0, 3), (3, 6), (6, 7)]
    assert [(part.start, part.stop) for part in query_batches(2, 1000)] == [(0, 1), (1, 2)]
    assert list(query_batches(0, 30)) == []
