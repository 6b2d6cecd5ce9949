"""AnyBURL's listing of rules, read and written.

    body size, support, confidence <TAB> r(X,Y) <= r1(X,A), r2(A,Y)

It states neither the head's size nor the PCA body size, which are then `UNCOUNTED`.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from newcomer.errors import shown
from newcomer.graph import Vocabulary
from newcomer.rules.files.lines import (
    Listing,
    Words,
    cells_of,
    check_share,
    count_of,
    lines_of,
    rules_of,
    write_text,
)
from newcomer.rules.rule import Atom, Rule, RuleSet, Variable, rule_of_atoms


def write_anyburl(rules: RuleSet, path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None) -> None:
    """Write AnyBURL's listing."""
    write_text(path, (_line(rule, path, relations, entities) for rule in rules))


def _line(rule: Rule, path: Path | str, relations: Vocabulary, entities: Vocabulary | None) -> str:
    text = LISTING.written(rule, path, relations, entities)
    return f"{rule.body_size}\t{rule.support}\t{rule.confidence!r}\t{text}"


def read_anyburl(path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None) -> RuleSet:
    """Read AnyBURL's listing."""
    lines = enumerate(lines_of(path), start=1)
    return rules_of(path, lines, lambda line: _row(line, relations, entities), len(relations))


def _row(line: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    body, support, confidence, text = cells_of(line, 4)
    rule = replace(_rule(text, relations, entities), support=count_of(support), body_size=count_of(body))
    check_share("confidence", confidence, rule.confidence)
    return rule


def _rule(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    """Names are bare: commas and brackets in them are told from the form's own by the names in the vocabularies."""
    sides = text.split(" <= ")
    for cut in range(1, len(sides)):
        heads = list(_atoms(" <= ".join(sides[:cut]), relations, entities))
        bodies = list(_atoms(" <= ".join(sides[cut:]), relations, entities))
        readings = [(head[0], body) for head in heads if len(head) == 1 for body in bodies]
        if len(readings) > 1:
            raise ValueError(f"{shown(text)} can be read in {len(readings)} ways")
        if readings:
            return rule_of_atoms(*readings[0], len(relations))
    raise ValueError(_why_unread(text, relations, entities))


def _atoms(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Iterator[list[Atom]]:
    """All readings of a text as atoms with ', ' between them."""
    for end in re.finditer(r"\)(?:, |$)", text):
        for atom in _atom(text[: end.start()], relations, entities):
            if end.end() == len(text):
                yield [atom]
            else:
                for rest in _atoms(text[end.end() :], relations, entities):
                    yield [atom, *rest]


def _atom(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Iterator[Atom]:
    """All readings of ``relation(left,right`` (the last bracket is off)."""
    for bracket in re.finditer(r"\(", text):
        relation = relations.id(text[: bracket.start()])
        if relation < 0:
            continue
        inside = text[bracket.end() :]
        for comma in re.finditer(",", inside):
            left = _term(inside[: comma.start()], entities)
            right = _term(inside[comma.end() :], entities)
            if left is not None and right is not None:
                yield Atom(relation, left, right)


def _term(word: str, entities: Vocabulary | None) -> Variable | int | None:
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
            if _term(word, entities) is None:
                return f"unknown entity {shown(word)}"
    return "expected a rule such as 'r(X,Y) <= r1(X,A), r2(A,Y)'"


def _text(head: Words, body: list[Words]) -> str:
    first, *rest = ("{}({},{})".format(*atom) for atom in (head, *body))
    return first + " <= " + ", ".join(rest)


LISTING = Listing("AnyBURL", {"x": "X", "y": "Y", "z": "A", "w": "B", "_": "A"}, ("support", "body_size"), _text, _rule)
