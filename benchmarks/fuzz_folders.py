"""Folders as they should not be: a trained model or a stopped training of which one file is another than it was.

Half of them are sealed again: the checksums are right, so that what is wrong comes as far as it can.
"""

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fuzz_files import changed_arrays, changed_json, changed_table, changed_toml, mutated, with_another_array
from newcomer.config import setting_names
from newcomer.models.bundle.manifest import KNOWN, MANIFEST, sealed, stamp_of
from newcomer.training import checkpoint

if TYPE_CHECKING:
    from fuzz_words import Writer

SEALED = 0.75


def copied(source: Path, place: Path) -> Path:
    """A copy that shares its files' bytes with what it is of: a file is replaced, never written to."""
    return Path(shutil.copytree(source, place, copy_function=os.link))


def put(path: Path, content: bytes) -> None:
    """A file with this content, in the place of what was there."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def damage_model(rng: Random, folder: Path, others: list[Path]) -> None:
    """Change one file of a model, and its manifest with it, or not."""
    name = rng.choice(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
    path = folder / name
    kind = rng.randrange(12)
    if kind < 8:
        put(path, _changed(rng, path))
    elif kind == 8:
        path.unlink()
    elif kind == 9:
        put(path, rng.choice(sorted(p for p in rng.choice(others).rglob("*") if p.is_file())).read_bytes())
    elif kind == 10:
        other = rng.choice(others) / name
        put(path, other.read_bytes() if other.is_file() else b"")
    else:
        extra = (
            "weights.pkl",
            "seen/x.parquet",
            "auxiliary.parquet",
            ".hidden",
            "result.json",
            "x/y",
            "thresholds.json",
        )
        put(folder / rng.choice(extra), rng.choice((b"", b"{}", path.read_bytes())))
    if rng.random() < SEALED:
        seal(folder)


def _changed(rng: Random, path: Path) -> bytes:
    content = path.read_bytes()
    if rng.random() < 0.2:
        return mutated(rng, content)
    if path.suffix == ".json":
        return changed_json(rng, content)
    if path.suffix == ".parquet":
        return changed_table(rng, content)
    if path.suffix == ".safetensors":
        return changed_arrays(rng, content)
    return changed_toml(rng, content, setting_names())


def seal(folder: Path) -> None:
    """Make the manifest state the files as they are, where it can be read at all."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except (ValueError, OSError):
        return
    if not isinstance(content, dict) or not isinstance(content.get("files"), dict):
        return
    there = [name for name in dict.fromkeys([*content["files"], *KNOWN]) if (folder / name).is_file()]
    content["files"] = {name: stamp_of(folder / name) for name in there}
    content.pop("checksum", None)
    try:
        put(folder / MANIFEST, sealed(content))
    except ValueError:  # a number that JSON does not have
        return


def damage_training(rng: Random, folder: Path) -> None:
    """Change the checkpoint of a stopped training, or one of the files beside it."""
    path = folder / rng.choice((checkpoint.CHECKPOINT,) * 4 + (checkpoint.METRICS,))
    if path.name == checkpoint.METRICS or rng.random() < 0.3:
        put(path, mutated(rng, path.read_bytes()))
        return
    with safe_open(path, framework="np") as file:
        content = json.loads(file.metadata()[checkpoint.HEADER])
        arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    if rng.random() < 0.5:
        content = json.loads(changed_json(rng, json.dumps(content).encode()))
    else:
        arrays = with_another_array(rng, arrays)
    tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
    if isinstance(content, dict) and rng.random() < SEALED:
        content.pop("sha256", None)
        content["sha256"] = checkpoint._checksum(content, tensors)
    path.unlink()
    save_file(tensors, path, {checkpoint.HEADER: json.dumps(content)})


def leave_to_resume(writer: "Writer") -> None:
    """What was stopped before, to go on with: as it was, or changed."""
    place = next((writer.case.outputs[place] for place in range(len(writer.case.outputs))), "")
    if "/" in place or not place.strip(".") or len(place) > 200:
        return
    path = writer.case.folder / place
    if writer.case.verb == "tune" and not path.exists():
        copied(writer.world.folder / "search", path)
        for name in ("study.db", "trials.tsv") if not writer.is_wrong("files") else ():
            put(path / name, (writer.world.folder / "search" / name).read_bytes())
        if writer.is_wrong("files"):
            put(path / "study.db", mutated(writer.rng, (path / "study.db").read_bytes()))
        else:  # it is written to
            put(path / "study.db", (writer.world.folder / "search" / "study.db").read_bytes())
    training = path.with_name(f"{path.name}.training")
    if writer.case.verb == "train" and not training.exists():
        copied(writer.world.folder / "stopped.training", training)
        for name in ("metrics.jsonl", "checkpoint.safetensors"):  # they are written to
            put(training / name, (writer.world.folder / "stopped.training" / name).read_bytes())
        if writer.is_wrong("files"):
            damage_training(writer.rng, training)
