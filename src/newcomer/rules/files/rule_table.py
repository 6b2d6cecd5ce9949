"""Rules in files: our own table, AMIE's listing and AnyBURL's listing, each read and written.

    rules.tsv   a header, then: rule, support, body_size, pca_body_size, head_size, and three shares of them
    AMIE        ?a  r1  ?c  ?c  r2  ?b   => ?a  r  ?b <TAB> head coverage, confidence, PCA confidence, support,
                body size, PCA body size, functional variable
    AnyBURL     body size, support, confidence <TAB> r(X,Y) <= r1(X,A), r2(A,Y)

AMIE does not state the head's size (it follows from head coverage); AnyBURL neither that nor the PCA body size, which
are then `UNCOUNTED`, and empty in our table. A file is written whole or not at all.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from newcomer.errors import InputError, OutputError, shown
from newcomer.files import create_bytes, open_bytes
from newcomer.graph import Mask, Vocabulary
from newcomer.rules.files.columns import AtomTable, names_of_lines, read_lines, table_lines
from newcomer.rules.rule import (
    UNCOUNTED,
    Atom,
    Rule,
    RuleSet,
    ShapeError,
    Variable,
    concatenate_rules,
    is_plain,
    parse_rule,
    rule_of_atoms,
)

HEADER = ("rule", "support", "body_size", "pca_body_size", "head_size", "head_coverage", "confidence", "pca_confidence")
TOLERANCE = 1e-6  # how far a share in a file may be from what its counts say: listings round
AMIE_NAMES = {"x": "?a", "y": "?b", "z": "?c", "w": "?d", "_": "?c"}
ANYBURL_NAMES = {"x": "X", "y": "Y", "z": "A", "w": "B", "_": "A"}
LINES_AT_ONCE = 1 << 14
RULES_AT_ONCE = 1 << 16
Parser = Callable[[str], Rule]


def write_rules(rules: RuleSet, path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None) -> None:
    """Write our table."""
    slices = (
        rules.where(np.arange(i, min(i + RULES_AT_ONCE, len(rules)))) for i in range(0, len(rules), RULES_AT_ONCE)
    )
    lines = (line for part in slices for line in table_lines(part, relations, entities).to_pylist())
    _write_lines(path, chain(["\t".join(HEADER)], lines))


def read_rules(path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None) -> RuleSet:
    """Read our table."""
    return _table(path, _table_lines(path), relations, entities)


def read_rule_table(path: Path | str) -> tuple[RuleSet, Vocabulary, Vocabulary]:
    """Read our table on its own: the rules, and the relations and entities that it names."""
    lines = _table_lines(path)
    relations, entities = names_of_lines(lines)
    vocabularies = Vocabulary(sorted(relations)), Vocabulary(sorted(entities))
    return _table(path, lines, *vocabularies), *vocabularies


def _table_lines(path: Path | str) -> list[str]:
    """The lines below the header."""
    header, *lines = _lines(path) or [""]
    if tuple(header.split("\t")) != HEADER:
        raise InputError(path, f"the header is {shown(header)}", 1, "expected: " + " ".join(HEADER))
    return lines


def _table(path: Path | str, lines: list[str], relations: Vocabulary, entities: Vocabulary | None) -> RuleSet:
    """The rules of these lines: many at once where they stand as we write them, one by one where not."""
    atoms, parts = AtomTable(relations, entities), []
    for start in range(0, len(lines), RULES_AT_ONCE):
        part = lines[start : start + RULES_AT_ONCE]
        usual, is_usual = read_lines(part, atoms)
        numbered = ((start + row + 2, part[row]) for row in np.flatnonzero(~is_usual).tolist())  # line 1: the header
        odd = list(_parsed(path, numbered, lambda line: _table_row(line, relations, entities)))
        places = [*np.flatnonzero(is_usual), *(number - start - 2 for number, _ in odd)]
        both = concatenate_rules([usual, RuleSet.of((rule for _, rule in odd), len(relations))], len(relations))
        parts.append(both.where(np.argsort(places)) if odd else usual)
    return concatenate_rules(parts, len(relations))


def _table_row(line: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    text, *fields = _cells(line, len(HEADER))
    rule = parse_rule(text, relations, entities)
    support, body, pca, head = (UNCOUNTED if f == "" else _count(f) for f in fields[:4])
    rule = replace(rule, support=support, body_size=body, pca_body_size=pca, head_size=head)
    for name, field in zip(HEADER[5:], fields[4:], strict=True):
        _check_share(name, field, float(getattr(rule, name)))
    return rule


def write_amie(
    rules: RuleSet,
    path: Path | str,
    relations: Vocabulary,
    entities: Vocabulary | None = None,
    tail_side: Mask | None = None,
) -> None:
    """Write AMIE's listing; ``tail_side`` says whose functional variable is y."""
    _write_lines(path, (_amie_line(rule, path, relations, entities, tail_side) for rule in rules))


def _amie_line(
    rule: Rule, path: Path | str, relations: Vocabulary, entities: Vocabulary | None, tail_side: Mask | None
) -> str:
    _check_counted(rule, ("support", "body_size", "pca_body_size", "head_size"), path, "AMIE")
    head, body = _named_atoms(rule, relations, entities, AMIE_NAMES)
    text = "  ".join(f"{a}  {r}  {b}" for r, a, b in body) + "   => " + "{1}  {0}  {2}".format(*head)
    names = [word for atom in (head, *body) for word in atom]
    _check_text(rule, text, names, lambda: _amie_rule(text, relations, entities), path, "AMIE")
    by_tail = rule.head >= len(relations) or (tail_side is not None and bool(tail_side[rule.head]))
    shares = [repr(share) for share in (rule.head_coverage, rule.confidence, rule.pca_confidence)]
    counts = [str(count) for count in (rule.support, rule.body_size, rule.pca_body_size)]
    return "\t".join([text, *shares, *counts, "?b" if by_tail else "?a"])


AMIE_TITLE = "Head Coverage"  # a column of its header, which stands there without any rule, too


def read_amie(
    path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None, skip_other_shapes: bool = False
) -> RuleSet:
    """Read AMIE's listing; lines without a variable (its header, its remarks) are passed over."""
    every = list(enumerate(_lines(path), start=1))
    lines = [(number, line) for number, line in every if "?" in line]
    said = [(number, line) for number, line in every if line.strip()]
    if said and not lines and not any(AMIE_TITLE in line for _, line in said):
        number, line = said[0]
        raise InputError(path, f"has no rule of AMIE's, but {shown(line)}", number, "name its format with --from")
    return _collect(path, lines, lambda line: _amie_row(line, relations, entities), len(relations), skip_other_shapes)


def _amie_row(line: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    text, *fields = _cells(line, 8)
    rule = _amie_rule(text, relations, entities)
    coverage = _number(fields[0])
    support, body, pca = (_count(field) for field in fields[3:6])
    head_size = round(support / coverage) if coverage > 0 else UNCOUNTED
    rule = replace(rule, support=support, body_size=body, pca_body_size=pca, head_size=head_size)
    for name, field in zip(("confidence", "pca_confidence"), fields[1:3], strict=True):
        _check_share(name, field, float(getattr(rule, name)))
    return rule


def _amie_rule(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    sides = re.split(r"\s+=>\s+", text.strip())
    words = [re.split(r" {2,}", side.strip()) for side in sides]
    if len(sides) != 2 or any(len(side) % 3 for side in words) or len(words[1]) != 3:
        raise ValueError("expected '?a  r1  ?b   => ?a  r  ?b', with two spaces between the words")
    atoms = [side[i : i + 3] for side in words for i in range(0, len(side), 3)]
    *body, head = [_amie_atom(atom, relations, entities) for atom in atoms]
    return rule_of_atoms(head, body, len(relations))


def _amie_atom(words: list[str], relations: Vocabulary, entities: Vocabulary | None) -> Atom:
    left, right = (Variable(w) if w.startswith("?") else _known(w, entities, "entity") for w in (words[0], words[2]))
    return Atom(_known(words[1], relations, "relation"), left, right)


def _known(name: str, vocabulary: Vocabulary | None, what: str) -> int:
    """A name's id; RDF's angle brackets may stand round it."""
    identifier = -1 if vocabulary is None else vocabulary.id(name)
    if identifier < 0 and vocabulary is not None and name.startswith("<") and name.endswith(">"):
        identifier = vocabulary.id(name[1:-1])
    if identifier < 0:
        raise ValueError(f"unknown {what} {shown(name)}")
    return identifier


def write_anyburl(rules: RuleSet, path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None) -> None:
    """Write AnyBURL's listing."""
    _write_lines(path, (_anyburl_line(rule, path, relations, entities) for rule in rules))


def _anyburl_line(rule: Rule, path: Path | str, relations: Vocabulary, entities: Vocabulary | None) -> str:
    _check_counted(rule, ("support", "body_size"), path, "AnyBURL")
    head, body = _named_atoms(rule, relations, entities, ANYBURL_NAMES)
    first, *rest = ("{}({},{})".format(*atom) for atom in (head, *body))
    text = first + " <= " + ", ".join(rest)
    names = [word for atom in (head, *body) for word in atom]
    _check_text(rule, text, names, lambda: _anyburl_rule(text, relations, entities), path, "AnyBURL")
    return f"{rule.body_size}\t{rule.support}\t{rule.confidence!r}\t{text}"


def read_anyburl(
    path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None, skip_other_shapes: bool = False
) -> RuleSet:
    """Read AnyBURL's listing; ``skip_other_shapes`` passes over bodies that no kind of ours has."""
    return _collect(
        path,
        enumerate(_lines(path), start=1),
        lambda line: _anyburl_row(line, relations, entities),
        len(relations),
        skip_other_shapes,
    )


def _anyburl_row(line: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    body, support, confidence, text = _cells(line, 4)
    rule = replace(_anyburl_rule(text, relations, entities), support=_count(support), body_size=_count(body))
    _check_share("confidence", confidence, rule.confidence)
    return rule


def _anyburl_rule(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    """Names stand bare, so commas and brackets in them are told from the form's own by what the vocabularies know."""
    sides = text.split(" <= ")
    for cut in range(1, len(sides)):
        heads = list(_anyburl_atoms(" <= ".join(sides[:cut]), relations, entities))
        bodies = list(_anyburl_atoms(" <= ".join(sides[cut:]), relations, entities))
        readings = [(head[0], body) for head in heads if len(head) == 1 for body in bodies]
        if len(readings) > 1:
            raise ValueError(f"{shown(text)} can be read in {len(readings)} ways")
        if readings:
            return rule_of_atoms(*readings[0], len(relations))
    raise ValueError(_why_unread(text, relations, entities))


def _anyburl_atoms(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Iterator[list[Atom]]:
    """Every way to read a text as atoms with ', ' between them."""
    for end in re.finditer(r"\)(?:, |$)", text):
        for atom in _anyburl_atom(text[: end.start()], relations, entities):
            if end.end() == len(text):
                yield [atom]
            else:
                for rest in _anyburl_atoms(text[end.end() :], relations, entities):
                    yield [atom, *rest]


def _anyburl_atom(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Iterator[Atom]:
    """Every way to read ``relation(left,right`` (the last bracket is off)."""
    for bracket in re.finditer(r"\(", text):
        relation = relations.id(text[: bracket.start()])
        if relation < 0:
            continue
        inside = text[bracket.end() :]
        for comma in re.finditer(",", inside):
            left = _anyburl_term(inside[: comma.start()], entities)
            right = _anyburl_term(inside[comma.end() :], entities)
            if left is not None and right is not None:
                yield Atom(relation, left, right)


def _anyburl_term(word: str, entities: Vocabulary | None) -> Variable | int | None:
    if len(word) == 1 and "A" <= word <= "Z":
        return Variable(word)
    identifier = -1 if entities is None else entities.id(word)
    return None if identifier < 0 else identifier


def _why_unread(text: str, relations: Vocabulary, entities: Vocabulary | None) -> str:
    """The likeliest reason that a text is no AnyBURL rule."""
    atoms = re.findall(r"([^\s(]+)\((.+?),(.+?)\)(?=, | <= |$)", text) if " <= " in text else []
    for relation, left, right in atoms:
        if relation not in relations:
            return f"unknown relation {shown(relation)}"
        for word in (left, right):
            if _anyburl_term(word, entities) is None:
                return f"unknown entity {shown(word)}"
    return "expected a rule such as 'r(X,Y) <= r1(X,A), r2(A,Y)'"


def _named_atoms(
    rule: Rule, relations: Vocabulary, entities: Vocabulary | None, names: dict[str, str]
) -> tuple[tuple[str, str, str], list[tuple[str, str, str]]]:
    """The atoms as (relation, left, right) words."""

    def term(value: Variable | int) -> str:
        if isinstance(value, Variable):
            return names[value]
        return f"#{value}" if entities is None else entities[value]

    head, body = rule.atoms(len(relations))
    words = [(relations[atom.relation], term(atom.left), term(atom.right)) for atom in (head, *body)]
    return words[0], words[1:]


def _check_counted(rule: Rule, figures: tuple[str, ...], path: Path | str, form: str) -> None:
    """Refuse to write a rule without the figures that the form states."""
    if missing := [name for name in figures if getattr(rule, name) == UNCOUNTED]:
        problem = f"{path}: {form}'s form states the {missing[0]} of a rule, which these rules do not give"
        raise OutputError(f"{problem}; mine them anew or write rules.tsv")


def _check_text(
    rule: Rule, text: str, names: list[str], parse: Callable[[], Rule], path: Path | str, form: str
) -> None:
    """Refuse to write a rule whose names the form cannot hold: it would be read as another one."""
    if all(is_plain(name) and len(name) > 1 for name in names):
        return
    bare = replace(rule, support=UNCOUNTED, body_size=UNCOUNTED, pca_body_size=UNCOUNTED, head_size=UNCOUNTED)
    try:
        same = "\t" not in text and "\n" not in text and parse() == bare
    except ValueError:
        same = False
    if not same:
        problem = f"{path}: {form}'s form cannot hold the names of the rule {shown(text)}"
        raise OutputError(f"{problem}; write rules.tsv, which quotes names")


def _collect(
    path: Path | str,
    lines: Iterable[tuple[int, str]],
    parse: Parser,
    num_relations: int,
    skip_other_shapes: bool = False,
) -> RuleSet:
    return RuleSet.of((rule for _, rule in _parsed(path, lines, parse, skip_other_shapes)), num_relations)


def _parsed(
    path: Path | str, lines: Iterable[tuple[int, str]], parse: Parser, skip_other_shapes: bool = False
) -> Iterator[tuple[int, Rule]]:
    """Each rule with the number of its line; empty lines are passed over."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            yield number, _consistent(parse(line))
        except ShapeError as problem:
            if not skip_other_shapes:
                raise InputError(path, f"{problem} in {shown(line)}", number, "remove the line") from None
        except ValueError as problem:
            raise InputError(path, f"{problem} in {shown(line)}", number, "mend or remove the line") from None


def _consistent(rule: Rule) -> Rule:
    """The rule, if its counts can be true together."""
    not_above = {"support": ("body_size", "pca_body_size", "head_size"), "pca_body_size": ("body_size",)}
    for small, large in ((small, large) for small, larger in not_above.items() for large in larger):
        part, whole = getattr(rule, small), getattr(rule, large)
        if whole != UNCOUNTED and part > whole:
            raise ValueError(f"{small} {part} is above {large} {whole}")
    return rule


def _cells(line: str, wanted: int) -> list[str]:
    cells = line.split("\t")
    if len(cells) != wanted:
        raise ValueError(f"{len(cells)} columns where {wanted} are expected")
    return cells


def _count(field: str) -> int:
    if not re.fullmatch(r"\d+(\.0+)?", field.strip(), re.ASCII):
        raise ValueError(f"{shown(field)} is no count")
    return int(field.strip().split(".")[0])


def _number(field: str) -> float:
    """A share; AMIE writes a decimal comma where the computer's language has one."""
    try:
        return float(field.replace(",", "."))
    except ValueError:
        raise ValueError(f"{shown(field)} is no number") from None


def _check_share(name: str, field: str, expected: float) -> None:
    stated = float("nan") if field == "" else _number(field)
    if (stated != stated) != (expected != expected) or abs(stated - expected) > TOLERANCE:
        raise ValueError(f"{name} {shown(field)} contradicts the counts, which give {expected:.6g}")


def _lines(path: Path | str) -> list[str]:
    """The lines without their ends; only a line feed ends a line, since names may hold rarer separators."""
    with open_bytes(Path(path)) as stream:
        content = bytes(stream.read())
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = content[: problem.start].count(b"\n") + 1
        raise InputError(path, "is not UTF-8", line, "save it as UTF-8") from None
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _write_lines(path: Path | str, lines: Iterable[str]) -> None:
    """Write a file whole or not at all; compressed where its name says so."""
    with create_bytes(Path(path)) as stream:
        for part in batched(lines, LINES_AT_ONCE):
            stream.write("".join(line + "\n" for line in part).encode())


def batched(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of at most ``size`` lines."""
    source = iter(lines)
    while part := list(islice(source, size)):
        yield part


# How each text form is read: the name a user gives, and the function.
READERS: dict[str, Callable[[Path, Vocabulary, Vocabulary | None], RuleSet]] = {
    "tsv": read_rules,
    "amie": read_amie,
    "anyburl": read_anyburl,
}
