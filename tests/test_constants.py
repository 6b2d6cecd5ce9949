"""Rules about one variable against the definitions, and their limits."""

from collections import defaultdict

import numpy as np
import pytest

from conftest import named_graph
from newcomer.errors import OptionError
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules.files.rule_table import write_rules
from newcomer.rules.mining import constants
from newcomer.rules.mining.constants import ConstantLimits, mine_constants
from newcomer.rules.rule import COLUMNS, Kind, RuleSet

EVERYTHING = ConstantLimits(min_support=1, min_confidence=0.0)
Key = tuple[int, int, int, int, int]  # kind, head, head constant, body, body constant
Figures = dict[Key, tuple[int, int, int, int]]


def graph_of(triples: set[tuple[int, int, int]], entities: int, relations: int) -> Graph:
    names = [Vocabulary(f"{letter}{i}" for i in range(size)) for letter, size in (("e", entities), ("r", relations))]
    return Graph.build(*names, TripleArray.of(sorted(triples)))


def random_graph(rng: np.random.Generator) -> Graph:
    """Small and awkward: self loops, symmetric and empty relations, hubs, entities without a fact."""
    entities, relations = int(rng.integers(1, 10)), int(rng.integers(1, 5))
    power = rng.choice([1.0, 3.0])
    ends = (entities * rng.random((int(rng.integers(0, 4 * entities)), 2)) ** power).astype(int)
    triples = {(int(h), int(rng.integers(relations)), int(t)) for h, t in ends}
    if rng.random() < 0.3:
        triples |= {(t, r, h) for h, r, t in triples if r == 0}
    return graph_of(triples, entities, relations)


def hub_graph(seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    triples = {(int(e), int(rng.integers(4)), int(rng.integers(6))) for e in range(6, 90) for _ in range(4)}
    triples |= {(int(h), 4, int(t)) for h, t in rng.integers(90, size=(60, 2))}
    return graph_of(triples, 90, 6)


def oracle(graph: Graph) -> Figures:
    """Every rule by the definitions alone: the set of x for each atom about x."""
    size = graph.num_relations
    atoms: dict[tuple[int, int], set[int]] = defaultdict(set)
    for head, relation, tail in graph.triples.rows.tolist():
        for q, x, c in ((relation, head, tail), (relation + size, tail, head)):
            atoms[q, c].add(x)
            atoms[q, -1].add(x)
    figures: Figures = {}
    for (q, c), with_head in atoms.items():
        for (p, d), with_body in atoms.items():
            support = len(with_head & with_body)
            if c >= 0 and support and (p, d) != (q, c):
                kind = Kind.EXISTS if d < 0 else Kind.CONSTANT
                known = len(with_body & atoms[q, -1])
                figures[kind, q, c, p, d] = support, len(with_body), known, len(with_head)
    return figures


def table(rules: RuleSet) -> Figures:
    found: Figures = {
        (r.kind, r.head, r.head_constant, r.body1, r.body_constant): (
            r.support, r.body_size, r.pca_body_size, r.head_size,
        )
        for r in rules
    }  # fmt: skip
    assert len(found) == len(rules), "a rule stands twice"
    assert all(r.body2 == r.body3 == -1 for r in rules)
    return found


def quality(item: tuple[Key, tuple[int, int, int, int]], size: int) -> tuple[float | int, ...]:
    """Smaller is better: smoothed confidence, support, then canonical order."""
    (kind, head, constant, body, body_constant), (support, body_size, _, _) = item
    return -support / (body_size + 5), -support, head % size, kind, head, body, constant, body_constant


@pytest.mark.parametrize("seed", range(10))
def test_every_rule_and_every_figure_of_small_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        graph = random_graph(rng)
        assert table(mine_constants(graph, EVERYTHING, threads=1)) == oracle(graph)


def test_a_worked_example() -> None:
    speakers = [(p, "speaks", "French") for p in ("ann", "bob", "cyd", "dan")]
    homes = [("ann", "lives_in", "France"), ("bob", "lives_in", "France"), ("cyd", "lives_in", "Canada")]
    graph = named_graph([*speakers, *homes, ("eve", "lives_in", "France")])
    rules = mine_constants(graph, ConstantLimits(min_support=2, min_confidence=0.0))
    texts = dict(zip(rules.texts(graph.relations, graph.entities), rules, strict=True))
    rule = texts["speaks(x,French) => lives_in(x,France)"]
    assert (rule.support, rule.body_size, rule.pca_body_size, rule.head_size) == (2, 4, 3, 3)
    rule = texts["lives_in(x,_) => speaks(x,French)"]
    assert (rule.support, rule.body_size, rule.pca_body_size, rule.head_size) == (3, 4, 3, 4)


@pytest.mark.parametrize("seed", range(5))
def test_limits_keep_what_they_say(seed: int) -> None:
    graph = hub_graph(seed)
    limits = ConstantLimits(min_support=3, min_confidence=0.2)
    wanted = {
        key: (support, body, pca, head)
        for key, (support, body, pca, head) in oracle(graph).items()
        if support >= 3 and support / body >= 0.2
    }
    assert wanted and len(wanted) < len(oracle(graph))
    assert table(mine_constants(graph, limits)) == wanted


@pytest.mark.parametrize("kind", [Kind.CONSTANT, Kind.EXISTS])
def test_kinds_are_mined_alone(kind: Kind) -> None:
    graph = hub_graph()
    wanted = {key: figures for key, figures in oracle(graph).items() if key[0] == kind}
    assert table(mine_constants(graph, ConstantLimits(1, 0.0, kinds=(kind,)))) == wanted


@pytest.mark.parametrize("most", [1, 7, 100, 10**6])
@pytest.mark.parametrize("portions", [1, 5, 1000])
def test_max_rules_keeps_the_best(monkeypatch: pytest.MonkeyPatch, most: int, portions: int) -> None:
    monkeypatch.setattr(constants, "PORTIONS", portions)
    graph = hub_graph()
    ranked = sorted(oracle(graph).items(), key=lambda item: quality(item, graph.num_relations))
    limits = ConstantLimits(min_support=1, min_confidence=0.0, max_rules=most)
    assert table(mine_constants(graph, limits, threads=2)) == dict(ranked[:most])


@pytest.mark.parametrize("limits", [EVERYTHING, ConstantLimits(1, 0.0, max_rules=500)])
def test_rules_come_in_canonical_order(limits: ConstantLimits) -> None:
    rules = mine_constants(hub_graph(), limits)
    ordered = rules.sorted()
    assert len(rules) > 0
    assert all(np.array_equal(getattr(rules, name), getattr(ordered, name)) for name in COLUMNS)


def test_threads_change_nothing(tmp_path) -> None:
    graph, files = hub_graph(3), []
    for threads in (1, 2, 5):
        files.append(tmp_path / f"{threads}.tsv")
        rules = mine_constants(graph, ConstantLimits(2, 0.1, max_rules=200), threads)
        write_rules(rules, files[-1], graph.relations, graph.entities)
    assert len({file.read_bytes() for file in files}) == 1


def test_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = hub_graph(4)
    for portions in (1, 2, 10**6):
        monkeypatch.setattr(constants, "PORTIONS", portions)
        assert table(mine_constants(graph, EVERYTHING)) == oracle(graph)


@pytest.mark.parametrize(("entities", "relations"), [(0, 0), (3, 0), (3, 2)])
def test_a_graph_without_facts_has_no_rules(entities: int, relations: int) -> None:
    assert len(mine_constants(graph_of(set(), entities, relations), EVERYTHING)) == 0


def test_progress_reaches_the_total() -> None:
    reported: list[tuple[int, int]] = []
    mine_constants(hub_graph(), EVERYTHING, threads=2, progress=lambda done, total: reported.append((done, total)))
    assert [done for done, _ in reported] == list(range(1, reported[-1][1] + 1))


def test_no_threads_at_all() -> None:
    with pytest.raises(OptionError, match="threads is 0"):
        mine_constants(hub_graph(), threads=0)
