"""A trained model opened with newcomers' facts from files, a pipe or a store, and the entities to query, in batches."""

import gc
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Option

from newcomer.cli import options
from newcomer.cli.common import working
from newcomer.cli.left_out import tell, tell_unread
from newcomer.cli.options import takes, takes_read_options
from newcomer.cli.stored import AskedAt, recorded, scopes
from newcomer.errors import InputError, OptionError, check_name, shown

if TYPE_CHECKING:
    from newcomer.cli.answer_files import Found
    from newcomer.data import ReadOptions
    from newcomer.data.tables import NamedTriples, ReadReport
    from newcomer.predictor import FactError, NewcomerBatches, NewcomerStream, Predictor

PIPE = "-"
BLANK = "_:"  # how the names of blank nodes begin
PIPE_BYTES = 1 << 20  # taken at once, at the most
PIPED_FORMATS = ("tsv", "csv", "parquet", "nt", "nq", "ttl", "trig")
LABELLED_FALSE = "give triples that are true"
CHECK_NAME = "check the name, or give facts of it with --facts or --store"

Triple = tuple[str, str, str]
Batch = tuple["Predictor", Sequence[str]]  # a model with newcomers in it, and the entities to query it about


@dataclass(frozen=True, kw_only=True)
class NewcomerFacts:
    """Where newcomers' facts are read from, and how they are added to a model."""

    facts: Annotated[
        list[str] | None,
        Option(help="A file of newcomers' facts in any known format, or `-` for a pipe; may be repeated."),
    ] = None
    file_format: Annotated[
        str | None,
        Option("--format", help="Format of `-`: tsv, csv, parquet, nt, nq, ttl, trig [default: tsv, or csv]."),
    ] = None
    together: Annotated[
        bool,
        Option(
            "--together",
            help="Add all newcomers at once, so that each is a candidate for the others; needs more memory.",
        ),
    ] = False
    on_unknown_relation: Annotated[str, Option(help="A fact whose relation the model lacks: `error` or `skip`.")] = (
        "error"
    )
    on_seen_fact: Annotated[
        str,
        Option(
            help="A fact between two entities that the model was trained on, which its graph lacks: `error` or `skip`."
        ),
    ] = "error"
    device: options.QueryDevice = "cpu"
    store: Annotated[
        str | None, Option("--store", metavar="URL", help=f"{options.IN_STORE} Asked instead of --facts.")
    ] = None
    record: Annotated[
        bool, Option("--record", help="Record answers in the store; a fact that an answer there states is left out.")
    ] = False
    who: Annotated[
        str | None, Option("--who", help="With --record: who asks for it [default: the name of your login].")
    ] = None
    reading: "ReadOptions"
    _asked: list[AskedAt] = field(init=False, default_factory=list, repr=False)  # of the store, when it was opened

    @property
    def sources(self) -> tuple[str, ...]:
        """The files of facts, or `-`."""
        return tuple(self.facts or ())

    @property
    def called(self) -> str:
        """These files, or the store, as the user calls them."""
        return "the store" if self.store is not None else ", ".join(map(called, self.sources))

    def check(self, *others: str | None) -> None:
        """Refuse a format that does not exist or has no pipe to belong to, and standard input that is named twice."""
        self._check_store()
        sources = (*self.sources, *others)
        if sources.count(PIPE) > 1:
            raise OptionError(
                "standard input (`-`) is named more than once and can be read only once; name files for the others"
            )
        if self.file_format is None:
            return
        check_name("format", self.file_format, PIPED_FORMATS)
        if PIPE not in sources:
            raise OptionError(
                f"--format {self.file_format} is the format of standard input; the format of a file follows from its "
                "ending"
            )

    def _check_store(self) -> None:
        """Refuse options that have no meaning with a store, or without one."""
        if self.store is not None:
            if self.facts:
                hint = "state the facts with `newcomer add`, or leave out one of them"
                raise OptionError(f"--facts and --store are two places of newcomers; {hint}")
            if self.together:
                raise OptionError("--together is for the newcomers of --facts; leave it out with --store")
        elif self.record:
            raise OptionError("--record writes answers to a store; name it with --store")
        if self.who is not None and not self.record:
            raise OptionError("--who says who asks for answers to be recorded; pass --record, or leave it out")

    def recorded(self, answers: "Iterator[tuple[str, Found]]") -> "Iterator[tuple[str, Found]]":
        """Answers as they come, recorded in the end where that was asked for."""
        if not self.record or self.store is None:
            return answers
        return recorded(answers, self.store, self.who, self._asked)

    @contextmanager
    def open(self, run: Path, entities: Sequence[str] | None) -> Iterator[tuple["Predictor", Iterator[Batch]]]:
        """The model of a folder, and the model with each batch of newcomers in turn, within the block.

        Facts are read and checked first. Those of a pipe are answered while they arrive, if all newcomers are queried
        and the pipe's format has one triple on each line. A store is asked at one position of its log.
        """
        if self.store is not None:
            with loaded(run, self.device) as model, scopes(model, run, self.store) as found:
                self._asked.append(found.asked_at)
                asked = list(dict.fromkeys(entities)) if entities else None
                found.check(asked or ())
                yield model, found.each(asked)
            return
        pipe = Pipe(self.file_format) if self.sources == (PIPE,) else None
        if pipe is not None and pipe.can_stream and not entities and not self.together:
            with loaded(run, self.device) as model:
                yield model, self._streamed(model, pipe)
            return
        with self.added(run, pipe) as (model, newcomers):
            asked = list(dict.fromkeys(entities)) if entities else None
            named = set() if newcomers is None or asked is None else newcomers.named(asked)
            if not asked and (newcomers is None or not (newcomers or newcomers.known or newcomers.skipped)):
                hint = "give newcomers with --facts or --store, or names with --entity"
                raise OptionError(f"there is no entity to query; {hint}")
            for name in asked or ():
                if name not in named and name not in model:
                    problem = f"the entity {shown(name)} is in neither the model nor the facts"
                    raise OptionError(f"{problem}; {CHECK_NAME}")
            if newcomers is None:
                yield model, iter([(model, asked or ())])
            else:
                yield model, _batches(newcomers, asked, named, self.together)

    def each(self, run: Path, entities: Sequence[str] | None) -> Iterator[tuple["Predictor", str]]:
        """Every entity to query, with the model that has its batch of newcomers."""
        with self.open(run, entities) as (_, batches):
            for model, names in batches:
                for name in names:
                    yield model, name

    @contextmanager
    def added(self, run: Path, pipe: "Pipe | None" = None) -> Iterator[tuple["Predictor", "NewcomerBatches | None"]]:
        """The model of a folder and the newcomers of the facts, checked; facts are read first."""
        from newcomer.predictor import FactError, NewcomerBatches

        with ExitStack() as stack:
            triples = stack.enter_context(read_from(self.sources, self, pipe)) if self.sources else None
            model = stack.enter_context(loaded(run, self.device))
            if triples is None:
                yield model, None
                return
            tell(self.called, blank_nodes=len(known_blank_nodes(model, triples.named.entities.to_pylist())))
            try:
                found = NewcomerBatches(model, triples.named, self.on_unknown_relation, self.on_seen_fact)
            except FactError as error:
                raise triples.fault(error.place, str(error), advice(error)) from None
            _tell_unused(self.called, found)
            yield model, found

    def _streamed(self, model: "Predictor", pipe: "Pipe") -> Iterator[Batch]:
        """The newcomers of standard input, each batch as soon as it is complete."""
        from newcomer.data.tables import ReadReport
        from newcomer.predictor import FactError, NewcomerStream

        report, place = ReadReport(), called(PIPE)
        stream = NewcomerStream(model, self.on_unknown_relation, self.on_seen_fact)
        blank = set[str]()

        def watched() -> Iterator[tuple[int, Triple | None]]:
            for line, fact in _piped(pipe, self.reading, report):
                blank.update(known_blank_nodes(model, fact or ()))
                yield line, fact

        try:
            for batch in stream.batches(watched()):
                yield batch.model, batch.newcomers
        except FactError as error:
            raise InputError(place, str(error), error.place, advice(error)) from None
        tell_unread(place, report)
        tell(place, blank_nodes=len(blank))
        _tell_unused(place, stream)
        if stream.facts == 0:
            raise InputError(place, "holds no triple", hint="give at least one head, relation and tail")


_facts = takes_read_options(NewcomerFacts)
takes_recorded = takes("newcomers", _facts)  # for commands whose answers can be recorded
takes_newcomers = takes("newcomers", _facts, "record", "who")
takes_facts_of_one = takes("newcomers", _facts, "together", "record", "who")  # for commands about one entity
_unasked = "together", "store", "record", "who", "device"  # of commands that ask nothing
takes_arrivals = takes("newcomers", _facts, *_unasked)
takes_retracted = takes("newcomers", _facts, *_unasked, "on_unknown_relation", "on_seen_fact")


def _batches(
    newcomers: "NewcomerBatches", entities: Sequence[str] | None, named: set[str], together: bool
) -> Iterator[Batch]:
    """Newcomers come batch by batch; an entity that the model has already is queried beside all newcomers."""
    if together:
        batch = newcomers.together()
        yield batch.model, batch.newcomers if entities is None else entities
        return
    for batch in newcomers.batches(None if entities is None else named):
        yield batch.model, [name for name in batch.newcomers if entities is None or name in named]
    others = [name for name in entities or () if name not in named]
    if others:
        yield newcomers.together().model, others


def known_blank_nodes(model: "Predictor", names: Iterable[str]) -> set[str]:
    """Blank nodes of RDF that have the name of one in the model, though a label says nothing outside of its file."""
    return {name for name in names if name.startswith(BLANK) and name in model}


def _piped(pipe: "Pipe", reading: "ReadOptions", report: "ReadReport") -> Iterator[tuple[int, Triple | None]]:
    """The triples of standard input, each with its line."""
    from newcomer.data.triples import numbered_rows

    try:
        for line, row in numbered_rows(pipe, pipe.path, reading, report):
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
        from newcomer.data.triples import has_lines
        from newcomer.files import compression_in

        return has_lines(self.path.suffix) and compression_in(self._start) is None


@contextmanager
def loaded(run: Path, device: str) -> Iterator["Predictor"]:
    """The model of a folder; within the block torch works on one thread.

    A query is little work: more threads would mostly wait for each other, and for seconds where other programs want
    the cores. Nor do answers then depend on the machine.
    """
    from newcomer.models.device import limited_threads
    from newcomer.predictor import load

    with limited_threads(1):
        with working("loading the model"):
            model = load(run, device)
        gc.freeze()  # what belongs to the model stays: it need not be searched for garbage again and again
        try:
            yield model
        finally:
            gc.unfreeze()


def advice(error: "FactError") -> str:
    """What can be done about a fact that a model cannot use."""
    option = f"--{error.skipped_by.replace('_', '-')}"
    return f"mend it, or leave such facts out with {option} skip" if error.skipped_by else ""


def _tell_unused(place: str, found: "NewcomerBatches | NewcomerStream") -> None:
    """Say which facts tell nothing of newcomers."""
    counts = {"unknown_relations": found.unknown_relations, "seen_facts": found.seen_facts, "known_facts": found.known}
    tell(place, **counts)


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
        from newcomer.data.triples import at_fault

        for source, path, count in self.files:
            if place < count:
                return _as_called(source, at_fault(path, self.reading, place, problem, hint))
            place -= count
        raise IndexError(place)

    def check_relation(self, model: "Predictor", place: int, relation: str) -> None:
        """Refuse one of the triples whose relation the model lacks."""
        from newcomer.predictor import check_relations

        try:
            check_relations(model, [relation])
        except OptionError as error:
            raise self.fault(place, str(error)) from None


@contextmanager
def read_from(sources: Sequence[str], newcomers: NewcomerFacts, pipe: Pipe | None = None) -> Iterator[ReadTriples]:
    """True triples by name, of all files one after the other; `-` is everything that standard input gives."""
    from newcomer.data.tables import joined
    from newcomer.data.triples import read_triples

    with tempfile.TemporaryDirectory() as folder:
        files: list[tuple[str, Path, int]] = []
        parts: list[NamedTriples] = []
        for source in sources:
            path = Path(source)
            if source == PIPE:
                pipe = pipe or Pipe(newcomers.file_format)
                path = Path(folder) / pipe.path
                with path.open("wb") as file:  # some formats are read twice, or from their end
                    shutil.copyfileobj(pipe, file)
            try:
                parts.append(read_triples(path, newcomers.reading, sum(part.report.anonymous for part in parts)))
            except InputError as error:
                raise _as_called(source, error) from None
            tell_unread(called(source), parts[-1].report)
            files.append((source, path, len(parts[-1])))
        triples = ReadTriples(tuple(files), newcomers.reading, joined(parts))
        labels = triples.named.triples.labels
        if labels is not None and not labels.all():
            place = int(labels.argmin())
            raise triples.fault(place, f"{shown(triples.rows()[place])} is labelled false", LABELLED_FALSE)
        yield triples


def _as_called(source: str, error: "InputError") -> "InputError":
    """The error with the place as the user calls it."""
    return InputError(called(source), error.problem, error.line, error.hint)


def called(source: str) -> str:
    """A file's name, or what `-` stands for."""
    return "standard input" if source == PIPE else source
