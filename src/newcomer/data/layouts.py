"""Which file of a folder is what, in the layouts that data sets are published in.

| layout  | train | aux (facts of newcomers) | valid | test |
|---------|-------|--------------------------|-------|------|
| plain, LAN, OOKB, ours | train | aux, _aux, aux_txt, auxiliary | valid, dev, validation | test |
| OpenKE  | train2id.txt | - | valid2id.txt | test2id.txt |
| GraIL   | X/train | X_ind/train | X/valid and X_ind/valid | X_ind/test |
| ILPC    | train | inference | inference_validation | inference_test |

Files may end in .txt, .tsv, .csv, .parquet, .nt, .nq, .ttl or nothing, compressed or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from newcomer.data.rdf import FORMATS as RDF_FORMATS
from newcomer.data.tables import ROLES
from newcomer.data.triples import PARQUET_SUFFIXES, TEXT_SUFFIXES
from newcomer.errors import DatasetError

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
