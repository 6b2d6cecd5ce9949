"""Reading a trained model: every byte is checked, nothing is executed, and what is wrong is named."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from newcomer.config import Config
from newcomer.errors import DatasetError, InputError, OptionError, shown
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.models.bundle.manifest import MANIFEST, RULES, check_files, read_manifest
from newcomer.models.bundle.parts import Bundle, Thresholds
from newcomer.models.bundle.rules import read_rule_numbers
from newcomer.models.bundle.tables import COPY_AGAIN, bytes_of, foreign, read_json, read_table, read_weights
from newcomer.models.bundle.virtual import NEWCOMERS, SEEN, read_virtual
from newcomer.rules.virtual_neighbors import VirtualNeighbors


def read_bundle(folder: Path) -> Bundle:
    """Read a trained model; a file that is missing, cut off, altered or foreign is named and nothing is used."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    config = _read_config(folder / "config.toml")
    if (config.seed, config.protocol) != (manifest.seed, manifest.protocol):
        raise InputError(folder / MANIFEST, "states another seed or protocol than config.toml", hint=COPY_AGAIN)
    entities, relations = (_read_names(folder / f"{name}.parquet") for name in ("entities", "relations"))
    auxiliary, thresholds = folder / "auxiliary.parquet", folder / "thresholds.json"
    rules = read_rule_numbers(folder / RULES, len(relations), len(entities))

    def virtual(name: str) -> VirtualNeighbors | None:
        there = any(file.startswith(f"{name}/") for file in manifest.files)
        return read_virtual(folder / name, rules, config.rules.measure, len(entities)) if there else None

    return Bundle(
        config=config,
        observed=_read_facts(folder / "observed.parquet", entities, relations),
        rules=rules,
        weights=read_weights(folder / "weights.safetensors"),
        dataset_name=manifest.dataset_name,
        dataset_hash=manifest.dataset_hash,
        thresholds=_read_thresholds(thresholds, relations) if thresholds.name in manifest.files else None,
        metrics=read_json(folder / "metrics.json"),
        manifest=manifest,
        auxiliary=_read_facts(auxiliary, entities, relations) if auxiliary.name in manifest.files else None,
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
        raise InputError(path, str(error), hint=COPY_AGAIN) from None
    return vocabulary


def _read_facts(path: Path, entities: Vocabulary, relations: Vocabulary) -> Graph:
    table = read_table(path, pa.schema([(name, pa.int32()) for name in ("head", "relation", "tail")]))
    columns = [column.to_numpy().astype(np.int32) for column in table.columns]
    try:
        return Graph.build(entities, relations, TripleArray(*columns))
    except DatasetError as error:
        raise InputError(path, str(error), hint=COPY_AGAIN) from None


def _read_thresholds(path: Path, relations: Vocabulary) -> Thresholds:
    content = read_json(path)
    each = content.get("relations")
    if set(content) != {"overall", "relations"} or not isinstance(each, dict):
        raise InputError(path, "does not hold 'overall' and 'relations'", hint=COPY_AGAIN)
    for name in each:
        if name not in relations:
            raise InputError(path, f"names the relation {shown(name)}, which the model does not have", hint=COPY_AGAIN)
    values = {name: _threshold(path, value) for name, value in each.items()}
    return Thresholds(_threshold(path, content["overall"]), values)


def _threshold(path: Path, value: Any) -> float:
    if value in ("inf", "-inf") or type(value) in (int, float):
        return float(value)
    raise InputError(path, f"holds the threshold {shown(value)}, which is no number", hint=COPY_AGAIN)
