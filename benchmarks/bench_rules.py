"""Rules at work on FB15K: grounding one newcomer, ranking by rules alone, neighbours that rules add, rule files.

Every part needs NEWCOMER_DATA. Quality is that of the inductive protocol: rules are mined on the observed graph, each
newcomer is known by its auxiliary facts, the other side of a test fact is ranked among all entities, every fact of the
data set but the one asked for is filtered, and ties get the mean rank. Figures are percentages.
"""

import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from harness import Bar, best_of, data_folder, finish
from newcomer.data import load_dataset
from newcomer.data.describe import neighbours_per_predicted_fact
from newcomer.evaluation.ranking import RankingProtocol, align, evaluate_under
from newcomer.graph import Graph, Ids, InductiveDataset, Overlay
from newcomer.rules.files.rule_table import read_rules, write_rules
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.mining.symmetric_paths import PathLimits
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.rules.rule import Kind, Rule, RuleSet, parse_rule
from newcomer.rules.virtual_neighbors import Grounder, NeighborLimits, virtual_neighbors

THREADS = 2
TARGET_MS = 5.0  # for one newcomer; stated beside the figure, no bar
SAMPLE = 40  # newcomers that plain Python grounds too
GROUNDING_BARS = (50.0, 5.0)  # times faster than plain Python rule by rule, and with an index of the rules
FILE_BAR = 3.0  # times faster than a rule at a time
ANYBURL_SECONDS = 100
PAPER_NEIGHBOURS = 73.31
FROM_PAPER = MiningPlan(min_pca=0.8)
WALKS = MiningPlan(min_support=2, min_head_coverage=0.0, min_confidence=0.01)
EVERY_KIND = MiningPlan(kinds=tuple(Kind), min_support=2, min_head_coverage=0.0, min_confidence=0.01)
# MRR and Hits@10 for each data set: walks without and with frequencies, every kind with them.
QUALITY = {
    "fb15k-subject-10": ((57.0, 74.5), (59.5, 77.5), (61.2, 79.5)),
    "fb15k-object-10": ((46.5, 64.0), (48.0, 65.5), (48.9, 66.0)),
}
Rows = set[tuple[int, int, int, int]]
Walk = tuple[int, int, int, int, int]
Facts = set[tuple[int, int]]  # (oriented relation, tail)


class PlainGrounder:
    """The same groundings with dictionaries, a rule after the other or by an index of the relations they start with."""

    def __init__(self, rules: RuleSet, dataset: InductiveDataset) -> None:
        self.size = rules.num_relations
        self.steps: dict[tuple[int, int], list[int]] = defaultdict(list)
        overlay = Overlay.of_dataset(dataset)
        for entity in range(len(dataset.entities)):
            relations, tails = overlay.facts_of(entity)
            for relation, tail in zip(relations.tolist(), tails.tolist(), strict=True):
                self.steps[entity, relation].append(tail)
        self.walks = [walk for row, rule in enumerate(rules) for walk in self.both_ways(row, rule)]
        self.starting: dict[int, list[Walk]] = defaultdict(list)
        for walk in self.walks:
            self.starting[walk[3]].append(walk)

    def both_ways(self, row: int, rule: Rule) -> tuple[Walk, Walk]:
        """(row, kind, conclusion, first step, second step) with the entity as x and as y."""
        first, second = ((relation + self.size) % (2 * self.size) for relation in (rule.body1, rule.body2))
        back = (second, first) if rule.kind == Kind.TWO else (first, second)
        forth = (row, int(rule.kind), rule.head, rule.body1, rule.body2)
        return forth, (row, int(rule.kind), rule.head + self.size, *back)

    def ground(self, entity: int, own: Facts, reached: Iterable[tuple[int, Sequence[Walk]]]) -> Rows:
        """(rule, oriented relation, other end, middle node) of what walks conclude whose first step leads to a node."""
        found: Rows = set()
        one, two = int(Kind.ONE), int(Kind.TWO)
        for near, walks in reached:
            if near == entity:
                continue
            for row, kind, head, _, second in walks:
                if kind == two:
                    for end in self.steps.get((near, second), ()):
                        if end != entity and (head, end) not in own:
                            found.add((row, head, end, near))
                elif (kind == one or (second, near) in own) and (head, near) not in own:
                    found.add((row, head, near, -1))
        return found

    def one_by_one(self, entity: int, own: Facts) -> Rows:
        tails = defaultdict(list)
        for relation, tail in own:
            tails[relation].append(tail)
        return self.ground(entity, own, [(near, (walk,)) for walk in self.walks for near in tails.get(walk[3], ())])

    def by_index(self, entity: int, own: Facts) -> Rows:
        return self.ground(entity, own, [(tail, self.starting.get(relation, ())) for relation, tail in own])


def grounding(dataset: InductiveDataset) -> list[Bar]:
    rules = mine_rules(dataset.observed, FROM_PAPER, threads=THREADS).rules
    grounder, overlay = Grounder(rules, NeighborLimits(min_support=1)), Overlay.of_dataset(dataset)
    seconds, found = {}, {}
    for entity in dataset.test_newcomers.tolist():
        found[entity] = grounder.ground(overlay, entity)
        seconds[entity] = best_of(3, partial(grounder.ground, overlay, entity))
    spent = 1000 * np.array(list(seconds.values()))
    print(
        f"grounding {len(grounder.rules):,} rules for one of {len(found):,} newcomers, best of 3 runs each: "
        f"median {np.median(spent):.3f} ms, 99th percentile {np.percentile(spent, 99):.3f} ms, "
        f"worst {spent.max():.2f} ms (target {TARGET_MS:g} ms); "
        f"{np.mean([len(rows) for rows in found.values()]):,.0f} groundings on average"
    )
    return grounding_ratios(PlainGrounder(grounder.rules, dataset), dataset, seconds, found)


def grounding_ratios(
    plain: PlainGrounder, dataset: InductiveDataset, seconds: dict[int, float], found: dict[int, Ids]
) -> list[Bar]:
    asked = random.Random(0).sample(sorted(found), SAMPLE)
    overlay = Overlay.of_dataset(dataset)
    own = {e: set(zip(*(column.tolist() for column in overlay.facts_of(e)), strict=True)) for e in asked}
    fast = sum(seconds[entity] for entity in asked)
    bars: list[Bar] = []
    for name, ground in (("rule by rule", plain.one_by_one), ("indexed", plain.by_index)):
        assert all(ground(e, own[e]) == set(map(tuple, found[e][:, :4].tolist())) for e in asked)
        slow = best_of(2, lambda ground=ground: [ground(e, own[e]) for e in asked])  # type: ignore[misc]
        detail = f"{1000 * slow / SAMPLE:.2f} ms against {1000 * fast / SAMPLE:.3f} ms a newcomer, the same groundings"
        name = f"grounding: plain Python, {name} / compiled"
        bars.append(Bar(name, slow / fast, GROUNDING_BARS[len(bars)], at_least=True, detail=detail))
    return bars


def original(dataset: InductiveDataset) -> Graph | None:
    """All of FB15K with the data set's ids."""
    return None if data_folder("fb15k") is None else align(load_dataset("fb15k").known(), dataset)


def ranked(
    dataset: InductiveDataset,
    rules: RuleSet,
    by_frequency: bool,
    what: str,
    least: tuple[float, float],
    full: Graph | None,
) -> list[Bar]:
    """Bars for the known filter; the full filter stands beside it where FB15K is at hand."""
    ranker = RuleScorer(RuleRanker.of(rules, by_frequency=by_frequency), Overlay.of_dataset(dataset), THREADS)
    protocols = [RankingProtocol(filter=name) for name in (("known",) if full is None else ("known", "full"))]
    started = time.perf_counter()
    known, *rest = [result.metrics() for result in evaluate_under(dataset, ranker, protocols, full=full)]
    seconds = time.perf_counter() - started
    detail = f"Hits@1 {100 * known['hits@1']:.1f}, Hits@3 {100 * known['hits@3']:.1f}, mean rank {known['mr']:.0f}"
    for metrics in rest:
        shares = ", ".join(f"{name} {100 * metrics[key]:.1f}" for name, key in (("MRR", "mrr"), ("Hits@10", "hits@10")))
        detail += f"; full filter: {shares}, mean rank {metrics['mr']:.0f}"
    name = f"{dataset.name}, {what}"
    return [
        Bar(f"{name}: MRR", 100 * known["mrr"], least[0], at_least=True, detail=f"{detail}; {seconds:.1f} s"),
        Bar(f"{name}: Hits@10", 100 * known["hits@10"], least[1], at_least=True),
    ]


def quality(dataset: InductiveDataset) -> list[Bar]:
    without, with_them, every_kind = QUALITY[dataset.name]
    full = original(dataset)
    walks = mined(dataset, WALKS, "walks of one and two atoms")
    bars = ranked(dataset, walks, False, "walks", without, full)
    bars += ranked(dataset, walks, True, "walks and frequencies", with_them, full)
    everything = mined(dataset, EVERY_KIND, f"every kind (AnyBURL was given {ANYBURL_SECONDS} s)")
    return bars + ranked(dataset, everything, True, "every kind and frequencies", every_kind, full)


def mined(dataset: InductiveDataset, plan: MiningPlan, what: str) -> RuleSet:
    result = mine_rules(dataset.observed, plan, threads=THREADS)
    print(f"{dataset.name}: {len(result.rules):,} rules, {what}, in {result.seconds:.1f} s")
    return result.rules


def neighbours(dataset: InductiveDataset) -> list[Bar]:
    """Neighbours per predicted fact with limits as the paper's tool has them, and how many of them are true."""
    rules = mine_rules(dataset.observed, MiningPlan(min_support=1), threads=THREADS).rules
    limits, degrees, full = (
        NeighborLimits(min_support=1, min_head_size=100),
        dataset.auxiliary.degrees,
        original(dataset),
    )
    overlay, after = Overlay.of_dataset(dataset), []
    for paths in (None, PathLimits()):
        found = virtual_neighbors(Grounder(rules, limits), overlay, dataset.test_newcomers, paths, threads=THREADS)
        after.append(neighbours_per_predicted_fact(dataset, degrees + found.degrees(len(dataset.entities))) or 0.0)
    before = neighbours_per_predicted_fact(dataset, degrees) or 0.0
    print(
        f"{dataset.name}: neighbours per predicted fact {before:.2f} -> {after[0]:.2f} by Horn rules -> {after[1]:.2f} "
        f"with symmetric paths (the paper: {PAPER_NEIGHBOURS})"
    )
    if full is not None:
        for chosen in (limits, NeighborLimits()):
            print_true_shares(dataset, rules, chosen, full)
    return [Bar("neighbours per predicted fact / the paper's", after[1] / PAPER_NEIGHBOURS, 0.98, at_least=True)]


def print_true_shares(dataset: InductiveDataset, rules: RuleSet, limits: NeighborLimits, full: Graph) -> None:
    overlay = Overlay.of_dataset(dataset)
    found = virtual_neighbors(Grounder(rules, limits), overlay, dataset.test_newcomers, PathLimits(), threads=THREADS)
    true = full.contains(found.triples.heads, found.triples.relations, found.triples.tails)
    by_kind = ((name, found.kinds == kind) for kind, name in enumerate(("Horn rules", "paths alone")))
    shares = ", ".join(f"{100 * true[mask].mean():.1f} % of {mask.sum():,} by {name}" for name, mask in by_kind)
    print(f"  in FB15K, with support >= {limits.min_support}, heads >= {limits.min_head_size} facts: {shares}")


def files(dataset: InductiveDataset) -> list[Bar]:
    """Rule files by columns against a rule at a time."""
    rules = mine_rules(dataset.observed, WALKS, threads=THREADS).rules
    names = dataset.relations, dataset.entities
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.tsv"
        write = best_of(3, lambda: write_rules(rules, path, *names))
        read = best_of(3, lambda: read_rules(path, *names))
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
        few = rules.where(np.arange(0, len(rules), 10))
        one_by_one = 10 * best_of(3, lambda: path.write_text("\n".join(written(rule, dataset) for rule in few)))
    parse = 10 * best_of(3, lambda: RuleSet.of((parsed(line, dataset) for line in lines[::10]), rules.num_relations))
    detail = f"{len(rules):,} rules: written in {write:.2f} s, read in {read:.2f} s"
    return [
        Bar("rule files: written one by one / by columns", one_by_one / write, FILE_BAR, at_least=True, detail=detail),
        Bar("rule files: read one by one / by columns", parse / read, FILE_BAR, at_least=True),
    ]


def written(rule: Rule, dataset: InductiveDataset) -> str:
    counts = map(str, (rule.support, rule.body_size, rule.pca_body_size, rule.head_size))
    shares = map(repr, (rule.head_coverage, rule.confidence, rule.pca_confidence))
    return "\t".join([rule.text(dataset.relations, dataset.entities), *counts, *shares])


def parsed(line: str, dataset: InductiveDataset) -> Rule:
    text, support, body, pca, head, *_ = line.split("\t")
    rule = parse_rule(text, dataset.relations, dataset.entities)
    return replace(rule, support=int(support), body_size=int(body), pca_body_size=int(pca), head_size=int(head))


def main() -> None:
    bars: list[Bar] = []
    if data_folder("fb15k-subject-10") is not None:
        dataset = load_dataset("fb15k-subject-10")
        bars += [*grounding(dataset), *neighbours(dataset), *files(dataset), *quality(dataset)]
    if data_folder("fb15k-object-10") is not None:
        bars += quality(load_dataset("fb15k-object-10"))
    finish(bars)


if __name__ == "__main__":
    main()
