"""``newcomer predict``, ``suggest`` and ``explain``: a trained model asked about newcomers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.asking import (
    PIPE,
    Asked,
    EntityOption,
    FactsOption,
    FormatOption,
    RunArgument,
    TogetherOption,
    UnknownOption,
    asked_of,
    called,
    check_format,
    read_named,
)
from newcomer.cli.common import ForceOption, takes_read_options
from newcomer.cli.written import ANSWERS, SUGGESTIONS, in_words, line, told

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.predictor import Answer, Because, Predictor

RelationOption = Annotated[
    list[str] | None, typer.Option("--relation", help="The relation to complete; may be repeated.")
]
QuestionsOption = Annotated[
    str | None,
    typer.Option("--questions", help="A file of triples with `?` for what is asked, instead of --relation; or `-`."),
]
HeadsOption = Annotated[bool, typer.Option("--heads", help="Ask for heads, (?, relation, entity), instead of tails.")]
TopOption = Annotated[int, typer.Option("--top", help="How many of the best to give.")]
LinesOption = Annotated[bool, typer.Option("--json", help="Print a line of JSON an answer.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Write a file instead of printing: .parquet, .tsv or .jsonl.")
]

ASKED = "?"
REASONS = 5  # groundings that are told of an answer


@dataclass(frozen=True)
class Question:
    """(entity, relation, ?), or (?, relation, entity)."""

    entity: str
    relation: str
    heads: bool

    def __str__(self) -> str:
        return in_words((ASKED, self.relation, self.entity) if self.heads else (self.entity, self.relation, ASKED))

    def answers(self, model: "Predictor", top: int) -> "list[Answer]":
        """The best of them."""
        if self.heads:
            return model.heads(self.relation, self.entity, top)
        return model.tails(self.entity, self.relation, top)

    def about(self, rank: int) -> dict[str, Any]:
        """What a line of output says of an answer's question."""
        side = "head" if self.heads else "tail"
        return {"entity": self.entity, "relation": self.relation, "asked": side, "rank": rank}


@takes_read_options
def predict(
    run: RunArgument,
    relation: RelationOption = None,
    facts: FactsOption = None,
    file_format: FormatOption = None,
    entity: EntityOption = None,
    heads: HeadsOption = False,
    questions: QuestionsOption = None,
    top: TopOption = 10,
    together: TogetherOption = False,
    on_unknown_relation: UnknownOption = "error",
    as_json: LinesOption = False,
    out: OutOption = None,
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """The likely answers to (entity, relation, ?), each with its best reason."""
    with told(out, as_json, force, ANSWERS) as tell:
        listed = _listed(questions, relation, entity, heads, facts, file_format, reading)
        asked = asked_of(
            run, facts, file_format, entity or list(listed) or None, together, on_unknown_relation, reading
        )
        for model, question in _questions(asked, listed, relation, heads):
            answers = question.answers(model, top)
            tell(str(question), [(question.about(rank), answer) for rank, answer in enumerate(answers, start=1)])


@takes_read_options
def suggest(
    run: RunArgument,
    facts: FactsOption = None,
    file_format: FormatOption = None,
    entity: EntityOption = None,
    top: TopOption = 20,
    together: TogetherOption = False,
    on_unknown_relation: UnknownOption = "error",
    as_json: LinesOption = False,
    out: OutOption = None,
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """The facts that are most likely missing, over all relations, each with its best reason."""
    check_format(file_format, facts)
    with told(out, as_json, force, SUGGESTIONS) as tell:
        asked = asked_of(run, facts, file_format, entity, together, on_unknown_relation, reading)
        for model, names in asked.turns():
            for name in names:
                found = model.suggest(name, top)
                ranked = [({"entity": name, "rank": rank}, one) for rank, one in enumerate(found, start=1)]
                tell(f"likely missing of {name}", ranked)


@takes_read_options
def explain(
    run: RunArgument,
    relation: RelationOption = None,
    facts: FactsOption = None,
    file_format: FormatOption = None,
    entity: EntityOption = None,
    heads: HeadsOption = False,
    questions: QuestionsOption = None,
    top: TopOption = 3,
    together: TogetherOption = False,
    on_unknown_relation: UnknownOption = "error",
    as_json: LinesOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """The best answers in words: rules with their premises, the facts that weighed most, and the one that decides."""
    listed = _listed(questions, relation, entity, heads, facts, file_format, reading)
    asked = asked_of(run, facts, file_format, entity or list(listed) or None, together, on_unknown_relation, reading)
    for model, question in _questions(asked, listed, relation, heads):
        for rank, answer in enumerate(question.answers(model, top), start=1):
            if as_json:
                typer.echo(json.dumps(_told_in_full(question.about(rank), answer), ensure_ascii=False))
                continue
            ends = (answer.entity, question.entity) if question.heads else (question.entity, answer.entity)
            typer.echo(f"{in_words((ends[0], question.relation, ends[1]))}, truth {answer.truth:.2f}")
            for sentence in _sentences(answer.because, top):
                typer.echo(f"  {sentence}")


def _listed(
    source: str | None,
    relations: Sequence[str] | None,
    entities: Sequence[str] | None,
    heads: bool,
    facts: str | None,
    file_format: str | None,
    reading: "ReadOptions",
) -> dict[str, list[Question]]:
    """The questions of a file by the entity they are about; none where --relation says what to ask."""
    from newcomer.errors import OptionError

    check_format(file_format, facts, source)
    if source is None:
        if not relations:
            hint = "name a relation with --relation, or a file with --questions; `newcomer suggest` asks about all"
            raise OptionError(f"there is nothing to ask; {hint}")
        return {}
    if relations or entities or heads:
        raise OptionError("--questions says all that is asked; leave out --relation, --entity and --heads")
    if source == facts == PIPE:
        raise OptionError("--facts and --questions cannot both be standard input; give one of them as a file")
    found: dict[str, list[Question]] = {}
    for question in _read_questions(source, file_format, reading):
        found.setdefault(question.entity, []).append(question)
    return found


def _read_questions(source: str, file_format: str | None, reading: "ReadOptions") -> Iterator[Question]:
    from newcomer.errors import InputError, shown

    named = read_named(source, file_format, reading)
    names, relations = named.entities.to_pylist(), named.relations.to_pylist()
    for head, relation, tail in named.triples.rows.tolist():
        ends = names[head], names[tail]
        if (ends[0] == ASKED) == (ends[1] == ASKED):
            hint = f"write {ASKED} in place of the head or of the tail"
            raise InputError(
                called(source), f"{shown((ends[0], relations[relation], ends[1]))} is no question", hint=hint
            )
        heads = ends[0] == ASKED
        yield Question(ends[1] if heads else ends[0], relations[relation], heads)


def _questions(
    asked: Asked, listed: dict[str, list[Question]], relations: Sequence[str] | None, heads: bool
) -> Iterator[tuple["Predictor", Question]]:
    """Every question with the model that has the newcomers it is about; a relation nobody knows is found first."""
    from newcomer.predictor import check_relations

    check_relations(asked.model, relations or [one.relation for many in listed.values() for one in many])
    for model, names in asked.turns():
        for name in names:
            for question in listed.get(name) or [Question(name, relation, heads) for relation in relations or ()]:
                yield model, question


def _told_in_full(about: dict[str, Any], answer: "Answer") -> dict[str, Any]:
    weighed = [{"fact": list(one.fact), "share": one.share} for one in answer.because.weighed]
    without = answer.because.without
    return {**line(about, answer), "weighed": weighed, "without": None if without is None else list(without)}


def _sentences(because: "Because", top: int) -> Iterator[str]:
    for grounding in because.groundings[:REASONS]:
        yield f"because {grounding}"
    if len(because) > REASONS:
        yield f"and by {len(because) - REASONS:,} weaker groundings"
    if not because.groundings:
        yield "no rule infers it"
    weighed = [f"{in_words(one.fact)} ({one.share:.0%})" for one in because.weighed[:3]]
    if weighed:
        yield f"the network looked most at {', '.join(weighed)}"
    if because.without is not None:
        yield f"without {in_words(because.without)} it would not be among the first {top}"
