"""Whom a trained model is asked about: newcomers of a file or a pipe, party by party, and others by name."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newcomer.cli.common import report_skipped, working

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.tables import NamedTriples
    from newcomer.predictor import Predictor, Visitors

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")]
FactsOption = Annotated[
    str | None, typer.Option("--facts", help="A file of newcomers' facts in any format we read, or `-` for a pipe.")
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="What `-` gives: tsv, csv, parquet, nt, nq, ttl, trig [default: tsv, or csv]."),
]
EntityOption = Annotated[
    list[str] | None,
    typer.Option("--entity", help="Whom to ask about; may be repeated [default: all newcomers of --facts]."),
]
TogetherOption = Annotated[
    bool,
    typer.Option("--together", help="Add all newcomers at once: each is a candidate for all; memory grows with them."),
]
UnknownOption = Annotated[
    str, typer.Option("--on-unknown-relation", help="A fact whose relation the model lacks: `error` or `skip`.")
]

PIPE = "-"
PIPED_FORMATS = ("tsv", "csv", "parquet", "nt", "nq", "ttl", "trig")


class Asked:
    """A loaded model, the newcomers of some facts, and who of all is asked about."""

    def __init__(
        self,
        model: "Predictor",
        visitors: "Visitors | None",
        entities: Sequence[str] | None,
        together: bool,
    ) -> None:
        self.model, self._visitors = model, visitors
        self._entities = None if entities is None else list(dict.fromkeys(entities))
        self._arrived = set() if visitors is None or entities is None else visitors.named(entities)
        self._together = together
        self._check()

    def _check(self) -> None:
        from newcomer.errors import OptionError, shown

        if len(self) == 0:
            raise OptionError("there is nobody to ask about; give newcomers with --facts, or names with --entity")
        for name in self._entities or ():
            if name not in self._arrived and name not in self.model:
                hint = "check the name, or give facts of it with --facts"
                raise OptionError(f"the entity {shown(name)} is in neither the model nor the facts; {hint}")

    def __len__(self) -> int:
        if self._entities is not None:
            return len(self._entities)
        return 0 if self._visitors is None else len(self._visitors)

    def turns(self) -> Iterator[tuple["Predictor", Sequence[str]]]:
        """The model with those who must be there, and whom to ask about then.

        Newcomers come party by party. Whoever is in the model already is asked about beside all newcomers of the facts.
        """
        entities = self._entities
        if self._visitors is None:
            yield self.model, entities or ()
            return
        if self._together:
            visit = self._visitors.together()
            yield visit.model, visit.newcomers if entities is None else entities
            return
        for visit in self._visitors.visits(None if entities is None else self._arrived):
            yield visit.model, [name for name in visit.newcomers if entities is None or name in self._arrived]
        others = [name for name in entities or () if name not in self._arrived]
        if others:
            yield self._visitors.together().model, others


def asked_of(
    run: Path,
    facts: str | None,
    file_format: str | None,
    entities: Sequence[str] | None,
    together: bool,
    on_unknown_relation: str,
    reading: "ReadOptions",
) -> Asked:
    """The model of a folder, with the facts read and checked."""
    from newcomer.predictor import load

    named = None if facts is None else read_named(facts, file_format, reading)
    with working("loading the model"):
        model = load(run)
    visitors = None if facts is None or named is None else visitors_of(model, named, facts, on_unknown_relation)
    return Asked(model, visitors, entities or None, together)


def visitors_of(model: "Predictor", named: "NamedTriples", facts: str, on_unknown_relation: str) -> "Visitors":
    """The newcomers of facts that were read, checked; ``facts`` is where they come from."""
    from newcomer.errors import InputError, OptionError
    from newcomer.predictor import Visitors
    from newcomer.predictor.book import ON_UNKNOWN_RELATION

    try:
        visitors = Visitors(model, named, on_unknown_relation)
    except OptionError as error:
        if on_unknown_relation not in ON_UNKNOWN_RELATION:  # not the file's fault
            raise
        raise InputError(called(facts), str(error)) from None
    if visitors.skipped:
        problem = f"skipped {visitors.skipped:,} facts with relations unknown to the model"
        typer.echo(f"newcomer: {called(facts)}: {problem}", err=True)
    return visitors


def read_named(source: str, file_format: str | None, reading: "ReadOptions") -> "NamedTriples":
    """True triples by name, of a file, or of standard input (`-`) in a format; lines left out are reported."""
    from newcomer.data.triples import read_triples
    from newcomer.errors import InputError

    if source != PIPE:
        named = read_triples(Path(source), reading)
    else:
        with tempfile.TemporaryDirectory() as folder:
            piped = Path(folder) / f"piped.{file_format or PIPED_FORMATS[0]}"
            with piped.open("wb") as file:  # some formats are read twice, or from their end
                shutil.copyfileobj(sys.stdin.buffer, file)
            try:
                named = read_triples(piped, reading)
            except InputError as error:
                raise InputError(called(source), error.problem, error.line, error.hint) from None
    report_skipped(called(source), named.report)
    if named.triples.labels is not None and not named.triples.labels.all():
        raise InputError(called(source), "holds triples labelled false", hint="give those that are true")
    return named


def called(source: str) -> str:
    """A file's name, or what `-` stands for."""
    return "standard input" if source == PIPE else source


def check_format(file_format: str | None, *sources: str | None) -> None:
    """Whether a format is one that a pipe can have, and one of the sources is a pipe."""
    from newcomer.errors import OptionError, unknown_name

    if file_format is None:
        return
    if file_format not in PIPED_FORMATS:
        raise unknown_name("format", file_format, PIPED_FORMATS)
    if PIPE not in sources:
        raise OptionError(
            f"--format {file_format} says what standard input gives; a file's ending says it for the file"
        )
