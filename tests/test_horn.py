"""Mining of rules of one and two atoms against the definitions, its limits, and what is known of AMIE."""

import gzip
import os
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from conftest import named_graph
from newcomer.errors import OptionError
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules.files.rule_table import write_rules
from newcomer.rules.mining import MiningPlan, horn
from newcomer.rules.mining.horn import mine_horn
from newcomer.rules.mining.index import tail_side
from newcomer.rules.rule import Kind, RuleSet

EVERYTHING = MiningPlan(min_support=1, min_head_coverage=0.0)
Pairs = set[tuple[int, int]]
Figures = dict[tuple[int, ...], tuple[int, int, int, int]]


def graph_of(triples: set[tuple[int, int, int]], entities: int, relations: int) -> Graph:
    names = [Vocabulary(f"{letter}{i}" for i in range(size)) for letter, size in (("e", entities), ("r", relations))]
    return Graph.build(*names, TripleArray.of(sorted(triples)))


def oracle(graph: Graph) -> Figures:
    """Every rule by the definitions alone: sets of pairs, nothing clever."""
    size = graph.num_relations
    pairs: dict[int, Pairs] = {r: set() for r in range(2 * size)}
    for head, relation, tail in graph.triples.rows.tolist():
        pairs[relation].add((head, tail))
        pairs[relation + size].add((tail, head))
    bodies: dict[tuple[int, ...], Pairs] = {}
    for r1 in range(2 * size):
        bodies[Kind.ONE, r1, -1] = pairs[r1]
        followers = defaultdict(set)
        for x, z in pairs[r1]:
            followers[z].add(x)
        for r2 in range(2 * size):
            bodies[Kind.TWO, r1, r2] = {(x, y) for z, y in pairs[r2] for x in followers[z]}
            if r1 < r2:
                bodies[Kind.BOTH, r1, r2] = pairs[r1] & pairs[r2]
    figures: Figures = {}
    for head in range(size):
        subjects, objects = {x for x, _ in pairs[head]}, {y for _, y in pairs[head]}
        for (kind, r1, r2), body in bodies.items():
            support = len(body & pairs[head])
            if support == 0 or (kind != Kind.TWO and head in (r1, r2)):
                continue
            by_head = len(subjects) >= len(objects)
            known = sum(x in subjects if by_head else y in objects for x, y in body)
            figures[head, kind, r1, r2] = support, len(body), known, len(pairs[head])
    return figures


def table(rules: RuleSet) -> Figures:
    found = {
        (r.head, int(r.kind), r.body1, r.body2): (r.support, r.body_size, r.pca_body_size, r.head_size) for r in rules
    }
    assert len(found) == len(rules), "a rule stands twice"
    return found


def random_graph(rng: np.random.Generator) -> Graph:
    """Small and awkward: self loops, copied, turned and symmetric relations, empty relations, hubs."""
    entities, relations = int(rng.integers(1, 12)), int(rng.integers(1, 6))
    edges = int(rng.integers(0, 4 * entities))
    power = rng.choice([1.0, 3.0])
    ends = (entities * rng.random((edges, 2)) ** power).astype(int)
    triples = {(int(h), int(rng.integers(relations)), int(t)) for h, t in ends}
    style, (a, b) = int(rng.integers(4)), (int(r) for r in rng.integers(relations, size=2))
    if style == 1:
        triples |= {(h, b, t) for h, r, t in triples if r == a and rng.random() < 0.8}
    if style == 2:
        triples |= {(t, b, h) for h, r, t in triples if r == a}
    if style == 3:
        triples = {(h, r, t) for h, r, t in triples if r != a}
    return graph_of(triples, entities, relations)


def hub_graph(rng: np.random.Generator) -> Graph:
    """Two hubs with many neighbours each, so that both ways of meeting neighbourhoods are taken."""
    triples = {(int(e), int(rng.integers(3)), int(rng.integers(2))) for e in range(2, 80) for _ in range(2)}
    triples |= {(int(rng.integers(2)), int(rng.integers(4)), int(rng.integers(80))) for _ in range(120)}
    triples |= {(int(h), 3, int(t)) for h, t in rng.integers(80, size=(40, 2))}
    return graph_of(triples, 80, 5)


@pytest.mark.parametrize("seed", range(10))
def test_every_rule_and_every_figure_of_small_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        graph = random_graph(rng)
        assert table(mine_horn(graph, EVERYTHING, threads=1).rules) == oracle(graph)


@pytest.mark.parametrize("seed", range(6))
def test_hubs(seed: int) -> None:
    graph = hub_graph(np.random.default_rng(seed))
    assert table(mine_horn(graph, EVERYTHING, threads=2).rules) == oracle(graph)


@pytest.mark.parametrize("seed", range(5))
def test_limits_keep_what_they_say(seed: int) -> None:
    graph = hub_graph(np.random.default_rng(seed))
    limits = MiningPlan(min_support=3, min_head_coverage=0.1, min_confidence=0.02, min_pca=0.05, min_head_size=50)
    wanted = {
        key: (support, body, pca, size)
        for key, (support, body, pca, size) in oracle(graph).items()
        if support >= 3 and support / size >= 0.1 and support / body >= 0.02 and support / pca >= 0.05 and size >= 50
    }
    assert wanted
    assert table(mine_horn(graph, limits).rules) == wanted


def test_head_coverage_is_compared_as_a_quotient() -> None:
    # 0.07 * 100 is a hair above 7 as floats multiply, yet 7 / 100 is not below 0.07.
    triples = {(i, 0, i + 100) for i in range(100)} | {(i, 1, i + 100) for i in range(7)}
    rules = mine_horn(graph_of(triples, 200, 2), MiningPlan(min_head_coverage=0.07, kinds=(Kind.ONE,))).rules
    assert (0, Kind.ONE, 1, -1) in table(rules)


@pytest.mark.parametrize("kinds", [(Kind.ONE,), (Kind.TWO,), (Kind.BOTH,), (Kind.BOTH, Kind.ONE)])
def test_kinds_are_mined_alone(kinds: tuple[Kind, ...]) -> None:
    graph = hub_graph(np.random.default_rng(3))
    wanted = {key: figures for key, figures in oracle(graph).items() if key[1] in kinds}
    assert table(mine_horn(graph, MiningPlan(min_support=1, min_head_coverage=0.0, kinds=kinds)).rules) == wanted


def test_a_worked_example() -> None:
    graph = named_graph(
        [
            ("Lyon", "in", "France"), ("Paris", "in", "France"), ("Bonn", "in", "Germany"), ("Oslo", "in", "Norway"),
            ("Paris", "capital_of", "France"), ("Oslo", "capital_of", "Norway"), ("Bern", "capital_of", "Switzerland"),
        ]
    )  # fmt: skip
    rules = mine_horn(graph, MiningPlan(min_support=1, kinds=(Kind.ONE,))).rules
    lines = dict(zip(rules.texts(graph.relations), rules, strict=True))
    # "in" has four heads and three tails, so PCA looks at x: Bern is in nothing, and is not held against the rule.
    rule = lines["capital_of(x,y) => in(x,y)"]
    assert (rule.support, rule.body_size, rule.pca_body_size, rule.head_size) == (2, 3, 2, 4)
    assert (rule.head_coverage, rule.confidence, rule.pca_confidence) == (0.5, 2 / 3, 1.0)


def test_pca_looks_at_the_more_functional_side() -> None:
    triples = {(0, 0, 1), (0, 0, 2), (0, 1, 1), (3, 1, 2), (0, 1, 4)}
    graph = graph_of(triples, 5, 2)
    assert tail_side(graph).tolist() == [True, True]
    rule = next(r for r in mine_horn(graph, EVERYTHING).rules if (r.head, r.kind, r.body1) == (0, Kind.ONE, 1))
    # Of the pairs (0,1), (3,2), (0,4) the y of the last is no tail of relation 0.
    assert (rule.support, rule.body_size, rule.pca_body_size) == (1, 3, 2)


@pytest.mark.parametrize("seed", range(20))
def test_tail_side_is_the_side_with_more_distinct_entities(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed))
    rows = graph.triples.rows.tolist()
    ends = [({h for h, q, _ in rows if q == r}, {t for _, q, t in rows if q == r}) for r in range(graph.num_relations)]
    assert tail_side(graph).tolist() == [len(heads) < len(tails) for heads, tails in ends]


def test_the_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    graph = hub_graph(np.random.default_rng(7))
    written = []
    for threads in (1, 2, 5):
        write_rules(mine_horn(graph, EVERYTHING, threads=threads).rules, tmp_path / "rules.tsv", graph.relations)
        written.append((tmp_path / "rules.tsv").read_bytes())
    assert written[0] == written[1] == written[2]


def crowded_graph() -> Graph:
    """Few entities, many relations: more bodies for one head than the smallest table holds."""
    rows = np.random.default_rng(11).integers((20, 25, 20), size=(700, 3))
    return graph_of({(h, r, t) for h, r, t in rows.tolist()}, 20, 25)


@pytest.mark.parametrize("memory_limit", [1, 300_000])
def test_little_memory_gives_the_same_rules(memory_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, parts = crowded_graph(), []
    everything = table(mine_horn(graph, EVERYTHING).rules)

    def watched(*arguments: int) -> object:
        parts.append(arguments[5])
        return chain_support(*arguments)

    chain_support: Callable[..., object] = horn.chain_support
    monkeypatch.setattr(horn, "chain_support", watched)
    limits = MiningPlan(min_support=1, min_head_coverage=0.0, memory_limit=memory_limit)
    assert table(mine_horn(graph, limits, threads=2).rules) == everything
    assert max(parts) > 1, "the tables were never too small"


def test_out_of_time_leaves_whole_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = hub_graph(np.random.default_rng(2))
    everything = table(mine_horn(graph, EVERYTHING).rules)
    stopped_early = 0
    for allowed in range(1, 60, 3):
        ticks = count()
        monkeypatch.setattr(horn.time, "monotonic", lambda ticks=ticks: float(next(ticks)))
        limits = MiningPlan(min_support=1, min_head_coverage=0.0, time_limit=float(allowed))
        result = mine_horn(graph, limits, threads=1)
        monkeypatch.undo()
        whole = set(result.complete_relations.tolist())
        assert table(result.rules) == {key: value for key, value in everything.items() if key[0] in whole}
        assert result.complete == (len(whole) == graph.num_relations)
        stopped_early += 0 < len(result.rules) < len(everything)
    assert stopped_early > 0


@pytest.mark.parametrize("limits", [EVERYTHING, MiningPlan(memory_limit=1), MiningPlan(min_support=10**6)])
def test_progress_rises_to_the_end(limits: MiningPlan) -> None:
    calls: list[tuple[int, int]] = []
    mine_horn(hub_graph(np.random.default_rng(2)), limits, progress=lambda done, total: calls.append((done, total)))
    done = [d for d, _ in calls]
    assert done == sorted(set(done))
    assert calls[-1][0] == calls[-1][1]
    assert len({total for _, total in calls}) == 1


def test_an_error_in_progress_stops_mining() -> None:
    def fail(done: int, total: int) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        mine_horn(hub_graph(np.random.default_rng(2)), EVERYTHING, threads=2, progress=fail)


@pytest.mark.parametrize(("entities", "relations"), [(0, 0), (3, 0), (3, 2)])
def test_a_graph_without_triples_has_no_rules(entities: int, relations: int) -> None:
    result = mine_horn(graph_of(set(), entities, relations), EVERYTHING)
    assert len(result.rules) == 0
    assert result.complete


def test_no_threads_are_refused() -> None:
    with pytest.raises(OptionError, match="threads is 0, but must be an integer from 1"):
        mine_horn(graph_of(set(), 1, 1), threads=0)


def fb15k(*files: str) -> Graph:
    folder = os.environ.get("NEWCOMER_DATA")
    path = Path(folder or "", "fb15k-subject-10")
    if folder is None or not path.is_dir():
        pytest.skip("NEWCOMER_DATA does not name a folder with fb15k-subject-10")
    texts = [gzip.decompress((path / f"{name}.txt.gz").read_bytes()).decode("utf-8") for name in files]
    return named_graph([tuple(line.split("\t")) for text in texts for line in text.splitlines()])  # type: ignore[misc]


def test_as_many_rules_as_amie_on_observed_triples() -> None:
    rules = mine_horn(fb15k("train"), MiningPlan(min_support=1, min_head_coverage=0.01, min_head_size=100)).rules
    assert (len(rules), (rules.confidence >= 0.8).sum(), (rules.pca_confidence >= 0.8).sum()) == (19_582, 3_042, 6_224)


def test_as_many_rules_as_amie_on_observed_and_auxiliary_triples() -> None:
    limits = MiningPlan(min_support=1, min_head_coverage=0.01, min_head_size=100)
    rules = mine_horn(fb15k("train", "aux"), limits).rules
    assert (rules.pca_confidence >= 0.8).sum() == 11_597


def test_a_memory_limit_may_be_larger_than_any_memory() -> None:
    graph = random_graph(np.random.default_rng(0))
    free, limited = (table(mine_horn(graph, MiningPlan(memory_limit=limit)).rules) for limit in (None, 10**30))
    assert free == limited and free
