"""An encoder and a decoder together: scores of triples, with each end embedded as the triple's relation asks for it."""

import torch
from torch import Tensor, nn

from newcomer.nn.decoders import Decoder
from newcomer.nn.encoders import Encoder, States


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

    def contrast(self, states: States, triples: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of triples (n, 3), (n,), and of the same with the tail replaced by negatives (n, k), (n, k)."""
        heads, relations, tails = triples.unbind(dim=1)
        asked_back = self.inverse(relations)
        entities = torch.cat([heads, tails, negatives.reshape(-1)])
        queries = torch.cat([relations, asked_back, asked_back.repeat_interleave(negatives.shape[1])])
        vectors = self.encoder.embed(states, entities, queries)
        n = len(heads)
        of_heads, of_tails = vectors[:n], vectors[n : 2 * n]
        of_negatives = vectors[2 * n :].reshape(n, negatives.shape[1], -1)
        positive = self.decoder.triples(of_heads, relations, of_tails)
        return positive, self.decoder.all_tails(of_heads, relations, of_negatives)
