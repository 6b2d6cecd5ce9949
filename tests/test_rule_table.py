"""Rules written to files and read back, and files that are wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newcomer.errors import InputError, OutputError
from newcomer.graph import Graph, TripleArray, Vocabulary
from newcomer.rules.files.listings import READERS, WRITERS, Amie, AnyBurl
from newcomer.rules.files.rule_table import HEADER, read_rule_table, read_rules, write_rules
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.mining.index import tail_side
from newcomer.rules.rule import COLUMNS, UNCOUNTED, Kind, Rule, RuleSet

RELATIONS = Vocabulary(["borders", "in_region", "plays for", "née (at), then"])
ENTITIES = Vocabulary(["France", "Djibouti (city)", "Bonn, Germany", "São Paulo"])
R = len(RELATIONS)
FIGURES = {"support": 4, "body_size": 10, "pca_body_size": 5, "head_size": 8}
EVERY_KIND = RuleSet.of(
    [
        Rule(Kind.ONE, 1, 0 + R, **FIGURES),
        Rule(Kind.TWO, 1, 0, 3 + R, **FIGURES),
        Rule(Kind.BOTH, 1, 0, 2 + R, **FIGURES),
        Rule(Kind.THREE, 0, 1, 3 + R, 0, **FIGURES),
        Rule(Kind.CONSTANT, 1, 0, head_constant=1, body_constant=2, **FIGURES),
        Rule(Kind.CONSTANT, 1 + R, 3, head_constant=0, body_constant=3, **FIGURES),
        Rule(Kind.EXISTS, 3, 2, head_constant=3, **FIGURES),
        Rule(Kind.EXISTS, 3 + R, 2 + R, head_constant=0, **FIGURES),
    ],
    R,
)


def write_amie(rules: RuleSet, path: Path, *names: Any) -> None:
    Amie(*names).write(rules, path)


def read_amie(path: Path, *names: Any) -> RuleSet:
    return Amie(*names).read(path)


def write_anyburl(rules: RuleSet, path: Path, *names: Any) -> None:
    AnyBurl(*names).write(rules, path)


def read_anyburl(path: Path, *names: Any) -> RuleSet:
    return AnyBurl(*names).read(path)


FORMS = {"tsv": (write_rules, read_rules), "amie": (write_amie, read_amie), "anyburl": (write_anyburl, read_anyburl)}
NOT_IN_ANYBURL = ("pca_body_size", "head_size")


def same(left: RuleSet, right: RuleSet, but: tuple[str, ...] = ()) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in COLUMNS if name not in but)


def mined() -> tuple[Graph, RuleSet]:
    rows = np.random.default_rng(1).integers((12, R, 12), size=(120, 3))
    names = Vocabulary(f"e{i}" for i in range(12))
    graph = Graph.build(names, RELATIONS, TripleArray.of(rows))
    return graph, mine_rules(graph, MiningPlan(min_support=1)).rules


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_is_read_back(form: str, tmp_path: Path) -> None:
    write, read = FORMS[form]
    write(EVERY_KIND, tmp_path / "rules", RELATIONS, ENTITIES)
    found = read(tmp_path / "rules", RELATIONS, ENTITIES)
    assert same(found, EVERY_KIND, but=NOT_IN_ANYBURL if form == "anyburl" else ())
    assert [p.name for p in tmp_path.iterdir()] == ["rules"]


@pytest.mark.parametrize("form", FORMS)
def test_mined_rules_are_read_back_and_written_the_same(form: str, tmp_path: Path) -> None:
    write, read = FORMS[form]
    graph, rules = mined()
    assert len(rules) > 300
    write(rules, tmp_path / "first", graph.relations)
    found = read(tmp_path / "first", graph.relations)
    assert same(found, rules, but=NOT_IN_ANYBURL if form == "anyburl" else ())
    write(found, tmp_path / "second", graph.relations)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@given(names=st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=2, max_size=4, unique=True))
@pytest.mark.parametrize("form", FORMS)
def test_any_names_come_back_or_are_refused(
    form: str, names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    write, read = FORMS[form]
    vocabulary, path = Vocabulary(names), tmp_path_factory.mktemp("names") / "rules"
    rules = RuleSet.of([Rule(Kind.CONSTANT, 0, 1, head_constant=0, body_constant=1, **FIGURES)], len(names))
    try:
        write(rules, path, vocabulary, vocabulary)
    except OutputError:
        assert form != "tsv"
        assert not path.exists()
    else:
        found = read(path, vocabulary, vocabulary)
        assert same(found, rules, but=NOT_IN_ANYBURL if form == "anyburl" else ())


def test_formats_read_what_they_write_of_a_graph(tmp_path: Path) -> None:
    graph, rules = mined()
    assert READERS.keys() == WRITERS.keys() == FORMS.keys()
    for form, write in WRITERS.items():
        write(rules, tmp_path / form, graph)
        found = READERS[form](tmp_path / form, graph)
        assert same(found, rules, but=NOT_IN_ANYBURL if form == "anyburl" else ())


def test_our_table_as_it_stands(tmp_path: Path) -> None:
    write_rules(EVERY_KIND.where(np.array([1])), tmp_path / "rules.tsv", RELATIONS, ENTITIES)
    assert (tmp_path / "rules.tsv").read_text(encoding="utf-8") == (
        "rule\tsupport\tbody_size\tpca_body_size\thead_size\thead_coverage\tconfidence\tpca_confidence\n"
        'borders(x,z), "née (at), then"(y,z) => in_region(x,y)\t4\t10\t5\t8\t0.5\t0.4\t0.8\n'
    )


def test_amie_as_it_stands(tmp_path: Path) -> None:
    write_amie(EVERY_KIND.where(np.array([0, 1])), tmp_path / "amie", RELATIONS, None, np.array([False, True] * 2))
    assert (tmp_path / "amie").read_text(encoding="utf-8").splitlines() == [
        "?b  borders  ?a   => ?a  in_region  ?b\t0.5\t0.4\t0.8\t4\t10\t5\t?b",
        "?a  borders  ?c  ?b  née (at), then  ?c   => ?a  in_region  ?b\t0.5\t0.4\t0.8\t4\t10\t5\t?b",
    ]


def test_functional_variable_follows_the_graph(tmp_path: Path) -> None:
    graph, rules = mined()
    write_amie(rules, tmp_path / "amie", graph.relations, None, tail_side(graph))
    last = [line.rsplit("\t", 1)[1] for line in (tmp_path / "amie").read_text(encoding="utf-8").splitlines()]
    assert last == ["?b" if tail_side(graph)[head] else "?a" for head in rules.heads]


def test_amie_output_with_its_remarks_brackets_and_commas(tmp_path: Path) -> None:
    (tmp_path / "amie").write_text(
        "Assuming 2 as the number of cores\n"
        "Rule\tHead Coverage\tStd Confidence\tPCA Confidence\tPositive Examples\tBody size\tPCA Body size\t"
        "Functional variable\n"
        "?g  <in_region>  ?b  ?a  <borders>  ?g   => ?a  <in_region>  ?b\t0,333333333\t0,4\t0,8\t4\t10\t5\t?a\n"
        "\n"
        "Mining done in 0.1 seconds\n",
        encoding="utf-8",
    )
    wanted = Rule(Kind.TWO, 1, 0, 1, support=4, body_size=10, pca_body_size=5, head_size=12)
    assert list(read_amie(tmp_path / "amie", RELATIONS)) == [wanted]


def test_anyburl_as_it_stands(tmp_path: Path) -> None:
    write_anyburl(EVERY_KIND.where(np.array([3, 5, 6])), tmp_path / "anyburl", RELATIONS, ENTITIES)
    assert (tmp_path / "anyburl").read_text(encoding="utf-8").splitlines() == [
        "10\t4\t0.4\tborders(X,Y) <= in_region(X,A), née (at), then(B,A), borders(B,Y)",
        "10\t4\t0.4\tin_region(France,Y) <= née (at), then(Y,São Paulo)",
        "10\t4\t0.4\tnée (at), then(X,São Paulo) <= plays for(X,A)",
    ]
    assert read_anyburl(tmp_path / "anyburl", RELATIONS, ENTITIES).head_size.tolist() == [UNCOUNTED] * 3


def test_a_text_with_two_readings_is_refused(tmp_path: Path) -> None:
    relations, entities = Vocabulary(["r", "s"]), Vocabulary(["a", "a,X", "X,X"])
    # s(X,X,X): of X and "X,X", or of "X,X" and X.
    (tmp_path / "rules").write_text("10\t4\t0.4\tr(X,a) <= s(X,X,X)\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: .* can be read in 2 ways"):
        read_anyburl(tmp_path / "rules", relations, entities)
    rules = RuleSet.of([Rule(Kind.CONSTANT, 0, 1, head_constant=0, body_constant=2, **FIGURES)], 2)
    with pytest.raises(OutputError, match="cannot hold the names"):
        write_anyburl(rules, tmp_path / "written", relations, entities)


@pytest.mark.parametrize(
    ("read", "line", "problem"),
    [
        (read_rules, "borders(x,y) => in_region(x,y)\t4\t10\t5\t8\t0.5\t0.4", "7 columns where 8 are expected"),
        (read_rules, "borders(x,y) = in_region(x,y)\t4\t10\t5\t8\t0.5\t0.4\t0.8", "cannot read '= in_region"),
        (read_rules, "likes(x,y) => in_region(x,y)\t4\t10\t5\t8\t0.5\t0.4\t0.8", "unknown relation 'likes'"),
        (read_rules, "borders(x,Rome) => borders(x,France)\t4\t10\t5\t8\t0.5\t0.4\t0.8", "unknown entity 'Rome'"),
        (read_rules, "borders(x,y) => in_region(x,y)\t-4\t10\t5\t8\t0.5\t0.4\t0.8", "'-4' is no count"),
        (read_rules, f"borders(x,y) => in_region(x,y)\t4\t{10**400}\t5\t8\t0.5\t0.4\t0.8", "more than can be counted"),
        (
            read_rules,
            "borders(x,y) => in_region(x,y)\t4\t3\t5\t8\t0.5\t1.333333333\t0.8",
            "support 4 is above body_size",
        ),
        (
            read_rules,
            "borders(x,y) => in_region(x,y)\t4\t10\t11\t8\t0.5\t0.4\t0.363636364",
            "pca_body_size 11 is",
        ),
        (read_rules, "borders(x,y) => in_region(x,y)\t4\t10\t5\t3\t1.333333333\t0.4\t0.8", "above head_size 3"),
        (read_rules, "borders(x,y) => in_region(x,y)\t4\t10\t5\t8\t0.5\t0.9\t0.8", "confidence '0.9' contradicts"),
        (read_rules, "borders(x,y) => in_region(x,y)\t4\t10\t5\t8\tmuch\t0.4\t0.8", "'much' is no number"),
        (read_rules, "borders(x,y) => in_region(x,y)\t4\t10\t5\t8\t\t0.4\t0.8", "head_coverage '' contradicts"),
        (read_amie, "?a  borders  ?b  => ?a  in_region\t0.5\t0.4\t0.8\t4\t10\t5\t?a", "two spaces between"),
        (read_amie, "?a  likes  ?b   => ?a  in_region  ?b\t0.5\t0.4\t0.8\t4\t10\t5\t?a", "unknown relation 'likes'"),
        (read_amie, "?a  borders  Rome   => ?a  borders  France\t0.5\t0.4\t0.8\t4\t10\t5\t?a", "unknown entity 'Rome'"),
        (read_amie, "?a  borders  ?b   => ?a  in_region  ?b\t0.5\t0.4\t0.8\t4\t10", "6 columns where 8"),
        (read_amie, "?a  borders  ?b   => ?a  in_region  ?b\t0.5\t0.4\t0.8\t4\t3\t5\t?a", "contradicts the counts"),
        (read_anyburl, "10\t4\t0.4\tborders(X,Y) => in_region(X,Y)", "expected a rule such as"),
        (read_anyburl, "10\t4\t0.4\tborders(X,Y) <= likes(X,Y)", "unknown relation 'likes'"),
        (read_anyburl, "10\t4\t0.4\tborders(X,France) <= borders(X,Rome)", "unknown entity 'Rome'"),
        (read_anyburl, "4\t10\t2.5\tborders(X,Y) <= in_region(X,Y)", "support 10 is above body_size 4"),
        (read_anyburl, "10\t4\t0.4\tborders(X,France) <= in_region(X,A), borders(A,B)", "one atom"),
    ],
)
def test_wrong_lines_are_named(read: Callable[..., RuleSet], line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "rules"
    first = "\t".join(HEADER) if read is read_rules else ""
    path.write_text(f"{first}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"rules, line 3: .*; (mend or )?remove the line") as caught:
        read(path, RELATIONS, ENTITIES)
    assert problem in str(caught.value)


def test_a_file_that_is_no_listing_of_amies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("\nhead\tbody\n1\t2\n")
    with pytest.raises(InputError) as caught:
        read_amie(path, RELATIONS)
    assert (
        str(path) in str(caught.value)
        and "line 2" in str(caught.value)
        and "has no rule of AMIE's" in str(caught.value)
    )
    for without_rules in ("", "\n", "Loading files...\nRule\tHead Coverage\tStd Confidence\n"):
        path.write_text(without_rules)
        assert len(read_amie(path, RELATIONS)) == 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the header is ''"),
        (b"rule\tsupport\n", "expected: rule support body_size"),
        (b"\xff\n", "line 1: is not UTF-8"),
    ],
)
def test_files_that_are_no_table(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "rules.tsv").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        read_rules(tmp_path / "rules.tsv", RELATIONS)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_rules(tmp_path / "none.tsv", RELATIONS)


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    write_rules(EVERY_KIND, tmp_path / "rules.tsv", RELATIONS, ENTITIES)
    path = tmp_path / "rules.tsv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert same(read_rules(path, RELATIONS, ENTITIES), EVERY_KIND)


def test_nothing_is_written_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rules.tsv"
    path.write_text("before", encoding="utf-8")

    def fail(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Rule, "text", fail)
    with pytest.raises(OutputError, match="No space left"):
        write_rules(EVERY_KIND, path, RELATIONS, ENTITIES)
    assert path.read_text(encoding="utf-8") == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["rules.tsv"]


def test_a_place_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("a file")
    with pytest.raises(OutputError, match="cannot be written"):
        write_rules(EVERY_KIND, tmp_path / "none" / "rules.tsv", RELATIONS, ENTITIES)


def test_a_rule_file_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rules.tsv.gz"
    write_rules(EVERY_KIND, path, RELATIONS, ENTITIES)
    assert path.read_bytes().startswith(b"\x1f\x8b")
    assert list(read_rules(path, RELATIONS, ENTITIES)) == list(EVERY_KIND)


def test_our_table_can_be_read_without_knowing_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "rules.tsv"
    write_rules(EVERY_KIND, path, RELATIONS, ENTITIES)
    rules, relations, entities = read_rule_table(path)
    assert rules.texts(relations, entities) == EVERY_KIND.texts(RELATIONS, ENTITIES)
    assert rules.support.tolist() == EVERY_KIND.support.tolist()
