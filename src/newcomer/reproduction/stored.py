"""Results as files: a JSON file a table of the plans, and in it a row a cell.

A row holds what the page shows of a cell and how it came about: table, data set, model, protocol, seed, figures with
their intervals, epochs and validation of the training, all settings, what differs from the preset, hashes of settings
and data, commit, versions and device. `newcomer evaluate` on the same model reports more than is kept here.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from newcomer.config import SECTIONS, flat_settings, setting_names
from newcomer.data.catalogue import entry, names
from newcomer.errors import InputError, OutputError, one_line, shown
from newcomer.files import fresh_file
from newcomer.reproduction.plans import Cell

Result = dict[str, Any]

KEPT = (
    *("task", "dataset", "model", "protocol", "filter", "candidates", "ties", "seed", "metrics", "queries", "ceiling"),
    *("newcomers", "masked", "missing", "bins_first", "by_k", "verbs"),
    *("thresholds", "made_up_negatives", "counts", "neighbours", "rule_count", "evaluation_seed", "versions", "device"),
)
KEPT_OF_TRAINING = ("epochs", "epochs_run", "epoch_seconds", "resumed", "rules", "virtual_triples", "validation")
UNLINKED = ("evidence", "not linked")  # the breakdown and its group that the page shows
NEGATIVES = "training.softmax_negatives"
FORMER = {"model.propagate_newcomers": True}  # settings there were, and what holds now in their place
INACTIVE_WITHOUT = {  # settings that change nothing while one of these is off
    "training.propagation_steps": ("model.propagation",),
}


def reduced(report: Mapping[str, Any]) -> Result:
    """What is kept of a report of `newcomer.evaluation.report`."""
    row: Result = {name: report[name] for name in KEPT if name in report}
    if "intervals" in report:
        row["intervals"] = _ends(report["intervals"])
    also = report.get("also")
    if also is not None:
        groups = (group for group in also["breakdowns"] if (group["by"], group["group"]) == UNLINKED)
        unlinked = next(({name: group[name] for name in also["metrics"]} for group in groups), None)
        row["also"] = {**_part(also), "unlinked": unlinked}
    for part in ("embedding", "rules"):
        if report.get(part):
            row[part] = [_part(figures) for figures in report[part]]
    for other in report.get("others", ()):
        row[other["name"]] = [{"filter": "known", "metrics": other["metrics"]}]
    if report.get("calibration"):
        errors = {name: part for name, part in report["calibration"].items() if name in ("shown", "first", "triples")}
        row["calibration"] = {n: {e: part[e] for e in ("ece_before", "ece_after")} for n, part in errors.items()}
    return row


def _part(figures: Mapping[str, Any]) -> Result:
    return {"filter": figures["filter"], "metrics": figures["metrics"], "intervals": _ends(figures["intervals"])}


def _ends(intervals: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
    return {metric: [interval["low"], interval["high"]] for metric, interval in intervals.items()}


def read_results(folder: Path) -> list[Result]:
    """All results of a folder, in the order of their names."""
    found = [result for path in folder.glob("*.json") for result in _read_table(path)]
    return sorted(found, key=lambda result: str(result["cell"]))


def read_result(folder: Path, cell: Cell) -> Result | None:
    """The result of a cell; None where there is none."""
    results = _read_table(folder / f"{cell.table}.json")
    return next((result for result in results if result["cell"] == cell.name), None)


def write_result(result: Result, folder: Path) -> None:
    """Put a result into the file of its table, in place of an older one of the same cell."""
    path = folder / f"{result['table']}.json"
    with _locked(folder):
        rows = {row["cell"]: row for row in _read_table(path)}
        rows[result["cell"]] = result
        lines = (json.dumps(rows[name], ensure_ascii=False, allow_nan=False) for name in sorted(rows))
        with fresh_file(path) as partial:
            partial.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time: the files hold the results of many cells, which may be run side by side."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}); choose another --results") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read_table(path: Path) -> list[Result]:
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        hint = "delete it and run the table again"
        raise InputError(path, f"is no file of results ({one_line(error)})", hint=hint) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.get("table") == path.stem for row in rows):
        raise InputError(path, "is no file of results of a table of this name", hint="move it elsewhere")
    for row in rows:
        _check_ends(path, row)
    return rows


def _check_ends(path: Path, row: Result) -> None:
    """Refuse an interval that has not two ends, such as only a file has that was changed by hand."""
    for figures in (row, *(part for part in row.values() if isinstance(part, dict))):
        intervals = figures.get("intervals", {})
        pairs = intervals.items() if isinstance(intervals, dict) else [("all figures", intervals)]
        for metric, ends in pairs:
            if not (isinstance(ends, list) and len(ends) == 2):
                problem = f"the interval of {metric} in {row.get('cell')} is {shown(ends)}, but must have two ends"
                raise InputError(path, problem, hint="delete the file and run the table again")


def changed_settings(stored: Result, cell: Cell) -> str:
    """In words which settings of a result are not those of the cell now; empty where all are."""
    if stored.get("config_sha256") == cell.settings_hash:
        return ""
    then, now = (_effective(one, cell.dataset) for one in (stored.get("settings", {}), cell.settings))
    differing = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    more = ", ..." if len(differing) > 4 else ""
    return f"it was run with other settings ({', '.join(differing[:4])}{more})" if differing else ""


def _effective(settings: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """Settings by their full names, without those that change nothing, or that this version does not have."""
    settings, named = FORMER | flat_settings(settings), {*setting_names(), *FORMER}
    found = {
        name: value
        for name, value in settings.items()
        if (name in named or name.partition(".")[0] not in SECTIONS)
        and all(settings.get(needed) is not False for needed in INACTIVE_WITHOUT.get(name, ()))
    }
    entities = entry(dataset).entities if dataset in names() else None
    if entities is not None and (found.get(NEGATIVES) or entities) >= entities:
        found.pop(NEGATIVES, None)  # all entities, however many more were asked for
    return found
