"""Horn rules, every one of them, with exact figures.

Bodies of one atom, chains of two atoms over a middle variable (all four direction combinations) and intersections of
two atoms; heads r(x,y). Counts are of distinct pairs (x,y); variables may take the same value:

    support        pairs with the body and r(x,y)
    body size      pairs with the body
    PCA body size  pairs with the body whose x has some r, if r has at least as many distinct heads as tails (it is then
                   at least as functional as its inverse); else pairs with the body whose y is the tail of some r

Rules with the head itself in the body are left out, and so are bodies that repeat an atom; other degenerate bodies,
such as r1(x,z), r1(y,z), are in.

Calibration against the counts reported for AMIE 3, which was not run: on the 108,854 observed triples of FB15K
Subject-10, with head coverage >= 0.01, heads of at least 100 facts and ``min_support=1`` (head coverage alone decides),
there are 19,582 rules, 3,042 of them with confidence >= 0.8 and 6,224 with PCA confidence >= 0.8, as reported. Observed
and auxiliary triples together give 11,597 with PCA confidence >= 0.8, where 9,732 are reported. `improving` (an
intersection must have a higher PCA confidence than both rules with one of its atoms) leaves 9,732; of about eight
prunings tried it is the one that meets the count, so it is a fit and says little about what AMIE does.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from newcomer.graph import Graph, Ids, Mask, Offsets
from newcomer.rules.limits import require, thread_count
from newcomer.rules.mining.horn_index import HeadFigures, MiningIndex, build_index, head_figures
from newcomer.rules.mining.horn_plan import BodyCounter, BodyPlan, Candidates
from newcomer.rules.mining.horn_support import chain_support, link_support
from newcomer.rules.rule import Kind, RuleSet, concatenate_rules

Progress = Callable[[int, int], None]
Item = TypeVar("Item")
Found = dict[int, list[tuple[Offsets, Ids]]]  # head -> body codes and supports

MINED_KINDS = (Kind.ONE, Kind.TWO, Kind.BOTH)
FIRST_SLICE = 32  # of how many the first slice under a time limit is one
TABLE_BYTES = 16 * 3  # a place of the table, and its copy while it grows
CANDIDATE_BYTES = 160  # a candidate's columns, and their copies while they are sorted


@dataclass(frozen=True)
class MiningLimits:
    """Which rules are kept, and what mining may take.

    ``memory_limit`` (bytes) bounds the tables of counts and the candidates held at once, not the graph nor the result:
    head relations are then mined in batches, each of which walks the graph anew. ``time_limit`` (seconds) is looked at
    between relations; relations that are not finished are left out.
    ``max_rules`` keeps the best by PCA confidence, then support.
    """

    min_support: int = 2
    min_head_coverage: float = 0.01
    min_confidence: float = 0.0
    min_pca: float = 0.0
    min_head_size: int = 1
    max_rules: int | None = None
    memory_limit: int | None = None
    time_limit: float | None = None
    kinds: tuple[Kind, ...] = MINED_KINDS

    def __post_init__(self) -> None:
        for name in ("min_support", "min_head_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer from 1")
        for name in ("min_head_coverage", "min_confidence", "min_pca"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "a number from 0 to 1")
        for name in ("max_rules", "memory_limit", "time_limit"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "a number above 0, or None for no limit")
        wrong = [kind for kind in self.kinds if kind not in MINED_KINDS]
        require(bool(self.kinds) and not wrong, "kinds", wrong or self.kinds, "some of ONE, TWO and BOTH")


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


def mine(
    graph: Graph, limits: MiningLimits | None = None, threads: int | None = None, progress: Progress | None = None
) -> MiningResult:
    """All rules of a graph within the limits; the same rules for any number of threads.

    ``progress`` is called with (done, total), by one thread at a time.
    """
    started = time.monotonic()
    limits = limits or MiningLimits()
    workers = _Workers(thread_count(threads), _deadline(started, limits))
    miner = _Miner(graph, limits, workers)
    considered = miner.figures.sizes >= limits.min_head_size
    report = _Report(progress, 2 * int(considered.sum()))
    done = ~considered
    parts: list[RuleSet] = []  # heads rise from batch to batch, so the parts in a row are in canonical order
    try:
        for heads, rules in miner.run(np.flatnonzero(considered), report):
            parts.append(rules)
            done[heads] = True
            if limits.max_rules is not None:
                parts = [_best(concatenate_rules(parts, graph.num_relations), limits.max_rules)]
    except _OutOfTimeError:
        pass
    rules = parts[0] if len(parts) == 1 else concatenate_rules(parts, graph.num_relations)
    return MiningResult(rules, np.flatnonzero(done).astype(np.int32), time.monotonic() - started)


def _deadline(started: float, limits: MiningLimits) -> float:
    return math.inf if limits.time_limit is None else started + limits.time_limit


def _best(rules: RuleSet, most: int) -> RuleSet:
    """At most so many rules of a set in canonical order: by PCA confidence, then support, then that order."""
    if len(rules) <= most:
        return rules
    best = np.lexsort([np.arange(len(rules)), -rules.support, -rules.pca_confidence])
    return rules.where(np.sort(best[:most]))


def improving(rules: RuleSet) -> Mask:
    """For each rule, whether no rule of the set with one of its atoms is as good by PCA confidence.

    Only an intersection can fall short. The set must hold the one-atom rules: mine it without ``max_rules`` and with no
    ``min_confidence``.
    """
    confidence = rules.pca_confidence
    one, both = np.flatnonzero(rules.kinds == Kind.ONE), np.flatnonzero(rules.kinds == Kind.BOTH)
    width = 2 * rules.num_relations
    keys = rules.heads[one].astype(np.int64) * width + rules.body1[one]
    order = np.argsort(keys)
    keys, best = np.append(keys[order], np.iinfo(np.int64).max), np.append(confidence[one][order], -1.0)
    good = np.ones(len(rules), dtype=bool)
    for atoms in (rules.body1, rules.body2):
        wanted = rules.heads[both].astype(np.int64) * width + atoms[both]
        place = np.searchsorted(keys, wanted)
        good[both] &= (keys[place] != wanted) | (confidence[both] > best[place])
    return good


def tail_side(graph: Graph) -> Mask:
    """For each relation, whether PCA looks at the tail: there are more distinct tails than heads."""
    triples, entities = graph.triples, graph.num_entities
    sides = [np.unique(triples.relations.astype(np.int64) * entities + ends) for ends in (triples.heads, triples.tails)]
    heads, tails = (np.bincount(side // max(entities, 1), minlength=graph.num_relations) for side in sides)
    return np.asarray(heads < tails)


class _OutOfTimeError(Exception):
    """The time limit has passed: the batch at hand is dropped."""


class _Report:
    """Counts what is done, and tells the caller."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._lock = progress, total, threading.Lock()
        self._done, self._told = 0.0, 0

    def advance(self, share: float) -> None:
        """Add a share of the total, and tell if that makes a whole number more."""
        if self._progress is None:
            return
        with self._lock:
            self._done += share
            # A hair more, since fractions that are a whole together may sum to just below it.
            done = min(int(self._done + 1e-6), self._total)
            if done > self._told:
                self._told = done
                self._progress(done, self._total)


class _Workers:
    """Runs one function over many items, in the threads there are; items are taken in the order given."""

    def __init__(self, threads: int, deadline: float) -> None:
        self.threads, self.deadline = threads, deadline

    def run(self, items: Iterable[Item], make_worker: Callable[[], Callable[[Item], None]]) -> None:
        """``make_worker`` is called once a thread, so that each has scratch space of its own."""
        queue = iter(list(items))  # next() of a list's iterator is safe between threads
        if self.threads == 1:
            self._work(queue, make_worker)
            return
        stop = threading.Event()
        with ThreadPoolExecutor(self.threads) as pool:
            try:
                running = [pool.submit(self._work, queue, make_worker, stop) for _ in range(self.threads)]
                for future in running:
                    future.result()
            finally:
                stop.set()

    def _work(
        self,
        queue: Iterator[Item],
        make_worker: Callable[[], Callable[[Item], None]],
        stop: threading.Event | None = None,
    ) -> None:
        work = make_worker()
        for item in queue:
            if stop is not None and stop.is_set():
                return
            if time.monotonic() > self.deadline:
                raise _OutOfTimeError
            work(item)


class _Miner:
    """A graph, its index and the limits; mines one slice of head relations at a time."""

    def __init__(self, graph: Graph, limits: MiningLimits, workers: _Workers) -> None:
        self.size = graph.num_relations
        self.entities = graph.num_entities
        self.limits, self.workers = limits, workers
        self.index: MiningIndex = build_index(graph)
        self.figures: HeadFigures = head_figures(graph, self.index)
        self._most_links = int(np.diff(self.index.link_offsets).max(initial=0))

    def run(self, heads: Offsets, report: _Report) -> Iterator[tuple[Offsets, RuleSet]]:
        """The rules of these heads (which rise), batch by batch: all at once unless time or memory is limited."""
        for part in self._slices(heads):
            for batch, found in self._batches(part, report):
                yield batch, self._rules(self._decoded(batch, found), len(batch), report)

    def _slices(self, heads: Offsets) -> Iterator[Offsets]:
        """Under a time limit, small slices first: what is finished when time is up stays.

        A slice walks its bodies' paths anew, so slices double as long as the pace says that there is time for them.
        """
        if self.limits.time_limit is None:
            yield heads
            return
        triples = np.cumsum(self.figures.sizes[heads])
        start, before, share = 0, 0, triples[-1] / FIRST_SLICE if len(triples) else 0.0
        while start < len(heads):
            began = time.monotonic()
            end = max(int(np.searchsorted(triples, before + share, "right")), start + 1)
            yield heads[start:end]
            now = time.monotonic()
            pace = (triples[end - 1] - before) / max(now - began, 1e-6)
            share = min(2 * share, 0.8 * pace * (self.workers.deadline - now))
            start, before = end, int(triples[end - 1])

    def _batches(self, heads: Offsets, report: _Report) -> Iterator[tuple[Offsets, Found]]:
        """Heads with their candidates; under a memory limit as many heads as fill it."""
        limit = self.limits.memory_limit
        if limit is None:
            yield heads, self._found(heads, report)
            return
        held, start, found = 0, 0, Found()
        for place in range(0, len(heads), self.workers.threads):
            end = min(place + self.workers.threads, len(heads))
            more = self._found(heads[place:end], report)
            found.update(more)
            held += CANDIDATE_BYTES * sum(len(codes) for parts in more.values() for codes, _ in parts)
            if held > limit or end == len(heads):
                yield heads[start:end], found
                held, start, found = 0, end, Found()

    def _rules(self, candidates: Candidates, heads: int, report: _Report) -> RuleSet:
        """The candidates that pass the limits, in canonical order."""
        body, pca = self._bodies(candidates, heads, report)
        rules = RuleSet.of_columns(
            self.size,
            len(candidates),
            kinds=candidates.kinds,
            heads=candidates.heads,
            body1=candidates.first,
            body2=candidates.second,
            support=candidates.support,
            body_size=body,
            pca_body_size=pca,
            head_size=self.figures.sizes[candidates.heads],
        )
        kept = (rules.confidence >= self.limits.min_confidence) & (rules.pca_confidence >= self.limits.min_pca)
        order = rules.canonical_order()
        return rules.where(order[kept[order]])

    def _found(self, heads: Offsets, report: _Report) -> Found:
        """The rules that have the support and the head coverage, by head."""
        found = Found()

        def make_worker() -> Callable[[int], None]:
            mark = np.full(self.entities, -1, dtype=np.int64)
            met = np.empty(2 * self._most_links, dtype=np.int64)

            def work(head: int) -> None:
                found[head] = self._supported(head, mark, met)
                report.advance(1.0)

            return work

        costliest_first = heads[np.argsort(-self.figures.sizes[heads], kind="stable")]
        self.workers.run(costliest_first.tolist(), make_worker)
        return found

    def _supported(self, head: int, mark: Offsets, met: Offsets) -> list[tuple[Offsets, Ids]]:
        """Body codes and supports of one head."""
        limits, minimum, parts = self.limits, self._minimum(head), []
        one, both = Kind.ONE in limits.kinds, Kind.BOTH in limits.kinds
        if one or both:
            parts.append(link_support(self.index, head, self.size, one, both, minimum)[1:])
        if Kind.TWO in limits.kinds:
            parts += self._chains(head, minimum, mark, met)
        return parts

    def _chains(self, head: int, minimum: int, mark: Offsets, met: Offsets) -> list[tuple[Offsets, Ids]]:
        """Chains in as few parts as the memory limit lets a table hold."""
        limit, parts = self.limits.memory_limit, 1
        most = 1 << 62 if limit is None else max(1024, limit // (2 * TABLE_BYTES * self.workers.threads))
        swapped = bool(self.figures.swapped[head])
        while True:
            whole = parts >= 2 * self.size  # one relation a part: it cannot be cut further
            found = []
            for part in range(parts):
                answer = chain_support(
                    self.index, head, self.size, swapped, minimum, part, parts, 1 << 62 if whole else most, mark, met
                )
                if not answer[0]:
                    break
                found.append(answer[1:])
            else:
                return found
            parts = min(2 * parts, 2 * self.size)

    def _minimum(self, head: int) -> int:
        """The least support whose head coverage, as a float, is not below the limit."""
        size, coverage = int(self.figures.sizes[head]), self.limits.min_head_coverage
        least = math.ceil(coverage * size)
        while least > 0 and (least - 1) / size >= coverage:
            least -= 1
        while least / size < coverage:
            least += 1
        return max(least, self.limits.min_support)

    def _decoded(self, heads: Offsets, found: Found) -> Candidates:
        chunks = [(head, codes, counts) for head in heads.tolist() for codes, counts in found.pop(head)]
        codes = np.concatenate([np.empty(0, dtype=np.int64), *(codes for _, codes, _ in chunks)])
        support = np.concatenate([np.empty(0, dtype=np.int64), *(counts for _, _, counts in chunks)])
        lengths = [len(codes) for _, codes, _ in chunks]
        rule_heads = np.repeat(np.array([head for head, _, _ in chunks], dtype=np.int32), lengths)
        first, rest = np.divmod(codes, 4 * self.size + 1)
        both = rest > 2 * self.size
        kinds = np.where(both, Kind.BOTH, np.where(rest > 0, Kind.TWO, Kind.ONE)).astype(np.int32)
        second = np.where(both, rest - 2 * self.size, rest) - 1
        return Candidates(kinds, rule_heads, first.astype(np.int32), second.astype(np.int32), support)

    def _bodies(self, candidates: Candidates, heads: int, report: _Report) -> tuple[Offsets, Offsets]:
        """Body size and PCA body size of each candidate."""
        plan = BodyPlan(candidates, self.figures.by_tail, self.size)

        def make_worker() -> Callable[[int], None]:
            counter = BodyCounter(self.index, plan, self.size, self.entities)

            def work(portion: int) -> None:
                counter.count(portion)
                report.advance(heads / plan.portions)

            return work

        portions = plan.costliest_first(np.diff(self.index.relation_offsets))
        self.workers.run(portions.tolist(), make_worker)
        if plan.portions == 0:
            report.advance(heads)
        return plan.results()
