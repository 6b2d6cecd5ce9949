"""What to run for each table of the paper: plans are TOML files, and a plan is a list of cells.

A plan names models (a preset and what differs from it, or a way to mine rules) and runs: data sets x models x protocols
x seeds. A *cell* is one of these combinations. Its name is made of them:

    TABLE-DATASET-MODEL[-VARIANT]-PROTOCOL-SEED

All settings of a cell follow from the plan, so a finished cell can be told from one that was run with other settings.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from newcomer.config import PROTOCOLS, Config, ablation, load_preset, with_overrides
from newcomer.errors import OptionError, check_name, shown, unknown_name

PLANS = (
    *("statistics", "classification", "link-prediction", "ablation", "decoders", "unseen-share", "other-graphs"),
    "suggestions",
)
STATISTICS = "statistics"  # a task, beside those of `newcomer evaluate`
DECIDED = {  # what a cell is called after cannot be changed beneath its name
    "protocol": "pass --protocol instead",
    "seed": "pass --seeds instead",
    "preset": "the plan names it",
    "model.encoder": "the plan names it",
    "model.propagation": "the plan names it",
}


@dataclass(frozen=True)
class Model:
    """A row of a table: settings to train with, or how rules are mined that answer by themselves."""

    label: str  # the model's name, and behind a hyphen that of its variant
    preset: str | None = None
    ablation: str | None = None
    changes: tuple[str, ...] = ()
    mining: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Run:
    """Some of a plan's cells: every data set with every model, protocol and seed."""

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    protocols: tuple[str, ...]
    seeds: int
    title: str = ""


@dataclass(frozen=True)
class Plan:
    """A table: one of the paper, or one of ours."""

    table: str
    task: str
    title: str
    about: str
    metrics: tuple[str, ...]
    layout: str  # `metrics` or `datasets`: what stands in the columns of its tables
    models: Mapping[str, Model] = field(hash=False)
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Cell:
    """One model on one data set under one protocol with one seed."""

    table: str
    task: str
    dataset: str
    label: str
    protocol: str
    seed: int
    config: Config | None = None
    mining: Mapping[str, Any] | None = field(default=None, hash=False)
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.table}-{self.dataset}-{self.label}-{self.protocol}-{self.seed}"

    @property
    def model(self) -> str:
        return self.label.partition("-")[0]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings that matter, as JSON can hold them."""
        if self.config is None:
            return {"protocol": self.protocol, "seed": self.seed, "mining": dict(self.mining or {})}
        stated = self.config.to_dict()
        names = ("preset", "protocol", "seed", "rules") if self.task == STATISTICS else stated
        return {name: stated[name] for name in names}

    @cached_property
    def settings_hash(self) -> str:
        """A SHA-256 that two cells share when all of their settings are the same."""
        text = json.dumps(self.settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


@cache
def read_toml(*place: str) -> Mapping[str, Any]:
    """A TOML file of this room."""
    text = files("newcomer.reproduction").joinpath(*place).read_text(encoding="utf-8")
    return tomllib.loads(text)


def load_plan(table: str) -> Plan:
    """The plan of this name; a wrong name is answered with the nearest right one."""
    if table not in PLANS:
        raise unknown_name("table", table, (*PLANS, "report"))
    stated = dict(read_toml("plans", f"{table}.toml"))
    models = {
        label: Model(label, one.get("preset"), one.get("ablation"), tuple(one.get("set", ())), one.get("mining"))
        for label, one in stated.pop("models").items()
    }
    runs = tuple(Run(**_tuples(run)) for run in stated.pop("runs"))
    return Plan(table=table, models=models, runs=runs, **_tuples(stated))


def _tuples(stated: Mapping[str, Any]) -> dict[str, Any]:
    """With tuples for lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()}


def cells_of(
    plan: Plan, protocol: str | None = None, seeds: int | None = None, changes: Sequence[str] = ()
) -> list[Cell]:
    """The cells of a plan, each once.

    ``protocol``: all under this one; models for which the plan names it have the seeds that it names for it. ``seeds``:
    so many of every trained model. ``changes``: of settings of the trained models.
    """
    cells = (
        cell
        for run in _under(plan.runs, protocol)
        for each in run.protocols
        for cell in _of_run(plan, run, each, seeds, changes)
    )
    return list({cell.name: cell for cell in cells}.values())


def chosen_cells(
    plan: Plan,
    protocol: str | None = None,
    seeds: int | None = None,
    only: Sequence[str] = (),
    changes: Sequence[str] = (),
) -> list[Cell]:
    """The cells to run, as `cells_of`; with ``only`` those whose name has one of these parts."""
    if protocol is not None:
        check_name("protocol", protocol, PROTOCOLS)
    for name in (text.partition("=")[0].strip() for text in changes):
        if name in DECIDED:
            raise OptionError(f"{name} cannot be set for a plan's cells; {DECIDED[name]}")
    with_overrides(load_preset("default"), changes)  # a wrong name or value is an error before anything is read
    cells = cells_of(plan, protocol, seeds, changes)
    kept = [cell for cell in cells if not only or any(fnmatchcase(cell.name, f"*{part}*") for part in only)]
    if not kept:
        asked = " or ".join(map(shown, only)) if only else f"the protocol {protocol}"
        raise OptionError(f"no cell of {plan.table} is of {asked}; see their names with: --dry-run")
    return kept


def _under(runs: Sequence[Run], protocol: str | None) -> list[Run]:
    """The runs with this protocol for theirs, those first that name it themselves."""
    if protocol is None:
        return list(runs)
    own = [run for run in runs if protocol in run.protocols]
    planned = {(dataset, model) for run in own for dataset in run.datasets for model in run.models}
    others = []
    for run in (run for run in runs if protocol not in run.protocols):
        for dataset in run.datasets:
            models = tuple(model for model in run.models if (dataset, model) not in planned)
            others.append(replace(run, datasets=(dataset,), models=models))
    return [replace(run, protocols=(protocol,)) for run in (*own, *others)]


def _of_run(plan: Plan, run: Run, protocol: str, seeds: int | None, changes: Sequence[str]) -> Iterator[Cell]:
    for dataset in run.datasets:
        for label in run.models:
            model = plan.models[label]
            if model.preset is None and protocol == "transductive":
                continue  # rules have nothing that could be trained on newcomers
            trained = model.preset is not None and plan.task != STATISTICS
            for seed in range(seeds if seeds is not None and trained else run.seeds):
                yield _cell(plan, model, dataset, protocol, seed, changes)


def _cell(plan: Plan, model: Model, dataset: str, protocol: str, seed: int, changes: Sequence[str]) -> Cell:
    place = plan.table, plan.task, dataset, model.label, protocol, seed
    if model.preset is None:
        return Cell(*place, mining=model.mining)
    config = load_preset(model.preset)
    if model.ablation is not None:
        config = ablation(config, model.ablation)
    config = with_overrides(config, [*model.changes, f"protocol={protocol}", f"seed={seed}", *changes])
    return Cell(*place, config=config, overrides=(*model.changes, *changes))
