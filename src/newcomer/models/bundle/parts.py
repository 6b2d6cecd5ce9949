"""What a trained model consists of, before it is written and after it was read."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from newcomer.config import Config
from newcomer.graph import Graph, InductiveDataset
from newcomer.models.bundle.manifest import Manifest
from newcomer.models.bundle.tables import Weights
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import VirtualNeighbors


@dataclass(frozen=True)
class Thresholds:
    """From which score on a triple counts as true: for each relation by name, and for those that have none."""

    overall: float
    relations: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class BundleParts:
    """A trained model, ready to be written; groundings of virtual neighbours name rules by their rows in ``rules``."""

    config: Config
    observed: Graph
    rules: RuleSet
    weights: Weights
    dataset_name: str
    dataset_hash: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Thresholds | None = None
    auxiliary: Graph | None = None
    neighbors: VirtualNeighbors | None = None  # of those trained on
    newcomer_neighbors: VirtualNeighbors | None = None  # of the newcomers in the auxiliary facts


@dataclass(frozen=True, eq=False, kw_only=True)
class Bundle(BundleParts):
    """A trained model, read and verified; virtual neighbours that it was written without can be inferred again."""

    manifest: Manifest


def dataset_hash(dataset: InductiveDataset) -> str:
    """A SHA-256 of a data set as a model sees it: names in id order, and every triple of every part."""
    digest = hashlib.sha256()
    for vocabulary in (dataset.entities, dataset.relations):
        names = [name.encode() for name in vocabulary]
        digest.update(np.array([len(names), *map(len, names)], dtype="<i8").tobytes())
        digest.update(b"".join(names))
    for part in (dataset.observed.triples, dataset.auxiliary.triples, dataset.valid, dataset.test):
        digest.update(np.array([len(part), part.labels is not None], dtype="<i8").tobytes())
        digest.update(part.rows.astype("<i4").tobytes())
        digest.update(b"" if part.labels is None else part.labels.tobytes())
    return digest.hexdigest()
