"""What the text forms of rules share: lines of a file, cells of a line, and the checks of what they hold."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from newcomer.errors import InputError, shown
from newcomer.files import create_bytes, read_text
from newcomer.rules.limits import MOST
from newcomer.rules.rule import UNCOUNTED, Rule, ShapeError

TOLERANCE = 1e-6  # how far a share in a file may be from what its counts give: listings round
LINES_AT_ONCE = 1 << 14


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
    found = int(field.strip().split(".")[0])
    if found > MOST:
        raise ValueError(f"{shown(field)} is more than can be counted, {MOST:,}")
    return found


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
