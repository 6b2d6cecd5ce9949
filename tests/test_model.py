"""A model scores triples with each end embedded as the relation asks for it."""

import pytest
import torch
from torch import Tensor

from newcomer.nn.decoders import DECODERS, make_decoder
from newcomer.nn.encoders import ENCODERS, LANEncoder, make_encoder
from newcomer.nn.layers import Edges
from newcomer.nn.model import Model, Negatives
from nn_oracle import random_edges

DIM, RELATIONS, SEEN = 4, 3, 7
TRIPLES = torch.tensor([[2, 0, 3], [3, 4, 2], [2, 0, 3], [0, 1, 1], [5, 2, 5], [6, 5, 4]])
# The first and the third triple ask the same, and share their negatives.
NEGATIVES = Negatives(
    torch.tensor([0, 1, 2, 4, 5]),
    torch.tensor([[0, 3], [5, 4], [3, 3], [1, 1], [2, 0]]),
    torch.tensor([0, 3, 0, 1, 2, 4]),
)


def model_of(encoder: str, decoder: str = "complex") -> tuple[Model, Edges]:
    generator, edges = torch.Generator().manual_seed(0), random_edges(0)
    encoding = make_encoder(encoder, SEEN, RELATIONS, DIM, 0.0, generator).double()
    if isinstance(encoding, LANEncoder):
        encoding.learn_implications(edges)
    return Model(encoding, make_decoder(decoder, RELATIONS, DIM, generator)).double(), edges


def by_hand(model: Model, edges: Edges, head: int, relation: int, tail: int) -> Tensor:
    states = model.encoder.states(edges)
    back = relation - RELATIONS if relation >= RELATIONS else relation + RELATIONS
    of_head = model.encoder.embed(states, torch.tensor([head]), torch.tensor([relation]))
    of_tail = model.encoder.embed(states, torch.tensor([tail]), torch.tensor([back]))
    return model.decoder.triples(of_head, torch.tensor([relation]), of_tail)[0]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_triple_is_scored_with_its_tail_asked_back(encoder, decoder):
    model, edges = model_of(encoder, decoder)
    expected = torch.stack([by_hand(model, edges, *triple) for triple in TRIPLES.tolist()])
    states = model.encoder.states(edges)
    torch.testing.assert_close(model.scores(states, TRIPLES), expected)
    torch.testing.assert_close(model.truths(states, TRIPLES), torch.sigmoid(expected))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_triple_and_its_inverse_are_one_statement(encoder, decoder):
    model, edges = model_of(encoder, decoder)
    states = model.encoder.states(edges)
    turned = torch.stack([TRIPLES[:, 2], model.inverse(TRIPLES[:, 1]), TRIPLES[:, 0]], dim=1)
    torch.testing.assert_close(model.scores(states, turned), model.scores(states, TRIPLES))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_contrast_scores_each_triple_and_each_corrupted_one(encoder, decoder):
    model, edges = model_of(encoder, decoder)
    states = model.encoder.states(edges)
    positive, negative = model.contrast(states, TRIPLES, NEGATIVES)
    torch.testing.assert_close(positive, model.scores(states, TRIPLES))
    itself = TRIPLES[:, :1]
    for column, tails in enumerate([*NEGATIVES.entities[NEGATIVES.group].split(1, dim=1), itself]):
        corrupted = torch.cat([TRIPLES[:, :2], tails], dim=1)
        torch.testing.assert_close(negative[:, column], model.scores(states, corrupted))
    assert negative.shape[1] == 3


@pytest.mark.parametrize("decoder", DECODERS)
def test_trained_vectors_alone_are_scored_as_the_decoder_does(decoder):
    model, _ = model_of("vn", decoder)
    positive, negative = model.own_contrast(TRIPLES, NEGATIVES)
    vectors = model.encoder.vectors
    for place, (head, relation, tail) in enumerate(TRIPLES.tolist()):
        tails = [tail, *NEGATIVES.entities[NEGATIVES.group[place]].tolist()]
        for score, other in zip([positive[place], *negative[place]], tails, strict=True):
            expected = model.decoder.triples(vectors[[head]], torch.tensor([relation]), vectors[[other]])[0]
            torch.testing.assert_close(score, expected)


def test_negatives_are_drawn_for_each_relation_asked():
    relations = torch.tensor([4, 0, 4, 2])
    drawn = Negatives.draw(relations, 500, 7, torch.Generator().manual_seed(0))
    assert torch.equal(drawn.relations[drawn.group], relations)
    assert drawn.entities.shape == (3, 500) and set(drawn.entities.unique().tolist()) == set(range(7))
    assert not torch.equal(drawn.entities[0], drawn.entities[1])
    shared = Negatives.draw(relations, 500, 7, torch.Generator().manual_seed(0), shared=True)
    assert torch.equal(shared.entities[0], shared.entities[2]) and shared.entities.shape == (3, 500)


def test_the_inverse_of_the_inverse_is_the_relation():
    model, _ = model_of("mean")
    relations = torch.arange(2 * RELATIONS)
    assert model.inverse(relations).tolist() == [3, 4, 5, 0, 1, 2]
    assert torch.equal(model.inverse(model.inverse(relations)), relations)
