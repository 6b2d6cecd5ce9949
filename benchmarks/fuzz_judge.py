"""What a command may leave: an exit code, sentences on standard error, and files that are whole or not there."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fuzz_words import Case
from newcomer.cli.left_out import REASONS
from newcomer.data import ReadOptions, read_dataset
from newcomer.errors import NewcomerError
from newcomer.files import open_bytes, plain_suffix
from newcomer.models.bundle import read_bundle
from newcomer.store import open_store

USAGE = re.compile(r"Usage: newcomer.*", re.DOTALL)  # of a command without any word
STAGES = (  # of a training
    *("timing a few steps of everything", "mining rules", "inferring virtual neighbours", "preparing", "rehearsing"),
    *("making a first model", "ranking by the rules alone", "search", "final", "training the propagation network"),
    *("training the triple classifier", "learning the weights of the ensemble", "calibrating probabilities"),
)
NOTES = (  # what is said beside the one sentence of an error, or without one
    *(
        f"newcomer: .*: {re.escape(said).replace(re.escape('{}'), '[0-9,]+')}"
        for both in REASONS.values()
        for said in both
    ),  # what was left out
    r"  .*",  # such lines
    r"newcomer: the model has no rules that could be ranked by alone",
    r"newcomer: the (training|search) is kept in .*",
    rf"({'|'.join(STAGES)})(: .*)?",
    r"(this machine|the rest) takes about.*",
    r"a first model is in .*",
    r"(search|final), epoch \d+ of \d+: loss .*",
    r"trial \d+: .*",
    r"newcomer: recorded [0-9,]+ answers?.*",
    r"time limit reached: .*",
    r"\d+/\d+ [\w.-]+: failed, .*",
)
NOTE = re.compile("|".join(f"(?:{note})" for note in NOTES))
CRASHED = re.compile(r"Traceback|^\w*(Error|Exception|Warning)\b", re.MULTILINE)
NATIVE = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
UNSOUND = {"data check", "reproduce"}  # which have an exit code of 1
DRAWING = {"draw", "describe"}
JSON_LINES = {"predict", "suggest", "explain", "classify", "confidence", "similar", "list", "answers"}
STOPPED = 143
HERE = "here"  # the folder that commands are called in; one for temporary files lies beside it

Shot = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Done:
    """What a command said, and how it ended."""

    code: int
    said: str
    complained: str
    stopped: bool = False  # it took too long, and was told to stop


def shot_of(folder: Path) -> Shot:
    """Every file and folder below, with what changes when it is written to."""
    found: Shot = {}
    places = [""]
    while places:
        place = places.pop()
        with os.scandir(folder / place) as there:
            for entry in there:
                if entry.is_dir(follow_symlinks=False):
                    found[f"{place}{entry.name}"] = (0,)
                    places.append(f"{place}{entry.name}/")
                else:
                    status = entry.stat(follow_symlinks=False)
                    found[f"{place}{entry.name}"] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


def outcome_of(done: Done) -> str:
    """How it ended, in a word."""
    if done.stopped:
        return "stopped"
    if done.code == 2 and done.complained.startswith("Usage:"):
        return "usage"
    return {0: "answered", 1: "unsound", 2: "refused"}.get(done.code, "crashed")


def problems_of(case: Case, done: Done, before: Shot, after: Shot) -> Iterator[str]:
    """Everything that is not as it should be."""
    yield from _ending(case, done)
    yield from _words(case, done)
    yield from _files(case, done, before, after)
    if done.code == 0 and "--json" in case.words and "--help" not in case.words:
        yield from _json(case, done)


def _ending(case: Case, done: Done) -> Iterator[str]:
    allowed = {0, 2} | ({1} if case.verb in UNSOUND else set()) | ({STOPPED} if done.stopped else set())
    if done.code not in allowed:
        yield f"it ended with {done.code}"


def _words(case: Case, done: Done) -> Iterator[str]:
    if CRASHED.search(done.complained):
        yield "standard error shows an exception or a warning"
    if done.code == 2 and len(case.words) < 3 and USAGE.fullmatch(done.complained):
        return
    own = [line for line in done.complained.split("\n")[:-1] if not NOTE.fullmatch(line)]
    sentences = [line for line in own if line.startswith("newcomer: ")]
    if len(own) > len(sentences):
        yield f"standard error has strange words: {next(line for line in own if line not in sentences)[:200]!r}"
    wanted = 1 if done.code == 2 or done.stopped else 0
    if len(sentences) != wanted:
        yield f"standard error has {len(sentences)} sentences where {wanted} are expected"


def _files(case: Case, done: Done, before: Shot, after: Shot) -> Iterator[str]:
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    # What is kept for other runs: by torch, and the folder of downloads.
    changed = [path for path in changed if not path.startswith(("tmp/torchinductor", f"{HERE}/cache"))]
    changed = [path.removeprefix(f"{HERE}/") if path.startswith(f"{HERE}/") else f"../{path}" for path in changed]
    after = {path.removeprefix(f"{HERE}/"): kept for path, kept in after.items()}
    changed = [path for path in changed if path not in case.stores]  # judged below
    hidden = [path for path in changed if path in after and Path(path).name.startswith(".")]
    named = [place for place in case.outputs if place.strip("./")]
    if hidden and not any(Path(place).name.startswith(".") for place in named):
        yield f"it left {hidden[0]!r}"
    if done.code == 0 and case.stores and not (done.stopped or case.damaged_store):
        yield from _store(case.folder / case.stores[0])
    if done.code == 2:
        for path in changed:
            yield f"it failed, and changed {path!r}"
        return
    own = {Path(os.path.normpath(place)) for place in named} | {Path("runs")}
    own |= {place.with_name(f"{place.name}.training") for place in own} if case.verb in ("train", "grow") else set()
    own |= {place.with_suffix(".names.txt") for place in own if case.verb == "embed"}
    for name in changed:
        if not any(Path(name) in (place, *place.parents) or place in Path(name).parents for place in own):
            yield f"it changed {name!r}, which it was not asked to"
    if not done.stopped:
        for path in changed:
            if path in after and not (case.folder / path).is_dir():
                yield from _content(case, case.folder / path)
        for place in named if done.code == 0 else ():
            yield from _folder(case.folder / place)


def _content(case: Case, path: Path) -> Iterator[str]:
    """What is wrong with a file that was written."""
    suffix = plain_suffix(path)
    try:
        if suffix in NATIVE:
            if not path.read_bytes().startswith(NATIVE[suffix]):
                yield f"{path.name} is no {suffix} file"
            return
        if suffix == ".parquet":
            with path.open("rb") as file:
                pq.read_table(file)
            return
        if suffix == ".npy":
            np.load(path, allow_pickle=False)
            return
        if suffix in (".db", ".safetensors") or (case.verb in DRAWING and not suffix):
            return
        with open_bytes(path) as stream:
            text = bytes(stream.read()).decode()
        if text and not text.endswith("\n"):
            yield f"{path.name} ends within a line"
        for line in text.split("\n") if suffix in (".json", ".jsonl") else ():
            if suffix == ".jsonl" and line:
                json.loads(line, parse_constant=_refuse)
        if suffix == ".json":
            json.loads(text, parse_constant=_refuse)
    except (ValueError, OSError, NewcomerError) as error:
        yield f"{path.name} cannot be read: {error}"


def _folder(path: Path) -> Iterator[str]:
    """What is wrong with a folder that was written."""
    try:
        if path.is_dir() and (path / "manifest.json").is_file():
            read_bundle(path)
        elif (path / "dataset.json").is_file():
            read_dataset(path, ReadOptions())
    except NewcomerError as error:
        yield f"{path.name} cannot be read: {error}"
    except OSError:  # a name too long, of an output that was named twice and not written
        return


def _store(path: Path) -> Iterator[str]:
    """What is wrong with a store after a command that went well: all of it can be read."""
    try:
        with open_store(path) as store, store.reading() as state:
            read = sum(len(entry.stated) - len(entry.retracted) for entry in state.log(limit=1000))
            if read != state.count.facts:
                yield f"{path.name} counts {state.count.facts} facts where its log has {read}"
    except NewcomerError as error:
        yield f"{path.name} cannot be read: {error}"


def _json(case: Case, done: Done) -> Iterator[str]:
    try:
        for document in done.said.split("\n")[:-1] if case.verb in JSON_LINES else [done.said]:
            json.loads(document, parse_constant=_refuse)
    except ValueError as error:
        yield f"standard output is not JSON: {error}"


def _refuse(number: str) -> float:
    raise ValueError(f"{number} is no number in JSON")
