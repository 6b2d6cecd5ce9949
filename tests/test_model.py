"""A model scores triples with each end embedded as the relation asks for it."""

import pytest
import torch
from torch import Tensor

from newcomer.models.embedding.decoders import DECODERS
from newcomer.models.embedding.encoder import Edges, States
from newcomer.models.embedding.model import ENCODERS, Model, Negatives
from nn_oracle import ENCODER_DECODERS, random_edges

DIM, RELATIONS, SEEN = 4, 3, 7
TRIPLES = torch.tensor([[2, 0, 3], [3, 4, 2], [2, 0, 3], [0, 1, 1], [5, 2, 5], [6, 5, 4]])
# The first and the third triple ask the same, and share their negatives.
NEGATIVES = Negatives(
    torch.tensor([0, 1, 2, 4, 5]),
    torch.tensor([[0, 3], [5, 4], [3, 3], [1, 1], [2, 0]]),
    torch.tensor([0, 3, 0, 1, 2, 4]),
)
every_pair = pytest.mark.parametrize(("encoder", "decoder"), ENCODER_DECODERS)


def model_of(encoder: str, decoder: str = "complex", answers_by_input: bool = False) -> tuple[Model, Edges]:
    generator, edges = torch.Generator().manual_seed(0), random_edges(0)
    encoding = ENCODERS[encoder](SEEN, RELATIONS, DIM, 0.0, generator).double()
    model = Model(encoding, DECODERS[decoder](RELATIONS, DIM, generator), answers_by_input).double()
    encoding.prepare(edges, 0)
    return model, edges


def along(model: Model, triples: Tensor = TRIPLES) -> Tensor:
    return model.decoder.relation_vectors(triples[:, 1])


def by_hand(model: Model, edges: Edges, head: int, relation: int, tail: int) -> Tensor:
    states = model.encoder.states(edges)
    back = relation - RELATIONS if relation >= RELATIONS else relation + RELATIONS
    of_head = model.encoder.embed(states, torch.tensor([head]), torch.tensor([relation]))
    of_tail = model.encoder.embed(states, torch.tensor([tail]), torch.tensor([back]))
    return model.decoder.triples(of_head, torch.tensor([relation]), of_tail)[0]


@every_pair
def test_a_triple_is_scored_with_its_tail_asked_back(encoder, decoder):
    model, edges = model_of(encoder, decoder)
    expected = torch.stack([by_hand(model, edges, *triple) for triple in TRIPLES.tolist()])
    states = model.encoder.states(edges)
    torch.testing.assert_close(model.scores(states, TRIPLES), expected)
    torch.testing.assert_close(model.truths(states, TRIPLES), torch.sigmoid(expected))


@every_pair
def test_a_triple_and_its_inverse_are_one_statement(encoder, decoder):
    model, edges = model_of(encoder, decoder)
    states = model.encoder.states(edges)
    torch.testing.assert_close(model.scores(states, model.inverted(TRIPLES)), model.scores(states, TRIPLES))


@every_pair
def test_contrast_scores_each_triple_and_each_corrupted_one(encoder, decoder):
    model, edges = model_of(encoder, decoder)
    states = model.encoder.states(edges)
    positive, negative, others = model.contrast(states, TRIPLES, along(model), NEGATIVES, TRIPLES[1:])
    torch.testing.assert_close(others, model.scores(states, TRIPLES[1:]))
    torch.testing.assert_close(positive, model.scores(states, TRIPLES))
    itself = TRIPLES[:, :1]
    for column, tails in enumerate([*NEGATIVES.entities[NEGATIVES.group].split(1, dim=1), itself]):
        corrupted = torch.cat([TRIPLES[:, :2], tails], dim=1)
        torch.testing.assert_close(negative[:, column], model.scores(states, corrupted))
    assert negative.shape[1] == 3


@pytest.mark.parametrize("decoder", DECODERS)
def test_trained_vectors_alone_are_scored_as_the_decoder_does(decoder):
    model, _ = model_of("vn", decoder)
    positive, negative = model.own_contrast(TRIPLES, along(model), NEGATIVES)
    vectors = model.encoder.vectors
    for place, (head, relation, tail) in enumerate(TRIPLES.tolist()):
        tails = [tail, *NEGATIVES.entities[NEGATIVES.group[place]].tolist()]
        for score, other in zip([positive[place], *negative[place]], tails, strict=True):
            expected = model.decoder.triples(vectors[[head]], torch.tensor([relation]), vectors[[other]])[0]
            torch.testing.assert_close(score, expected)


def test_negatives_are_drawn_for_each_relation_asked():
    relations = torch.tensor([4, 0, 4, 2])
    drawn = Negatives.draw(relations, 6, 500, 7, torch.Generator().manual_seed(0))
    assert torch.equal(drawn.relations[drawn.group], relations)
    assert drawn.entities.shape == (3, 500) and set(drawn.entities.unique().tolist()) == set(range(7))
    assert not torch.equal(drawn.entities[0], drawn.entities[1])
    shared = Negatives.draw(relations, 6, 500, 7, torch.Generator().manual_seed(0), shared=True)
    assert torch.equal(shared.entities[0], shared.entities[2]) and shared.entities.shape == (3, 500)


def test_the_inverse_of_the_inverse_is_the_relation():
    model, _ = model_of("mean")
    relations = torch.arange(2 * RELATIONS)
    assert model.inverse(relations).tolist() == [3, 4, 5, 0, 1, 2]
    assert torch.equal(model.inverse(model.inverse(relations)), relations)


NEW = 2  # newcomers beside the seen ones


def with_newcomers(model: Model, edges: Edges) -> States:
    drawn = random_edges(5, num_rows=NEW + 2, width=SEEN + NEW)
    rows, entries = drawn.rows.pick(torch.arange(2, 2 + NEW))
    arrived = Edges(rows, drawn.relations[entries], torch.ones(len(entries), dtype=torch.float64))
    return model.encoder.extend(model.encoder.states(edges), arrived)


@every_pair
def test_own_answers_are_trained_vectors_and_newcomers_are_encoded(encoder, decoder):
    model, edges = model_of(encoder, decoder, answers_by_input=True)
    states = with_newcomers(model, edges)
    everyone = torch.arange(SEEN + NEW)
    for relation in range(2 * RELATIONS):
        asked = torch.full_like(everyone, relation)
        answers = model.answers(states, everyone, asked)
        assert torch.equal(answers[:SEEN], model.encoder.vectors)
        torch.testing.assert_close(answers[SEEN:], model.encoder.plain(states, everyone[SEEN:]))


@every_pair
def test_of_a_pair_the_newcomer_is_asked_about(encoder, decoder):
    model, edges = model_of(encoder, decoder, answers_by_input=True)
    states, new = with_newcomers(model, edges), SEEN
    triples = torch.tensor([[2, 1, new], [new, 4, 2], [new, 0, new + 1], [3, 0, 2]])
    scores = model.scores(states, triples)
    torch.testing.assert_close(scores[0], scores[1])
    for place, (head, relation, tail) in enumerate(triples[1:].tolist(), start=1):
        of_head = model.encoder.embed(states, torch.tensor([head]), torch.tensor([relation]))
        of_tail = model.answers(states, torch.tensor([tail]), torch.tensor([relation]))
        torch.testing.assert_close(scores[place], model.decoder.triples(of_head, torch.tensor([relation]), of_tail)[0])


@every_pair
def test_contrast_with_all_scores_everyone_seen_as_a_tail(encoder, decoder):
    model, edges = model_of(encoder, decoder, answers_by_input=True)
    states = with_newcomers(model, edges)
    triples = torch.cat([TRIPLES, torch.tensor([[SEEN + 1, 4, 2]])])
    vectors, tails = along(model, triples), triples[:, 2]
    among = model.contrast_with_all(states, triples, vectors, model.encoder.vectors, tails)
    both = [among, model.own_contrast(triples[:-1], vectors[:-1], None)]
    for (_, negative), asked in zip(both, (triples, triples[:-1]), strict=True):
        assert negative.shape == (len(asked), SEEN)
        assert torch.equal(torch.isinf(negative).nonzero()[:, 1], asked[:, 2])
    for place, (head, relation, tail) in enumerate(triples.tolist()):
        for other in range(SEEN):
            expected = model.scores(states, torch.tensor([[head, relation, other]]))[0]
            found = both[0][0][place] if other == tail else both[0][1][place, other]
            torch.testing.assert_close(found, expected)


@every_pair
def test_contrast_with_negatives_scores_those_alone(encoder, decoder):
    model, edges = model_of(encoder, decoder, answers_by_input=True)
    states, negatives = with_newcomers(model, edges), torch.tensor([4, 0, int(TRIPLES[0, 2])])
    vectors, tails = along(model, TRIPLES), TRIPLES[:, 2]
    asked = states, TRIPLES, vectors, model.encoder.vectors, tails
    for whole, few in (
        (model.contrast_with_all(*asked), model.contrast_with_all(*asked, negatives)),
        (model.own_contrast(TRIPLES, vectors, None), model.own_contrast(TRIPLES, vectors, None, negatives)),
    ):
        torch.testing.assert_close(few[0], whole[0])
        torch.testing.assert_close(few[1], whole[1][:, negatives])
        assert torch.isinf(few[1][0, 2])
