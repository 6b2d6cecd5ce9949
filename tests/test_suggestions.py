"""Masked facts: which go and which stay, who is asked about, and whether the examples say what is true."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import make_dataset
from newcomer.data.cut import WithheldDataset
from newcomer.evaluation.applicability import RelationProfiles, likely_relations
from newcomer.evaluation.fact_probability import FactExamples
from newcomer.evaluation.questions import Questions
from newcomer.evaluation.suggestions import ANSWERS, RELATIONS, asked_newcomers, mask_facts, suggestion_examples
from newcomer.graph import Graph, Ids, InductiveDataset, Overlay, TripleArray
from newcomer.models.embedding.scorer import Snapshot
from newcomer.models.engine import InferenceEngine, Scored

Row = tuple[str, str, str]
SEEN = [f"s{i:02}" for i in range(14)]
WORDS = ("r0", "r1", "r2", "r3")
TRAIN = [(SEEN[i], WORDS[i % 4], SEEN[(i + 1) % 14]) for i in range(14)]
NAMES = st.sampled_from([f"n{i:02}" for i in range(9)])
SEEN_NAMES, RELATION = st.sampled_from(SEEN), st.sampled_from(WORDS)
AUX = st.sets(
    st.one_of(
        st.tuples(NAMES, RELATION, SEEN_NAMES),
        st.tuples(SEEN_NAMES, RELATION, NAMES),
        st.tuples(NAMES, RELATION, NAMES),
    ),
    min_size=1,
    max_size=40,
)


def dataset_of(aux: set[Row]) -> InductiveDataset:
    return make_dataset(train=TRAIN, aux=sorted(aux))


def many() -> InductiveDataset:
    """200 newcomers with five facts each, of three relations, among seen ones."""
    rng, aux = np.random.default_rng(0), set()
    for number in range(200):
        name = f"n{number:03}"
        first, second, third = (SEEN[i] for i in rng.permutation(14)[:3])
        aux |= {
            (name, "r0", first),
            (name, "r0", second),
            (name, "r1", first),
            (name, "r1", third),
            (third, "r2", name),
        }
    return dataset_of(aux)


def named(dataset: InductiveDataset, facts: TripleArray) -> set[Row]:
    return {
        (dataset.entities[h], dataset.relations[r], dataset.entities[t])
        for h, r, t in zip(facts.heads.tolist(), facts.relations.tolist(), facts.tails.tolist(), strict=True)
    }


def stated(dataset: InductiveDataset, newcomer: int, loops_once: bool = True) -> set[tuple[int, int]]:
    """The oriented relations and tails of a newcomer's facts."""
    relations, tails = (column.tolist() for column in dataset.auxiliary.adjacency.of(newcomer))
    found = set(zip(relations, tails, strict=True))
    return {row for row in found if not loops_once or row[1] != newcomer or row[0] < len(dataset.relations)}


def maskable(dataset: InductiveDataset, single: bool = False) -> Ids:
    return asked_newcomers(dataset, dataset.newcomers, 999, 0, single)


@given(AUX, st.integers(0, 3), st.booleans())
def test_what_is_masked_is_withheld_and_all_else_stays(aux, seed, single):
    dataset = dataset_of(aux)
    masked = mask_facts(dataset, maskable(dataset, single), [seed], single)
    assert isinstance(masked, WithheldDataset)
    gone, left = named(dataset, masked.withheld), set(masked.auxiliary.named())
    assert gone | left == aux and not gone & left
    assert set(masked.known().named()) == set(dataset.known().named())
    assert masked.observed is dataset.observed and masked.entities is dataset.entities


@given(AUX, st.integers(0, 3))
def test_of_whom_nothing_can_be_masked_nothing_is_but_by_others(aux, seed):
    dataset = dataset_of(aux)
    asked = maskable(dataset)
    gone = named(dataset, mask_facts(dataset, asked, [seed]).withheld)
    names = set(dataset.entities.names_of(asked))
    assert all({head, tail} & names for head, _, tail in gone)
    assert len(mask_facts(dataset, asked[:0], [seed]).withheld) == 0


def alone(aux: set[Row]) -> set[Row]:
    """Without the facts between newcomers: of these the other end's masking may take some as well."""
    return {row for row in aux if not (row[0].startswith("n") and row[2].startswith("n"))}


@given(AUX, st.integers(0, 3))
def test_relations_are_masked_as_a_whole_and_each_keeps_one(aux, seed):
    dataset = dataset_of(alone(aux) | {("n00", "r0", "s00"), ("s00", "r1", "n00")})
    asked = maskable(dataset)
    masked = mask_facts(dataset, asked, [seed])
    for newcomer in asked.tolist():
        before, after = stated(dataset, newcomer), stated(masked, newcomer)
        assert after and after <= before
        assert not {one for one, _ in before - after} & {one for one, _ in after}


@given(AUX, st.integers(0, 3), st.booleans())
def test_only_the_masking_of_the_other_end_may_take_the_last_fact(aux, seed, single):
    dataset = dataset_of(aux)
    asked = maskable(dataset, single)
    masked = mask_facts(dataset, asked, [seed], single)
    for newcomer in asked.tolist():
        gone = stated(dataset, newcomer) - stated(masked, newcomer)
        by_others = {(one, tail) for one, tail in gone if tail in asked and tail != newcomer}
        assert stated(masked, newcomer) or by_others


def whole_and_single(dataset: InductiveDataset, masked: InductiveDataset, newcomer: int) -> tuple[bool, int]:
    """Whether nothing stays of a relation of which something is masked; how many relations stay."""
    before, after = stated(dataset, newcomer), stated(masked, newcomer)
    return not {one for one, _ in before - after} & {one for one, _ in after}, len({one for one, _ in after})


def test_half_is_masked_and_of_every_fourth_all_but_one_relation():
    dataset = many()
    asked = maskable(dataset)
    assert len(asked) == 200
    masked = mask_facts(dataset, asked, [3])
    found = [whole_and_single(dataset, masked, one) for one in asked.tolist()]
    assert all(whole for whole, _ in found)
    assert {left for _, left in found[3::4]} == {1}
    others = [left for number, (_, left) in enumerate(found) if number % 4 != 3]
    # Of three relations one, two or three stay: a half each, and one where all would go.
    assert set(others) == {1, 2, 3} and np.mean(others) == pytest.approx(3 / 2 + 1 / 8, abs=0.2)


def test_of_another_fourth_single_facts_are_masked_where_that_is_asked_for():
    dataset = many()
    asked = maskable(dataset, single=True)
    masked = mask_facts(dataset, asked, [3], single=True)
    broken = [number for number, one in enumerate(asked.tolist()) if not whole_and_single(dataset, masked, one)[0]]
    assert broken and all(number % 4 == 2 for number in broken)
    left = [len(stated(masked, one)) for one in asked[2::4].tolist()]
    assert min(left) >= 1 and np.mean(left) == pytest.approx(2.5, abs=0.5) and len(broken) > 25


def test_a_fact_that_joins_one_to_itself_is_one_fact():
    dataset = dataset_of({("n00", "r0", "n00")})
    assert len(maskable(dataset)) == len(maskable(dataset, single=True)) == 0
    names = [f"n{i:02}" for i in range(9)]
    several = dataset_of({row for name in names for row in ((name, "r0", name), (name, "r1", "s00"))})
    for seed in range(5):
        masked = mask_facts(several, maskable(several), [seed])
        assert all(stated(masked, one) for one in maskable(several).tolist())


def test_one_with_facts_along_one_relation_alone_has_single_ones_masked():
    dataset = make_dataset(train=TRAIN, aux=[("n0", "r0", one) for one in SEEN[:8]])
    assert len(maskable(dataset)) == 0
    asked = maskable(dataset, single=True)
    masked = mask_facts(dataset, asked, [0], single=True)
    assert dataset.entities.names_of(asked) == ["n0"] and 0 < len(masked.auxiliary) < 8


@given(AUX)
@settings(max_examples=20)
def test_a_seed_draws_the_same_again(aux):
    dataset = dataset_of(aux)
    asked = maskable(dataset)
    one, same = (mask_facts(dataset, asked, [4, 1]).withheld.rows for _ in range(2))
    assert np.array_equal(one, same)


def test_other_seeds_draw_others():
    dataset = many()
    asked = maskable(dataset)
    drawn = [named(dataset, mask_facts(dataset, asked, seed).withheld) for seed in ([0], [1], [0, 1])]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


@given(AUX, st.integers(1, 9), st.integers(0, 3), st.booleans())
def test_asked_about_are_those_of_whom_something_can_be_masked(aux, most, seed, single):
    dataset = dataset_of(aux)
    among = dataset.newcomers[::2]
    can = [
        one
        for one in among.tolist()
        if (len(stated(dataset, one)) > 1 if single else len({r for r, _ in stated(dataset, one)}) > 1)
    ]
    found = asked_newcomers(dataset, among, most, seed, single)
    assert found.dtype == np.int32 and set(found.tolist()) <= set(can)
    assert len(found) == min(most, len(can)) and (np.diff(found) > 0).all()
    assert np.array_equal(found, asked_newcomers(dataset, among, most, seed, single))


def test_who_is_asked_about_is_drawn_by_the_seed():
    dataset = many()
    drawn = [asked_newcomers(dataset, dataset.newcomers, 20, seed).tolist() for seed in range(3)]
    assert drawn[0] != drawn[1] and drawn[1] != drawn[2] and all(len(one) == 20 for one in drawn)


class Drawn:
    """Stands for an engine: scores are drawn, the same for a question whoever asks."""

    def scored(self, snapshot: Snapshot, entity: int, relation: int) -> Scored:
        rng = np.random.default_rng([entity, relation])
        confidence = rng.random(snapshot.num_entities).astype(np.float32)
        return Scored(rng.normal(size=snapshot.num_entities).astype(np.float32), confidence, {})

    def scored_many(self, snapshot: Snapshot, entities: Ids, relations: Ids) -> list[Scored]:
        return [self.scored(snapshot, *one) for one in zip(entities.tolist(), relations.tolist(), strict=True)]


def examples_of(dataset: InductiveDataset, true: Graph, newcomers: Ids) -> tuple[Questions, FactExamples]:
    overlay = Overlay.of_dataset(dataset)
    there = dataset.is_seen | dataset.is_newcomer
    snapshot = Snapshot(overlay, (), there[: overlay.num_entities])
    questions = Questions(cast(InferenceEngine, Drawn()), snapshot, RelationProfiles(dataset.observed))
    return questions, suggestion_examples(questions, true, newcomers)


@settings(max_examples=15)
@given(AUX, st.integers(0, 3))
def test_examples_are_right_where_the_truth_says_so(aux, seed):
    whole = dataset_of(aux | {("n00", "r0", "s00"), ("s00", "r1", "n00"), ("n01", "r2", "n00"), ("n01", "r0", "s03")})
    asked = maskable(whole)
    masked = mask_facts(whole, asked, [seed])
    questions, found = examples_of(masked, whole.known(), asked)
    relations = min(RELATIONS, 2 * len(whole.relations))
    assert found.entity.tolist() == np.repeat(asked, relations).tolist()
    for number, (entity, relation) in enumerate(zip(found.entity.tolist(), found.relation.tolist(), strict=True)):
        true = {tail for one, tail in stated(whole, entity, False) if one == relation}
        missing = true - {tail for one, tail in stated(masked, entity, False) if one == relation}
        assert (found.missing[number], found.applies[number]) == (len(missing), bool(missing))
        assert np.array_equal(found.applies_evidence[number], questions.applies(entity)[relation])
        mine, question = found.question == number, questions.ask(entity, relation)
        answers = found.answer[mine]
        assert found.right[mine].tolist() == [one in missing for one in answers.tolist()]
        order = [one for one in np.argsort(-question.scores, kind="stable").tolist() if not question.left_out[one]]
        assert answers.tolist() == [order[place] for place in found.place[mine].tolist()]
        best = np.array(order[:ANSWERS], dtype=np.int64)
        here = best[~questions.asked_from_answer(question, best)]  # the rest is left to the other end
        assert answers.tolist() == here.tolist()
        assert np.array_equal(found.answer_evidence[mine], question.evidence(answers))
        assert np.array_equal(found.room[mine], questions.room(question, answers))
        assert np.array_equal(found.rule_odds[mine], question.rule_odds(answers))


def test_the_likeliest_relations_are_asked_about(monkeypatch):
    monkeypatch.setattr("newcomer.evaluation.suggestions.RELATIONS", 3)
    whole = many()
    asked = maskable(whole)[:2]
    questions, found = examples_of(whole, whole.known(), asked)
    wanted = [likely_relations(questions.applies(one), 3).tolist() for one in asked.tolist()]
    assert found.relation.reshape(2, 3).tolist() == wanted
    assert not found.right.any() and not found.applies.any()  # nothing is masked
