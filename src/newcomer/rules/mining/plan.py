"""Which rules mining looks for and keeps, and what it found."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from newcomer.errors import OptionError, shown
from newcomer.graph import Ids
from newcomer.rules.limits import require_caps, require_counts, require_shares
from newcomer.rules.rule import Kind, RuleSet, Shares

Progress = Callable[[int, int], None]  # (done, total), called by one thread at a time
HORN_KINDS = (Kind.ONE, Kind.TWO, Kind.BOTH)


@dataclass(frozen=True)
class MiningPlan:
    """Which kinds of rules to mine, and which rules to keep.

    Head coverage is asked of rules of one and two atoms (`HORN_KINDS`) only: a rule with a constant explains few of its
    relation's facts by nature. Such rules, and chains of three atoms, need a standard confidence of ``SIDE_CONFIDENCE``
    at least: there are millions of weaker ones. ``max_constants`` keeps so many rules with constants, the best by
    smoothed confidence; ``max_rules`` so many of all, the best by PCA confidence. ``samples`` is for chains.

    ``memory_limit`` (bytes) bounds the tables of counts and the candidates held at once, not the graph nor the result:
    head relations are then mined in batches. ``time_limit`` (seconds) is looked at between head relations; relations
    that are not finished are left out.
    """

    kinds: tuple[Kind, ...] = HORN_KINDS
    min_support: int = 2
    min_head_coverage: float = 0.01
    min_confidence: float = 0.0
    min_pca: float = 0.0
    min_head_size: int = 1
    max_rules: int | None = None
    max_constants: int | None = None
    memory_limit: int | None = None
    time_limit: float | None = None
    samples: int = 20_000_000

    SIDE_CONFIDENCE = 0.05

    def __post_init__(self) -> None:
        if not self.kinds:
            raise OptionError("no kind of rule is asked for; give at least one")
        if wrong := [kind for kind in self.kinds if kind not in tuple(Kind)]:
            raise OptionError(f"{shown(wrong[0])} is no kind of rule; give some of {', '.join(k.name for k in Kind)}")
        require_counts(self, "min_support", "min_head_size", "samples")
        require_shares(self, "min_head_coverage", "min_confidence", "min_pca")
        require_caps(self, "max_rules", "max_constants", "memory_limit", "time_limit")

    def chosen(self, kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
        """Those of ``kinds`` that the plan asks for."""
        return tuple(kind for kind in kinds if kind in self.kinds)


@dataclass(frozen=True, eq=False)
class MiningResult:
    """The rules in canonical order; which head relations were mined to the end; how long it took."""

    rules: RuleSet
    complete_relations: Ids
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every head relation was mined to the end."""
        return len(self.complete_relations) == self.rules.num_relations


def best_rows(most: int, confidence: Shares, support: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """At most so many rows, ascending: the best by confidence, then support, then the order they are in."""
    return np.sort(np.lexsort([-support, -confidence])[:most])
