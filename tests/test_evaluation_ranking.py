"""Filtered ranking against sorting by hand, and the ceilings of the published splits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, product
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint, evaluate, make_dataset, named_graph, needs_data
from newcomer.data import load_dataset
from newcomer.evaluation import ranking
from newcomer.evaluation.ranking import (
    CANDIDATES,
    FILTERS,
    REMOVED_BYTES,
    SCORE_BYTES,
    TIES,
    RankingProtocol,
    align,
    ceiling,
    evaluate_under,
    queries_of,
)
from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray, Vocabulary

Triple = tuple[int, int, int]
PROTOCOLS = [RankingProtocol(*names) for names in product(FILTERS, CANDIDATES, TIES)]


@dataclass
class TableScorer:
    """Looks its scores up, shape (entities, oriented relations, entities), and remembers what it was asked."""

    table: npt.NDArray[np.floating]
    batches: list[int] = field(default_factory=list)
    relations: list[int] = field(default_factory=list)

    def scores(self, entities: Ids, relations: Ids, /) -> npt.NDArray[np.floating]:
        assert entities.dtype == relations.dtype == np.int32
        self.batches.append(len(entities))
        self.relations.extend(relations.tolist())
        return self.table[entities, relations]


def scorer_by_name(dataset: InductiveDataset, score: Callable[[str, str, bool, str], float]) -> TableScorer:
    """A table out of score(entity, relation, inverse?, candidate)."""
    entities, relations = list(dataset.entities), list(dataset.relations)
    table = [
        [[score(e, r, inverse, c) for c in entities] for inverse in (False, True) for r in relations] for e in entities
    ]
    return TableScorer(np.array(table, dtype=float))


@dataclass(frozen=True)
class Case:
    """A small world: the parts of a data set, all that is true, and a score for everything."""

    dataset: InductiveDataset
    parts: dict[str, list[Triple]]
    full: Graph
    table: npt.NDArray[np.floating]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    entities, relations = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    triple = st.tuples(st.integers(0, entities - 1), st.integers(0, relations - 1), st.integers(0, entities - 1))
    triples = st.lists(triple, max_size=6)
    parts = {role: draw(triples) for role in ("train", "aux", "valid", "full")}
    parts["test"] = draw(st.lists(triple, min_size=1, max_size=6))  # repeats and self loops included
    parts["false"] = draw(triples)
    names = Vocabulary(f"e{i}" for i in range(entities)), Vocabulary(f"r{i}" for i in range(relations))
    graphs = {role: Graph.build(*names, TripleArray.of(parts[role])) for role in ("train", "aux", "full")}
    labels = np.array([1] * len(parts["test"]) + [0] * len(parts["false"]), dtype=np.int8)
    rows = TripleArray.of(parts["test"] + parts["false"])
    test = TripleArray(rows.heads, rows.relations, rows.tails, labels)
    dataset = InductiveDataset("drawn", graphs["train"], graphs["aux"], TripleArray.of(parts["valid"]), test)
    size = entities * 2 * relations * entities
    scores = draw(st.lists(st.sampled_from([-np.inf, 0.0, 0.5, 1.0, np.inf]), min_size=size, max_size=size))
    table = np.array(scores, dtype=draw(st.sampled_from([np.float32, np.float64])))
    return Case(dataset, parts, graphs["full"], table.reshape(entities, 2 * relations, entities))


def asked(case: Case, triples: list[Triple]) -> list[tuple[int, int, int, int, str]]:
    """The queries of true triples by their definition."""
    seen = {e for h, _, t in case.parts["train"] for e in (h, t)}
    size = len(case.dataset.relations)
    found = []
    for row, (h, r, t) in enumerate(triples):
        given_head, given_tail = (h, r, t, row), (t, r + size, h, row)
        sides = {
            (True, True): [given_head, given_tail],
            (True, False): [given_tail],
            (False, True): [given_head],
            (False, False): [given_head, given_tail],
        }[h in seen, t in seen]
        found += [(*side, "seen" if h in seen and t in seen else "newcomer") for side in sides]
    return found


def true_answers(case: Case, entity: int, relation: int, roles: tuple[str, ...]) -> set[int]:
    size = len(case.dataset.relations)
    triples = [triple for role in roles for triple in case.parts[role]]
    if relation < size:
        return {t for h, r, t in triples if (h, r) == (entity, relation)}
    return {h for h, r, t in triples if (t, r) == (entity, relation - size)}


KNOWN = ("train", "aux", "valid", "test")


def sorted_rank(case: Case, entity: int, relation: int, answer: int, protocol: RankingProtocol) -> tuple[float, int]:
    """The rank by sorting the candidates and looking where those with the answer's score stand."""
    seen = {e for h, _, t in case.parts["train"] for e in (h, t)}
    pool = seen if protocol.candidates == "seen" else set(range(len(case.dataset.entities)))
    roles = KNOWN if protocol.filter == "known" else (*KNOWN, "full")
    pool = (pool - true_answers(case, entity, relation, roles)) | {answer}
    scores = sorted((float(case.table[entity, relation, c]) for c in pool), reverse=True)
    own = float(case.table[entity, relation, answer])
    places = [place for place, score in enumerate(scores, start=1) if score == own]
    rank = {"optimistic": places[0], "pessimistic": places[-1], "mean": sum(places) / len(places)}
    return rank[protocol.ties], len(pool)


@given(cases())
def test_queries_follow_the_definition(case):
    queries = queries_of(case.dataset)
    columns = (queries.entity, queries.relation, queries.answer, queries.triple, queries.group)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == asked(case, case.parts["test"])


@given(cases(), st.integers(1, 400))
def test_ranks_are_those_of_sorting_in_batches_of_any_size(case, memory_limit):
    triples = case.parts["test"] + case.parts["false"]  # as if all were true: an answer may be new to every filter
    queries = queries_of(case.dataset, TripleArray.of(triples))
    scorer = TableScorer(case.table)
    with mock.patch.object(ranking, "MEMORY_LIMIT", memory_limit):
        results = evaluate_under(case.dataset, scorer, PROTOCOLS, case.full, queries)
    for protocol, result in zip(PROTOCOLS, results, strict=True):
        assert result.protocol == protocol
        wanted = [sorted_rank(case, e, r, answer, protocol) for e, r, answer, _, _ in asked(case, triples)]
        assert list(zip(result.ranks.tolist(), result.candidates.tolist(), strict=True)) == wanted


@given(cases(), st.sampled_from(sorted(CANDIDATES)))
def test_the_ceiling_is_what_knowing_all_facts_gives_on_average(case, candidates):
    shares = []
    seen = {e for h, _, t in case.parts["train"] for e in (h, t)}
    pool = seen if candidates == "seen" else set(range(len(case.dataset.entities)))
    for entity, relation, answer, _, _ in asked(case, case.parts["test"]):
        unstated = true_answers(case, entity, relation, ("full",)) - true_answers(case, entity, relation, KNOWN)
        tied = 1 + len((unstated & pool) - {answer})
        shares.append((sum(1 / place for place in range(1, tied + 1)) / tied, 1 / tied, min(3, tied) / tied))
    found = ceiling(case.dataset, case.full, candidates)
    assert [found[name] for name in ("mrr", "hits@1", "hits@3")] == pytest.approx(np.mean(shares, axis=0).tolist())


def small_world() -> InductiveDataset:
    """Ann is new; she is known to like Bob, and asked whom else she likes (Cid). Dan likes Eve is unknown to all."""
    return make_dataset(
        train=[("Bob", "likes", "Cid"), ("Cid", "likes", "Dan"), ("Dan", "likes", "Bob"), ("Eve", "likes", "Bob")],
        aux=[("Ann", "likes", "Bob")],
        test=[("Ann", "likes", "Cid")],
    )


def liking(entity: str, relation: str, inverse: bool, candidate: str) -> float:
    return {"Ann": 0.3, "Bob": 0.9, "Cid": 0.5, "Dan": 0.5, "Eve": 0.7}[candidate]


@pytest.mark.parametrize(
    ("options", "rank", "candidates"),
    [
        ({}, 2.5, 4),  # Bob is known and leaves; Eve is above Cid, Dan level with him, Ann below
        ({"ties": "optimistic"}, 2.0, 4),
        ({"ties": "pessimistic"}, 3.0, 4),
        ({"candidates": "seen"}, 2.5, 3),
        ({"filter": "full"}, 1.5, 3),  # Ann likes Eve too, says the full graph
        ({"filter": "full", "candidates": "seen", "ties": "pessimistic"}, 2.0, 2),
    ],
)
def test_a_worked_example(options, rank, candidates):
    dataset = small_world()
    unknown = [("Ann", "hates", "Dan"), ("Zoe", "likes", "Cid"), ("Ann", "likes", "Zoe")]
    full = align(named_graph([("Ann", "likes", "Eve"), *unknown]), dataset)
    assert list(full.named()) == [("Ann", "likes", "Eve")]
    result = evaluate(dataset, scorer_by_name(dataset, liking), full=full, **options)
    assert (result.ranks.tolist(), result.candidates.tolist()) == ([rank], [candidates])
    assert result.metrics()["mrr"] == pytest.approx(1 / rank)


def test_the_ceiling_of_the_worked_example():
    dataset = small_world()
    full = align(named_graph([("Ann", "likes", name) for name in ("Ann", "Bob", "Dan", "Eve")]), dataset)
    # Dan and Eve are true, unstated and seen: Cid is first, second or third of three.
    found = ceiling(dataset, full)
    names = ("mr", "mrr", "hits@1", "hits@3")
    assert [found[name] for name in names] == pytest.approx([2.0, 11 / 18, 1 / 3, 1.0])
    assert ceiling(dataset, full, "all")["hits@1"] == pytest.approx(1 / 4)
    assert ceiling(dataset, dataset.known())["mrr"] == 1.0


def test_newcomers_and_seen_are_reported_apart():
    dataset = make_dataset(
        train=[("a", "r", "b"), ("b", "r", "c")],
        aux=[("new", "r", "a")],
        test=[("new", "r", "b"), ("a", "r", "c")],
    )
    result = evaluate(dataset, scorer_by_name(dataset, lambda e, r, inverse, c: float(c == "b")))
    assert result.queries.group.tolist() == ["newcomer", "seen", "seen"]
    newcomer, seen = (result.take(result.queries.group == group) for group in ("newcomer", "seen"))
    assert (len(newcomer.queries), len(seen.queries)) == (1, 2)
    assert newcomer.metrics()["mrr"] == 1.0 > seen.metrics()["mrr"]
    assert result.metrics()["mrr"] == pytest.approx((1 + 2 * seen.metrics()["mrr"]) / 3)


@given(cases())
def test_constant_scores_get_the_middle_rank(case):
    result = evaluate(case.dataset, TableScorer(np.zeros_like(case.table)))
    assert result.ranks.tolist() == ((result.candidates + 1) / 2).tolist()
    assert (result.candidates == 1).all() or result.metrics()["amri"] == pytest.approx(0.0, abs=1e-12)


@given(cases(), st.sampled_from(sorted(TIES)))
def test_who_scores_the_true_above_all_is_always_first(case, ties):
    table = np.zeros(case.table.shape, dtype=int)
    heads, relations, tails = np.array(case.parts["test"]).T
    table[heads, relations, tails] = 1
    table[tails, relations + len(case.dataset.relations), heads] = 1
    result = evaluate(case.dataset, TableScorer(table), ties=ties)
    metrics = result.metrics()
    assert [metrics[name] for name in ("mr", "mrr", "hits@1")] == [1.0, 1.0, 1.0]


def test_batches_keep_to_the_memory_limit(monkeypatch):
    generator = np.random.default_rng(5)
    size = 50
    rows = generator.integers(0, (size, 3, size), (400, 3))
    names = Vocabulary(f"e{i}" for i in range(size)), Vocabulary("abc")
    train = Graph.build(*names, TripleArray.of(rows[:200]))
    dataset = InductiveDataset("drawn", train, train, TripleArray.empty(), TripleArray.of(rows[200:]))
    scorer = TableScorer(generator.random((size, 6, size)))
    steps: list[tuple[int, int]] = []
    limit = 7 * (size * SCORE_BYTES + 5 * REMOVED_BYTES)
    monkeypatch.setattr(ranking, "MEMORY_LIMIT", limit)
    result = evaluate(dataset, scorer, progress=lambda *step: steps.append(step))
    total = len(result.queries)
    assert steps == [(done, total) for done in np.cumsum(scorer.batches).tolist()]
    assert steps[-1][0] == total
    assert 1 < max(scorer.batches) <= limit // (size * SCORE_BYTES)

    in_turn = result.candidates[np.argsort(result.queries.relation, kind="stable")]
    removed = (size + 1 - in_turn).tolist()  # known true answers of each query
    costs = [size * SCORE_BYTES + REMOVED_BYTES * count for count in removed]
    bounds = [0, *(done for done, _ in steps)]
    for start, stop in pairwise(bounds):
        assert sum(costs[start:stop]) <= limit  # within the limit,
        assert stop == total or sum(costs[start : stop + 1]) > limit  # and no smaller than need be

    one_by_one = TableScorer(scorer.table)
    monkeypatch.setattr(ranking, "MEMORY_LIMIT", 1)
    assert evaluate(dataset, one_by_one).ranks.tolist() == result.ranks.tolist()
    assert set(one_by_one.batches) == {1}


def test_relations_are_asked_for_one_after_the_other(monkeypatch):
    monkeypatch.setattr(ranking, "MEMORY_LIMIT", 1)
    triples = [(e, r, e) for e in range(4) for r in range(3)]
    train = Graph.build(Vocabulary("wxyz"), Vocabulary("abc"), TripleArray.of(triples))
    dataset = InductiveDataset("loops", train, train, TripleArray.empty(), TripleArray.of(triples))
    scorer = TableScorer(np.zeros((4, 6, 4)))
    result = evaluate(dataset, scorer)
    assert scorer.relations == sorted(result.queries.relation.tolist()) != result.queries.relation.tolist()


def test_protocols_share_one_scoring():
    dataset = small_world()
    scorer = scorer_by_name(dataset, liking)
    results = evaluate_under(dataset, scorer, PROTOCOLS, full=dataset.known())
    assert len(results) == len(PROTOCOLS)
    assert scorer.batches == [1]


def test_nan_is_refused_by_the_name_of_its_query():
    dataset = small_world()

    def broken(entity: str, relation: str, inverse: bool, candidate: str) -> float:
        return np.nan if (entity, inverse, candidate) == (given, given == "Cid", "Dan") else 0.0

    given = "Ann"
    error = complaint(evaluate, dataset, scorer_by_name(dataset, broken))
    assert "NaN to 'Dan' in the query ('Ann', 'likes', ?)" in str(error)
    given = "Cid"
    about_seen = queries_of(dataset, TripleArray.of([dataset.entities.ids(["Dan", "Bob", "Cid"]) * [1, 0, 1]]))
    error = complaint(evaluate, dataset, scorer_by_name(dataset, broken), queries=about_seen)
    assert "NaN to 'Dan' in the query (?, 'likes', 'Cid')" in str(error)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"filter": "ful"}, "unknown filter 'ful'; did you mean 'full'?"),
        ({"candidates": "unseen"}, "unknown candidates 'unseen'; did you mean 'seen'?"),
        ({"ties": "meen"}, "unknown ties 'meen'; did you mean 'mean'?"),
        ({"filter": "full"}, "needs a graph of all true triples"),
    ],
)
def test_wrong_options_are_refused(options, words):
    dataset = small_world()
    assert words in str(complaint(evaluate, dataset, scorer_by_name(dataset, liking), **options))


def test_no_query_is_refused():
    dataset = make_dataset(train=[("a", "r", "b")])
    assert "no query" in str(complaint(evaluate, dataset, TableScorer(np.zeros((2, 2, 2)))))
    assert "no query" in str(complaint(ceiling, dataset, dataset.known()))


def test_the_table_names_every_query():
    dataset = make_dataset(
        train=[("a", "r", "b"), ("b", "r", "c")], aux=[("c", "s", "new")], test=[("b", "s", "new"), ("a", "r", "c")]
    )
    result = evaluate(dataset, scorer_by_name(dataset, lambda e, r, inverse, c: float(c == "b")), ties="pessimistic")
    table = result.to_table()
    assert table.schema.metadata == {b"protocol": b"known filter, all candidates, pessimistic ties"}
    names = ("triple", "asked", "entity", "relation", "answer", "group", "rank", "candidates")
    assert [tuple(row[name] for name in names) for row in table.to_pylist()] == [
        (0, "head", "new", "s", "b", "newcomer", 1.0, 3),  # c is known to be one
        (1, "tail", "a", "r", "c", "seen", 3.0, 3),  # b is known to be one
        (1, "head", "c", "r", "a", "seen", 3.0, 3),
    ]


def test_an_interval_is_of_the_queries_taken():
    dataset = make_dataset(train=[("a", "r", "b"), ("b", "r", "c")], test=[("a", "r", "c"), ("c", "r", "b")])
    result = evaluate(dataset, scorer_by_name(dataset, lambda e, r, inverse, c: float(c == "c")))
    first = result.ranks == 1.0
    assert 0 < first.sum() < len(first)
    found = result.take(first).interval("hits@1", np.random.default_rng(0))
    assert (found.low, found.high) == (1.0, 1.0)
    assert result.interval("hits@1", np.random.default_rng(0)).low < 1.0


@needs_data
@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("subject-10", (68.6, 57.7, 87.6)),
        ("object-10", (56.9, 45.5, 77.4)),
        ("subject-5", (64.6, 53.1, 85.1)),
        ("object-5", (54.3, 42.2, 76.5)),
    ],
)
def test_the_ceilings_of_the_published_splits(name, figures):
    dataset = load_dataset(f"fb15k-{name}")
    found = ceiling(dataset, align(load_dataset("fb15k").known(), dataset))
    assert tuple(100 * found[metric] for metric in ("mrr", "hits@1", "hits@10")) == pytest.approx(figures, abs=0.05)
