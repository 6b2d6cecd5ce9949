"""Virtual neighbours as the settings ask for them."""

import numpy as np

from newcomer.config import Config, RulesConfig
from newcomer.graph import Graph, Ids, Overlay
from newcomer.graph.types import seen_count
from newcomer.rules.limits import thread_count
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import NeighborLimits, VirtualNeighbors, virtual_neighbors


def ground_seen(rules: RuleSet, observed: Graph, config: Config, threads: int | None = None) -> VirtualNeighbors | None:
    """What the rules conclude about the seen entities, from observed facts."""
    seen = np.arange(seen_count(observed), dtype=np.int32)
    return ground(rules, Overlay.of(observed), seen, config, threads)


def ground(
    rules: RuleSet, overlay: Overlay, entities: Ids, config: Config, threads: int | None
) -> VirtualNeighbors | None:
    """What the rules, and symmetric paths if they are asked for, conclude about these entities from their own facts."""
    wanted = config.rules
    if config.model.labels == "none" or not (len(rules) or wanted.paths):
        return None
    paths = PathLimits(walks=wanted.walks) if wanted.paths else None
    return virtual_neighbors(rules, overlay, entities, limits_of(wanted), paths, config.seed, thread_count(threads))


def limits_of(wanted: RulesConfig) -> NeighborLimits:
    """Which rules may add virtual neighbours."""
    return NeighborLimits(
        wanted.min_confidence,
        wanted.measure,
        wanted.neighbor_min_support,
        wanted.min_head_size,
        wanted.max_per_entity,
    )
