"""``newcomer classify`` and ``newcomer confidence``: which triples are true, and whether known facts are enough."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.answer_files import check_answer_file, in_words, row_file
from newcomer.cli.common import print_line, print_table
from newcomer.cli.newcomers import NewcomerFacts, ReadTriples, Triple, loaded, read_from, takes_newcomers
from newcomer.cli.options import EntityOption, ForceOption, LinesOption, OutOption, RunArgument

if TYPE_CHECKING:
    from newcomer.predictor import Confidence, NewcomerBatches, Predictor, Verdict

VERDICTS = {"head": str, "relation": str, "tail": str, "verdict": str, "probability": float, "score": float}


@takes_newcomers
def classify(
    run: RunArgument,
    triples: Annotated[
        str, typer.Argument(metavar="TRIPLES", help="A file of triples to classify in any known format, or `-`.")
    ],
    as_json: LinesOption = False,
    out: OutOption = None,
    force: ForceOption = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Whether triples are true or false, with the probability of each."""
    newcomers.check(triples)
    check_answer_file(out, as_json, force, "verdicts")
    with ExitStack() as stack:
        given = stack.enter_context(read_from([triples], newcomers.file_format, newcomers.reading))
        facts = stack.enter_context(newcomers.read()) if newcomers.sources else None
        model = stack.enter_context(loaded(run))
        arrived = None if facts is None else newcomers.batches(model, facts)
        _give(_verdicts(model, arrived, given, newcomers.together), as_json, out)


def _verdicts(
    model: "Predictor", newcomers: "NewcomerBatches | None", given: ReadTriples, together: bool
) -> "list[Verdict]":
    """In the order of the triples; newcomers come batch by batch, as they do for queries."""
    triples = given.rows()
    arrived = (
        set() if newcomers is None else newcomers.named(name for head, _, tail in triples for name in (head, tail))
    )
    _check_names(model, arrived, given, triples)
    if newcomers is None or not arrived:
        return model.classify(triples)
    if together:
        return newcomers.together().model.classify(triples)
    about = [{head, tail} & arrived for head, _, tail in triples]
    found: dict[int, Verdict] = {}
    for batch_model, places in _by_batch(newcomers, arrived, about):
        found |= zip(places, batch_model.classify([triples[place] for place in places]), strict=True)
    rest = [place for place in range(len(triples)) if not about[place]]
    found |= zip(rest, model.classify([triples[place] for place in rest]), strict=True)
    for place, fact in enumerate(triples):
        if place not in found:
            problem = f"{in_words(fact)} is about two newcomers that no fact connects"
            raise given.fault(place, problem, "pass --together")
    return [found[place] for place in range(len(triples))]


def _by_batch(
    newcomers: "NewcomerBatches", arrived: set[str], about: Sequence[set[str]]
) -> Iterator[tuple["Predictor", list[int]]]:
    """The model with each batch of newcomers, and which triples are about these alone."""
    places: dict[str, list[int]] = {}
    for place, names in enumerate(about):
        for name in names:
            places.setdefault(name, []).append(place)
    for batch in newcomers.batches(arrived):
        members = set(batch.newcomers)
        yield batch.model, sorted({p for name in members for p in places.get(name, ()) if about[p] <= members})


def _check_names(model: "Predictor", arrived: set[str], given: ReadTriples, triples: Sequence[Triple]) -> None:
    """Refuse the first triple with a name that is in neither the model nor the facts."""
    from newcomer.errors import OptionError, shown
    from newcomer.predictor import check_relations

    relations = set(model.relations)
    for place, fact in enumerate(triples):
        if fact[1] not in relations:
            try:
                check_relations(model, [fact[1]])
            except OptionError as error:
                raise given.fault(place, str(error)) from None
        for name in (fact[0], fact[2]):
            if name not in arrived and name not in model:
                hint = "check the name, or give facts of it with --facts"
                problem = f"{in_words(fact)} is about {shown(name)}, which is in neither the model nor the facts"
                raise given.fault(place, problem, hint)


def _give(found: "list[Verdict]", as_json: bool, out: Path | None) -> None:
    if out is not None:
        with row_file(out, VERDICTS) as file:
            for one in found:
                file.add(_row(one))
        typer.echo(f"written {file.count:,} verdicts to {out}")
    elif as_json:
        for one in found:
            print_line({**_row(one), "calibrated": one.calibrated})
    else:
        rows = [(in_words(one.fact), _word(one), f"{one.probability:.2f}") for one in found]
        print_table(f"{len(found):,} triples", ("triple", "verdict", "probability"), rows)
        if found and not found[0].calibrated:
            typer.echo("the probabilities are not calibrated: the model was trained without validation")


def _row(one: "Verdict") -> dict[str, Any]:
    fact = dict(zip(("head", "relation", "tail"), one.fact, strict=True))
    return {**fact, "verdict": _word(one), "probability": one.probability, "score": one.score}


def _word(one: "Verdict") -> str:
    return "true" if one.is_true else "false"


@takes_newcomers
def confidence(
    run: RunArgument, entity: EntityOption = None, as_json: LinesOption = False, *, newcomers: NewcomerFacts
) -> None:
    """Whether an entity's facts are enough for any answer, and which relation to learn next would help most."""
    newcomers.check()
    with newcomers.open(run, entity) as queried:
        for model, names in queried.batches():
            for name in names:
                found = model.confidence(name)
                print_line(_figures(found)) if as_json else typer.echo(str(found))


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
