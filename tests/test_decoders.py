from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from newcomer.models.embedding import decoders
from newcomer.models.embedding.decoders import DECODERS, Decoder

RELATIONS, DIM, GAMMA = 3, 6, 12.0


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(name: str, seed: int = 0, **options: Any) -> Decoder:
    """A decoder in double precision, so that a tolerance of 1e-9 tells a wrong formula from rounding."""
    return DECODERS[name](RELATIONS, DIM, seeded(seed), **options).double()


def all_tails(decoder: Decoder, heads: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
    return decoder.fit_candidates(decoder.query_vector(heads, decoder.relation_vectors(relations)), candidates)


def entities(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def every_relation(queries: int) -> Tensor:
    """Relation ids over the whole range, forward and inverse, for that many queries."""
    return torch.arange(queries) % (2 * RELATIONS)


def close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


# One number at a time, straight from the formulas; ``r`` is the vector of the forward relation.
def distmult_by_hand(h: list[float], r: list[float], t: list[float]) -> float:
    return sum(x * y * z for x, y, z in zip(h, r, t, strict=True))


def transe_by_hand(h: list[float], r: list[float], t: list[float]) -> float:
    return GAMMA - sum(abs(x + y - z) for x, y, z in zip(h, r, t, strict=True))


def complex_by_hand(h: list[float], r: list[float], t: list[float]) -> float:
    half = len(h) // 2
    a, b, c = ([complex(v[i], v[half + i]) for i in range(half)] for v in (h, r, t))
    return sum((x * y * z.conjugate()).real for x, y, z in zip(a, b, c, strict=True))


BY_HAND: dict[str, Callable[[list[float], list[float], list[float]], float]] = {
    "distmult": distmult_by_hand,
    "transe": transe_by_hand,
    "complex": complex_by_hand,
}


def plain_loop(name: str, decoder: Decoder, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """Scores of triples by the formula; an inverse is answered by asking the forward relation with ends swapped."""
    vectors, scores = decoder.vectors.tolist(), []
    for h, r, t in zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True):
        ends = (h, t) if r < RELATIONS else (t, h)
        scores.append(BY_HAND[name](ends[0], vectors[r % RELATIONS], ends[1]))
    return torch.tensor(scores, dtype=torch.float64)


def test_every_decoder_has_a_formula_to_be_checked_against():
    assert BY_HAND.keys() == DECODERS.keys()


WORKED = [
    # h = (1, 2), r = (3, -1), t = (2, 5)
    ("distmult", 1 * 3 * 2 + 2 * -1 * 5),
    ("transe", GAMMA - (abs(1 + 3 - 2) + abs(2 - 1 - 5))),
    # one complex number each: (1 + 2i)(3 - i)(2 - 5i) = (5 + 5i)(2 - 5i) = 35 - 15i
    ("complex", 35),
]


@pytest.mark.parametrize(("name", "score"), WORKED)
def test_worked_example(name, score):
    decoder = DECODERS[name](1, 2, seeded())
    with torch.no_grad():
        decoder.vectors.copy_(torch.tensor([[3.0, -1.0]]))
    head, tail = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 5.0]])
    assert decoder.triples(head, torch.tensor([0]), tail).tolist() == [score]
    assert decoder.triples(tail, torch.tensor([1]), head).tolist() == [score]


@pytest.mark.parametrize("name", DECODERS)
class TestContract:
    def test_triples_equal_a_plain_loop(self, name):
        decoder, relations = made(name), every_relation(12)
        heads, tails = entities(12, DIM, seed=1), entities(12, DIM, seed=2)
        close(decoder.triples(heads, relations, tails), plain_loop(name, decoder, heads, relations, tails))

    def test_all_tails_equal_a_plain_loop(self, name):
        decoder, relations, heads, tails = made(name), every_relation(7), entities(7, DIM), entities(5, DIM, seed=2)
        columns = [plain_loop(name, decoder, heads, relations, tail.expand(7, DIM)) for tail in tails]
        close(all_tails(decoder, heads, relations, tails), torch.stack(columns, dim=1))

    def test_each_query_may_bring_its_own_candidates(self, name):
        decoder, relations, known, own = made(name), every_relation(7), entities(7, DIM), entities(7, 4, DIM, seed=2)
        tails = [decoder.triples(known, relations, own[:, k]) for k in range(4)]
        close(all_tails(decoder, known, relations, own), torch.stack(tails, dim=1))

    def test_a_triple_and_its_inverse_have_one_score(self, name):
        decoder = made(name)
        heads, tails, forward = entities(9, DIM, seed=1), entities(9, DIM, seed=2), torch.arange(9) % RELATIONS
        close(decoder.triples(heads, forward, tails), decoder.triples(tails, forward + RELATIONS, heads))

    def test_gradients_reach_every_parameter_and_every_argument(self, name):
        decoder, relations = made(name), every_relation(6)
        heads, tails, own = (
            entities(*s, seed=i).requires_grad_() for i, s in enumerate([(6, DIM)] * 2 + [(6, 2, DIM)])
        )
        for scores in (
            decoder.triples(heads, relations, tails),
            all_tails(decoder, heads, relations, tails),
            all_tails(decoder, heads, relations, own),
        ):
            used = own if scores.shape == (6, 2) else tails
            found = torch.autograd.grad(scores.square().sum(), [*decoder.parameters(), heads, used])
            assert all(bool((gradient != 0).any(dim=-1).all()) for gradient in found)

    def test_gradients_are_those_of_the_formula(self, name):
        decoder, relations = made(name), every_relation(4)
        shared, own = entities(3, DIM, seed=2).requires_grad_(), entities(4, 2, DIM, seed=3).requires_grad_()

        def scores(heads: Tensor, shared: Tensor, own: Tensor, vectors: Tensor) -> tuple[Tensor, ...]:
            def call(method: Any, *given: Tensor) -> Tensor:
                return torch.func.functional_call(Asked(decoder, method), {"decoder.vectors": vectors}, given)

            return (
                call(all_tails, heads, relations, shared),
                call(all_tails, heads, relations, own),
                call(Decoder.triples, heads, relations, heads.flip(0)),
            )

        inputs = (entities(4, DIM).requires_grad_(), shared, own, decoder.vectors)
        assert torch.autograd.gradcheck(scores, inputs)

    @pytest.mark.parametrize(("queries", "candidates"), [(0, 3), (3, 0), (0, 0), (1, 1)])
    def test_shapes_of_nothing_and_of_one(self, name, queries, candidates):
        decoder, relations, heads = made(name), every_relation(queries), entities(queries, DIM)
        assert decoder.triples(heads, relations, heads).shape == (queries,)
        for given in (entities(candidates, DIM), entities(queries, candidates, DIM)):
            assert all_tails(decoder, heads, relations, given).shape == (queries, candidates)

    @pytest.mark.parametrize("beyond", [-1, 2 * RELATIONS])
    def test_an_id_beyond_the_relations_is_refused(self, name, beyond):
        decoder, heads, relations = made(name), entities(1, DIM), torch.tensor([beyond])
        for ask in (Decoder.triples, all_tails):
            with pytest.raises(IndexError):
                ask(decoder, heads, relations, heads)

    def test_penalty_is_the_mean_squared_norm(self, name):
        decoder = made(name)
        norms = decoder.vectors.detach().square().sum(dim=1)
        relations = torch.tensor([0, 2, 2 + RELATIONS])
        penalty = decoder.penalty(decoder.relation_vectors(relations))
        close(penalty.detach(), (norms[0] + 2 * norms[2]) / 3)
        gradient = torch.autograd.grad(penalty, decoder.vectors)[0]
        assert (gradient != 0).any(dim=1).tolist() == [True, False, True]
        assert decoder.penalty(decoder.relation_vectors(relations[:0])).item() == 0.0

    def test_the_generator_alone_decides_the_start(self, name):
        first, again, other = (DECODERS[name](50, 64, seeded(s)).vectors for s in (4, 4, 5))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert first.shape == (50, 64)
        assert first.square().sum(dim=1).mean().item() == pytest.approx(1.0, abs=0.1)

    def test_half_the_relations_are_all_that_is_stored(self, name):
        shapes = {key: tuple(value.shape) for key, value in made(name).state_dict().items()}
        assert shapes == {"vectors": (RELATIONS, DIM)}


class Asked(torch.nn.Module):
    """One function of a decoder as a module's forward, so that its parameters can be replaced by others."""

    def __init__(self, decoder: Decoder, method: Any) -> None:
        super().__init__()
        self.decoder, self.method = decoder, method

    def forward(self, *given: Tensor) -> Tensor:
        scores: Tensor = self.method(self.decoder, *given)
        return scores


class LargestTile(TorchDispatchMode):
    """Bytes of the differences behind the largest distance computation, and of the largest tensor made."""

    def __init__(self) -> None:
        super().__init__()
        self.tile = self.tensor = self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        operands = {"aten::_cdist_forward": args[:2], "aten::_cdist_backward": args[1:3]}.get(function.name())
        if operands is not None:
            left, right = operands
            batch = left.shape[0] if left.dim() == 3 else 1
            self.calls += 1
            self.tile = max(self.tile, batch * left.shape[-2] * right.shape[-2] * left.shape[-1] * left.element_size())
        if isinstance(result, Tensor):
            self.tensor = max(self.tensor, result.numel() * result.element_size())
        return result


@pytest.mark.parametrize("candidates", [(40, DIM), (11, 40, DIM)])
@pytest.mark.parametrize("pairs", [1, 7, 40, 100, 11 * 40])
def test_transe_never_spreads_out_more_than_its_bytes(candidates, pairs, monkeypatch):
    budget, decoder = pairs * DIM * 8, made("transe")
    heads, relations, given = entities(11, DIM).requires_grad_(), every_relation(11), entities(*candidates, seed=2)
    given.requires_grad_()
    same = all_tails(decoder, heads, relations, given)
    monkeypatch.setattr(decoders, "CHUNK_BYTES", budget)
    with LargestTile() as seen:
        scores = all_tails(decoder, heads, relations, given)
        found = torch.autograd.grad(scores.square().sum(), [decoder.vectors, heads, given])
    assert 0 < seen.tile <= max(budget, DIM * 8)
    # Beside the tiles nothing larger lives than the scores and what the caller holds already.
    assert seen.tensor <= max(budget, scores.numel() * 8, given.numel() * 8)
    close(scores, same)
    for ours, theirs in zip(
        found, torch.autograd.grad(same.square().sum(), [decoder.vectors, heads, given]), strict=True
    ):
        close(ours, theirs)


def test_transe_by_default_does_not_cut_a_small_question_up():
    with LargestTile() as seen:
        all_tails(made("transe"), entities(11, DIM), every_relation(11), entities(40, DIM, seed=2))
    assert (seen.calls, seen.tile) == (1, 11 * 40 * DIM * 8)


def test_gamma_moves_every_score_alike_and_lifts_truth_above_a_half():
    heads, relations = entities(4, DIM), every_relation(4)
    near, far = made("transe", gamma=0.0), made("transe", gamma=5.0)
    close(all_tails(far, heads, relations, heads), all_tails(near, heads, relations, heads) + 5.0)
    close(far.triples(heads, relations, heads), near.triples(heads, relations, heads) + 5.0)
    exact = heads + near.relation_vectors(relations)
    close(torch.sigmoid(near.triples(heads, relations, exact)), torch.full((4,), 0.5, dtype=torch.float64))
    assert (torch.sigmoid(far.triples(heads, relations, exact)) > 0.99).all()


@pytest.mark.parametrize("name", DECODERS)
def test_relations_are_looked_up_alike_with_and_without_a_gradient(name):
    decoder, relations = made(name), every_relation(9)
    slow = decoder.relation_vectors(relations)
    with torch.no_grad():
        assert torch.equal(decoder.relation_vectors(relations), slow)
        for wrong in (-1, 2 * RELATIONS):
            with pytest.raises(IndexError):
                decoder.relation_vectors(torch.tensor([wrong]))


@pytest.mark.parametrize("name", DECODERS)
def test_under_the_identity_the_query_vector_is_the_head(name):
    heads = entities(4, DIM)
    decoder = made(name)
    assert torch.equal(decoder.query_vector(heads, decoder.identity(entities(4, DIM, seed=2))), heads)


@pytest.mark.parametrize("name", [name for name, kind in DECODERS.items() if kind.is_linear])
def test_query_vectors_are_products_of_numbers_and_inverses_conjugates(name):
    decoder = made(name)
    heads, relations = entities(4, DIM), entities(4, DIM, seed=2)
    numbers = decoder.numbers(relations)
    assert torch.equal(decoder.vector(numbers), relations)
    close(decoder.vector(decoder.numbers(heads) * numbers), decoder.query_vector(heads, relations))
    close(decoder.vector(numbers.conj()), decoder.inverse(relations))


def test_options_reach_the_decoder():
    assert DECODERS["transe"](2, 4, seeded(), gamma=3.0).gamma == 3.0
