"""Whether a CPU can afford to train propagation, by the operations that would take.

In a sparse graph few entities are near a source, and only these are worked out (`newcomer.models.propagation.cpu`); in
a dense one nearly all are. So the distances from a sample of sources are found, and what training on such queries takes
is compared with what training the embeddings does, which goes by entities, however few edges there are. In a sparse
graph propagation is worth more than all the rest, and so it may take longer than that, but not many times as long.
"""

from collections.abc import Iterator

import numpy as np
import torch

from newcomer.config import Config
from newcomer.graph import Graph, InductiveDataset
from newcomer.models.propagation.cpu import distances
from newcomer.models.propagation.edges import Ids, propagation_edges
from newcomer.models.propagation.network import LAYERS
from newcomer.training.propagation import BATCH, WARM_STEPS, num_steps

SAMPLE = 64  # sources
MIN_STEPS = 500  # fewer teach too little
CHEAP = 300.0  # seconds that are no burden in any case
MAX_RATIO = 2.0  # of the seconds for propagation to those for embeddings
# Seconds of one core for a pair of entity and query, a message, a candidate, and a number of a vector.
PAIR, MESSAGE, CANDIDATE, NUMBER = 1.4e-6, 0.5e-6, 5e-9, 0.3e-9


def affords_propagation(dataset: InductiveDataset, config: Config) -> bool:
    """Whether training it takes about twice as long as the embeddings at most, and has enough to learn from."""
    steps = num_steps(len(dataset.observed), config.training.propagation_steps)
    if steps < MIN_STEPS:
        return False
    both = config.training.validation_rate > 0 and config.training.final_fit  # a search before the final fit
    seconds = steps * (1 + WARM_STEPS * both) * BATCH * _query_seconds(dataset)
    return bool(seconds <= max(CHEAP, MAX_RATIO * (1 + both) * _embedding_seconds(dataset, config)))


def frontier_stays_local(observed: Graph, num_entities: int) -> bool:
    """Whether messages reach less than half of all entities: else a sparse network is no cheaper."""
    reached = sum(np.count_nonzero(found <= LAYERS) for found in _sampled_distances(observed, num_entities))
    return bool(reached < 0.5 * num_entities * SAMPLE)


def _query_seconds(dataset: InductiveDataset) -> float:
    """Seconds that training on one query takes, by the mean of a sample."""
    degrees, total = dataset.observed.degrees, 0.0
    for found in _sampled_distances(dataset.observed, len(dataset.entities)):
        for layer in range(LAYERS):
            messages = degrees[np.flatnonzero(found <= layer)].sum()
            total += PAIR * np.count_nonzero(found <= layer + 1) + MESSAGE * messages
    return total / SAMPLE + CANDIDATE * len(dataset.entities)


def _sampled_distances(observed: Graph, num_entities: int) -> Iterator[Ids]:
    """How far all entities are from some ends of facts."""
    triples = observed.triples
    heads, relations, tails = torch.from_numpy(triples.rows.astype(np.int64)).unbind(dim=1)
    edges = propagation_edges(heads, relations, tails, observed.num_relations, num_entities)
    drawn = np.random.default_rng(0).integers(len(triples), size=SAMPLE)
    for source in np.where(np.arange(SAMPLE) % 2, triples.heads[drawn], triples.tails[drawn]).tolist():
        yield distances([edges], source, LAYERS, num_entities)


def _embedding_seconds(dataset: InductiveDataset, config: Config) -> float:
    """Seconds that training the embeddings takes, in one phase."""
    training, seen = config.training, int(dataset.is_seen.sum())
    compared = min(seen, training.softmax_negatives or seen) if config.model.answers_by_input else training.negatives
    return NUMBER * training.epochs * len(dataset.observed) * compared * config.model.dim
