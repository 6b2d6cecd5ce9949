"""Whom a trained model is asked about: newcomers of a file or a pipe, party by party, and others by name."""

import gc
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, cast

import typer

from newcomer.cli.common import report_skipped, working

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.tables import NamedTriples, ReadReport
    from newcomer.errors import InputError
    from newcomer.predictor import FactError, NewcomerBatches, Predictor

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
    typer.Option("--together", help="Add all newcomers at once: each is a candidate for all, and heard; memory grows."),
]
UnknownOption = Annotated[
    str, typer.Option("--on-unknown-relation", help="A fact whose relation the model lacks: `error` or `skip`.")
]

PIPE = "-"
PIPE_BYTES = 1 << 20  # taken at once, at the most
TRUE_ONES = "give those that are true"
PIPED_FORMATS = ("tsv", "csv", "parquet", "nt", "nq", "ttl", "trig")


Turn = tuple["Predictor", Sequence[str]]  # a model, and whom to ask about then


class Asked(Protocol):
    """A loaded model, and who is asked about."""

    model: "Predictor"

    def turns(self) -> Iterator[Turn]:
        """The model with those who must be there, and whom to ask about then."""


class Announced:
    """A loaded model, the newcomers of some facts, which are all known, and who of all is asked about."""

    def __init__(
        self,
        model: "Predictor",
        visitors: "NewcomerBatches | None",
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

        if not self._entities and not self._visitors:
            raise OptionError("there is nobody to ask about; give newcomers with --facts, or names with --entity")
        for name in self._entities or ():
            if name not in self._arrived and name not in self.model:
                hint = "check the name, or give facts of it with --facts"
                raise OptionError(f"the entity {shown(name)} is in neither the model nor the facts; {hint}")

    def turns(self) -> Iterator[Turn]:
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


class Streamed:
    """A loaded model, and newcomers that standard input tells of, asked about as soon as a party is complete."""

    def __init__(self, model: "Predictor", pipe: "Pipe", on_unknown_relation: str, reading: "ReadOptions") -> None:
        self.model, self._pipe, self._unknown, self._reading = model, pipe, on_unknown_relation, reading

    def turns(self) -> Iterator[Turn]:
        """The model with each party, and all of the party."""
        from newcomer.data.tables import ReadReport
        from newcomer.errors import InputError
        from newcomer.predictor import FactError, NewcomerStream

        report, passing = ReadReport(), NewcomerStream(self.model, self._unknown)
        try:
            for visit in passing.visits(self._facts(report)):
                yield visit.model, visit.newcomers
        except FactError as error:
            raise InputError(called(PIPE), str(error), error.place, _way_out(error)) from None
        report_skipped(called(PIPE), report)
        _report_unknown(called(PIPE), passing.skipped)
        if passing.facts == 0:
            raise InputError(called(PIPE), "holds no triple", hint="give at least one head, relation and tail")

    def _facts(self, report: "ReadReport") -> Iterator[tuple[int, tuple[str, str, str] | None]]:
        from newcomer.data.numbered import numbered_rows
        from newcomer.errors import InputError, shown

        try:
            for line, row in numbered_rows(self._pipe, self._pipe.path, self._reading, report):
                if row is not None and not row[3]:
                    raise InputError(PIPE, f"{shown(row[:3])} is labelled false", line, TRUE_ONES)
                yield line, None if row is None else row[:3]
        except InputError as error:
            raise InputError(called(PIPE), error.problem, error.line, error.hint) from None


class Pipe:
    """Standard input in a format: reading gives what is there by now, however little."""

    def __init__(self, file_format: str | None) -> None:
        from newcomer.files import MAGIC_BYTES

        self.path = Path(f"piped.{file_format or PIPED_FORMATS[0]}")
        self._stream, self._start = cast(BufferedIOBase, sys.stdin.buffer), b""
        while len(self._start) < MAGIC_BYTES and (more := self._stream.read1(PIPE_BYTES)):
            self._start += more

    def read(self, _: int = -1) -> bytes:
        """Some bytes; none when the pipe has ended."""
        start, self._start = self._start, b""
        return start or self._stream.read1(PIPE_BYTES)

    @property
    def can_stream(self) -> bool:
        """Whether triples come out of it line by line."""
        from newcomer.data.numbered import has_lines
        from newcomer.files import compression_in

        return has_lines(self.path.suffix) and compression_in(self._start) is None


@contextmanager
def asked_of(
    run: Path,
    facts: str | None,
    file_format: str | None,
    entities: Sequence[str] | None,
    together: bool,
    on_unknown_relation: str,
    reading: "ReadOptions",
) -> Iterator[Asked]:
    """The model of a folder and who is asked about, within the block.

    Facts are read and checked first. Those of a pipe are so one after the other while others are answered about, if all
    newcomers are asked about and the pipe's format has lines.
    """
    if facts is None:
        with loaded(run) as model:
            yield Announced(model, None, entities or None, together)
        return
    pipe = Pipe(file_format) if facts == PIPE else None
    if pipe is not None and pipe.can_stream and not entities and not together:
        with loaded(run) as model:
            yield Streamed(model, pipe, on_unknown_relation, reading)
        return
    with read_from(facts, file_format, reading, pipe) as stated, loaded(run) as model:
        visitors = visitors_of(model, stated, on_unknown_relation)
        yield Announced(model, visitors, entities or None, together)


@contextmanager
def loaded(run: Path) -> Iterator["Predictor"]:
    """The model of a folder; within the block torch works on one thread.

    A question is little work: more threads would mostly wait for each other, and for seconds where others want the
    cores. Nor do answers then depend on the machine.
    """
    from newcomer.evaluation.measure import limited_threads
    from newcomer.predictor import load

    with limited_threads(1):
        with working("loading the model"):
            model = load(run)
        gc.freeze()  # what belongs to the model stays: it need not be looked through for garbage again and again
        try:
            yield model
        finally:
            gc.unfreeze()


def visitors_of(model: "Predictor", stated: "Stated", on_unknown_relation: str) -> "NewcomerBatches":
    """The newcomers of facts that were read, checked."""
    from newcomer.predictor import FactError, NewcomerBatches

    try:
        visitors = NewcomerBatches(model, stated.named, on_unknown_relation)
    except FactError as error:
        raise stated.fault(error.place, str(error), _way_out(error)) from None
    _report_unknown(called(stated.source), visitors.skipped)
    return visitors


def _way_out(error: "FactError") -> str:
    return "mend it, or leave such facts out with --on-unknown-relation skip" if error.skippable else ""


def _report_unknown(place: str, skipped: int) -> None:
    if skipped:
        typer.echo(f"newcomer: {place}: skipped {skipped:,} facts with relations unknown to the model", err=True)


@dataclass(frozen=True, eq=False)
class Stated:
    """The triples of a file or a pipe, which is there to be looked at again."""

    source: str
    path: Path
    reading: "ReadOptions"
    named: "NamedTriples"

    def rows(self) -> list[tuple[str, str, str]]:
        """The triples by name, in their order."""
        names, relations = self.named.entities.to_pylist(), self.named.relations.to_pylist()
        rows: list[list[int]] = self.named.triples.rows.tolist()
        return [(names[head], relations[relation], names[tail]) for head, relation, tail in rows]

    def fault(self, place: int, problem: str, hint: str = "") -> "InputError":
        """The error for one of the triples, with its line or row where the format has such."""
        from newcomer.data.numbered import at_fault

        return _as_called(self.source, at_fault(self.path, self.reading, place, problem, hint))


@contextmanager
def read_from(
    source: str, file_format: str | None, reading: "ReadOptions", pipe: Pipe | None = None
) -> Iterator[Stated]:
    """True triples by name, of a file, or of all that standard input (`-`) gives in a format."""
    if source != PIPE:
        yield _read(source, Path(source), reading)
        return
    pipe = pipe or Pipe(file_format)
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / pipe.path).open("wb") as file:  # some formats are read twice, or from their end
            shutil.copyfileobj(pipe, file)
        yield _read(source, Path(folder) / pipe.path, reading)


def _read(source: str, path: Path, reading: "ReadOptions") -> Stated:
    """The triples of a file; lines left out are reported."""
    from newcomer.data.triples import read_triples
    from newcomer.errors import InputError, shown

    try:
        stated = Stated(source, path, reading, read_triples(path, reading))
    except InputError as error:
        raise _as_called(source, error) from None
    report_skipped(called(source), stated.named.report)
    labels = stated.named.triples.labels
    if labels is not None and not labels.all():
        place = int(labels.argmin())
        raise stated.fault(place, f"{shown(stated.rows()[place])} is labelled false", TRUE_ONES)
    return stated


def _as_called(source: str, error: "InputError") -> "InputError":
    """The error with the place as the user calls it."""
    from newcomer.errors import InputError

    return InputError(called(source), error.problem, error.line, error.hint)


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
