"""An encoder and a decoder together: scores of triples, with each end embedded as the triple's relation asks for it."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.models.embedding.decoders import Decoder
from newcomer.models.embedding.encoders import Encoder, States
from newcomer.models.sparse import distinct


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
        cls, relations: Tensor, kinds: int, count: int, below: int, generator: torch.Generator, shared: bool = False
    ) -> "Negatives":
        """``count`` entities of ``below`` for each of ``kinds`` relations that occurs, or (``shared``) for all."""
        present, group = distinct(relations, kinds)
        sets = 1 if shared else len(present)
        drawn = torch.randint(below, (sets, count), generator=generator, device=generator.device)
        return cls(present, drawn.to(relations.device).expand(len(present), count), group)


class Model(nn.Module):
    """Head ``h`` of (h, r, t) is embedded for query r, and tail ``t`` for the inverse of r.

    With ``answers_by_input`` an entity is an answer by its input vector, one that has none by what it is when nothing
    is asked: so a question is compared with everyone at the cost of a product, and "that very neighbour" is an answer
    that an encoder can give.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, answers_by_input: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        encoder.meet(decoder)
        self.answers_by_input = answers_by_input
        self.num_relations = encoder.num_relations

    def inverse(self, relations: Tensor) -> Tensor:
        """The oriented ids of the inverses."""
        return (relations + self.num_relations) % (2 * self.num_relations)

    def answers(self, states: States, entities: Tensor, relations: Tensor) -> Tensor:
        """(n, d): vectors of ``entities`` as tails of ``relations``."""
        if not self.answers_by_input:
            return self.encoder.embed(states, entities, self.inverse(relations))
        vectors = self.encoder.look_up(entities, states.layers[0])
        if states.newcomers == 0:
            return vectors
        arrived = torch.nonzero(entities >= len(states.layers[0]) - states.newcomers)[:, 0]
        return vectors.index_copy(0, arrived, self.encoder.plain(states, entities[arrived]))

    def scores(self, states: States, triples: Tensor) -> Tensor:
        """(n,): scores of triples (n, 3) with oriented relations."""
        if self.answers_by_input:
            heads, relations, tails = self.oriented(triples, len(states.layers[0]) - states.newcomers).unbind(dim=1)
            of_heads = self.encoder.embed(states, heads, relations)
            return self.decoder.triples(of_heads, relations, self.answers(states, tails, relations))
        of_heads, of_tails = self._embed_all(states, self._ends(triples), self._queries(triples))
        return self.decoder.triples(of_heads, triples[:, 1], of_tails)

    @staticmethod
    def _ends(triples: Tensor) -> tuple[Tensor, Tensor]:
        return triples[:, 0], triples[:, 2]

    def _queries(self, triples: Tensor) -> tuple[Tensor, Tensor]:
        """What the ends of triples are asked."""
        return triples[:, 1], self.inverse(triples[:, 1])

    def _embed_all(
        self, states: States, entities: tuple[Tensor, ...], queries: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Vectors of several lists of entities and what they are asked, for each list."""
        vectors = self.encoder.embed(states, torch.cat(entities), torch.cat(queries))
        return torch.split(vectors, [len(part) for part in entities])

    def oriented(self, triples: Tensor, seen: int) -> Tensor:
        """Triples turned round where only the tail is no longer seen: then it is the one that is asked about."""
        turn = (triples[:, 2] >= seen) & (triples[:, 0] < seen)
        turned = torch.stack([triples[:, 2], self.inverse(triples[:, 1]), triples[:, 0]], dim=1)
        return torch.where(turn[:, None], turned, triples)

    def truths(self, states: States, triples: Tensor) -> Tensor:
        """(n,): truth values in 0..1."""
        return torch.sigmoid(self.scores(states, triples))

    def contrast(
        self, states: States, triples: Tensor, along: Tensor, negatives: Negatives, others: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of triples (n, 3), (n,), of the same with their negatives as tails, (n, k + 1), and of others, (m,).

        The last of the negatives is the head itself: most alike its own neighbours, it would else be the answer to
        everything. ``along`` are the decoder's vectors of the triples' relations, (n, d). The others are scored as
        `scores` does it; all ends are embedded together.
        """
        heads, relations, tails = triples.unbind(dim=1)
        asked_back = self.inverse(relations)
        of_groups = self.inverse(negatives.relations)[:, None].expand_as(negatives.entities)
        entities = heads, tails, heads, negatives.entities.reshape(-1), *self._ends(others)
        queries = relations, asked_back, asked_back, of_groups.reshape(-1), *self._queries(others)
        of_heads, of_tails, as_tails, rivals, *of_others = self._embed_all(states, entities, queries)
        asked = self.decoder.query_vector(of_heads, along)
        of_negatives = negatives.spread(rivals.reshape(*negatives.entities.shape, -1))
        negative = self.decoder.fit_candidates(asked, of_negatives)
        itself = self.decoder.fit_pairs(asked, as_tails)
        return (
            self.decoder.fit_pairs(asked, of_tails),
            torch.cat([negative, itself[:, None]], dim=1),
            self.decoder.triples(of_others[0], others[:, 1], of_others[1]),
        )

    def contrast_with_all(
        self,
        states: States,
        triples: Tensor,
        along: Tensor,
        everyone: Tensor,
        tails: Tensor,
        rivals: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Scores of the heads and relations of triples with tails (n,), (n,), and with everyone's vectors, (n, seen).

        The tail itself, which is no corruption, has the score minus infinity there. With ``rivals`` (k,) only these
        are compared with, (n, k).
        """
        asked = self.decoder.query_vector(self.encoder.embed(states, triples[:, 0], triples[:, 1]), along)
        return self._among(asked, everyone, tails, rivals)

    def _among(self, asked: Tensor, everyone: Tensor, tails: Tensor, rivals: Tensor | None) -> tuple[Tensor, Tensor]:
        """The scores of what is asked with the tails, and with all others or those of them who are rivals."""
        if rivals is None:
            return _apart(self.decoder.fit_candidates(asked, everyone), tails)
        of_tails = self.decoder.fit_pairs(asked, self.encoder.look_up(tails, everyone))
        scores = self.decoder.fit_candidates(asked, self.encoder.look_up(rivals, everyone))
        return of_tails, scores.masked_fill(rivals == tails[:, None], -torch.inf)

    def own_contrast(
        self, triples: Tensor, along: Tensor, negatives: Negatives | None, rivals: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `contrast` (without ``negatives``: with all), by the trained vectors alone, whatever is around them."""
        heads, tails = self._ends(triples)
        vectors = self.encoder.inputs()
        if negatives is None:
            asked = self.decoder.query_vector(self.encoder.look_up(heads, vectors), along)
            return self._among(asked, vectors, tails, rivals)
        ids = heads, tails, negatives.entities.reshape(-1)
        of_heads, of_tails, rivals = torch.split(
            functional.embedding(torch.cat(ids), vectors), [len(part) for part in ids]
        )
        asked = self.decoder.query_vector(of_heads, along)
        of_negatives = negatives.spread(rivals.reshape(*negatives.entities.shape, -1))
        return self.decoder.fit_pairs(asked, of_tails), self.decoder.fit_candidates(asked, of_negatives)


def _apart(everyone: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
    """The score of each row's tail, and the scores of all others."""
    place = tails[:, None]
    return everyone.gather(1, place)[:, 0], everyone.scatter(1, place, -torch.inf)
