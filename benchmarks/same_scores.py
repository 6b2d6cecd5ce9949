"""Whether ``evaluate`` and ``predict`` give the same scores, to the bit, on every question of a data set's test part.

``same_scores.py RUN DATA [--threads N]`` asks the trained model in RUN about the newcomers of DATA twice: many
questions at a time, as evaluation ranks them, and one after the other, as a predictor answers them.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from newcomer.data import load_dataset
from newcomer.evaluation.alignment import AlignedModel, scorer_for
from newcomer.evaluation.ranking import queries_of
from newcomer.graph import InductiveDataset
from newcomer.models.bundle import read_bundle
from newcomer.predictor import Predictor

AT_ONCE = 256


def main() -> None:
    """Ask twice and compare."""
    parser = argparse.ArgumentParser(description="Scores of evaluate and predict, compared to the bit.")
    parser.add_argument("run", type=Path)
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=None)
    given = parser.parse_args()
    dataset, bundle = load_dataset(given.data), read_bundle(given.run)
    different, asked = compare(scorer_for(bundle, dataset, threads=given.threads), Predictor(bundle), dataset)
    print(f"{asked:,} questions, {different:,} with other scores")
    sys.exit(1 if different else 0)


def compare(scorer: AlignedModel, predictor: Predictor, dataset: InductiveDataset) -> tuple[int, int]:
    """How many questions have other scores, and how many there are."""
    queries = queries_of(dataset)
    names = dataset.entities.names_of(np.arange(len(dataset.entities), dtype=np.int32))
    ids = predictor.names.entities.ids(names)
    relations = predictor.names.relations.ids(dataset.relations.names)
    oriented = np.concatenate([relations, relations + len(predictor.names.relations)])
    graph, different = predictor._snapshot.graph, 0
    for start in range(0, len(queries), AT_ONCE):
        entities = queries.entity[start : start + AT_ONCE]
        along = queries.relation[start : start + AT_ONCE]
        rows = scorer.scores(entities, along)
        for row, entity, relation in zip(rows, entities.tolist(), along.tolist(), strict=True):
            own = predictor.engine.scores(graph, int(ids[entity]), int(oriented[relation]))
            different += not np.array_equal(row, own[ids])
    return different, len(queries)


if __name__ == "__main__":
    main()
