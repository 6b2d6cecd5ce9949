"""A trained model queried about newcomers.

``newcomer predict``, ``suggest``, ``explain``, ``embed``, ``similar`` and ``draw``.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.answer_files import (
    ANSWERS,
    SUGGESTIONS,
    VECTOR_ENDINGS,
    Found,
    check_answer_file,
    check_out,
    fact_of,
    give_answers,
    in_words,
    line,
    write_vectors,
)
from newcomer.cli.common import check_free, print_line, print_table
from newcomer.cli.newcomers import NewcomerFacts, ReadTriples, read_from, takes_facts_of_one, takes_newcomers
from newcomer.cli.options import takes
from newcomer.errors import OptionError, shown

if TYPE_CHECKING:
    from newcomer.predictor import Answer, Predictor, Suggestion

ASKED = "?"
REASONS = 5  # groundings that are printed for an answer
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

    def found(self, model: "Predictor", top: int) -> Found:
        """The best answers, each with the columns that name its query."""
        if self.heads:
            answers = model.heads(self.relation, self.entity, top)
        else:
            answers = model.tails(self.entity, self.relation, top)
        return [(_about(self.entity, self.relation, self.heads, rank), one) for rank, one in enumerate(answers, 1)]


@dataclass(frozen=True)
class AnyQuery:
    """The facts of an entity that are most likely missing, along any relation and at either end."""

    entity: str

    def __str__(self) -> str:
        return f"likely missing of {self.entity}"

    def found(self, model: "Predictor", top: int) -> Found:
        """The likeliest facts as answers, each to the query that it completes."""
        facts = enumerate(model.suggest(self.entity, top), 1)
        return [(_about(self.entity, one.fact[1], one.fact[0] != self.entity, rank), one) for rank, one in facts]


def _about(entity: str, relation: str, heads: bool, rank: int) -> dict[str, Any]:
    return {"entity": entity, "relation": relation, "asked": "head" if heads else "tail", "rank": rank}


@dataclass(frozen=True)
class Wanted:
    """The queries to answer, as the options state them."""

    relations: Annotated[
        list[str] | None,
        Option("--relation", help="The relation to complete; may be repeated [default: the likeliest of all]."),
    ] = None
    entities: options.Entity = None
    heads: Annotated[bool, Option("--heads", help="Query the heads, (?, relation, entity), instead of the tails.")] = (
        False
    )
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

    def of(self, name: str) -> "Sequence[Query | AnyQuery]":
        """The queries about an entity, where no file lists them."""
        return [Query(name, relation, self.heads) for relation in self.relations or ()] or [AnyQuery(name)]


takes_queries = takes("wanted", Wanted)


@takes_newcomers
@takes_queries
def predict(
    run: options.RunArgument,
    top: options.Top = 10,
    as_json: options.Lines = False,
    out: options.Out = None,
    force: options.Force = False,
    *,
    wanted: Wanted,
    newcomers: NewcomerFacts,
) -> None:
    """The likely answers to (entity, relation, ?), each with its best reason; without a relation, to any query."""
    newcomers.check(wanted.file)
    check_answer_file(out, as_json, force, "answers")
    queries = _queries(wanted, run, newcomers)
    give_answers(((str(query), query.found(model, top)) for model, query in queries), out, as_json, ANSWERS)


@takes_newcomers
def suggest(
    run: options.RunArgument,
    entity: options.Entity = None,
    top: options.Top = 20,
    as_json: options.Lines = False,
    out: options.Out = None,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """The facts that are most likely missing, over all relations, each with its best reason."""
    newcomers.check()
    check_answer_file(out, as_json, force, "answers")
    answers = (
        (str(AnyQuery(name)), [({"entity": name, "rank": n}, one) for n, one in enumerate(model.suggest(name, top), 1)])
        for model, name in newcomers.each(run, entity)
    )
    give_answers(answers, out, as_json, SUGGESTIONS)


@takes_newcomers
@takes_queries
def explain(
    run: options.RunArgument,
    top: options.Top = 3,
    as_json: options.Lines = False,
    *,
    wanted: Wanted,
    newcomers: NewcomerFacts,
) -> None:
    """The best answers in words: rules with their premises, the facts with most weight, and the one that decides."""
    newcomers.check(wanted.file)
    for model, query in _queries(wanted, run, newcomers):
        for about, answer in query.found(model, top):
            if as_json:
                print_line(_in_full(about, answer))
                continue
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
        for model, names in batches:
            for name in names:
                for one in wanted.of(name) if listed is None else listed[name]:
                    yield model, one


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
    because = answer.because
    return {
        **line(about, answer),
        "parts": because.parts,
        "chains": [vars(one) for one in because.chains],
        "weighed": [vars(one) for one in because.weighed],
        "similar": [vars(one) for one in because.similar[:MOST_SIMILAR]],
        "without": because.without,
    }


def _sentences(answer: "Answer | Suggestion", top: int) -> Iterator[str]:
    because = answer.because
    if because.parts:
        shown = {feature: f"{part:+.2f}" for feature, part in because.parts.items()}
        parts = ", ".join(f"{feature} {part}" for feature, part in shown.items() if float(part))
        yield f"score {answer.score:.2f} = {parts}"
    for grounding in because.groundings[:REASONS]:
        yield f"because {grounding}"
    if len(because) > REASONS:
        yield f"and by {len(because) - REASONS:,} weaker groundings"
    if not because.groundings:
        yield "no rule infers it"
    for chain in because.chains:
        facts = " and ".join(in_words(fact) for fact in chain.facts)
        yield f"connected by {facts}; without this chain its log share by propagation would be {chain.loss:.2f} lower"
    weighed = [f"{in_words(one.fact)} ({one.share:.0%})" for one in because.weighed[:3]]
    if weighed:
        yield f"the encoder gave most attention to {', '.join(weighed)}"
    for one in because.similar[:2]:
        shared = " and ".join(in_words(fact) for fact in one.facts[:2])
        yield f"similar to {one.answer}, a known answer: {shared} ({one.share:.0%} of the similarity)"
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
    vectors = ((name, model.embed(name, relation)) for model, name in newcomers.each(run, entity))
    count, dim = write_vectors(out, vectors)
    typer.echo(f"written {count:,} vector{'' if count == 1 else 's'} of {dim} numbers to {out}")


@takes_facts_of_one
def similar(
    run: options.RunArgument,
    entity: Annotated[str, Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    top: options.Top = 10,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """The entities whose vectors point most nearly the same way."""
    newcomers.check()
    for model, _ in replace(newcomers, together=True).each(run, [entity]):
        print_table(f"most similar to {entity}", ("entity", "cosine"), model.similar(entity, top))


@takes_facts_of_one
def draw(
    run: options.RunArgument,
    entity: Annotated[str, Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    out: Annotated[Path, Option(help="The picture to write: .png, .svg, .pdf.")],
    top: Annotated[int, Option(callback=options.at_least(1), help="How many answers to show.")] = 5,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Draw an entity: known facts solid, virtual neighbours dashed, likely answers highlighted."""
    from newcomer.data.plots import need_matplotlib
    from newcomer.predictor.draw import draw as draw_scene
    from newcomer.predictor.draw import scene

    need_matplotlib()  # before the work, not after it
    check_free(out, force)
    newcomers.check()
    for model, _ in newcomers.each(run, [entity]):
        draw_scene(scene(model, entity, top), out)
    typer.echo(f"drawn in {out}")
