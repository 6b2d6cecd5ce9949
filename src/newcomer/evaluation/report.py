"""What is written down of a trained model that was measured on the test part of a data set.

Questions about newcomers make the figures; those about seen entities alone are reported apart (where test has no
newcomer at all, they are the figures). Every figure comes with a bootstrap interval over questions.

A report is a table that JSON can hold. Its first names are fixed: ``task``, ``dataset``, ``model``, ``protocol``,
``filter``, ``candidates``, ``seed`` (that of the training) and ``metrics``, in fractions of 1 but for the mean rank
``mr``. A figure that is no number is null.
"""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from newcomer import __version__
from newcomer.config import Config, config_hash, load_preset
from newcomer.data.cut import CutDataset
from newcomer.errors import check_name
from newcomer.evaluation.breakdown import breakdown
from newcomer.evaluation.measure import (
    CLASSIFICATION,
    RANKING,
    SUGGESTION,
    ClassifiedTest,
    Evaluation,
    RankedTest,
    default_task,
    headline,
    outside_headline,
)
from newcomer.evaluation.metrics import ACCURACY, MEASURED
from newcomer.evaluation.ranking import Queries, RankingProtocol, RankingResult, ceiling
from newcomer.evaluation.reliability import calibration_report
from newcomer.evaluation.suggest import (
    BREAKDOWNS as SUGGESTION_BREAKDOWNS,
)
from newcomer.evaluation.suggest import (
    MODEL,
    SHOWN,
    SuggestionTest,
    by_verb,
    recall_at,
    suggestion_figures,
)
from newcomer.files import fresh_file
from newcomer.graph import Graph, InductiveDataset
from newcomer.models.bundle import RESULT, dataset_hash

Report = dict[str, Any]


def ranking_report(
    evaluation: Evaluation, ranked: RankedTest, by: Sequence[str] = (), full: Graph | None = None, seconds: float = 0.0
) -> Report:
    """The report of a ranking, with the breakdowns named."""
    seed, dataset = evaluation.seed, evaluation.visible
    asked, *others = map(headline, ranked.model)
    report: Report = {
        **_core(evaluation, RANKING, asked.protocol),
        **figures_of(asked, seed),
        "also": next(({**figures_of(one, seed), "breakdowns": breakdown(one, dataset, by)} for one in others), None),
        "seen": [figures_of(rest, seed) for rest in map(outside_headline, ranked.model) if len(rest.queries)],
        "embedding": [figures_of(headline(result), seed) for result in ranked.embedding],
        "rules": [figures_of(headline(result), seed) for result in ranked.rules],
        "ceiling": ceiling_report(dataset, full, asked.queries),
        "ties": asked.protocol.ties,
        "unknown_relation_queries": ranked.unknown,
        "breakdowns": breakdown(asked, dataset, by),
        "calibration": calibration_report(ranked.shown, ranked.probabilities, dataset),
        **_circumstances(evaluation, seconds),
    }
    return json_ready(report)


def figures_of(result: RankingResult, seed: int) -> Report:
    """A ranking's filter, metrics with their intervals, and number of questions."""
    generator = np.random.default_rng(seed)
    return {
        "filter": result.protocol.filter,
        "metrics": result.measured(),
        "intervals": {name: asdict(result.interval(name, generator)) for name in MEASURED},
        "queries": len(result.queries),
    }


def ceiling_report(dataset: InductiveDataset, full: Graph | None, queries: Queries) -> Report | None:
    """What a perfect scorer can expect of these questions under the known filter; None without a full graph."""
    if full is None:
        return None
    return {"filter": "known", "candidates": "seen", "metrics": ceiling(dataset, full, queries=queries)}


def classification_report(
    evaluation: Evaluation, classified: ClassifiedTest, by: Sequence[str] = (), seconds: float = 0.0
) -> Report:
    """The report of a classification; the only breakdown is that by relation."""
    result = classified.result
    report: Report = {
        **_core(evaluation, CLASSIFICATION),
        "metrics": result.metrics(),
        "intervals": {ACCURACY: asdict(result.interval)},
        "queries": len(result.triples),
        "thresholds": evaluation.thresholds_from,
        "made_up_negatives": list(result.made_up),
        "breakdowns": [{"by": "relation", **row} for row in result.by_relation()] if "relation" in by else [],
        "calibration": calibration_report(
            classified.triples, classified.probabilities, evaluation.visible, of_triples=True
        ),
        **_circumstances(evaluation, seconds),
    }
    return json_ready(report)


def suggestion_report(
    evaluation: Evaluation, test: SuggestionTest, by: Sequence[str] = (), seconds: float = 0.0
) -> Report:
    """The report of suggestions: of the model, and of rules and frequency beside it."""
    for name in by:
        check_name("breakdown of suggestions", name, SUGGESTION_BREAKDOWNS)
    found = {name: suggestion_figures(test, suggested) for name, suggested in test.suggested.items()}
    precision, mine = found[MODEL]["metrics"]["precision@0.5"], test.suggested[MODEL]
    others = [
        {"name": name, **figures, "recall_at_same_precision": recall_at(test, test.suggested[name], precision)}
        for name, figures in found.items()
        if name != MODEL and len(test.suggested[name].right)
    ]
    report: Report = {
        **_core(evaluation, SUGGESTION),
        "filter": test.filter,
        "candidates": "all",
        **found[MODEL],
        "verbs": by_verb(test),
        "calibrated": test.calibrated,
        "newcomers": len(test.newcomers),
        "masked": len(evaluation.visible.auxiliary) - len(test.dataset.auxiliary),
        "missing": int(test.missing.sum()),
        "suggested": SHOWN,
        "others": others,
        "breakdowns": [row for name in by for row in SUGGESTION_BREAKDOWNS[name](test, mine)],
        **_circumstances(evaluation, seconds),
    }
    return json_ready(report)


def model_name(config: Config) -> str:
    """The short name in tables: the preset ``default`` by that name, all else by its encoder."""
    encoder = config.model.encoder
    return "default" if config.preset == "default" and encoder == load_preset("default").model.encoder else encoder


def _core(evaluation: Evaluation, task: str, protocol: RankingProtocol | None = None) -> Report:
    config = evaluation.bundle.config
    return {
        "task": task,
        "dataset": evaluation.dataset.name,
        "model": model_name(config),
        "protocol": config.protocol,
        "filter": None if protocol is None else protocol.filter,
        "candidates": None if protocol is None else protocol.candidates,
        "seed": config.seed,
    }


def _circumstances(evaluation: Evaluation, seconds: float) -> Report:
    config, dataset = evaluation.bundle.config, evaluation.visible
    return {
        "known_facts": dataset.summary() if isinstance(dataset, CutDataset) else None,
        "preset": config.preset,
        "encoder": config.model.encoder,
        "decoder": config.model.decoder,
        "trained_on": evaluation.bundle.metrics.get("trained_on"),
        "dataset_sha256": dataset_hash(evaluation.dataset),
        "trained_on_sha256": evaluation.bundle.dataset_hash,
        "config_sha256": config_hash(config),
        "evaluation_seed": evaluation.seed,
        "versions": versions(),
        "device": evaluation.device.type,
        "seconds": round(seconds, 1),
    }


def versions() -> Report:
    """What a figure was calculated with."""
    python, torch_version = platform.python_version(), str(torch.__version__)
    return {"newcomer": __version__, "python": python, "numpy": np.__version__, "torch": torch_version}


def json_ready(report: Mapping[str, Any]) -> Report:
    """The report with null for figures that are no numbers."""
    return {name: _plain(value) for name, value in report.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json_ready(value)
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def result_path(run: Path, task: str, dataset: InductiveDataset) -> Path:
    """Where a report goes: ``result.json`` in the model's folder, or for a task not the data's own a name with it."""
    return run / (RESULT if task == default_task(dataset) else f"{Path(RESULT).stem}-{task}.json")


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """The report as a file that appears whole or not at all; an older one is replaced."""
    with fresh_file(path) as partial:
        partial.write_bytes((json.dumps(report, indent=2, allow_nan=False) + "\n").encode("ascii"))


def write_ranks(result: RankingResult, path: Path) -> None:
    """A row a question, see `RankingResult.to_table`."""
    import pyarrow.parquet as pq

    with fresh_file(path) as partial, partial.open("wb") as file:
        pq.write_table(result.to_table(), file, compression="zstd")
