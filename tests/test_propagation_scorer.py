"""Propagation over an overlay: against the network on all facts at once; whoever came and went leaves no trace.

Covers newcomer.models.propagation.scorer.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from newcomer.errors import DatasetError
from newcomer.graph import Graph, Overlay, TripleArray
from newcomer.models.propagation import network as propagating
from newcomer.models.propagation.network import DIM, KEPT, Propagation
from newcomer.models.propagation.scorer import PropagationScorer
from newcomer.models.serialisation import PROPAGATION, part_weights, propagation_of
from newcomer.predictor import Predictor
from newcomer.training.pipeline import Fitted, fit
from nn_oracle import one_thread
from overlay_world import ENTITIES, FACT, NOBODY, RELATIONS, SEEN, changes, ids, overlay_of, triples, vocabularies
from propagation_world import CPU, KINDS, network_of, plainly, scorer_of
from training_world import FOLDED, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DATASET = world()
PROPAGATING = (
    *FOLDED,
    *("model.ensemble=yes", "model.graph_statistics=yes", "model.propagation=yes"),
    *("training.propagation_steps=6", "training.epochs=2"),
)


def one_row(scorer: PropagationScorer, overlay: Overlay, entity: int, relation: int) -> np.ndarray:
    return scorer.scores(overlay, ids(entity), ids(relation))[0]


@KINDS
@hypothesis_settings(max_examples=25)
@given(st.sets(FACT, min_size=4, max_size=20), st.integers(0, ENTITIES - 1), st.integers(0, 2 * RELATIONS - 1))
def test_messages_go_along_everyones_facts(sparse, facts, entity, relation):
    network, overlay = network_of(RELATIONS, sparse), overlay_of(facts)
    found = one_row(PropagationScorer(network, overlay.base, CPU), overlay, entity, relation)
    np.testing.assert_allclose(found, plainly(facts, network, entity, relation), rtol=1e-4, atol=1e-5)


@KINDS
@pytest.mark.parametrize("threads", [2, 5, None])
def test_queries_shared_out_to_threads_have_the_scores_that_they_have_alone(sparse, threads):
    facts = {(0, 0, 1), (1, 1, 2), (2, 0, 3), (3, 1, 0), (1, 0, 4), (4, 1, 2)}
    overlay = overlay_of(facts)
    scorer = PropagationScorer(network_of(RELATIONS, sparse), overlay.base, CPU)
    queries = [(entity, relation) for entity in range(ENTITIES) for relation in range(2 * RELATIONS)] * 2
    entities, relations = (ids(*column) for column in zip(*queries, strict=True))
    alone = np.stack([one_row(scorer, overlay, *query) for query in queries])
    assert len(np.unique(alone, axis=0)) > ENTITIES
    assert np.array_equal(scorer.scores(overlay, entities, relations, threads), alone)


@hypothesis_settings(max_examples=25)
@given(
    st.sets(FACT, min_size=8, max_size=30),
    st.integers(0, ENTITIES - 1),
    st.integers(0, 2 * RELATIONS - 1),
    st.integers(1, 4),
)
def test_hubs_send_nothing(facts, entity, relation, most):
    network, overlay = network_of(RELATIONS, sparse=True), overlay_of(facts)
    network.hubs.fill_(most)
    found = one_row(PropagationScorer(network, overlay.base, CPU), overlay, entity, relation)
    observed = [one for head, _, tail in facts if max(head, tail) < SEEN for one in (head, tail)]
    silent = np.bincount(observed, minlength=ENTITIES)[:SEEN] > most  # a loop has two ends
    if entity < SEEN and silent[entity]:
        assert not found.any()
    else:
        np.testing.assert_allclose(
            found, plainly(facts, network, entity, relation, silent=silent), rtol=1e-4, atol=1e-5
        )


@KINDS
@hypothesis_settings(max_examples=25)
@given(changes(20), st.data())
def test_who_came_and_went_leaves_no_trace(sparse, change, data):
    network, overlay = network_of(RELATIONS, sparse), overlay_of(change.before)
    derived = overlay.with_delta(triples(change.added), ids(*sorted(change.removed)))
    scorer, entity = PropagationScorer(network, overlay.base, CPU), data.draw(st.integers(0, change.num_entities - 1))
    first = one_row(scorer, overlay, min(entity, ENTITIES - 1), 0)
    found = one_row(scorer, derived, entity, 0)
    if change.now:
        wanted = plainly(change.now, network, entity, 0, change.num_entities)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    fresh = change.fresh
    again = one_row(PropagationScorer(network, fresh.base, CPU), fresh, entity, 0)
    np.testing.assert_allclose(found, again, rtol=1e-4, atol=1e-5)
    assert np.array_equal(one_row(scorer, overlay, min(entity, ENTITIES - 1), 0), first)


@KINDS
def test_the_order_in_which_facts_came_does_not_matter(sparse):
    rng, overlay = np.random.default_rng(0), overlay_of({(0, 0, 1), (1, 1, 2), (6, 0, 3)})
    scorer, found = PropagationScorer(network_of(RELATIONS, sparse), overlay.base, CPU), []
    latest = [(ENTITIES, int(relation), int(tail)) for relation in range(RELATIONS) for tail in range(ENTITIES)]
    for _ in range(8):
        stated = TripleArray.of([latest[place] for place in rng.permutation(len(latest))])
        found.append(scorer.scores(overlay.with_delta(stated, NOBODY), ids(ENTITIES, 0), ids(0, 1)))
    assert all(np.array_equal(found[0], one) for one in found)


def test_relations_that_no_observed_fact_has_are_neither_asked_nor_passed_on():
    network = network_of(RELATIONS, known=2)
    facts = {(0, 0, 1), (1, 1, 2), (6, 0, 3)}
    overlay, plain = overlay_of(facts | {(6, 2, 4), (4, 2, 7)}), overlay_of(facts)
    scorer, other = (PropagationScorer(network, one.base, CPU) for one in (overlay, plain))
    assert not scorer.scores(overlay, ids(6, 6), ids(2, 2 + RELATIONS)).any()
    assert np.array_equal(one_row(scorer, overlay, 6, 0), one_row(other, plain, 6, 0))
    later = one_row(other, plain.with_delta(TripleArray.of([(ENTITIES, 2, 4)]), NOBODY), 6, 0)
    assert np.array_equal(later[:ENTITIES], one_row(scorer, overlay, 6, 0))
    together = scorer.scores(overlay, ids(6, 6), ids(2, 0))
    assert not together[0].any() and np.array_equal(together[1], one_row(scorer, overlay, 6, 0))


def test_of_two_seen_entities_only_what_was_observed_is_known():
    observed, network = Graph.build(*vocabularies(), TripleArray.of([(0, 0, 1), (1, 1, 2)])), network_of(RELATIONS)
    found = []
    for rows in ([(6, 0, 1)], [(6, 0, 1), (0, 1, 3)]):
        overlay = Overlay.of(observed, TripleArray.of(rows), SEEN)
        found.append(one_row(PropagationScorer(network, overlay.base, CPU), overlay, 0, 0))
    assert np.array_equal(*found)


@KINDS
def test_each_query_is_asked_once_and_by_itself(monkeypatch, sparse):
    overlay, asked = overlay_of({(0, 0, 1), (1, 1, 2), (6, 0, 3), (3, 2, 7)}), []
    scorer = PropagationScorer(network_of(RELATIONS, sparse), overlay.base, CPU)
    entities, relations = ids(6, 0, 6, 7, 6), ids(0, 1, 0, 2, 1)
    wanted = np.concatenate([scorer.scores(overlay, entities[[i]], relations[[i]]) for i in range(5)])
    inner = scorer._log_shares
    monkeypatch.setattr(scorer, "_log_shares", lambda of, some: asked.append(some.tolist()) or inner(of, some))
    assert np.array_equal(scorer.scores(overlay, entities, relations), wanted)
    assert asked == [[[0, 1]], [[6, 0]], [[6, 1]], [[7, 2]]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_many_are_asked_together(monkeypatch):
    overlay, place = overlay_of({(0, 0, 1), (1, 1, 2), (6, 0, 3), (3, 2, 7)}), torch.device("cuda")
    entities, relations = ids(6, 0, 6, 7, 6), ids(0, 1, 0, 2, 1)
    wanted = PropagationScorer(network_of(RELATIONS), overlay.base, CPU).scores(overlay, entities, relations)
    for many in (1 << 29, 2 * DIM * KEPT * ENTITIES):
        monkeypatch.setitem(propagating.TABLE_SIZE, "cuda", many)
        found = PropagationScorer(network_of(RELATIONS), overlay.base, place).scores(overlay, entities, relations)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_one_that_nothing_leads_to_is_like_any_other_of_them():
    overlay = overlay_of({(0, 0, 1), (1, 1, 2), (6, 0, 3)})
    found = one_row(PropagationScorer(network_of(RELATIONS, sparse=True), overlay.base, CPU), overlay, 0, 0)
    assert len({found[place] for place in (3, 4, 5, 6, 7, 8)}) == 1 and len(set(found.tolist())) == 4
    np.testing.assert_allclose(np.exp(found[:SEEN]).sum(), 1.0, rtol=1e-5)


@KINDS
def test_the_number_of_threads_does_not_matter(sparse):
    facts = {(head, head % 3, (5 * head + step) % 4_000) for head in range(4_000) for step in (1, 2, 3)}
    observed = Graph.build(*vocabularies(4_000), TripleArray.of(sorted(facts)))
    overlay, found = Overlay.of(observed), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        scorer = PropagationScorer(network_of(RELATIONS, sparse), overlay.base, CPU)
        found.append(scorer.scores(overlay, np.full(5, 7, dtype=np.int32), ids(0, 1, 2, 3, 4)))
        assert torch.get_num_threads() == threads
    assert np.array_equal(*found)


# The network that is kept with a model --------------------------------------------------------------------------------


def test_weights_that_are_read_again_give_the_same_network():
    for sparse in (False, True):
        network = network_of(RELATIONS, sparse, known=2)
        again = propagation_of(part_weights(PROPAGATION, network), RELATIONS)
        assert again is not None and again.is_sparse is sparse and not again.training
        stored, wanted = part_weights(PROPAGATION, again), part_weights(PROPAGATION, network)
        assert stored.keys() == wanted.keys() and all(np.array_equal(stored[name], wanted[name]) for name in wanted)
        facts = {(0, 0, 1), (6, 0, 1), (6, 1, 2)}
        overlay = overlay_of(facts)
        found = [one_row(scorer_of(facts, one), overlay, 6, 1) for one in (network, again)]
        assert np.array_equal(*found)


def test_weights_of_other_relations_are_refused():
    stored = part_weights(PROPAGATION, Propagation(3, torch.Generator().manual_seed(0)))
    assert propagation_of({"ensemble": stored["propagation.known_relations"]}, 3) is None
    with pytest.raises(DatasetError, match=r"the propagation network does not fit the relations .*; train"):
        propagation_of(stored, 4)


def test_nobody_elses_random_numbers_are_drawn():
    stored = part_weights(PROPAGATION, Propagation(3, torch.Generator().manual_seed(0)))
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    assert propagation_of(stored, 3) is not None
    assert torch.equal(torch.rand(3), first)


# In a trained model ---------------------------------------------------------------------------------------------------


def fitted(*changed: str) -> Fitted:
    return fit(DATASET, settings(*PROPAGATING, *changed), device="cpu")


@pytest.mark.parametrize("statistics", ["yes", "no"])
def test_messages_go_along_newcomers_facts_with_and_without_graph_statistics(statistics):
    bundle = fitted(f"model.graph_statistics={statistics}").bundle(DATASET)
    predictor = Predictor(bundle, threads=1)
    engine = predictor.engine
    assert engine.propagation is not None
    predictor.add([("new", "lives_in", "city0")])
    asked = predictor._snapshot.id("new"), predictor.names.relation("lives_in")
    before = predictor.engine.signals(predictor._snapshot.graph, *asked).propagation
    predictor.add([("other", "lives_in", "city0"), ("other", "knows", "p07")])
    after = predictor.engine.signals(predictor._snapshot.graph, *asked).propagation
    assert before is not None and after is not None and len(after) == len(before) + 1
    seen = predictor.names.num_seen
    assert not np.allclose(before[:seen], after[:seen], atol=1e-6)
    predictor.remove("other")
    again = predictor.engine.signals(predictor._snapshot.graph, *asked).propagation
    assert again is not None and np.array_equal(before, again)


def test_those_who_come_and_go_later_are_told_apart():
    bundle = fitted().bundle(DATASET)
    predictor, new = Predictor(bundle, threads=1), [("a_new", "lives_in", "city2"), ("a_new", "knows", "p05")]
    predictor.remove("q1")
    predictor.add(new)  # by name it comes before those who are stored
    engine, snapshot = predictor.engine, predictor._snapshot
    left = [fact for fact in DATASET.auxiliary.named() if "q1" not in fact]
    now = world(aux=[*left, *new], test=[])
    network, at = engine.model.propagation, now.entities.id
    assert network is not None and list(now.relations) == list(predictor.names.relations)
    overlay = Overlay.of_dataset(now)
    scorer, relation = PropagationScorer(network, overlay.base, CPU), now.relations.id("knows")
    for name in ("a_new", "q2", "p05"):
        found = engine.signals(snapshot.graph, snapshot.id(name), relation).propagation
        row = one_row(scorer, overlay, at(name), relation)
        assert found is not None
        for other in (*now.entities, "a_new"):
            assert found[snapshot.id(other)] == pytest.approx(float(row[at(other)]), rel=1e-4, abs=1e-5)
