"""Encoders by name, each with the options it takes."""

import torch

from newcomer.config import ModelConfig
from newcomer.errors import unknown_name
from newcomer.models.embedding.decoders import make_decoder
from newcomer.models.embedding.encoders import (
    Encoder,
    LANEncoder,
    LSTMEncoder,
    MeanEncoder,
    VNEncoder,
)
from newcomer.models.embedding.foldin import FoldInEncoder
from newcomer.models.embedding.model import Model


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
    "foldin": (FoldInEncoder, ()),
}


def build_model(config: ModelConfig, num_seen: int, num_relations: int, seed: int) -> Model:
    """A fresh model; the same seed gives the same one on every device."""
    generator = torch.Generator().manual_seed(seed)
    encoder = make_encoder(
        config.encoder,
        num_seen,
        num_relations,
        config.dim,
        config.dropout,
        generator,
        layers=config.layers,
        query_aware=config.query_aware,
        residual=config.residual,
        relation_shifts=config.relation_shifts,
    )
    options = {"gamma": config.gamma} if config.decoder == "transe" else {}
    decoder = make_decoder(config.decoder, num_relations, config.dim, generator, **options)
    return Model(encoder, decoder, config.answers_by_input)
