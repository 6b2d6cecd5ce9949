"""A trained model queried about newcomers.

``newcomer predict``, ``suggest``, ``explain``, ``embed``, ``similar`` and ``draw``.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.answer_files import (
    ANSWERS,
    SIMILAR,
    SUGGESTIONS,
    VECTOR_ENDINGS,
    Found,
    check_answer_file,
    check_out,
    fact_of,
    give_answers,
    in_words,
    line,
    write_rows,
    write_vectors,
)
from newcomer.cli.common import check_free, print_lines, print_table
from newcomer.cli.left_out import tell
from newcomer.cli.newcomers import (
    NewcomerFacts,
    ReadTriples,
    read_from,
    takes_facts_of_one,
    takes_newcomers,
    takes_recorded,
)
from newcomer.cli.options import takes
from newcomer.errors import OptionError, shown

if TYPE_CHECKING:
    from newcomer.predictor import Answer, Predictor, Suggestion

ASKED = "?"
LISTED = {"rules": 5, "propagation": 3, "similarity": 2}  # what is printed of a feature's evidence
MOST_SIMILAR = 10  # known answers that a line of JSON names


@dataclass(frozen=True)
class Query:
    """(entity, relation, ?), or (?, relation, entity); ``place`` among those of a file."""

    entity: str
    relation: str
    heads: bool
    place: int = 0

    def __str__(self) -> str:
        return in_words((ASKED, self.relation, self.entity) if self.heads else (self.entity, self.relation, ASKED))

    def found(self, model: "Predictor", top: int, kept: "Kept") -> Found:
        """The best answers, each with the columns that name its query."""
        if self.heads:
            answers = model.heads(self.relation, self.entity, top, **vars(kept))
        else:
            answers = model.tails(self.entity, self.relation, top, **vars(kept))
        return [(_about(self.entity, self.relation, self.heads, rank), one) for rank, one in enumerate(answers, 1)]


@dataclass(frozen=True)
class AnyQuery:
    """The facts of an entity that are most likely missing, along any relation and at either end."""

    entity: str

    def __str__(self) -> str:
        return f"likely missing of {self.entity}"

    def found(self, model: "Predictor", top: int, kept: "Kept") -> Found:
        """The likeliest facts as answers, each to the query that it completes."""
        facts = enumerate(model.suggest(self.entity, top, **vars(kept)), 1)
        return [(_about(self.entity, one.fact[1], one.fact[0] != self.entity, rank), one) for rank, one in facts]


def _about(entity: str, relation: str, heads: bool, rank: int) -> dict[str, Any]:
    return {"entity": entity, "relation": relation, "asked": "head" if heads else "tail", "rank": rank}


@dataclass(frozen=True)
class Kept:
    """Which answers are kept."""

    min_probability: Annotated[float, Option(help="Leave out answers that are less probable, from 0 to 1.")] = 0.0
    types: Annotated[
        list[str] | None,
        Option(help="Only answers of a class: those with a fact whose tail this entity is; may be repeated."),
    ] = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_probability <= 1:
            raise OptionError(f"--min-probability is {self.min_probability:g}, but must be a number from 0 to 1")


@dataclass(frozen=True)
class Wanted:
    """The queries to answer, as the options state them."""

    relations: Annotated[
        list[str] | None,
        Option("--relation", help="The relation to complete; may be repeated [default: the likeliest of all]."),
    ] = None
    entities: options.Entity = None
    heads: Annotated[
        bool,
        Option(
            "--heads",
            help="Query heads, (?, relation, entity) [default: tails; for newcomers that can only be tails, heads].",
        ),
    ] = False
    file: Annotated[
        str | None,
        Option("--questions", help="A file of triples with `?` for the missing end, or `-`; see --relation."),
    ] = None

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if self.file is None:
            if self.heads and not self.relations:
                raise OptionError("--heads queries the heads of a relation; name the relation with --relation")
        elif self.relations or self.entities or self.heads:
            raise OptionError("--questions lists all queries; leave out --relation, --entity and --heads")

    def of(self, name: str, model: "Predictor") -> "Sequence[Query | AnyQuery]":
        """The queries about an entity, where no file lists them.

        One that was not named is asked about where it may be the head of the relation, else where it may be the tail.
        """
        if not self.relations:
            return [AnyQuery(name)]
        if self.entities:
            return [Query(name, relation, self.heads) for relation in self.relations]
        found = []
        for relation in self.relations:
            as_head, as_tail = model.roles(name, relation)
            if as_tail if self.heads else as_head or as_tail:
                found.append(Query(name, relation, self.heads or not as_head))
        return found


takes_queries = takes("wanted", Wanted)
takes_kept = takes("kept", Kept)


@takes_recorded
@takes_kept
@takes_queries
def predict(
    run: options.RunArgument,
    top: options.Top = 10,
    as_json: options.Lines = False,
    out: options.Out = None,
    force: options.Force = False,
    *,
    wanted: Wanted,
    kept: Kept,
    newcomers: NewcomerFacts,
) -> None:
    """The likely answers to (entity, relation, ?), each with its best reason; without a relation, to any query."""
    newcomers.check(wanted.file)
    check_answer_file(out, as_json, force, "answers")
    queries = _queries(wanted, run, newcomers)
    answers = ((str(query), query.found(model, top, kept)) for model, query in queries)
    give_answers(newcomers.recorded(answers), out, as_json, ANSWERS)


@takes_recorded
@takes_kept
def suggest(
    run: options.RunArgument,
    entity: options.Entity = None,
    relations: Annotated[
        list[str] | None,
        Option("--relations", help="Only facts along this relation, in both directions; may be repeated."),
    ] = None,
    top: options.Top = 20,
    as_json: options.Lines = False,
    out: options.Out = None,
    force: options.Force = False,
    *,
    kept: Kept,
    newcomers: NewcomerFacts,
) -> None:
    """The facts that are most likely missing, over all relations, each with its best reason."""
    newcomers.check()
    check_answer_file(out, as_json, force, "answers")

    def about(model: "Predictor", name: str) -> tuple[str, Found]:
        found = enumerate(model.suggest(name, top, relations, **vars(kept)), 1)
        return str(AnyQuery(name)), [({"entity": name, "rank": rank}, one) for rank, one in found]

    answers = (about(model, name) for model, name in newcomers.each(run, entity))
    give_answers(newcomers.recorded(answers), out, as_json, SUGGESTIONS)


@takes_recorded
@takes_kept
@takes_queries
def explain(
    run: options.RunArgument,
    top: options.Top = 3,
    as_json: options.Lines = False,
    *,
    wanted: Wanted,
    kept: Kept,
    newcomers: NewcomerFacts,
) -> None:
    """The best answers, what speaks for and against each, most first, and the fact that decides."""
    newcomers.check(wanted.file)
    queries = _queries(wanted, run, newcomers)
    answers = newcomers.recorded((str(query), query.found(model, top, kept)) for model, query in queries)
    if as_json:
        print_lines(_in_full(about, answer) for _, found in answers for about, answer in found)
        return
    for asked, found in answers:
        if not found:
            typer.echo(f"{asked}: none")
        for about, answer in found:
            typer.echo(f"{in_words(fact_of(about, answer))}, probability {answer.probability:.2f}")
            for sentence in _sentences(answer, top):
                typer.echo(f"  {sentence}")


def _queries(wanted: Wanted, run: Path, newcomers: NewcomerFacts) -> "Iterator[tuple[Predictor, Query | AnyQuery]]":
    """Every query with the model that has the newcomers it is about; an unknown relation is found before the first."""
    from newcomer.predictor import check_relations

    wanted.check()
    with ExitStack() as stack:
        file = None if wanted.file is None else stack.enter_context(read_from([wanted.file], newcomers))
        listed = None if file is None else _listed(file)
        opened = newcomers.open(run, wanted.entities if listed is None else list(listed))
        loaded, batches = stack.enter_context(opened)
        check_relations(loaded, wanted.relations or ())
        if file is not None and listed is not None:
            known = set(loaded.relations)
            strange = (one for many in listed.values() for one in many if one.relation not in known)
            for query in sorted(strange, key=lambda one: one.place):
                file.check_relation(loaded, query.place, query.relation)
        unasked = 0
        for model, names in batches:
            for name in names:
                queries = wanted.of(name, model) if listed is None else listed[name]
                unasked += max(len(wanted.relations or ()) - len(queries), 0)
                for one in queries:
                    yield model, one
        tell(newcomers.called, unasked=unasked)


def _listed(file: ReadTriples) -> dict[str, list[Query]]:
    """The queries of a file by the entity they are about."""
    found: dict[str, list[Query]] = {}
    for place, (head, relation, tail) in enumerate(file.rows()):
        if (head == ASKED) == (tail == ASKED):
            hint = f"write {ASKED} in place of the head or of the tail"
            raise file.fault(place, f"{shown((head, relation, tail))} is no query", hint)
        entity = tail if head == ASKED else head
        found.setdefault(entity, []).append(Query(entity, relation, head == ASKED, place))
    return found


def _in_full(about: dict[str, Any], answer: "Answer | Suggestion") -> dict[str, Any]:
    because = answer.because.to_dict()
    del because["groundings"]  # they are in every line
    return {**line(about, answer), **because, "similar": because["similar"][:MOST_SIMILAR]}


def _sentences(answer: "Answer | Suggestion", top: int) -> Iterator[str]:
    because = answer.because
    if because.typical is not None:
        yield f"score {answer.score:.2f}, that of a typical candidate {because.typical:.2f}; what makes the difference:"
    if not any(reason.speaks_for for reason in because.reasons):
        yield str(because)
    for reason in because.reasons:
        yield str(reason)
        listed = LISTED.get(reason.feature, 1)
        yield from (f"  also {one}" for one in reason.evidence[1:listed])
        more = len(reason.evidence) - listed
        if reason.feature == "rules" and more > 0:
            yield f"  and {more:,} weaker grounding{'' if more == 1 else 's'}"
    if because.without is not None:
        yield f"without {in_words(because.without)} it would not be among the first {top}"


@takes_newcomers
def embed(
    run: options.RunArgument,
    out: Annotated[Path, Option(help="The file to write: .parquet, .tsv or .npy (names beside it).")],
    entity: options.Entity = None,
    relation: Annotated[str | None, Option(help="Vectors as they are for queries about this relation.")] = None,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Write the vectors of newcomers (or of any entities named)."""
    check_out(out, VECTOR_ENDINGS, "vectors", force)
    newcomers.check()
    with newcomers.open(run, entity) as (loaded, batches):
        vectors = ((name, model.embed(name, relation)) for model, names in batches for name in names)
        count, dim = write_vectors(out, vectors, loaded.bundle.config.model.dim)
    typer.echo(f"written {count:,} vector{'' if count == 1 else 's'} of {dim} numbers to {out}")


@takes_newcomers
def similar(
    run: options.RunArgument,
    named: Annotated[
        list[str] | None,
        Argument(metavar="ENTITY", help="Seen entities, or newcomers of --facts or --store [default: all of these]."),
    ] = None,
    entity: options.Entity = None,
    top: options.Top = 10,
    as_json: options.Lines = False,
    out: options.Out = None,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """The entities whose vectors point most nearly the same way."""
    newcomers.check()
    check_answer_file(out, as_json, force, "answers")
    asked = newcomers.each(run, [*(named or ()), *(entity or ())])
    found = ((name, model.similar(name, top)) for model, name in asked)
    if not as_json and out is None:
        for name, others in found:
            print_table(f"most similar to {name}", ("entity", "cosine"), others)
        return
    rows = (
        {"entity": name, "rank": rank, "similar": other, "cosine": cosine}
        for name, others in found
        for rank, (other, cosine) in enumerate(others, 1)
    )
    if out is None:
        print_lines(rows)
    else:
        typer.echo(f"written {write_rows(out, SIMILAR, rows):,} answers to {out}")


@takes_facts_of_one
def draw(
    run: options.RunArgument,
    entity: Annotated[str, Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts or --store.")],
    out: Annotated[Path, Option(help="The picture to write: .png, .svg, .pdf.")],
    top: Annotated[int, Option(callback=options.at_least(1), help="How many answers to show.")] = 5,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Draw an entity: its known facts, its virtual neighbours, and likely answers with their probability."""
    from newcomer.data.plots import need_matplotlib
    from newcomer.predictor.draw import draw as draw_scene
    from newcomer.predictor.draw import scene

    need_matplotlib()  # before the work, not after it
    check_free(out, force)
    newcomers.check()
    for model, _ in newcomers.each(run, [entity]):
        draw_scene(scene(model, entity, top), out)
    typer.echo(f"drawn in {out}")
