"""What a graph says of every candidate of a query: rules, links, counts and similarity, over one overlay."""

from typing import NamedTuple

import numpy as np

from newcomer.graph import Mask, Overlay
from newcomer.rules.grounding import Facts
from newcomer.rules.ranking import RuleEvidence, RuleRanker, answer_row
from newcomer.rules.rule_index import Floats
from newcomer.rules.statistics import GraphStatistics


class GraphSignals(NamedTuple):
    """Of one query; (entities,) each, but for the number of facts of the entity asked about."""

    num_facts: int
    rules: RuleEvidence
    is_linked: Mask  # whether the entity has a fact with a candidate already, of whatever relation
    frequency: Floats  # how often a candidate answers the relation: among all known facts, or the observed ones
    similarity: Floats | None  # to the known answers, where graph statistics are used


def graph_signals(
    ranker: RuleRanker, overlay: Overlay, statistics: GraphStatistics | None, entity: int, relation: int
) -> GraphSignals:
    """What rules and, where they are used, graph statistics say of (entity, oriented relation, ?)."""
    relations, tails = overlay.facts_of(entity)
    facts = Facts(entity, relations, tails)
    is_linked = np.zeros(overlay.num_entities, dtype=bool)
    is_linked[tails] = True
    if statistics is None:
        evidence = ranker.evidence(overlay, entity, relation, facts=facts)
        observed = answer_row(overlay.base.observed_counts, relation, overlay.num_entities)
        return GraphSignals(len(tails), evidence, is_linked, observed, None)
    first, last = np.searchsorted(relations, [relation, relation + 1])
    similarity = statistics.similarity(entity, tails[first:last])
    evidence = ranker.evidence(overlay, entity, relation, statistics.online_rules(relation), facts)
    return GraphSignals(len(tails), evidence, is_linked, statistics.answer_counts(relation), similarity)
