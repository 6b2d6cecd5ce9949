"""A model's rules at work over overlays: which virtual neighbours they infer, how they rank, and why."""

from dataclasses import dataclass, field

import numpy as np

from newcomer.config import Config, RulesConfig
from newcomer.graph import Base, Ids, Overlay, TripleArray
from newcomer.models.embedding.newcomers import Component
from newcomer.rules.limits import thread_count
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import (
    Grounder,
    NeighborLimits,
    Sought,
    VirtualNeighbors,
    about_those,
    virtual_neighbors,
)

NOBODY = Component(np.empty(0, dtype=np.int32), TripleArray.empty())


@dataclass(frozen=True, eq=False)
class RuleEngine:
    """Rules by their use.

    ``neighbors`` are those that may add virtual neighbours (None: none may), ``reasons`` those that may be named as the
    reason of an answer, ``ranker`` has them all where they are part of an ensemble.
    """

    observed: Overlay  # without any newcomer
    neighbors: Grounder | None
    reasons: Grounder | None
    ranker: RuleRanker | None
    paths: PathLimits | None
    seed: int
    names_newcomers: bool  # rules name newcomers as constants: then any newcomer may be connected to them
    _by_relation: dict[int, Grounder] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: RuleSet, base: Base, config: Config) -> "RuleEngine":
        """The rules of a model, by its settings."""
        neighbors, paths = _inferring(rules, config)
        has_counts = len(rules) > 0 and not bool(np.isnan(rules.smoothed_confidence).all())
        every = Grounder(rules, NeighborLimits(0.0, "smoothed", 1)) if config.model.ensemble and has_counts else None
        constants = np.concatenate([rules.head_constants, rules.body_constants])
        observed = base.without_newcomers()
        return cls(
            Overlay(observed),
            neighbors,
            every or neighbors,
            RuleRanker.of(rules) if config.model.ensemble else None,
            paths,
            config.seed,
            bool((constants >= base.num_seen).any()),
        )

    def virtual_neighbors(self, component: Component, threads: int | None = 1) -> VirtualNeighbors | None:
        """What rules conclude about the newcomers of a component, as far as both ends are known."""
        if self.neighbors is None:
            return None
        return self._grounded(self.neighbors, component.ids, component, self.paths, threads)

    def conclusions(
        self, component: Component | None, entity: int, sought: Sought, paths: bool = True
    ) -> VirtualNeighbors | None:
        """What all rules that may be reasons conclude of what is sought about one entity, seen or of the component.

        Without ``paths`` symmetric paths are not searched for.
        """
        if self.reasons is None:
            return None
        relation = sought.relation % self.reasons.num_relations
        if relation not in self._by_relation:
            rules = self.reasons.rules
            mine = np.flatnonzero(rules.heads % rules.num_relations == relation)
            self._by_relation[relation] = self.reasons.only(mine)
        asked, limits = np.array([entity], dtype=np.int32), self.paths if paths else None
        return self._grounded(self._by_relation[relation], asked, component or NOBODY, limits, sought=sought)

    def has_all_paths(self, component: Component) -> bool:
        """Whether a component's virtual neighbours hold all its symmetric paths, each found from the entity asked."""
        return len(component.ids) == 1 and self.neighbors is not None and self.neighbors.limits.max_per_entity is None

    def _grounded(
        self,
        grounder: Grounder,
        entities: Ids,
        component: Component,
        paths: PathLimits | None,
        threads: int | None = 1,
        sought: Sought | None = None,
    ) -> VirtualNeighbors:
        known = component.ids
        overlay = self.observed.with_delta(component.facts, known[known < self.observed.num_entities])
        found = virtual_neighbors(grounder, overlay, entities, paths, self.seed, thread_count(threads), sought)
        return about_those(found, known, self.observed.num_seen)


def ground(
    rules: RuleSet, overlay: Overlay, entities: Ids, config: Config, threads: int | None
) -> VirtualNeighbors | None:
    """What the rules, and symmetric paths if they are asked for, conclude about these entities from their own facts."""
    grounder, paths = _inferring(rules, config)
    if grounder is None:
        return None
    return virtual_neighbors(grounder, overlay, entities, paths, config.seed, thread_count(threads))


def _inferring(rules: RuleSet, config: Config) -> tuple[Grounder | None, PathLimits | None]:
    """The rules that may add virtual neighbours, and the paths that may; neither where none are wanted."""
    wanted = config.rules
    if config.model.labels == "none" or not (len(rules) or wanted.paths):
        return None, None
    return Grounder(rules, limits_of(wanted)), PathLimits(walks=wanted.walks) if wanted.paths else None


def limits_of(wanted: RulesConfig) -> NeighborLimits:
    """Which rules may add virtual neighbours."""
    return NeighborLimits(
        wanted.min_confidence, wanted.measure, wanted.neighbor_min_support, wanted.min_head_size, wanted.max_per_entity
    )
