"""Results as files: one JSON object a cell, found by name."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from newcomer.config import flat_settings
from newcomer.data.catalogue import entry, names
from newcomer.errors import InputError
from newcomer.reproduction.plans import Cell

Result = dict[str, Any]
RIVALS = "training.softmax_negatives"
IDLE_WITHOUT = {  # what a setting does nothing without
    "training.propagation_steps": ("model.propagation",),
    "model.propagate_newcomers": ("model.propagation", "model.graph_statistics"),
}


def read_results(folder: Path) -> Iterator[Result]:
    """All results of a folder, in the order of their names."""
    for path in sorted(folder.glob("*.json")):
        yield read_result(path)


def read_result(path: Path) -> Result:
    """The result of a cell."""
    try:
        report = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(path, f"is no result of a cell ({reason})", hint="delete it and run the cell again") from None
    if not isinstance(report, dict) or report.get("cell") != path.stem:
        raise InputError(path, "is no result of a cell of this name", hint="move it elsewhere")
    return report


def changed_settings(stored: Result, cell: Cell) -> str:
    """In words what a result was made with that is not so of the cell now."""
    if stored.get("config_sha256") == cell.settings_hash:
        return _other_verdicts(stored, cell)
    both = stored.get("settings", {}), cell.settings
    then, now = (_that_matter(flat_settings(one), cell.dataset) for one in both)
    differing = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    if not differing and "settings" in stored:
        return _other_verdicts(stored, cell)
    return f"it was run with other settings ({', '.join(differing[:4])}{', ...' if len(differing) > 4 else ''})"


def _other_verdicts(stored: Result, cell: Cell) -> str:
    """Whether a network's triples were true by their scores, before they were by its probabilities."""
    by_scores = stored.get("thresholds") == "newcomers" and not stored.get("made_up_negatives")
    is_network = cell.config is not None and not cell.config.model.triple_classifier
    return "verdicts were by scores, where a network's are by probabilities now" if by_scores and is_network else ""


def _that_matter(settings: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """Settings by their full names, without those that change nothing."""
    found = {
        name: value
        for name, value in settings.items()
        if all(settings.get(needed) is not False for needed in IDLE_WITHOUT.get(name, ()))
    }
    known = entry(dataset).entities if dataset in names() else None
    if known is not None and (found.get(RIVALS) or known) >= known:  # everyone, however many more there might be
        found.pop(RIVALS, None)
    return found
