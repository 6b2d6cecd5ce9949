"""Encoders by name, and a model of an encoder and a decoder from its settings."""

import torch

from newcomer.config import ModelConfig
from newcomer.errors import unknown_name
from newcomer.models.baselines import LANEncoder, LSTMEncoder, MeanEncoder
from newcomer.models.embedding.decoders import DECODERS, make_decoder
from newcomer.models.embedding.encoder import Encoder
from newcomer.models.embedding.foldin import FoldInEncoder
from newcomer.models.embedding.model import Model
from newcomer.models.vn.encoder import VNEncoder


def make_encoder(
    name: str, num_seen: int, num_relations: int, dim: int, dropout: float, generator: torch.Generator, **options: int
) -> Encoder:
    """The encoder of that name, with the options it takes."""
    if name not in ENCODERS:
        raise unknown_name("encoder", name, ENCODERS)
    return ENCODERS[name](num_seen, num_relations, dim, dropout, generator, **options)


def build_model(config: ModelConfig, num_seen: int, num_relations: int, seed: int) -> Model:
    """A fresh model; the same seed gives the same one on every device."""
    generator = torch.Generator().manual_seed(seed)
    of_encoder = {name: getattr(config, name) for name in ENCODERS[config.encoder].OPTIONS}
    of_decoder = {name: getattr(config, name) for name in DECODERS[config.decoder].OPTIONS}
    encoder = make_encoder(config.encoder, num_seen, num_relations, config.dim, config.dropout, generator, **of_encoder)
    decoder = make_decoder(config.decoder, num_relations, config.dim, generator, **of_decoder)
    return Model(encoder, decoder, config.answers_by_input)


ENCODERS: dict[str, type[Encoder]] = {
    "vn": VNEncoder,
    "mean": MeanEncoder,
    "lstm": LSTMEncoder,
    "lan": LANEncoder,
    "foldin": FoldInEncoder,
}
