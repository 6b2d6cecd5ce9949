"""Rules as columns, as single rows and as text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.graph import Vocabulary
from newcomer.rules.rule import (
    COLUMNS,
    UNCOUNTED,
    Atom,
    Kind,
    Rule,
    RuleSet,
    ShapeError,
    Variable,
    concatenate_rules,
    parse_rule,
    rule_of_atoms,
)

RELATIONS = Vocabulary(["borders", "in_region", "plays for", "is_a"])
ENTITIES = Vocabulary(["France", "Djibouti (city)", "x", "_"])
R = len(RELATIONS)


def both(head: int, atoms: tuple[int, int], **figures: int) -> Rule:
    return Rule(Kind.BOTH, head, min(atoms), max(atoms), **figures)


def rules_over(relations: int, entities: int) -> st.SearchStrategy[Rule]:
    plain, atom = st.integers(0, relations - 1), st.integers(0, 2 * relations - 1)
    entity = st.integers(0, entities - 1)
    pair = st.tuples(atom, atom).filter(lambda p: p[0] != p[1])
    return st.one_of(
        st.builds(Rule, st.just(Kind.ONE), plain, atom),
        st.builds(Rule, st.just(Kind.TWO), plain, atom, atom),
        st.builds(both, plain, pair),
        st.builds(Rule, st.just(Kind.THREE), plain, atom, atom, atom),
        st.builds(Rule, st.just(Kind.CONSTANT), atom, atom, head_constant=entity, body_constant=entity),
        st.builds(Rule, st.just(Kind.EXISTS), atom, atom, head_constant=entity),
    )


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(Kind.ONE, 1, 0), "borders(x,y) => in_region(x,y)"),
        (Rule(Kind.ONE, 0, 0 + R), "borders(y,x) => borders(x,y)"),
        (Rule(Kind.TWO, 1, 0, 1), "borders(x,z), in_region(z,y) => in_region(x,y)"),
        (Rule(Kind.TWO, 0, 1, 1 + R), "in_region(x,z), in_region(y,z) => borders(x,y)"),
        (Rule(Kind.TWO, 0, 0 + R, 2), 'borders(z,x), "plays for"(z,y) => borders(x,y)'),
        (Rule(Kind.BOTH, 1, 0, 2 + R), 'borders(x,y), "plays for"(y,x) => in_region(x,y)'),
        (Rule(Kind.THREE, 0, 1, 3 + R, 0), "in_region(x,z), is_a(w,z), borders(w,y) => borders(x,y)"),
        (
            Rule(Kind.CONSTANT, 1, 0, head_constant=1, body_constant=0),
            'borders(x,France) => in_region(x,"Djibouti (city)")',
        ),
        (Rule(Kind.CONSTANT, 1 + R, 3, head_constant=0, body_constant=2), 'is_a(y,"x") => in_region(France,y)'),
        (Rule(Kind.EXISTS, 3, 2, head_constant=3), '"plays for"(x,_) => is_a(x,"_")'),
        (Rule(Kind.EXISTS, 3 + R, 2 + R, head_constant=0), '"plays for"(_,y) => is_a(France,y)'),
    ],
)
def test_text_of_each_kind(rule: Rule, text: str) -> None:
    assert rule.text(RELATIONS, ENTITIES) == text
    assert parse_rule(text, RELATIONS, ENTITIES) == rule


@given(st.data())
def test_any_rule_over_any_names_is_read_back(data: st.DataObject) -> None:
    names = st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=4, unique=True)
    relations, entities = Vocabulary(data.draw(names)), Vocabulary(data.draw(names))
    rule = data.draw(rules_over(len(relations), len(entities)))
    text = rule.text(relations, entities)
    assert "\n" not in text
    assert "\t" not in text
    assert parse_rule(text, relations, entities) == rule


def test_the_order_of_a_body_and_spaces_do_not_matter() -> None:
    text = "  in_region( z , y ),borders(x,z)=>in_region(x,y) "
    assert parse_rule(text, RELATIONS) == Rule(Kind.TWO, 1, 0, 1)
    assert parse_rule('"plays for"(x,y), borders(x,y) => is_a(x,y)', RELATIONS) == Rule(Kind.BOTH, 3, 0, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected an atom"),
        ("borders(x,y)", "one '=>'"),
        ("borders(x,y) => is_a(x,y) => is_a(x,y)", "one '=>'"),
        ("=> borders(x,y)", "expected an atom"),
        ("borders(x,y) => is_a(x,y", "expected an atom"),
        ("borders(x,y) => is_a(x,y) &", "cannot read '&'"),
        ("likes(x,y) => borders(x,y)", "unknown relation 'likes'"),
        ("borders(x,Spain) => borders(x,France)", "unknown entity 'Spain'"),
        ("borders(x,y) => borders(x,x)", "the same"),
        ("borders(x,z) => borders(x,y)", "not a chain"),
        ("borders(x,z), is_a(w,y) => borders(x,y)", "not a chain"),
        ("borders(x,y), borders(x,y) => is_a(x,y)", "twice"),
        ("borders(x,y), is_a(x,z) => is_a(x,y)", "not a chain"),
        ("borders(z,y) => is_a(x,France)", "does not hold"),
        ("borders(x,z), is_a(z,y) => is_a(x,France)", "one atom"),
        ("borders(x,y) => is_a(France,France)", "variable beside it"),
    ],
)
def test_what_is_no_rule_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_rule(text, RELATIONS, ENTITIES)


def test_long_chains_are_another_shape() -> None:
    x, y, a, b, c = (Variable(name) for name in "xyabc")
    body = [Atom(0, x, a), Atom(0, a, b), Atom(0, b, c), Atom(0, c, y)]
    with pytest.raises(ShapeError, match="one to three atoms"):
        rule_of_atoms(Atom(0, x, y), body, R)


def test_shares() -> None:
    rule = Rule(Kind.ONE, 0, 1, support=4, body_size=10, pca_body_size=5, head_size=8)
    rules = RuleSet.of([rule, Rule(Kind.ONE, 0, 2, support=0, body_size=0, pca_body_size=0, head_size=0)], R)
    assert (rule.head_coverage, rule.confidence, rule.pca_confidence) == (0.5, 0.4, 0.8)
    assert rule.smoothed_confidence == 4 / 15
    for name in ("head_coverage", "confidence", "pca_confidence", "smoothed_confidence"):
        assert getattr(rules, name).tolist() == [getattr(r, name) for r in rules] == [getattr(rule, name), 0.0]


def test_shares_of_what_was_not_counted_are_not_numbers() -> None:
    rules = RuleSet.of([Rule(Kind.ONE, 0, 1, support=4, body_size=10)], R)
    assert rules[0].pca_body_size == UNCOUNTED
    assert rules.confidence.tolist() == [0.4]
    assert np.isnan(rules.pca_confidence[0])
    assert np.isnan(rules.head_coverage[0])
    assert np.isnan(rules[0].head_coverage)


@given(st.lists(rules_over(R, 4), max_size=30))
def test_rows_and_columns_are_the_same_rules(rules: list[Rule]) -> None:
    table = RuleSet.of(rules, R)
    assert list(table) == rules
    assert [table[i] for i in range(len(table))] == rules
    assert len(table) == len(rules)
    assert table.texts(RELATIONS, ENTITIES) == [rule.text(RELATIONS, ENTITIES) for rule in rules]


@given(st.lists(rules_over(R, 4), max_size=30), st.randoms(use_true_random=False))
def test_canonical_order_does_not_depend_on_the_order_given(rules: list[Rule], random: object) -> None:
    shuffled = list(rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    ordered = list(RuleSet.of(shuffled, R).sorted())
    assert ordered == list(RuleSet.of(rules, R).sorted())
    places = [
        (r.head % R, r.kind, r.head, r.body1, r.body2, r.body3, r.head_constant, r.body_constant) for r in ordered
    ]
    assert places == sorted(places)


def test_selecting_and_joining() -> None:
    rules = RuleSet.of([Rule(Kind.ONE, head, 5, support=head) for head in range(4)], R)
    assert rules.where(rules.support >= 2).heads.tolist() == [2, 3]
    assert rules.where(np.array([3, 0])).support.tolist() == [3, 0]
    joined = concatenate_rules([rules.where(rules.support < 2), rules.where(rules.support >= 2)], R)
    assert list(joined) == list(rules)
    assert len(concatenate_rules([], R)) == len(RuleSet.empty(R)) == 0


def test_columns_cannot_be_changed() -> None:
    own = np.arange(3)
    rules = RuleSet.of_columns(R, 3, kinds=1, heads=0, body1=own, support=own)
    with pytest.raises(ValueError, match="read-only"):
        own[0] = 7  # it is the table's now
    for name in COLUMNS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(rules, name)[0] = 7
    assert rules.body2.tolist() == [-1, -1, -1]
    assert rules.support.dtype == np.int64
    assert rules.body1.dtype == np.int32
