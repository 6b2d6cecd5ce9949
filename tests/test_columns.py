"""Rule tables by columns against the parser and the writer of single rules."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.errors import InputError
from newcomer.graph import Vocabulary
from newcomer.rules.files import rule_table
from newcomer.rules.files.rule_table import (
    HEADER,
    AtomTable,
    read_lines,
    read_rule_table,
    read_rules,
    table_lines,
    write_rules,
)
from newcomer.rules.rule import COLUMNS, UNARY_KINDS, UNCOUNTED, Kind, Rule, RuleSet
from rule_oracle import random_rules

NAMES = st.lists(
    st.one_of(
        st.sampled_from(["x", "y", "z", "w", "_", " => ", "r(x,y)", "a, b", '"', "\\", "a\tb", "\n", "#1", "<r>", ""]),
        st.text(st.characters(codec="utf-8"), max_size=4),
    ),
    min_size=3,
    max_size=6,
    unique=True,
)  # fmt: skip
SIMPLE = Vocabulary(["r0", "r1", "r2"]), Vocabulary(["e0", "e1", "e2", "e3"])
GOOD = "r0(x,y) => r1(x,y)\t4\t10\t5\t8\t0.5\t0.4\t0.8"


def line_of(rule: Rule, relations: Vocabulary, entities: Vocabulary | None) -> str:
    """A line of the table, cell by cell."""
    counts = (rule.support, rule.body_size, rule.pca_body_size, rule.head_size)
    shares = (rule.head_coverage, rule.confidence, rule.pca_confidence)
    cells = [*("" if c == UNCOUNTED else str(c) for c in counts), *("" if s != s else repr(s) for s in shares)]
    return "\t".join([rule.text(relations, entities), *cells])


def same(left: RuleSet, right: RuleSet) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in COLUMNS)


def rules_of(seed: int, entities: int, relations: int, count: int = 60) -> RuleSet:
    rng = np.random.default_rng(seed)
    rules = list(random_rules(rng, entities, relations, count))
    bare = [Rule(*(getattr(rule, n) for n in ("kind", "head", "body1", "body2", "body3", "head_constant",
            "body_constant")), support=7, body_size=11) for rule in rules[:10]]  # fmt: skip
    return RuleSet.of(rules + bare, relations)


@given(relations=NAMES, entities=NAMES, seed=st.integers(0, 1000))
def test_lines_are_those_of_single_rules_and_are_read_as_such(relations, entities, seed):
    names = Vocabulary(relations), Vocabulary(entities)
    rules = rules_of(seed, len(entities), len(relations))
    lines = table_lines(rules, *names).to_pylist()
    assert lines == [line_of(rule, *names) for rule in rules]
    found, usual = read_lines(lines, AtomTable(*names))
    assert usual.all() and same(found, rules)


def test_the_random_rules_have_every_shape():
    met = set()
    for rule in rules_of(0, 4, 3, 600):
        inverse = [relation >= 3 for relation in (rule.head, rule.body1, rule.body2, rule.body3)]
        met.add((rule.kind, *inverse))
    atoms = {Kind.ONE: 1, Kind.TWO: 2, Kind.BOTH: 2, Kind.THREE: 3, Kind.CONSTANT: 1, Kind.EXISTS: 1}
    either, plain = (False, True), (False,)
    shapes = set()
    for kind, size in atoms.items():
        head = either if kind in UNARY_KINDS else plain
        body = [either if place < size else plain for place in range(3)]
        shapes |= {(kind, *inverse) for inverse in product(head, *body)}
    # The atoms of an intersection stand in the order of their ids, so the first alone is never inverse.
    assert met == shapes - {(Kind.BOTH, False, True, False, False)}


def test_constants_without_entity_names_are_written_as_numbers_and_left_to_the_parser():
    rules = RuleSet.of([Rule(Kind.CONSTANT, 0, 1, head_constant=2, body_constant=3, support=1, body_size=1)], 3)
    [line] = table_lines(rules, SIMPLE[0], None).to_pylist()
    assert line.startswith("r1(x,#3) => r0(x,#2)\t1\t1\t\t")
    assert not read_lines([line], AtomTable(SIMPLE[0], None))[1].any()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        "r0(x,y) => r1(x,y)",
        GOOD + "\t",
        GOOD.replace("r0", "r9"),
        GOOD.replace(" => ", "=>"),
        GOOD.replace("(x,y) =>", "(x, y) =>"),
        GOOD.replace("\t4\t", "\t04\t"),
        GOOD.replace("\t4\t", "\t٤\t"),
        GOOD.replace("\t4\t", "\t4.0\t"),
        GOOD.replace("0.4", "0.40"),
        GOOD.replace("\t10\t", "\t3\t"),
        GOOD.replace("\t4\t", "\t" + "4" * 25 + "\t"),
        GOOD.replace("r0(x,y)", "r0(x,y), r1(x,y)"),
        GOOD.replace("r0(x,y)", "r2(x,y), r0(x,y)"),
        GOOD.replace("r0(x,y)", "r0(y,z), r0(x,z)"),
        GOOD.replace("r0(x,y)", 'r0(x,y), "r2"(x,y)'),
        GOOD.replace("r0(x,y)", 'r0(x,y) "r2"(x,y)'),
        GOOD.replace("r0(x,y)", 'r0(x,"e\\q")'),
        GOOD.replace("(x,y)", "(u,v)"),
        GOOD.replace("(x,y)", "(x,x)"),
        GOOD.replace("(x,y) => r1(x,y)", "(x,e0) => r1(y,e1)"),
        GOOD.replace("(x,y) => r1(x,y)", "(e2,e0) => r1(x,e1)"),
        "r0(x,y)\tr1(x,y)\t1\t1\t1\t1\t1\t1",
        "r0(x,y), r0(x,y), r0(x,y), r0(x,y), r0(x,y) => r1(x,y)\t4\t10\t5\t8\t0.5\t0.4\t0.8",
    ],
)
def test_a_line_that_we_would_write_otherwise_is_odd(line):
    found, usual = read_lines([GOOD, line, GOOD], AtomTable(*SIMPLE))
    assert len(found) == usual.sum()
    assert usual.tolist() == [True, False, True] or line_of(found[1], *SIMPLE) == line


def test_a_good_line_is_not_odd():
    found, usual = read_lines([GOOD], AtomTable(*SIMPLE))
    assert usual.all()
    assert list(found) == [Rule(Kind.ONE, 1, 0, support=4, body_size=10, pca_body_size=5, head_size=8)]


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda line: line.replace("0.1", "0.100000000"),
        lambda line: line.replace(" => ", "=>"),
        lambda line: line.replace("(x,", "( x , "),
        lambda line: line.replace("r0", '"r0"'),
        lambda line: line.replace("\t30\t", "\t30.0\t"),
    ],
)
def test_other_spellings_are_read_as_well_and_in_their_place(rewrite: Callable[[str], str], tmp_path, monkeypatch):
    monkeypatch.setattr(rule_table, "RULES_AT_ONCE", 16)
    rules = rules_of(3, 4, 3)
    lines = table_lines(rules, *SIMPLE).to_pylist()
    spelt = [rewrite(line) if number % 3 == 1 else line for number, line in enumerate(lines)]
    assert spelt != lines
    with_gaps = [text for number, line in enumerate(spelt) for text in ([line, ""] if number % 7 == 0 else [line])]
    path = tmp_path / "rules.tsv"
    path.write_text("\n".join(["\t".join(HEADER), *with_gaps]) + "\n", encoding="utf-8")
    assert same(read_rules(path, *SIMPLE), rules)
    found, relations, entities = read_rule_table(path)
    assert found.texts(relations, entities) == rules.texts(*SIMPLE)


@pytest.mark.parametrize("at", [1, 15, 16, 17, 40])
def test_the_first_wrong_line_is_named_whatever_stands_before_it(at, tmp_path, monkeypatch):
    monkeypatch.setattr(rule_table, "RULES_AT_ONCE", 16)
    lines = table_lines(rules_of(5, 4, 3), *SIMPLE).to_pylist()
    lines[at - 1], lines[50] = "r0(x,y) => r1(x,y\t1", "worse"
    path = tmp_path / "rules.tsv"
    path.write_text("\n".join(["\t".join(HEADER), *lines]) + "\n", encoding="utf-8")
    for read in (lambda: read_rules(path, *SIMPLE), lambda: read_rule_table(path)):
        with pytest.raises(InputError) as caught:
            read()
        assert caught.value.line == at + 1


def test_slices_of_a_large_file_stand_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sliced = tmp_path / "whole.tsv", tmp_path / "sliced.tsv"
    rules = rules_of(9, 4, 3, 100)
    write_rules(rules, whole, *SIMPLE)
    monkeypatch.setattr(rule_table, "RULES_AT_ONCE", 7)
    write_rules(rules, sliced, *SIMPLE)
    assert whole.read_bytes() == sliced.read_bytes()
    assert same(read_rules(sliced, *SIMPLE), rules)


def test_no_rules_and_no_relations(tmp_path):
    nothing = Vocabulary([])
    write_rules(RuleSet.empty(0), tmp_path / "rules.tsv", nothing, nothing)
    assert (tmp_path / "rules.tsv").read_text() == "\t".join(HEADER) + "\n"
    assert len(read_rules(tmp_path / "rules.tsv", nothing, nothing)) == 0
    assert [len(part) for part in read_rule_table(tmp_path / "rules.tsv")] == [0, 0, 0]
