"""Candidates for (entity, relation, ?) in the order of the rules that reach them.

Nothing is learned here: by itself this is the baseline that every learned model must beat. A rule's strength is its
smoothed confidence, ``support / (body size + 5)``. Candidates that rules do not tell apart, and those that no rule
reaches, can be ordered by how often they are the answer to the same relation in the observed graph.

Rules start at the entity's own facts and go on over those of the entities they come to, as they do for virtual
neighbours (`newcomer.rules.virtual_neighbors`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from newcomer.errors import OptionError, unknown_name
from newcomer.graph import AnswerCounts, Ids, Overlay
from newcomer.rules.grounding import Facts
from newcomer.rules.limits import in_threads
from newcomer.rules.online import OnlineRules, Votes
from newcomer.rules.rule import RuleSet
from newcomer.rules.rule_index import Floats, RuleIndex
from newcomer.rules.voting import collect_votes, lexicographic_scores, noisy_or_scores, rules_of_query

AGGREGATIONS = ("maximum", "noisy-or")


class RuleEvidence(NamedTuple):
    """What rules say of every entity as an answer to one query."""

    scores: Floats  # (entities,): by these they are ordered
    confidence: Floats  # (entities,): of the best rule that reaches each, 0 where none does


@dataclass(frozen=True, eq=False)
class RuleRanker:
    """Rules ready to rank the candidates of a query over any overlay."""

    index: RuleIndex
    aggregation: str = "maximum"
    by_frequency: bool = True

    @classmethod
    def of(cls, rules: RuleSet, aggregation: str = "maximum", by_frequency: bool = True) -> "RuleRanker":
        """Index the rules by smoothed confidence."""
        if aggregation not in AGGREGATIONS:
            raise unknown_name("aggregation", aggregation, AGGREGATIONS)
        return cls(RuleIndex(rules, rules.smoothed_confidence), aggregation, by_frequency)

    def evidence(
        self,
        overlay: Overlay,
        entity: int,
        relation: int,
        online: OnlineRules | None = None,
        facts: Facts | None = None,
    ) -> RuleEvidence:
        """Scores and confidences for (entity, oriented relation, ?), ``online`` rules counted among the others.

        ``facts`` are the entity's own, where they are at hand.
        """
        size = overlay.num_entities
        scores, confidence = np.zeros(size), np.zeros(size)
        votes, strengths = self._votes(overlay, relation, online, facts or Facts.of(overlay, entity))
        if self.aggregation == "maximum":
            lexicographic_scores(votes, scores)
        else:
            noisy_or_scores(votes, strengths, scores)
        confidence[votes[::-1, 0]] = strengths[votes[::-1, 1]]  # the strongest rule comes first, and is written last
        if self.by_frequency:
            self._add_frequencies(answer_row(overlay.base.observed_counts, relation, size), scores)
        return RuleEvidence(scores, confidence)

    def _votes(self, overlay: Overlay, relation: int, online: OnlineRules | None, facts: Facts) -> Votes:
        """All that speaks for a candidate: (candidate, level), strongest first, and the strength of each level."""
        index, edges = self.index, self.index.num_edges
        chosen = rules_of_query(facts, relation, index.by_query, index.walk_offsets, index.edge_offsets, edges)
        chosen = chosen[np.argsort(index.level[index.by_query.row[chosen]], kind="stable")]
        votes = collect_votes(facts, overlay.arrays, index.by_query, chosen, edges, index.level)
        mined = votes, index.strength_of_level
        return mined if online is None else online.added_to(mined, facts.entity, facts.relations, facts.tails)

    def _add_frequencies(self, frequency: Floats, scores: Floats) -> None:
        """Add a share below any difference between rule scores."""
        top = frequency.max(initial=0)
        if top > 0:
            scores += frequency / (top + 1.0) * (1.0 if self.aggregation == "maximum" else 1e-9)


class RuleScorer:
    """Rules alone, asked over one overlay; implements what ranking asks for."""

    def __init__(self, ranker: RuleRanker, overlay: Overlay, threads: int = 1) -> None:
        if threads < 1:
            raise OptionError(f"threads {threads} is not a number of at least 1")
        self.ranker, self.overlay, self.threads = ranker, overlay, threads

    def scores(self, entities: Ids, relations: Ids) -> Floats:
        """One row of scores a query; relation ids from R on ask for heads."""
        rows = np.empty((len(entities), self.overlay.num_entities))

        def fill(row: int) -> None:
            rows[row] = self.ranker.evidence(self.overlay, int(entities[row]), int(relations[row])).scores

        in_threads(fill, range(len(entities)), self.threads)
        return rows


def answer_row(counts: AnswerCounts, relation: int, num_entities: int) -> Floats:
    """(entities,): how often each answers an oriented relation."""
    row, which = np.zeros(num_entities), slice(counts.offsets[relation], counts.offsets[relation + 1])
    row[counts.answers[which]] = counts.counts[which]
    return row
