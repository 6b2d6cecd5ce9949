"""One layer of paths by kernels, against the same in plain steps; on a GPU only.

Covers newcomer.models.propagation.gpu_layer_kernels.
"""

import pytest
import torch

from newcomer.models.propagation import gpu_layer as fused_layer
from newcomer.models.propagation.network import DIM

TABLES = ("vectors", "sums", "sources", "asked", "gain", "sizes", "weight", "bias", "gamma", "beta")
GIVEN = ("sources", "sizes")  # without gradients


def plainly(vectors, sums, sources, asked, gain, sizes, weight, bias, gamma, beta):
    questions = torch.arange(len(sources), device=sources.device)
    told = (torch.zeros_like(sums).index_put((sources, questions), asked) + sums) * gain
    small = torch.sign(told) * torch.log1p(told.abs())
    heard = torch.cat([vectors, small, told / sizes[:, None, None]], dim=2)
    mixed = torch.nn.functional.layer_norm(heard @ weight.T + bias, bias.shape, gamma, beta, 1e-5)
    return vectors + torch.relu(mixed)


def drawn(entities: int, questions: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(entities + questions)

    def table(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    sizes = 1 + torch.randint(30, (entities,), generator=generator).float()
    sums = table(entities, questions, DIM) * sizes[:, None, None]
    sums[table(entities) > 0.5] = 0.0  # many hear nothing
    sources = torch.randint(max(1, entities // 2), (questions,), generator=generator)  # some of them twice
    asked, gain = table(questions, DIM), 1 + torch.tanh(table(questions, DIM))
    of_layer = table(DIM, 3 * DIM) / DIM**0.5, table(DIM), table(DIM), table(DIM)
    values = table(entities, questions, DIM), sums, sources, asked, gain, sizes, *of_layer
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("entities", "questions"), [(1, 8), (9, 12), (40, 64), (33, 70), (300, 9)])
def test_a_layer_by_kernels_is_the_layer_and_twice_the_same(entities, questions):
    if not fused_layer.pays(questions):
        pytest.skip("needs Triton")
    tables = drawn(entities, questions)
    wanted = outcome(plainly, tables, exact=True)
    found, again = outcome(fused_layer.updated, tables), outcome(fused_layer.updated, tables)
    for right, one, other in zip(wanted, found, again, strict=True):
        assert torch.equal(one, other)
        assert torch.allclose(one.double(), right, rtol=0, atol=1e-5 * float(right.abs().max()))


def test_few_questions_have_no_kernels():
    assert not fused_layer.pays(1)
