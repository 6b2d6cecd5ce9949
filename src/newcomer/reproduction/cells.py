"""Cells run once: a finished one is a row of its table's results, one that was killed goes on where it was.

A result counts for as long as settings and data are the same. What a training leaves while it runs is in ``.work/CELL``
of the results; Git does not see it.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import newcomer
from newcomer.config import Config, config_hash
from newcomer.data.dataset import parts_of
from newcomer.data.describe import describe, neighbours_per_predicted_fact
from newcomer.errors import InputError, NewcomerError
from newcomer.evaluation.breakdown import breakdown
from newcomer.evaluation.measure import (
    CLASSIFICATION,
    SUGGESTION,
    Evaluation,
    classify_with_probabilities,
    headline,
    rank_test,
)
from newcomer.evaluation.ranking import RankingProtocol, evaluate_under
from newcomer.evaluation.report import (
    ceiling_report,
    classification_report,
    figures_of,
    json_ready,
    ranking_report,
    suggestion_report,
    versions,
)
from newcomer.evaluation.suggest import NEWCOMERS, suggestion_test
from newcomer.files import fresh_file
from newcomer.graph import Graph, Ids, InductiveDataset, Overlay
from newcomer.models.bundle import Bundle, read_bundle, write_bundle
from newcomer.models.device import choose_device
from newcomer.models.rule_engine import ground
from newcomer.reproduction.plans import STATISTICS, Cell
from newcomer.reproduction.sources import Source, Sources, stated_about
from newcomer.reproduction.stored import (
    KEPT_OF_TRAINING,
    Result,
    changed_settings,
    read_result,
    read_results,
    reduced,
    write_result,
)
from newcomer.rules.limits import thread_count
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.rules.rule import Kind, RuleSet
from newcomer.training.checkpoint import CHECKPOINT, Identity, has_checkpoint, in_use, read_checkpoint, remove_training
from newcomer.training.pipeline import Fitted, Listener, fit
from newcomer.training.preparation import mined_rules

WORK = ".work"
BY = ("evidence",)  # the breakdown that the page takes a row of
DONE, OPEN, CHANGED, ABSENT, BUSY = ("done", "open", "changed", "absent", "busy")


@dataclass(frozen=True)
class CellStatus:
    """Whether a cell is done, to be done, to be done anew, or cannot be done, and why."""

    state: str
    why: str = ""


@dataclass(eq=False)
class CellRunner:
    """Runs cells: where results and data are, on which device, and who is notified."""

    results: Path
    sources: Sources
    device: str = "auto"
    threads: int | None = None
    listener: Listener = field(default_factory=Listener)
    notify: Callable[[str], None] = lambda message: None

    def folder(self, cell: Cell) -> Path:
        """Where a cell is worked on."""
        return self.results / WORK / cell.name

    def status(self, cell: Cell) -> CellStatus:
        """The status of a cell by its result and its data."""
        stored = read_result(self.results, cell)
        changed = "" if stored is None else changed_settings(stored, cell)
        try:
            digest = self.sources.digest(cell.dataset)
        except NewcomerError as error:
            fits = stored is not None and not changed
            return CellStatus(DONE, "its data are not here to be compared") if fits else CellStatus(ABSENT, str(error))
        if stored is None:
            busy = in_use(self.folder(cell) / "training")
            return CellStatus(BUSY, "another process works on it") if busy else CellStatus(OPEN)
        if changed:
            return CellStatus(CHANGED, changed)
        if stored.get("dataset_sha256") != digest:
            return CellStatus(CHANGED, "it was run on other data of the same name")
        return CellStatus(DONE)

    def run(self, cell: Cell) -> Result:
        """Do a cell, or copy one of another table that is the same, and store its result."""
        started = time.monotonic()
        names: Result = {"table": cell.table, "cell": cell.name, "label": cell.label, "same_as": None}
        same = self._same_elsewhere(cell)
        if same is not None:
            result = {**same, **names, "same_as": same["cell"]}
        else:
            source = self.sources.get(cell.dataset)
            if cell.task == STATISTICS:
                found = reduced(statistics_report(cell, source, self.threads))
            elif cell.config is None:
                full = self.sources.full_graph(cell.dataset)
                found = reduced(rules_report(cell, source.dataset, full, self.threads))
            else:
                found = self._of_model(cell, source.dataset, cell.config)
            seconds = round(time.monotonic() - started, 1)
            result = {**names, **found, **self._provenance(cell, source), "seconds": seconds}
        write_result(result, self.results)
        shutil.rmtree(self.folder(cell), ignore_errors=True)
        return result

    def _same_elsewhere(self, cell: Cell) -> Result | None:
        """The result of a cell of another table with the same data and settings."""
        wanted = cell.task, cell.dataset, cell.model, self.sources.digest(cell.dataset)
        for result in read_results(self.results):
            found = tuple(result[name] for name in ("task", "dataset", "model", "dataset_sha256"))
            if result["cell"] != cell.name and found == wanted and not changed_settings(result, cell):
                return result
        return None

    def _provenance(self, cell: Cell, source: Source) -> Result:
        return {
            "overrides": list(cell.overrides),
            "settings": cell.settings,
            "config_sha256": cell.settings_hash,
            "dataset_sha256": self.sources.digest(cell.dataset),
            "dataset_origin": source.origin,
            "dataset_note": stated_about(cell.dataset).get("note"),
            "commit": commit(),
        }

    def _of_model(self, cell: Cell, dataset: InductiveDataset, config: Config) -> Result:
        bundle = self._trained(cell, dataset, config)
        evaluation = Evaluation(bundle, dataset, choose_device(self.device), self.threads)
        if cell.task == CLASSIFICATION:
            report = classification_report(evaluation, classify_with_probabilities(evaluation))
        elif cell.task == SUGGESTION:
            full = self.sources.full_graph(cell.dataset)
            test = suggestion_test(evaluation, "known" if full is None else "full", full, NEWCOMERS)
            report = suggestion_report(evaluation, test)
        else:
            full = self.sources.full_graph(cell.dataset)
            # Of an ensemble, embedding and rules are measured by themselves too.
            ranked = rank_test(evaluation, RankingProtocol(), full, with_parts=config.model.ensemble)
            report = ranking_report(evaluation, ranked, BY, full)
        training = {name: bundle.metrics[name] for name in KEPT_OF_TRAINING if name in bundle.metrics}
        return {**reduced(report), "model": cell.model, "training": training}

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
        metrics = {**parts.metrics, **_effort(fitted, resumed)}
        write_bundle(folder / "model", replace(parts, metrics=metrics), force=True)
        return read_bundle(folder / "model")

    def _resumable(self, folder: Path, identity: Identity) -> bool:
        """Whether a checkpoint is there to go on with; one of other settings or data goes."""
        if not has_checkpoint(folder):
            return False
        try:
            read_checkpoint(folder / CHECKPOINT, identity)
        except InputError as error:
            self.notify(f"the training that was begun cannot be gone on with and starts anew: {error.problem}")
            remove_training(folder)
            return False
        self.notify("going on with the training that was begun")
        return True

    def _hide_work(self) -> None:
        ignore = self.results / WORK / ".gitignore"
        if not ignore.exists():
            with fresh_file(ignore) as partial:
                partial.write_text("*\n", encoding="ascii")


def _effort(fitted: Fitted, resumed: bool) -> Result:
    spent = sum(record.get("seconds", 0.0) for record in fitted.history)
    sizes = {"rules": len(fitted.model.rules), "virtual_triples": len(fitted.model.labels)}
    return {**sizes, "epochs_run": len(fitted.history), "epoch_seconds": round(spent, 1), "resumed": resumed}


def _ready_model(folder: Path, cell: Cell, digest: str) -> Bundle | None:
    """The model of a process that was stopped before it was measured, if it is of the same data and settings."""
    if not folder.is_dir():
        return None
    with suppress(NewcomerError):
        bundle = read_bundle(folder)
        if (config_hash(bundle.config), bundle.dataset_hash) == (cell.settings_hash, digest):
            return bundle
    return None


def commit() -> Result | None:
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


def core_of(cell: Cell) -> Result:
    """The names that every result begins with; those of a ranking and the metrics are filled in later."""
    return {
        "task": cell.task,
        "dataset": cell.dataset,
        "model": cell.model,
        "protocol": cell.protocol,
        "filter": None,
        "candidates": None,
        "seed": cell.seed,
        "metrics": {},
        "versions": versions(),
        "device": "cpu",
    }


def statistics_report(cell: Cell, source: Source, threads: int | None) -> Result:
    """Counts of a data set, and a newcomer's neighbours for each fact asked, before and after rules add to them."""
    assert cell.config is not None
    described, dataset = describe(source.loaded), source.dataset
    counts: Result = {role: len(triples) for role, triples in parts_of(dataset).items()}
    counts |= {role: part.rows for role, part in source.loaded.parts.items()}
    counts |= {"newcomers": described.test_newcomers, "entities": described.entities}
    counts |= {"relations": described.relations, "distinct": described.triples}
    return json_ready({**core_of(cell), "counts": counts, **_neighbours(dataset, cell.config, threads)})


def _neighbours(dataset: InductiveDataset, config: Config, threads: int | None) -> Result:
    if len(dataset.test_newcomers) == 0:
        return {"neighbours": None, "rule_count": None}
    rules = mined_rules(dataset, config, threads)
    logic_alone = replace(config, rules=replace(config.rules, paths=False))
    found = {
        "before": neighbours_per_predicted_fact(dataset, dataset.auxiliary.degrees),
        "by_logic_rules": _ratio_after(dataset, rules, logic_alone, threads),
        "after": _ratio_after(dataset, rules, config, threads),
    }
    return {"neighbours": found, "rule_count": len(rules)}


def _ratio_after(dataset: InductiveDataset, rules: RuleSet, config: Config, threads: int | None) -> float | None:
    virtual = ground(rules, Overlay.of_dataset(dataset), dataset.test_newcomers, config, threads)
    degrees: Ids = dataset.auxiliary.degrees
    if virtual is not None:
        degrees = degrees + virtual.degrees(len(dataset.entities))
    return neighbours_per_predicted_fact(dataset, degrees)


def rules_report(cell: Cell, dataset: InductiveDataset, full: Graph | None, threads: int | None) -> Result:
    """Test ranked by rules alone, under both filters where the original graph is there."""
    graph = dataset.observed if cell.protocol == "inductive" else dataset.known_facts()
    mining = cell.mining or {}
    plan = MiningPlan(**{**mining, "kinds": tuple(Kind[name.upper()] for name in mining["kinds"])})
    rules = mine_rules(graph, plan, cell.seed, threads).rules
    ranker = RuleScorer(RuleRanker.of(rules), Overlay.of_dataset(dataset), thread_count(threads))
    protocols = [RankingProtocol(filter=name) for name in (("known",) if full is None else ("known", "full"))]
    known, *rest = map(headline, evaluate_under(dataset, ranker, protocols, full=full))
    others = ({**figures_of(one, 0), "breakdowns": breakdown(one, dataset, BY)} for one in rest)
    report = {
        **core_of(cell),
        **figures_of(known, 0),
        "candidates": known.protocol.candidates,
        "ties": known.protocol.ties,
        "also": next(others, None),
        "ceiling": ceiling_report(dataset, full, known.queries),
        "rule_count": len(rules),
    }
    return json_ready(report)
