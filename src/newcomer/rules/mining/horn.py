"""Rules of one and two atoms, every one of them, with exact figures.

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
and auxiliary triples together give 11,597 with PCA confidence >= 0.8, where 9,732 are reported.
"""

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from newcomer.graph import Graph, Ids, Offsets
from newcomer.rules.limits import OutOfTimeError, share_out, thread_count
from newcomer.rules.mining.bodies import BodyCounter, JoinPlan
from newcomer.rules.mining.index import build_index, tail_side
from newcomer.rules.mining.plan import HORN_KINDS, MiningPlan, MiningResult, Progress
from newcomer.rules.mining.support import chain_support, link_support
from newcomer.rules.rule import Kind, RuleSet, concatenate_rules

Supported = list[tuple[Offsets, Ids]]  # body codes and supports, in parts
Found = dict[int, Supported]  # by head

FIRST_SLICE = 32  # of how many the first slice under a time limit is one
TABLE_BYTES = 16 * 3  # an entry of the table, and its copy while it grows
CANDIDATE_BYTES = 160  # a candidate's columns, and their copies while they are sorted
UNLIMITED = 1 << 62


def mine_horn(
    graph: Graph, plan: MiningPlan | None = None, threads: int | None = None, progress: Progress | None = None
) -> MiningResult:
    """All rules of one and two atoms that a plan asks for; the same rules for any number of threads."""
    started = time.monotonic()
    miner = _Miner(graph, plan or MiningPlan(), thread_count(threads), started)
    considered = miner.head_sizes >= miner.plan.min_head_size
    report = _Report(progress, 2 * int(considered.sum()))
    done = ~considered
    parts: list[RuleSet] = []  # heads rise from batch to batch, so the parts in a row are in canonical order
    try:
        for heads, rules in miner.run(np.flatnonzero(considered), report):
            parts.append(rules)
            done[heads] = True
    except OutOfTimeError:
        pass  # the batch at hand is dropped
    rules = parts[0] if len(parts) == 1 else concatenate_rules(parts, graph.num_relations)
    return MiningResult(rules, np.flatnonzero(done).astype(np.int32), time.monotonic() - started)


class _Report:
    """Counts what is done and reports it as whole numbers."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._lock = progress, total, threading.Lock()
        self._done, self._reported = 0.0, 0

    def advance(self, share: float) -> None:
        """Add to what is done, and report if that makes a whole number more."""
        if self._progress is None:
            return
        with self._lock:
            self._done += share
            # A hair more, since fractions that are a whole together may sum to just below it.
            done = min(int(self._done + 1e-6), self._total)
            if done > self._reported:
                self._reported = done
                self._progress(done, self._total)


class _Miner:
    """A graph, its index and the plan; mines one slice of head relations at a time."""

    def __init__(self, graph: Graph, plan: MiningPlan, threads: int, started: float) -> None:
        self.plan, self.kinds, self.threads = plan, plan.chosen(HORN_KINDS), threads
        self.deadline = math.inf if plan.time_limit is None else started + plan.time_limit
        self.size, self.entities = graph.num_relations, graph.num_entities
        self.index = build_index(graph)
        self.head_sizes, self.by_tail = graph.relation_counts.astype(np.int64), tail_side(graph)
        self._most_links = int(np.diff(self.index.link_offsets).max(initial=0))

    def run(self, heads: Offsets, report: _Report) -> Iterator[tuple[Offsets, RuleSet]]:
        """The rules of these heads (which rise), batch by batch: all at once unless time or memory is limited."""
        for part in self._slices(heads):
            for batch, found in self._batches(part, report):
                yield batch, self._rules(self._decoded(batch, found), len(batch), report)

    def _slices(self, heads: Offsets) -> Iterator[Offsets]:
        """Under a time limit, small slices first: what is finished when time is up stays.

        A slice counts its bodies anew, so slices double as long as the pace allows that in the time that is left.
        """
        if self.plan.time_limit is None:
            yield heads
            return
        triples = np.cumsum(self.head_sizes[heads])
        start, before, share = 0, 0, triples[-1] / FIRST_SLICE if len(triples) else 0.0
        while start < len(heads):
            began = time.monotonic()
            end = max(int(np.searchsorted(triples, before + share, "right")), start + 1)
            yield heads[start:end]
            now = time.monotonic()
            pace = (triples[end - 1] - before) / max(now - began, 1e-6)
            share = min(2 * share, 0.8 * pace * (self.deadline - now))
            start, before = end, int(triples[end - 1])

    def _batches(self, heads: Offsets, report: _Report) -> Iterator[tuple[Offsets, Found]]:
        """Heads with their candidates; under a memory limit as many heads as fill it."""
        limit = self.plan.memory_limit
        if limit is None:
            yield heads, self._found(heads, report)
            return
        held, start, found = 0, 0, Found()
        for place in range(0, len(heads), self.threads):
            end = min(place + self.threads, len(heads))
            more = self._found(heads[place:end], report)
            found.update(more)
            held += CANDIDATE_BYTES * sum(len(codes) for parts in more.values() for codes, _ in parts)
            if held > limit or end == len(heads):
                yield heads[start:end], found
                held, start, found = 0, end, Found()

    def _found(self, heads: Offsets, report: _Report) -> Found:
        """The rules that have the support and the head coverage, by head."""
        found = Found()

        def work(head: int, scratch: tuple[Offsets, Offsets]) -> None:
            found[head] = self._supported(head, *scratch)
            report.advance(1.0)

        def scratch() -> tuple[Offsets, Offsets]:
            return np.full(self.entities, -1, dtype=np.int64), np.empty(2 * self._most_links, dtype=np.int64)

        costliest_first = heads[np.argsort(-self.head_sizes[heads], kind="stable")]
        share_out(costliest_first.tolist(), work, scratch, self.threads, self.deadline)
        return found

    def _supported(self, head: int, mark: Offsets, met: Offsets) -> Supported:
        """Body codes and supports of one head."""
        minimum, parts = self._minimum(head), []
        one, both = Kind.ONE in self.kinds, Kind.BOTH in self.kinds
        if one or both:
            parts.append(link_support(self.index, head, self.size, one, both, minimum))
        if Kind.TWO in self.kinds:
            parts += self._chains(head, minimum, mark, met)
        return parts

    def _chains(self, head: int, minimum: int, mark: Offsets, met: Offsets) -> Supported:
        """Chains in as few parts as the memory limit lets a table hold."""
        limit, parts = self.plan.memory_limit, 1
        room = UNLIMITED if limit is None else max(1024, limit // (2 * TABLE_BYTES * self.threads))
        most = min(room, UNLIMITED)
        while True:
            if parts >= 2 * self.size:  # one relation a part: it cannot be cut further
                most = UNLIMITED
            found = []
            for part in range(parts):
                fits, codes, counts = chain_support(self.index, head, self.size, minimum, part, parts, most, mark, met)
                if not fits:
                    break
                found.append((codes, counts))
            else:
                return found
            parts = min(2 * parts, 2 * self.size)

    def _minimum(self, head: int) -> int:
        """The least support whose head coverage, as a float, is not below the limit."""
        size, coverage = int(self.head_sizes[head]), self.plan.min_head_coverage
        least = max(math.ceil(coverage * size) - 1, 0)  # the product is rounded
        while least / size < coverage:
            least += 1
        return max(least, self.plan.min_support)

    def _decoded(self, heads: Offsets, found: Found) -> RuleSet:
        """The rules that were found, with their support and head size."""
        chunks = [(head, codes, counts) for head in heads.tolist() for codes, counts in found.pop(head)]
        nothing = np.empty(0, dtype=np.int64)
        codes = np.concatenate([nothing, *(codes for _, codes, _ in chunks)])
        support = np.concatenate([nothing, *(counts for _, _, counts in chunks)])
        rule_heads = np.repeat(
            np.array([head for head, _, _ in chunks], dtype=np.int32), [len(c) for _, c, _ in chunks]
        )
        first, rest = np.divmod(codes, 4 * self.size + 1)
        both = rest > 2 * self.size
        kinds = np.where(both, Kind.BOTH, np.where(rest > 0, Kind.TWO, Kind.ONE))
        second = np.where(both, rest - 2 * self.size, rest) - 1
        return RuleSet.of_columns(
            self.size, len(codes), kinds=kinds, heads=rule_heads, body1=first, body2=second, support=support,
            head_size=self.head_sizes[rule_heads],
        )  # fmt: skip

    def _rules(self, candidates: RuleSet, heads: int, report: _Report) -> RuleSet:
        """The candidates that pass the limits, in canonical order."""
        body, pca = self._bodies(candidates, heads, report)
        rules = replace(candidates, body_size=body, pca_body_size=pca)
        kept = (rules.confidence >= self.plan.min_confidence) & (rules.pca_confidence >= self.plan.min_pca)
        order = rules.canonical_order()
        return rules.where(order[kept[order]])

    def _bodies(self, candidates: RuleSet, heads: int, report: _Report) -> tuple[Offsets, Offsets]:
        """Body size and PCA body size of each candidate."""
        plan = JoinPlan(candidates, self.by_tail)

        def work(portion: int, counter: BodyCounter) -> None:
            counter.count(portion)
            report.advance(heads / plan.portions)

        def scratch() -> BodyCounter:
            return BodyCounter(self.index, plan, self.size, self.entities)

        portions = plan.costliest_first(np.diff(self.index.relation_offsets))
        share_out(portions.tolist(), work, scratch, self.threads, self.deadline)
        if plan.portions == 0:
            report.advance(heads)
        return plan.results()
