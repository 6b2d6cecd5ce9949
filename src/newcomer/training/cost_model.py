"""Whether a processor can afford to learn what paths say, by the operations that would take.

In a sparse graph a few edges lead to a few entities, and only these are worked out
(`newcomer.models.propagation.frontier`); in a dense
one they lead to nearly everyone. So some walks are made, and what learning from such questions takes is compared with
what learning vectors does, which goes by entities, however few edges there are. Where they are sparse, paths are worth
more than all the rest, and so they may take longer than that, but not many times as long.
"""

from collections.abc import Iterator

import numpy as np
import torch

from newcomer.config import Config
from newcomer.graph import Graph, InductiveDataset, Offsets
from newcomer.models.propagation.frontier import walked
from newcomer.models.propagation.network import LAYERS, propagation_edges
from newcomer.training.propagation import BATCH, FURTHER, steps_of

SAMPLED = 64  # questions
LEAST_STEPS = 500  # fewer teach too little
BRIEF = 300.0  # seconds that are no burden in any case
LONGER = 2.0  # times what vectors take
# Seconds of one core for a pair of entity and question, a message, a candidate, and a number of a vector.
A_PAIR, A_MESSAGE, A_CANDIDATE, A_NUMBER = 1.4e-6, 0.5e-6, 5e-9, 0.3e-9


def affords_propagation(dataset: InductiveDataset, config: Config) -> bool:
    """Whether learning paths takes about twice as long as vectors at most, and has enough to learn from."""
    steps = steps_of(len(dataset.observed), config.training.propagation_steps)
    if steps < LEAST_STEPS:
        return False
    both = _has_both_phases(config)
    learning = steps * (1 + FURTHER * both) * BATCH * _a_question(dataset)
    return bool(learning <= max(BRIEF, LONGER * (1 + both) * _vectors(dataset, config)))


def stays_local(observed: Graph, num_entities: int) -> bool:
    """Whether paths come to less than half of everyone: else those who have not heard are not worth telling apart."""
    walks = [entities for entities, _ in _walks(observed, num_entities)]
    return sum(map(len, walks)) < 0.5 * num_entities * len(walks)


def _a_question(dataset: InductiveDataset) -> float:
    """Seconds that one question takes, by the mean of some that are drawn."""
    degrees, total = dataset.observed.degrees, 0.0
    for entities, steps in _walks(dataset.observed, len(dataset.entities)):
        for layer in range(LAYERS):
            total += A_PAIR * np.count_nonzero(steps <= layer + 1) + A_MESSAGE * degrees[entities[steps <= layer]].sum()
    return total / SAMPLED + A_CANDIDATE * len(dataset.entities)


def _walks(observed: Graph, num_entities: int) -> Iterator[tuple[Offsets, Offsets]]:
    """Whom paths from some ends of facts come to, and along how many edges."""
    triples = observed.triples
    heads, relations, tails = torch.from_numpy(triples.rows.astype(np.int64)).unbind(dim=1)
    edges = propagation_edges(heads, relations, tails, observed.num_relations, num_entities)
    drawn = np.random.default_rng(0).integers(len(triples), size=SAMPLED)
    for source in np.where(np.arange(SAMPLED) % 2, triples.heads[drawn], triples.tails[drawn]).tolist():
        yield walked(edges, source, LAYERS, num_entities)


def _vectors(dataset: InductiveDataset, config: Config) -> float:
    """Seconds that learning vectors takes, in one phase."""
    training, everyone = config.training, int(dataset.is_seen.sum())
    compared = (
        min(everyone, training.softmax_negatives or everyone) if config.model.answers_by_input else training.negatives
    )
    return A_NUMBER * training.epochs * len(dataset.observed) * compared * config.model.dim


def _has_both_phases(config: Config) -> bool:
    """Whether a search comes before the final fit."""
    return config.training.validation_rate > 0 and config.training.final_fit
