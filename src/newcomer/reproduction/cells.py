"""Cells run once: a finished one is a JSON file, one that was killed goes on where it was.

The file of a cell holds what `newcomer evaluate` reports and how it came about: table, variant, all settings, what
differs from the preset, hashes of settings and data, commit, validation. It appears whole or not at all, and counts for
as long as settings and data are the same. What a training leaves while it runs is in ``.work/CELL`` of the results; Git
does not see it.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import newcomer
from newcomer.config import Config
from newcomer.errors import InputError, NewcomerError
from newcomer.evaluation.ranking import RankingProtocol
from newcomer.evaluation.report import (
    CLASSIFICATION,
    Case,
    Report,
    classification_report,
    judge_test,
    rank_test,
    ranking_report,
    write_report,
)
from newcomer.files import fresh_file
from newcomer.graph import InductiveDataset
from newcomer.models.bundle import Bundle, read_bundle, write_bundle
from newcomer.models.device import choose_device
from newcomer.reproduction.measuring import BY, rules_report, statistics_report
from newcomer.reproduction.plans import STATISTICS, Cell
from newcomer.reproduction.sources import Source, Sources, note_about
from newcomer.reproduction.stored import changed_settings, read_result, read_results
from newcomer.training.checkpoint import Identity, read_checkpoint
from newcomer.training.journal import CHECKPOINT, has_checkpoint, in_use, remove_training
from newcomer.training.pipeline import Fitted, Listener, fit

WORK = ".work"
DONE, OPEN, CHANGED, ABSENT, BUSY = STATES = ("done", "open", "changed", "absent", "busy")


@dataclass(frozen=True)
class Standing:
    """Whether a cell is done, to be done, to be done anew, or cannot be done, and why."""

    state: str
    why: str = ""


class Workshop:
    """Where cells are run: results, data, device, and someone to tell about it."""

    def __init__(
        self,
        results: Path,
        sources: Sources,
        device: str = "auto",
        threads: int | None = None,
        listener: Listener | None = None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.results, self.sources = results, sources
        self.device, self.threads = device, threads
        self.listener, self.say = listener or Listener(), say

    def path(self, cell: Cell) -> Path:
        """The file of a cell."""
        return self.results / f"{cell.name}.json"

    def folder(self, cell: Cell) -> Path:
        """Where a cell is worked on."""
        return self.results / WORK / cell.name

    def standing(self, cell: Cell) -> Standing:
        """How a cell stands, by its file and its data."""
        stored = read_result(self.path(cell)) if self.path(cell).exists() else None
        changed = "" if stored is None else changed_settings(stored, cell)
        try:
            digest = self.sources.digest(cell.dataset)
        except NewcomerError as error:
            fits = stored is not None and not changed
            return Standing(DONE, "its data are not here to be compared") if fits else Standing(ABSENT, str(error))
        if stored is None:
            busy = in_use(self.folder(cell) / "training")
            return Standing(BUSY, "another process works on it") if busy else Standing(OPEN)
        if changed:
            return Standing(CHANGED, changed)
        if stored.get("dataset_sha256") != digest:
            return Standing(CHANGED, "it was run on other data of the same name")
        return Standing(DONE)

    def run(self, cell: Cell) -> Report:
        """Do a cell, or copy one of another table that is the same, and write its file."""
        started = time.monotonic()
        twin = self._twin(cell)
        if twin is not None:
            report = {**twin, **_names_of(cell), "same_as": twin["cell"]}
        else:
            source = self.sources.get(cell.dataset)
            found = self._measured(cell, source)
            report = {**found, **self._origin(cell, source), "seconds": round(time.monotonic() - started, 1)}
        write_report(report, self.path(cell))
        shutil.rmtree(self.folder(cell), ignore_errors=True)
        return report

    def _twin(self, cell: Cell) -> Report | None:
        """A finished cell of another table with the same data and settings."""
        wanted = cell.task, cell.dataset, cell.model, self.sources.digest(cell.dataset)
        for report in read_results(self.results):
            names = ("task", "dataset", "model", "dataset_sha256")
            same = report["cell"] != cell.name and tuple(report[name] for name in names) == wanted
            if same and not changed_settings(report, cell):
                return report
        return None

    def _measured(self, cell: Cell, source: Source) -> Report:
        if cell.task == STATISTICS:
            return statistics_report(cell, source, self.threads)
        if cell.config is None:
            return rules_report(cell, source.dataset, self.sources.full_graph(cell.dataset), self.threads)
        return self._of_model(cell, source.dataset, cell.config)

    def _origin(self, cell: Cell, source: Source) -> Report:
        return {
            **_names_of(cell),
            "preset": None if cell.config is None else cell.config.preset,
            "overrides": list(cell.overrides),
            "settings": cell.settings,
            "config_sha256": cell.settings_hash,
            "dataset_sha256": self.sources.digest(cell.dataset),
            "dataset_origin": source.origin,
            "dataset_note": note_about(cell.dataset),
            "commit": commit(),
        }

    def _of_model(self, cell: Cell, dataset: InductiveDataset, config: Config) -> Report:
        bundle = self._trained(cell, dataset, config)
        case = Case(bundle, dataset, choose_device(self.device), self.threads)
        if cell.task == CLASSIFICATION:
            judged = judge_test(case)
            report = classification_report(case, judged.result, ("relation",), judged=judged)
        else:
            full = self.sources.full_graph(cell.dataset)
            # Of a model whose answers rules have a say in, network and rules are measured by themselves too.
            ranked = rank_test(case, RankingProtocol(), full, with_parts=config.model.ensemble)
            report = ranking_report(case, ranked, BY, full)
        training = {name: value for name, value in bundle.metrics.items() if name != "history"}
        return {**report, "model": cell.model, "training": training}

    def _trained(self, cell: Cell, dataset: InductiveDataset, config: Config) -> Bundle:
        """The model of a cell: as an earlier process left it, or trained to its end."""
        folder = self.folder(cell)
        ready = _ready_model(folder / "model", cell, self.sources.digest(cell.dataset))
        if ready is not None:
            return ready
        self._hide_work()
        resumed = self._resumable(folder / "training", Identity.of(dataset, config, None))
        fitted = fit(
            dataset,
            config,
            device=self.device,
            folder=folder / "training",
            resume=resumed,
            threads=self.threads,
            report=self.listener,
        )
        parts = fitted.bundle(dataset)
        write_bundle(
            folder / "model", replace(parts, metrics={**parts.metrics, **_effort(fitted, resumed)}), force=True
        )
        return read_bundle(folder / "model")

    def _resumable(self, folder: Path, identity: Identity) -> bool:
        """Whether a checkpoint is there to go on with; one of other settings or data goes."""
        if not has_checkpoint(folder):
            return False
        try:
            read_checkpoint(folder / CHECKPOINT, identity)
        except InputError as error:
            self.say(f"the training that was begun cannot be gone on with and starts anew: {error.problem}")
            remove_training(folder)
            return False
        self.say("going on with the training that was begun")
        return True

    def _hide_work(self) -> None:
        ignore = self.results / WORK / ".gitignore"
        if not ignore.exists():
            with fresh_file(ignore) as partial:
                partial.write_text("*\n", encoding="ascii")


def _names_of(cell: Cell) -> Report:
    return {"what": cell.what, "cell": cell.name, "label": cell.label, "variant": cell.variant, "same_as": None}


def _effort(fitted: Fitted, resumed: bool) -> Report:
    spent = sum(record.get("seconds", 0.0) for record in fitted.history)
    sizes = {"rules": len(fitted.model.rules), "virtual_triples": len(fitted.model.labels)}
    return {**sizes, "epochs_run": len(fitted.history), "epoch_seconds": round(spent, 1), "resumed": resumed}


def _ready_model(folder: Path, cell: Cell, digest: str) -> Bundle | None:
    """The model of a process that was stopped before it was measured, if it is of the same data and settings."""
    if not folder.is_dir():
        return None
    with suppress(NewcomerError):
        bundle = read_bundle(folder)
        if (bundle.manifest.config_hash, bundle.manifest.dataset_hash) == (cell.settings_hash, digest):
            return bundle
    return None


def commit() -> Report | None:
    """The commit of this program's own checkout, and whether its source was changed since; `None` outside of one.

    Where files were copied to a machine, the variable NEWCOMER_COMMIT may name their commit: it alone knows.
    """
    place, named = Path(newcomer.__file__), os.environ.get("NEWCOMER_COMMIT")
    if named:
        return {"id": named, "changed": None}
    try:
        _git(place.parent, "ls-files", "--error-unmatch", place.name)
        changes = _git(place.parent, "status", "--porcelain", "--untracked-files=no", "--", ".")
        return {"id": _git(place.parent, "rev-parse", "HEAD"), "changed": bool(changes)}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()
