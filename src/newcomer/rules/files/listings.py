"""The listings in which AMIE and AnyBURL write rules, read and written; and all text forms of rules by their names.

AMIE's does not state the head's size, which follows from head coverage:

    ?a  r1  ?c  ?c  r2  ?b   => ?a  r  ?b <TAB> head coverage, confidence, PCA confidence, support, body size,
    PCA body size, functional variable

AnyBURL's states neither the head's size nor the PCA body size, which are then `UNCOUNTED`:

    body size, support, confidence <TAB> r(X,Y) <= r1(X,A), r2(A,Y)
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from newcomer.errors import InputError, OutputError, shown
from newcomer.graph import Graph, Mask, Vocabulary
from newcomer.rules.files.lines import cells_of, check_share, count_of, lines_of, number_of, parsed, write_text
from newcomer.rules.files.rule_table import read_rules, write_rules
from newcomer.rules.mining.index import tail_side
from newcomer.rules.rule import FIGURES, UNCOUNTED, Atom, Rule, RuleSet, Variable, is_plain, rule_of_atoms

Words = tuple[str, str, str]  # an atom as relation, left and right term


class Listing(ABC):
    """Another tool's form of rules over these names: its variables, the figures it states, and how a line is made."""

    tool: ClassVar[str]
    variables: ClassVar[dict[str, str]]
    figures: ClassVar[tuple[str, ...]]

    def __init__(self, relations: Vocabulary, entities: Vocabulary | None = None) -> None:
        self.relations, self.entities = relations, entities

    def write(self, rules: RuleSet, path: Path | str) -> None:
        """Write a file; refuses a rule without a figure, or whose names would be read as another rule."""
        write_text(path, (self.line(rule, self._written(rule, path)) for rule in rules))

    def read(self, path: Path | str) -> RuleSet:
        """The rules of a file."""
        found = parsed(path, self.numbered(path), self.row)
        return RuleSet.of((rule for _, rule in found), len(self.relations))

    def numbered(self, path: Path | str) -> Iterable[tuple[int, str]]:
        """The lines that may hold rules, with their numbers."""
        return enumerate(lines_of(path), start=1)

    @abstractmethod
    def line(self, rule: Rule, text: str) -> str:
        """A rule's text with its figures."""

    @abstractmethod
    def row(self, line: str) -> Rule:
        """The rule of a line."""

    @abstractmethod
    def text(self, head: Words, body: list[Words]) -> str:
        """A rule's text."""

    @abstractmethod
    def rule(self, text: str) -> Rule:
        """The rule of a text."""

    def _written(self, rule: Rule, path: Path | str) -> str:
        if missing := [name for name in self.figures if getattr(rule, name) == UNCOUNTED]:
            problem = f"{path}: {self.tool}'s form states the {missing[0]} of a rule, which these rules do not give"
            raise OutputError(f"{problem}; mine them anew or write rules.tsv")

        def term(value: Variable | int) -> str:
            if isinstance(value, Variable):
                return self.variables[value]
            return f"#{value}" if self.entities is None else self.entities[value]

        head, body = rule.atoms(len(self.relations))
        atoms = [(self.relations[atom.relation], term(atom.left), term(atom.right)) for atom in (head, *body)]
        text = self.text(atoms[0], atoms[1:])
        plain = all(is_plain(name) and len(name) > 1 for atom in atoms for name in atom)
        if not plain and not self._is_read_back(rule, text):
            problem = f"{path}: {self.tool}'s form cannot hold the names of the rule {shown(text)}"
            raise OutputError(f"{problem}; write rules.tsv, which quotes names")
        return text

    def _is_read_back(self, rule: Rule, text: str) -> bool:
        bare = replace(rule, support=UNCOUNTED, body_size=UNCOUNTED, pca_body_size=UNCOUNTED, head_size=UNCOUNTED)
        with suppress(ValueError):
            return "\t" not in text and "\n" not in text and self.rule(text) == bare
        return False


class Amie(Listing):
    """AMIE's listing; ``by_tail`` marks relations whose functional variable is y."""

    tool = "AMIE"
    variables: ClassVar = {"x": "?a", "y": "?b", "z": "?c", "w": "?d", "_": "?c"}
    figures = FIGURES
    TITLE = "Head Coverage"  # a column of its header, which is there without any rule, too

    def __init__(self, relations: Vocabulary, entities: Vocabulary | None = None, by_tail: Mask | None = None) -> None:
        super().__init__(relations, entities)
        self.by_tail = by_tail

    def line(self, rule: Rule, text: str) -> str:
        by_tail = rule.head >= len(self.relations) or (self.by_tail is not None and bool(self.by_tail[rule.head]))
        shares = [repr(share) for share in (rule.head_coverage, rule.confidence, rule.pca_confidence)]
        counts = [str(count) for count in (rule.support, rule.body_size, rule.pca_body_size)]
        return "\t".join([text, *shares, *counts, "?b" if by_tail else "?a"])

    def numbered(self, path: Path | str) -> Iterable[tuple[int, str]]:
        """Lines without a variable (its header, its remarks) are passed over."""
        filled = [(number, line) for number, line in super().numbered(path) if line.strip()]
        lines = [(number, line) for number, line in filled if "?" in line]
        if filled and not lines and not any(self.TITLE in line for _, line in filled):
            number, line = filled[0]
            raise InputError(path, f"has no rule of AMIE's, but {shown(line)}", number, "name its format with --from")
        return lines

    def row(self, line: str) -> Rule:
        text, *fields = cells_of(line, 8)
        rule = self.rule(text)
        coverage = number_of(fields[0])
        support, body, pca = (count_of(field) for field in fields[3:6])
        head_size = round(support / coverage) if coverage > 0 else UNCOUNTED
        rule = replace(rule, support=support, body_size=body, pca_body_size=pca, head_size=head_size)
        for name, field in zip(("confidence", "pca_confidence"), fields[1:3], strict=True):
            check_share(name, field, float(getattr(rule, name)))
        return rule

    def text(self, head: Words, body: list[Words]) -> str:
        return "  ".join(f"{a}  {r}  {b}" for r, a, b in body) + "   => " + "{1}  {0}  {2}".format(*head)

    def rule(self, text: str) -> Rule:
        sides = re.split(r"\s+=>\s+", text.strip())
        words = [re.split(r" {2,}", side.strip()) for side in sides]
        if len(sides) != 2 or any(len(side) % 3 for side in words) or len(words[1]) != 3:
            raise ValueError("expected '?a  r1  ?b   => ?a  r  ?b', with two spaces between the words")
        *body, head = [self._atom(*side[i : i + 3]) for side in words for i in range(0, len(side), 3)]
        return rule_of_atoms(head, body, len(self.relations))

    def _atom(self, *words: str) -> Atom:
        left, right = (
            Variable(word) if word.startswith("?") else _known(word, self.entities, "entity") for word in words[::2]
        )
        return Atom(_known(words[1], self.relations, "relation"), left, right)


def _known(name: str, vocabulary: Vocabulary | None, what: str) -> int:
    """A name's id; it may be in RDF's angle brackets."""
    identifier = -1 if vocabulary is None else vocabulary.id(name)
    if identifier < 0 and vocabulary is not None and name.startswith("<") and name.endswith(">"):
        identifier = vocabulary.id(name[1:-1])
    if identifier < 0:
        raise ValueError(f"unknown {what} {shown(name)}")
    return identifier


class AnyBurl(Listing):
    """AnyBURL's listing; which commas and brackets belong to names, which are bare, is told by the vocabularies."""

    tool = "AnyBURL"
    variables: ClassVar = {"x": "X", "y": "Y", "z": "A", "w": "B", "_": "A"}
    figures = ("support", "body_size")

    def line(self, rule: Rule, text: str) -> str:
        return f"{rule.body_size}\t{rule.support}\t{rule.confidence!r}\t{text}"

    def row(self, line: str) -> Rule:
        body, support, confidence, text = cells_of(line, 4)
        rule = replace(self.rule(text), support=count_of(support), body_size=count_of(body))
        check_share("confidence", confidence, rule.confidence)
        return rule

    def text(self, head: Words, body: list[Words]) -> str:
        first, *rest = ("{}({},{})".format(*atom) for atom in (head, *body))
        return first + " <= " + ", ".join(rest)

    def rule(self, text: str) -> Rule:
        sides = text.split(" <= ")
        for cut in range(1, len(sides)):
            heads, bodies = (list(self._atoms(" <= ".join(side))) for side in (sides[:cut], sides[cut:]))
            readings = [(head[0], body) for head in heads if len(head) == 1 for body in bodies]
            if len(readings) > 1:
                raise ValueError(f"{shown(text)} can be read in {len(readings)} ways")
            if readings:
                return rule_of_atoms(*readings[0], len(self.relations))
        raise ValueError(self._why_unread(text))

    def _atoms(self, text: str) -> Iterator[list[Atom]]:
        """All readings of a text as atoms with ', ' between them."""
        for end in re.finditer(r"\)(?:, |$)", text):
            for atom in self._atom(text[: end.start()]):
                if end.end() == len(text):
                    yield [atom]
                else:
                    yield from ([atom, *rest] for rest in self._atoms(text[end.end() :]))

    def _atom(self, text: str) -> Iterator[Atom]:
        """All readings of ``relation(left,right`` (the last bracket is off)."""
        for bracket in re.finditer(r"\(", text):
            relation = self.relations.id(text[: bracket.start()])
            if relation < 0:
                continue
            inside = text[bracket.end() :]
            for comma in re.finditer(",", inside):
                left, right = self._term(inside[: comma.start()]), self._term(inside[comma.end() :])
                if left is not None and right is not None:
                    yield Atom(relation, left, right)

    def _term(self, word: str) -> Variable | int | None:
        if len(word) == 1 and "A" <= word <= "Z":
            return Variable(word)
        identifier = -1 if self.entities is None else self.entities.id(word)
        return None if identifier < 0 else identifier

    def _why_unread(self, text: str) -> str:
        """The likeliest reason that a text is no AnyBURL rule."""
        atoms = re.findall(r"([^\s(]+)\((.+?),(.+?)\)(?=, | <= |$)", text) if " <= " in text else []
        for relation, *words in atoms:
            if relation not in self.relations:
                return f"unknown relation {shown(relation)}"
            for word in words:
                if self._term(word) is None:
                    return f"unknown entity {shown(word)}"
        return "expected a rule such as 'r(X,Y) <= r1(X,A), r2(A,Y)'"


READERS: dict[str, Callable[[Path, Graph], RuleSet]] = {
    "tsv": lambda path, graph: read_rules(path, graph.relations, graph.entities),
    "amie": lambda path, graph: Amie(graph.relations, graph.entities).read(path),
    "anyburl": lambda path, graph: AnyBurl(graph.relations, graph.entities).read(path),
}

# The graph names what the rules are about; AMIE's form also states which side of a relation is functional.
WRITERS: dict[str, Callable[[RuleSet, Path, Graph], None]] = {
    "tsv": lambda rules, path, graph: write_rules(rules, path, graph.relations, graph.entities),
    "amie": lambda rules, path, graph: Amie(graph.relations, graph.entities, tail_side(graph)).write(rules, path),
    "anyburl": lambda rules, path, graph: AnyBurl(graph.relations, graph.entities).write(rules, path),
}
