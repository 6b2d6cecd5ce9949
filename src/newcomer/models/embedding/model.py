"""An encoder and a decoder together: scores of triples, with each end embedded as the triple's relation asks for it.

Models are built from settings that name the two.
"""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from newcomer.config import ModelConfig
from newcomer.models.baselines import LANEncoder, LSTMEncoder, MeanEncoder
from newcomer.models.embedding.decoders import DECODERS, Decoder
from newcomer.models.embedding.encoder import Encoder, States
from newcomer.models.embedding.foldin import FoldInEncoder
from newcomer.models.sparse import distinct
from newcomer.models.vn.encoder import VNEncoder

Relations = TypeVar("Relations", int, Tensor)


class Negatives(NamedTuple):
    """Entities to replace tails with: triples of one relation share theirs, which are then embedded once."""

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

    With ``answers_by_input`` an entity is an answer by its input vector, or, if it has none, by its vector without a
    query: so a query is compared with all entities at the cost of a product, and "that very neighbour" is an answer
    that an encoder can give.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, answers_by_input: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        encoder.attach(decoder)
        self.answers_by_input = answers_by_input
        self.num_relations = encoder.num_relations

    def inverse(self, relations: Relations) -> Relations:
        """The oriented ids of the inverses, of one or of many."""
        return (relations + self.num_relations) % (2 * self.num_relations)

    def inverted(self, triples: Tensor) -> Tensor:
        """(n, 3): the same statements by the inverse relations."""
        return torch.stack([triples[:, 2], self.inverse(triples[:, 1]), triples[:, 0]], dim=1)

    def answers(self, states: States, entities: Tensor, relations: Tensor) -> Tensor:
        """(n, d): vectors of ``entities`` as tails of ``relations``."""
        if not self.answers_by_input:
            return self.encoder.embed(states, entities, self.inverse(relations))
        vectors = self.encoder.look_up(entities, states.layers[0])
        if states.newcomers == 0:
            return vectors
        arrived = torch.nonzero(entities >= states.num_seen)[:, 0]
        return vectors.index_copy(0, arrived, self.encoder.plain(states, entities[arrived]))

    def scores(self, states: States, triples: Tensor) -> Tensor:
        """(n,): scores of triples (n, 3) with oriented relations."""
        if self.answers_by_input:
            heads, relations, tails = self.oriented(triples, states.num_seen).unbind(dim=1)
            of_heads = self.encoder.embed(states, heads, relations)
            return self.decoder.triples(of_heads, relations, self.answers(states, tails, relations))
        of_heads, of_tails = self._embed_ends(states, triples)
        return self.decoder.triples(of_heads, triples[:, 1], of_tails)

    def _embed_ends(self, states: States, triples: Tensor, *others: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Vectors of heads and of tails, each for the triple's relation, and of other (entities, queries)."""
        heads, relations, tails = triples.unbind(dim=1)
        entities, queries = zip((heads, relations), (tails, self.inverse(relations)), *others, strict=True)
        vectors = self.encoder.embed(states, torch.cat(entities), torch.cat(queries))
        return torch.split(vectors, [len(part) for part in entities])

    def oriented(self, triples: Tensor, seen: int) -> Tensor:
        """Triples, inverted where only the tail is no longer seen: then the query is about it."""
        turn = (triples[:, 2] >= seen) & (triples[:, 0] < seen)
        return torch.where(turn[:, None], self.inverted(triples), triples)

    def truths(self, states: States, triples: Tensor) -> Tensor:
        """(n,): truths in 0..1."""
        return torch.sigmoid(self.scores(states, triples))

    def contrast(
        self, states: States, triples: Tensor, along: Tensor, negatives: Negatives, others: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of triples (n, 3), (n,), of the same with their negatives as tails, (n, k + 1), and of others, (m,).

        The last of the negatives is the head itself: most alike its own neighbours, it would else be the answer to
        every query. ``along`` are the decoder's vectors of the triples' relations, (n, d). The others are scored as
        `scores` does it; all ends are embedded together.
        """
        heads, relations, _ = triples.unbind(dim=1)
        inverse = self.inverse(negatives.relations)[:, None].expand_as(negatives.entities)
        as_tails = heads, self.inverse(relations)
        drawn = negatives.entities.reshape(-1), inverse.reshape(-1)
        other_heads, other_tails = (others[:, 0], others[:, 1]), (others[:, 2], self.inverse(others[:, 1]))
        of_heads, of_tails, of_selves, of_drawn, *of_others = self._embed_ends(
            states, triples, as_tails, drawn, other_heads, other_tails
        )
        queries = self.decoder.query_vector(of_heads, along)
        of_negatives = negatives.spread(of_drawn.reshape(*negatives.entities.shape, -1))
        negative = self.decoder.fit_candidates(queries, of_negatives)
        itself = self.decoder.fit_pairs(queries, of_selves)
        return (
            self.decoder.fit_pairs(queries, of_tails),
            torch.cat([negative, itself[:, None]], dim=1),
            self.decoder.triples(of_others[0], others[:, 1], of_others[1]),
        )

    def contrast_with_all(
        self,
        states: States,
        triples: Tensor,
        along: Tensor,
        candidates: Tensor,
        tails: Tensor,
        negatives: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Scores of the heads and relations of triples with tails (n,), (n,), and with all candidates, (n, seen).

        The tail itself, which is no corruption, has the score minus infinity there. With ``negatives`` (k,) only these
        are compared with, (n, k).
        """
        queries = self.decoder.query_vector(self.encoder.embed(states, triples[:, 0], triples[:, 1]), along)
        return self._among(queries, candidates, tails, negatives)

    def _among(
        self, queries: Tensor, candidates: Tensor, tails: Tensor, negatives: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The scores of query vectors with the tails, and with all others or those of them that are negatives."""
        if negatives is None:
            scores, place = self.decoder.fit_candidates(queries, candidates), tails[:, None]
            return scores.gather(1, place)[:, 0], scores.scatter(1, place, -torch.inf)
        of_tails = self.decoder.fit_pairs(queries, self.encoder.look_up(tails, candidates))
        scores = self.decoder.fit_candidates(queries, self.encoder.look_up(negatives, candidates))
        return of_tails, scores.masked_fill(negatives == tails[:, None], -torch.inf)

    def own_contrast(
        self, triples: Tensor, along: Tensor, negatives: Negatives | None, shared: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `contrast`, or without ``negatives`` as `contrast_with_all`, by the trained vectors alone, without edges.

        ``shared`` are the negatives of all triples in the latter case.
        """
        heads, _, tails = triples.unbind(dim=1)
        vectors = self.encoder.inputs()
        if negatives is None:
            queries = self.decoder.query_vector(self.encoder.look_up(heads, vectors), along)
            return self._among(queries, vectors, tails, shared)
        ids = heads, tails, negatives.entities.reshape(-1)
        of_heads, of_tails, drawn = torch.split(
            functional.embedding(torch.cat(ids), vectors), [len(part) for part in ids]
        )
        queries = self.decoder.query_vector(of_heads, along)
        of_negatives = negatives.spread(drawn.reshape(*negatives.entities.shape, -1))
        return self.decoder.fit_pairs(queries, of_tails), self.decoder.fit_candidates(queries, of_negatives)


def build_model(config: ModelConfig, num_seen: int, num_relations: int, seed: int) -> Model:
    """A fresh model; the same seed gives the same one on every device."""
    generator = torch.Generator().manual_seed(seed)
    encoder, decoder = ENCODERS[config.encoder], DECODERS[config.decoder]
    of_encoder, of_decoder = ({name: getattr(config, name) for name in one.OPTIONS} for one in (encoder, decoder))
    encodes = encoder(num_seen, num_relations, config.dim, config.dropout, generator, **of_encoder)
    return Model(encodes, decoder(num_relations, config.dim, generator, **of_decoder), config.answers_by_input)


ENCODERS: dict[str, type[Encoder]] = {
    "vn": VNEncoder,
    "mean": MeanEncoder,
    "lstm": LSTMEncoder,
    "lan": LANEncoder,
    "foldin": FoldInEncoder,
}
