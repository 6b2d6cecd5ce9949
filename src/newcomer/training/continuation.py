"""A final fit that goes on from the vectors of the search.

Where vectors are looked up (encoder foldin), they need not be learned twice. Entities and relations that the search
trained keep their vectors, by their names, and the squared gradients that Adagrad has summed up. Those who were held
out start from the vectors that their facts were folded into, with sums as others have in the mean: then a quarter of
the epochs gives the whole graph's vectors.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from newcomer.config import Config
from newcomer.graph import UNKNOWN, InductiveDataset, Vocabulary
from newcomer.models.embedding.scorer import Snapshot
from newcomer.training.embedding import Trainer

SUM = "sum"  # as Adagrad calls the squared gradients


class Table(NamedTuple):
    """Vectors of named things, and their squared gradients."""

    names: Vocabulary
    known: Tensor  # (names,): which have a vector
    vectors: Tensor  # (names, d)
    squares: Tensor  # (names, d)

    def carried_to(self, wanted: Vocabulary, vectors: Tensor, squares: Tensor) -> None:
        """Put what is known by name into the first rows of ``wanted``."""
        there = self.names.ids(list(wanted)[: len(vectors)]).astype(np.int64)
        places = torch.from_numpy(np.maximum(there, 0))
        found = torch.from_numpy(there != UNKNOWN) & self.known[places]
        vectors[found], squares[found] = self.vectors[places[found]], self.squares[places[found]]


class LearnedVectors(NamedTuple):
    """What the search ends with."""

    entities: Table
    relations: Table


def continues(config: Config) -> bool:
    """Whether a final fit goes on from the search's vectors."""
    looked_up = config.model.encoder == "foldin" and config.training.optimiser == "adagrad"
    return looked_up and config.training.final_share < 1


def final_epochs(config: Config, found: int) -> int:
    """How many epochs the final fit has, where the search found so many best."""
    return max(1, math.ceil(config.training.final_share * found)) if continues(config) else found


def learned_vectors(trainer: Trainer, dataset: InductiveDataset, snapshot: Snapshot) -> LearnedVectors:
    """The vectors of a trainer, and those that the held-out newcomers of a snapshot were folded into."""
    vectors, squares = (one.cpu() for one in _of_entities(trainer))
    others = len(dataset.entities) - len(vectors)
    table = torch.cat([vectors, torch.zeros(others, vectors.shape[1])])
    known = torch.arange(len(table)) < len(vectors)
    for members in snapshot.members:
        ids, encoded = torch.from_numpy(members.ids.astype(np.int64)), members.encoded
        table[ids] = encoded.states.layers[0][len(encoded.near) :].cpu()
        known[ids] = True
    sums = torch.cat([squares, squares.mean(dim=0, keepdim=True).expand(others, -1)])
    every = torch.ones(len(dataset.relations), dtype=torch.bool)
    relations = Table(dataset.relations, every, *(one.cpu() for one in _of_relations(trainer)))
    return LearnedVectors(Table(dataset.entities, known, table, sums), relations)


def go_on_from(learned: LearnedVectors, trainer: Trainer, dataset: InductiveDataset) -> None:
    """Give a fresh trainer these vectors; what they do not have keeps its own."""
    for table, names, own in (
        (learned.entities, dataset.entities, _of_entities(trainer)),
        (learned.relations, dataset.relations, _of_relations(trainer)),
    ):
        vectors, squares = (one.cpu().clone() for one in own)
        table.carried_to(names, vectors, squares)
        for one, changed in zip(own, (vectors, squares), strict=True):
            one.copy_(changed)


def _of_entities(trainer: Trainer) -> tuple[Tensor, Tensor]:
    return _with_squares(trainer, trainer.model.encoder.vectors)


def _of_relations(trainer: Trainer) -> tuple[Tensor, Tensor]:
    return _with_squares(trainer, trainer.model.decoder.vectors)


def _with_squares(trainer: Trainer, vectors: torch.nn.Parameter) -> tuple[Tensor, Tensor]:
    return vectors.data, trainer.optimiser.state[vectors][SUM]
