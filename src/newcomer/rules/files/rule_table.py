"""Our own table of rules, read and written.

    rules.tsv   a header, then: rule, support, body_size, pca_body_size, head_size, and three shares of them

A figure that is not counted is empty. A file is written whole or not at all.
"""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from newcomer.errors import InputError, shown
from newcomer.graph import Vocabulary
from newcomer.rules.files.columns import AtomTable, names_of_lines, read_lines, table_lines
from newcomer.rules.files.lines import cells_of, check_share, count_of, lines_of, parsed, write_text
from newcomer.rules.rule import UNCOUNTED, Rule, RuleSet, concatenate_rules, parse_rule

HEADER = ("rule", "support", "body_size", "pca_body_size", "head_size", "head_coverage", "confidence", "pca_confidence")
RULES_AT_ONCE = 1 << 16


def write_rules(rules: RuleSet, path: Path | str, relations: Vocabulary, entities: Vocabulary | None = None) -> None:
    """Write our table."""
    slices = (
        rules.where(np.arange(i, min(i + RULES_AT_ONCE, len(rules)))) for i in range(0, len(rules), RULES_AT_ONCE)
    )
    lines = (line for part in slices for line in table_lines(part, relations, entities).to_pylist())
    write_text(path, chain(["\t".join(HEADER)], lines))


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
    header, *lines = lines_of(path) or [""]
    if tuple(header.split("\t")) != HEADER:
        raise InputError(path, f"the header is {shown(header)}", 1, "expected: " + " ".join(HEADER))
    return lines


def _table(path: Path | str, lines: list[str], relations: Vocabulary, entities: Vocabulary | None) -> RuleSet:
    """The rules of these lines: many at once where they are as we write them, one by one where not."""
    atoms, parts = AtomTable(relations, entities), []
    for start in range(0, len(lines), RULES_AT_ONCE):
        part = lines[start : start + RULES_AT_ONCE]
        usual, is_usual = read_lines(part, atoms)
        numbered = ((start + row + 2, part[row]) for row in np.flatnonzero(~is_usual).tolist())  # line 1: the header
        odd = list(parsed(path, numbered, lambda line: _table_row(line, relations, entities)))
        places = [*np.flatnonzero(is_usual), *(number - start - 2 for number, _ in odd)]
        both = concatenate_rules([usual, RuleSet.of((rule for _, rule in odd), len(relations))], len(relations))
        parts.append(both.where(np.argsort(places)) if odd else usual)
    return concatenate_rules(parts, len(relations))


def _table_row(line: str, relations: Vocabulary, entities: Vocabulary | None) -> Rule:
    text, *fields = cells_of(line, len(HEADER))
    rule = parse_rule(text, relations, entities)
    support, body, pca, head = (UNCOUNTED if field == "" else count_of(field) for field in fields[:4])
    rule = replace(rule, support=support, body_size=body, pca_body_size=pca, head_size=head)
    for name, field in zip(HEADER[5:], fields[4:], strict=True):
        check_share(name, field, float(getattr(rule, name)))
    return rule
