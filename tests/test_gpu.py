"""Propagation by kernels against the plain formulas; on a GPU only.

Covers newcomer.models.propagation.gpu_kernels.
"""

import pytest
import torch

from newcomer.models.propagation import gpu
from newcomer.models.propagation.network import DIM, plain_message_sums
from propagation_oracle import RELATIONS, drawn, edges_of, network_of, seeded

TABLES = ("vectors", "sums", "sources", "query_vectors", "gate", "degrees", "weight", "bias", "gamma", "beta")
GIVEN = ("sources", "degrees")  # without gradients


def plainly(vectors, sums, sources, query_vectors, gate, degrees, weight, bias, gamma, beta):
    queries = torch.arange(len(sources), device=sources.device)
    gated = (torch.zeros_like(sums).index_put((sources, queries), query_vectors) + sums) * gate
    small = torch.sign(gated) * torch.log1p(gated.abs())
    parts = torch.cat([vectors, small, gated / degrees[:, None, None]], dim=2)
    mixed = torch.nn.functional.layer_norm(parts @ weight.T + bias, bias.shape, gamma, beta, 1e-5)
    return vectors + torch.relu(mixed)


def tables_of(entities: int, queries: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(entities + queries)

    def table(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    degrees = 1 + torch.randint(30, (entities,), generator=generator).float()
    sums = table(entities, queries, DIM) * degrees[:, None, None]
    sums[table(entities) > 0.5] = 0.0  # many receive nothing
    sources = torch.randint(max(1, entities // 2), (queries,), generator=generator)  # some of them twice
    query_vectors, gate = table(queries, DIM), 1 + torch.tanh(table(queries, DIM))
    of_layer = table(DIM, 3 * DIM) / DIM**0.5, table(DIM), table(DIM), table(DIM)
    values = table(entities, queries, DIM), sums, sources, query_vectors, gate, degrees, *of_layer
    return dict(zip(TABLES, values, strict=True))


def outcome(layer, tables: dict[str, torch.Tensor], exact: bool = False) -> list[torch.Tensor]:
    """The new vectors, and the gradients of all that has one."""
    device = "cpu" if exact else "cuda"
    own = {
        name: value.to(device) if name == "sources" else value.to(device, torch.float64 if exact else torch.float32)
        for name, value in tables.items()
    }
    learned = [value.requires_grad_() for name, value in own.items() if name not in GIVEN]
    found = layer(*own.values())
    weights = torch.linspace(-1, 1, found.numel(), device=device, dtype=found.dtype).view(found.shape)
    return [found.detach().cpu(), *(one.cpu() for one in torch.autograd.grad((found * weights).sum(), learned))]


ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available() or not gpu.available(), reason="needs a GPU and Triton")


@ON_A_GPU
@pytest.mark.parametrize(("entities", "queries"), [(1, 8), (9, 12), (40, 64), (33, 70), (300, 9)])
def test_a_layer_by_kernels_is_the_layer_and_twice_the_same(entities, queries):
    tables = tables_of(entities, queries)
    wanted = outcome(plainly, tables, exact=True)
    found, again = outcome(gpu.updated, tables), outcome(gpu.updated, tables)
    for right, one, other in zip(wanted, found, again, strict=True):
        assert torch.equal(one, other)
        assert torch.allclose(one.double(), right, rtol=0, atol=1e-5 * float(right.abs().max()))


def test_few_queries_have_no_kernels():
    assert not gpu.updates_layers(1)


@ON_A_GPU
@pytest.mark.parametrize("queries", [1, 5, 64, 70])
def test_sums_by_kernels_are_the_plain_ones_and_twice_the_same(queries):
    size = 9
    facts = [(head, relation, 4) for head, relation, _ in drawn(1, size, 200)]  # a row of more edges than a block holds
    edges = edges_of([*facts, *drawn(2, size, 200)], size)
    edges = edges.with_weights((torch.rand(len(edges.relations), generator=seeded(2)) < 0.8).float())
    tables = torch.randn(size, queries, DIM, generator=seeded(3)), torch.randn(2 * RELATIONS, DIM, generator=seeded(4))

    def outcome_of(sums_of, device: str) -> list[torch.Tensor]:
        given = [one.to(device).requires_grad_() for one in tables]
        sums = sums_of(edges.on(torch.device(device)), *given)
        return [sums.detach().cpu(), *(one.cpu() for one in torch.autograd.grad(sums.square().sum(), given))]

    wanted = outcome_of(plain_message_sums, "cpu")
    found, again = (outcome_of(gpu.message_sums, "cuda") for _ in range(2))
    for right, one, other in zip(wanted, found, again, strict=True):
        assert torch.equal(one, other)
        assert torch.allclose(one, right, rtol=1e-4, atol=1e-3 * float(right.abs().max()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "plain"])
def test_scores_on_a_gpu_are_those_on_a_cpu(monkeypatch, kernels):
    if not kernels:
        monkeypatch.setattr(gpu, "available", lambda: False)
    net, edges = network_of(), edges_of(drawn(0), 14)
    sources, queries = torch.arange(12), torch.arange(12) % (2 * RELATIONS)
    wanted = net([edges], sources, queries, 14)
    there = torch.device("cuda")
    found = net.to(there)([edges.on(there)], sources.to(there), queries.to(there), 14)
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-3, atol=1e-3)
