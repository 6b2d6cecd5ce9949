"""Paths over all that is known: against the network on the whole graph, and whoever came and went leaves no trace."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from newcomer.evaluation.alignment import scorer_for
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.models.propagation import network as propagation_network
from newcomer.models.propagation.edges import propagation_edges
from newcomer.models.propagation.network import Propagation
from newcomer.models.propagation.own import PathScorer
from newcomer.models.propagation.wide import WidePaths, path_scorer
from newcomer.models.serialisation import paths_of
from newcomer.predictor import Predictor
from newcomer.training import ensemble as ensemble_learner
from newcomer.training.pipeline import Fitted, fit
from nn_oracle import one_thread
from test_similarity import ENTITIES, FACT, RELATIONS, SEEN, Fact
from training_world import FOLDED, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
DATASET = world()
OVER_ALL = (
    *FOLDED,
    *("model.ensemble=yes", "model.graph_statistics=yes", "model.propagation=yes", "model.propagate_newcomers=yes"),
    *("training.propagation_steps=6", "training.epochs=2"),
)
NOBODY = np.empty(0, dtype=np.int32)
KINDS = pytest.mark.parametrize("silent", [False, True])


def network_of(relations: int, silent: bool = False, told: int | None = None) -> Propagation:
    """One that knows of the first relations, or of all."""
    network = Propagation(relations, torch.Generator().manual_seed(5), silent)
    with torch.no_grad():
        for one in network.parameters():  # a fresh one has no biases, and nothing to say of those apart
            one.add_(0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(len(one))))
    for first in (0, relations):
        network.known_relations[first : first + (relations if told is None else told)] = 1.0
    return network.eval()


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def wide(facts: set[Fact], network: Propagation, device: torch.device = CPU) -> WidePaths:
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)]), Vocabulary([f"r{i}" for i in range(RELATIONS)])
    told = {fact for fact in facts if max(fact[0], fact[2]) >= SEEN}
    observed = Graph.build(*names, TripleArray.of(sorted(facts - told)))
    return WidePaths(network, observed, TripleArray.of(sorted(told)), SEEN, device)


def plainly(facts: set[Fact], network: Propagation, entity: int, relation: int, size: int = ENTITIES) -> np.ndarray:
    """By the network on all facts at once."""
    heads, relations, tails = (torch.tensor(column, dtype=torch.int64) for column in zip(*sorted(facts), strict=True))
    edges = propagation_edges(heads, relations, tails, RELATIONS, size)
    scores = network([edges], torch.tensor([entity]), torch.tensor([relation]), size)  # with gradients: another way
    return (scores - torch.logsumexp(scores[:, :SEEN], dim=1, keepdim=True))[0].detach().numpy()


@KINDS
@hypothesis_settings(max_examples=25)
@given(st.sets(FACT, min_size=4, max_size=20), st.integers(0, ENTITIES - 1), st.integers(0, 2 * RELATIONS - 1))
def test_the_network_goes_along_everyones_facts(silent, facts, entity, relation):
    network = network_of(RELATIONS, silent)
    found = wide(facts, network).scores(ids(entity), ids(relation))[0]
    np.testing.assert_allclose(found, plainly(facts, network, entity, relation), rtol=1e-4, atol=1e-5)


@KINDS
@hypothesis_settings(max_examples=25)
@given(
    st.sets(FACT, min_size=4, max_size=20),
    st.sets(st.integers(SEEN, ENTITIES - 1)),
    st.sets(st.tuples(st.integers(0, ENTITIES + 1), st.integers(0, RELATIONS - 1), st.integers(SEEN, ENTITIES + 1))),
    st.integers(0, ENTITIES - 1),
)
def test_who_came_and_went_leaves_no_trace(silent, facts, gone, more, entity):
    network = network_of(RELATIONS, silent)
    more = {fact for fact in more if {fact[0], fact[2]} <= {*range(SEEN), *gone, ENTITIES, ENTITIES + 1}}
    now = {fact for fact in facts if not {fact[0], fact[2]} & gone} | more
    before = wide(facts, network)
    first = before.scores(ids(entity), ids(0))
    changed = before.since(TripleArray.of(sorted(more)), ids(*sorted(gone)))
    if not now:
        return
    size = changed.num_entities
    wanted = plainly(now, network, entity, 0, size)
    np.testing.assert_allclose(changed.scores(ids(entity), ids(0))[0], wanted, rtol=1e-4, atol=1e-5)
    assert np.array_equal(before.scores(ids(entity), ids(0)), first)


@KINDS
def test_the_order_in_which_facts_came_does_not_matter(silent):
    rng, facts = np.random.default_rng(0), {(0, 0, 1), (1, 1, 2), (6, 0, 3)}
    latest = [(ENTITIES, int(relation), int(tail)) for relation in range(RELATIONS) for tail in range(ENTITIES)]
    before, found = wide(facts, network_of(RELATIONS, silent)), []
    for _ in range(8):
        told = TripleArray.of([latest[place] for place in rng.permutation(len(latest))])
        found.append(before.since(told, NOBODY).scores(ids(ENTITIES, 0), ids(0, 1)))
    assert all(np.array_equal(found[0], one) for one in found)


def test_nothing_new_is_nothing_to_do():
    paths = wide({(0, 0, 1), (6, 1, 2)}, network_of(RELATIONS))
    assert paths.since(TripleArray.empty(), NOBODY) is paths


def test_relations_that_nobody_seen_has_are_neither_asked_nor_heard():
    network = network_of(RELATIONS, told=2)
    facts = {(0, 0, 1), (1, 1, 2), (6, 0, 3)}
    strange = facts | {(6, 2, 4), (4, 2, 7)}
    paths = wide(strange, network)
    assert not paths.scores(ids(6, 6), ids(2, 2 + RELATIONS)).any()
    assert np.array_equal(paths.scores(ids(6), ids(0)), wide(facts, network).scores(ids(6), ids(0)))
    later = wide(facts, network).since(TripleArray.of([(ENTITIES, 2, 4)]), NOBODY)
    assert np.array_equal(later.scores(ids(6), ids(0))[:, :ENTITIES], paths.scores(ids(6), ids(0)))


def test_of_two_seen_entities_only_what_was_observed_is_known():
    names = Vocabulary([f"e{i}" for i in range(ENTITIES)]), Vocabulary([f"r{i}" for i in range(RELATIONS)])
    observed, network = Graph.build(*names, TripleArray.of([(0, 0, 1), (1, 1, 2)])), network_of(RELATIONS)
    told = [TripleArray.of(rows) for rows in ([(6, 0, 1)], [(6, 0, 1), (0, 1, 3)])]
    found = [WidePaths(network, observed, one, SEEN, CPU).scores(ids(0), ids(0)) for one in told]
    assert np.array_equal(*found)


def test_questions_are_asked_once_and_in_parts(monkeypatch):
    paths, asked = wide({(0, 0, 1), (1, 1, 2), (6, 0, 3), (3, 2, 7)}, network_of(RELATIONS)), []
    entities, relations = ids(6, 0, 6, 7, 6), ids(0, 1, 0, 2, 1)
    wanted = np.concatenate([paths.scores(entities[[i]], relations[[i]]) for i in range(5)])
    inner = paths._asked
    monkeypatch.setattr(paths, "_asked", lambda some: asked.append(some.tolist()) or inner(some))
    monkeypatch.setitem(propagation_network.TABLE_SIZE, "cpu", 2 * 32 * propagation_network.KEPT * ENTITIES)
    np.testing.assert_allclose(paths.scores(entities, relations), wanted, rtol=1e-4, atol=1e-5)
    assert asked == [[[0, 1], [6, 0]], [[6, 1], [7, 2]]]


def test_without_company_each_is_asked_by_its_own_facts():
    network, seen = network_of(len(DATASET.relations)), int(DATASET.is_seen.sum())
    assert isinstance(path_scorer(network, DATASET, seen, CPU, True), WidePaths)
    assert isinstance(path_scorer(network, DATASET, seen, CPU, False), PathScorer)
    assert settings("model.graph_statistics=yes", "model.propagate_newcomers=yes").model.propagates_newcomers
    assert not settings("model.propagate_newcomers=yes").model.propagates_newcomers
    assert not settings("model.graph_statistics=yes").model.propagates_newcomers  # as models of before are


def fitted_over_all(*changes: str) -> Fitted:
    return fit(DATASET, settings(*OVER_ALL, *changes), device="cpu")


@pytest.mark.parametrize(
    ("change", "heard_wide"), [("model.graph_statistics=yes", True), ("model.graph_statistics=no", False)]
)
def test_whom_to_believe_is_learned_from_paths_as_they_will_be_asked(monkeypatch, change, heard_wide):
    asked: list[bool] = []

    def watched(*given: object) -> object:
        asked.append(bool(given[-1]))
        return path_scorer(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(ensemble_learner, "path_scorer", watched)
    fitted_over_all(change)
    assert set(asked) == {heard_wide}


@KINDS
def test_a_model_says_the_same_when_asked_and_when_examined(monkeypatch, silent):
    monkeypatch.setattr("newcomer.training.pipeline.frontier_stays_local", lambda *_: silent)
    fitted = fitted_over_all()
    assert fitted.paths is not None and fitted.paths.is_sparse is silent
    bundle = fitted.bundle(DATASET)
    scorer, predictor = scorer_for(bundle, DATASET), Predictor(bundle, threads=1)
    mind, state = predictor._mind, predictor._state
    knows = DATASET.relations.id("knows")
    for name in ("q0", "p03", "city1"):
        wanted = scorer.scores(ids(DATASET.entities.id(name)), ids(knows))[0]
        found = mind.scores(state, name, mind.names.relations.id("knows"))
        of_candidates = [DATASET.entities.id(state.name_of(place)) for place in range(state.num_candidates)]
        np.testing.assert_allclose(found, wanted[of_candidates], rtol=1e-4, atol=1e-4)


def test_those_who_come_and_go_later_are_told_apart():
    bundle = fitted_over_all().bundle(DATASET)
    predictor, new = Predictor(bundle, threads=1), [("a_new", "lives_in", "city2"), ("a_new", "knows", "p05")]
    predictor.remove("q1")
    predictor.add(new)  # by name it comes before those who are stored
    mind, state = predictor._mind, predictor._state
    left = [fact for fact in DATASET.auxiliary.named() if "q1" not in fact]
    now = world(aux=[*left, *new], test=[])
    network, seen, at = paths_of(bundle), int(now.is_seen.sum()), now.entities.id
    assert network is not None
    wanted = WidePaths(network, now.observed, now.auxiliary.triples, seen, CPU)
    relation = now.relations.id("knows")
    for name in ("a_new", "q2", "p05"):
        found = mind.path_scores(state, name, mind.names.relations.id("knows"))
        row = wanted.scores(ids(at(name)), ids(relation))[0]
        assert found is not None
        np.testing.assert_allclose(
            found, row[[at(state.name_of(place)) for place in range(state.num_candidates)]], rtol=1e-4, atol=1e-5
        )


def test_what_one_newcomer_tells_is_heard_when_another_is_asked_about():
    bundle = fitted_over_all().bundle(DATASET)
    predictor = Predictor(bundle, threads=1)
    mind, knows = predictor._mind, 0
    predictor.add([("new", "lives_in", "city0")])
    before = mind.path_scores(predictor._state, "new", knows)
    predictor.add([("other", "lives_in", "city0"), ("other", "knows", "p07")])
    after = mind.path_scores(predictor._state, "new", knows)
    assert before is not None and after is not None and len(after) == len(before) + 1
    assert not np.allclose(before[: mind.names.num_seen], after[: mind.names.num_seen], atol=1e-6)
    predictor.remove("other")
    again = mind.path_scores(predictor._state, "new", knows)
    assert again is not None and np.array_equal(before, again)
