"""``newcomer classify`` and ``newcomer confidence``: which triples are true, and whether known facts are enough."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from newcomer.cli import options
from newcomer.cli.answer_files import check_answer_file, in_words, write_rows
from newcomer.cli.common import print_lines, print_table
from newcomer.cli.newcomers import (
    CHECK_NAME,
    NewcomerFacts,
    ReadTriples,
    Triple,
    loaded,
    read_from,
    takes_newcomers,
)
from newcomer.cli.stored import scopes
from newcomer.errors import shown

if TYPE_CHECKING:
    from newcomer.predictor import NewcomerBatches, Predictor, Verdict

EXPECTED = 10  # questions about an entity that are printed; JSON has all
VERDICTS = {"head": str, "relation": str, "tail": str, "verdict": str, "probability": float, "score": float}


@takes_newcomers
def classify(
    run: options.RunArgument,
    triples: Annotated[
        str, Argument(metavar="TRIPLES", help="A file of triples to classify in any known format, or `-`.")
    ],
    as_json: options.Lines = False,
    out: options.Out = None,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Whether triples are true or false, with the probability of each."""
    newcomers.check(triples)
    check_answer_file(out, as_json, force, "verdicts")
    with read_from([triples], newcomers) as given:
        if newcomers.store is not None:
            _give(_over_store(run, newcomers, newcomers.store, given), as_json, out)
            return
        with newcomers.added(run) as (model, arrived):
            _give(_verdicts(model, arrived, given, newcomers.together), as_json, out)


def _over_store(run: Path, newcomers: NewcomerFacts, place: str, given: ReadTriples) -> "list[Verdict]":
    """In the order of the triples, each beside the newcomers of a store that it is about."""
    with loaded(run, newcomers.device) as model, scopes(model, run, place) as found:
        triples = given.rows()
        names = dict.fromkeys(name for head, _, tail in triples for name in (head, tail))
        _check_names(model, {name for name in names if found.has(name)}, given, triples)
        return [found.of(one[0], one[2]).model.classify([one])[0] for one in triples]


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
    relations = set(model.relations)
    for place, fact in enumerate(triples):
        if fact[1] not in relations:
            given.check_relation(model, place, fact[1])
        for name in (fact[0], fact[2]):
            if name not in arrived and name not in model:
                problem = f"{in_words(fact)} is about {shown(name)}, which is in neither the model nor the facts"
                raise given.fault(place, problem, CHECK_NAME)


def _give(found: "list[Verdict]", as_json: bool, out: Path | None) -> None:
    if out is not None:
        count = write_rows(out, VERDICTS, map(_row, found))
        typer.echo(f"written {count:,} verdicts to {out}")
    elif as_json:
        print_lines({**_row(one), "calibrated": one.calibrated, "among_labelled": one.among_labelled} for one in found)
    else:
        rows = [(in_words(one.fact), _row(one)["verdict"], f"{one.probability:.2f}") for one in found]
        print_table(f"{len(found):,} triples", ("triple", "verdict", "probability"), rows)
        if found and not found[0].calibrated:
            typer.echo("the probabilities are not calibrated: the model was trained without validation")


def _row(one: "Verdict") -> dict[str, Any]:
    fact = dict(zip(("head", "relation", "tail"), one.fact, strict=True))
    return {**fact, "verdict": str(one.is_true).lower(), "probability": one.probability, "score": one.score}


@takes_newcomers
def confidence(
    run: options.RunArgument, entity: options.Entity = None, as_json: options.Lines = False, *, newcomers: NewcomerFacts
) -> None:
    """Whether an entity's facts are enough for any answer, and which relation to learn next would help most."""
    newcomers.check()
    found = (model.confidence(name) for model, name in newcomers.each(run, entity))
    if as_json:
        print_lines(one.to_dict() for one in found)
        return
    for one in found:
        typer.echo(str(one))
        rows = [(each.question, each.known, each.applies, each.missing) for each in one.expected[:EXPECTED]]
        print_table(f"expected of {one.entity}", ("question", "known", "any missing", "missing"), rows)
