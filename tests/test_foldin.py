"""Fold-in: a newcomer's vector is the one that explains its facts best, and each fact's part in it is known."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import newcomer
from newcomer.config import load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.errors import DatasetError
from newcomer.models.bundle import read_bundle, write_bundle
from newcomer.models.embedding.decoders import DECODERS, Decoder
from newcomer.models.embedding.encoder import States
from newcomer.models.embedding.foldin import AT_ONCE, MAX_LOG_WEIGHT, NEGATIVES, FoldInEncoder
from newcomer.models.embedding.foldin_solver import RIDGE, candidates_of
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.embedding.model import ENCODERS
from newcomer.predictor import Predictor
from newcomer.training.embedding import Trainer
from newcomer.training.pipeline import fit
from nn_oracle import Edge, edges_of, most_likely, one_thread, random_edges, unlikeliness
from rule_oracle import graph_of, random_rows
from test_training_embedding import CPU, GRAPH, config_of, same, trained

on_one_thread = pytest.fixture(autouse=True)(one_thread)
DIM, RELATIONS, SEEN = 6, 3, 9
ALONE: list[Edge] = [(0, 3, 1.0), (4, 1, 1.0), (1, 3, 1.0)]
every_decoder = pytest.mark.parametrize("decoder", ["distmult", "complex"])


def encoder_of(decoder: str = "complex", seed: int = 0, seen: int = SEEN, dim: int = DIM) -> FoldInEncoder:
    generator = torch.Generator().manual_seed(seed)
    encoder = ENCODERS["foldin"](seen, RELATIONS, dim, 0.0, generator).double()
    assert isinstance(encoder, FoldInEncoder)
    encoder.attach(DECODERS[decoder](RELATIONS, dim, generator).double())
    with torch.no_grad():
        encoder.vectors.copy_(torch.randn(seen, dim, generator=generator))
    return encoder


def decoder_of(encoder: FoldInEncoder) -> Decoder:
    return encoder.decoder


def arrived(encoder: FoldInEncoder, *newcomers: list[Edge]) -> States:
    seen = encoder.states(edges_of([[] for _ in range(SEEN)], SEEN))
    return encoder.extend(seen, edges_of(list(newcomers), SEEN + len(newcomers)))


def vectors_of(encoder: FoldInEncoder, *newcomers: list[Edge]) -> Tensor:
    return arrived(encoder, *newcomers).layers[0][SEEN:].detach()


def random_facts(seed: int, count: int) -> list[Edge]:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(2 * RELATIONS, size=count), rng.integers(SEEN, size=count), rng.uniform(0.1, 2, size=count)
    return list(zip(*(column.tolist() for column in drawn), strict=True))


# The vector ----------------------------------------------------------------------------------------------------------


@every_decoder
@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("seed", range(3))
def test_the_vector_is_the_minimum_of_the_written_formula(decoder, count, seed):
    encoder, facts = encoder_of(decoder, seed), random_facts(seed, count)
    known = encoder.vectors.detach()
    found = vectors_of(encoder, facts)[0]
    best = most_likely(encoder, decoder_of(encoder), known, facts)
    start, reached, least = (
        float(unlikeliness(encoder, decoder_of(encoder), known, facts, vector).detach())
        for vector in (torch.zeros_like(best), found, best)
    )
    assert least - 1e-9 <= reached <= least + 1e-3 * (start - least), "all but a thousandth of the way down"
    assert float((found - best).norm()) < 0.05 * float(best.norm())


def test_so_it_is_with_as_many_numbers_and_negatives_as_in_use():
    generator = torch.Generator().manual_seed(0)
    encoder = encoder_of(seen=600, dim=200).float()
    encoder.attach(DECODERS["complex"](RELATIONS, 200, generator))
    with torch.no_grad():
        encoder.vectors.mul_(0.35)
        decoder_of(encoder).vectors.copy_(torch.randn(RELATIONS, 200, generator=generator) * 0.35)
    encoder.draw_negatives(torch.arange(600), generator)
    relations, columns = torch.randint(6, (12,), generator=generator).sort().values, torch.arange(12) * 40
    facts = encoder.facts(relations, encoder.vectors.detach(), columns, torch.ones(12))
    found = encoder.solve(facts).requires_grad_()
    candidates, log_weights = candidates_of(encoder._problem(CPU), facts)

    def cost(vector: Tensor) -> Tensor:
        asked = decoder_of(encoder).query_vector(vector.expand_as(facts.relations), facts.relations)
        total = torch.logsumexp(asked @ candidates.T + log_weights, dim=1) @ facts.weights
        return total - (asked * facts.tails).sum() + RIDGE * vector.square().sum()

    (slope,) = torch.autograd.grad(cost(found), found)
    fall = float((cost(torch.zeros_like(found)) - cost(found)).detach())
    # Of a cost that bends by 2 * RIDGE at least, the minimum is at most so far below.
    assert float(slope.square().sum()) / (4 * RIDGE) < 0.01 * fall


def test_the_number_of_threads_does_not_matter():
    generator, seen, dim = torch.Generator().manual_seed(0), 3_000, 200
    encoder = encoder_of(seen=seen, dim=dim).float()
    encoder.attach(DECODERS["complex"](RELATIONS, dim, generator))
    encoder.draw_negatives(torch.arange(seen), generator)
    rng, found = np.random.default_rng(0), []
    facts = [(int(rng.integers(2 * RELATIONS)), int(rng.integers(seen)), 1.0) for _ in range(800)]
    edges = [edges_of(lists, width, torch.float32) for lists, width in (([[]] * seen, seen), ([facts], seen + 1))]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(encoder.extend(encoder.states(edges[0]), edges[1]).layers[0][seen:])
        assert torch.get_num_threads() == threads
    assert found[0].any() and torch.equal(*found)


@pytest.mark.parametrize("count", [1, AT_ONCE, 3 * AT_ONCE + 1])
def test_newcomers_shared_out_to_threads_keep_their_vectors(count):
    encoder, rng = encoder_of(), np.random.default_rng(count)
    seen = encoder.states(edges_of([[]] * SEEN, SEEN))
    lists = [[(int(rng.integers(2 * RELATIONS)), int(rng.integers(SEEN)), 1.0) for _ in range(3)] for _ in range(count)]
    edges = edges_of(lists, SEEN + count)
    alone, shared, every = (encoder.extend(seen, edges, threads).layers[0][SEEN:] for threads in (1, 3, None))
    assert len(torch.unique(alone, dim=0)) > count // 2  # they are not all alike, so that an exchange would show
    assert torch.equal(alone, shared) and torch.equal(alone, every)


def test_without_any_fact_the_vector_is_nothing():
    encoder = encoder_of()
    assert not vectors_of(encoder, [], [(0, 3, 0.0)]).any()
    assert vectors_of(encoder, ALONE).any()


def test_a_relation_of_zeros_leaves_the_vector_at_nothing():
    encoder = encoder_of()
    with torch.no_grad():
        decoder_of(encoder).vectors[2] = 0.0
    found = vectors_of(encoder, [(2, 3, 1.0), (5, 1, 1.0)], ALONE, [*ALONE, (2, 3, 1.0)])
    assert not found[0].any() and bool(torch.isfinite(found).all())
    torch.testing.assert_close(found[1], found[2], atol=1e-3, rtol=1e-3)


def test_weights_count():
    encoder = encoder_of()
    twice, double = vectors_of(encoder, [*ALONE, ALONE[0]], [(0, 3, 2.0), *ALONE[1:]])
    assert torch.equal(twice, double)
    hidden, without, once = vectors_of(encoder, [*ALONE, (2, 5, 0.0)], ALONE, [*ALONE, (2, 5, 1.0)])
    assert torch.equal(hidden, without) and not torch.allclose(without, once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neither_the_order_of_facts_nor_other_newcomers_change_a_bit(dtype):
    encoder = encoder_of().to(dtype)
    decoder_of(encoder).to(dtype)
    facts = random_facts(3, 12)

    def found(place: int, *newcomers: list[Edge]) -> Tensor:
        seen = encoder.states(edges_of([[] for _ in range(SEEN)], SEEN, dtype))
        states = encoder.extend(seen, edges_of(list(newcomers), SEEN + len(newcomers), dtype))
        assert torch.equal(states.layers[0][:SEEN], encoder.vectors)
        return states.layers[0][SEEN + place]

    alone = found(0, facts)
    assert torch.equal(found(0, facts[::-1]), alone)
    assert torch.equal(found(2, ALONE, [], facts, [(2, SEEN, 1.0)]), alone)


def test_newcomers_are_neighbors_if_they_have_seen_neighbors():
    encoder = encoder_of()
    alone = vectors_of(encoder, ALONE, [(1, 2, 1.0)])
    lists = [
        [*ALONE, (2, SEEN + 1, 1.0)],  # and the next, which has a seen neighbour
        [(1, 2, 1.0), (5, SEEN, 1.0)],
        [(0, SEEN, 0.5)],  # has a newcomer only
        [(0, SEEN + 2, 1.0)],  # has only one without seen neighbours
        [*ALONE, (0, SEEN + 3, 1.0)],
    ]
    found = vectors_of(encoder, *lists)
    known = torch.cat([encoder.vectors.detach(), alone])  # all count as their seen neighbours alone make them
    for place in (0, 1, 2):
        best = most_likely(encoder, decoder_of(encoder), known, lists[place])
        torch.testing.assert_close(found[place], best, atol=0.02, rtol=0)
        assert place == 2 or not torch.allclose(found[place], alone[place], atol=0.05)
    assert not found[3].any()
    assert torch.equal(found[4], alone[0])


# Each fact's part ----------------------------------------------------------------------------------------------------


@every_decoder
@pytest.mark.parametrize("seed", range(3))
def test_the_vector_is_the_sum_of_its_facts_gradients(decoder, seed):
    encoder, facts = encoder_of(decoder, seed), random_facts(seed, 8)
    known = encoder.vectors.detach()
    best = most_likely(encoder, decoder_of(encoder), known, facts)
    relations, columns = (torch.tensor(ids) for ids in list(zip(*facts, strict=True))[:2])
    weights = torch.tensor([weight for *_, weight in facts], dtype=torch.float64)
    gradients = encoder.gradients(best, relations, known[columns], encoder.facts(relations, known, columns, weights))
    torch.testing.assert_close(2 * RIDGE * best, weights @ gradients, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_shares_are_those_of_the_gradients_along_the_query(seed):
    encoder, facts = encoder_of(seed=seed), [*random_facts(seed, 7), (1, 4, 0.0)]
    states = arrived(encoder, facts, [])
    known = encoder.vectors.detach()
    vector = states.layers[0][SEEN].detach()
    used = facts[:-1]
    for query in range(2 * RELATIONS):
        shares = encoder.attention(states, torch.tensor([SEEN]), torch.tensor([query]))
        assert float(shares.sum()) == pytest.approx(1) and float(shares.min()) >= 0 and shares[-1] == 0
        asked = decoder_of(encoder).query_vector(
            vector[None], decoder_of(encoder).relation_vectors(torch.tensor([query]))
        )[0]
        expected = []
        for relation, neighbor, weight in used:
            place = vector.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(
                -part_of(encoder, known, used, (relation, neighbor, weight), place), place
            )
            as_asked = decoder_of(encoder).query_vector(
                gradient[None], decoder_of(encoder).relation_vectors(torch.tensor([query]))
            )
            expected.append(max(0.0, float((as_asked[0] @ asked).detach())))
        total = sum(expected)
        assert shares[:-1].tolist() == pytest.approx([one / total for one in expected], abs=1e-6)
    of_none = encoder.attention(states, torch.tensor([SEEN + 1]), torch.tensor([0]))
    assert of_none.shape == (0,)


def part_of(encoder: FoldInEncoder, known: Tensor, used: list[Edge], fact: Edge, vector: Tensor) -> Tensor:
    """What one fact adds to the cost, where the others are neighbours."""
    hidden = {neighbor: (fact[0], neighbor, 0.0) for _, neighbor, _ in used}
    total = unlikeliness(encoder, decoder_of(encoder), known, [fact, *hidden.values()], vector)
    return total - RIDGE * vector.square().sum()


# Negatives -----------------------------------------------------------------------------------------------------------


def test_where_few_are_seen_all_are_negatives_as_they_are():
    encoder = encoder_of()
    encoder.draw_negatives(torch.arange(SEEN), torch.Generator().manual_seed(0))
    assert encoder.negatives.tolist() == list(range(SEEN)) and not encoder.log_weights.any()


def test_the_seed_draws_the_negatives_and_those_of_high_degree_rather():
    drawn, degrees = [], torch.cat([torch.zeros(2000), torch.full((500,), 99.0)])
    for seed in (0, 0, 1):
        encoder = encoder_of(seen=2500, dim=2)
        encoder.draw_negatives(degrees, torch.Generator().manual_seed(seed))
        assert len(set(encoder.negatives.tolist())) == NEGATIVES
        drawn.append((encoder.negatives.tolist(), encoder.log_weights.tolist()))
    assert drawn[0] == drawn[1] != drawn[2]
    of_high_degree = sum(entity >= 2000 for entity in drawn[0][0])
    assert of_high_degree / 500 > 3 * (NEGATIVES - of_high_degree) / 2000
    assert max(drawn[0][1]) <= math.log(2500 / NEGATIVES) + MAX_LOG_WEIGHT + 1e-9


def test_negatives_stand_for_all():
    """Weights make up for how likely each was: so the sum over negatives is near that over all, whoever is drawn."""
    size = 6000
    encoder = encoder_of(seen=size, dim=2)
    generator = torch.Generator().manual_seed(3)
    degrees = torch.randint(30, (size,), generator=generator)
    scores = torch.randn(size, generator=generator, dtype=torch.float64) + 0.3 * torch.log1p(degrees.double())
    ratios = []
    for seed in range(200):
        encoder.draw_negatives(degrees, torch.Generator().manual_seed(seed))
        ratios.append(float(torch.exp(scores[encoder.negatives] + encoder.log_weights).sum() / torch.exp(scores).sum()))
    # One draw has a standard deviation of about 0.06. They are drawn without being put back, so those of high degree
    # are a little rarer than their share says; that costs no more than a few in a hundred.
    assert np.std(ratios) < 0.1 and abs(np.mean(ratios) - 1) < 0.04


# In training ---------------------------------------------------------------------------------------------------------


def with_an_unknown_relation() -> GraphTensors:
    """A graph that has a relation without facts."""
    rows = random_rows(np.random.default_rng(0), 12, RELATIONS - 1, 30)
    return build_graph_tensors(graph_of(rows, 12, RELATIONS), 12, None, CPU)


@every_decoder
def test_an_unknown_relation_keeps_the_vector_that_changes_nothing(decoder):
    trainer = Trainer(config_of("foldin", decoder, labels="none"), with_an_unknown_relation(), CPU)
    vectors, encoder = trainer.model.decoder.vectors, trainer.model.encoder
    for _ in range(2):
        assert encoder.is_unknown(torch.arange(2 * RELATIONS)).nonzero()[:, 0].tolist() == [
            RELATIONS - 1,
            2 * RELATIONS - 1,
        ]
        anyone = torch.randn(3, vectors.shape[1])
        assert torch.equal(trainer.model.decoder.query_vector(anyone, vectors[-1:].expand(3, -1)), anyone)
        trainer.epoch(0)


@every_decoder
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_with_an_unknown_relation_is_answered_by_entities_like_the_known_answers(decoder, dtype):
    trainer = Trainer(config_of("foldin", decoder, labels="none"), with_an_unknown_relation(), CPU)
    model, unknown = trainer.model.eval().to(dtype), RELATIONS - 1
    encoder, seen = model.encoder, 12
    stated, answers = [(0, 3, 1.0), (1, 5, 1.0)], [(unknown, 2, 1.0), (unknown, 7, 1.0)]
    graph = trainer.graph
    alone = encoder.states(graph.edges(torch.ones(len(graph.facts))))
    with torch.no_grad():
        both = encoder.extend(alone, edges_of([stated + answers, stated], seen + 2, dtype))
        asked = [torch.tensor([seen, seen + 1, seen, 4]), torch.tensor([unknown, unknown, 0, unknown])]
        found = encoder.embed(both, *asked)
    assert torch.equal(both.layers[0][seen], both.layers[0][seen + 1]), "facts of such a relation are not used"
    assert torch.equal(found[2], both.layers[0][seen]) and not found[1].any() and not found[3].any()
    best = most_likely(encoder, model.decoder, encoder.vectors.detach(), [(unknown, 2, 1.0), (unknown, 7, 1.0)])
    torch.testing.assert_close(found[0], best.to(found), rtol=0, atol=0.02)
    scores = model.decoder.fit_candidates(found[:1], encoder.vectors.detach())[0]
    assert scores[[2, 7]].min() > scores.median(), "the known answers are likely ones"
    shares = encoder.attention(both, asked[0][:1], asked[1][:1])
    of_edge = dict(zip([column for _, column, _ in sorted(stated + answers)], shares.tolist(), strict=True))
    assert of_edge[3] == of_edge[5] == 0.0 and of_edge[2] > 0 and of_edge[7] > 0


def test_a_query_with_an_unknown_relation_is_solved_once_however_often_it_occurs(monkeypatch):
    trainer = Trainer(config_of("foldin", "complex", labels="none"), with_an_unknown_relation(), CPU)
    encoder, unknown, seen, solved = trainer.model.eval().encoder, RELATIONS - 1, 12, []
    stated = [[(0, 3, 1.0), (unknown, 2, 1.0)], [(1, 5, 1.0), (unknown, 7, 1.0)]]
    solve = encoder.solve
    monkeypatch.setattr(encoder, "solve", lambda facts: solved.append(facts) or solve(facts))
    with torch.no_grad():
        graph = trainer.graph
        both = encoder.extend(
            encoder.states(graph.edges(torch.ones(len(graph.facts)))), edges_of(stated, seen + 2, torch.float32)
        )
        solved.clear()
        asked = torch.tensor([seen + 1, seen, 3, seen + 1, seen]), torch.tensor([unknown, unknown, 0, unknown, unknown])
        found = encoder.embed(both, *asked)
        alone = torch.cat([encoder.embed(both, one[None], query[None]) for one, query in zip(*asked, strict=True)])
    assert len(solved) == 2 + 4
    assert torch.equal(found, alone) and not torch.equal(found[0], found[1])


@pytest.mark.parametrize("optimiser", ["adam", "adagrad"])
def test_a_run_goes_on_with_its_optimiser_to_the_bit(optimiser):
    config = config_of("foldin", "complex", optimiser=optimiser, n3=0.05, l2=0.0, grad_clip=0.0, loss="softmax")
    stopped, file = trained(config, epochs=2), io.BytesIO()
    assert type(stopped.optimiser).__name__.lower() == optimiser
    torch.save([stopped.model.state_dict(), stopped.optimiser.state_dict(), stopped.labels], file)
    resumed = Trainer(config, GRAPH, CPU)
    file.seek(0)
    model, state, resumed.labels = torch.load(file, weights_only=True)
    resumed.model.load_state_dict(model)
    resumed.optimiser.load_state_dict(state)
    resumed.epoch(2)
    assert same(trained(config, epochs=3), resumed)
    forgetful = Trainer(config, GRAPH, CPU)
    forgetful.model.load_state_dict(model)
    forgetful.labels = resumed.labels
    forgetful.epoch(2)
    assert not same(forgetful, resumed), "what the optimiser remembers matters"


@pytest.mark.parametrize("n3", [0.0, 0.5])
@pytest.mark.parametrize("l2", [0.0, 0.25])
def test_large_numbers_cost_their_squares_and_cubes(n3, l2):
    trainer = trained(config_of("foldin", "distmult", n3=n3, l2=l2), epochs=0)
    triples = GRAPH.facts[:5]
    along = trainer.model.decoder.relation_vectors(triples[:, 1])
    rows = [trainer.model.encoder.vectors[e].tolist() for h, _, t in triples.tolist() for e in (h, t)]
    squares, cubes = (sum(abs(x) ** power for row in rows for x in row) for power in (2, 3))
    of_relations = [sum(abs(x) ** power for row in along.tolist() for x in row) for power in (2, 3)]
    expected = l2 * (squares / (10 * 8) + of_relations[0] / 5) + n3 * (cubes + of_relations[1]) / 5
    assert trainer._penalty(triples, along).item() == pytest.approx(expected, rel=1e-5)


def test_cubes_of_complex_numbers_are_those_of_their_sizes():
    vectors = torch.tensor([[3.0, 0.0, 4.0, -2.0]])  # 3 + 4i and -2i
    assert DECODERS["complex"].cubes(vectors).tolist() == pytest.approx([5.0**3 + 2.0**3])
    assert DECODERS["distmult"].cubes(vectors).tolist() == pytest.approx([27.0 + 64.0 + 8.0])
    origin = torch.zeros(1, 4, requires_grad=True)
    DECODERS["complex"].cubes(origin).sum().backward()
    assert origin.grad is not None and bool(torch.isfinite(origin.grad).all())


def test_a_decoder_whose_scores_are_not_linear_is_refused():
    encoder = ENCODERS["foldin"](SEEN, RELATIONS, DIM, 0.0, torch.Generator().manual_seed(0))
    with pytest.raises(TypeError, match="only scores that are linear"):
        encoder.attach(DECODERS["transe"](RELATIONS, DIM, torch.Generator().manual_seed(0)))


def test_the_decoder_is_no_part_of_the_encoder():
    encoder = encoder_of()
    assert {name for name, _ in encoder.named_parameters()} == {"vectors"}
    assert set(encoder.state_dict()) == {"vectors", "negatives", "log_weights"}


def test_seen_entities_have_their_trained_vectors_whatever_their_edges():
    encoder = encoder_of()
    states = encoder.states(random_edges(0, SEEN, SEEN))
    assert torch.equal(encoder.embed(states, torch.arange(SEEN), torch.zeros(SEEN).long()), encoder.vectors)


def test_stored_newcomers_are_not_solved_for_again_when_a_model_is_loaded(tmp_path, monkeypatch):
    config = with_overrides(load_preset("default"), ["training.epochs=1", "training.batches=5", "model.dim=8"])
    data = load_dataset("sample")
    bundle = fit(data, config).bundle(data)
    write_bundle(tmp_path / "model", bundle)
    name = data.entities.names_of(data.newcomers[:1])[0]
    expected = bundle.weights["newcomer_vectors"][0]

    def refuse(*_: object) -> None:
        raise AssertionError("solved for again")

    monkeypatch.setattr(FoldInEncoder, "solve", refuse)
    assert np.array_equal(newcomer.load(tmp_path / "model").embed(name), expected)
    stored = read_bundle(tmp_path / "model")
    short = {**stored.weights, "newcomer_vectors": stored.weights["newcomer_vectors"][1:]}
    with pytest.raises(DatasetError, match="has 292 x 8 newcomer_vectors, but needs 293 x 8; train it again"):
        Predictor(replace(stored, weights=short))
