"""Where a ranking is good and where it loses: its queries in groups, each with its metrics and its share of the loss.

A query loses ``1 - 1 / rank`` of what a perfect ranking has; a group's ``lost`` is its part of all that is lost, so
that the groups of one breakdown add up to 1. Only groups that occur are listed.

    relation             by name, both directions together; those that lose most come first
    class                1-1, 1-n, n-1, n-n as seen from the query's entity: the second place is n where an entity has
                         1.5 or more answers on average in the observed graph, the first where an answer has 1.5 or
                         more such entities (so one relation is 1-n in one direction and n-1 in the other); "unseen"
                         where the observed graph has no fact of the relation
    facts                how many facts the entity has of its own: observed ones if it is seen, else auxiliary ones
    frequency            how many facts the observed graph has of the relation
    linked               whether a known fact, observed or auxiliary, joins entity and answer, whatever its relation
                         and direction
    evidence             the last two in one: the relation was never observed; else the pair is linked, or is not
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.data.describe import MANY, linked_pairs, triples_per_end
from newcomer.evaluation.metrics import Counts
from newcomer.evaluation.ranking import Queries, RankingResult
from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray

FACTS = {"0": 0, "1": 1, "2-5": 5, "6-20": 20, "21-100": 100}
FREQUENCIES = {"never": 0, "1-20": 20, "21-200": 200}
CLASSES = ("1-1", "1-n", "n-1", "n-n", "unseen")

Codes = npt.NDArray[np.int64]
Row = dict[str, Any]


def breakdown(result: RankingResult, dataset: InductiveDataset, by: Iterable[str] | None = None) -> list[Row]:
    """A row a group: how many queries, what share of all, their share of what is lost, and their metrics.

    Of all breakdowns, unless ``by`` names some.
    """
    found = []
    for name in BREAKDOWNS if by is None else by:
        rows = [{"by": name, **group} for group in _groups(result, *BREAKDOWNS[name](result.queries, dataset))]
        found += sorted(rows, key=lambda row: (-row["lost"], row["group"])) if name == "relation" else rows
    return found


def _groups(result: RankingResult, codes: Codes, names: Sequence[str]) -> Iterable[Row]:
    """The groups that occur, in the order of their codes."""
    lost = 1.0 - 1.0 / result.ranks
    total = float(lost.sum())
    for code in np.unique(codes).tolist():
        mask = codes == code
        count, share = int(mask.sum()), float(lost[mask].sum()) / total if total else 0.0
        row = {"group": names[code], "queries": count, "share": count / len(mask), "lost": share}
        yield row | result.take(mask).metrics()


def _by_relation_class(queries: Queries, dataset: InductiveDataset) -> tuple[Codes, Sequence[str]]:
    relation, observed = _plain_relation(queries, dataset), dataset.observed
    ends = observed.triples.tails, observed.triples.heads
    many_heads, many_tails = (triples_per_end(observed, one) >= MANY for one in ends)
    asks_tail = queries.relation < len(dataset.relations)
    many_answers = np.where(asks_tail, many_tails[relation], many_heads[relation])
    many_entities = np.where(asks_tail, many_heads[relation], many_tails[relation])
    codes = 2 * many_entities.astype(np.int64) + many_answers
    return np.where(observed.relation_counts[relation] > 0, codes, CLASSES.index("unseen")), CLASSES


def known_facts(dataset: InductiveDataset) -> Counts:
    """How many facts each entity has of its own."""
    return np.where(dataset.is_seen, _fact_counts(dataset.observed), _fact_counts(dataset.auxiliary)).astype(np.int64)


def _fact_counts(graph: Graph) -> Counts:
    """How many facts each entity has; one that joins it to itself counts once."""
    heads, tails = graph.triples.heads, graph.triples.tails
    loops: Counts = np.bincount(heads[heads == tails], minlength=graph.num_entities)
    return graph.degrees - loops


def facts_groups(counts: npt.NDArray[np.integer]) -> tuple[Codes, Sequence[str]]:
    """The group of each number of known facts, and what the groups are called."""
    return _bucket(counts, FACTS)


def _by_evidence(queries: Queries, dataset: InductiveDataset) -> tuple[Codes, Sequence[str]]:
    linked, names = _by_link(queries, dataset)
    return np.where(_observed_counts(queries, dataset) == 0, 2, linked), (*names, "relation never observed")


def _observed_counts(queries: Queries, dataset: InductiveDataset) -> Ids:
    return dataset.observed.relation_counts[_plain_relation(queries, dataset)]


def _plain_relation(queries: Queries, dataset: InductiveDataset) -> Codes:
    return queries.relation.astype(np.int64) % len(dataset.relations)


def _by_link(queries: Queries, dataset: InductiveDataset) -> tuple[Codes, Sequence[str]]:
    linked = linked_pairs(dataset, TripleArray(queries.entity, queries.relation, queries.answer))
    return np.where(linked, 0, 1), ("linked", "not linked")


def _bucket(counts: npt.NDArray[np.integer], last: Mapping[str, int]) -> tuple[Codes, Sequence[str]]:
    """The bucket of each count: buckets are named by their last number, and those beyond get one of their own."""
    bounds = list(last.values())
    return np.searchsorted(bounds, counts).astype(np.int64), (*last, f"more than {bounds[-1]}")


BREAKDOWNS: dict[str, Callable[[Queries, InductiveDataset], tuple[Codes, Sequence[str]]]] = {
    "relation": lambda queries, dataset: (_plain_relation(queries, dataset), list(dataset.relations)),
    "class": _by_relation_class,
    "facts": lambda queries, dataset: facts_groups(known_facts(dataset)[queries.entity]),
    "frequency": lambda queries, dataset: _bucket(_observed_counts(queries, dataset), FREQUENCIES),
    "linked": _by_link,
    "evidence": _by_evidence,
}
