"""The manifest of a trained model: how it came to be, which files it has, and that they are whole."""

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from newcomer import __version__
from newcomer.config import Config, config_hash
from newcomer.data.dataset import sha256_of
from newcomer.errors import InputError, shown
from newcomer.files import looking_at
from newcomer.models.bundle.rules import FILES, NEWCOMERS, SEEN
from newcomer.models.bundle.tables import bytes_of, damaged, foreign, json_bytes, read_json

FORMAT = "newcomer model"
FORMAT_VERSION = 4
MANIFEST = "manifest.json"
RULES = "rules.parquet"
REQUIRED = (
    "config.toml",
    "entities.parquet",
    "relations.parquet",
    "observed.parquet",
    RULES,
    "metrics.json",
    "weights.safetensors",
)
FOLDERS = (SEEN, NEWCOMERS)
VIRTUAL = tuple(f"{folder}/{name}" for folder in FOLDERS for name in FILES)
KNOWN = (*REQUIRED, "auxiliary.parquet", "thresholds.json", *VIRTUAL)
TYPES = {
    "newcomer": str,
    "versions": dict,
    "seed": int,
    "protocol": str,
    "dataset": dict,
    "config_sha256": str,
    "files": dict,
}
RESULT = "result.json"
RESULTS = (RESULT, *(f"result-{task}.json" for task in ("link-prediction", "triple-classification", "suggest")))


def versions_here() -> dict[str, str]:
    """Of the packages whose numbers a result may depend on; none of them is loaded for it."""
    packages = "numpy", "torch", "pyarrow", "safetensors"
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def stamp_of(path: Path) -> dict[str, Any]:
    """How many bytes a file has, and their SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def manifest_bytes(folder: Path, config: Config, dataset_name: str, dataset_hash: str) -> bytes:
    """The manifest of a model whose other files are written."""
    return sealed(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "newcomer": __version__,
            "versions": versions_here(),
            "seed": config.seed,
            "protocol": config.protocol,
            "dataset": {"name": dataset_name, "sha256": dataset_hash},
            "config_sha256": config_hash(config),
            "files": {name: stamp_of(folder / name) for name in KNOWN if (folder / name).is_file()},
        }
    )


def sealed(content: dict[str, Any]) -> bytes:
    """The manifest's bytes: its content and a checksum of it."""
    return json_bytes({**content, "checksum": hashlib.sha256(json_bytes(content)).hexdigest()})


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a model's folder, checked against its own checksum and with every type checked."""
    path = folder / MANIFEST
    with looking_at(folder):
        if not folder.is_dir():
            problem = "is not a folder" if folder.exists() else "does not exist"
            raise InputError(folder, problem, hint="give the folder of a trained model")
        if not path.is_file():
            raise InputError(path, "is missing", hint="give the folder of a trained model")
    content = read_json(path)
    _check_format(path, content)
    with foreign(path, "is not a manifest that newcomer wrote"):
        unsealed = {name: value for name, value in content.items() if name != "checksum"}
        whole = bytes_of(path) == sealed(unsealed)
    if not whole:
        raise damaged(path, "was altered after it was written")
    _check_types(path, content)
    return content


def _check_format(path: Path, content: Mapping[str, Any]) -> None:
    if content.get("format") != FORMAT:
        problem = f"has the format {shown(content.get('format'))} where {FORMAT!r} is expected"
        raise InputError(path, problem, hint="give the folder of a trained model")
    number = content.get("format_version")
    if type(number) is not int or number < 1:
        raise damaged(path, f"has the format version {shown(number)}, which is none")
    if number != FORMAT_VERSION:
        problem = f"has format version {number}, but newcomer {__version__} reads {FORMAT_VERSION}"
        hint = "train the model again" if number < FORMAT_VERSION else "upgrade with: pip install --upgrade newcomer"
        raise InputError(path, problem, hint=hint)


def _check_types(path: Path, content: Mapping[str, Any]) -> None:
    """Check types, and that hashes may be any: the checksum shows that a manifest is whole, not that we wrote it."""

    def check(place: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
        for name, kind in kinds.items():
            value: Any = place.get(name)
            if type(value) is not kind or (name.endswith("sha256") and not re.fullmatch("[0-9a-f]{64}", value)):
                raise damaged(path, f"has {shown(value)} as {name!r}")

    check(content, TYPES)
    check(content["dataset"], {"name": str, "sha256": str})
    check(content["versions"], dict.fromkeys(content["versions"], str))
    files = content["files"]
    _check_names(path, files)
    check(files, dict.fromkeys(files, dict))
    for stamp in files.values():
        check(stamp, {"bytes": int, "sha256": str})


def _check_names(path: Path, listed: Mapping[str, Any]) -> None:
    """Only names that are known here are opened, so none can lead out of the folder."""
    for name in listed:
        if name not in KNOWN:
            raise damaged(path, f"lists {shown(name)}, which is no file of a trained model")
    groups = [VIRTUAL[: len(FILES)], VIRTUAL[len(FILES) :]]  # all three tables or none
    together = [name for group in groups if any(name in listed for name in group) for name in group]
    for name in (*REQUIRED, *together):
        if name not in listed:
            raise damaged(path, f"does not list {name}, which a trained model needs")


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Whether every listed file is whole, and no other beside them but results and hidden files."""
    for name, stamp in manifest["files"].items():
        path = folder / name
        with looking_at(path):
            if not path.is_file():
                raise damaged(path, "is missing")
            found = stamp_of(path)
        if found["bytes"] != stamp["bytes"]:
            raise damaged(path, f"has {found['bytes']:,} bytes where {stamp['bytes']:,} were written")
        if found != stamp:
            raise damaged(path, "was altered after it was written")
    for path in _foreign_files(folder, manifest):
        raise InputError(path, "is no file of this model", hint="move it elsewhere")


def _foreign_files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Path]:
    own = {folder / name for name in (*manifest["files"], MANIFEST, *RESULTS)}
    own |= {path.parent for path in own}
    for place in (folder, *(folder / name for name in FOLDERS)):
        with looking_at(place):
            inside = sorted(place.iterdir()) if place in own else []
        yield from (path for path in inside if path not in own and not path.name.startswith("."))
