"""Between a fitted model and its folder: what is stored, and how the model is built again from it.

The weights are those of the network and, under the name ``labels``, the truth of each virtual triple of seen entities;
under ``blend``, where rules have a say beside the network, how far each is believed (`newcomer.training.blend`).
The virtual triples themselves are not stored: they follow from the observed graph, the rules, the settings and the
seed.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.bundle import Bundle, Weights
from newcomer.errors import DatasetError
from newcomer.nn.model import Model
from newcomer.training.graph import TrainingGraph, build_training_graph
from newcomer.training.loop import build_model
from newcomer.training.preparation import ground_seen, seen_count

LABELS, BLEND = "labels", "blend"


def weights_of(model: Model, labels: Tensor, blend: npt.NDArray[np.float32] | None = None) -> Weights:
    """All trained numbers by name, as arrays."""
    tensors = {**model.state_dict(), LABELS: labels}
    found = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
    return found if blend is None else {**found, BLEND: blend}


def load_model(
    bundle: Bundle, device: torch.device | None = None, threads: int | None = None
) -> tuple[Model, Tensor, TrainingGraph]:
    """The model of a bundle, the labels of its virtual triples, and the graph of those it knows."""
    place, config = device or torch.device("cpu"), bundle.config
    num_seen = seen_count(bundle.observed)
    neighbors = ground_seen(bundle.rules, bundle.observed, config, threads)
    graph = build_training_graph(bundle.observed, num_seen, neighbors, place)
    model = build_model(config.model, num_seen, bundle.observed.num_relations, config.seed)
    tensors = {name: torch.from_numpy(value.copy()) for name, value in bundle.weights.items()}
    labels = tensors.pop(LABELS, torch.empty(0))
    tensors.pop(BLEND, None)
    if len(labels) != len(graph.virtual):
        raise DatasetError(
            f"the model has labels for {len(labels):,} virtual triples, but its rules infer {len(graph.virtual):,}; "
            "train it again with this version"
        )
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise DatasetError(f"the weights do not fit the settings ({reason}); train the model again") from None
    return model.to(place).eval(), labels.to(place), graph
