"""Contracts that every encoder keeps, and each one against a loop written from its formula."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from newcomer.models.embedding.decoders import DECODERS
from newcomer.models.embedding.encoder import Edges, Encoder, States, join_edges
from newcomer.models.embedding.model import ENCODERS
from newcomer.models.vn import encoder as vn_encoder
from nn_oracle import LOOPS, edges_of, lists_of, most_likely, query_loop, random_edges, structure_loop

DIM, RELATIONS, SEEN = 4, 3, 7
# Every encoder by name, and the variants of those that have some.
KINDS: dict[str, tuple[str, dict[str, int]]] = {
    **{name: (name, {}) for name in ENCODERS},
    "vn without queries": ("vn", {"query_aware": False, "layers": 2}),
    "vn with residual": ("vn", {"residual": True, "layers": 2}),
    "vn with shifts": ("vn", {"relation_shifts": True, "layers": 2}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def encoder_of(kind: str, seed: int = 0, seen: int = SEEN, dim: int = DIM, dropout: float = 0.0) -> Encoder:
    """In double precision, with a decoder."""
    (name, options), generator = KINDS[kind], torch.Generator().manual_seed(seed)
    encoder = ENCODERS[name](seen, RELATIONS, dim, dropout, generator, **options).double()
    encoder.attach(DECODERS["distmult"](RELATIONS, dim, generator).double())
    return encoder


def prepared(kind: str, edges: Edges, seed: int = 0, seen: int = SEEN, dim: int = DIM) -> Encoder:
    encoder = encoder_of(kind, seed, seen, dim)
    encoder.prepare(edges, seed)
    return encoder


def everything(count: int = SEEN) -> tuple[Tensor, Tensor]:
    """All entities with all queries."""
    return torch.cartesian_prod(torch.arange(count), torch.arange(2 * RELATIONS)).unbind(dim=1)


def vectors_of(encoder: Encoder, states: States, count: int = SEEN) -> Tensor:
    return encoder.embed(states, *everything(count)).detach()


@every_kind
@pytest.mark.parametrize("seed", range(4))
def test_an_encoder_equals_a_loop(kind, seed):
    edges = random_edges(seed)
    encoder = prepared(kind, edges, seed)
    found = vectors_of(encoder, encoder.states(edges))
    if kind in LOOPS:
        around, loop = lists_of(edges), LOOPS[kind]
        pairs = zip(*(x.tolist() for x in everything()), strict=True)
        expected = torch.stack([loop(encoder, encoder.vectors, around[e], q) for e, q in pairs])
    elif kind == "foldin":
        expected = encoder.vectors[everything()[0]]
    else:
        last = encoder.vectors
        for layer in encoder.structure:
            last = structure_loop(layer, edges, last, last)
        ask = everything()
        expected = query_loop(encoder.query, edges, last, *ask) if encoder.query_aware else last[ask[0]]
    torch.testing.assert_close(found, expected.detach())


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_are_finite_and_have_the_shape_asked_for(kind, dtype):
    edges = random_edges(0, dtype=dtype)
    encoder = prepared(kind, edges).to(dtype)
    entities, queries = torch.tensor([0, 1, 0, 2, 2]), torch.tensor([5, 0, 5, 1, 2])  # 0 and 1 have no visible edge
    vectors = encoder.embed(encoder.states(edges), entities, queries)
    assert vectors.shape == (5, DIM) and vectors.dtype == dtype
    assert bool(torch.isfinite(vectors).all())
    none = torch.zeros(0, dtype=torch.int64)
    assert encoder.embed(encoder.states(edges), none, none).shape == (0, DIM)


@every_kind
def test_entities_of_a_graph_without_edges_have_finite_vectors(kind):
    edges = edges_of([[] for _ in range(SEEN)], SEEN)
    encoder = prepared(kind, edges)
    assert bool(torch.isfinite(vectors_of(encoder, encoder.states(edges))).all())


@every_kind
def test_gradients_reach_every_parameter(kind):
    edges = random_edges(0)
    encoder = prepared(kind, edges)
    encoder.embed(encoder.states(edges), *everything()).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and bool(torch.isfinite(parameter.grad).all()), name
        assert bool((parameter.grad != 0).any()), name


@every_kind
def test_the_same_seed_gives_the_same_vectors_and_another_one_others(kind):
    edges = random_edges(0)
    first, again, other = (prepared(kind, edges, seed) for seed in (3, 3, 4))
    vectors = [vectors_of(encoder, encoder.states(edges)) for encoder in (first, again, other)]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.allclose(vectors[0], vectors[2])


@every_kind
@pytest.mark.parametrize("seed", range(3))
def test_a_batch_is_embedded_as_its_members_alone(kind, seed):
    edges = random_edges(seed)
    encoder = prepared(kind, edges, seed)
    states, (entities, queries) = encoder.states(edges), everything()
    alone = [encoder.embed(states, entities[k : k + 1], queries[k : k + 1]) for k in range(len(entities))]
    torch.testing.assert_close(encoder.embed(states, entities, queries), torch.cat(alone))


@pytest.mark.parametrize("kind", [kind for kind, (name, _) in KINDS.items() if ENCODERS[name].batch_invariant])
@pytest.mark.parametrize(("dim", "threads"), [(4, 1), (100, 2), (200, 1)])
def test_no_bit_depends_on_who_else_is_embedded_or_arrives(kind, dim, threads):
    seen, newcomers, dtype = 40, 11, torch.float32
    edges, arriving = random_edges(1, seen, seen, dtype=dtype), random_edges(2, newcomers, seen, dtype=dtype)
    encoder = prepared(kind, edges, seen=seen, dim=dim).float().eval()
    encoder.attach(DECODERS["distmult"](RELATIONS, dim, torch.Generator().manual_seed(1)))
    torch.set_num_threads(threads)
    alone, lists = encoder.states(edges), lists_of(arriving)
    together = encoder.extend(alone, replace(arriving, rows=replace(arriving.rows, width=seen + newcomers)))
    ask = torch.cartesian_prod(torch.arange(seen + newcomers), torch.arange(2 * RELATIONS)).unbind(dim=1)
    vectors = encoder.embed(together, *ask)
    for size in (1, 3, 50):
        for part in torch.randperm(len(vectors), generator=torch.Generator().manual_seed(0)).split(size)[:40]:
            assert torch.equal(encoder.embed(together, ask[0][part], ask[1][part]), vectors[part])
    for few in ([4], [9, 2, 10]):
        smaller = encoder.extend(alone, edges_of([lists[one] for one in few], seen + len(few), dtype))
        for place, one in enumerate(few):
            ask_one = torch.arange(2 * RELATIONS)
            found = encoder.embed(smaller, torch.full_like(ask_one, seen + place), ask_one)
            assert torch.equal(found, encoder.embed(together, torch.full_like(ask_one, seen + one), ask_one))


@every_kind
def test_attention_is_shared_out_among_the_edges_that_count(kind):
    edges = random_edges(0)
    encoder = prepared(kind, edges).eval()
    states = encoder.extend(encoder.states(edges), edges_of([[(0, 3, 1.0), (4, 1, 0.5), (1, 2, 0.0)]], SEEN + 1))
    shares = encoder.attention(states, torch.tensor([SEEN]), torch.tensor([4]))
    if shares is not None:
        assert shares.shape == (3,) and shares[2] == 0 and float(shares.detach().sum()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
def test_the_attention_of_vn_is_what_its_vector_is_made_of(seed):
    edges = random_edges(seed)
    encoder = prepared("vn", edges, seed)
    states = encoder.states(edges)
    for entity, query in zip(*(ids.tolist() for ids in everything()), strict=True):
        asked = torch.tensor([entity]), torch.tensor([query])
        neighbors = states.layers[-1][edges.rows.pick(asked[0])[0].columns]
        torch.testing.assert_close(encoder.attention(states, *asked) @ neighbors, encoder.embed(states, *asked)[0])


@every_kind
def test_the_query_matters_exactly_where_an_encoder_says_so(kind):
    edges = random_edges(0)
    encoder = prepared(kind, edges)
    of_query = vectors_of(encoder, encoder.states(edges)).reshape(SEEN, 2 * RELATIONS, DIM)
    assert encoder.query_aware != torch.equal(of_query, of_query[:, :1].expand_as(of_query))


@every_kind
def test_dropout_acts_while_training_only(kind):
    edges = random_edges(0)
    encoder = encoder_of(kind, dropout=0.5)
    encoder.prepare(edges, 0)
    torch.manual_seed(0)
    trained = [vectors_of(encoder.train(), encoder.states(edges)) for _ in range(2)]
    assert not torch.equal(*trained)
    torch.testing.assert_close(*(vectors_of(encoder.eval(), encoder.states(edges)) for _ in range(2)), rtol=0, atol=0)


@every_kind
@pytest.mark.parametrize(("seen", "dim", "newcomers"), [(SEEN, DIM, 1), (SEEN, DIM, 5), (150, 100, 37)])
def test_newcomers_change_no_bit_of_a_seen_entity(kind, seen, dim, newcomers):
    edges = random_edges(1, seen, seen, dtype=torch.float32)
    encoder = prepared(kind, edges, seen=seen, dim=dim).float()
    encoder.attach(DECODERS["distmult"](RELATIONS, dim, torch.Generator().manual_seed(1)))
    alone = encoder.states(edges)
    ask = torch.arange(seen).repeat(2), torch.arange(2 * seen) % (2 * RELATIONS)
    before = encoder.embed(alone, *ask)
    arrived = encoder.extend(alone, random_edges(2, newcomers, seen + newcomers, dtype=torch.float32))
    assert torch.equal(encoder.embed(arrived, *ask), before)
    for old, new in zip(alone.layers, arrived.layers, strict=True):
        assert torch.equal(new[:seen], old)
    without = encoder.extend(alone, edges_of([], seen, torch.float32))
    assert torch.equal(encoder.embed(without, *ask), before)
    everyone = torch.arange(seen + newcomers)
    assert bool(torch.isfinite(encoder.embed(arrived, everyone, everyone % (2 * RELATIONS))).all())


@every_kind
@pytest.mark.parametrize("seed", range(3))
def test_a_seen_entity_on_the_newcomers_path_gets_the_vector_computed_by_hand(kind, seed):
    """Its own facts, no vector of its own, neighbours as they are known."""
    edges = random_edges(seed)
    encoder, entity = prepared(kind, edges, seed), SEEN - 1
    facts = [edge for edge in lists_of(edges)[entity] if edge[1] != entity] + [(1, 3, 1.0), (4, 2, 0.7)]
    arrival = edges_of([facts], SEEN + 1)
    ask = torch.full((6,), SEEN), torch.arange(6)
    found = encoder.embed(encoder.extend(encoder.states(edges), arrival), *ask)
    if kind in LOOPS:
        expected = torch.stack([LOOPS[kind](encoder, encoder.vectors, facts, query) for query in range(6)])
    elif kind == "foldin":
        best = most_likely(encoder, encoder.decoder, encoder.vectors.detach(), facts)
        torch.testing.assert_close(found, best.expand_as(found), rtol=0, atol=0.02)
        return
    else:
        seen, own = encoder.vectors, torch.zeros(1, DIM, dtype=torch.float64)
        for layer in encoder.structure:
            mine = structure_loop(layer, arrival, torch.cat([seen, own]), own)
            seen, own = structure_loop(layer, edges, seen, seen), mine
        together = torch.cat([seen, own])
        everyone = join_edges(edges, arrival)
        expected = query_loop(encoder.query, everyone, together, *ask) if encoder.query_aware else together[ask[0]]
    torch.testing.assert_close(found, expected)
    assert float(found.detach().abs().sum()) > 0


def test_vn_uses_newcomers_that_have_neighbors():
    edges = random_edges(0)
    encoder = prepared("vn without queries", edges)
    seen = encoder.states(edges)
    linked = encoder.extend(seen, edges_of([[(0, 3, 1.0)], [(2, SEEN, 1.0)]], SEEN + 2))
    apart = encoder.extend(seen, edges_of([[(0, 3, 1.0)], []], SEEN + 2))
    assert linked.layers[-1][SEEN + 1].any() and not apart.layers[-1][SEEN + 1].any()


def test_joined_edges_are_the_rows_of_both():
    first, second = random_edges(0), random_edges(1, 3, SEEN + 3)
    joined = join_edges(first, second)
    assert lists_of(joined) == lists_of(first) + lists_of(second)
    assert joined.rows.width == SEEN + 3


@pytest.mark.parametrize("kind", [kind for kind, (name, _) in KINDS.items() if name == "vn"])
def test_seen_and_newcomers_in_one_pass_are_as_one_after_the_other(kind, monkeypatch):
    edges, arriving = random_edges(0), random_edges(1, 3, SEEN)
    arriving = replace(arriving, rows=replace(arriving.rows, width=SEEN + 3))
    encoder = encoder_of(kind)
    vectors, alphas = encoder.vectors, [layer.alpha for layer in encoder.structure]
    found = []
    for pays in (False, True):
        monkeypatch.setattr(vn_encoder, "one_pass_pays", lambda _, pays=pays: pays)
        states = encoder.states_with_newcomers(edges, arriving)
        embedded = encoder.embed(states, torch.arange(SEEN + 3), torch.arange(SEEN + 3) % (2 * RELATIONS))
        found.append((*states.layers, embedded, *torch.autograd.grad(embedded.square().sum(), [vectors, *alphas])))
        assert states.newcomers == 3 and lists_of(states.edges) == lists_of(edges) + lists_of(arriving)
    for apart, at_once in zip(*found, strict=True):
        torch.testing.assert_close(at_once, apart)
