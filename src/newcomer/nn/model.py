"""An encoder and a decoder together: scores of triples, with each end embedded as the triple's relation asks for it."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.nn.decoders import Decoder
from newcomer.nn.encoders import Encoder, States


class Negatives(NamedTuple):
    """Entities to replace tails with: those asked the same relation share theirs, which are then embedded once."""

    relations: Tensor  # (groups,) oriented
    entities: Tensor  # (groups, k)
    group: Tensor  # (n,) the group of each triple

    def spread(self, vectors: Tensor) -> Tensor:
        """(n, k, d): for each triple the vectors (groups, k, d) of its group."""
        rows = functional.embedding(self.group, vectors.flatten(1))
        return rows.reshape(len(rows), *vectors.shape[1:])

    @classmethod
    def draw(
        cls, relations: Tensor, count: int, below: int, generator: torch.Generator, shared: bool = False
    ) -> "Negatives":
        """``count`` entities of ``below`` for each relation that occurs, or (``shared``) the same for all of them."""
        distinct, group = torch.unique(relations, return_inverse=True)
        sets = 1 if shared else len(distinct)
        drawn = torch.randint(below, (sets, count), generator=generator, device=generator.device)
        return cls(distinct, drawn.to(relations.device).expand(len(distinct), count), group)


class Model(nn.Module):
    """Head ``h`` of (h, r, t) is embedded for query r, and tail ``t`` for the inverse of r.

    With ``own_answers`` an entity is an answer by its input vector, one that has none by what it is when nothing is
    asked: so a question is compared with everyone at the cost of a product, and "that very neighbour" is an answer that
    an encoder can give.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, own_answers: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.own_answers = own_answers
        self.num_relations = encoder.num_relations

    def inverse(self, relations: Tensor) -> Tensor:
        """The oriented ids of the inverses."""
        return (relations + self.num_relations) % (2 * self.num_relations)

    def answers(self, states: States, entities: Tensor, relations: Tensor) -> Tensor:
        """(n, d): vectors of ``entities`` as tails of ``relations``."""
        if not self.own_answers:
            return self.encoder.embed(states, entities, self.inverse(relations))
        vectors = functional.embedding(entities, states.layers[0])
        if states.newcomers == 0:
            return vectors
        arrived = torch.nonzero(entities >= len(states.layers[0]) - states.newcomers)[:, 0]
        return vectors.index_copy(0, arrived, self.encoder.plain(states, entities[arrived]))

    def scores(self, states: States, triples: Tensor) -> Tensor:
        """(n,): scores of triples (n, 3) with oriented relations."""
        if self.own_answers:
            heads, relations, tails = self.oriented(triples, len(states.layers[0]) - states.newcomers).unbind(dim=1)
            of_heads = self.encoder.embed(states, heads, relations)
            return self.decoder.triples(of_heads, relations, self.answers(states, tails, relations))
        heads, relations, tails = triples.unbind(dim=1)
        vectors = self.encoder.embed(states, torch.cat([heads, tails]), torch.cat([relations, self.inverse(relations)]))
        return self.decoder.triples(vectors[: len(heads)], relations, vectors[len(heads) :])

    def oriented(self, triples: Tensor, seen: int) -> Tensor:
        """Triples turned round where only the tail is no longer seen: then it is the one that is asked about."""
        turn = (triples[:, 2] >= seen) & (triples[:, 0] < seen)
        turned = torch.stack([triples[:, 2], self.inverse(triples[:, 1]), triples[:, 0]], dim=1)
        return torch.where(turn[:, None], turned, triples)

    def truths(self, states: States, triples: Tensor) -> Tensor:
        """(n,): truth values in 0..1."""
        return torch.sigmoid(self.scores(states, triples))

    def contrast(self, states: States, triples: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """Scores of triples (n, 3), (n,), and of the same with their negatives as tails, (n, k + 1).

        The last is the head itself: most alike its own neighbours, it would else be the answer to everything.
        """
        heads, relations, tails = triples.unbind(dim=1)
        asked_back = self.inverse(relations)
        n, (groups, k) = len(heads), negatives.entities.shape
        entities = torch.cat([heads, tails, heads, negatives.entities.reshape(-1)])
        of_groups = self.inverse(negatives.relations).repeat_interleave(k)
        vectors = self.encoder.embed(states, entities, torch.cat([relations, asked_back, asked_back, of_groups]))
        of_heads, of_tails, as_tails = vectors[: 3 * n].chunk(3)
        of_negatives = negatives.spread(vectors[3 * n :].reshape(groups, k, -1))
        negative = self.decoder.all_tails(of_heads, relations, of_negatives)
        itself = self.decoder.triples(of_heads, relations, as_tails)
        return self.decoder.triples(of_heads, relations, of_tails), torch.cat([negative, itself[:, None]], dim=1)

    def contrast_with_all(
        self, states: States, asked: Tensor, everyone: Tensor, tails: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores of (head, relation) pairs (n, 2) with their tails, (n,), and with everyone's vectors, (n, seen).

        The tail itself, which is no corruption, has the score minus infinity there.
        """
        heads, relations = asked.unbind(dim=1)
        return _apart(self.decoder.all_tails(self.encoder.embed(states, heads, relations), relations, everyone), tails)

    def own_contrast(self, triples: Tensor, negatives: Negatives | None) -> tuple[Tensor, Tensor]:
        """As `contrast` (without ``negatives``: with all), by the trained vectors alone, whatever is around them."""
        heads, relations, tails = triples.unbind(dim=1)
        vectors = self.encoder.inputs()
        of_heads = functional.embedding(heads, vectors)
        if negatives is None:
            return _apart(self.decoder.all_tails(of_heads, relations, vectors), tails)
        positive = self.decoder.triples(of_heads, relations, functional.embedding(tails, vectors))
        of_negatives = negatives.spread(functional.embedding(negatives.entities, vectors))
        return positive, self.decoder.all_tails(of_heads, relations, of_negatives)


def _apart(everyone: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """The score of each row's tail, and the scores of all others."""
    place = tails[:, None]
    return everyone.gather(1, place)[:, 0], everyone.scatter(1, place, -torch.inf)
