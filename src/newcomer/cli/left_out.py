"""What was given and is in no answer: told on standard error, and with ``--json`` on a line or in a field of its own.

The line is ``{"left_out": [{"of": "facts.nt", "literals": 2}]}``: the last one, where anything was left out. A command
that prints one document has the same list in its field ``left_out``.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from newcomer.errors import on_one_line

if TYPE_CHECKING:
    from newcomer.data.dataset import PartReport
    from newcomer.data.tables import ReadReport

# What is said of so many, of one and of several.
REASONS = {
    "bad_lines": ("skipped {} line:", "skipped {} lines, the first:"),
    "literals": (
        "left out {} fact with an RDF literal; --literals keep takes it in",
        "left out {} facts with RDF literals; --literals keep takes them in",
    ),
    "blank_nodes": (
        "{} blank node has the name of one that the model was trained on, and counts as that; give it another label",
        "{} blank nodes have names of ones that the model was trained on, and count as those; give them other labels",
    ),
    "unknown_relations": (
        "skipped {} fact with a relation unknown to the model",
        "skipped {} facts with relations unknown to the model",
    ),
    "seen_facts": (
        "skipped {} fact between entities that the model was trained on; it is for the next training",
        "skipped {} facts between entities that the model was trained on; they are for the next training",
    ),
    "unasked": (
        "{} query is not asked: nobody with relations in common with the newcomer has this one; --entity asks anyway",
        "{} queries are not asked: nobody with relations in common with a newcomer has this one; --entity asks anyway",
    ),
    "known_facts": (
        "{} fact is known already, from the graph that the model was trained on",
        "{} facts are known already, from the graph that the model was trained on",
    ),
}

_told: dict[str, dict[str, int]] = {}  # in this run of the program, by what it was left out of


def forget() -> None:
    """Begin anew: nothing was left out yet."""
    _told.clear()


def tell(of: str, **counts: int) -> None:
    """Say how much of something was left out, by the names of `REASONS`; of nothing, nothing."""
    for why, count in counts.items():
        if count:
            _told.setdefault(of, {})[why] = _told.get(of, {}).get(why, 0) + count
            said = REASONS[why][count != 1].format(f"{count:,}")
            typer.echo(on_one_line(f"newcomer: {of}: {said}"), err=True)


def tell_unread(of: str, report: "PartReport | ReadReport") -> None:
    """Say what a reader left out of a file, with the first lines that it could not read."""
    tell(of, literals=report.literals, bad_lines=report.skipped)
    for line in report.bad_lines:
        typer.echo(on_one_line(f"  {line}"), err=True)


def listed() -> list[dict[str, Any]]:
    """All that was left out, for programs."""
    return [{"of": of, **counts} for of, counts in _told.items()]


def with_left_out(lines: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Lines of JSON, and behind them what was left out, if anything was."""
    yield from lines
    if _told:
        yield {"left_out": listed()}
