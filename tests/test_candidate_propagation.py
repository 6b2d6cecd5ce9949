"""Training propagation by drawn candidates: its scores, its sums, what is drawn; and which way a machine takes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_dataset
from newcomer.config import load_preset
from newcomer.graph import InductiveDataset
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.propagation.blocks import find_blocks
from newcomer.models.propagation.network import FEW_LAYERS, LAYERS, Propagation
from newcomer.models.serialisation import PROPAGATION, load_model, part_weights
from newcomer.training import candidate_propagation as candidate_training
from newcomer.training import propagation as training
from newcomer.training.candidate_propagation import CandidateTrainer, Way, propagation_trainer, way_of
from newcomer.training.candidates import ABSENT, ANSWERS, DRAWN, NEAR, CandidateSampler
from newcomer.training.pipeline import Fitted, fit
from newcomer.training.propagation import (
    affordable_hubs,
    frontier_stays_local,
    messages_of_a_query,
    teaches_enough,
)
from nn_oracle import one_thread
from propagation_oracle import RELATIONS, drawn, edges_of, network_of, seeded
from training_world import FOLDED, StopAfter, Stopped, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
AUTO = (*FOLDED, "model.ensemble=yes", "model.propagation=auto", "training.propagation_steps=6", "training.epochs=2")


def few_layers(seed: int = 0) -> Propagation:
    """A sparse network of three layers that is not a fresh one."""
    found, other = Propagation(RELATIONS, seeded(seed), True, FEW_LAYERS), network_of(seed, sparse=True)
    with torch.no_grad():
        for one, like in zip(found.parameters(), other.parameters(), strict=False):
            one += 0.2 * torch.randn(one.shape, generator=seeded(len(like)))
    return found


def graph(entities: int, facts: int, near: int) -> InductiveDataset:
    """Each joined to others nearby only, or (0) to any."""
    rng = np.random.default_rng(0)
    heads = rng.integers(entities, size=facts)
    tails = heads + 1 + rng.integers(near, size=facts) if near else rng.integers(entities, size=facts)
    kinds = rng.integers(5, size=facts)
    rows = {(f"e{h}", f"r{k}", f"e{t % entities}") for h, k, t in zip(heads, kinds, tails, strict=True)}
    return make_dataset(train=sorted(rows), aux=[], test=[])


# Blocks ---------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_candidates_have_the_scores_that_they_have_among_all(seed, count):
    rng, entities = np.random.default_rng(seed), 14
    edges = edges_of(drawn(seed, entities, count), entities)
    shown = rng.random((entities, entities)) < 0.8
    shown &= shown.T  # a fact is masked from both of its ends
    edges = edges.with_weights(torch.from_numpy(shown.astype(np.float32))[edges.rows.row_ids, edges.rows.columns])
    edges = replace(edges, silent=rng.random(entities) < rng.choice([0.0, 0.3]))
    net, degrees = few_layers(), 1 + edges.degrees
    sources, queries = (rng.integers(most, size=3) for most in (entities, 2 * RELATIONS))
    candidates = np.stack([rng.permutation(entities)[:6] for _ in range(3)])
    candidates[rng.random(candidates.shape) < 0.2] = ABSENT
    asked = torch.from_numpy(sources), torch.from_numpy(queries)
    blocks = find_blocks(edges, sources, candidates)
    with torch.no_grad():
        scores = net.candidate_scores(blocks.layers, *asked, degrees)
        wanted = net([edges], *asked, entities)
    reached, unreached = scores[:-3], scores[-3:]
    last = blocks.layers[-1]
    assert np.array_equal(candidates[last.queries, blocks.columns], last.entities)
    torch.testing.assert_close(reached, wanted[torch.from_numpy(last.queries), torch.from_numpy(last.entities)])
    found = set(zip(last.queries.tolist(), last.entities.tolist(), strict=True))
    for query, entity in {(q, e) for q in range(3) for e in candidates[q].tolist() if e != ABSENT} - found:
        torch.testing.assert_close(wanted[query, entity], unreached[query])


def test_a_network_of_three_layers_is_stored_as_such():
    with pytest.MonkeyPatch.context() as patched:
        fitted = fit_by(Way.CANDIDATES, patched)
    assert fitted.model.propagation is not None and fitted.model.propagation.layers == FEW_LAYERS < LAYERS
    stored = load_model(fitted.bundle(world())).propagation
    assert stored is not None and stored.layers == FEW_LAYERS and stored.is_sparse


# Candidates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entities", [20, 3_000])
def test_candidates_stand_for_all_who_are_not_true_answers(entities):
    dataset = graph(entities, 6 * entities, 0)
    tensors = build_graph_tensors(dataset.observed, entities, None, CPU)
    facts = tensors.facts[:40].numpy()
    queries = np.stack([facts[:, 0], facts[:, 1], facts[:, 2]], axis=1)
    found = CandidateSampler(tensors).draw(queries, np.random.default_rng(0))
    assert found.entities.shape == (len(queries), 1 + DRAWN)
    for (source, relation, answer), row, weights in zip(queries.tolist(), *found, strict=True):
        there = row != ABSENT
        assert row[0] == answer and weights[0] == 0.0 and len(set(row[there].tolist())) == there.sum()
        assert np.array_equal(np.isfinite(weights), there)
        relations, tails = dataset.observed.adjacency.of(source)
        true = set(tails[relations == relation].tolist())
        assert not true & set(row[1:][there[1:]].tolist())
        assert np.exp(weights[there][1:]).sum() == pytest.approx(entities - len(true), rel=1e-4)
        near = set(tails.tolist()) - true
        if len(near) <= NEAR:
            assert near <= set(row.tolist()) and all(weights[row == one] == 0.0 for one in near)
        answering = {t for h, r, t in tensors.facts.tolist() if r == relation} - near - true
        if len(answering) <= ANSWERS:
            assert answering <= set(row.tolist())


def test_of_many_alike_each_is_drawn_as_often():
    tensors = build_graph_tensors(graph(3_000, 6_000, 0).observed, 3_000, None, CPU)
    query, times = tensors.facts[:1].numpy().repeat(4_000, axis=0), np.zeros(3_001)
    found = CandidateSampler(tensors).draw(query, np.random.default_rng(0))
    np.add.at(times, found.entities[:, 1:], 1)
    source, relation, _ = query[0]
    joined = {one for fact in tensors.facts.tolist() if source in fact[::2] or fact[1] == relation for one in fact[::2]}
    alike = np.array([times[one] for one in range(tensors.num_entities) if one not in joined])
    assert alike.std() < 1.2 * alike.mean() ** 0.5  # as by chance


# Hubs -----------------------------------------------------------------------------------------------------------------


def star(points: int) -> InductiveDataset:
    """A ring, and a hub that everyone of it is joined to."""
    ring = [(f"e{one}", "next", f"e{(one + 1) % points}") for one in range(points)]
    return make_dataset(train=[*ring, *((f"e{one}", "in", "hub") for one in range(points))], aux=[], test=[])


def test_messages_of_a_query_are_counted_over_the_ends_of_facts():
    observed = star(10).observed  # 30 ends of facts are at the ring's entities, where 10 lead to the hub, and 10 at it
    everyone = (30 * (3 + 3 + 10) + 10 * 10 * 3) / 40
    assert messages_of_a_query(observed, 0) == messages_of_a_query(observed, 10) == pytest.approx(everyone)
    assert messages_of_a_query(observed, 9) == pytest.approx(3 + 3)
    assert messages_of_a_query(observed, 2) == 0.0


def test_only_hubs_that_cost_too_much_are_silent(monkeypatch):
    observed = star(600).observed
    assert affordable_hubs(observed) == 0
    monkeypatch.setattr(training, "AFFORDED", 50)
    assert affordable_hubs(observed) == 500
    monkeypatch.setattr(training, "AFFORDED", 5)
    assert affordable_hubs(observed) == 200  # and no fewer


@pytest.mark.parametrize("way", [Way.CANDIDATES, Way.FRONTIER])
def test_nothing_is_learned_of_queries_about_silent_hubs(way):
    dataset = star(40)
    trainer = propagation_trainer(dataset.observed, 41, 10, 0, CPU, way, hub_facts=20)
    hub = dataset.entities.index["hub"]
    asked: list[int] = []
    learn = trainer._learn

    def recorded(queries: torch.Tensor, *others: object) -> torch.Tensor:
        asked.extend(queries[:, 0].tolist())
        return learn(queries, *others)

    trainer._learn = recorded
    for number in range(5):
        trainer.step(number)
    assert asked and hub not in asked and trainer.network.hub_facts == 20


# Training -------------------------------------------------------------------------------------------------------------


def trained(steps: int, threads: int, seed: int = 0) -> tuple[list[float], CandidateTrainer]:
    dataset = graph(200, 1_500, 0)
    trainer = CandidateTrainer(dataset.observed, 200, steps, seed, threads)
    return [float(trainer.step(number)) for number in range(trainer.steps)], trainer


def test_the_number_of_threads_changes_nothing():
    losses, nets = zip(*(trained(5, threads) for threads in (1, 2, 4)), strict=True)
    assert losses[0] == losses[1] == losses[2]
    first, *others = (part_weights(PROPAGATION, one.network) for one in nets)
    assert all(np.array_equal(first[name], one[name]) for one in others for name in first)
    assert trained(5, 2, seed=1)[0] != losses[0]


def test_the_loss_is_that_over_everyone_where_all_are_drawn():
    """In a graph where all are neighbours or answers, nobody is left to stand for others."""
    rows = [(f"e{one}", f"r{other % 2}", f"e{other}") for one in range(12) for other in range(12) if one != other]
    dataset = make_dataset(train=rows, aux=[], test=[])
    by_candidates = CandidateTrainer(dataset.observed, 12, 10, 0)
    by_frontier = propagation_trainer(dataset.observed, 12, 10, 0, CPU, Way.FRONTIER)
    by_frontier.network = by_candidates.network
    by_frontier.optimiser = torch.optim.SGD(by_frontier.network.parameters(), lr=0.0)
    by_candidates.optimiser = torch.optim.SGD(by_candidates.network.parameters(), lr=0.0)
    by_candidates.RATE = by_frontier.RATE = 0.0
    for number in range(4):
        first, second = by_candidates.step(number), by_frontier.step(number)
        gradients = [one.grad.clone() for one in by_candidates.network.parameters() if one.grad is not None]
        assert float(first) == pytest.approx(float(second), rel=1e-4)
        assert len(gradients) == len(list(by_candidates.network.parameters()))


def test_what_is_learned_ranks_the_answers_higher():
    rows = [(f"a{i}", "to", f"b{i % 40}") for i in range(400)] + [(f"b{i}", "up", f"c{i // 4}") for i in range(40)]
    rows += [(f"a{i}", "far", f"c{i % 40 // 4}") for i in range(400)]
    dataset = make_dataset(train=rows, aux=[], test=[])
    trainer = CandidateTrainer(dataset.observed, len(dataset.entities), 120, 0)
    losses = [float(trainer.step(number)) for number in range(trainer.steps)]
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])


# Ways -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entities", "facts", "near", "enough"),
    [(8_000, 10_000, 3, True), (8_000, 60_000, 0, True), (800, 1_000, 3, False)],
)
def test_all_are_worked_out_where_messages_stay_nearby(entities, facts, near, enough):
    dataset = graph(entities, facts, near)
    assert teaches_enough(dataset, load_preset("default")) is enough
    assert frontier_stays_local(dataset.observed, len(dataset.entities)) is (near > 0)
    trainer = propagation_trainer(dataset.observed, len(dataset.entities), 4, 0, CPU)
    assert isinstance(trainer, CandidateTrainer) is (near == 0) and trainer.network.is_sparse


def test_the_way_is_told_by_the_tensors():
    assert way_of({}) is None
    networks = {
        Way.EVERYONE: Propagation(2, seeded()),
        Way.FRONTIER: Propagation(2, seeded(), True),
        Way.CANDIDATES: Propagation(2, seeded(), True, FEW_LAYERS),
    }
    for way, network in networks.items():
        assert way_of(network.state_dict()) is way


def fit_by(way: Way, patched: pytest.MonkeyPatch, *changes: str, **options: object) -> Fitted:
    patched.setattr(training, "MIN_STEPS", 1)
    patched.setattr(candidate_training, "chosen_way", lambda *_: way)
    return fit(world(), settings(*AUTO, *changes), device="cpu", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", list(Way))
def test_a_fit_goes_on_the_way_that_it_began(way, monkeypatch, tmp_path):
    whole = fit_by(way, monkeypatch)
    assert whole.model.propagation is not None and whole.config.model.propagation is True
    assert way_of(whole.model.propagation.state_dict()) is way
    with pytest.raises(Stopped):
        fit_by(way, monkeypatch, folder=tmp_path, report=StopAfter(3))
    other = Way.EVERYONE if way is Way.CANDIDATES else Way.CANDIDATES
    resumed = fit_by(other, monkeypatch, folder=tmp_path, resume=True)  # as if the machine were another one
    assert resumed.model.propagation is not None
    kept, wanted = (part_weights(PROPAGATION, one.model.propagation) for one in (resumed, whole))
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)


def test_too_few_facts_teach_nothing():
    config = settings(*AUTO)
    assert fit(world(), config, device="cpu").model.propagation is None
    fewer = replace(load_preset("default"), training=replace(load_preset("default").training, propagation_steps=400))
    assert not teaches_enough(graph(8_000, 10_000, 3), fewer)
