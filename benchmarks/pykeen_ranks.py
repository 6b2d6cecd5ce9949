"""PyKEEN's evaluator on embeddings from files; `bench_evaluation` runs it with an interpreter that has PyKEEN.

    PYTHON benchmarks/pykeen_ranks.py FOLDER THREADS

FOLDER holds ``entities.npy`` and ``relations.npy`` (DistMult embeddings), ``known.npy`` (the filter) and one or both of
``tail.npy`` and ``head.npy`` (the triples whose tails and heads are asked for). For every number read, a batch size,
all of them are ranked once, and a line of JSON says how long that took and what the mean reciprocal ranks are.
"""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ERModel
from pykeen.nn.init import PretrainedInitializer
from pykeen.nn.modules import DistMultInteraction
from pykeen.triples import CoreTriplesFactory

logging.disable(logging.WARNING)  # about automatic batch sizes, which are not used
TIES = {"mean": "realistic", "optimistic": "optimistic", "pessimistic": "pessimistic"}
# What `RankingResult.metrics` gives too; by default PyKEEN adds some thirty others.
METRICS = ("mean_rank", "mean_reciprocal_rank", "hits_at_k", "hits_at_k", "hits_at_k", "adjusted_mean_rank_index")
METRIC_OPTIONS: tuple[dict[str, int], ...] = ({}, {}, {"k": 1}, {"k": 3}, {"k": 10}, {})


def distmult(folder: Path, known: torch.Tensor) -> Any:
    vectors = {name: torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("entities", "relations")}
    counts = {f"num_{name}": len(rows) for name, rows in vectors.items()}

    def options(name: str) -> dict[str, Any]:
        return {"shape": vectors[name].shape[1:], "initializer": PretrainedInitializer(vectors[name])}

    return ERModel(
        triples_factory=CoreTriplesFactory(known, **counts),
        interaction=DistMultInteraction,
        entity_representations_kwargs=options("entities"),
        relation_representations_kwargs=options("relations"),
    ).eval()


def ranked(model: Any, asked: dict[str, torch.Tensor], known: torch.Tensor, batch_size: int) -> dict[str, float]:
    """Mean reciprocal ranks over all queries, of whatever side."""
    sums = dict.fromkeys(TIES, 0.0)
    for side, triples in asked.items():
        evaluator = RankBasedEvaluator(metrics=METRICS, metrics_kwargs=METRIC_OPTIONS, add_defaults=False)
        result = evaluator.evaluate(
            model,
            triples,
            batch_size=batch_size,
            additional_filter_triples=known,
            targets=(side,),
            use_tqdm=False,
        )
        for ties, name in TIES.items():
            sums[ties] += len(triples) * result.get_metric(f"{side}.{name}.mean_reciprocal_rank")
    total = sum(map(len, asked.values()))
    return {ties: value / total for ties, value in sums.items()}


def main() -> None:
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    known = torch.from_numpy(np.load(folder / "known.npy"))
    files = {side: folder / f"{side}.npy" for side in ("tail", "head")}
    asked = {side: torch.from_numpy(np.load(path)) for side, path in files.items() if path.exists()}
    model = distmult(folder, known)
    for line in sys.stdin:
        start = time.perf_counter()
        found = ranked(model, asked, known, int(line))
        print(json.dumps({"seconds": time.perf_counter() - start, **found}), flush=True)


if __name__ == "__main__":
    main()
