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
    """Head ``h`` of (h, r, t) is embedded for query r, tail ``t`` for the inverse of r."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.num_relations = encoder.num_relations

    def inverse(self, relations: Tensor) -> Tensor:
        """The oriented ids of the inverses."""
        return (relations + self.num_relations) % (2 * self.num_relations)

    def scores(self, states: States, triples: Tensor) -> Tensor:
        """(n,): scores of triples (n, 3) with oriented relations."""
        heads, relations, tails = triples.unbind(dim=1)
        vectors = self.encoder.embed(states, torch.cat([heads, tails]), torch.cat([relations, self.inverse(relations)]))
        return self.decoder.triples(vectors[: len(heads)], relations, vectors[len(heads) :])

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

    def own_contrast(self, triples: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor]:
        """As `contrast`, by the trained vectors of the entities alone, whatever is around them."""
        heads, relations, tails = triples.unbind(dim=1)
        vectors = self.encoder.inputs()
        of_heads = functional.embedding(heads, vectors)
        positive = self.decoder.triples(of_heads, relations, functional.embedding(tails, vectors))
        of_negatives = negatives.spread(functional.embedding(negatives.entities, vectors))
        return positive, self.decoder.all_tails(of_heads, relations, of_negatives)
