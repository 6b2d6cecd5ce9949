"""The manifest of a trained model: how it came to be, which files it has, and that they are whole."""

import hashlib
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from newcomer import __version__
from newcomer.errors import InputError, shown
from newcomer.files import looking_at
from newcomer.models.bundle.tables import COPY_AGAIN, bytes_of, foreign, json_bytes, read_json
from newcomer.models.bundle.virtual import FILES, NEWCOMERS, SEEN

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
RESULT = "result.json"
RESULTS = (RESULT, "result-link-prediction.json", "result-triple-classification.json")


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


def versions_here() -> dict[str, str]:
    """Of the packages whose numbers a result may depend on; none of them is loaded for it."""
    found = {"python": platform.python_version()}
    for package in ("numpy", "torch", "pyarrow", "safetensors"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def stamp_of(path: Path) -> FileStamp:
    """The stamp of a file as it is."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileStamp(file.tell(), digest)


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest as its file has it."""
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
    return sealed(content)


def sealed(content: dict[str, Any]) -> bytes:
    """The manifest's bytes: its content and a checksum of it."""
    return json_bytes({**content, "checksum": hashlib.sha256(json_bytes(content)).hexdigest()})


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a model's folder, checked against its own checksum."""
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
        raise InputError(path, "was altered after it was written", hint=COPY_AGAIN)
    return _manifest_from(path, content)


def _check_format(path: Path, content: Mapping[str, Any]) -> None:
    if content.get("format") != FORMAT:
        problem = f"has the format {shown(content.get('format'))} where {FORMAT!r} is expected"
        raise InputError(path, problem, hint="give the folder of a trained model")
    number = content.get("format_version")
    if type(number) is not int or number < 1:
        raise InputError(path, f"has the format version {shown(number)}, which is none", hint=COPY_AGAIN)
    if number != FORMAT_VERSION:
        problem = f"has format version {number}, but newcomer {__version__} reads {FORMAT_VERSION}"
        hint = "train the model again" if number < FORMAT_VERSION else "upgrade with: pip install --upgrade newcomer"
        raise InputError(path, problem, hint=hint)


def _manifest_from(path: Path, content: Mapping[str, Any]) -> Manifest:
    """The manifest with every type checked: the checksum shows that it is whole, not that newcomer wrote it."""

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
        dataset_hash=wanted(dataset, "sha256", str, is_hash),
        config_hash=wanted(content, "config_sha256", str, is_hash),
        files={
            name: FileStamp(wanted(stamp, "bytes", int), wanted(stamp, "sha256", str, is_hash))
            for name, stamp in stamps.items()
        },
    )


def is_hash(text: str) -> bool:
    """Whether this may be a SHA-256 in hexadecimal digits."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def _check_names(path: Path, listed: Mapping[str, Any]) -> None:
    """Only names that are known here are opened, so none can lead out of the folder."""
    for name in listed:
        if name not in KNOWN:
            raise InputError(path, f"lists {shown(name)}, which is no file of a trained model", hint=COPY_AGAIN)
    groups = [VIRTUAL[: len(FILES)], VIRTUAL[len(FILES) :]]  # all three tables or none
    together = [name for group in groups if any(name in listed for name in group) for name in group]
    for name in (*REQUIRED, *together):
        if name not in listed:
            raise InputError(path, f"does not list {name}, which a trained model needs", hint=COPY_AGAIN)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Whether every listed file is whole, and no other beside them but results and hidden files."""
    for name, stamp in manifest.files.items():
        path = folder / name
        with looking_at(path):
            if not path.is_file():
                raise InputError(path, "is missing", hint=COPY_AGAIN)
            found = stamp_of(path)
        if found.bytes != stamp.bytes:
            problem = f"has {found.bytes:,} bytes where {stamp.bytes:,} were written"
            raise InputError(path, problem, hint=COPY_AGAIN)
        if found != stamp:
            raise InputError(path, "was altered after it was written", hint=COPY_AGAIN)
    for path in _foreign_files(folder, manifest):
        raise InputError(path, "is no file of this model", hint="move it elsewhere")


def _foreign_files(folder: Path, manifest: Manifest) -> Iterator[Path]:
    own = {folder / name for name in (*manifest.files, MANIFEST, *RESULTS)}
    own |= {path.parent for path in own}
    for place in (folder, *(folder / name for name in FOLDERS)):
        with looking_at(place):
            inside = sorted(place.iterdir()) if place in own else []
        yield from (path for path in inside if path not in own and not path.name.startswith("."))
