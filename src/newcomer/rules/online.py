"""Online rules: one-atom rules of a rare relation, counted over all known facts when they are needed.

Rules are mined from the observed graph, so there are none for a relation that it lacks, and next to none for one that
it has a few times. Newcomers bring facts of such relations, and another relation between the same two entities is
evidence as much as a mined rule would be: of the pairs that ``r`` joins, so many are joined by the relation asked.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from newcomer.graph import Adjacency, Ids, Mask, Offsets
from newcomer.rules.compiled import compiled, edges_of, inverse_of
from newcomer.rules.rule import SMOOTHING, Kind, Rule
from newcomer.rules.rule_index import Floats

RARE = 5  # observed facts of a relation, or fewer: then rules are counted over all known facts
Votes = tuple[Ids, Floats]  # (candidate, level) of all that speaks for one, the strongest first; each level's strength


@dataclass(frozen=True, eq=False)
class OnlineRules:
    """For each oriented relation the pairs it joins, and how many of these the relation asked joins too."""

    relation: int  # asked, oriented
    support: Offsets  # (2 R,)
    sizes: Offsets  # (2 R,)

    @cached_property
    def confidence(self) -> Floats:
        """(2 R,): as `Rule.smoothed_confidence`."""
        found: Floats = self.support / (self.sizes + SMOOTHING)
        return found

    def added_to(self, votes: Votes, entity: int, relations: Ids, tails: Ids) -> Votes:
        """The votes of mined rules, and those of the entity's own facts, each as strong as its relation."""
        votes_for = (self.support[relations] > 0) & (tails != entity)
        candidates = np.concatenate([votes[0][:, 0], tails[votes_for]])
        strengths = np.concatenate([votes[1][votes[0][:, 1]], self.confidence[relations[votes_for]]])
        distinct, levels = np.unique(-strengths, return_inverse=True)
        order = np.argsort(levels, kind="stable")
        return np.stack([candidates, levels], axis=1).astype(np.int32)[order], -distinct

    def rule(self, relation: int) -> Rule:
        """The rule of which an oriented relation is the body."""
        size = len(self.support) // 2
        body = relation if self.relation < size else (relation + size) % (2 * size)
        figures = int(self.support[relation]), int(self.sizes[relation])
        return Rule(Kind.ONE, self.relation % size, body, support=figures[0], body_size=figures[1])


@compiled
def _count_between(rows: Adjacency, head: int, tail: int, size: int, support: Offsets) -> None:
    """Count every fact of two entities, from the end that has fewer."""
    offsets, relations = rows.offsets, rows.relations
    turned = offsets[tail + 1] - offsets[tail] < offsets[head + 1] - offsets[head]
    one, other = (tail, head) if turned else (head, tail)
    for place in range(offsets[one], offsets[one + 1]):
        if rows.tails[place] == other:
            support[inverse_of(relations[place], size) if turned else relations[place]] += 1


@compiled
def count_online(rows: Adjacency, removed: Mask, heads: Ids, relation: int, size: int, support: Offsets) -> None:
    """Add for each pair that an oriented relation joins all that joins it; ``heads`` are those of such pairs.

    The rows of ``removed`` entities do not count, nor do edges that lead to them.
    """
    for head in heads:
        if removed[head]:
            continue
        first, end = edges_of(rows.offsets, rows.relations, head, relation)
        for tail in rows.tails[first:end]:
            if not removed[tail]:
                _count_between(rows, head, tail, size, support)
