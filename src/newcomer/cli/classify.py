"""``newcomer classify`` and ``newcomer confidence``: what a model holds for true, and how much it knows."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.asking import (
    PIPE,
    EntityOption,
    FactsOption,
    FormatOption,
    RunArgument,
    Stated,
    TogetherOption,
    UnknownOption,
    asked_of,
    check_format,
    loaded,
    read_from,
    visitors_of,
)
from newcomer.cli.common import ForceOption, console, table, takes_read_options
from newcomer.cli.written import ANSWER_ENDINGS, check_out, in_words, row_file

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.predictor import Confidence, NewcomerBatches, Predictor, Verdict

Triple = tuple[str, str, str]

VERDICTS = {"head": str, "relation": str, "tail": str, "verdict": str, "probability": float, "score": float}
LinesOption = Annotated[bool, typer.Option("--json", help="Print a line of JSON each.")]


@takes_read_options
def classify(
    run: RunArgument,
    triples: Annotated[
        str, typer.Argument(metavar="TRIPLES", help="A file of triples to judge in any format we read, or `-`.")
    ],
    facts: FactsOption = None,
    file_format: FormatOption = None,
    together: TogetherOption = False,
    on_unknown_relation: UnknownOption = "error",
    as_json: LinesOption = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a file instead of printing: .parquet, .tsv or .jsonl.")
    ] = None,
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Whether triples are true or false, with the probability of each."""
    from newcomer.errors import OptionError

    if triples == facts == PIPE:
        raise OptionError("--facts and the triples cannot both be standard input; give one of them as a file")
    if out is not None and as_json:
        raise OptionError(f"--json prints, --out {out} writes; choose one, or let --out end in .jsonl")
    if out is not None:
        check_out(out, ANSWER_ENDINGS, "verdicts", force)
    check_format(file_format, facts, triples)
    with ExitStack() as stack:
        asked = stack.enter_context(read_from(triples, file_format, reading))
        stated = None if facts is None else stack.enter_context(read_from(facts, file_format, reading))
        model = stack.enter_context(loaded(run))
        visitors = None if stated is None else visitors_of(model, stated, on_unknown_relation)
        _give(_verdicts(model, visitors, asked, together), as_json, out)


def _verdicts(
    model: "Predictor", visitors: "NewcomerBatches | None", stated: Stated, together: bool
) -> "list[Verdict]":
    """In the order of the triples; newcomers come party by party, as they do to be asked about."""
    asked = stated.rows()
    arrived = set() if visitors is None else visitors.named(name for head, _, tail in asked for name in (head, tail))
    _check(model, arrived, stated, asked)
    if visitors is None or not arrived:
        return model.classify(asked)
    if together:
        return visitors.together().model.classify(asked)
    about = [{head, tail} & arrived for head, _, tail in asked]
    found: dict[int, Verdict] = {}
    for who, places in _parties(visitors, arrived, about):
        found |= zip(places, who.classify([asked[place] for place in places]), strict=True)
    rest = [place for place in range(len(asked)) if not about[place]]
    found |= zip(rest, model.classify([asked[place] for place in rest]), strict=True)
    for place, fact in enumerate(asked):
        if place not in found:
            problem = f"{in_words(fact)} is about two newcomers whom no fact ties to each other"
            raise stated.fault(place, problem, "pass --together")
    return [found[place] for place in range(len(asked))]


def _parties(
    visitors: "NewcomerBatches", arrived: set[str], about: Sequence[set[str]]
) -> Iterator[tuple["Predictor", list[int]]]:
    """The model with each party of newcomers, and which triples are about them alone."""
    places: dict[str, list[int]] = {}
    for place, names in enumerate(about):
        for name in names:
            places.setdefault(name, []).append(place)
    for visit in visitors.visits(arrived):
        party = set(visit.newcomers)
        mine = {place for name in party for place in places.get(name, ()) if about[place] <= party}
        yield visit.model, sorted(mine)


def _check(model: "Predictor", arrived: set[str], stated: Stated, asked: Sequence[Triple]) -> None:
    """Refuse the first triple with a name that nobody knows."""
    from newcomer.errors import OptionError, shown
    from newcomer.predictor import check_relations

    relations = set(model.relations)
    for place, fact in enumerate(asked):
        if fact[1] not in relations:
            try:
                check_relations(model, [fact[1]])
            except OptionError as error:
                raise stated.fault(place, str(error)) from None
        for name in (fact[0], fact[2]):
            if name not in arrived and name not in model:
                hint = "check the name, or give facts of it with --facts"
                problem = f"{in_words(fact)} is about {shown(name)}, who is in neither the model nor the facts"
                raise stated.fault(place, problem, hint)


def _give(found: "list[Verdict]", as_json: bool, out: Path | None) -> None:
    if out is not None:
        with row_file(out, VERDICTS) as file:
            for one in found:
                file.add(_row(one))
        typer.echo(f"written {file.count:,} verdicts to {out}")
    elif as_json:
        for one in found:
            typer.echo(json.dumps({**_row(one), "calibrated": one.calibrated}, ensure_ascii=False))
    else:
        rows = [(in_words(one.fact), _word(one), f"{one.probability:.2f}") for one in found]
        console().print(table(f"{len(found):,} triples", ("triple", "verdict", "probability"), rows))
        if found and not found[0].calibrated:
            typer.echo("the probabilities are not calibrated: the model was trained without validation")


def _row(one: "Verdict") -> dict[str, Any]:
    fact = dict(zip(("head", "relation", "tail"), one.fact, strict=True))
    return {**fact, "verdict": _word(one), "probability": one.probability, "score": one.score}


def _word(one: "Verdict") -> str:
    return "true" if one.is_true else "false"


@takes_read_options
def confidence(
    run: RunArgument,
    facts: FactsOption = None,
    file_format: FormatOption = None,
    entity: EntityOption = None,
    together: TogetherOption = False,
    on_unknown_relation: UnknownOption = "error",
    as_json: LinesOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Whether an entity's facts are enough for any answer, and which relation to learn next would help most."""
    check_format(file_format, facts)
    with asked_of(run, facts, file_format, entity, together, on_unknown_relation, reading) as asked:
        for model, names in asked.turns():
            for name in names:
                found = model.confidence(name)
                typer.echo(json.dumps(_figures(found), ensure_ascii=False) if as_json else str(found))


def _figures(found: "Confidence") -> dict[str, Any]:
    best = found.best
    return {
        "entity": found.entity,
        "facts": found.facts,
        "enough": found.enough,
        "best": None if best is None else {"fact": list(best.fact), "probability": best.probability},
        "calibrated": found.calibrated,
        "like": found.like,
        "questions": found.questions,
        "right": found.right,
        "learn": [
            {
                "question": lesson.question,
                "gain": lesson.gain,
                "opens": [{"question": question, "confidence": strength} for question, strength in lesson.opens],
            }
            for lesson in found.learn
        ],
    }
