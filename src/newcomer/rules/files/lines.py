"""What the text forms of rules share: lines of a file, cells of a line, and the checks of what they hold."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from newcomer.errors import InputError, OutputError, shown
from newcomer.files import create_bytes, read_text
from newcomer.graph import Vocabulary
from newcomer.rules.rule import UNCOUNTED, Rule, RuleSet, ShapeError, Variable, is_plain

TOLERANCE = 1e-6  # how far a share in a file may be from what its counts give: listings round
LINES_AT_ONCE = 1 << 14
Words = tuple[str, str, str]  # an atom as relation, left and right term


def lines_of(path: Path | str) -> list[str]:
    """The lines without their ends; only a line feed ends a line, since names may hold rarer separators."""
    text = read_text(Path(path))
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def write_text(path: Path | str, lines: Iterable[str]) -> None:
    """Write a file whole or not at all; compressed where its name asks for it."""
    source = iter(lines)
    with create_bytes(Path(path)) as stream:
        while part := list(islice(source, LINES_AT_ONCE)):
            stream.write("".join(line + "\n" for line in part).encode())


def parsed(
    path: Path | str, lines: Iterable[tuple[int, str]], parse: Callable[[str], Rule]
) -> Iterator[tuple[int, Rule]]:
    """Each rule with the number of its line; empty lines are passed over, a wrong one is named."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            yield number, _consistent(parse(line))
        except ShapeError as problem:
            raise InputError(path, f"{problem} in {shown(line)}", number, "remove the line") from None
        except ValueError as problem:
            raise InputError(path, f"{problem} in {shown(line)}", number, "mend or remove the line") from None


def rules_of(
    path: Path | str, lines: Iterable[tuple[int, str]], parse: Callable[[str], Rule], num_relations: int
) -> RuleSet:
    """The rules of numbered lines."""
    return RuleSet.of((rule for _, rule in parsed(path, lines, parse)), num_relations)


def _consistent(rule: Rule) -> Rule:
    """The rule, if its counts can be true together."""
    for pair in ("support body_size", "support pca_body_size", "support head_size", "pca_body_size body_size"):
        small, large = pair.split()
        part, whole = getattr(rule, small), getattr(rule, large)
        if whole != UNCOUNTED and part > whole:
            raise ValueError(f"{small} {part} is above {large} {whole}")
    return rule


def cells_of(line: str, wanted: int) -> list[str]:
    """The cells of a line that must have so many."""
    cells = line.split("\t")
    if len(cells) != wanted:
        raise ValueError(f"{len(cells)} columns where {wanted} are expected")
    return cells


def count_of(field: str) -> int:
    """A count; some tools write it with a decimal point."""
    if not re.fullmatch(r"\d+(\.0+)?", field.strip(), re.ASCII):
        raise ValueError(f"{shown(field)} is no count")
    return int(field.strip().split(".")[0])


def number_of(field: str) -> float:
    """A share; AMIE writes a decimal comma where the computer's language has one."""
    try:
        return float(field.replace(",", "."))
    except ValueError:
        raise ValueError(f"{shown(field)} is no number") from None


def check_share(name: str, field: str, expected: float) -> None:
    """Refuse a share that is not what the counts give."""
    stated = float("nan") if field == "" else number_of(field)
    if (stated != stated) != (expected != expected) or abs(stated - expected) > TOLERANCE:
        raise ValueError(f"{name} {shown(field)} contradicts the counts, which give {expected:.6g}")


@dataclass(frozen=True)
class Listing:
    """The form in which another tool lists rules: its variables, the figures it states, how its atoms make a text."""

    tool: str
    variables: dict[str, str]
    figures: tuple[str, ...]
    text: Callable[[Words, list[Words]], str]  # of the head and the body
    rule: Callable[[str, Vocabulary, Vocabulary | None], Rule]  # of a text

    def written(self, rule: Rule, path: Path | str, relations: Vocabulary, entities: Vocabulary | None) -> str:
        """The text of a rule; refuses one without a figure, or whose names would be read as another rule."""
        self._check_counted(rule, path)

        def term(value: Variable | int) -> str:
            if isinstance(value, Variable):
                return self.variables[value]
            return f"#{value}" if entities is None else entities[value]

        head, body = rule.atoms(len(relations))
        atoms = [(relations[atom.relation], term(atom.left), term(atom.right)) for atom in (head, *body)]
        text = self.text(atoms[0], atoms[1:])
        if not all(is_plain(name) and len(name) > 1 for atom in atoms for name in atom):
            self._check_read_back(rule, text, path, relations, entities)
        return text

    def _check_counted(self, rule: Rule, path: Path | str) -> None:
        if missing := [name for name in self.figures if getattr(rule, name) == UNCOUNTED]:
            problem = f"{path}: {self.tool}'s form states the {missing[0]} of a rule, which these rules do not give"
            raise OutputError(f"{problem}; mine them anew or write rules.tsv")

    def _check_read_back(
        self, rule: Rule, text: str, path: Path | str, relations: Vocabulary, entities: Vocabulary | None
    ) -> None:
        bare = replace(rule, support=UNCOUNTED, body_size=UNCOUNTED, pca_body_size=UNCOUNTED, head_size=UNCOUNTED)
        same = False
        with suppress(ValueError):
            same = "\t" not in text and "\n" not in text and self.rule(text, relations, entities) == bare
        if not same:
            problem = f"{path}: {self.tool}'s form cannot hold the names of the rule {shown(text)}"
            raise OutputError(f"{problem}; write rules.tsv, which quotes names")
