"""A model's rules at work over overlays: which virtual neighbours they infer, how they rank, and why."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from newcomer.config import Config
from newcomer.graph import Base, Ids, Overlay, TripleArray
from newcomer.models.embedding.newcomers import Component
from newcomer.models.grounding import limits_of
from newcomer.rules.limits import thread_count
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.ranking import RuleRanker
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import Grounder, NeighborLimits, VirtualNeighbors, about_those, gather


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
        wanted = config.rules
        infers = config.model.labels != "none" and bool(len(rules) or wanted.paths)
        neighbors = Grounder(rules, limits_of(wanted)) if infers else None
        has_counts = len(rules) > 0 and not bool(np.isnan(rules.smoothed_confidence).all())
        every = Grounder(rules, NeighborLimits(0.0, "smoothed", 1)) if config.model.ensemble and has_counts else None
        constants = np.concatenate([rules.head_constants, rules.body_constants])
        observed = base.without_newcomers()
        return cls(
            Overlay(observed),
            neighbors,
            every or neighbors,
            RuleRanker.of(rules) if config.model.ensemble else None,
            PathLimits(walks=wanted.walks) if infers and wanted.paths else None,
            config.seed,
            bool((constants >= base.num_seen).any()),
        )

    def virtual_neighbors(self, component: Component, threads: int | None = 1) -> VirtualNeighbors | None:
        """What rules conclude about the newcomers of a component, as far as both ends are known."""
        if self.neighbors is None:
            return None
        return self._grounded(self.neighbors, component.facts, component.ids, component, self.paths, threads)

    def conclusions(
        self, component: Component | None, entity: int, relation: int, paths: bool = True
    ) -> VirtualNeighbors | None:
        """What all rules for a relation that may be reasons conclude about one entity, seen or of the component.

        Without ``paths`` symmetric paths are not searched for.
        """
        if self.reasons is None:
            return None
        grounder = self._by_relation.get(relation)
        if grounder is None:
            rows, offsets = self._by_conclusion
            mine = rows[offsets[relation] : offsets[relation + 1]]
            grounder = self._by_relation[relation] = self.reasons.only(mine)
        facts = TripleArray.empty() if component is None else component.facts
        limits = self.paths if paths else None
        return self._grounded(grounder, facts, np.array([entity], dtype=np.int32), component, limits, relation=relation)

    def has_all_paths(self, component: Component) -> bool:
        """Whether a component's virtual neighbours hold all its symmetric paths, each found from the entity asked."""
        return len(component.ids) == 1 and self.neighbors is not None and self.neighbors.limits.max_per_entity is None

    @cached_property
    def _by_conclusion(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The reasons by the relation they conclude, and where each relation's begin."""
        rules = RuleSet.empty(self.observed.num_relations) if self.reasons is None else self.reasons.rules
        concluded = rules.heads % max(rules.num_relations, 1)
        rows = np.argsort(concluded, kind="stable")
        return rows, np.searchsorted(concluded[rows], np.arange(rules.num_relations + 1))

    def _grounded(
        self,
        grounder: Grounder,
        facts: TripleArray,
        entities: Ids,
        component: Component | None,
        paths: PathLimits | None,
        threads: int | None = 1,
        relation: int | None = None,
    ) -> VirtualNeighbors:
        known = np.empty(0, dtype=np.int32) if component is None else component.ids
        overlay = self.observed.with_delta(facts, known[known < self.observed.num_entities])
        found = gather(grounder, overlay, entities, paths, self.seed, thread_count(threads), relation)
        return about_those(found, known, self.observed.num_seen)
