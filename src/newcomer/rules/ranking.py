"""The rule-only predictor: candidates for (entity, relation, ?) ordered by the rules that reach them.

It learns nothing and is the baseline that every learned model must beat. A rule's strength is its smoothed confidence,
``support / (body size + 5)``. Candidates that rules do not tell apart, and those that no rule reaches, can be ordered
by how often they are the answer to the same relation in the observed graph.

Rules start at the entity's own facts and walk on over those of the entities they come to, as they do for virtual
neighbours (`newcomer.rules.virtual_neighbors`).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from newcomer.errors import OptionError, unknown_name
from newcomer.graph import Adjacency, Graph, Ids, Offsets
from newcomer.rules.frequencies import Frequencies
from newcomer.rules.grounding import candidate_rules
from newcomer.rules.online import OnlineRules, Votes
from newcomer.rules.rule import RuleSet
from newcomer.rules.rule_index import Floats, RuleIndex, Surroundings, surroundings
from newcomer.rules.similarity import Company
from newcomer.rules.voting import collect_votes, lexicographic_scores, noisy_or_scores

Counted = Callable[[int], OnlineRules | None]  # for an oriented relation that hardly has rules, what stands beside them
AGGREGATIONS = ("maximum", "noisy-or")


@dataclass(frozen=True, eq=False)
class Evidence:
    """What rules, and plain counts beside them, say of every entity as an answer; a row a query."""

    scores: Floats  # that order them
    confidence: Floats  # of the best rule that reaches each, 0 where none does
    linked: Floats  # 1 where the entity asked about is already tied to it, whatever by
    frequency: Floats  # how often it answers the same relation in the observed graph, or in all that is known
    unseen: Floats  # 1 where it does not occur in the observed graph at all
    facts: Floats  # (queries,) how many facts tell of the entity asked about
    likeness: Floats | None = None  # to the answers that are known already, where all that is known is heard


@dataclass(frozen=True, eq=False)
class RuleRanker:
    """Scores every entity as an answer: rules walk over ``facts``, frequencies are those of the observed graph.

    With ``company``, what stands beside the scores is of all that is known, and ``ties`` counted there speak beside the
    rules of a relation that was seldom observed.
    """

    index: RuleIndex
    facts: Adjacency
    world: Surroundings
    frequencies: Frequencies
    aggregation: str = "maximum"
    by_frequency: bool = True
    threads: int = 1
    company: Company | None = None
    ties: Counted | None = None

    @classmethod
    def build(
        cls,
        rules: RuleSet,
        facts: Adjacency,
        observed: Graph,
        aggregation: str = "maximum",
        by_frequency: bool = True,
        threads: int = 1,
        company: Company | None = None,
    ) -> "RuleRanker":
        """Index the rules by smoothed confidence and the graph for walking."""
        if aggregation not in AGGREGATIONS:
            raise unknown_name("aggregation", aggregation, AGGREGATIONS)
        if threads < 1:
            raise OptionError(f"threads {threads} is not a number of at least 1")
        index = RuleIndex(rules, rules.smoothed_confidence)
        world = surroundings(facts, rules.num_relations)
        ties = None if company is None else company.ties
        return cls(index, facts, world, Frequencies.of(observed), aggregation, by_frequency, threads, company, ties)

    def scores(self, entities: Ids, relations: Ids) -> Floats:
        """One row of scores a query; relation ids from R on ask for heads."""
        return self._scores(entities, relations, None, None)

    def _scores(self, entities: Ids, relations: Ids, confidence: Floats | None, frequency: Floats | None) -> Floats:
        """The scores; what stands behind them is written into the other tables where these are given."""
        rows = np.zeros((len(entities), self.frequencies.num_entities))
        shares = np.array_split(np.arange(len(entities), dtype=np.int32), min(self.threads, max(len(entities), 1)))

        def work(share: Ids) -> None:
            self._fill(entities, relations, share, rows, confidence, frequency)

        if len(shares) == 1:
            work(shares[0])
            return rows
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(work, shares))
        return rows

    def evidence(self, entities: Ids, relations: Ids) -> Evidence:
        """The scores, and what stands behind them."""
        shape = len(entities), self.frequencies.num_entities
        confidence, linked, frequency = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        facts = np.zeros(len(entities))
        for row, entity in enumerate(entities.tolist()):
            tied = self.facts.of(entity)[1]
            linked[row, tied], facts[row] = 1.0, len(tied)
        scores = self._scores(entities, relations, confidence, frequency)
        unseen = np.broadcast_to(self.frequencies.unseen(), shape)
        found = Evidence(scores, confidence, linked, frequency, unseen, facts)
        return found if self.company is None else self._in_company(found, entities, relations, self.company)

    def _in_company(self, found: Evidence, entities: Ids, relations: Ids, company: Company) -> Evidence:
        """The evidence, with what all that is known says."""
        frequency, likeness = np.empty_like(found.frequency), np.empty_like(found.frequency)
        first: dict[tuple[int, int], int] = {}  # where a question stands that is asked again
        for row, asked in enumerate(zip(entities.tolist(), relations.tolist(), strict=True)):
            before = first.setdefault(asked, row)
            if before < row:
                frequency[row], likeness[row] = frequency[before], likeness[before]
                continue
            entity, relation = asked
            own_relations, own_tails = self.facts.of(entity)
            frequency[row] = company.answered(relation)
            likeness[row] = company.likeness(entity, own_tails[own_relations == relation])
        return replace(found, frequency=frequency, likeness=likeness)

    def _fill(
        self,
        entities: Ids,
        relations: Ids,
        share: Ids,
        rows: Floats,
        confidence: Floats | None,
        frequency: Floats | None,
    ) -> None:
        stamps = np.zeros(self.frequencies.num_entities, dtype=np.int32)
        counts = np.zeros(self.frequencies.num_entities, dtype=np.int32)
        for place in share:
            entity, relation = int(entities[place]), int(relations[place])
            stamps[:] = 0
            votes, strengths = self._votes(entity, relation, stamps)
            self._score(votes, strengths, counts, rows[place])
            answered = self.frequencies.row(relation)
            if confidence is not None:
                # The strongest rule comes first, so that it is written last.
                confidence[place, votes[::-1, 0]] = strengths[votes[::-1, 1]]
            if frequency is not None:
                frequency[place] = answered
            if self.by_frequency:
                self._add_frequencies(answered, rows[place])

    def _votes(self, entity: int, relation: int, stamps: Ids) -> Votes:
        """All that speaks for a candidate: rules, and ties where these are counted."""
        index = self.index
        own_relations, own_tails = self.facts.of(entity)
        chosen, walk_count, edge_count = candidate_rules(
            entity, relation, own_relations, own_tails,
            index.by_head, index.head_offsets, index.by_edge, index.edge_offsets, index.by_constant,
        )  # fmt: skip
        order = np.argsort(index.level[self._rows(chosen, walk_count, edge_count)], kind="stable")
        votes: Ids = collect_votes(
            entity, own_relations, own_tails, self.world,
            index.by_head, index.by_edge, index.by_constant,
            chosen, walk_count, edge_count, order, index.level, stamps,
        )  # fmt: skip
        ties = None if self.ties is None else self.ties(relation)
        by_rules = votes, index.strength_of_level
        return by_rules if ties is None else ties.beside(by_rules, entity, own_relations, own_tails)

    def _rows(self, chosen: Offsets, walk_count: int, edge_count: int) -> Ids:
        """The rules' places in the `RuleSet`."""
        edges = walk_count + edge_count
        return np.concatenate(
            [
                self.index.by_head.row[chosen[:walk_count]],
                self.index.by_edge.row[chosen[walk_count:edges]],
                self.index.by_constant.row[chosen[edges:]],
            ]
        )

    def _score(self, votes: Ids, strengths: Floats, counts: Ids, row: Floats) -> None:
        if self.aggregation == "maximum":
            lexicographic_scores(votes, counts, row)
        else:
            noisy_or_scores(votes, strengths, row)

    def _add_frequencies(self, frequency: Floats, row: Floats) -> None:
        """Add a share below any difference between rule scores."""
        top = frequency.max(initial=0)
        if top == 0:
            return
        if self.aggregation == "maximum":
            row += frequency / (top + 1.0)
        else:
            row += frequency / (top + 1.0) * 1e-9
