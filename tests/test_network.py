"""What paths say: sums along edges against loops by hand, and scores that follow from paths alone.

Covers newcomer.models.propagation.gpu, newcomer.models.propagation.gpu_kernels.
"""

import pytest
import torch

from newcomer.models.propagation import gpu as fused
from newcomer.models.propagation.network import (
    DIM,
    LAYERS,
    Propagation,
    PropagationEdges,
    handed_on,
    propagation_edges,
    slopes_by_edges,
    summed_by_edges,
)
from newcomer.models.sparse import Rows
from nn_oracle import one_thread

on_one_thread = pytest.fixture(autouse=True)(one_thread)
RELATIONS, ENTITIES = 3, 9


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(seed: int = 0) -> Propagation:
    return Propagation(RELATIONS, seeded(seed)).eval()


def facts_at_random(count: int = 20, entities: int = ENTITIES, seed: int = 1) -> torch.Tensor:
    drawn = [
        torch.randint(high, (count,), generator=seeded(seed + place))
        for place, high in enumerate((entities, RELATIONS, entities))
    ]
    return torch.stack(drawn, dim=1)


def edges_of(facts: torch.Tensor, entities: int = ENTITIES) -> PropagationEdges:
    return propagation_edges(*facts.unbind(dim=1), RELATIONS, entities)


def by_hand(facts: torch.Tensor, weights: list[float], vectors: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    rows = [torch.zeros_like(vectors[0]) for _ in range(ENTITIES)]
    for (head, relation, tail), weight in zip(facts.tolist(), weights, strict=True):
        rows[head] = rows[head] + weight * scales[relation] * vectors[tail]
        rows[tail] = rows[tail] + weight * scales[relation + RELATIONS] * vectors[head]
    return torch.stack(rows)


def weighted(facts: torch.Tensor, weights: list[float]) -> PropagationEdges:
    """The edges of facts, each with the weight of its fact: these differ, so that its own place tells it."""
    edges = edges_of(facts)
    numbers = torch.cat([torch.arange(len(facts))] * 2)[
        torch.argsort(torch.cat([facts[:, 0], facts[:, 2]]), stable=True)
    ]
    return edges.seen_with(torch.tensor(weights)[numbers])


def test_sums_and_slopes_are_those_by_hand():
    facts, weights = facts_at_random(), [1.0, 0.0, 1.0, 1.0] * 5
    vectors = torch.randn(ENTITIES, 2, 4, generator=seeded(5), requires_grad=True)
    scales = torch.randn(2 * RELATIONS, 4, generator=seeded(6), requires_grad=True)
    slope = torch.randn(ENTITIES, 2, 4, generator=seeded(7))
    wanted = by_hand(facts, weights, vectors, scales)
    wanted_slopes = torch.autograd.grad(wanted, (vectors, scales), slope)
    edges = weighted(facts, weights)
    found = handed_on(edges, vectors, scales)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(torch.autograd.grad(found, (vectors, scales), slope), wanted_slopes, strict=True):
        torch.testing.assert_close(one, other)
    # The other way, which a GPU takes.
    with torch.no_grad():
        torch.testing.assert_close(summed_by_edges(edges, vectors, scales), wanted)
        for one, other in zip(slopes_by_edges(edges, vectors, scales, slope), wanted_slopes, strict=True):
            torch.testing.assert_close(one, other)


def test_a_graph_in_two_parts_is_the_whole_graph():
    facts, asked = facts_at_random(), (torch.tensor([0, 4]), torch.tensor([1, 5]))
    near = facts[facts[:, ::2].amax(dim=1) < ENTITIES - 2]
    far = facts[facts[:, ::2].amax(dim=1) >= ENTITIES - 2]
    assert len(near) and len(far)
    whole = network()([edges_of(facts)], *asked, ENTITIES)
    parts = network()([edges_of(near, ENTITIES - 2), edges_of(far)], *asked, ENTITIES)
    assert whole.shape == (2, ENTITIES)
    torch.testing.assert_close(parts, whole)


def test_scores_follow_entities_wherever_they_stand():
    facts, order = facts_at_random(), torch.randperm(ENTITIES, generator=seeded(3))
    moved = torch.stack([order[facts[:, 0]], facts[:, 1], order[facts[:, 2]]], dim=1)
    found = network()([edges_of(facts)], torch.tensor([2]), torch.tensor([4]), ENTITIES)
    again = network()([edges_of(moved)], order[2:3], torch.tensor([4]), ENTITIES)
    torch.testing.assert_close(again[:, order], found)


def test_only_what_is_near_enough_is_heard_of():
    """A chain of entities, and two who are tied to nobody: the question has come as far as there are layers."""
    length = LAYERS + 3
    chain = torch.tensor([(one, 0, one + 1) for one in range(length - 1)])

    def scores(relation: int) -> torch.Tensor:
        return network()([edges_of(chain, length + 2)], torch.tensor([0]), torch.tensor([relation]), length + 2)[0]

    found = scores(1)
    torch.testing.assert_close(found[length], found[length + 1])
    assert len(set(found[: LAYERS + 1].tolist())) == LAYERS + 1
    other = chain.clone()
    other[-1, 1] = 2  # of the last tie, which the question has not come to
    changed = network()([edges_of(other, length + 2)], torch.tensor([0]), torch.tensor([1]), length + 2)[0]
    torch.testing.assert_close(changed[: LAYERS - 1], found[: LAYERS - 1])
    assert not torch.allclose(scores(2), found)


def test_a_hidden_edge_is_as_if_it_were_not_there():
    facts = facts_at_random()
    weights = [1.0] * len(facts)
    weights[3] = weights[11] = 0.0
    left = facts[torch.tensor(weights) > 0]
    asked = torch.tensor([1]), torch.tensor([0])
    hidden = network()([weighted(facts, weights)], *asked, ENTITIES)
    torch.testing.assert_close(hidden, network()([edges_of(left)], *asked, ENTITIES))
    assert not torch.allclose(hidden, network()([edges_of(facts)], *asked, ENTITIES))


def test_the_same_seed_gives_the_same_network_whatever_was_drawn_before():
    torch.manual_seed(1)
    first = network().state_dict()
    torch.manual_seed(2)
    again, other = network().state_dict(), network(1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["queries"], other["queries"])
    assert first["queries"].shape == (2 * RELATIONS, DIM) and not first["told"].any()


def test_without_any_edge_everyone_but_the_one_asked_about_is_the_same():
    nothing = edges_of(torch.empty(0, 3, dtype=torch.int64))
    found = network()([nothing], torch.tensor([4]), torch.tensor([0]), ENTITIES)[0]
    torch.testing.assert_close(found[[1, 2, 3, 5, 6, 7, 8]], found[:1].expand(7))
    assert not torch.isclose(found[4], found[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("questions", [1, 5, 64, 70])
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "by edges"])
def test_a_gpu_adds_as_a_processor_does_and_twice_the_same(monkeypatch, questions, kernels):
    if kernels and not fused.available():
        pytest.skip("needs Triton")
    monkeypatch.setattr(fused, "available", lambda: kernels)
    facts = facts_at_random(400)
    facts[:200, 2] = 4  # more edges than one block holds
    edges = edges_of(facts)
    edges = edges.seen_with((torch.rand(len(edges.relations), generator=seeded(2)) < 0.8).float())
    vectors = torch.randn(ENTITIES, questions, DIM, generator=seeded(3))
    scales = torch.randn(2 * RELATIONS, DIM, generator=seeded(4))

    def on(device: str) -> list[torch.Tensor]:
        moved = PropagationEdges(
            Rows(edges.rows.offsets.to(device), edges.rows.columns.to(device), ENTITIES),
            edges.relations.to(device),
            edges.weights.to(device),
            RELATIONS,
        )
        given = [vectors.to(device).requires_grad_(), scales.to(device).requires_grad_()]
        sums = handed_on(moved, *given)
        return [sums.detach().cpu(), *(one.cpu() for one in torch.autograd.grad(sums.square().sum(), given))]

    expected, found, again = on("cpu"), on("cuda"), on("cuda")
    for by_processor, one, other in zip(expected, found, again, strict=True):
        assert torch.equal(one, other)
        assert torch.allclose(one, by_processor, rtol=1e-4, atol=1e-3 * float(by_processor.abs().max()))
