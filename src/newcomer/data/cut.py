"""Newcomers with fewer known facts: how does a model do when each comes with one fact, or two, or three?

Every newcomer keeps at most so many of its auxiliary facts. They are drawn in rounds, over all facts in one random
order: in the first round a fact stays if it is the first one of its newcomer, in the second if it is the second one,
and so on. A fact that ties two newcomers counts for both, and stays if there is room at both. So

    * nobody keeps more, and no fact could be put back without giving somebody more; one who is tied to newcomers only
      may keep fewer, or none
    * who keeps two facts has the one among them that would be kept of one
    * the draw follows from names, number and seed: not from ids, nor from who is asked

What is withheld is not known, yet still true: it is no wrong answer, and the filter of a ranking has it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from newcomer.errors import DatasetError, OptionError
from newcomer.graph import Graph, Ids, InductiveDataset, Mask, Offsets, TripleArray, Vocabulary, concatenate


@dataclass(frozen=True)
class FactsCut:
    """How many auxiliary facts every newcomer keeps at most, and the seed they are drawn by."""

    most: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.most < 1:
            raise OptionError(f"a cut to {self.most} known facts leaves nothing to answer from; keep at least 1")
        if self.seed < 0:
            raise OptionError(f"seed {self.seed} is not a number of at least 0")

    def of(self, dataset: InductiveDataset) -> "CutDataset":
        """The data set with every newcomer cut."""
        if len(dataset.newcomers) == 0:
            raise DatasetError(f"{dataset.name} has no newcomers whose facts could be cut; leave out --known-facts")
        left = WithheldDataset.without(dataset, ~_kept(dataset, self))
        return CutDataset(left.name, left.observed, left.auxiliary, left.valid, left.test, left.withheld, self)


@dataclass(frozen=True, eq=False)
class WithheldDataset(InductiveDataset):
    """A data set without some of the auxiliary facts it was read with."""

    withheld: TripleArray

    @classmethod
    def without(cls, dataset: InductiveDataset, withheld: Mask) -> "WithheldDataset":
        """The data set without these of its auxiliary facts."""
        facts = dataset.auxiliary.triples
        auxiliary = Graph.build(dataset.entities, dataset.relations, facts.take(~withheld))
        gone = facts.take(withheld)
        if isinstance(dataset, WithheldDataset):
            gone = concatenate([dataset.withheld, gone])
        return cls(dataset.name, dataset.observed, auxiliary, dataset.valid, dataset.test, gone)

    def known(self) -> Graph:
        """Everything stated anywhere in the data set as it was read."""
        everything = concatenate([super().known().triples, self.withheld])
        return Graph.build(self.entities, self.relations, everything)


@dataclass(frozen=True, eq=False)
class CutDataset(WithheldDataset):
    """A data set whose newcomers were cut."""

    cut: FactsCut

    def summary(self) -> dict[str, int]:
        """What a report says of it."""
        return {**asdict(self.cut), "kept": len(self.auxiliary), "withheld": len(self.withheld)}


def cut_in_words(summary: Mapping[str, int] | None) -> str:
    """What a title says of newcomers that are cut: nothing where they are not."""
    if summary is None:
        return ""
    return f", newcomers cut to {summary['most']:,} known {'fact' if summary['most'] == 1 else 'facts'}"


def _kept(dataset: InductiveDataset, cut: FactsCut) -> Mask:
    facts, seen = dataset.auxiliary.triples, dataset.is_seen
    # The newcomers at the two ends; where there is one alone, it stands in both columns.
    first = np.where(seen[facts.heads], facts.tails, facts.heads)
    second = np.where(seen[facts.tails], facts.heads, facts.tails)
    kept: Mask = seen[first]  # facts about seen entities alone
    is_tied = np.zeros(len(dataset.entities), dtype=bool)
    is_tied[first[first != second]] = is_tied[second[first != second]] = True
    order = _by_name(dataset)[np.random.default_rng(cut.seed).permutation(len(facts))]
    order = order[~kept[order]]
    tied, alone = order[is_tied[first[order]]], order[~is_tied[first[order]]]
    kept[_in_rounds(tied, first, second, cut.most)] = True
    kept[_first_of_each(alone, first, cut.most)] = True
    return kept


def _in_rounds(order: Offsets, first: Ids, second: Ids, most: int) -> list[int]:
    """Which of these facts stay, by the rule itself."""
    has: Counter[int] = Counter()
    kept, waiting = [], list(zip(order.tolist(), first[order].tolist(), second[order].tolist(), strict=True))
    for limit in range(1, most + 1):
        if not waiting:
            break
        passed = []
        for fact, one, other in waiting:
            if has[one] < limit and has[other] < limit:
                kept.append(fact)
                has.update({one, other})
            else:
                passed.append((fact, one, other))
        waiting = passed
    return kept


def _first_of_each(order: Offsets, owner: Ids, most: int) -> Offsets:
    """The same where no fact ties two newcomers, which is quick: each keeps the first of its own."""
    grouped = order[np.argsort(owner[order], kind="stable")]
    starts = np.searchsorted(owner[grouped], owner[grouped])
    chosen: Offsets = grouped[np.arange(len(grouped)) - starts < most]
    return chosen


def _by_name(dataset: InductiveDataset) -> Offsets:
    """The places of the auxiliary facts in the order of their names: ids depend on how a data set was read."""
    facts, entities, relations = dataset.auxiliary.triples, _places(dataset.entities), _places(dataset.relations)
    order: Offsets = np.lexsort((entities[facts.tails], relations[facts.relations], entities[facts.heads]))
    return order


def _places(names: Vocabulary) -> npt.NDArray[np.integer]:
    """The place of each name in the order of all."""
    return np.argsort(pc.sort_indices(names.names).to_numpy())
