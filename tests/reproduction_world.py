"""A folder of tiny data sets under the names of the published ones, and how to run cells on them in no time."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from newcomer.data import write_dataset
from newcomer.evaluation.classification import labelled
from newcomer.graph import InductiveDataset
from newcomer.reproduction.cells import CellRunner
from newcomer.reproduction.plans import Cell, chosen_cells, load_plan
from newcomer.reproduction.sources import Sources
from newcomer.training.pipeline import Listener
from training_world import citizen, parts, world

SMALL = (
    "model.dim=8",
    "model.layers=1",
    "training.batches=3",
    "training.negatives=4",
    "training.epochs=1",
    "training.validate_every=1",
    "training.validation_rate=50",
    "rules.walks=20",
    "rules.min_head_size=1",
)
NAMES = ("fb15k-subject-10", "fb15k-object-10")


def with_labels(dataset: InductiveDataset) -> InductiveDataset:
    rng = np.random.default_rng(0)
    return replace(dataset, **{part: labelled(dataset, getattr(dataset, part), rng) for part in ("valid", "test")})


def original() -> InductiveDataset:
    """The whole graph: newcomers' facts in train, and one that no part of the data sets states."""
    rows = parts()
    everything = [*rows["train"], *rows["aux"], ("q0", "citizen_of", "land2")]
    asked = [citizen(f"p{i:02}", i) for i in range(0, 24, 4)] + rows["test"]
    return world(train=everything, aux=[], valid=[], test=asked)


def make_data(folder: Path) -> Path:
    """The folder of data sets."""
    for name in NAMES:
        write_dataset(replace(world(), name=name), folder / name)
    write_dataset(with_labels(world()), folder / "wn11-subject-1000")
    write_dataset(original(), folder / "fb15k")
    return folder


def small_cells(what: str, *only: str, changes: tuple[str, ...] = (), **options: object) -> list[Cell]:
    return chosen_cells(load_plan(what), only=only, changes=(*SMALL, *changes), **options)  # type: ignore[arg-type]


def runner(
    results: Path, data: Path, listener: Listener | None = None, messages: list[str] | None = None
) -> CellRunner:
    kept: list[str] = [] if messages is None else messages
    return CellRunner(results, Sources(data), "cpu", 1, listener or Listener(), kept.append)
