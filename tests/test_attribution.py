"""Chains of facts: importances against finite differences, and losses against scores without these facts."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from newcomer.graph import Overlay, TripleArray
from newcomer.models.propagation import attribution
from newcomer.models.propagation.attribution import (
    Chain,
    Fact,
    Messages,
    Question,
    Trace,
    attributed_chains,
    candidate_chains,
    importances,
    messages_along,
    traced,
    without,
)
from newcomer.models.propagation.cpu import distances
from newcomer.models.propagation.edges import PropagationEdges, propagation_edges
from newcomer.models.propagation.network import LAYERS, Propagation
from newcomer.models.propagation.scorer import PropagationScorer
from newcomer.predictor import Chain as NamedChain
from newcomer.predictor import Predictor
from newcomer.predictor.fact_store import NamedSnapshot
from nn_oracle import one_thread
from overlay_world import ENTITIES, FACT, RELATIONS, SEEN, ids, overlay_of
from propagation_world import CPU, KINDS, network_of
from test_predictor import ATLANTIS, BLENDED, DATASET, HEARING, forgetful, model, table
from training_world import FOLDED

on_one_thread = pytest.fixture(autouse=True)(one_thread)
PROPAGATING = (*FOLDED, *BLENDED, "model.propagation=yes", "training.propagation_steps=9")
MODELS = pytest.mark.parametrize("changes", [PROPAGATING, (*PROPAGATING, HEARING)], ids=["plain", "with statistics"])
FACTS = st.sets(FACT, min_size=4, max_size=20)
ENTITY, RELATION = st.integers(0, ENTITIES - 1), st.integers(0, 2 * RELATIONS - 1)


def edges_of(facts: list[Fact], size: int = ENTITIES, relations: int = RELATIONS) -> PropagationEdges:
    heads, along, tails = torch.tensor(facts, dtype=torch.int64).reshape(-1, 3).unbind(dim=1)
    return propagation_edges(heads, along, tails, relations, size)


def in_parts(facts: set[Fact]) -> list[PropagationEdges]:
    """All edges, in two parts of which the first has fewer rows; one fact is masked."""
    late = [fact for fact in sorted(facts) if max(fact[0], fact[2]) >= SEEN]
    first, second = edges_of(sorted(facts - set(late)), SEEN), edges_of(late)
    return without([first, second], sorted(facts)[:1])


def log_probability_by_hand(
    network: Propagation, question: Question, distance: Tensor, by_layer: list[tuple[Messages, Tensor]]
) -> Tensor:
    """The answer's log probability, in doubles, by messages that may weigh something else in each layer."""
    query_vectors, source = network.queries[[question.query]], torch.tensor([question.source])
    vectors = torch.zeros(question.num_entities, 1, query_vectors.shape[1], dtype=torch.float64)
    vectors[source, 0] = query_vectors
    degrees = 1 + torch.bincount(torch.from_numpy(by_layer[0][0].receivers), minlength=question.num_entities)
    for layer, (edges, weights) in enumerate(by_layer):
        senders, receivers, relations = map(torch.from_numpy, edges)
        messages = network.scales[layer][relations] * vectors[senders, 0] * weights[:, None]
        sums = torch.zeros_like(vectors).index_add(0, receivers, messages[:, None])
        vectors = network.updated(layer, vectors, sums, source, query_vectors, degrees)
        if network.is_sparse:
            vectors = vectors * (distance <= layer + 1)[:, None, None]
    scores = network.readout(vectors, query_vectors)[0]
    return scores[question.answer] - torch.logsumexp(scores[: question.num_seen], dim=0)


@KINDS
@hypothesis_settings(max_examples=8)
@given(FACTS, ENTITY, RELATION, ENTITY)
def test_importances_are_finite_differences(sparse, facts, entity, relation, answer):
    question, parts = Question(entity, relation, answer, ENTITIES, SEEN), in_parts(facts)
    network, edges = network_of(RELATIONS, sparse), messages_along(parts)
    trace = traced(network, parts, question)
    found = [importances(network, trace, layer, edges) for layer in range(LAYERS)]
    network = network.double()
    ones = torch.ones(len(edges.senders), dtype=torch.float64)
    distance = torch.from_numpy(distances(parts, entity, LAYERS, ENTITIES))
    with torch.no_grad():
        for layer in range(LAYERS):
            for edge in range(len(ones)):
                sides = []
                for change in (-1e-5, 1e-5):
                    weights = ones.clone()
                    weights[edge] += change
                    by_layer = [(edges, weights if one == layer else ones) for one in range(LAYERS)]
                    sides.append(float(log_probability_by_hand(network, question, distance, by_layer)))
                assert found[layer][edge] == pytest.approx((sides[1] - sides[0]) / 2e-5, rel=1e-2, abs=1e-4)


@KINDS
@hypothesis_settings(max_examples=25)
@given(FACTS, ENTITY, RELATION, ENTITY, st.sets(ENTITY, max_size=3))
def test_a_trace_has_the_scores_of_the_network(sparse, facts, entity, relation, answer, silent):
    network, parts = network_of(RELATIONS, sparse), in_parts(facts)
    if sparse:
        parts = [replace(one, silent=np.isin(np.arange(SEEN), list(silent))) for one in parts]
    with torch.no_grad():
        scores = network(parts, torch.tensor([entity]), torch.tensor([relation]), ENTITIES)[0]
    wanted = scores - torch.logsumexp(scores[:SEEN], dim=0)
    found = traced(network, parts, Question(entity, relation, answer, ENTITIES, SEEN)).log_probabilities
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def check_chain(facts: tuple[tuple, ...], known: set, entity: object, answer: object) -> None:
    """Known facts that lead from the one to the other, no entity twice."""
    assert 1 <= len(facts) <= LAYERS and set(facts) <= known
    at = [entity]
    for head, _, tail in facts:
        assert at[-1] in (head, tail)
        at.append(tail if at[-1] == head else head)
    assert at[-1] == answer and len(set(at)) == len(at)


def chains_of(facts: set[Fact], network: Propagation, device: torch.device = CPU) -> "Over":
    overlay = overlay_of(facts)
    return Over(PropagationScorer(network, overlay.base, device), overlay)


class Over:
    """A scorer in one overlay."""

    def __init__(self, scorer: PropagationScorer, overlay: Overlay) -> None:
        self.scorer, self.overlay = scorer, overlay

    def shares(self, entity: int, relation: int) -> np.ndarray:
        return self.scorer.scores(self.overlay, ids(entity), ids(relation))[0]

    def chains(self, entity: int, relation: int, answer: int) -> list[Chain]:
        return self.scorer.chains(self.overlay, entity, relation, answer)


@KINDS
@hypothesis_settings(max_examples=25)
@given(FACTS, ENTITY, RELATION, ENTITY)
def test_chains_lead_to_the_answer_and_a_loss_is_that_without_their_facts(sparse, facts, entity, relation, answer):
    network = network_of(RELATIONS, sparse)
    over = chains_of(facts, network)
    before = over.shares(entity, relation)
    found = over.chains(entity, relation, answer)
    assert len(found) <= attribution.MAX_CHAINS and len({one.facts for one in found}) == len(found)
    assert [one.loss for one in found] == sorted((one.loss for one in found), reverse=True)
    for one in found:
        check_chain(one.facts, facts, entity, answer)
        after = chains_of(facts - set(one.facts), network).shares(entity, relation)
        assert one.loss == pytest.approx(float(before[answer] - after[answer]), rel=1e-3, abs=1e-4)
        assert one.loss > attribution.MIN_LOSS
    assert np.array_equal(over.shares(entity, relation), before)


def everything() -> AbstractContextManager[object]:
    """All chains are kept, measured and given, whatever they lose."""
    return patch.multiple(attribution, MAX_CANDIDATES=300, MAX_CHAINS=300, MIN_LOSS=-np.inf)


def all_chains(facts: set[Fact], at: list[int], answer: int) -> Iterator[tuple[Fact, ...]]:
    """Every chain of at most so many facts as there are layers, no entity twice."""
    if at[-1] == answer:
        yield ()
    elif len(at) <= LAYERS:
        for fact in sorted(facts):
            ends = {fact[0], fact[2]}
            if at[-1] in ends and len(ends) == 2:
                (other,) = ends - {at[-1]}
                if other not in at:
                    yield from ((fact, *rest) for rest in all_chains(facts, [*at, other], answer))


def pairs_of(facts: tuple[Fact, ...]) -> tuple[tuple[int, ...], ...]:
    """The pairs of entities that facts join."""
    return tuple(tuple(sorted(fact[::2])) for fact in facts)


def best_mean(network: Propagation, trace: Trace, facts: tuple[Fact, ...], source: int) -> float:
    """How much the edges of a chain matter on average, each in a later layer than the one before."""
    senders, found = [source], []
    for head, _, tail in facts:
        senders.append(tail if senders[-1] == head else head)
    along = [fact[1] + RELATIONS * (fact[0] == teller) for fact, teller in zip(facts, senders, strict=False)]
    edges = Messages(np.array(senders[:-1]), np.array(senders[1:]), np.array(along))
    by_layer = [importances(network, trace, layer, edges) for layer in range(LAYERS)]
    for layers in combinations(range(LAYERS), len(facts)):
        found.append(np.mean([by_layer[layer][edge] for edge, layer in enumerate(layers)]))
    return float(max(found))


@KINDS
@hypothesis_settings(max_examples=25)
@given(st.sets(FACT, min_size=4, max_size=12), ENTITY, RELATION, ENTITY)
def test_all_chains_can_be_found_and_the_most_important_come_first(sparse, facts, entity, relation, answer):
    network, parts = network_of(RELATIONS, sparse), [edges_of(sorted(facts))]
    question = Question(entity, relation, answer, ENTITIES, SEEN)
    chains = [] if entity == answer else list(all_chains(facts, [entity], answer))
    with everything():
        found, told = candidate_chains(network, parts, question), attributed_chains(network, parts, question)
    assert sorted(found) == sorted(chains) and {one.facts for one in told} <= set(chains)
    assert sorted(map(pairs_of, {one.facts for one in told})) == sorted({pairs_of(facts) for facts in chains})
    trace = traced(network, parts, question)
    means = [best_mean(network, trace, one, entity) for one in found]
    np.testing.assert_allclose(means, sorted(means, reverse=True), rtol=1e-4, atol=1e-6)
    best = candidate_chains(network, parts, question)
    assert len(best) == min(len(chains), attribution.MAX_CANDIDATES) and set(best) <= set(chains)
    if len(chains) <= attribution.MAX_CANDIDATES:
        strongest = [one for one in told if one.loss > attribution.MIN_LOSS][: attribution.MAX_CHAINS]
        assert attributed_chains(network, parts, question) == strongest


@KINDS
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_only_chain_is_found(sparse, length):
    chain = [(0, 0, 1), (2, 1, 1), (2, 2, 3), (4, 0, 3)][:length]
    aside = [(5, 1, 6), (6, 0, 7), (0, 2, 5)]
    question = Question(0, 1, length, ENTITIES, SEEN)
    assert candidate_chains(network_of(RELATIONS, sparse), [edges_of([*aside, *chain])], question) == [tuple(chain)]


def test_chains_lead_to_hubs_and_not_through_them():
    """From 0 over 1 to 2, of which one has so many facts more that it is silent."""
    for hub, found in ((2, True), (1, False), (0, False)):
        facts = {(0, 0, 1), (1, 0, 2), *((hub, 1, other) for other in range(3, SEEN))}
        network = network_of(RELATIONS, sparse=True)
        network.hubs.fill_(2)
        assert bool(chains_of(facts, network).chains(0, 0, 2)) is found
        shares = chains_of(facts, network).shares(0, 0)
        assert shares.any() == (hub != 0)  # of a silent source nothing is said


@KINDS
def test_of_parallel_facts_those_of_the_greatest_loss_are_given(sparse):
    facts = [(0, 0, 1), (1, 0, 0), (0, 2, 1), (1, 1, 2), (0, 1, 3), (3, 0, 2)]
    network, parts, question = network_of(RELATIONS, sparse), [edges_of(facts)], Question(0, 1, 2, ENTITIES, SEEN)
    whole = attribution.log_probability(network, parts, question)
    losses = dict[tuple[tuple[int, ...], ...], list[float]]()
    for chain in candidate_chains(network, parts, question):
        loss = whole - attribution.log_probability(network, without(parts, chain), question)
        losses.setdefault(pairs_of(chain), []).append(loss)
    assert max(map(len, losses.values())) == 3
    with everything():
        told = attributed_chains(network, parts, question)
    assert [one.loss for one in told] == sorted(map(max, losses.values()), reverse=True)
    assert {pairs_of(one.facts): one.loss for one in told} == {pairs: max(each) for pairs, each in losses.items()}


@KINDS
def test_no_chain_leads_too_far_or_back_to_the_source(sparse):
    facts = [(at, 0, at + 1) for at in range(5)]
    network, edges = network_of(RELATIONS, sparse), edges_of(facts)
    assert attributed_chains(network, [edges], Question(0, 1, 5, ENTITIES, SEEN)) == []
    assert attributed_chains(network, [edges], Question(0, 1, 0, ENTITIES, SEEN)) == []
    assert attributed_chains(network, [edges], Question(0, 1, ENTITIES - 1, ENTITIES, SEEN)) == []


def test_an_unknown_relation_has_no_chains():
    over = chains_of({(0, 0, 1), (1, 1, 2), (6, 0, 1), (6, 2, 2)}, network_of(RELATIONS, known=2))
    assert over.chains(6, 2, 1) == over.chains(6, 2 + RELATIONS, 1) == []
    assert all(fact[1] < 2 for answer in range(SEEN) for one in over.chains(6, 0, answer) for fact in one.facts)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_on_a_gpu_stays_there_and_has_the_same_chains():
    facts = {(0, 0, 1), (1, 1, 2), (6, 0, 1), (6, 2, 3), (3, 1, 2), (6, 1, 4)}
    there = chains_of(facts, network_of(RELATIONS), torch.device("cuda"))
    with everything():
        found, wanted = (over.chains(6, 1, 2) for over in (there, chains_of(facts, network_of(RELATIONS))))
    assert found == wanted and len(found) == 2 and there.scorer.network.scales.is_cuda


def test_masked_facts_are_masked_from_both_ends_and_no_others():
    facts = [(0, 0, 1), (1, 0, 0), (0, 1, 1), (1, 2, 7), (7, 2, 1)]
    parts = [edges_of(facts[:3], 3), edges_of(facts[3:])]
    found = messages_along(without(parts, [(0, 0, 1), (7, 2, 1)]))
    wanted = messages_along([edges_of([(1, 0, 0), (0, 1, 1), (1, 2, 7)])])
    assert sorted(zip(*found, strict=True)) == sorted(zip(*wanted, strict=True))
    assert all(bool((one.weights == 1).all()) for one in parts)


@KINDS
def test_later_facts_are_in_chains_and_removed_ones_are_not(sparse):
    over = chains_of({(0, 0, 1), (6, 0, 1), (6, 1, 2)}, network_of(RELATIONS, sparse))
    with everything():
        assert [one.facts for one in over.chains(6, 1, 0)] == [((6, 0, 1), (0, 0, 1))]
        later = Over(over.scorer, over.overlay.with_delta(TripleArray.of([(ENTITIES, 0, 0)]), ids(6)))
        assert later.chains(6, 1, 0) == []
        assert [one.facts for one in later.chains(ENTITIES, 1, 1)] == [((ENTITIES, 0, 0), (0, 0, 1))]
        assert [one.facts for one in over.chains(6, 1, 0)] == [((6, 0, 1), (0, 0, 1))]


def facts_of(predictor: Predictor) -> set[tuple[str, str, str]]:
    facts, words = predictor._snapshot.store, predictor.names.words
    stated = {words(fact) for name in predictor.newcomers for fact in facts[name]}
    return {*DATASET.observed.named(), *stated}


def chains_by_name(
    predictor: Predictor, name: str = "Atlantis", k: int = 60
) -> dict[tuple[str, str, bool], tuple[NamedChain, ...]]:
    """By relation, answer, and whether that is a head."""
    found = {}
    for relation in predictor.relations:
        for heads in (False, True):
            answers = predictor.heads(relation, name, k) if heads else predictor.tails(name, relation, k)
            found |= {(relation, one.entity, heads): one.because.chains for one in answers}
    return found


@MODELS
def test_chains_have_names_and_lose_what_is_lost_without_their_facts(changes):
    predictor = model(*changes)
    predictor.add([*ATLANTIS, ("q0", "knows", "Atlantis")])
    engine, snapshot, names = predictor.engine, predictor._snapshot, predictor.names
    known, compared = facts_of(predictor), 0
    with patch.multiple(attribution, MAX_CHAINS=attribution.MAX_CANDIDATES, MIN_LOSS=-np.inf):
        found = chains_by_name(predictor)
    own = {names.words(fact): fact for fact in snapshot.store["Atlantis"]}
    others: dict[frozenset[Fact], NamedSnapshot] = {}
    for (word, answer, heads), some in found.items():
        relation = names.relation(word) + heads * len(names.relations)
        for one in some:
            check_chain(one.facts, known, "Atlantis", answer)
            if set(one.facts) <= own.keys():
                gone = [own[fact] for fact in one.facts]
                other = others.setdefault(frozenset(gone), snapshot.removed(gone))
                before, after = (
                    engine.signals(which.graph, which.id("Atlantis"), relation).propagation
                    for which in (snapshot, other)
                )
                assert before is not None and after is not None
                loss = before[snapshot.id(answer)] - after[other.id(answer)]
                assert one.loss == pytest.approx(float(loss), rel=1e-3, abs=1e-4)
                compared += 1
    assert compared > 1 and max(len(one.facts) for some in found.values() for one in some) > 1


@MODELS
def test_attribution_changes_nothing_and_threads_change_no_chain(changes):
    predictor = forgetful(*changes)
    predictor.add(ATLANTIS)
    before = table(predictor, ["Atlantis", "p00"], ["land1", "p02", "Atlantis"])
    with torch.no_grad():
        found = chains_by_name(predictor, k=5)
    predictor.engine._last_propagation = None
    assert table(predictor, ["Atlantis", "p00"], ["land1", "p02", "Atlantis"]).tobytes() == before.tobytes()
    torch.set_num_threads(2)
    assert chains_by_name(predictor, k=5) == found and any(found.values())
    network = predictor.engine.model.propagation
    assert network is not None and all(one.grad is None for one in network.parameters())


@MODELS
def test_a_newcomer_that_nothing_leads_to_has_no_chain(changes):
    predictor = forgetful(*changes)
    predictor.add([*ATLANTIS, ("island", "city_in", "rock")])
    found = {one.entity: one.because.chains for one in predictor.tails("Atlantis", "knows", k=60)}
    assert found["island"] == found["rock"] == ()
    assert any(found.values())


@MODELS
def test_chains_from_a_seen_entity(changes):
    predictor = model(*changes)
    some = chains_by_name(predictor, "p00", k=20)
    assert any(some.values())
    for (_, answer, _), found in some.items():
        for one in found:
            check_chain(one.facts, facts_of(predictor), "p00", answer)


def test_a_model_without_propagation_has_no_chains():
    for changes in ((), (*FOLDED, *BLENDED), (*FOLDED, *BLENDED, HEARING)):
        assert model(*changes).tails("q0", "citizen_of")[0].because.chains == ()
