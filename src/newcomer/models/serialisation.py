"""Between a fitted model and its folder: what is stored, and how the model is built again from it.

The weights are those of the network and beside them, by name,

    labels             the truth of each virtual triple of those trained on
    support            what rules add to that truth, before it is weighed; where answers are scored by their labels
    newcomer_labels    both for the newcomers that are stored with the model
    newcomer_support
    blend              where rules have a say beside the network, how far each is believed (`newcomer.models.ensemble`)
    propagation.*      what paths say, where they have a say (`newcomer.models.propagation.own`)
    judge.*            what judges triples, where there is such a thing (`newcomer.training.triple_classifier`)

Virtual triples follow from facts, rules, settings and seed. They are stored because inferring them takes long; a model
that was written without them is loaded by inferring them again.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.config import Config
from newcomer.errors import DatasetError
from newcomer.graph import InductiveDataset
from newcomer.graph.types import seen_count
from newcomer.models.bundle import Bundle, Weights
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.embedding.model import Model
from newcomer.models.embedding.registry import build_model
from newcomer.models.embedding.scorer import ModelScorer, rule_support, virtual_labels
from newcomer.models.ensemble import KINDS, features_of
from newcomer.models.grounding import ground, ground_seen, limits_of
from newcomer.models.propagation.network import PREFIX, Propagation
from newcomer.models.propagation.own import propagation_of
from newcomer.models.triple_classifier import JUDGE
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import VirtualNeighbors, about_those

LABELS, BLEND, SUPPORT = "labels", "blend", "support"
NEWCOMER_LABELS, NEWCOMER_SUPPORT, NEWCOMER_VECTORS = "newcomer_labels", "newcomer_support", "newcomer_vectors"
BESIDE = (LABELS, BLEND, SUPPORT, NEWCOMER_LABELS, NEWCOMER_SUPPORT, NEWCOMER_VECTORS)


def weights_of(model: Model, labels: Tensor, blend: npt.NDArray[np.float32] | None = None) -> Weights:
    """All trained numbers by name, as arrays."""
    found = _arrays({**model.state_dict(), LABELS: labels})
    return found if blend is None else {**found, BLEND: blend}


def _arrays(tensors: dict[str, Tensor]) -> dict[str, npt.NDArray[np.floating]]:
    return {name: value.detach().cpu().numpy() for name, value in tensors.items()}


@dataclass(frozen=True, eq=False)
class Inferred:
    """What a model is stored with so that nothing has to be inferred when it is loaded."""

    neighbors: VirtualNeighbors | None = None
    newcomer_neighbors: VirtualNeighbors | None = None
    weights: Weights = field(default_factory=dict)


def inferred_by(
    model: Model,
    labels: Tensor,
    graph: GraphTensors,
    neighbors: VirtualNeighbors | None,
    dataset: InductiveDataset,
    rules: RuleSet,
    config: Config,
    threads: int | None = None,
) -> Inferred:
    """The virtual neighbours of those trained on, in this graph, and of the newcomers, with their labels."""
    if neighbors is None:
        return Inferred()
    settings, arrived = config.model, _ground_newcomers(dataset, rules, config, threads)
    scores_labels = settings.constrained and settings.labels == "soft"
    options = settings.labels, settings.soft_label_c

    def scorer(virtual: VirtualNeighbors | None) -> ModelScorer:
        return ModelScorer(model, graph, labels, dataset, virtual, *options)

    by_facts = scorer(None).states
    found: dict[str, Tensor] = {}
    if scores_labels:
        found[SUPPORT] = rule_support(model, by_facts, graph, _every(graph))
    if arrived is not None:
        newcomers = build_graph_tensors(dataset.auxiliary, len(dataset.entities), arrived, labels.device)
        every = _every(newcomers)
        found[NEWCOMER_LABELS] = virtual_labels(model, by_facts, newcomers, every, *options)
        if not model.encoder.hears_virtual:  # then this is who they are, and solving for all of them takes its time
            found[NEWCOMER_VECTORS] = by_facts.layers[0][graph.num_entities :]
        if scores_labels:
            found[NEWCOMER_SUPPORT] = rule_support(model, scorer(arrived).states, newcomers, every)
    chosen = limits_of(config.rules).chosen(rules)
    of_seen, of_newcomers = (None if one is None else _of_all(one, rules, chosen) for one in (neighbors, arrived))
    return Inferred(of_seen, of_newcomers, _arrays(found))


def _ground_newcomers(
    dataset: InductiveDataset, rules: RuleSet, config: Config, threads: int | None
) -> VirtualNeighbors | None:
    if len(dataset.newcomers) == 0:
        return None
    found = ground(rules, dataset.own_facts, dataset.newcomers, config, threads)
    return None if found is None else about_those(found, dataset.newcomers, seen_count(dataset.observed))


def _every(graph: GraphTensors) -> Tensor:
    return torch.arange(len(graph.virtual), device=graph.virtual.device)


def _of_all(found: VirtualNeighbors, rules: RuleSet, chosen: npt.NDArray[np.intp]) -> VirtualNeighbors:
    """The same with rows of all rules, where it has rows of the chosen ones."""
    rows = found.grounding_rule.copy()
    logic = found.logic
    rows[logic] = chosen[rows[logic]]
    return replace(found, rules=rules, grounding_rule=rows)


def with_neighbors(bundle: Bundle, threads: int | None = None) -> Bundle:
    """The bundle with the virtual neighbours of those trained on, inferred again where they were not stored."""
    if bundle.neighbors is not None:
        return bundle
    return replace(bundle, neighbors=ground_seen(bundle.rules, bundle.observed, bundle.config, threads))


def load_model(
    bundle: Bundle, device: torch.device | None = None, threads: int | None = None
) -> tuple[Model, Tensor, GraphTensors]:
    """The model of a bundle, the labels of its virtual triples, and the graph of those it knows."""
    place, config = device or torch.device("cpu"), bundle.config
    num_seen, neighbors = seen_count(bundle.observed), with_neighbors(bundle, threads).neighbors
    graph = build_graph_tensors(bundle.observed, num_seen, neighbors, place)
    model = build_model(config.model, num_seen, bundle.observed.num_relations, config.seed)
    labels = beside(bundle, LABELS, place)
    labels = torch.empty(0, device=place) if labels is None else labels
    _check_count("labels for", labels, len(graph.virtual))
    own = [name for name in bundle.weights if name not in BESIDE and not name.startswith((JUDGE, PREFIX))]
    tensors = {name: torch.from_numpy(bundle.weights[name].copy()) for name in own}
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise DatasetError(f"the weights do not fit the settings ({reason}); train the model again") from None
    return model.to(place).eval(), labels, graph


def ensemble_weights_of(bundle: Bundle) -> npt.NDArray[np.float32] | None:
    """How far each voice is believed, where rules have a say beside the network: all kinds of weights, or the first."""
    found: npt.NDArray[np.float32] | None = bundle.weights.get(BLEND)
    company, has_paths = bundle.config.model.graph_statistics, any(name.startswith(PREFIX) for name in bundle.weights)
    count = len(features_of(company, has_paths))
    if found is not None and found.shape[-1:] == (count + 1,) and bundle.config.model.propagation and not has_paths:
        raise DatasetError("the model weighs what paths say, but their weights are missing; train it again")
    if found is not None and found.shape not in ((count,), *((kinds, count) for kinds in range(2, len(KINDS) + 1))):
        raise DatasetError("the model weighs network and rules as no longer done; train it again with this version")
    return found


def paths_of(bundle: Bundle) -> Propagation | None:
    """What paths have taught the model, where it has learned from them."""
    return propagation_of(bundle.weights, bundle.observed.num_relations)


def beside(bundle: Bundle, name: str, device: torch.device, count: int | None = None) -> Tensor | None:
    """One of the tensors that are stored beside the weights, if it is there; of so many numbers."""
    if name not in bundle.weights:
        return None
    found = torch.from_numpy(bundle.weights[name].copy()).to(device)
    if count is not None:
        _check_count(name, found, count)
    return found


def _check_count(what: str, values: Tensor, count: int) -> None:
    if values.shape != (count,):
        raise DatasetError(
            f"the model has {what} {len(values):,} virtual triples, but its rules infer {count:,}; "
            "train it again with this version"
        )
