"""Newcomers cut to a few facts: who keeps which, and what stays true although it is withheld."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint, make_dataset, parts_by_name
from newcomer.data import cut as cut_module
from newcomer.data import load_dataset
from newcomer.data.cut import CutDataset, FactsCut
from newcomer.errors import DatasetError, OptionError
from newcomer.graph import InductiveDataset

Triple = tuple[str, str, str]
TRAIN: list[Triple] = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")]
TEST: list[Triple] = [("x", "s", "a")]
SEEN, NEW = ["a", "b", "c"], ["v", "w", "x", "y", "z"]

# Among seen entities, newcomers and both: ties between newcomers are as likely as ties to those who are seen.
facts_strategy = st.lists(
    st.tuples(st.sampled_from(SEEN + NEW), st.sampled_from(["r", "s"]), st.sampled_from(SEEN + NEW)),
    min_size=1,
    max_size=30,
    unique=True,
)


def made(aux: Iterable[Triple]) -> InductiveDataset:
    return make_dataset(train=TRAIN, aux=[*aux, ("x", "r", "a")], test=TEST)


def known_of(dataset: InductiveDataset) -> Counter[str]:
    """How many facts each newcomer has; one that ties it to itself is one fact."""
    return Counter(end for head, _, tail in aux_of(dataset) for end in {head, tail} - set(SEEN))


def aux_of(dataset: InductiveDataset) -> set[Triple]:
    return {(row[0], row[1], row[2]) for row in parts_by_name(dataset)["aux"]}


@given(facts_strategy, st.integers(1, 6), st.integers(0, 5))
def test_nobody_keeps_more_and_nothing_could_be_put_back(aux, most, seed):
    whole = made(aux)
    cut = FactsCut(most, seed).of(whole)
    has, kept = known_of(cut), aux_of(cut)
    assert kept <= aux_of(whole) and max(has.values()) <= most
    for head, _, tail in aux_of(whole) - kept:
        newcomers = {head, tail} - set(SEEN)
        assert newcomers, "a fact about seen entities alone stays"
        assert any(has[one] == most for one in newcomers)


@given(facts_strategy, st.integers(0, 5))
def test_more_facts_contain_fewer(aux, seed):
    whole = made(aux)
    kept = [aux_of(FactsCut(most, seed).of(whole)) for most in range(1, 8)]
    assert all(fewer <= more for fewer, more in pairwise(kept))
    assert aux_of(FactsCut(len(aux) + 1, seed).of(whole)) == aux_of(whole)


@given(facts_strategy, st.randoms(use_true_random=False), st.integers(1, 3))
def test_the_draw_follows_from_names_and_not_from_ids(aux, random, most):
    mixed = list(aux)
    random.shuffle(mixed)
    moved = make_dataset(test=TEST, aux=[("x", "r", "a"), *mixed], train=TRAIN[::-1])
    assert aux_of(FactsCut(most, 3).of(moved)) == aux_of(FactsCut(most, 3).of(made(aux)))


def test_what_is_asked_does_not_enter_the_draw():
    sample = load_dataset("sample")
    other = InductiveDataset("other", sample.observed, sample.auxiliary, sample.test, sample.valid)
    assert (
        FactsCut(3).of(sample).auxiliary.triples.rows.tolist() == FactsCut(3).of(other).auxiliary.triples.rows.tolist()
    )


def test_all_else_stays_and_what_is_withheld_is_still_true():
    sample = load_dataset("sample")
    cut = FactsCut(2, 7).of(sample)
    assert isinstance(cut, CutDataset) and cut.name == sample.name and len(cut.withheld) > 0
    before, after = parts_by_name(sample), parts_by_name(cut)
    assert {part: before[part] for part in before if part != "aux"} == {
        part: after[part] for part in after if part != "aux"
    }
    assert np.array_equal(cut.known().triples.rows, sample.known().triples.rows)
    assert len(cut.known_facts()) == len(sample.known_facts()) - len(cut.withheld)
    assert cut.summary() == {"most": 2, "seed": 7, "kept": len(cut.auxiliary), "withheld": len(cut.withheld)}
    assert len(cut.auxiliary) + len(cut.withheld) == len(sample.auxiliary)


def test_each_of_the_facts_may_be_drawn():
    """One newcomer with four facts: over many seeds each is the one that stays about as often."""
    whole = made([("x", "s", "b"), ("c", "s", "x"), ("x", "r", "c")])
    drawn = Counter(aux_of(FactsCut(1, seed).of(whole)).pop() for seed in range(400))
    assert set(drawn) == aux_of(whole)
    assert all(60 <= count <= 140 for count in drawn.values()), drawn


@given(st.lists(st.integers(0, 4), max_size=25), st.integers(1, 5), st.randoms(use_true_random=False))
def test_where_no_newcomers_are_tied_the_quick_way_is_the_rule(owners, most, random):
    places = list(range(len(owners)))
    random.shuffle(places)
    owner, order = np.array(owners, dtype=np.int32), np.array(places, dtype=np.int64)
    by_rule = cut_module._in_rounds(order, owner, owner, most)
    assert sorted(by_rule) == sorted(cut_module._first_of_each(order, owner, most).tolist())


def test_a_tie_between_newcomers_counts_for_both():
    """v and w have nothing but their tie, so w keeps none beside v; x has room for a second tie at two."""
    whole = make_dataset(train=TRAIN, aux=[("v", "r", "x"), ("w", "r", "x")], test=TEST)
    for seed in range(5):
        one, two = (FactsCut(most, seed).of(whole) for most in (1, 2))
        assert sorted(known_of(one).values()) == [1, 1] and known_of(one)["x"] == 1
        assert known_of(two) == {"v": 1, "w": 1, "x": 2}


@pytest.mark.parametrize(("most", "seed"), [(0, 0), (-3, 0), (1, -1)])
def test_a_cut_to_nothing_is_refused(most, seed):
    assert isinstance(complaint(FactsCut, most, seed), OptionError)


def test_without_newcomers_there_is_nothing_to_cut():
    graph = make_dataset(train=TRAIN, test=[("a", "s", "c")])
    error = complaint(FactsCut(1).of, graph)
    assert isinstance(error, DatasetError) and "has no newcomers" in str(error)
