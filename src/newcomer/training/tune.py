"""Searching settings: each trial trains a model on the observed graph without a hold-out, and is validated on that.

    study.db      every trial, as a study of Optuna; what is searched, and in which data
    trials.tsv    the same, a line a trial
    best.toml     the settings of the best trial, for ``newcomer train --config``

All three are up to date after every trial. The settings of a trial follow from the seed and the trials before it: a
search that was killed goes on as if it had not been, and begins the trial that it was in anew. Test is never used.
"""

import json
import math
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from newcomer import __version__
from newcomer.config import Config, flat_settings, to_toml
from newcomer.errors import InputError, OptionError, OutputError, optional, shown
from newcomer.files import fresh_file, looking_at
from newcomer.graph import InductiveDataset
from newcomer.models.bundle import dataset_hash
from newcomer.models.device import choose_device
from newcomer.training.checkpoint import START_ANEW, Figures, RunState, claimed
from newcomer.training.holdout import hold_out_newcomers
from newcomer.training.pipeline import Fitted, Listener, fit
from newcomer.training.preparation import check_trainable, mined_rules, renamed_rules
from newcomer.training.runtime import settled
from newcomer.training.search_space import Space, with_settings

STUDY, BEST, TRIALS = "study.db", "best.toml", "trials.tsv"
OWN = {STUDY, f"{STUDY}-journal", BEST, TRIALS}
NAME = "newcomer"
GRID, TPE = "grid", "tpe"
STATES = ("complete", "pruned", "failed", "repeated", "interrupted")
COLUMNS = ("number", "state", "mrr", "epochs", "seconds")
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
BUSY_SECONDS = 20.0  # how long to wait for another program that reads the study


@dataclass(frozen=True)
class Budget:
    """When a search ends, and from when on trials below the median are pruned."""

    trials: int = 20
    seconds: float | None = None  # no trial is begun after so many
    never_pruned: int = 5  # complete trials before one is pruned

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise OptionError(f"the number of trials is {self.trials}, but must be at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise OptionError(f"the time limit is {self.seconds:g} seconds, but must be above 0")


@dataclass(frozen=True)
class Trial:
    """Settings that were tried and their result; ``mrr`` of a pruned trial is the network's best until then."""

    number: int
    state: str
    mrr: float | None
    epochs: int
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Search:
    """What a search has found so far."""

    dataset: str
    space: Space
    config: Config
    method: str
    trials: tuple[Trial, ...]

    @property
    def counted(self) -> int:
        """Trials that came to an end, in whatever way."""
        return sum(trial.state != "interrupted" for trial in self.trials)

    @property
    def states(self) -> dict[str, int]:
        """How many trials ended in each way."""
        return {state: sum(trial.state == state for trial in self.trials) for state in STATES}

    @property
    def ranked(self) -> list[Trial]:
        """The complete trials, best first; of equals the earlier one."""
        complete = [trial for trial in self.trials if trial.state == "complete" and trial.mrr is not None]
        return sorted(complete, key=lambda trial: (-(trial.mrr or 0.0), trial.number))

    def config_of(self, trial: Trial) -> Config:
        """The settings to train with."""
        return with_settings(self.config, trial.settings)

    def in_words(self) -> str:
        """How much was searched, to be stated beside every result."""
        ends = ", ".join(f"{count} {state}" for state, count in self.states.items() if count)
        place = f"space {self.space.name}, {self.method}, seed {self.config.seed}"
        trials = f"{self.counted} trial{'' if self.counted == 1 else 's'}"
        return f"{trials} ({ends}) in {sum(one.seconds for one in self.trials):.0f} s; {place}"


class Watcher(Listener):
    """A listener to a search, and to the fit of each trial; this one does nothing."""

    def begins(self, place: int, goal: int, settings: Mapping[str, Any]) -> None:
        """A trial begins: number ``place`` of ``goal``."""

    def ended(self, trial: Trial, search: Search) -> None:
        """A trial is over and stored."""


def tune(
    dataset: InductiveDataset,
    config: Config,
    space: Space,
    folder: Path,
    *,
    budget: Budget | None = None,
    device: str = "auto",
    threads: int | None = None,
    resume: bool = False,
    force: bool = False,
    report: Watcher | None = None,
) -> Search:
    """Search until the budget is spent; with ``resume`` the folder's trials count, with ``force`` they are deleted."""
    budget, report = budget or Budget(), report or Watcher()
    optuna = optional("optuna", "searching settings", "tune")
    config = settled(config, dataset, choose_device(device))
    if config.training.validation_rate == 0:
        raise OptionError("training.validation_rate is 0, but a search needs newcomers to validate on; set it above 0")
    held = hold_out_newcomers(dataset, config).dataset
    check_trainable(held)
    if force:
        remove_search(folder)
    _check_place(folder, resume)
    with claimed(folder), _opened(optuna, folder / STUDY) as study:
        size = space.grid_size()
        method = TPE if size is None or size > budget.trials else GRID
        method = _identified(study, folder / STUDY, _identity(dataset, config, space), method)
        # Unless trials differ in the rules that they mine, all use the same, in the ids of the data set.
        mines_anew = any(one.startswith("rules.") or one in ("model.labels", "model.ensemble") for one in space.names)
        rules = None
        if not mines_anew:
            report.stage("mining rules")
            rules = renamed_rules(mined_rules(held, config, threads, report.step), held, dataset)
        train = partial(fit, dataset, device=device, rules=rules, threads=threads)
        search = Search(dataset.name, space, config, method, ())
        return _Runner(optuna, study, search, folder, train, report).run(budget)


def _check_place(folder: Path, resume: bool) -> None:
    """Whether a search may begin, or go on, in this folder."""
    with looking_at(folder):
        there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder}: is not a folder; choose another place")
    if resume and STUDY not in there:
        raise OptionError(f"{folder}: holds no {STUDY}, so there is no search to resume; leave out --resume")
    if not resume and STUDY in there:
        raise OutputError(f"{folder}: holds a search; pass --resume to go on with it, or --force to start anew")
    _refuse_other_files(folder, there)


def remove_search(folder: Path) -> None:
    """Delete what a search left, and never anything else."""
    if folder.is_dir():
        _refuse_other_files(folder, sorted(path.name for path in folder.iterdir()))
        with claimed(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _refuse_other_files(folder: Path, names: list[str]) -> None:
    for name in names:
        cut_off = name.endswith(".partial") and name.startswith((f".{BEST}.", f".{TRIALS}."))
        if name not in OWN and not cut_off:
            raise OutputError(f"{folder}: holds {shown(name)}, which no search wrote; choose another place")


@contextmanager
def _opened(optuna: Any, path: Path) -> Iterator[Any]:
    """The study in a file, made where there is none; errors of the database become one sentence."""
    from sqlalchemy.exc import SQLAlchemyError

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = None
    try:
        # Made by hand: an address would give some characters of a path another meaning.
        connect = partial(sqlite3.connect, path.absolute(), timeout=BUSY_SECONDS)
        with _signals_deferred():
            storage = optuna.storages.RDBStorage("sqlite:///study.db", engine_kwargs={"creator": connect})
            study = optuna.create_study(storage=storage, study_name=NAME, direction="maximize", load_if_exists=True)
        yield study
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        reason = " ".join(str(error.__cause__ or error).split("\n")[0].split())
        raise InputError(path, f"cannot be worked with ({reason})", hint=f"make room for it, or {START_ANEW}") from None
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()
        optuna.logging.set_verbosity(verbosity)


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Signals to stop wait for the end of the block: in the database's callbacks their exception would be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {one: signal.getsignal(one) for one in STOPPING}
    for one in STOPPING:
        signal.signal(one, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        if came:
            signal.raise_signal(came[0])


def _identity(dataset: InductiveDataset, config: Config, space: Space) -> dict[str, Any]:
    """What all trials of a search share."""
    return {
        "settings": config.to_dict(),
        "space": dict(space.stated),
        "dataset": dataset.name,
        "dataset_hash": dataset_hash(dataset),
        "version": __version__,
    }


def _identified(study: Any, path: Path, identity: Mapping[str, Any], method: str) -> str:
    """The method of the study, if it is this very search; a new one becomes this search."""
    found = study.user_attrs
    for what, then, now in _compared({**identity, **found}, identity):
        if then != now:
            problem = f"was started with {what} {_in_words(then)}, not {_in_words(now)}"
            raise InputError(path, problem, hint=f"resume with what it was started with, or {START_ANEW}")
    with _signals_deferred():
        for name, value in {**identity, "method": method}.items():
            if name not in found:
                study.set_user_attr(name, value)
    return str(found.get("method", method))


def _compared(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What may differ, in words, then and now: first a setting by its name."""
    settings = "{} =", flat_settings(found["settings"]), flat_settings(wanted["settings"])
    space = "a space where {} is", found["space"], wanted["space"]
    for words, then, now in (settings, space):
        yield from ((words.format(name), then.get(name), now.get(name)) for name in sorted({*then, *now}))
    yield "the data set", found["dataset"], wanted["dataset"]
    yield "data of the SHA-256", found["dataset_hash"], wanted["dataset_hash"]
    yield "newcomer", found["version"], wanted["version"]


def _in_words(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


@dataclass
class _Runner:
    """One trial after the other, each stored before the next."""

    optuna: Any
    study: Any
    search: Search
    folder: Path
    train: Callable[..., Fitted]
    report: Watcher

    def run(self, budget: Budget) -> Search:
        started, epochs = time.monotonic(), self.search.config.training.epochs
        self.study.pruner = self.optuna.pruners.MedianPruner(budget.never_pruned, n_warmup_steps=epochs // 4)
        with _signals_deferred():
            self._fail_interrupted()
        points = self._grid() if self.search.method == GRID else None
        goal = budget.trials if points is None else min(budget.trials, len(points))
        self._write()
        seconds = math.inf if budget.seconds is None else budget.seconds
        while (place := self.search.counted) < goal and time.monotonic() - started < seconds:
            with _signals_deferred():
                trial = self._next_trial(place, points)
                settings = self._suggested(trial)
            if settings is not None:
                self.report.begins(place + 1, goal, settings)
                self._try(trial, settings)
            self._write()
            self.report.ended(self.search.trials[-1], self.search)
        return self.search

    def _fail_interrupted(self) -> None:
        """Trials that a kill left running are over, and are not counted."""
        states = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            self.study.tell(trial.number, state=states.FAIL)

    def _grid(self) -> list[dict[str, Any]]:
        """All points in an order that follows from the seed."""
        points, generator = list(self.search.space.grid()), np.random.default_rng(self.search.config.seed)
        return [points[place] for place in generator.permutation(len(points))]

    def _next_trial(self, place: int, points: list[dict[str, Any]] | None) -> Any:
        """The next trial: of what is drawn, all follows from the seed and the trials before."""
        seed = np.random.SeedSequence([self.search.config.seed, place]).generate_state(1)
        self.study.sampler = self.optuna.samplers.TPESampler(seed=int(seed[0]))
        waiting = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.WAITING,))
        if points is not None and not waiting:  # a kill may have left one
            self.study.enqueue_trial(points[place])
        return self.study.ask()

    def _suggested(self, trial: Any) -> dict[str, Any] | None:
        """The trial's settings; `None` where they were tried before: the same seed would give the same figures."""
        settings = self.search.space.suggest(trial)
        trial.set_user_attr("settings", settings)
        for same in self.search.trials:
            if same.state != "interrupted" and same.settings == settings:
                trial.set_user_attr("repeats", same.number)
                self._tell(trial, same.mrr if same.state == "complete" else None)
                return None
        return settings

    def _try(self, trial: Any, settings: Mapping[str, Any]) -> None:
        started, watch = time.monotonic(), _Watch(trial, self.report, self.optuna.TrialPruned)
        mrr, problem = self._mrr(settings, watch)
        with _signals_deferred():
            noted = {"epochs": watch.epochs, "seconds": round(time.monotonic() - started, 3), "problem": problem}
            for name, value in noted.items():
                trial.set_user_attr(name, value)
            self._tell(trial, mrr)

    def _tell(self, trial: Any, mrr: float | None) -> None:
        states = self.optuna.trial.TrialState
        self.study.tell(trial, mrr, states.PRUNED if mrr is None else states.COMPLETE)

    def _mrr(self, settings: Mapping[str, Any], watch: "_Watch") -> tuple[float | None, str]:
        """The best validation MRR; `None` where the fit did not come to its end, and why."""
        try:
            config = with_settings(self.search.config, {**settings, "training.final_fit": False})
            return float(self.train(config, report=watch).metrics["validation"]["model"]["mrr"]), ""
        except self.optuna.TrialPruned:
            return None, ""
        except OptionError as error:  # settings that do not go together, diverge, or need too much memory
            return None, str(error)

    def _write(self) -> None:
        """Bring the two files up to date."""
        with _signals_deferred():
            found = self.study.get_trials(deepcopy=False)
        self.search = replace(self.search, trials=tuple(_read(one) for one in found if one.state.is_finished()))
        texts = {TRIALS: _tsv(self.search)} | ({BEST: _best_toml(self.search)} if self.search.ranked else {})
        for name, text in texts.items():
            with fresh_file(self.folder / name) as partial_file:
                partial_file.write_text(text, encoding="utf-8")


class _Watch(Listener):
    """Passes on the progress of a fit, and ends it where the trial is to be pruned."""

    def __init__(self, trial: Any, report: Watcher, pruned: type[Exception]) -> None:
        self.trial, self.report, self.pruned, self.epochs = trial, report, pruned, 0

    def stage(self, what: str) -> None:
        self.report.stage(what)

    def step(self, done: int, total: int) -> None:
        self.report.step(done, total)

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        self.epochs = record["epoch"]
        self.report.epoch(record, state, last)
        if "mrr" in record:
            with _signals_deferred():
                self.trial.report(record["mrr"], self.epochs)
                prune = self.trial.should_prune()
            if prune:
                raise self.pruned


def _read(found: Any) -> Trial:
    """A trial of Optuna as a `Trial`."""
    noted, name = found.user_attrs, found.state.name
    state = {"FAIL": "interrupted", "COMPLETE": "complete"}.get(name, "pruned")
    if state != "interrupted":
        state = "failed" if noted.get("problem") else "repeated" if "repeats" in noted else state
    mrr = found.value if name == "COMPLETE" else max(found.intermediate_values.values(), default=None)
    figures = noted.get("epochs", 0), noted.get("seconds", 0.0)
    return Trial(found.number, state, mrr, *figures, noted.get("settings", {}), noted.get("problem", ""))


def _tsv(search: Search) -> str:
    names = search.space.names
    lines = [[*COLUMNS, *names]]
    for one in search.trials:
        figures = [str(one.number), one.state, "" if one.mrr is None else f"{one.mrr:.6f}", str(one.epochs)]
        lines.append([*figures, f"{one.seconds:.1f}", *(_cell(one.settings.get(name, "")) for name in names)])
    return "".join("\t".join(line) + "\n" for line in lines)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(value) if isinstance(value, list) else json.dumps(value)


def _best_toml(search: Search) -> str:
    best = search.ranked[0]
    about = f"The best for {search.dataset} of {search.in_words()}."
    printable = "".join(letter if letter.isprintable() else "?" for letter in about)  # as TOML's comments must be
    return f"# {printable}\n# Trial {best.number}: validation MRR {best.mrr:.4f}.\n{to_toml(search.config_of(best))}"
