"""Encoders by name, each with the options it takes."""

import torch

from newcomer.errors import unknown_name
from newcomer.nn.encoders import Encoder, LANEncoder, LSTMEncoder, MeanEncoder, RelationalEncoder, VNEncoder
from newcomer.nn.foldin import FoldInEncoder


def make_encoder(
    name: str, num_seen: int, num_relations: int, dim: int, dropout: float, generator: torch.Generator, **options: int
) -> Encoder:
    """An encoder by name, with the options it takes."""
    if name not in ENCODERS:
        raise unknown_name("encoder", name, ENCODERS)
    kind, takes = ENCODERS[name]
    chosen = {key: options[key] for key in takes if key in options}
    return kind(num_seen, num_relations, dim, dropout, generator, **chosen)


ENCODERS: dict[str, tuple[type[Encoder], tuple[str, ...]]] = {
    "vn": (VNEncoder, ("layers", "query_aware", "normalise", "residual", "relation_shifts")),
    "mean": (MeanEncoder, ("max_neighbors",)),
    "lstm": (LSTMEncoder, ("max_neighbors",)),
    "lan": (LANEncoder, ("max_neighbors",)),
    "relational": (RelationalEncoder, ("max_neighbors",)),
    "foldin": (FoldInEncoder, ()),
}
