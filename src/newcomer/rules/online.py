"""Which relations tie the pairs that a relation ties, too: one-atom rules, counted when they are needed.

Rules are mined from the observed graph, so there are none for a relation that it lacks, and next to none for one that
it has a few times. Yet newcomers bring facts of such relations, and what else ties the ends of these tells as much as
a mined rule would: of the pairs that ``r`` ties, so many are tied by the relation in question.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from newcomer.graph import Ids, Mask, Offsets
from newcomer.rules.compiled import compiled, lower_bound
from newcomer.rules.rule import SMOOTHING, Kind, Rule
from newcomer.rules.rule_index import Floats

SELDOM = 5  # observed facts of a relation, or fewer: then all that is known is counted
Votes = tuple[Ids, Floats]  # (candidate, level) of all that speaks for one, the strongest first; each level's strength


@dataclass(frozen=True, eq=False)
class OnlineRules:
    """For each oriented relation how many pairs it ties, and how many of these the relation in question ties, too."""

    relation: int  # in question, oriented
    support: Offsets  # (2 R,)
    sizes: Offsets  # (2 R,)

    @cached_property
    def confidence(self) -> Floats:
        """(2 R,): as `Rule.smoothed_confidence`."""
        found: Floats = self.support / (self.sizes + SMOOTHING)
        return found

    def beside(self, votes: Votes, entity: int, relations: Ids, tails: Ids) -> Votes:
        """The votes of rules, and those of the entity's facts, each as strong as its relation."""
        says = (self.support[relations] > 0) & (tails != entity)
        candidates = np.concatenate([votes[0][:, 0], tails[says]])
        strengths = np.concatenate([votes[1][votes[0][:, 1]], self.confidence[relations[says]]])
        distinct, levels = np.unique(-strengths, return_inverse=True)
        order = np.argsort(levels, kind="stable")
        return np.stack([candidates, levels], axis=1).astype(np.int32)[order], -distinct

    def rule(self, relation: int) -> Rule:
        """What an oriented relation says, as a rule."""
        size = len(self.support) // 2
        body = relation if self.relation < size else (relation + size) % (2 * size)
        figures = int(self.support[relation]), int(self.sizes[relation])
        return Rule(Kind.ONE, self.relation % size, body, support=figures[0], body_size=figures[1])


@compiled
def _count_between(
    offsets: Offsets, relations: Ids, tails: Ids, head: int, tail: int, size: int, support: Offsets
) -> None:
    """Count every fact of two entities, from the end that has fewer."""
    turned = offsets[tail + 1] - offsets[tail] < offsets[head + 1] - offsets[head]
    one, other = (tail, head) if turned else (head, tail)
    for place in range(offsets[one], offsets[one + 1]):
        if tails[place] == other:
            support[(relations[place] + size) % (2 * size) if turned else relations[place]] += 1


@compiled
def count_online(
    offsets: Offsets,
    relations: Ids,
    tails: Ids,
    away: Mask,
    having: npt.NDArray[np.integer],
    relation: int,
    size: int,
    support: Offsets,
) -> None:
    """Add for each pair that an oriented relation ties all that ties it; ``having`` are the heads of such pairs.

    Those who are ``away`` have no facts, whatever the rows say.
    """
    for head in having:
        if away[head]:
            continue
        end = offsets[head + 1]
        first = lower_bound(relations, offsets[head], end, relation)
        for place in range(first, lower_bound(relations, first, end, relation + 1)):
            if not away[tails[place]]:
                _count_between(offsets, relations, tails, head, tails[place], size, support)
