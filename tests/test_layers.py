"""The two layers against loops written from their formulas, and their gradients against differences."""

import pytest
import torch

from newcomer.models.vn.layers import QueryLayer, StructureLayer, glorot, products
from nn_oracle import edges_of, lists_of, one_thread, query_loop, random_edges, structure_loop

SEEDS = range(4)
on_one_thread = pytest.fixture(autouse=True)(one_thread)
DIM, RELATIONS = 4, 3


def vectors(seed: int, count: int = 7) -> torch.Tensor:
    return torch.randn(count, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def structure(seed: int, shifted: bool = False) -> StructureLayer:
    generator = torch.Generator().manual_seed(seed)
    layer = StructureLayer(RELATIONS, DIM, generator, shifted).double()
    with torch.no_grad():
        layer.alpha.copy_(torch.randn(2 * RELATIONS, generator=generator))
    return layer


def query(seed: int) -> QueryLayer:
    layer = QueryLayer(RELATIONS, DIM, torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():
        layer.attention.mul_(3)  # so that the attention is far from even
    return layer


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_structure_layer_equals_a_loop(seed, shifted):
    layer, edges, given = structure(seed, shifted), random_edges(seed), vectors(seed)
    torch.testing.assert_close(layer(edges, given, given), structure_loop(layer, edges, given, given))


def test_the_rows_may_be_others_than_those_looked_at():
    layer, given, own = structure(0), vectors(0, 9), vectors(1, 3)
    edges = random_edges(0, num_rows=3, width=9)
    torch.testing.assert_close(layer(edges, given, own), structure_loop(layer, edges, given, own))


def test_a_worked_example_of_the_structure_layer():
    layer = structure(0)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(DIM))
        layer.alpha.copy_(torch.tensor([2.0, 1.0, 1.0, -1.0, 1.0, 1.0]))
    edges = edges_of([[(0, 1, 1.0), (3, 2, 0.5), (1, 2, 0.0)], [], []], 3)
    given = torch.tensor([[0.1] * DIM, [0.3] * DIM, [0.6] * DIM], dtype=torch.float64)
    expected = torch.tanh(torch.tensor((2 * 0.3 - 0.5 * 0.6) / 1.5 + 0.1, dtype=torch.float64))
    assert float(layer(edges, given, given)[0, 0].detach()) == pytest.approx(float(expected))


def test_only_shifts_tell_by_which_relations_an_entity_is_tied():
    edges = edges_of([[(0, 2, 1.0)], [(1, 2, 1.0)], []], 3)
    given = vectors(0, 1).expand(3, DIM)
    for shifted in (True, False):
        layer = structure(0, shifted)
        with torch.no_grad():
            layer.alpha.fill_(1.0)
        first, second, _ = layer(edges, given, given)
        assert torch.equal(first, second) != shifted


@pytest.mark.parametrize("shifted", [True, False])
def test_a_hidden_edge_is_as_if_it_were_not_there(shifted):
    layer, given = structure(2, shifted), vectors(2, 3)
    hidden = edges_of([[(0, 1, 1.0), (1, 2, 0.0)], [], [(4, 0, 0.0)]], 3)
    without = edges_of([[(0, 1, 1.0)], [], []], 3)
    torch.testing.assert_close(layer(hidden, given, given), layer(without, given, given), rtol=0, atol=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_query_layer_equals_a_loop(seed):
    layer, edges, given = query(seed), random_edges(seed), vectors(seed)
    entities = torch.tensor([2, 0, 5, 2, 2, 1, 6, 5, 3, 4])
    queries = torch.tensor([0, 1, 2, 3, 0, 4, 5, 2, 1, 3])
    expected = query_loop(layer, edges, given, entities, queries)
    torch.testing.assert_close(layer(edges, given, entities, queries), expected)


def test_the_query_matters_and_shares_add_up_to_one():
    layer, given = query(1), vectors(1, 4)
    edges = edges_of([[(0, 1, 1.0), (1, 2, 0.4), (2, 3, 1.0)], [], [], []], 4)
    answers = layer(edges, given, torch.zeros(6, dtype=torch.int64), torch.arange(6))
    assert torch.unique(answers.round(decimals=9), dim=0).shape[0] > 1
    same = vectors(5, 1).expand(4, DIM)
    torch.testing.assert_close(layer(edges, same, torch.tensor([0]), torch.tensor([3])), same[:1])


def test_gradients_of_the_structure_layer():
    layer, edges = structure(3, shifted=True), random_edges(3)
    names = [name for name, _ in layer.named_parameters()]
    assert set(names) == {"alpha", "weight", "shifts"}

    def output(given: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        chosen = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, chosen, (edges, given, given))

    assert torch.autograd.gradcheck(output, (vectors(3).requires_grad_(), *layer.parameters()))


def test_gradients_of_the_query_layer():
    layer, edges = query(4), random_edges(4)
    names = [name for name, _ in layer.named_parameters()]
    entities, queries = torch.tensor([2, 3, 0, 2, 6, 1]), torch.tensor([0, 5, 1, 2, 0, 3])

    def output(given: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        chosen = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, chosen, (edges, given, entities, queries))

    assert torch.autograd.gradcheck(output, (vectors(4).requires_grad_(), *layer.parameters()))


@pytest.mark.parametrize("looked_at", [True, False])
def test_picked_edges_are_those_of_the_entities_asked_for(looked_at):
    edges, entities = random_edges(5), torch.tensor([4, 2, 0])
    if looked_at:
        assert len(edges.shares) == len(edges.weights)
    picked = edges.pick(entities, 10, 2 * RELATIONS)
    assert lists_of(picked) == [lists_of(edges)[entity] for entity in entities.tolist()]
    assert picked.rows.width == 10 and torch.equal(picked.by_relation.columns, picked.relations)
    expected = [share for row in (4, 2, 0) for share in edges.shares[edges.rows.row_ids == row].tolist()]
    assert picked.shares.tolist() == expected
    layer, given = structure(5), vectors(5, 10)
    every = layer(edges, given[:7], given[:7])
    torch.testing.assert_close(layer(picked, given, given[entities]), every[entities])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dim", [4, 100, 200])
def test_products_have_the_same_bits_however_many_there_are(dim, threads):
    generator = torch.Generator().manual_seed(0)
    given, matrix = torch.randn(70, dim, generator=generator), torch.randn(dim, dim, generator=generator)
    torch.set_num_threads(threads)
    found = products(given, matrix)
    torch.testing.assert_close(found, given @ matrix, rtol=1e-4, atol=1e-4)
    for size in (1, 3, 16):
        for part in torch.randperm(70, generator=generator).split(size):
            assert torch.equal(products(given[part], matrix), found[part])
    assert products(given[:0], matrix).shape == (0, dim)


def test_glorot_fills_its_bound_and_follows_its_seed():
    drawn = glorot(60, 40, torch.Generator().manual_seed(0))
    assert float(drawn.abs().max()) <= 0.06**0.5
    assert float(drawn.max()) > 0.95 * 0.06**0.5 and float(drawn.min()) < -0.95 * 0.06**0.5
    assert torch.equal(drawn, glorot(60, 40, torch.Generator().manual_seed(0)))
