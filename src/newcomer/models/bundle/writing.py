"""Writing a trained model: the folder appears whole or not at all."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from newcomer import __version__
from newcomer.config import config_hash, to_toml
from newcomer.errors import DatasetError, InputError, OptionError, OutputError, shown
from newcomer.files import fresh_folder, looking_at
from newcomer.graph import TripleArray
from newcomer.models.bundle.manifest import (
    FORMAT,
    KNOWN,
    MANIFEST,
    RULES,
    Manifest,
    is_hash,
    manifest_bytes,
    stamp_of,
    versions_here,
)
from newcomer.models.bundle.parts import BundleParts, Thresholds
from newcomer.models.bundle.rules import problem_of, write_rule_numbers
from newcomer.models.bundle.tables import json_bytes, plain, read_json, write_table, write_weights
from newcomer.models.bundle.virtual import NEWCOMERS, SEEN, write_virtual


def write_bundle(folder: Path, parts: BundleParts, force: bool = False) -> Manifest:
    """Write a trained model; with ``force`` an older model in this place is replaced, but never anything else."""
    _check_parts(parts)
    _check_place(folder)
    with fresh_folder(folder, force) as staging:
        _write_files(staging, parts)
        manifest = _manifest_of(staging, parts)
        (staging / MANIFEST).write_bytes(manifest_bytes(manifest))
    return manifest


def _check_parts(parts: BundleParts) -> None:
    """Whether the parts belong together: a folder that could not be read back is not written."""
    graph, other = parts.observed, parts.auxiliary
    for vocabulary in (graph.entities, graph.relations):
        vocabulary.id("")  # complains where a name stands twice
    if parts.rules.num_relations != graph.num_relations:
        rules, facts = f"{parts.rules.num_relations:,}", f"{graph.num_relations:,}"
        raise DatasetError(f"the rules are of {rules} relations, but the observed graph has {facts}")
    problem = problem_of(parts.rules, graph.num_entities)
    if problem is not None:
        raise DatasetError(f"the table of rules {problem}")
    if other is not None and (other.entities != graph.entities or other.relations != graph.relations):
        raise DatasetError("the auxiliary facts have other vocabularies than the observed graph")
    for name in parts.thresholds.relations if parts.thresholds else ():
        if name not in graph.relations:
            raise DatasetError(f"there is a threshold for the relation {shown(name)}, which the graph does not have")
    for found in (parts.neighbors, parts.newcomer_neighbors):
        if found is not None and found.rules is not parts.rules:
            raise DatasetError("the groundings of the virtual neighbours are of other rules than those of the model")
    if not is_hash(parts.dataset_hash):
        raise OptionError(f"dataset_hash is {shown(parts.dataset_hash)}, but must be a SHA-256 in hexadecimal digits")


def _check_place(folder: Path) -> None:
    """Never let ``force`` delete a folder that holds something else."""
    with looking_at(folder):
        if not folder.is_dir() or not any(folder.iterdir()):
            return
    with suppress(InputError):
        if read_json(folder / MANIFEST).get("format") == FORMAT:
            return
    raise OutputError(f"{folder}: holds something that is no trained model; choose another place")


def _write_files(folder: Path, parts: BundleParts) -> None:
    entities, relations = parts.observed.entities, parts.observed.relations
    (folder / "config.toml").write_text(to_toml(parts.config), encoding="utf-8", newline="\n")
    write_table(folder / "entities.parquet", {"name": entities.names})
    write_table(folder / "relations.parquet", {"name": relations.names})
    _write_triples(folder / "observed.parquet", parts.observed.triples)
    if parts.auxiliary is not None:
        _write_triples(folder / "auxiliary.parquet", parts.auxiliary.triples)
    write_rule_numbers(folder / RULES, parts.rules)
    for name, found in ((SEEN, parts.neighbors), (NEWCOMERS, parts.newcomer_neighbors)):
        if found is not None:
            write_virtual(folder / name, found)
    if parts.thresholds is not None:
        (folder / "thresholds.json").write_bytes(json_bytes(_thresholds_to_json(parts.thresholds)))
    (folder / "metrics.json").write_bytes(json_bytes(plain(dict(parts.metrics), "metrics")))
    write_weights(folder / "weights.safetensors", parts.weights)


def _write_triples(path: Path, triples: TripleArray) -> None:
    columns = {"head": triples.heads, "relation": triples.relations, "tail": triples.tails}
    write_table(path, {name: pa.array(ids, type=pa.int32()) for name, ids in columns.items()})


def _thresholds_to_json(thresholds: Thresholds) -> dict[str, Any]:
    """Infinite ones ("always", "never") as words, since JSON has no number for them."""

    def written(value: float) -> float | str:
        if math.isnan(value):
            raise OptionError("a threshold is not a number (NaN); leave the relation out")
        return float(value) if math.isfinite(value) else str(float(value))

    each = {name: written(value) for name, value in thresholds.relations.items()}
    return {"overall": written(thresholds.overall), "relations": each}


def _manifest_of(folder: Path, parts: BundleParts) -> Manifest:
    return Manifest(
        newcomer=__version__,
        versions=versions_here(),
        seed=parts.config.seed,
        protocol=parts.config.protocol,
        dataset_name=parts.dataset_name,
        dataset_hash=parts.dataset_hash,
        config_hash=config_hash(parts.config),
        files={name: stamp_of(folder / name) for name in KNOWN if (folder / name).is_file()},
    )
