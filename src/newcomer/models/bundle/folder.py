"""A trained model as a whole, and how its folder is written, at once or not at all, and read with every check."""

import hashlib
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from newcomer.config import Config, to_toml
from newcomer.errors import DatasetError, InputError, OptionError, OutputError, shown
from newcomer.files import fresh_folder, looking_at
from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
from newcomer.models.bundle.manifest import FORMAT, MANIFEST, RULES, check_files, manifest_bytes, read_manifest
from newcomer.models.bundle.rules import (
    NEWCOMERS,
    SEEN,
    read_rule_numbers,
    read_virtual,
    write_rule_numbers,
    write_virtual,
)
from newcomer.models.bundle.tables import (
    Weights,
    bytes_of,
    damaged,
    foreign,
    json_bytes,
    plain,
    read_json,
    read_table,
    read_weights,
    write_table,
    write_weights,
)
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import VirtualNeighbors


@dataclass(frozen=True)
class Thresholds:
    """From which score on a triple counts as true: for each relation by name, and for those that have none."""

    overall: float
    relations: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A trained model as its folder holds it; groundings of virtual neighbours name rules by their rows."""

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


def metrics_of(folder: Path) -> dict[str, Any]:
    """What was measured of a model in a folder, without reading the rest of it; nothing where there is no model."""
    with suppress(InputError):
        if read_json(folder / MANIFEST).get("format") == FORMAT:
            return read_json(folder / "metrics.json")
    return {}


def write_bundle(folder: Path, bundle: Bundle, force: bool = False) -> None:
    """Write a trained model; with ``force`` an older model in this place is replaced, but never anything else."""
    _check_place(folder)
    with fresh_folder(folder, force) as staging:
        _write_files(staging, bundle)
        content = manifest_bytes(staging, bundle.config, bundle.dataset_name, bundle.dataset_hash)
        (staging / MANIFEST).write_bytes(content)


def _check_place(folder: Path) -> None:
    """Never let ``force`` delete a folder that holds something else."""
    with looking_at(folder):
        if not folder.is_dir() or not any(folder.iterdir()):
            return
    with suppress(InputError):
        if read_json(folder / MANIFEST).get("format") == FORMAT:
            return
    raise OutputError(f"{folder}: holds something that is no trained model; choose another place")


def _write_files(folder: Path, bundle: Bundle) -> None:
    entities, relations = bundle.observed.entities, bundle.observed.relations
    (folder / "config.toml").write_text(to_toml(bundle.config), encoding="utf-8", newline="\n")
    write_table(folder / "entities.parquet", {"name": entities.names})
    write_table(folder / "relations.parquet", {"name": relations.names})
    _write_triples(folder / "observed.parquet", bundle.observed.triples)
    if bundle.auxiliary is not None:
        _write_triples(folder / "auxiliary.parquet", bundle.auxiliary.triples)
    write_rule_numbers(folder / RULES, bundle.rules)
    for name, found in ((SEEN, bundle.neighbors), (NEWCOMERS, bundle.newcomer_neighbors)):
        if found is not None:
            write_virtual(folder / name, found)
    if bundle.thresholds is not None:
        (folder / "thresholds.json").write_bytes(json_bytes(asdict(bundle.thresholds)))
    (folder / "metrics.json").write_bytes(json_bytes(plain(bundle.metrics)))
    write_weights(folder / "weights.safetensors", bundle.weights)


def _write_triples(path: Path, triples: TripleArray) -> None:
    columns = {"head": triples.heads, "relation": triples.relations, "tail": triples.tails}
    write_table(path, {name: pa.array(ids, type=pa.int32()) for name, ids in columns.items()})


def read_bundle(folder: Path) -> Bundle:
    """Read a trained model; a file that is missing, cut off, altered or foreign is named and nothing is used."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    config = _read_config(folder / "config.toml")
    if (config.seed, config.protocol) != (manifest["seed"], manifest["protocol"]):
        raise damaged(folder / MANIFEST, "states another seed or protocol than config.toml")
    entities, relations = (_read_names(folder / f"{name}.parquet") for name in ("entities", "relations"))
    auxiliary, thresholds = folder / "auxiliary.parquet", folder / "thresholds.json"
    rules = read_rule_numbers(folder / RULES, len(relations), len(entities))

    def virtual(name: str) -> VirtualNeighbors | None:
        there = any(file.startswith(f"{name}/") for file in manifest["files"])
        return read_virtual(folder / name, rules, config.rules.measure, len(entities)) if there else None

    return Bundle(
        config=config,
        observed=_read_facts(folder / "observed.parquet", entities, relations),
        rules=rules,
        weights=read_weights(folder / "weights.safetensors"),
        dataset_name=manifest["dataset"]["name"],
        dataset_hash=manifest["dataset"]["sha256"],
        thresholds=_read_thresholds(thresholds, relations) if thresholds.name in manifest["files"] else None,
        metrics=read_json(folder / "metrics.json"),
        auxiliary=_read_facts(auxiliary, entities, relations) if auxiliary.name in manifest["files"] else None,
        neighbors=virtual(SEEN),
        newcomer_neighbors=virtual(NEWCOMERS),
    )


def _read_config(path: Path) -> Config:
    with foreign(path, "is not TOML"):
        stated = tomllib.loads(bytes_of(path).decode("utf-8"))
    try:
        return Config.from_dict(stated)
    except OptionError as error:
        raise InputError(path, str(error)) from None


def _read_names(path: Path) -> Vocabulary:
    column = read_table(path, pa.schema([("name", pa.string())])).column("name")
    vocabulary = Vocabulary(pa.concat_arrays([pa.array([], type=pa.string()), *column.chunks]))
    try:
        vocabulary.id("")  # complains where a name stands twice
    except DatasetError as error:
        raise damaged(path, str(error)) from None
    return vocabulary


def _read_facts(path: Path, entities: Vocabulary, relations: Vocabulary) -> Graph:
    table = read_table(path, pa.schema([(name, pa.int32()) for name in ("head", "relation", "tail")]))
    columns = [column.to_numpy().astype(np.int32) for column in table.columns]
    try:
        return Graph.build(entities, relations, TripleArray(*columns))
    except DatasetError as error:
        raise damaged(path, str(error)) from None


def _read_thresholds(path: Path, relations: Vocabulary) -> Thresholds:
    content = read_json(path)
    each = content.get("relations")
    if set(content) != {"overall", "relations"} or not isinstance(each, dict):
        raise damaged(path, "does not hold 'overall' and 'relations'")
    for name in each:
        if name not in relations:
            raise damaged(path, f"names the relation {shown(name)}, which the model does not have")
    values = {name: _threshold(path, value) for name, value in each.items()}
    return Thresholds(_threshold(path, content["overall"]), values)


def _threshold(path: Path, value: Any) -> float:
    with suppress(OverflowError):  # JSON holds whole numbers of any length
        if type(value) in (int, float):
            return float(value)
    raise damaged(path, f"holds the threshold {shown(value)}, which is no number")
