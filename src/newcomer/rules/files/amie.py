"""AMIE's listing of rules, read and written.

    ?a  r1  ?c  ?c  r2  ?b   => ?a  r  ?b <TAB> head coverage, confidence, PCA confidence, support, body size,
    PCA body size, functional variable

It does not state the head's size, which follows from head coverage.
"""

import re
from dataclasses import replace
from pathlib import Path

from newcomer.errors import InputError, shown
from newcomer.graph import Mask, Vocabulary
from newcomer.rules.files.lines import (
    Listing,
    Words,
    cells_of,
    check_share,
    count_of,
    lines_of,
    number_of,
    rules_of,
    write_text,
)
from newcomer.rules.rule import FIGURES, UNCOUNTED, Atom, Rule, RuleSet, Variable, rule_of_atoms

TITLE = "Head Coverage"  # a column of its header, which is there without any rule, too


def write_amie(
    rules: RuleSet,
    path: Path | str,
    relations: Vocabulary,
    entities: Vocabulary | None = None,
    tail_side: Mask | None = None,
) -> None:
    """Write AMIE's listing; ``tail_side`` marks relations whose functional variable is y."""
    write_text(path, (_line(rule, path, relations, entities, tail_side) for rule in rules))


def _line(
    rule: Rule, path: Path | str, relations: Vocabulary, entities: Vocabulary | None, tail_side: Mask | None
) -> str:
    text = LISTING.written(rule, path, relations, entities)
    by_tail = rule.head >= len(relations) or (tail_side is not None and bool(tail_side[rule.head]))
    shares = [repr(share) for share in (rule.head_coverage, rule.confidence, rule.pca_confidence)]
    counts = [str(count) for count in (rule.support, rule.body_size, rule.pca_body_size)]
    return "\t".join([text, *shares, *counts, "?b" if by_tail else "?a"])


def read_amie(path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None) -> RuleSet:
    """Read AMIE's listing; lines without a variable (its header, its remarks) are passed over."""
    every = list(enumerate(lines_of(path), start=1))
    lines = [(number, line) for number, line in every if "?" in line]
    filled = [(number, line) for number, line in every if line.strip()]
    if filled and not lines and not any(TITLE in line for _, line in filled):
        number, line = filled[0]
        raise InputError(path, f"has no rule of AMIE's, but {shown(line)}", number, "name its format with --from")
    return rules_of(path, lines, lambda line: _row(line, relations, entities), len(relations))


def _row(line: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    text, *fields = cells_of(line, 8)
    rule = _rule(text, relations, entities)
    coverage = number_of(fields[0])
    support, body, pca = (count_of(field) for field in fields[3:6])
    head_size = round(support / coverage) if coverage > 0 else UNCOUNTED
    rule = replace(rule, support=support, body_size=body, pca_body_size=pca, head_size=head_size)
    for name, field in zip(("confidence", "pca_confidence"), fields[1:3], strict=True):
        check_share(name, field, float(getattr(rule, name)))
    return rule


def _rule(text: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    sides = re.split(r"\s+=>\s+", text.strip())
    words = [re.split(r" {2,}", side.strip()) for side in sides]
    if len(sides) != 2 or any(len(side) % 3 for side in words) or len(words[1]) != 3:
        raise ValueError("expected '?a  r1  ?b   => ?a  r  ?b', with two spaces between the words")
    atoms = [side[i : i + 3] for side in words for i in range(0, len(side), 3)]
    *body, head = [_atom(atom, relations, entities) for atom in atoms]
    return rule_of_atoms(head, body, len(relations))


def _atom(words: list[str], relations: Vocabulary, entities: Vocabulary | None) -> Atom:
    left, right = (Variable(w) if w.startswith("?") else _known(w, entities, "entity") for w in (words[0], words[2]))
    return Atom(_known(words[1], relations, "relation"), left, right)


def _known(name: str, vocabulary: Vocabulary | None, what: str) -> int:
    """A name's id; it may be in RDF's angle brackets."""
    identifier = -1 if vocabulary is None else vocabulary.id(name)
    if identifier < 0 and vocabulary is not None and name.startswith("<") and name.endswith(">"):
        identifier = vocabulary.id(name[1:-1])
    if identifier < 0:
        raise ValueError(f"unknown {what} {shown(name)}")
    return identifier


def _text(head: Words, body: list[Words]) -> str:
    return "  ".join(f"{a}  {r}  {b}" for r, a, b in body) + "   => " + "{1}  {0}  {2}".format(*head)


LISTING = Listing("AMIE", {"x": "?a", "y": "?b", "z": "?c", "w": "?d", "_": "?c"}, FIGURES, _text, _rule)
