"""Our own table of rules, read and written.

    rules.tsv   a header, then: rule, support, body_size, pca_body_size, head_size, and three shares of them

A figure that is not counted is empty. A file is written whole or not at all.

Every rule of a *shape* (a kind, and which of its relations are inverse) has the same text but for its names, so rules
are written by putting columns of names into the texts of their shapes. Reading goes the other way: lines are cut into
atoms, each distinct atom is read once, and all lines whose atoms have the same forms are read as one. What was read so
counts only where writing it gives the very same line again. All other lines are odd: they are left to the parser of
single rules, which also knows what is wrong with them.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from newcomer.errors import InputError, shown
from newcomer.graph import Ids, Mask, Offsets, Vocabulary
from newcomer.rules.files.lines import cells_of, check_share, count_of, lines_of, parsed, write_text
from newcomer.rules.rule import (
    ANY,
    COLUMNS,
    FIGURES,
    NONE,
    UNCOUNTED,
    Atom,
    Kind,
    Rule,
    RuleSet,
    ShapeError,
    Shares,
    Variable,
    W,
    X,
    Y,
    Z,
    concatenate_rules,
    names_in,
    parse_atom,
    parse_rule,
    quoted,
    rule_of_atoms,
)

HEADER = ("rule", "support", "body_size", "pca_body_size", "head_size", "head_coverage", "confidence", "pca_confidence")
RULES_AT_ONCE = 1 << 16
SLOTS = COLUMNS[1:7]  # a rule's relations and constants; what digits mean in the text of a shape
RELATION_SLOTS = 4  # so many of them are relations
MOST_ATOMS = 4
TERMS = {str(variable): place for place, variable in enumerate((X, Y, Z, W, ANY))}
SIDES = len(TERMS) + 1  # what a term of an atom may be: one of these variables, or a constant
FORMS = SIDES**2  # of an atom: what its left and right term are
UNREAD = -1
LONGEST_COUNT = 18  # digits that always fit 64 bits

_WORD = r'(?:"(?:[^"\\]|\\.)*"|[\w./:#@+-]+)'
_ATOM_TEXT = re.compile(rf"{_WORD}\({_WORD},{_WORD}\)")


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


def _form(atom: Atom) -> int:
    left, right = (TERMS[term] if isinstance(term, Variable) else SIDES - 1 for term in (atom.left, atom.right))
    return left * SIDES + right


def _pieces(rule: Rule, size: int) -> list[str]:
    """The text of all rules of a rule's shape, cut at its names: text, slot, text, slot, ..., text."""
    ids = astuple(rule)[1 : 1 + len(SLOTS)]
    relations = [place + RELATION_SLOTS * (i >= size) if i != NONE else NONE for place, i in enumerate(ids[:4])]
    constants = [place if i != NONE else NONE for place, i in enumerate(ids[4:], start=4)]
    names = Vocabulary(map(str, range(len(SLOTS))))
    return re.split(r"(\d)", Rule(rule.kind, *relations, *constants).text(Vocabulary("0123"), names))


def _rule_of_forms(forms: Sequence[int]) -> Rule | None:
    """The rule whose atoms, the head's last, have these forms; its relations and constants are the atoms' places."""
    terms = [Variable(name) for name in TERMS]
    atoms = [
        Atom(place, *(terms[side] if side < len(terms) else place for side in divmod(form, SIDES)))
        for place, form in enumerate(forms)
    ]
    with suppress(ShapeError):
        return rule_of_atoms(atoms[-1], atoms[:-1], MOST_ATOMS)
    return None


def table_lines(rules: RuleSet, relations: Vocabulary, entities: Vocabulary | None) -> pa.Array:
    """The line of each rule in our table, without its end."""
    columns = [_texts(rules, relations, entities)]
    columns += [_count_texts(getattr(rules, name)) for name in FIGURES]
    columns += [_share_texts(share) for share in (rules.head_coverage, rules.confidence, rules.pca_confidence)]
    return pc.binary_join_element_wise(*columns, "\t")


def _texts(rules: RuleSet, relations: Vocabulary, entities: Vocabulary | None) -> pa.Array:
    """As `RuleSet.texts`, shape by shape."""
    codes = rules.kinds.astype(np.int64)
    for name in SLOTS[:RELATION_SLOTS]:
        codes = codes * 2 + (getattr(rules, name) >= rules.num_relations)
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    parts = [pa.array([], type=pa.string())]
    for place, example in enumerate(first.tolist()):
        rows = np.flatnonzero(which == place)
        words = [
            _words(piece, rules, rows, relations, entities) if number % 2 else piece
            for number, piece in enumerate(_pieces(rules[example], rules.num_relations))
        ]
        parts.append(pc.binary_join_element_wise(*words, ""))
    by_shape = np.argsort(which, kind="stable")
    return pa.concat_arrays(parts).take(pa.array(np.argsort(by_shape)))


def _words(slot: str, rules: RuleSet, rows: Offsets, relations: Vocabulary, entities: Vocabulary | None) -> pa.Array:
    """The names in a slot of these rules' texts; each distinct one is quoted once."""
    name = SLOTS[int(slot)]
    ids = getattr(rules, name)[rows]
    if name in SLOTS[:RELATION_SLOTS]:
        return quoted_names(relations, ids % rules.num_relations)
    distinct, places = np.unique(ids, return_inverse=True)
    names = [f"#{i}" for i in distinct.tolist()] if entities is None else entities.names_of(distinct)
    words = [json.dumps(word, ensure_ascii=False) if word in TERMS else quoted(word) for word in names]
    return pa.array(words, type=pa.string()).take(pa.array(places))


def quoted_names(vocabulary: Vocabulary, ids: Ids) -> pa.Array:
    """The names of these ids as rule files write them; each distinct one is quoted once."""
    distinct, places = np.unique(ids, return_inverse=True)
    names = [quoted(name) for name in vocabulary.names_of(distinct)]
    return pa.array(names, type=pa.string()).take(pa.array(places))


def _count_texts(counts: Offsets) -> pa.Array:
    texts = pa.array(counts).cast(pa.string())
    return pc.if_else(pa.array(counts == UNCOUNTED), "", texts)


def _share_texts(shares: Shares) -> pa.Array:
    """Each number as Python writes it: the shortest text that is read as the same number."""
    distinct, places = np.unique(shares, return_inverse=True)
    texts = ["" if share != share else repr(share) for share in distinct.tolist()]
    return pa.array(texts, type=pa.string()).take(pa.array(places))


class AtomTable:
    """The distinct atoms met so far, each read once: its form, its relation and its constant."""

    def __init__(self, relations: Vocabulary, entities: Vocabulary | None) -> None:
        self.relations, self.entities = relations, entities
        self._rows: dict[str, int] = {}
        self._values: list[tuple[int, int, int]] = []

    def rows_of(self, atoms: pa.Array) -> Offsets:
        """The rows of these atoms in the table."""
        encoded, rows = atoms.dictionary_encode(), self._rows
        distinct = encoded.dictionary.to_pylist()
        for atom in distinct:
            if atom not in rows:
                rows[atom] = len(rows)
                self._values.append(self._read(atom))
        places = np.fromiter(map(rows.__getitem__, distinct), dtype=np.int64, count=len(distinct))
        found: Offsets = places[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def columns(self) -> Offsets:
        """Form, relation and constant of each atom; the form is `UNREAD` where it is no atom of known names."""
        return np.array(self._values, dtype=np.int64).reshape(-1, 3)

    def _read(self, text: str) -> tuple[int, int, int]:
        with suppress(ValueError):
            atom = parse_atom(text, self.relations, self.entities)
            constants = [term for term in (atom.left, atom.right) if not isinstance(term, Variable)]
            if len(constants) < 2:
                return _form(atom), atom.relation, constants[0] if constants else NONE
        return UNREAD, UNREAD, UNREAD


def split_texts(texts: pa.Array) -> pa.Array:
    """For each rule's text the list of its atoms, the head's last; of something else where the text is odd."""
    bare = pc.split_pattern(pc.replace_substring(texts, " => ", ", "), ", ")
    has_quotes = pc.match_substring(texts, '"').to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(has_quotes)
    if len(rows) == 0:
        return bare
    # Inside quotes the signs between atoms may be part of a name.
    careful = [_ATOM_TEXT.findall(text) for text in texts.take(pa.array(rows)).to_pylist()]
    order = np.arange(len(texts))
    order[rows] = len(texts) + np.arange(len(rows))
    return pa.concat_arrays([bare, pa.array(careful, type=bare.type)]).take(pa.array(order))


def names_of_lines(lines: Sequence[str]) -> tuple[set[str], set[str]]:
    """The relations and the entities that lines of our table name; a rule that cannot be read adds nothing."""
    texts = pa.array([line.split("\t", 1)[0] for line in lines], type=pa.string())
    relations: set[str] = set()
    entities: set[str] = set()
    for atom in pc.unique(pc.list_flatten(split_texts(texts))).to_pylist():
        with suppress(ValueError):
            named = names_in(atom)
            relations |= named[0]
            entities |= named[1]
    return relations, entities


def read_lines(lines: Sequence[str], atoms: AtomTable) -> tuple[RuleSet, Mask]:
    """A rule for each line that our writer would write just so, and which lines those are; the rest are odd."""
    given = pa.array(lines, type=pa.string())
    texts, *counts = _first_cells(given, 1 + len(FIGURES))  # the shares at the end follow from the counts
    guess, plausible = _guessed(texts, atoms)
    guess |= {name: _counts(column) for name, column in zip(FIGURES, counts, strict=True)}
    plausible &= _possible(guess)
    rows = np.flatnonzero(plausible)
    rules = RuleSet.of_columns(len(atoms.relations), len(rows), **{name: guess[name][rows] for name in guess})
    same = pc.equal(table_lines(rules, atoms.relations, atoms.entities), given.take(pa.array(rows)))
    kept = same.to_numpy(zero_copy_only=False).astype(bool)
    plausible[rows] = kept
    return rules.where(kept), plausible


def _first_cells(lines: pa.Array, count: int) -> list[pa.Array]:
    """The first columns of a table; empty where a line has not more of them."""
    enough = pc.greater_equal(pc.count_substring(lines, "\t"), count)
    cells = pc.list_flatten(pc.split_pattern(pc.if_else(enough, lines, "\t" * count), "\t", max_splits=count))
    return [cells.take(pa.array(np.arange(place, len(cells), count + 1))) for place in range(count)]


def _counts(fields: pa.Array) -> Offsets:
    """The numbers; what is no count is none, and will not be written so again."""
    fits = pc.match_substring_regex(fields, rf"^[0-9]{{1,{LONGEST_COUNT}}}$")
    numbers: Offsets = pc.if_else(fits, fields, str(UNCOUNTED)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _possible(guess: dict[str, Offsets]) -> Mask:
    """Where no count is above one that it is a part of, and the atoms of an intersection are in order."""
    support, body, pca, head = (guess[name] for name in FIGURES)
    possible: Mask = (guess["kinds"] != Kind.BOTH) | (guess["body1"] < guess["body2"])
    for part, whole in ((support, body), (support, pca), (support, head), (pca, body)):
        possible &= (whole == UNCOUNTED) | (part <= whole)
    return possible


def _guessed(texts: pa.Array, atoms: AtomTable) -> tuple[dict[str, Offsets], Mask]:
    """The columns of what each text may be, and for which texts a shape was found."""
    split = split_texts(texts)
    counts = pc.list_value_length(split).to_numpy(zero_copy_only=False).astype(np.int64)
    rows = atoms.rows_of(pc.list_flatten(split))
    forms, relations, constants = atoms.columns()[rows].T
    starts = np.cumsum(counts) - counts
    keys = _keys_of_forms(forms, starts, counts)
    guess = {name: np.full(len(texts), NONE, dtype=np.int64) for name in ("kinds", *SLOTS)}
    for key in np.unique(keys[keys != UNREAD]).tolist():
        here = np.flatnonzero(keys == key)
        first, count = starts[here], int(counts[here[0]])
        rule = _rule_of_forms(forms[first[0] : first[0] + count].tolist())
        if rule is None:
            continue
        guess["kinds"][here] = rule.kind
        places = astuple(rule)[1 : 1 + len(SLOTS)]
        for column, place in zip(SLOTS[:RELATION_SLOTS], places[:RELATION_SLOTS], strict=True):
            if place != NONE:
                turned, atom = divmod(place, MOST_ATOMS)
                guess[column][here] = relations[first + atom] + len(atoms.relations) * turned
        for column, place in zip(SLOTS[RELATION_SLOTS:], places[RELATION_SLOTS:], strict=True):
            if place != NONE:
                guess[column][here] = constants[first + place]
    return guess, guess["kinds"] != NONE


def _keys_of_forms(forms: Offsets, starts: Offsets, counts: Offsets) -> Offsets:
    """One number for the forms of each text's atoms, or `UNREAD`."""
    keys = np.zeros(len(starts), dtype=np.int64)
    readable = (counts >= 2) & (counts <= MOST_ATOMS)
    for place in range(MOST_ATOMS):
        there = np.flatnonzero(place < counts)
        form = forms[starts[there] + place]
        keys[there] = keys[there] * (FORMS + 1) + form + 1
        readable[there] &= form != UNREAD
    return np.where(readable, keys, UNREAD)
