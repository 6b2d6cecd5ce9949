"""Whole data sets: read from any layout, written as our own folder with a manifest.

Our folder holds ``train``, ``aux``, ``valid`` and ``test`` (those that are not empty) and ``dataset.json``: counts, a
SHA-256 a file, and how it was made. It carries no date, so that the same input gives the same bytes.

Which file of a folder is what, in the layouts that data sets are published in:

| layout  | train | aux (facts of newcomers) | valid | test |
|---------|-------|--------------------------|-------|------|
| plain, LAN, OOKB, ours | train | aux, _aux, aux_txt, auxiliary | valid, dev, validation | test |
| OpenKE  | train2id.txt | - | valid2id.txt | test2id.txt |
| GraIL   | X/train | X_ind/train | X/valid and X_ind/valid | X_ind/test |
| ILPC    | train | inference | inference_validation | inference_test |

Files may end in .txt, .tsv, .csv, .parquet, .nt, .nq, .ttl or nothing, compressed or not.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from newcomer import __version__
from newcomer.data.openke import read_names, read_openke
from newcomer.data.options import ReadOptions
from newcomer.data.rdf import FORMATS as RDF_FORMATS
from newcomer.data.tables import ROLES, NamedTriples, ReadReport, assemble, encode, joined
from newcomer.data.triples import PARQUET_SUFFIXES, TEXT_SUFFIXES, WRITE_FORMATS, read_triples, write_triples
from newcomer.errors import DatasetError, InputError, check_name, shown
from newcomer.files import as_text, fresh_folder, looking_at
from newcomer.graph import Graph, InductiveDataset, TripleArray

FORMAT = "newcomer dataset"
FORMAT_VERSION = 1
MANIFEST = "dataset.json"
_ROLE_NAMES = {
    "train": ("train", "training"),
    "aux": ("aux", "_aux", "aux_txt", "auxiliary"),
    "valid": ("valid", "dev", "validation"),
    "test": ("test",),
}
_ILPC = ("train", "inference", "inference_validation", "inference_test")
_ILPC_NAMES = {role: (name,) for role, name in zip(ROLES, _ILPC, strict=True)}
_COMPRESSIONS = (".gz", ".zst")


@dataclass(frozen=True)
class Layout:
    """The kind of a folder and the files of each role."""

    kind: str
    files: dict[str, tuple[Path, ...]]


def find_layout(folder: Path) -> Layout:
    """Look at a folder and say which file plays which role."""
    if (folder / MANIFEST).is_file():
        return Layout("newcomer", _by_names(folder, _ROLE_NAMES))
    if list(folder.glob("train2id.txt*")):
        names = {role: (f"{role}2id",) for role in ("train", "valid", "test")}
        return Layout("openke", _by_names(folder, names))
    if _matching(folder, _ILPC_NAMES["aux"]):
        return Layout("ilpc", _by_names(folder, _ILPC_NAMES))
    inductive = folder.absolute().parent / f"{folder.absolute().name}_ind"
    if inductive.is_dir() and _matching(inductive, _ROLE_NAMES["train"]):
        return Layout("grail", _grail(folder, inductive))
    return Layout("plain", _by_names(folder, _ROLE_NAMES))


def _grail(folder: Path, inductive: Path) -> dict[str, tuple[Path, ...]]:
    seen, unseen = _by_names(folder, _ROLE_NAMES), _by_names(inductive, _ROLE_NAMES)
    files = {"train": seen["train"], "aux": unseen["train"]}
    if valid := seen.get("valid", ()) + unseen.get("valid", ()):
        files["valid"] = valid
    return files | ({"test": unseen["test"]} if "test" in unseen else {})


def _by_names(folder: Path, names: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[Path, ...]]:
    files: dict[str, tuple[Path, ...]] = {}
    for role in ROLES:
        found = _matching(folder, names.get(role, ()))
        if len(found) > 1:
            listed = ", ".join(sorted(path.name for path in found))
            raise DatasetError(f"{folder}: more than one file could be {role}: {listed}; keep one of them")
        if found:
            files[role] = (found[0],)
    if "train" not in files:
        there = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise DatasetError(f"{folder}: no training file (train.txt, train.tsv, train.parquet, ...) among {there}")
    return files


def _matching(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_file() and role_name(path) in names]


def role_name(path: Path) -> str:
    """A file's name without its endings: ``train.tsv.gz`` gives ``train``."""
    name = path.name
    for endings in (_COMPRESSIONS, (*TEXT_SUFFIXES, *PARQUET_SUFFIXES, *RDF_FORMATS)):
        suffix = Path(name).suffix
        if suffix and suffix.lower() in endings:
            name = name.removesuffix(suffix)
    return name


@dataclass(kw_only=True)
class PartReport(ReadReport):
    """What one role's files held, and which they are."""

    files: tuple[Path, ...]
    duplicates: int
    self_loops: int


@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """A data set together with where it came from and what was met on the way."""

    dataset: InductiveDataset
    layout: str
    parts: dict[str, PartReport]


def read_dataset(path: Path, options: ReadOptions | None = None, name: str | None = None) -> LoadedDataset:
    """Read a folder in any known layout, or a single file as a graph without newcomers."""
    options = options or ReadOptions()
    with looking_at(path):
        layout = find_layout(path) if path.is_dir() else Layout("file", {"train": (path,)})
    if layout.kind == "newcomer":
        _check_manifest(path, layout)
        options = ReadOptions(header=False, on_bad_line=options.on_bad_line)
    named = _read_parts(path, layout, options)
    read = {role: part.report for role, part in named.items()}
    loops = {role: int((part.triples.heads == part.triples.tails).sum()) for role, part in named.items()}
    entities, relations, arrays = encode(list(named.values()))
    parts = dict(zip(named, arrays, strict=True))
    del named, arrays  # nothing is held twice while the graphs are built
    _check_labels(path, parts)
    dataset = assemble(name or _name_of(path), entities, relations, parts)
    kept = {role: len(triples) for role, triples in parts_of(dataset).items()}
    files = layout.files
    reports = {
        role: PartReport(files=files[role], duplicates=r.rows - kept[role], self_loops=loops[role], **vars(r))
        for role, r in read.items()
    }
    return LoadedDataset(dataset, layout.kind, reports)


def _name_of(path: Path) -> str:
    """The name of a data set that nobody named: that of its folder, also where that is called ``.``, or of its file."""
    named = path.resolve() if path.name in ("", "..") else path
    return as_text(named.name if path.is_dir() else role_name(named))


def read_graph(path: str | Path, options: ReadOptions | None = None) -> Graph:
    """Read one file of triples as a graph.

    >>> from pathlib import Path
    >>> written = Path("trips.tsv").write_text("Ann\\tvisited\\tRome\\nBob\\tvisited\\tOslo\\n")
    >>> graph = newcomer.read_graph("trips.tsv")
    >>> list(graph.entities), list(graph.relations), len(graph)
    (['Ann', 'Bob', 'Oslo', 'Rome'], ['visited'], 2)
    """
    return read_dataset(Path(path), options).dataset.observed


def _read_parts(path: Path, layout: Layout, options: ReadOptions) -> dict[str, NamedTriples]:
    """The files one after the other: nodes without a name are counted on, so that no two files share one."""
    if layout.kind == "openke":
        entities, relations = (read_names(_beside(path, stem)) for stem in ("entity2id.txt", "relation2id.txt"))
        return {role: read_openke(file, entities, relations, options) for role, (file,) in layout.files.items()}
    named: dict[str, NamedTriples] = {}
    anonymous = 0
    for role, files in layout.files.items():
        parts = []
        for file in files:
            parts.append(read_triples(file, options, anonymous))
            anonymous += parts[-1].report.anonymous
        named[role] = joined(parts)
    return named


def _beside(folder: Path, stem: str) -> Path:
    found = sorted(folder.glob(stem + "*"))
    if not found:
        raise DatasetError(f"{folder}: an OpenKE folder needs {stem} beside train2id.txt")
    return found[0]


def _check_labels(path: Path, parts: Mapping[str, TripleArray]) -> None:
    for role in ("train", "aux"):
        labels = parts[role].labels if role in parts else None
        if labels is not None and not labels.all():
            raise DatasetError(f"{path}: {role} holds triples labelled false; a model learns from true ones only")


def write_dataset(
    dataset: InductiveDataset,
    folder: Path,
    file_format: str = "tsv",
    made_by: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write our folder layout; it appears whole or not at all."""
    check_name("format", file_format, WRITE_FORMATS)
    with fresh_folder(folder, force, MANIFEST) as staging:
        files = {}
        for role, triples in parts_of(dataset).items():
            if len(triples):
                file = staging / f"{role}.{file_format}"
                write_triples(file, dataset.entities, dataset.relations, triples)
                files[role] = {"file": file.name, "triples": len(triples), "sha256": sha256_of(file)}
        manifest = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "name": dataset.name,
            "entities": len(dataset.entities),
            "relations": len(dataset.relations),
            "newcomers": len(dataset.newcomers),
            "files": files,
            "made_by": {"newcomer": __version__, **(made_by or {})},
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        (staging / MANIFEST).write_bytes(text.encode("utf-8", errors="replace"))  # a file's name may be no UTF-8


def parts_of(dataset: InductiveDataset) -> dict[str, TripleArray]:
    """The four parts by role."""
    parts = (dataset.observed.triples, dataset.auxiliary.triples, dataset.valid, dataset.test)
    return dict(zip(ROLES, parts, strict=True))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """``dataset.json`` of one of our folders, checked for being ours."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(path, f"is not readable JSON ({error})", hint="write the data set again") from None
    if not _is_manifest(manifest):
        raise InputError(path, "is not a manifest of this program", hint="write the data set again")
    if manifest.get("version") != FORMAT_VERSION:
        problem = f"has version {shown(manifest.get('version'))}, this program reads {FORMAT_VERSION}"
        raise InputError(path, problem, hint="write the data set again")
    return manifest


def _is_manifest(content: object) -> bool:
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("files"), dict):
        return False
    return all(isinstance(entry, dict) and isinstance(entry.get("file"), str) for entry in content["files"].values())


def _check_manifest(folder: Path, layout: Layout) -> None:
    """The files the manifest names are those that are there."""
    named = {role: entry["file"] for role, entry in read_manifest(folder)["files"].items()}
    there = {role: files[0].name for role, files in layout.files.items()}
    if named != there:
        difference = f"lists {_listed(named)} but the folder holds {_listed(there)}"
        raise DatasetError(f"{folder}: {MANIFEST} {difference}; write the data set again")


def _listed(files: Mapping[str, Any]) -> str:
    return ", ".join(str(files[role]) for role in sorted(files)) or "nothing"
