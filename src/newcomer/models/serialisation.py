"""Between a trained model and its folder: what is stored, and how the model is built again from it.

The weights are those of the embedding and beside them, by name,

    labels             the truth of each virtual triple of seen entities
    support            what rules add to that truth, before it is weighed; where answers are scored by their labels
    newcomer_labels    both for the newcomers that are stored with the model
    newcomer_support
    newcomer_vectors   their vectors, where these follow from facts alone
    ensemble           the weights of the features (`newcomer.models.ensemble`)
    propagation.*      those of the propagation network (`newcomer.models.propagation.scorer`)
    triple_classifier.*  those of the triple classifier (`newcomer.models.triple_classifier`)

Virtual triples follow from facts, rules, settings and seed. They are stored because inferring them takes long.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from newcomer.errors import DatasetError, one_line
from newcomer.graph import TripleArray, about_newcomers, seen_count
from newcomer.models.bundle import Bundle, Weights
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.embedding.model import build_model
from newcomer.models.engine import InferenceEngine, StoredNewcomers, TrainedModel
from newcomer.models.ensemble import KINDS, feature_names
from newcomer.models.ensemble import Weights as EnsembleWeights
from newcomer.models.propagation.network import LAYERS, Propagation
from newcomer.models.propagation.network import PREFIX as PROPAGATION
from newcomer.models.rule_engine import limits_of
from newcomer.models.triple_classifier import PREFIX as TRIPLE_CLASSIFIER
from newcomer.models.triple_classifier import TripleClassifier, feature_count
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import VirtualNeighbors

LABELS, ENSEMBLE, SUPPORT = "labels", "ensemble", "support"
NEWCOMER_LABELS, NEWCOMER_SUPPORT, NEWCOMER_VECTORS = "newcomer_labels", "newcomer_support", "newcomer_vectors"
DRAWN = "encoder.negatives"
Part = TypeVar("Part", bound=nn.Module)
Value = TypeVar("Value")
BESIDE = (LABELS, ENSEMBLE, SUPPORT, NEWCOMER_LABELS, NEWCOMER_SUPPORT, NEWCOMER_VECTORS)


def weights_of(model: TrainedModel) -> Weights:
    """All trained numbers by name, as arrays."""
    found = part_weights("", model.embedding) | _arrays({LABELS: model.labels})
    if model.weights is not None:
        found[ENSEMBLE] = model.weights
    for prefix, part in ((PROPAGATION, model.propagation), (TRIPLE_CLASSIFIER, model.triple_classifier)):
        found |= {} if part is None else part_weights(prefix, part)
    return found


def part_weights(prefix: str, part: nn.Module) -> dict[str, npt.NDArray[np.floating]]:
    """The weights of a part of a model by name."""
    return _arrays({f"{prefix}{name}": value for name, value in part.state_dict().items()})


def _arrays(tensors: dict[str, Tensor]) -> dict[str, npt.NDArray[np.floating]]:
    return {name: value.detach().cpu().numpy() for name, value in tensors.items()}


@dataclass(frozen=True, eq=False)
class Inferred:
    """What a model is stored with so that nothing has to be inferred when it is loaded."""

    neighbors: VirtualNeighbors | None = None
    newcomer_neighbors: VirtualNeighbors | None = None
    weights: Weights = field(default_factory=dict)


def inferred_by(model: TrainedModel, facts: TripleArray, threads: int | None = None) -> Inferred:
    """The virtual neighbours of seen entities and of the newcomers of these facts, with their labels."""
    if model.neighbors is None:
        return Inferred()
    settings, found = model.config.model, dict[str, Tensor]()
    scores_labels = settings.constrained and settings.labels == "soft"
    engine = InferenceEngine(model, StoredNewcomers(facts), threads)
    if scores_labels and engine.encoder.support is not None:
        found[SUPPORT] = engine.encoder.support
    virtual = None
    if engine.initial.members and len(about_newcomers(facts, model.num_seen)):
        encoded = engine.with_virtual_neighbors(engine.initial.members[0].encoded)
        virtual = encoded.virtual
        found[NEWCOMER_LABELS] = encoded.labels
        if not model.embedding.encoder.uses_virtual_edges:  # then the vectors follow from facts alone
            found[NEWCOMER_VECTORS] = encoded.states.layers[0][len(encoded.near) :]
        if scores_labels and encoded.support is not None:
            found[NEWCOMER_SUPPORT] = encoded.support
    chosen = limits_of(model.config.rules).chosen(model.rules)
    of_seen, of_newcomers = (
        None if one is None else _of_all(one, model.rules, chosen) for one in (model.neighbors, virtual)
    )
    return Inferred(of_seen, of_newcomers, _arrays(found))


def _of_all(found: VirtualNeighbors, rules: RuleSet, chosen: npt.NDArray[np.intp]) -> VirtualNeighbors:
    """The same with rows of all rules, where it has rows of the chosen ones."""
    rows = found.grounding_rule.copy()
    logic = found.logic
    rows[logic] = chosen[rows[logic]]
    return replace(found, rules=rules, grounding_rule=rows)


def load_model(bundle: Bundle, device: torch.device | None = None) -> TrainedModel:
    """The trained model of a folder."""
    place, config, num_seen = device or torch.device("cpu"), bundle.config, seen_count(bundle.observed)
    graph = build_graph_tensors(bundle.observed, num_seen, bundle.neighbors, place)
    model = build_model(config.model, num_seen, bundle.observed.num_relations, config.seed)
    labels = _beside(bundle, LABELS, place, len(graph.virtual))
    if labels is None:
        raise DatasetError(f"the model has no {LABELS}; train it again with this version")
    others = TRIPLE_CLASSIFIER, PROPAGATION
    own = {name: value for name, value in bundle.weights.items() if not (name in BESIDE or name.startswith(others))}
    _load(model, own, "the weights do not fit the settings")
    _check_drawn(own.get(DRAWN), num_seen)
    return TrainedModel(
        config,
        bundle.observed,
        bundle.rules,
        model.to(place),
        graph,
        labels,
        bundle.neighbors,
        _beside(bundle, SUPPORT, place, len(graph.virtual)),
        _ensemble_weights_of(bundle),
        propagation_of(bundle.weights, bundle.observed.num_relations),
        triple_classifier_of(bundle.weights, bundle.observed.num_relations),
    )


def _check_drawn(negatives: npt.NDArray[np.number] | None, num_seen: int) -> None:
    """Refuse negatives (encoder foldin) that are no seen entities."""
    if negatives is not None and not ((negatives >= 0) & (negatives < num_seen)).all():
        raise DatasetError(f"the weights do not fit the graph ({DRAWN} names no seen entities); train the model again")


def propagation_of(weights: Weights, num_relations: int) -> Propagation | None:
    """The propagation network among stored weights, if there is one."""
    own = under(PROPAGATION, weights)
    problem = "the propagation network does not fit the relations"
    if not own:
        return None
    layers = len(own["scales"]) if "scales" in own and own["scales"].ndim else LAYERS
    own.setdefault("hubs", np.zeros((), dtype=np.float32))  # models of before have none that are silent
    return _load(Propagation(num_relations, torch.Generator(), layers=layers), own, problem)


def triple_classifier_of(weights: Weights, num_relations: int) -> TripleClassifier | None:
    """The triple classifier among stored weights, if there is one."""
    own = under(TRIPLE_CLASSIFIER, weights)
    problem = "the triple classifier does not fit the relations"
    return _load(TripleClassifier(num_relations, feature_count(num_relations)), own, problem) if own else None


def under(prefix: str, named: Mapping[str, Value]) -> dict[str, Value]:
    """Those whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def _load(part: Part, weights: Weights, problem: str) -> Part:
    """The part with these weights, ready to be asked."""
    try:
        part.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    except RuntimeError as error:
        raise DatasetError(f"{problem} ({one_line(error)}); train the model again") from None
    return part.eval()


def load_newcomers(bundle: Bundle, device: torch.device | None = None) -> StoredNewcomers:
    """The newcomers that a model was written with."""
    place = device or torch.device("cpu")
    if bundle.auxiliary is None:
        return StoredNewcomers()
    facts, virtual = bundle.auxiliary.triples, bundle.newcomer_neighbors
    if virtual is None or NEWCOMER_LABELS not in bundle.weights:
        return StoredNewcomers(facts)
    labels = _beside(bundle, NEWCOMER_LABELS, place, len(virtual))
    support = _beside(bundle, NEWCOMER_SUPPORT, place, len(virtual))
    count = len(bundle.observed.entities) - seen_count(bundle.observed)
    vectors = _beside(bundle, NEWCOMER_VECTORS, place, count, bundle.config.model.dim)  # as they were solved for
    return StoredNewcomers(facts, virtual, labels, support, vectors)


def load_engine(bundle: Bundle, device: torch.device | None = None, threads: int | None = None) -> InferenceEngine:
    """The inference engine of a folder, with the newcomers that the model was written with."""
    return InferenceEngine(load_model(bundle, device), load_newcomers(bundle, device), threads)


def _ensemble_weights_of(bundle: Bundle) -> EnsembleWeights | None:
    """The weights of the features, where the model has an ensemble."""
    found: EnsembleWeights | None = bundle.weights.get(ENSEMBLE)
    has_network = any(name.startswith(PROPAGATION) for name in bundle.weights)
    count = len(feature_names(bundle.config.model.graph_statistics, has_network))
    if found is not None and found.shape[-1:] == (count + 1,) and bundle.config.model.propagation and not has_network:
        raise DatasetError("the ensemble has a propagation network, but its weights are missing; train the model again")
    if found is not None and found.shape != (len(KINDS), count):
        raise DatasetError("the ensemble's weights do not fit its features; train the model again with this version")
    return found


def _beside(bundle: Bundle, name: str, device: torch.device, *shape: int) -> Tensor | None:
    """One of the tensors that are stored beside the weights, if it is there."""
    if name not in bundle.weights:
        return None
    found = torch.from_numpy(bundle.weights[name].copy()).to(device)
    if found.shape != shape:
        counts, wanted = (" x ".join(map(str, one)) or "1" for one in (found.shape, shape))
        raise DatasetError(f"the model has {counts} {name}, but needs {wanted}; train it again with this version")
    return found
