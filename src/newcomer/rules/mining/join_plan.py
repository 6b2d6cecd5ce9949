"""What is to be counted of candidate rules, in portions that threads can take.

Candidates are turned to their PCA side and sorted, so that the rules that share a body, and the bodies that share a
first atom, come together; each portion's counts are its own, and no thread writes where another does.
"""

import numpy as np

from newcomer.graph import Ids, Mask, Offsets, changes
from newcomer.rules.mining.bodies import Portion, count_edges, count_links, count_several, count_single
from newcomer.rules.mining.index import MiningIndex
from newcomer.rules.rule import Kind, RuleSet


class JoinPlan:
    """Candidates seen from their PCA side, sorted by kind, first atom, second atom and head.

    A *slot* is a run of candidates with one body; a *portion* is a run of slots with one kind and one first atom.
    """

    def __init__(self, candidates: RuleSet, by_tail: Mask) -> None:
        kinds, first, second, heads = _from_pca_side(candidates, by_tail)
        self.order = np.lexsort([heads, second, first, kinds])
        self.kinds, self.first, self.second = kinds[self.order], first[self.order], second[self.order]
        self.heads: Ids = heads[self.order]
        new_portion = changes(self.kinds, self.first)
        self.slot_starts = np.append(np.flatnonzero(new_portion | changes(self.second)), len(self.heads))
        self.portion_slots = np.append(np.flatnonzero(new_portion[self.slot_starts[:-1]]), len(self.slot_starts) - 1)
        self.body = np.zeros(len(self.slot_starts) - 1, dtype=np.int64)
        self.pca = np.zeros(len(self.heads), dtype=np.int64)

    @property
    def portions(self) -> int:
        return len(self.portion_slots) - 1

    def costliest_first(self, relation_sizes: Offsets) -> Offsets:
        """Portions with the most work at the start, so that threads end together."""
        starts = self.slot_starts[self.portion_slots[:-1]]
        work = relation_sizes[self.first[starts]] * np.diff(self.portion_slots)
        return np.argsort(-work, kind="stable")

    def results(self) -> tuple[Offsets, Offsets]:
        """Body size and PCA body size in the order of the candidates."""
        body, pca = np.empty_like(self.pca), np.empty_like(self.pca)
        body[self.order] = np.repeat(self.body, np.diff(self.slot_starts))
        pca[self.order] = self.pca
        return body, pca


def _from_pca_side(candidates: RuleSet, by_tail: Mask) -> tuple[Ids, Ids, Ids, Ids]:
    """Kinds, first atoms, second atoms and oriented heads, turned round where the PCA side is y."""
    turn, size = by_tail[candidates.heads], candidates.num_relations
    first, second = candidates.body1, candidates.body2
    first_back = np.where(first < size, first + size, first - size)
    second_back = np.where(second < size, second + size, second - size)
    chain, single = candidates.kinds == Kind.TWO, candidates.kinds == Kind.ONE
    low, high = np.minimum(first_back, second_back), np.maximum(first_back, second_back)
    turned_first = np.where(chain, second_back, np.where(single, first_back, low))
    turned_second = np.where(chain, first_back, np.where(single, -1, high))
    first, second = np.where(turn, turned_first, first), np.where(turn, turned_second, second)
    return candidates.kinds, first, second, np.where(turn, candidates.heads + size, candidates.heads)


class BodyCounter:
    """One thread's scratch space for counting bodies."""

    def __init__(self, index: MiningIndex, plan: JoinPlan, size: int, entities: int) -> None:
        self.index, self.plan, self.size = index, plan, size
        self.slot_of = np.full(2 * size, -1, dtype=np.int32)
        self.weights = np.zeros(2 * size, dtype=np.int64)
        self.seen = np.zeros(entities, dtype=np.int64)
        self.degree = np.zeros(entities, dtype=np.int32)
        self.stamp = 0

    def count(self, portion: int) -> None:
        """Fill in the plan's figures for one portion; no other portion shares them."""
        plan = self.plan
        slots = slice(plan.portion_slots[portion], plan.portion_slots[portion + 1])
        starts = plan.slot_starts[slots.start : slots.stop + 1]
        rules = slice(starts[0], starts[-1])
        seconds = plan.second[starts[:-1]]
        columns = plan.heads[rules], plan.body[slots], plan.pca[rules]
        rows = Portion(self.slot_of, starts - starts[0], *columns, self.weights)
        kind, first = int(plan.kinds[rules.start]), int(plan.first[rules.start])
        if kind == Kind.ONE:
            count_edges(self.index, first, rows)
            return
        self.slot_of[seconds] = np.arange(len(seconds), dtype=np.int32)
        if kind == Kind.BOTH:
            count_links(self.index, first, rows)
        else:
            count_single(self.index, first, (first + self.size) % (2 * self.size), rows, self.degree)
            self.stamp = count_several(self.index, first, rows, self.seen, self.stamp)
        self.slot_of[seconds] = -1
