"""Encoders by name, and a model of an encoder and a decoder from its settings."""

import torch

from newcomer.config import ModelConfig
from newcomer.models.baselines import LANEncoder, LSTMEncoder, MeanEncoder
from newcomer.models.embedding.decoders import DECODERS
from newcomer.models.embedding.encoder import Encoder
from newcomer.models.embedding.foldin import FoldInEncoder
from newcomer.models.embedding.model import Model
from newcomer.models.vn.encoder import VNEncoder


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
