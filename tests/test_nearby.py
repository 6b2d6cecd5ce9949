"""The first two layers of paths by what is near, against all of them by loops over every edge."""

import pytest
import torch

from newcomer.models.propagation.nearby import Known, told_on
from newcomer.models.propagation.network import DIM, LAYERS, Propagation, PropagationEdges, propagation_edges
from nn_oracle import one_thread

on_one_thread = pytest.fixture(autouse=True)(one_thread)
RELATIONS, ENTITIES = 3, 12


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network() -> Propagation:
    """One in which whoever has heard of nothing is not zero."""
    found = Propagation(RELATIONS, seeded(0))
    with torch.no_grad():
        for number, layer in enumerate([*found.mixes, *found.norms]):
            layer.bias.normal_(0.0, 0.3, generator=seeded(number))
    return found


def facts_at_random(seed: int = 1, count: int = 14, entities: int = ENTITIES) -> torch.Tensor:
    highest = entities, RELATIONS, entities
    drawn = [torch.randint(high, (count,), generator=seeded(seed + place)) for place, high in enumerate(highest)]
    return torch.stack(drawn, dim=1)


def edges_of(facts: torch.Tensor, entities: int = ENTITIES) -> PropagationEdges:
    return propagation_edges(*facts.unbind(dim=1), RELATIONS, entities)


def by_hand(net: Propagation, facts: torch.Tensor, sources: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """The formulas of the module, one entity, question and fact at a time."""
    size = 1 + torch.bincount(facts[:, ::2].flatten(), minlength=ENTITIES)
    scores = []
    for source, query in zip(sources.tolist(), queries.tolist(), strict=True):
        asked = net.queries[query]
        vectors = [asked if one == source else torch.zeros(DIM) for one in range(ENTITIES)]
        for layer in range(LAYERS):
            gain = 1 + torch.tanh(net.gates[layer](asked))
            sums = [asked if one == source else torch.zeros(DIM) for one in range(ENTITIES)]
            for head, relation, tail in facts.tolist():
                sums[head] = sums[head] + net.scales[layer, relation] * vectors[tail]
                sums[tail] = sums[tail] + net.scales[layer, relation + RELATIONS] * vectors[head]
            after = []
            for one, (own, told) in enumerate(zip(vectors, sums, strict=True)):
                heard = told * gain
                small = torch.sign(heard) * torch.log1p(heard.abs())
                mixed = net.mixes[layer](torch.cat([own, small, heard / size[one]]))
                after.append(own + torch.relu(net.norms[layer](mixed)))
            vectors = after
        read = [net.last @ torch.relu(net.first(torch.cat([one, asked]))) for one in vectors]
        scores.append(torch.cat(read))
    return torch.stack(scores)


@pytest.mark.parametrize("facts", [facts_at_random(), facts_at_random(5, 60), torch.empty(0, 3, dtype=torch.int64)])
def test_scores_and_slopes_are_those_of_the_formulas(facts):
    net, sources, queries = network(), torch.tensor([0, 4, 4, 11]), torch.tensor([1, 5, 2, 1])
    wanted, found = by_hand(net, facts, sources, queries), net([edges_of(facts)], sources, queries, ENTITIES)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    slope = torch.randn(found.shape, generator=seeded(9))
    learned = list(net.parameters())
    slopes = [torch.autograd.grad((one * slope).sum(), learned, materialize_grads=True) for one in (found, wanted)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_what_is_the_same_for_all_questions_may_be_told_beforehand():
    near, far = facts_at_random(entities=8), torch.tensor([[11, 0, 3], [2, 1, 11], [11, 2, 9]])
    net, asked = network(), (torch.tensor([11, 2]), torch.tensor([0, 4]))
    parts = [edges_of(near, 8), edges_of(far)]
    with torch.no_grad():
        unheard = [net.unheard_of(one) for one in parts]
        found = net(parts, *asked, ENTITIES, unheard=unheard)
        torch.testing.assert_close(found, by_hand(net, torch.cat([near, far]), *asked), rtol=1e-4, atol=1e-5)
        assert torch.equal(found, net(parts, *asked, ENTITIES))
        other = net(parts, *asked, ENTITIES, unheard=[unheard[0] + 1, unheard[1]])
    assert not torch.allclose(found, other)


def test_pairs_are_summed_up_and_added_once():
    known = Known(torch.tensor([1, 0, 1]), torch.tensor([0, 1, 0]), torch.tensor([[1.0], [2.0], [4.0]]))
    summed = known.summed_up(2)
    assert [part.flatten().tolist() for part in summed] == [[0, 1], [1, 0], [2.0, 5.0]]
    assert summed.added_to(torch.ones(2, 2, 1))[:, :, 0].tolist() == [[1.0, 3.0], [6.0, 1.0]]
    assert known.below(1).numbers.tolist() == [[2.0]]


def test_neighbours_are_told_the_other_way_round_and_not_along_hidden_edges():
    edges = edges_of(torch.tensor([[0, 1, 2], [3, 2, 0]]), 4)
    known = Known(torch.tensor([0, 5]), torch.tensor([7, 7]), torch.ones(2, 1))
    scales = torch.arange(6.0)[:, None]
    told = told_on(edges.rows, edges.relations, edges.weights, scales, known)
    pairs = sorted(zip(told.entities.tolist(), told.numbers[:, 0].tolist(), strict=True))
    assert pairs == [(2, 4.0), (3, 2.0)]  # 2 hears of 0 by the inverse of 1; nobody hears of one without a row
    assert told.questions.tolist() == [7, 7]
    hidden = told_on(edges.rows, edges.relations, torch.zeros_like(edges.weights), scales, known)
    assert not hidden.numbers.any()
