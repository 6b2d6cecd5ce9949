"""Frontier-sparse propagation against the formulas worked out pair by pair; and who can afford to train it."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import make_dataset
from newcomer.config import load_preset, with_overrides
from newcomer.graph import InductiveDataset, Overlay
from newcomer.models.propagation.frontier import cross_entropy, walked
from newcomer.models.propagation.network import DIM, LAYERS, Propagation, PropagationEdges, propagation_edges
from newcomer.models.propagation.scorer import PropagationScorer, propagation_of, propagation_weights
from newcomer.models.serialisation import load_model
from newcomer.training import cost_model as affording
from newcomer.training.cost_model import affords_propagation, stays_local
from newcomer.training.pipeline import fit
from newcomer.training.propagation import PropagationTrainer
from nn_oracle import one_thread
from training_world import FOLDED, StopAfter, Stopped, settings, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
CPU = torch.device("cpu")
RELATIONS = 3


def network(seed: int = 0) -> Propagation:
    """One whose numbers are not those of a fresh one, most of which are 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    found = Propagation(RELATIONS, generator, silent=True)
    with torch.no_grad():
        for one in found.parameters():
            one += 0.2 * torch.randn(one.shape, generator=generator)
    return found


def edges_of(facts: list[tuple[int, int, int]], entities: int) -> PropagationEdges:
    heads, relations, tails = torch.tensor(facts).reshape(-1, 3).unbind(dim=1)
    return propagation_edges(heads, relations, tails, RELATIONS, entities)


def drawn(seed: int, entities: int = 12, count: int = 14) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    facts = [tuple(int(rng.integers(most)) for most in (entities, RELATIONS, entities)) for _ in range(count)]
    return [*facts, facts[0], (3, 1, 3)]  # a fact stated twice, and one that leads back to where it comes from


def by_hand(net: Propagation, facts: list[tuple[int, int, int]], source: int, query: int, entities: int) -> Tensor:
    """(entities,): the scores, with a vector for those alone who have heard."""
    edges = [(h, r, t) for h, r, t in facts] + [(t, r + RELATIONS, h) for h, r, t in facts]  # seen from the first end
    degree = [1 + sum(one[0] == v for one in edges) for v in range(entities)]
    asked = net.queries[query]
    vectors: dict[int, Tensor] = {source: asked}
    for layer in range(LAYERS):
        told: dict[int, Tensor] = defaultdict(lambda: torch.zeros(DIM))
        told[source] = told[source] + asked
        for v, r, u in edges:
            if u in vectors:
                told[v] = told[v] + net.scales[layer, r] * vectors[u]
        after = {}
        for v in {*vectors, *told}:
            before, s = vectors.get(v, torch.zeros(DIM)), told[v] * (1 + torch.tanh(net.gates[layer](asked)))
            parts = torch.cat([before, torch.sign(s) * torch.log1p(s.abs()), s / degree[v]])
            after[v] = before + torch.relu(net.norms[layer](net.mixes[layer](parts)))
        vectors = after
    everyone = torch.stack([vectors.get(v, torch.zeros(DIM)) for v in range(entities)])
    inner = torch.relu(net.first(torch.cat([everyone, asked.expand(entities, DIM)], dim=1)))
    return inner @ net.last[0]


@pytest.mark.parametrize("seed", range(4))
def test_scores_and_gradients_are_those_of_the_formulas(seed):
    net, facts, entities = network(seed), drawn(seed), 14  # of whom two have no edges
    sources, queries = torch.tensor([0, 5, 5, 13]), torch.tensor([0, 2, 4, 1])
    found = net([edges_of(facts, entities)], sources, queries, entities)
    asked = zip(sources.tolist(), queries.tolist(), strict=True)
    wanted = torch.stack([by_hand(net, facts, *one, entities) for one in asked])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(seed))
    gradients = [torch.autograd.grad((weights * one).sum(), list(net.parameters())) for one in (found, wanted)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_edges_may_be_hidden_and_come_in_two_parts():
    net, facts = network(), drawn(1)
    asked = torch.tensor([2, 12]), torch.tensor([1, 3])
    own = [(12, 0, 2), (12, 1, 7)]
    both = net([edges_of(facts, 12), edges_of(own, 13)], *asked, 14)
    torch.testing.assert_close(both, net([edges_of([*facts, *own], 14)], *asked, 14))
    whole = edges_of([*facts, *own], 14)
    left = [fact for fact in facts if set(fact[::2]) != {facts[4][0], facts[4][2]}]
    pairs = torch.stack([whole.rows.row_ids(), whole.rows.columns], dim=1).sort(dim=1).values
    hidden = (pairs == torch.tensor(sorted({facts[4][0], facts[4][2]}))).all(dim=1)
    assert 0 < hidden.sum() < len(hidden)
    thinned = whole.seen_with(1 - hidden.float())
    torch.testing.assert_close(net([thinned], *asked, 14), net([edges_of([*left, *own], 14)], *asked, 14))


def test_whom_no_path_leads_to_is_like_anybody_else_of_them():
    net = network()
    chain = [(place, 0, place + 1) for place in range(6)]
    scores = net([edges_of(chain, 9)], torch.tensor([0]), torch.tensor([0]), 9)[0]
    assert len(scores[LAYERS + 1 :].unique()) == 1 and len(scores[: LAYERS + 1].unique()) == LAYERS + 1
    entities, steps = walked(edges_of(chain, 9), 2, LAYERS, 9)
    assert dict(zip(entities.tolist(), steps.tolist(), strict=True)) == {2: 0, 1: 1, 3: 1, 0: 2, 4: 2, 5: 3, 6: 4}


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_that_among_everyone(seed):
    net, entities = network(seed), 14
    edges, rng = edges_of(drawn(seed), entities), np.random.default_rng(seed)
    asked = torch.tensor([0, 5, 13, 4]), torch.tensor([0, 2, 1, 5])  # nothing leads from 13 to anybody
    answers = torch.tensor([1, 12, 3, 4])
    barred = torch.from_numpy(np.where(rng.random((4, entities)) < 0.4, -np.inf, 0.0)).float()
    barred[torch.arange(4), answers] = 0.0
    reach, scores, apart = net.heard([edges], *asked, entities)
    reached = torch.zeros(4, entities, dtype=torch.bool)
    reached[torch.from_numpy(reach.questions), torch.from_numpy(reach.entities)] = True
    answers[0] = 0
    barred[0] = torch.where(reached[0], 0.0, -torch.inf)  # nobody is apart there, so there is an outsider
    outsider = torch.where((reached | torch.isinf(barred)).all(dim=1), apart, -torch.inf)
    assert torch.isfinite(outsider[0]) and not torch.isfinite(outsider).all()
    table = torch.cat([net([edges], *asked, entities) + barred, outsider[:, None]], dim=1)
    wanted = torch.nn.functional.cross_entropy(table, answers, reduction="none")
    found = cross_entropy(reach, scores, apart, answers, barred)
    torch.testing.assert_close(found, wanted)
    slopes = [torch.autograd.grad(one.sum(), net.first.weight, retain_graph=True)[0] for one in (found, wanted)]
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


def test_what_is_trained_on_a_cpu_is_silent_and_stays_so():
    dataset = world()
    trainer = PropagationTrainer(dataset.observed, int(dataset.is_seen.sum()), 5, 0, CPU)
    for number in range(trainer.steps):
        trainer.step(number)  # a fresh one says the same of those apart in any case
    assert trainer.network.is_silent
    stored = propagation_weights(trainer.network)
    again = propagation_of(stored, len(dataset.relations))
    assert again is not None and again.is_silent
    before = {name: value for name, value in stored.items() if name != "propagation.silent"}  # as they were kept once
    old = propagation_of(before, len(dataset.relations))
    assert old is not None and not old.is_silent
    overlay, asked = Overlay.of(dataset.observed), (np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32))
    found = [PropagationScorer(one, overlay.base, CPU).scores(overlay, *asked) for one in (old, again)]
    assert not np.allclose(*found)


@pytest.mark.parametrize("silent", [False, True])
def test_what_is_propagated_does_not_depend_on_threads(silent):
    dataset = graph(4_000, 12_000, 0)
    trainer, found = PropagationTrainer(dataset.observed, len(dataset.entities), 5, 0, CPU, silent), []
    overlay = Overlay.of(dataset.observed)
    scorer = PropagationScorer(trainer.network, overlay.base, CPU)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(scorer.scores(overlay, np.full(5, 7, dtype=np.int32), np.arange(5, dtype=np.int32)))
    assert np.array_equal(*found)


SPARSE = (*FOLDED, "model.ensemble=yes", "model.propagation=auto", "training.propagation_steps=6", "training.epochs=2")


def test_a_fit_trains_it_where_it_is_cheap(monkeypatch, tmp_path):
    assert fit(world(), settings(*SPARSE), device="cpu").model.propagation is None  # there is too little to learn from
    monkeypatch.setattr(affording, "LEAST_STEPS", 1)
    everyone = fit(world(), settings(*SPARSE), device="cpu")
    assert (
        everyone.model.propagation is not None and not everyone.model.propagation.is_silent
    )  # everyone is reached here
    monkeypatch.setattr("newcomer.training.pipeline.stays_local", lambda *_: True)
    whole = fit(world(), settings(*SPARSE), device="cpu")
    assert (
        whole.model.propagation is not None
        and whole.model.propagation.is_silent
        and whole.config.model.propagation is True
    )
    asked = load_model(whole.bundle(world())).propagation
    assert asked is not None and asked.is_silent
    with pytest.raises(Stopped):
        fit(world(), settings(*SPARSE), device="cpu", folder=tmp_path, report=StopAfter(3))
    monkeypatch.undo()
    resumed = fit(world(), settings(*SPARSE), device="cpu", folder=tmp_path, resume=True)
    assert resumed.model.propagation is not None
    kept, wanted = propagation_weights(resumed.model.propagation), propagation_weights(whole.model.propagation)
    assert all(np.array_equal(kept[name], wanted[name]) for name in wanted)


def graph(entities: int, facts: int, near: int) -> InductiveDataset:
    """Each tied to others nearby only, or (0) to anybody."""
    rng = np.random.default_rng(0)
    heads = rng.integers(entities, size=facts)
    tails = heads + 1 + rng.integers(near, size=facts) if near else rng.integers(entities, size=facts)
    kinds = rng.integers(5, size=facts)
    rows = {(f"e{h}", f"r{k}", f"e{t % entities}") for h, k, t in zip(heads, kinds, tails, strict=True)}
    return make_dataset(train=sorted(rows), aux=[], test=[])


@pytest.mark.parametrize(
    ("entities", "facts", "near", "affords"),
    [(8_000, 10_000, 3, True), (8_000, 60_000, 0, False), (800, 1_000, 3, False)],
)
def test_a_cpu_affords_what_stays_nearby(entities, facts, near, affords):
    dataset = graph(entities, facts, near)
    assert affords_propagation(dataset, load_preset("default")) is affords
    assert stays_local(dataset.observed, len(dataset.entities)) is (near > 0)


def test_what_it_affords_goes_by_what_vectors_take(monkeypatch):
    monkeypatch.setattr(affording, "BRIEF", 0.0)
    dataset = graph(8_000, 10_000, 3)
    small = with_overrides(load_preset("default"), ["model.dim=20"])
    quick, slow = (with_overrides(small, [f"training.epochs={many}"]) for many in (1, 1_000))
    assert not affords_propagation(dataset, quick) and affords_propagation(dataset, slow)
    few_compared = ["model.encoder=vn", "model.answers_by_input=false", "training.negatives=4"]
    assert not affords_propagation(dataset, with_overrides(slow, few_compared))
    fewer = with_overrides(load_preset("default"), ["training.propagation_steps=400"])
    assert not affords_propagation(dataset, with_overrides(fewer, ["training.epochs=1000"]))


def test_without_a_search_both_are_learned_once(monkeypatch):
    monkeypatch.setattr(affording, "BRIEF", 0.0)
    dataset, config = graph(8_000, 10_000, 3), load_preset("default")
    learning, vectors = (
        affording.steps_of(len(dataset.observed), 4_000) * affording.BATCH * affording._a_question(dataset),
        affording._vectors(dataset, config),
    )
    for change, afforded in (((), 2 / 1.3), (("training.validation_rate=0",), 1.0), (("training.final_fit=no",), 1.0)):
        changed = with_overrides(config, list(change))
        for times, affords in ((0.99, False), (1.01, True)):
            monkeypatch.setattr(affording, "LONGER", times * learning / vectors / afforded)
            assert affords_propagation(dataset, changed) is affords
