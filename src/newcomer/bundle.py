"""A trained model as a folder: everything that answering needs, and nothing that could run.

    config.toml           all settings, with their documentation
    entities.parquet      names in id order; relations.parquet likewise
    observed.parquet      the graph it learned from, as int32 head, relation, tail
    auxiliary.parquet     newcomers' facts that were known by then (optional)
    rules.tsv             the rules, see `newcomer.rules.rulefiles`
    neighbors/            virtual neighbours with their reasons, for people to read (optional)
    thresholds.json       from which score on a triple counts as true (optional)
    metrics.json          what was measured
    weights.safetensors   the trained numbers
    manifest.json         versions, seed, data set, and size and SHA-256 of every other file

Beside these may lie what evaluations found later, ``result.json`` and ``result-TASK.json``: they are no part of the
model, the manifest does not list them, and reading the model does not open them.

The folder appears whole or not at all. Reading checks every byte against the manifest, and the manifest against a
checksum of its own. Only file names known here are ever opened, and nothing is unpickled. The manifest carries no date:
the same model gives the same bytes.
"""

import hashlib
import json
import math
import platform
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from newcomer import __version__
from newcomer.config import Config, config_hash, to_toml
from newcomer.errors import DatasetError, InputError, OptionError, OutputError, shown
from newcomer.files import fresh_folder, looking_at
from newcomer.graph import Graph, InductiveDataset, TripleArray, Vocabulary
from newcomer.rules.neighborfiles import write_neighbors
from newcomer.rules.neighbors import VirtualNeighbors
from newcomer.rules.rule import RuleSet
from newcomer.rules.rulefiles import read_rules, write_rules

FORMAT = "newcomer model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
REQUIRED = (
    "config.toml",
    "entities.parquet",
    "relations.parquet",
    "observed.parquet",
    "rules.tsv",
    "metrics.json",
    "weights.safetensors",
)
NEIGHBORS = tuple(
    f"neighbors/{table}.{ending}" for table in ("neighbors", "groundings") for ending in ("parquet", "tsv")
)
KNOWN = (*REQUIRED, "auxiliary.parquet", "thresholds.json", *NEIGHBORS)
WEIGHT_TYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
RESULT = "result.json"
RESULTS = (RESULT, "result-link-prediction.json", "result-triple-classification.json")
COPY_AGAIN = "copy the folder again from where it was made"

Weights = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Thresholds:
    """From which score on a triple counts as true: for each relation by name, and for those that have none."""

    overall: float
    relations: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class BundleParts:
    """What a training leaves, ready to be written. ``dataset_hash`` is that of `dataset_hash`."""

    config: Config
    observed: Graph
    rules: RuleSet
    weights: Weights
    dataset_name: str
    dataset_hash: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Thresholds | None = None
    auxiliary: Graph | None = None
    neighbors: VirtualNeighbors | None = None


@dataclass(frozen=True)
class FileStamp:
    """How many bytes a file has, and their SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """How a model came to be, and what its folder holds."""

    newcomer: str
    versions: Mapping[str, str] = field(hash=False)
    seed: int
    protocol: str
    dataset_name: str
    dataset_hash: str
    config_hash: str
    files: Mapping[str, FileStamp] = field(hash=False)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A trained model, read and verified."""

    config: Config
    observed: Graph
    rules: RuleSet
    weights: Weights
    thresholds: Thresholds | None
    metrics: Mapping[str, Any]
    manifest: Manifest
    auxiliary: Graph | None = None


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


def write_bundle(folder: Path, parts: BundleParts, force: bool = False) -> Manifest:
    """Write a trained model; with ``force`` an older model in this place is replaced, but never anything else."""
    _check_parts(parts)
    _check_place(folder)
    with fresh_folder(folder, force) as staging:
        _write_files(staging, parts)
        manifest = _manifest_of(staging, parts)
        (staging / MANIFEST).write_bytes(_manifest_bytes(manifest))
    return manifest


def _check_parts(parts: BundleParts) -> None:
    """Whether the parts belong together: a folder that could not be read back is not written."""
    graph, other = parts.observed, parts.auxiliary
    for vocabulary in (graph.entities, graph.relations):
        vocabulary.id("")  # complains where a name stands twice
    if parts.rules.num_relations != graph.num_relations:
        rules, facts = f"{parts.rules.num_relations:,}", f"{graph.num_relations:,}"
        raise DatasetError(f"the rules speak of {rules} relations, but the observed graph has {facts}")
    if other is not None and (other.entities != graph.entities or other.relations != graph.relations):
        raise DatasetError("the auxiliary facts have other vocabularies than the observed graph")
    for name in parts.thresholds.relations if parts.thresholds else ():
        if name not in graph.relations:
            raise DatasetError(f"there is a threshold for the relation {shown(name)}, which the graph does not have")
    if not _is_hash(parts.dataset_hash):
        raise OptionError(f"dataset_hash is {shown(parts.dataset_hash)}, but must be a SHA-256 in hexadecimal digits")


def _check_place(folder: Path) -> None:
    """Never let ``force`` delete a folder that holds something else."""
    with looking_at(folder):
        if not folder.is_dir() or not any(folder.iterdir()):
            return
    with suppress(InputError):
        if _read_json(folder / MANIFEST).get("format") == FORMAT:
            return
    raise OutputError(f"{folder}: holds something that is no trained model; choose another place")


def _write_files(folder: Path, parts: BundleParts) -> None:
    entities, relations = parts.observed.entities, parts.observed.relations
    (folder / "config.toml").write_text(to_toml(parts.config), encoding="utf-8", newline="\n")
    _write_table(folder / "entities.parquet", {"name": entities.names})
    _write_table(folder / "relations.parquet", {"name": relations.names})
    _write_triples(folder / "observed.parquet", parts.observed.triples)
    if parts.auxiliary is not None:
        _write_triples(folder / "auxiliary.parquet", parts.auxiliary.triples)
    write_rules(parts.rules, folder / "rules.tsv", relations, entities)
    if parts.neighbors is not None:
        write_neighbors(folder / "neighbors", parts.neighbors, entities, relations)
    if parts.thresholds is not None:
        (folder / "thresholds.json").write_bytes(_json_bytes(_thresholds_to_json(parts.thresholds)))
    (folder / "metrics.json").write_bytes(_json_bytes(_plain(dict(parts.metrics), "metrics")))
    _write_weights(folder / "weights.safetensors", parts.weights)


def _write_table(path: Path, columns: dict[str, pa.Array]) -> None:
    with path.open("wb") as file:
        pq.write_table(pa.table(columns), file, compression="zstd")


def _write_triples(path: Path, triples: TripleArray) -> None:
    columns = {"head": triples.heads, "relation": triples.relations, "tail": triples.tails}
    _write_table(path, {name: pa.array(ids, type=pa.int32()) for name, ids in columns.items()})


def _write_weights(path: Path, weights: Weights) -> None:
    ready = {}
    for name in sorted(weights):
        array = np.asarray(weights[name], order="C")  # the writer takes the memory as it lies
        if array.dtype.name not in WEIGHT_TYPES:
            raise OptionError(
                f"the weights {shown(name)} are of type {array.dtype}; use one of {', '.join(WEIGHT_TYPES)}"
            )
        if name == "__metadata__":
            raise OptionError("weights must not be called '__metadata__'; give them another name")
        ready[name] = array
    try:
        save_file(ready, path)
        path.chmod(0o644)  # as the files beside it; the library keeps others out
    except SafetensorError as error:  # a full disk, say: `fresh_folder` words it
        raise OSError(str(error)) from None


def _thresholds_to_json(thresholds: Thresholds) -> dict[str, Any]:
    """Infinite ones ("always", "never") as words, since JSON has no number for them."""

    def written(value: float) -> float | str:
        if math.isnan(value):
            raise OptionError("a threshold is not a number (NaN); leave the relation out")
        return float(value) if math.isfinite(value) else str(float(value))

    each = {name: written(value) for name, value in thresholds.relations.items()}
    return {"overall": written(thresholds.overall), "relations": each}


def _plain(value: Any, place: str) -> Any:
    """A value as JSON can hold it: arrays as lists, numbers that are none (an average of nothing) as null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, f"{place}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, place) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise OptionError(f"{place} is {shown(value)}, which JSON cannot hold; give numbers, words, lists or tables")


def _json_bytes(value: Any) -> bytes:
    """JSON in one way only, so that the same content is the same bytes; in ASCII, which holds any name."""
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode("ascii")


def _manifest_of(folder: Path, parts: BundleParts) -> Manifest:
    return Manifest(
        newcomer=__version__,
        versions=_versions(),
        seed=parts.config.seed,
        protocol=parts.config.protocol,
        dataset_name=parts.dataset_name,
        dataset_hash=parts.dataset_hash,
        config_hash=config_hash(parts.config),
        files={name: _stamp(folder / name) for name in KNOWN if (folder / name).is_file()},
    )


def _versions() -> dict[str, str]:
    """Of the packages whose numbers a result may depend on; none of them is loaded for it."""
    found = {"python": platform.python_version()}
    for package in ("numpy", "torch", "pyarrow", "safetensors"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _stamp(path: Path) -> FileStamp:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileStamp(file.tell(), digest)


def _manifest_bytes(manifest: Manifest) -> bytes:
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "newcomer": manifest.newcomer,
        "versions": dict(manifest.versions),
        "seed": manifest.seed,
        "protocol": manifest.protocol,
        "dataset": {"name": manifest.dataset_name, "sha256": manifest.dataset_hash},
        "config_sha256": manifest.config_hash,
        "files": {name: {"bytes": s.bytes, "sha256": s.sha256} for name, s in manifest.files.items()},
    }
    return _sealed(content)


def _sealed(content: dict[str, Any]) -> bytes:
    """The manifest's bytes: its content and a checksum of it."""
    return _json_bytes({**content, "checksum": hashlib.sha256(_json_bytes(content)).hexdigest()})


def read_bundle(folder: Path) -> Bundle:
    """Read a trained model; a file that is missing, cut off, altered or foreign is named and nothing is used."""
    manifest = _read_manifest(folder)
    _check_files(folder, manifest)
    config = _read_config(folder / "config.toml")
    if (config.seed, config.protocol) != (manifest.seed, manifest.protocol):
        raise InputError(folder / MANIFEST, "states another seed or protocol than config.toml", hint=COPY_AGAIN)
    entities, relations = (_read_names(folder / f"{name}.parquet") for name in ("entities", "relations"))
    auxiliary, thresholds = folder / "auxiliary.parquet", folder / "thresholds.json"
    return Bundle(
        config=config,
        observed=_read_facts(folder / "observed.parquet", entities, relations),
        rules=read_rules(folder / "rules.tsv", relations, entities),
        weights=_read_weights(folder / "weights.safetensors"),
        thresholds=_read_thresholds(thresholds, relations) if thresholds.name in manifest.files else None,
        metrics=_read_json(folder / "metrics.json"),
        manifest=manifest,
        auxiliary=_read_facts(auxiliary, entities, relations) if auxiliary.name in manifest.files else None,
    )


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    with looking_at(folder):
        if not folder.is_dir():
            problem = "is not a folder" if folder.exists() else "does not exist"
            raise InputError(folder, problem, hint="give the folder of a trained model")
        if not path.is_file():
            raise InputError(path, "is missing", hint="give the folder of a trained model")
    content = _read_json(path)
    _check_format(path, content)
    with _foreign(path, "is not a manifest that newcomer wrote"):
        unsealed = {name: value for name, value in content.items() if name != "checksum"}
        whole = _bytes_of(path) == _sealed(unsealed)
    if not whole:
        raise InputError(path, "was altered after it was written", hint=COPY_AGAIN)
    return _manifest_from(path, content)


def _check_format(path: Path, content: Mapping[str, Any]) -> None:
    if content.get("format") != FORMAT:
        problem = f"has the format {shown(content.get('format'))} where {FORMAT!r} is expected"
        raise InputError(path, problem, hint="give the folder of a trained model")
    number = content.get("format_version")
    if type(number) is not int or number < 1:
        raise InputError(path, f"has the format version {shown(number)}, which is none", hint=COPY_AGAIN)
    if number > FORMAT_VERSION:
        problem = f"has format version {number}, but newcomer {__version__} reads up to {FORMAT_VERSION}"
        raise InputError(path, problem, hint="upgrade with: pip install --upgrade newcomer")


def _manifest_from(path: Path, content: Mapping[str, Any]) -> Manifest:
    """The manifest with every type checked: the checksum shows that it is whole, not that we wrote it."""

    def wanted(place: Mapping[str, Any], name: str, kind: type, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        value = place.get(name)
        if type(value) is not kind or not fits(value):
            raise InputError(path, f"has {shown(value)} as {name!r}", hint=COPY_AGAIN)
        return value

    dataset, versions = wanted(content, "dataset", dict), wanted(content, "versions", dict)
    listed = wanted(content, "files", dict)
    _check_names(path, listed)
    stamps = {name: wanted(listed, name, dict) for name in listed}
    return Manifest(
        newcomer=wanted(content, "newcomer", str),
        versions={name: wanted(versions, name, str) for name in versions},
        seed=wanted(content, "seed", int),
        protocol=wanted(content, "protocol", str),
        dataset_name=wanted(dataset, "name", str),
        dataset_hash=wanted(dataset, "sha256", str, _is_hash),
        config_hash=wanted(content, "config_sha256", str, _is_hash),
        files={
            name: FileStamp(wanted(stamp, "bytes", int), wanted(stamp, "sha256", str, _is_hash))
            for name, stamp in stamps.items()
        },
    )


def _is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def _check_names(path: Path, listed: Mapping[str, Any]) -> None:
    """Only names of this table are opened, so none can lead out of the folder."""
    for name in listed:
        if name not in KNOWN:
            raise InputError(path, f"lists {shown(name)}, which is no file of a trained model", hint=COPY_AGAIN)
    for name in REQUIRED:
        if name not in listed:
            raise InputError(path, f"does not list {name}, which a trained model needs", hint=COPY_AGAIN)


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Every listed file has its bytes, and no other lies beside them (but for results and what desktops hide)."""
    for name, stamp in manifest.files.items():
        path = folder / name
        with looking_at(path):
            if not path.is_file():
                raise InputError(path, "is missing", hint=COPY_AGAIN)
            found = _stamp(path)
        if found.bytes != stamp.bytes:
            problem = f"has {found.bytes:,} bytes where {stamp.bytes:,} were written"
            raise InputError(path, problem, hint=COPY_AGAIN)
        if found != stamp:
            raise InputError(path, "was altered after it was written", hint=COPY_AGAIN)
    for path in _strangers(folder, manifest):
        raise InputError(path, "is no file of this model", hint="move it elsewhere")


def _strangers(folder: Path, manifest: Manifest) -> Iterator[Path]:
    own = {folder / name for name in (*manifest.files, MANIFEST, *RESULTS)}
    own |= {path.parent for path in own}
    for place in (folder, folder / "neighbors"):
        with looking_at(place):
            inside = sorted(place.iterdir()) if place in own else []
        yield from (path for path in inside if path not in own and not path.name.startswith("."))


@contextmanager
def _foreign(path: Path, problem: str) -> Iterator[None]:
    """Content that its library cannot read, though the bytes are those of the manifest, is not ours."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError, OSError, pa.ArrowException, SafetensorError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(path, f"{problem} ({reason})", hint=COPY_AGAIN) from None


def _bytes_of(path: Path) -> bytes:
    with looking_at(path):
        return path.read_bytes()


def _read_config(path: Path) -> Config:
    with _foreign(path, "is not TOML"):
        stated = tomllib.loads(_bytes_of(path).decode("utf-8"))
    try:
        return Config.from_dict(stated)
    except OptionError as error:
        raise InputError(path, str(error)) from None


def _read_json(path: Path) -> dict[str, Any]:
    def refuse(number: str) -> float:
        raise ValueError(f"{number} is no number in JSON")

    with _foreign(path, "is not JSON"):
        content = json.loads(_bytes_of(path).decode("utf-8"), parse_constant=refuse)
    if not isinstance(content, dict):
        raise InputError(path, f"holds {shown(content)} where a table is expected", hint=COPY_AGAIN)
    return content


def _read_table(path: Path, schema: pa.Schema) -> pa.Table:
    with _foreign(path, "is not a Parquet file"):
        table = pq.ParquetFile(pa.BufferReader(_bytes_of(path))).read()
        table.validate(full=True)  # what a file calls a string need not be UTF-8
    if not table.schema.equals(schema):
        found = ", ".join(f"{column.name} {column.type}" for column in table.schema)
        wanted = ", ".join(f"{column.name} {column.type}" for column in schema)
        raise InputError(path, f"has the columns {shown(found)} where {wanted!r} are expected", hint=COPY_AGAIN)
    if any(column.null_count for column in table.columns):
        raise InputError(path, "has empty cells", hint=COPY_AGAIN)
    return table


def _read_names(path: Path) -> Vocabulary:
    column = _read_table(path, pa.schema([("name", pa.string())])).column("name")
    vocabulary = Vocabulary(pa.concat_arrays([pa.array([], type=pa.string()), *column.chunks]))
    try:
        vocabulary.id("")  # complains where a name stands twice
    except DatasetError as error:
        raise InputError(path, str(error), hint=COPY_AGAIN) from None
    return vocabulary


def _read_facts(path: Path, entities: Vocabulary, relations: Vocabulary) -> Graph:
    table = _read_table(path, pa.schema([(name, pa.int32()) for name in ("head", "relation", "tail")]))
    columns = [column.to_numpy().astype(np.int32) for column in table.columns]
    try:
        return Graph.build(entities, relations, TripleArray(*columns))
    except DatasetError as error:
        raise InputError(path, str(error), hint=COPY_AGAIN) from None


def _read_weights(path: Path) -> Weights:
    with _foreign(path, "is not a safetensors file"):
        found = load_file(path)
    return {name: found[name] for name in sorted(found)}


def _read_thresholds(path: Path, relations: Vocabulary) -> Thresholds:
    content = _read_json(path)
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
