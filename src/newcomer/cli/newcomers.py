"""A trained model opened with newcomers' facts from files or a pipe, and the entities to query, in batches."""

import gc
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import typer

from newcomer.cli.common import report_skipped, working
from newcomer.cli.options import FactsOption, FormatOption, TogetherOption, UnknownOption, takes, takes_read_options

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.tables import NamedTriples, ReadReport
    from newcomer.errors import InputError
    from newcomer.predictor import FactError, NewcomerBatches, Predictor

PIPE = "-"
PIPE_BYTES = 1 << 20  # taken at once, at the most
PIPED_FORMATS = ("tsv", "csv", "parquet", "nt", "nq", "ttl", "trig")
LABELLED_FALSE = "give triples that are true"

Triple = tuple[str, str, str]
Batch = tuple["Predictor", Sequence[str]]  # a model with newcomers in it, and the entities to query it about


class Queried(Protocol):
    """A loaded model, and batches of entities to query it about."""

    model: "Predictor"

    def batches(self) -> Iterator[Batch]:
        """The model with each batch of newcomers in turn, and the entities to query it about."""


@dataclass(frozen=True)
class NewcomerFacts:
    """Where newcomers' facts are read from, and how they are added to a model."""

    sources: tuple[str, ...]
    file_format: str | None
    together: bool
    on_unknown_relation: str
    reading: "ReadOptions"

    def check(self, *others: str | None) -> None:
        """Refuse a format that does not exist or has no pipe to belong to, and standard input that is named twice."""
        from newcomer.errors import OptionError, unknown_name

        sources = (*self.sources, *others)
        if sources.count(PIPE) > 1:
            raise OptionError(
                "standard input (`-`) is named more than once and can be read only once; name files for the others"
            )
        if self.file_format is None:
            return
        if self.file_format not in PIPED_FORMATS:
            raise unknown_name("format", self.file_format, PIPED_FORMATS)
        if PIPE not in sources:
            raise OptionError(
                f"--format {self.file_format} is the format of standard input; the format of a file follows from its "
                "ending"
            )

    @contextmanager
    def open(self, run: Path, entities: Sequence[str] | None) -> Iterator[Queried]:
        """The model of a folder and the entities to query it about, within the block.

        Facts are read and checked first. Those of a pipe are answered while they arrive, if all newcomers are queried
        and the pipe's format has one triple on each line.
        """
        if not self.sources:
            with loaded(run) as model:
                yield KnownNewcomers(model, None, entities or None, self.together)
            return
        pipe = Pipe(self.file_format) if self.sources == (PIPE,) else None
        if pipe is not None and pipe.can_stream and not entities and not self.together:
            with loaded(run) as model:
                yield StreamedNewcomers(model, pipe, self.on_unknown_relation, self.reading)
            return
        with self.read(pipe) as triples, loaded(run) as model:
            yield KnownNewcomers(model, self.batches(model, triples), entities or None, self.together)

    @contextmanager
    def read(self, pipe: "Pipe | None" = None) -> Iterator["ReadTriples"]:
        """The triples of all sources."""
        with read_from(self.sources, self.file_format, self.reading, pipe) as triples:
            yield triples

    def batches(self, model: "Predictor", triples: "ReadTriples") -> "NewcomerBatches":
        """The newcomers of facts that were read, checked."""
        from newcomer.predictor import FactError, NewcomerBatches

        try:
            found = NewcomerBatches(model, triples.named, self.on_unknown_relation)
        except FactError as error:
            raise triples.fault(error.place, str(error), _advice(error)) from None
        _report_unknown(", ".join(map(called, self.sources)), found.skipped)
        return found


@takes_read_options
def _newcomer_facts(
    *,
    facts: FactsOption = None,
    file_format: FormatOption = None,
    together: TogetherOption = False,
    on_unknown_relation: UnknownOption = "error",
    reading: "ReadOptions",
) -> NewcomerFacts:
    return NewcomerFacts(tuple(facts or ()), file_format, together, on_unknown_relation, reading)


@takes_read_options
def _facts_of_one(
    *,
    facts: FactsOption = None,
    file_format: FormatOption = None,
    on_unknown_relation: UnknownOption = "error",
    reading: "ReadOptions",
) -> NewcomerFacts:
    return NewcomerFacts(tuple(facts or ()), file_format, False, on_unknown_relation, reading)


takes_newcomers = takes("newcomers", _newcomer_facts)
takes_facts_of_one = takes("newcomers", _facts_of_one)  # for commands about one entity


class KnownNewcomers:
    """A loaded model, the newcomers of facts that were read, and which entities are queried."""

    def __init__(
        self, model: "Predictor", newcomers: "NewcomerBatches | None", entities: Sequence[str] | None, together: bool
    ) -> None:
        self.model, self._newcomers, self._together = model, newcomers, together
        self._entities = None if entities is None else list(dict.fromkeys(entities))
        self._named = set() if newcomers is None or entities is None else newcomers.named(entities)
        self._check()

    def _check(self) -> None:
        from newcomer.errors import OptionError, shown

        if not self._entities and not self._newcomers:
            raise OptionError("there is no entity to query; give newcomers with --facts, or names with --entity")
        for name in self._entities or ():
            if name not in self._named and name not in self.model:
                hint = "check the name, or give facts of it with --facts"
                raise OptionError(f"the entity {shown(name)} is in neither the model nor the facts; {hint}")

    def batches(self) -> Iterator[Batch]:
        """Newcomers come batch by batch; an entity that the model has already is queried beside all newcomers."""
        entities = self._entities
        if self._newcomers is None:
            yield self.model, entities or ()
            return
        if self._together:
            batch = self._newcomers.together()
            yield batch.model, batch.newcomers if entities is None else entities
            return
        for batch in self._newcomers.batches(None if entities is None else self._named):
            yield batch.model, [name for name in batch.newcomers if entities is None or name in self._named]
        others = [name for name in entities or () if name not in self._named]
        if others:
            yield self._newcomers.together().model, others


class StreamedNewcomers:
    """A loaded model, and newcomers out of standard input, queried as soon as a batch is complete."""

    def __init__(self, model: "Predictor", pipe: "Pipe", on_unknown_relation: str, reading: "ReadOptions") -> None:
        self.model, self._pipe, self._unknown, self._reading = model, pipe, on_unknown_relation, reading

    def batches(self) -> Iterator[Batch]:
        """The model with each batch, and all newcomers of the batch."""
        from newcomer.data.tables import ReadReport
        from newcomer.errors import InputError
        from newcomer.predictor import FactError, NewcomerStream

        report, stream = ReadReport(), NewcomerStream(self.model, self._unknown)
        try:
            for batch in stream.batches(self._facts(report)):
                yield batch.model, batch.newcomers
        except FactError as error:
            raise InputError(called(PIPE), str(error), error.place, _advice(error)) from None
        report_skipped(called(PIPE), report)
        _report_unknown(called(PIPE), stream.skipped)
        if stream.facts == 0:
            raise InputError(called(PIPE), "holds no triple", hint="give at least one head, relation and tail")

    def _facts(self, report: "ReadReport") -> Iterator[tuple[int, Triple | None]]:
        from newcomer.data.numbered import numbered_rows
        from newcomer.errors import InputError, shown

        try:
            for line, row in numbered_rows(self._pipe, self._pipe.path, self._reading, report):
                if row is not None and not row[3]:
                    raise InputError(PIPE, f"{shown(row[:3])} is labelled false", line, LABELLED_FALSE)
                yield line, None if row is None else row[:3]
        except InputError as error:
            raise _as_called(PIPE, error) from None


class Pipe:
    """Standard input in a format: reading gives what has arrived, however little."""

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
def loaded(run: Path) -> Iterator["Predictor"]:
    """The model of a folder; within the block torch works on one thread.

    A query is little work: more threads would mostly wait for each other, and for seconds where other programs want
    the cores. Nor do answers then depend on the machine.
    """
    from newcomer.models.threads import limited_threads
    from newcomer.predictor import load

    with limited_threads(1):
        with working("loading the model"):
            model = load(run)
        gc.freeze()  # what belongs to the model stays: it need not be searched for garbage again and again
        try:
            yield model
        finally:
            gc.unfreeze()


def _advice(error: "FactError") -> str:
    return "mend it, or leave such facts out with --on-unknown-relation skip" if error.skippable else ""


def _report_unknown(place: str, skipped: int) -> None:
    if skipped:
        typer.echo(f"newcomer: {place}: skipped {skipped:,} facts with relations unknown to the model", err=True)


@dataclass(frozen=True, eq=False)
class ReadTriples:
    """The triples of files or a pipe, in their order; the files are still there to find the line of an error."""

    files: tuple[tuple[str, Path, int], ...]  # the name that the user gave, the file, and how many triples it holds
    reading: "ReadOptions"
    named: "NamedTriples"

    def rows(self) -> list[Triple]:
        """The triples by name."""
        names, relations = self.named.entities.to_pylist(), self.named.relations.to_pylist()
        rows: list[list[int]] = self.named.triples.rows.tolist()
        return [(names[head], relations[relation], names[tail]) for head, relation, tail in rows]

    def fault(self, place: int, problem: str, hint: str = "") -> "InputError":
        """The error for one of the triples, with its file, and its line or row where the format has such."""
        from newcomer.data.numbered import at_fault

        for source, path, count in self.files:
            if place < count:
                return _as_called(source, at_fault(path, self.reading, place, problem, hint))
            place -= count
        raise IndexError(place)


@contextmanager
def read_from(
    sources: Sequence[str], file_format: str | None, reading: "ReadOptions", pipe: Pipe | None = None
) -> Iterator[ReadTriples]:
    """True triples by name, of all files one after the other; `-` is everything that standard input gives."""
    from newcomer.data.tables import joined
    from newcomer.errors import shown

    with tempfile.TemporaryDirectory() as folder:
        files: list[tuple[str, Path, int]] = []
        parts: list[NamedTriples] = []
        for source in sources:
            path = Path(source)
            if source == PIPE:
                pipe = pipe or Pipe(file_format)
                path = Path(folder) / pipe.path
                with path.open("wb") as file:  # some formats are read twice, or from their end
                    shutil.copyfileobj(pipe, file)
            parts.append(_read(source, path, reading, sum(part.report.anonymous for part in parts)))
            files.append((source, path, len(parts[-1])))
        triples = ReadTriples(tuple(files), reading, joined(parts))
        labels = triples.named.triples.labels
        if labels is not None and not labels.all():
            place = int(labels.argmin())
            raise triples.fault(place, f"{shown(triples.rows()[place])} is labelled false", LABELLED_FALSE)
        yield triples


def _read(source: str, path: Path, reading: "ReadOptions", anonymous: int) -> "NamedTriples":
    """The triples of a file; lines left out are reported."""
    from newcomer.data.triples import read_triples
    from newcomer.errors import InputError

    try:
        named = read_triples(path, reading, anonymous)
    except InputError as error:
        raise _as_called(source, error) from None
    report_skipped(called(source), named.report)
    return named


def _as_called(source: str, error: "InputError") -> "InputError":
    """The error with the place as the user calls it."""
    from newcomer.errors import InputError

    return InputError(called(source), error.problem, error.line, error.hint)


def called(source: str) -> str:
    """A file's name, or what `-` stands for."""
    return "standard input" if source == PIPE else source
