"""Chains of three atoms against the definitions, what sampling may change, and what it may not."""

from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from conftest import named_graph
from newcomer.errors import DatasetError, OptionError
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules.files.rule_table import write_rules
from newcomer.rules.mining import chains
from newcomer.rules.mining.chains import ChainLimits, mine_chains
from newcomer.rules.mining.index import tail_side
from newcomer.rules.rule import COLUMNS, Kind, RuleSet

EVERYTHING = ChainLimits(samples=30_000, min_hits=1, min_support=1, min_confidence=0.0, max_pairs=10**9)
Pairs = set[tuple[int, int]]
Figures = dict[tuple[int, int, int, int], tuple[int, int, int, int]]


def graph_of(triples: set[tuple[int, int, int]], entities: int, relations: int) -> Graph:
    names = [Vocabulary(f"{letter}{i}" for i in range(size)) for letter, size in (("e", entities), ("r", relations))]
    return Graph.build(*names, TripleArray.of(sorted(triples)))


def random_graph(rng: np.random.Generator, entities: int, edges: int) -> Graph:
    """Self loops, hubs, and now and then a symmetric relation."""
    ends = (entities * rng.random((edges, 2)) ** rng.choice([1.0, 2.0])).astype(int)
    triples = {(int(h), int(rng.integers(2)), int(t)) for h, t in ends}
    if rng.random() < 0.3:
        triples |= {(t, r, h) for h, r, t in triples if r == 0}
    return graph_of(triples, entities, 2)


def larger_graph(seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    triples = {(int(h), int(r), int(t)) for h, r, t in rng.integers((60, 4, 60), size=(400, 3))}
    return graph_of(triples, 60, 4)


def bodies(graph: Graph) -> tuple[dict[int, Pairs], dict[tuple[int, int, int], Pairs]]:
    """The pairs of each oriented relation, and of each chain over four different entities."""
    size = graph.num_relations
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    pairs: dict[int, Pairs] = {q: set() for q in range(2 * size)}
    for head, relation, tail in graph.triples.rows.tolist():
        for q, a, b in ((relation, head, tail), (relation + size, tail, head)):
            steps[a].append((q, b))
            pairs[q].add((a, b))
    found: dict[tuple[int, int, int], Pairs] = defaultdict(set)
    for x in list(steps):
        for r1, z in steps[x]:
            for r2, w in steps[z]:
                for r3, y in steps[w]:
                    if len({x, y, z, w}) == 4:
                        found[r1, r2, r3].add((x, y))
    return pairs, found


def oracle(graph: Graph) -> Figures:
    pairs, found = bodies(graph)
    by_tail = tail_side(graph)
    figures: Figures = {}
    for head, (body, reached) in product(range(graph.num_relations), found.items()):
        support = len(reached & pairs[head])
        if support:
            side = 1 if by_tail[head] else 0
            having = {pair[side] for pair in pairs[head]}
            known = sum(pair[side] in having for pair in reached)
            figures[head, *body] = support, len(reached), known, len(pairs[head])
    return figures


def table(rules: RuleSet) -> Figures:
    found = {(r.head, r.body1, r.body2, r.body3): (r.support, r.body_size, r.pca_body_size, r.head_size) for r in rules}
    assert len(found) == len(rules), "a rule stands twice"
    assert all(r.kind == Kind.THREE and r.head_constant == r.body_constant == -1 for r in rules)
    return found


def same(one: RuleSet, other: RuleSet) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


@pytest.mark.parametrize("seed", range(30))
def test_plenty_of_samples_find_every_rule_with_every_figure(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(4, 8)), int(rng.integers(4, 12)))
    result = mine_chains(graph, EVERYTHING, seed=seed, threads=1)
    assert table(result) == oracle(graph)


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_the_definition(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 25, 120)
    wanted, found = oracle(graph), table(mine_chains(graph, EVERYTHING, threads=2))
    assert len(found) > 50
    assert found == {key: wanted[key] for key in found}


def test_a_worked_example() -> None:
    facts = [("ann", "parent", "bob"), ("bob", "spouse", "cyd"), ("cyd", "sister", "dee"), ("ann", "knows", "dee")]
    facts += [("eve", "parent", "fay"), ("fay", "spouse", "gus"), ("gus", "sister", "hal")]
    graph = named_graph(facts)
    rules = mine_chains(graph, EVERYTHING)
    texts = dict(zip(rules.texts(graph.relations), rules, strict=True))
    rule = texts["parent(x,z), spouse(z,w), sister(w,y) => knows(x,y)"]
    assert (rule.support, rule.body_size, rule.pca_body_size, rule.head_size) == (1, 2, 1, 1)


def test_a_fact_is_no_reason_for_itself() -> None:
    # a -> b can be walked there, back and there again, but not over four different entities.
    assert len(mine_chains(graph_of({(0, 0, 1), (1, 0, 0), (0, 1, 1), (1, 1, 1)}, 2, 2), EVERYTHING)) == 0


def test_a_cap_takes_whole_starts() -> None:
    graph = larger_graph()
    wanted, limits = oracle(graph), ChainLimits(20_000, min_hits=1, min_support=1, min_confidence=0.0, max_pairs=250)
    result = mine_chains(graph, limits)
    assert 0 < (result.body_size < 250).sum() < len(result)
    starts: dict[tuple[int, int, int], dict[int, int]] = {}
    for body, reached in bodies(graph)[1].items():
        starts[body] = dict(zip(*np.unique([x for x, _ in reached], return_counts=True), strict=True))
    for key, figures in table(result).items():
        most = max(starts[key[1:]].values())
        if figures[1] < 250:
            assert figures == wanted[key]
        else:
            assert 250 <= figures[1] < 250 + most
            assert figures[0] <= wanted[key][0] and figures[1] <= wanted[key][1] and figures[2] <= wanted[key][2]


def test_estimates_are_near_the_truth_on_average() -> None:
    graph = larger_graph(1)
    wanted = oracle(graph)
    limits = ChainLimits(20_000, min_hits=1, min_support=1, min_confidence=0.0, max_pairs=100)
    rules = mine_chains(graph, limits, seed=5)
    truth = np.array([wanted[r.head, r.body1, r.body2, r.body3] for r in rules])
    every = mine_chains(graph, EVERYTHING)
    assert len(every) >= len(rules) > 100
    # Rules whose sample holds no support are dropped, which lifts what is left a little.
    assert abs(rules.confidence.mean() / (truth[:, 0] / truth[:, 1]).mean() - 1) < 0.15


def test_limits_keep_what_they_say() -> None:
    graph = larger_graph()
    every = mine_chains(graph, EVERYTHING)
    limits = ChainLimits(EVERYTHING.samples, None, 1, min_support=3, min_confidence=0.02, max_pairs=10**9)
    kept = every.where((every.support >= 3) & (every.smoothed_confidence >= 0.02))
    assert 0 < len(kept) < len(every)
    assert table(mine_chains(graph, limits)) == table(kept)


def test_fewer_hits_mean_fewer_candidates() -> None:
    graph = larger_graph()
    counts = [len(mine_chains(graph, ChainLimits(20_000, None, hits, 1, 0.0))) for hits in (1, 2, 5)]
    assert counts[0] > counts[1] > counts[2] > 0


def test_max_candidates_keeps_those_most_often_hit() -> None:
    graph = larger_graph()
    limits = ChainLimits(20_000, None, 1, 1, 0.0, max_candidates=50)
    assert 0 < len(mine_chains(graph, limits)) <= 50
    every = mine_chains(graph, ChainLimits(20_000, None, 1, 1, 0.0))
    assert table(mine_chains(graph, limits)).items() <= table(every).items()


@pytest.mark.parametrize("seed", [0, 7])
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int) -> None:
    monkeypatch.setattr(chains, "ROUND", 3_000)
    monkeypatch.setattr(chains, "BODIES", 100)
    graph, files = larger_graph(), []
    for threads in (1, 2, 5):
        limits = ChainLimits(20_001, None, 2, 1, 0.0, max_pairs=40, max_candidates=2_000)
        result = mine_chains(graph, limits, seed, threads)
        files.append(tmp_path / f"{threads}.tsv")
        write_rules(result, files[-1], graph.relations)
        assert len(result) > 100
    assert len({file.read_bytes() for file in files}) == 1


def test_the_seed_decides() -> None:
    graph, limits = larger_graph(), ChainLimits(5_000, None, 2, 1, 0.0, max_pairs=40)
    assert same(mine_chains(graph, limits, seed=3), mine_chains(graph, limits, seed=3))
    assert not same(mine_chains(graph, limits, seed=3), mine_chains(graph, limits, seed=4))


def test_time_ends_sampling_between_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "ROUND", 1_000)
    graph, now = larger_graph(), [0.0]
    monkeypatch.setattr(chains.time, "monotonic", lambda: now[0])
    reported: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        reported.append((done, total))
        now[0] += 1.0

    result = mine_chains(graph, ChainLimits(20_000, seconds=6.0, min_hits=1), progress=progress)
    assert reported == [(1_000 * i, 20_000) for i in range(1, 5)]
    assert len(result) > 0
    now[0] = 0.0
    whole = mine_chains(graph, ChainLimits(4_000, min_hits=1))
    assert same(whole, result)


def test_time_ends_counting_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "BODIES", 10)
    ticks = iter(range(10**6))
    monkeypatch.setattr(chains.time, "monotonic", lambda: float(next(ticks)))
    result = mine_chains(larger_graph(), ChainLimits(1_000, seconds=12.0, min_hits=1, min_support=1))
    monkeypatch.undo()
    assert 0 < len(result) < len(mine_chains(larger_graph(), ChainLimits(1_000, min_hits=1, min_support=1)))


@pytest.mark.parametrize(("entities", "relations"), [(0, 0), (3, 0), (3, 2)])
def test_a_graph_without_facts_has_no_rules(entities: int, relations: int) -> None:
    result = mine_chains(graph_of(set(), entities, relations), ChainLimits(1_000))
    assert len(result) == 0


@pytest.mark.parametrize(("name", "value"), [("seed", -1), ("threads", 0)])
def test_arguments_out_of_range(name: str, value: int) -> None:
    with pytest.raises(OptionError, match=f"^{name} is {value}, but must be "):
        mine_chains(larger_graph(), **{name: value})  # type: ignore[arg-type]


def test_too_many_relations() -> None:
    graph = graph_of({(0, 0, 1)}, 2, chains.MOST_RELATIONS + 1)
    with pytest.raises(DatasetError, match="at most 32,767 relations, not 32,768"):
        mine_chains(graph)
