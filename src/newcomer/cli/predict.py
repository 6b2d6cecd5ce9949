"""``newcomer predict``, ``suggest`` and ``explain``: a trained model asked about newcomers."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    Stated,
    TogetherOption,
    UnknownOption,
    asked_of,
    check_format,
    read_from,
)
from newcomer.cli.common import ForceOption, takes_read_options
from newcomer.cli.written import ANSWERS, SUGGESTIONS, Found, in_words, line, told

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.predictor import Answer, Predictor, Suggestion

RelationOption = Annotated[
    list[str] | None,
    typer.Option("--relation", help="The relation to complete; may be repeated [default: the likeliest of all]."),
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
MOST_ALIKE = 10  # known answers that a line of JSON names


@dataclass(frozen=True)
class Question:
    """(entity, relation, ?), or (?, relation, entity); ``place`` among those of a file."""

    entity: str
    relation: str
    heads: bool
    place: int = 0

    def __str__(self) -> str:
        return in_words((ASKED, self.relation, self.entity) if self.heads else (self.entity, self.relation, ASKED))

    def found(self, model: "Predictor", top: int) -> Found:
        """The best answers, each with what a line of output says of its question."""
        if self.heads:
            answers = model.heads(self.relation, self.entity, top)
        else:
            answers = model.tails(self.entity, self.relation, top)
        return [(_about(self.entity, self.relation, self.heads, rank), one) for rank, one in enumerate(answers, 1)]


@dataclass(frozen=True)
class AnyQuestion:
    """What is most likely missing of an entity, whatever the relation and whichever end it is."""

    entity: str

    def __str__(self) -> str:
        return f"likely missing of {self.entity}"

    def found(self, model: "Predictor", top: int) -> Found:
        """The likeliest facts as answers, each to the question that it completes."""
        facts = model.suggest(self.entity, top)
        return [
            (_about(self.entity, one.fact[1], one.fact[0] != self.entity, rank), one)
            for rank, one in enumerate(facts, 1)
        ]


def _about(entity: str, relation: str, heads: bool, rank: int) -> dict[str, Any]:
    return {"entity": entity, "relation": relation, "asked": "head" if heads else "tail", "rank": rank}


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
    """The likely answers to (entity, relation, ?), each with its best reason; without a relation, to any question."""
    check_format(file_format, facts, questions)
    wanted = Wanted(relation, entity, heads, questions)
    with (
        told(out, as_json, force, ANSWERS) as tell,
        _questions(wanted, run, facts, file_format, together, on_unknown_relation, reading) as asked,
    ):
        for model, question in asked:
            tell(str(question), question.found(model, top))


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
    with (
        told(out, as_json, force, SUGGESTIONS) as tell,
        asked_of(run, facts, file_format, entity, together, on_unknown_relation, reading) as asked,
    ):
        for model, names in asked.turns():
            for name in names:
                found = model.suggest(name, top)
                ranked = [({"entity": name, "rank": rank}, one) for rank, one in enumerate(found, start=1)]
                tell(str(AnyQuestion(name)), ranked)


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
    check_format(file_format, facts, questions)
    wanted = Wanted(relation, entity, heads, questions)
    with _questions(wanted, run, facts, file_format, together, on_unknown_relation, reading) as asked:
        for model, question in asked:
            for about, answer in question.found(model, top):
                if as_json:
                    typer.echo(json.dumps(_told_in_full(about, answer), ensure_ascii=False))
                    continue
                typer.echo(f"{in_words(_fact(about, answer))}, probability {answer.probability:.2f}")
                for sentence in _sentences(answer, top):
                    typer.echo(f"  {sentence}")


@dataclass(frozen=True)
class Wanted:
    """What is asked, as the options say it."""

    relations: Sequence[str] | None
    entities: Sequence[str] | None
    heads: bool
    file: str | None

    def check(self, facts: str | None) -> None:
        """Refuse options that contradict each other."""
        from newcomer.errors import OptionError

        if self.file is None:
            if self.heads and not self.relations:
                raise OptionError(
                    "--heads says which end of a relation is asked for; name the relation with --relation"
                )
            return
        if self.relations or self.entities or self.heads:
            raise OptionError("--questions says all that is asked; leave out --relation, --entity and --heads")
        if self.file == facts == PIPE:
            raise OptionError("--facts and --questions cannot both be standard input; give one of them as a file")

    def of(self, name: str) -> "Sequence[Question | AnyQuestion]":
        """The questions about an entity, where no file lists them."""
        return [Question(name, relation, self.heads) for relation in self.relations or ()] or [AnyQuestion(name)]


@contextmanager
def _questions(
    wanted: Wanted,
    run: Path,
    facts: str | None,
    file_format: str | None,
    together: bool,
    on_unknown_relation: str,
    reading: "ReadOptions",
) -> "Iterator[Iterator[tuple[Predictor, Question | AnyQuestion]]]":
    """Every question with the model that has the newcomers it is about; a relation nobody knows is found first."""
    from newcomer.predictor import check_relations

    wanted.check(facts)
    with ExitStack() as stack:
        stated = None if wanted.file is None else stack.enter_context(read_from(wanted.file, file_format, reading))
        listed = None if stated is None else _listed(stated)
        entities = wanted.entities if listed is None else list(listed)
        asked = stack.enter_context(asked_of(run, facts, file_format, entities, together, on_unknown_relation, reading))
        check_relations(asked.model, wanted.relations or ())
        if stated is not None and listed is not None:
            _check_listed(asked, stated, listed)
        yield (
            (model, question)
            for model, names in asked.turns()
            for name in names
            for question in (wanted.of(name) if listed is None else listed[name])
        )


def _listed(stated: Stated) -> dict[str, list[Question]]:
    """The questions of a file by the entity they are about."""
    from newcomer.errors import shown

    found: dict[str, list[Question]] = {}
    for place, (head, relation, tail) in enumerate(stated.rows()):
        if (head == ASKED) == (tail == ASKED):
            hint = f"write {ASKED} in place of the head or of the tail"
            raise stated.fault(place, f"{shown((head, relation, tail))} is no question", hint)
        entity = tail if head == ASKED else head
        found.setdefault(entity, []).append(Question(entity, relation, head == ASKED, place))
    return found


def _check_listed(asked: Asked, stated: Stated, listed: dict[str, list[Question]]) -> None:
    """Refuse the first question along a relation that the model lacks."""
    from newcomer.errors import OptionError
    from newcomer.predictor import check_relations

    known = set(asked.model.relations)
    for question in sorted((one for many in listed.values() for one in many), key=lambda one: one.place):
        if question.relation not in known:
            try:
                check_relations(asked.model, [question.relation])
            except OptionError as error:
                raise stated.fault(question.place, str(error)) from None


def _fact(about: dict[str, Any], answer: "Answer | Suggestion") -> tuple[str, str, str]:
    """The fact that an answer states."""
    from newcomer.predictor import Answer

    if not isinstance(answer, Answer):
        return answer.fact
    ends = (answer.entity, about["entity"]) if about["asked"] == "head" else (about["entity"], answer.entity)
    return ends[0], about["relation"], ends[1]


def _told_in_full(about: dict[str, Any], answer: "Answer | Suggestion") -> dict[str, Any]:
    weighed = [{"fact": list(one.fact), "share": one.share} for one in answer.because.weighed]
    without = answer.because.without
    alike = [
        {"answer": one.answer, "share": one.share, "facts": [list(fact) for fact in one.facts]}
        for one in answer.because.similar[:MOST_ALIKE]
    ]
    ways = [{"facts": [list(fact) for fact in one.facts], "loss": one.loss} for one in answer.because.chains]
    decided = {"ways": ways, "weighed": weighed, "alike": alike, "without": None if without is None else list(without)}
    return {**line(about, answer), "parts": answer.because.parts, **decided}


def _sentences(answer: "Answer | Suggestion", top: int) -> Iterator[str]:
    because = answer.because
    if because.parts:
        shown = {voice: f"{part:+.2f}" for voice, part in because.parts.items()}
        parts = ", ".join(f"{voice} {part}" for voice, part in shown.items() if float(part))
        yield f"score {answer.score:.2f} = {parts}"
    for grounding in because.groundings[:REASONS]:
        yield f"because {grounding}"
    if len(because) > REASONS:
        yield f"and by {len(because) - REASONS:,} weaker groundings"
    if not because.groundings:
        yield "no rule infers it"
    for way in because.chains:
        facts = " and ".join(in_words(fact) for fact in way.facts)
        yield f"a path leads there by {facts}; without it the log share that paths give would be {way.loss:.2f} lower"
    weighed = [f"{in_words(one.fact)} ({one.share:.0%})" for one in because.weighed[:3]]
    if weighed:
        yield f"the network looked most at {', '.join(weighed)}"
    for one in because.similar[:2]:
        shared = " and ".join(in_words(fact) for fact in one.facts[:2])
        yield f"like {one.answer}, which is known to be an answer: {shared} ({one.share:.0%} of the likeness)"
    if because.without is not None:
        yield f"without {in_words(because.without)} it would not be among the first {top}"
