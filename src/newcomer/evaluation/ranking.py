"""Filtered ranking: how far up a scorer puts the true answer of a query (entity, relation, ?).

Queries come from true test triples, one by one: the side that is a newcomer is given and the other is asked for; both
sides are asked for when both are new, and also when neither is (group ``seen``, to be reported apart). A head is asked
for along the inverse relation ``r + R``. Ranks are counted, not sorted: 1, the candidates that score above the answer,
and a share of those that score the same.

Candidates are all entities or the seen ones. Those that are true answers by the filter leave, the answer itself stays:

    known   every triple of the data set: train, auxiliary, valid and test
    full    known, and every triple of a graph that holds all that is true

The known filter cannot remove true facts that the data set lacks; `ceiling` says how much that costs a perfect scorer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from newcomer.errors import DatasetError, OptionError, check_name, shown
from newcomer.evaluation.metrics import MEASURED, Counts, Interval, Values, bootstrap, expected_summary, summary
from newcomer.graph import Graph, Ids, InductiveDataset, Mask, Offsets, TripleArray, Vocabulary, concatenate

Progress = Callable[[int, int], None]

GROUPS = ("newcomer", "seen")
MEMORY_LIMIT = 64 << 20  # bytes that ranking a batch takes
SCORE_BYTES = 8 + 1  # a score in double precision and one comparison of it
REMOVED_BYTES = 40  # a removed candidate's row and place, and the temporaries they are computed from


class Scorer(Protocol):
    """Anything that can say how true each entity is as the tail of a query."""

    def scores(self, entities: Ids, relations: Ids, /) -> npt.NDArray[Any]:
        """Scores of shape (batch, num_entities), higher is better; ``relations`` from ``R`` on are inverses."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries (entity, relation, ?) with one true answer each, and the test triple each comes from."""

    entity: Ids
    relation: Ids
    answer: Ids
    triple: Offsets
    group: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.entity)

    def take(self, which: npt.NDArray[Any]) -> "Queries":
        """The queries at these places (or under this mask)."""
        return Queries(*(column[which] for column in vars(self).values()))


def queries_of(dataset: InductiveDataset, triples: TripleArray | None = None) -> Queries:
    """The queries of the true ones of these triples (those of test, unless others are given), in their order.

    The tail is asked for unless it alone is a newcomer, the head unless the head alone is.
    """
    triples = dataset.test if triples is None else triples
    true = np.ones(len(triples), dtype=bool) if triples.labels is None else triples.labels > 0
    new_head, new_tail = ~dataset.is_seen[triples.heads], ~dataset.is_seen[triples.tails]
    asks_tail, asks_head = true & (new_head | ~new_tail), true & (new_tail | ~new_head)
    # Tail and head in turn: in this order the queries of one triple stay together.
    asked = _interleaved(asks_tail, asks_head)
    group = np.where(new_head | new_tail, *GROUPS)
    return Queries(
        _interleaved(triples.heads, triples.tails)[asked],
        _interleaved(triples.relations, triples.relations + np.int32(len(dataset.relations)))[asked],
        _interleaved(triples.tails, triples.heads)[asked],
        np.repeat(np.arange(len(triples), dtype=np.int64), 2)[asked],
        np.repeat(group, 2)[asked],
    )


def _interleaved(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.stack([first, second], axis=1).ravel()


def align(graph: Graph, dataset: InductiveDataset | Graph) -> Graph:
    """A graph with other ids in those of a data set, by name; triples with a name that this lacks are dropped."""
    entity_ids = dataset.entities.ids(graph.entities.names)
    relation_ids = dataset.relations.ids(graph.relations.names)
    heads, relations = entity_ids[graph.triples.heads], relation_ids[graph.triples.relations]
    tails = entity_ids[graph.triples.tails]
    shared = (heads >= 0) & (relations >= 0) & (tails >= 0)
    return Graph.build(dataset.entities, dataset.relations, TripleArray(heads, relations, tails).take(shared))


@dataclass(frozen=True)
class RankingProtocol:
    """What is filtered, who is a candidate, and which rank a tie gets: a figure means nothing without them."""

    filter: str = "known"
    candidates: str = "all"
    ties: str = "mean"

    def __post_init__(self) -> None:
        for kind, known in (("filter", FILTERS), ("candidates", CANDIDATES), ("ties", TIES)):
            check_name(kind, getattr(self, kind), known)

    def __str__(self) -> str:
        return f"{self.filter} filter, {self.candidates} candidates, {self.ties} ties"


@dataclass(frozen=True, eq=False)
class RankingResult:
    """The rank of each query's answer, among how many candidates, and under which protocol."""

    queries: Queries
    ranks: Values
    candidates: Counts
    protocol: RankingProtocol
    entities: Vocabulary
    relations: Vocabulary

    def metrics(self) -> dict[str, float]:
        """Every metric."""
        return summary(self.ranks, self.candidates)

    def measured(self) -> dict[str, float]:
        """The metrics that are reported."""
        metrics = self.metrics()
        return {name: metrics[name] for name in MEASURED}

    def take(self, mask: Mask) -> "RankingResult":
        """The result of some of the queries."""
        queries = self.queries.take(mask)
        return replace(self, queries=queries, ranks=self.ranks[mask], candidates=self.candidates[mask])

    def interval(self, metric: str, generator: np.random.Generator) -> Interval:
        """A bootstrap confidence interval of a metric."""
        return bootstrap(metric, self.ranks, self.candidates, generator)

    def to_table(self) -> pa.Table:
        """A row a query: which side of which triple was asked for, names, rank and number of candidates."""
        inverse = self.queries.relation >= len(self.relations)
        relation = np.where(inverse, self.queries.relation - len(self.relations), self.queries.relation)
        columns = {
            "triple": pa.array(self.queries.triple),
            "asked": _coded(inverse.astype(np.int32), pa.array(["tail", "head"])),
            "entity": _coded(self.queries.entity, self.entities.names),
            "relation": _coded(relation, self.relations.names),
            "answer": _coded(self.queries.answer, self.entities.names),
            "group": pa.array(self.queries.group.tolist(), type=pa.string()).dictionary_encode(),
            "rank": pa.array(self.ranks),
            "candidates": pa.array(self.candidates),
        }
        return pa.table(columns).replace_schema_metadata({"protocol": str(self.protocol)})


def _coded(ids: Ids, names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(ids, type=pa.int32()), names)


def evaluate_under(
    dataset: InductiveDataset,
    scorer: Scorer,
    protocols: Sequence[RankingProtocol],
    full: Graph | None = None,
    queries: Queries | None = None,
    progress: Progress | None = None,
) -> list[RankingResult]:
    """Rank the answers of the test queries (or those given); every query is scored once for all protocols.

    The ``full`` filter needs ``full``, a graph of all true triples with the data set's ids (see `align`). The scorer is
    asked relation by relation, because many compute something for each relation of a batch.
    """
    queries = _asked(dataset, queries)
    order = np.argsort(queries.relation, kind="stable")
    asked, back = queries.take(order), np.argsort(order)
    filters = {name: FilterRows.of(FILTERS[name](dataset, full), asked) for name in {p.filter for p in protocols}}
    allowed = {name: CANDIDATES[name](dataset) for name in {p.candidates for p in protocols}}
    ranks = [np.empty(len(asked)) for _ in protocols]
    for batch in _batches(len(dataset.entities), filters, len(asked)):
        scores = _scores(dataset, scorer, asked, batch)
        for protocol, column in zip(protocols, ranks, strict=True):
            removed = filters[protocol.filter].removed(batch)
            above, equal = _above_and_equal(scores, asked.answer[batch], allowed[protocol.candidates], removed)
            column[batch] = 1.0 + above + TIES[protocol.ties] * equal
        if progress is not None:
            progress(batch.stop, len(asked))
    counts = [filters[p.filter].candidate_counts(asked, allowed[p.candidates]) for p in protocols]
    vocabularies = dataset.entities, dataset.relations
    columns = zip(ranks, counts, protocols, strict=True)
    return [RankingResult(queries, rank[back], count[back], p, *vocabularies) for rank, count, p in columns]


def _asked(dataset: InductiveDataset, queries: Queries | None) -> Queries:
    if queries is None:
        queries = queries_of(dataset)
    if len(queries) == 0:
        raise DatasetError(f"there is no query to rank in data set {shown(dataset.name)}; it needs true test triples")
    return queries


@dataclass(frozen=True, eq=False)
class FilterRows:
    """Where the true answers of each query stand in a filter's edges."""

    graph: Graph
    start: Offsets
    stop: Offsets

    @classmethod
    def of(cls, graph: Graph, queries: Queries) -> "FilterRows":
        edges, size = graph.adjacency, 2 * len(graph.relations)
        keys = np.repeat(np.arange(graph.num_entities) * size, np.diff(edges.offsets)) + edges.relations
        asked = queries.entity.astype(np.int64) * size + queries.relation
        return cls(graph, np.searchsorted(keys, asked), np.searchsorted(keys, asked + 1))

    def removed(self, batch: slice) -> tuple[Offsets, Ids]:
        """The true answers of a batch of queries: their rows in the batch, and which entities they are."""
        start, counts = self.start[batch], self.stop[batch] - self.start[batch]
        rows = np.repeat(np.arange(len(counts)), counts)
        shift = start - (np.cumsum(counts) - counts)
        return rows, self.graph.adjacency.tails[np.arange(len(rows)) + np.repeat(shift, counts)]

    def candidate_counts(self, queries: Queries, allowed: Mask) -> Counts:
        """How many candidates each query has: those allowed and not removed, and the answer in any case."""
        before = np.concatenate([[0], np.cumsum(allowed[self.graph.adjacency.tails])])
        removed = before[self.stop] - before[self.start]
        is_allowed = allowed[queries.answer]
        is_removed = self.graph.contains(queries.entity, queries.relation, queries.answer)
        counts: Counts = allowed.sum() - removed + ~(is_allowed & ~is_removed)
        return counts


def _batches(num_entities: int, filters: dict[str, FilterRows], num_queries: int) -> Iterator[slice]:
    """Runs of queries that together stay within `MEMORY_LIMIT`; one query alone may exceed it."""
    removed = np.zeros(num_queries, dtype=np.int64)
    for rows in filters.values():
        np.maximum(removed, rows.stop - rows.start, out=removed)
    ends = np.cumsum(num_entities * SCORE_BYTES + removed * REMOVED_BYTES)
    start = 0
    while start < num_queries:
        used = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, used + MEMORY_LIMIT, side="right")))
        yield slice(start, stop)
        start = stop


def _scores(dataset: InductiveDataset, scorer: Scorer, queries: Queries, batch: slice) -> npt.NDArray[Any]:
    """The scores of a batch, checked."""
    entities, relations = queries.entity[batch], queries.relation[batch]
    scores = np.asarray(scorer.scores(entities, relations))
    missing = np.isnan(scores)
    if missing.any():
        row, candidate = divmod(int(missing.argmax()), scores.shape[1])
        query = _written(dataset, int(entities[row]), int(relations[row]))
        name = shown(dataset.entities[candidate])
        raise OptionError(
            f"the scorer gave NaN to {name} in the query {query}; only numbers can be ranked, mend the model"
        )
    return scores


def _written(dataset: InductiveDataset, entity: int, relation: int) -> str:
    name, size = shown(dataset.entities[entity]), len(dataset.relations)
    if relation < size:
        return f"({name}, {shown(dataset.relations[relation])}, ?)"
    return f"(?, {shown(dataset.relations[relation - size])}, {name})"


def _above_and_equal(
    scores: npt.NDArray[Any], answers: Ids, allowed: Mask, removed: tuple[Offsets, Ids]
) -> tuple[Counts, Counts]:
    """How many candidates score above each answer, and how many others score the same."""
    rows = np.arange(len(answers))
    wanted = scores[rows, answers][:, np.newaxis]
    counts = []
    for compare in (np.greater, np.equal):
        met = compare(scores, wanted)
        met &= allowed
        met[removed] = False
        met[rows, answers] = False
        counts.append(met.sum(axis=1))
    return counts[0], counts[1]


def ceiling(
    dataset: InductiveDataset, full: Graph, candidates: str = "seen", queries: Queries | None = None
) -> dict[str, float]:
    """What a perfect scorer can expect under the known filter.

    It knows every true fact, but not which of them were drawn into test: the answer and the true facts of ``full`` that
    the known filter leaves among the candidates share the first places in random order. A scorer can pass it only by
    knowing how test was drawn; where answers are always seen, to put seen entities first is such knowledge, so that
    ``candidates="seen"`` is the ceiling to state.
    """
    allowed = CANDIDATES[RankingProtocol(candidates=candidates).candidates](dataset)
    queries = _asked(dataset, queries)
    filters = (FilterRows.of(FILTERS[name](dataset, full), queries) for name in ("known", "full"))
    known, fewer = (rows.candidate_counts(queries, allowed) for rows in filters)
    return expected_summary(1 + known - fewer)


def _full_filter(dataset: InductiveDataset, full: Graph | None) -> Graph:
    if full is None:
        raise OptionError("the filter 'full' needs a graph of all true triples; name it with --full-graph")
    return Graph.build(dataset.entities, dataset.relations, concatenate([dataset.known().triples, full.triples]))


FILTERS: dict[str, Callable[[InductiveDataset, Graph | None], Graph]] = {
    "known": lambda dataset, full: dataset.known(),
    "full": _full_filter,
}
CANDIDATES: dict[str, Callable[[InductiveDataset], Mask]] = {
    "all": lambda dataset: np.ones(len(dataset.entities), dtype=bool),
    "seen": lambda dataset: dataset.is_seen,
}
# How much of those that score the same as the answer stands before it.
TIES: dict[str, float] = {"mean": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
