"""``newcomer add``, ``remove``, ``list`` and ``answers``: what is in a store of newcomers, and its changes."""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.answer_files import in_words
from newcomer.cli.common import print_json, print_lines, print_table
from newcomer.cli.left_out import tell
from newcomer.cli.newcomers import (
    NewcomerFacts,
    ReadTriples,
    advice,
    known_blank_nodes,
    loaded,
    read_from,
    takes_arrivals,
    takes_retracted,
)
from newcomer.cli.stored import asker, counted, opened, over, when
from newcomer.errors import OptionError, check_name
from newcomer.exchange.selection import stated_by

if TYPE_CHECKING:
    from newcomer.service.stored_predictor import Arrived, StoredPredictor
    from newcomer.store import Decision, Statement, StoredAnswer
    from newcomer.store.reading import Reading
    from newcomer.store.records import Verdict
    from newcomer.store.store import Store

STATES = ("open", "accept", "reject", "unsure")
LISTED = 100  # newcomers or answers, unless more are asked for
Limit = Annotated[int, Option("--limit", callback=options.at_least(1), help="How many to list at most.")]


class Asked(TypedDict):
    """What is told of a change beside what it changes."""

    who: str
    source: str | None
    key: str | None


@takes_arrivals
def add(
    run: options.RunArgument,
    store: options.Store,
    who: options.Who = None,
    source: options.Source = None,
    key: options.Key = None,
    as_json: options.Json = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """State facts of newcomers in a store: all of them or, where one is wrong, none."""
    if not newcomers.facts:
        raise OptionError("there are no facts to add; name a file with --facts, or `-` for a pipe")
    newcomers.check()
    with ExitStack() as stack:
        triples = stack.enter_context(read_from(newcomers.sources, newcomers))
        model = stack.enter_context(loaded(run, "cpu"))
        live = stack.enter_context(over(model, run, store, fresh=True))
        blank = known_blank_nodes(model, triples.named.entities.to_pylist())
        tell(newcomers.called, blank_nodes=len(blank))
        done = _arrived(live, newcomers, triples, Asked(who=asker(who), source=source, key=key))
        _print_added(done, newcomers.called, as_json)


def _arrived(live: "StoredPredictor", newcomers: NewcomerFacts, triples: ReadTriples, asked: "Asked") -> "Arrived":
    """Add what was read; of a wrong fact, the error names the line."""
    from newcomer.predictor import FactError
    from newcomer.predictor.fact_store import Skipping

    skipping = Skipping(newcomers.on_unknown_relation, newcomers.on_seen_fact)
    try:
        return live.arrived(triples.rows(), skipping, **asked)
    except FactError as error:
        raise triples.fault(error.place, str(error), advice(error)) from None


def _print_added(done: "Arrived", called: str, as_json: bool) -> None:
    skipped = {"unknown_relations": done.unknown_relations, "seen_facts": done.skipped - done.unknown_relations}
    tell(called, **skipped, known_facts=done.known)
    if as_json:
        print_json({"position": done.change.position, **done.added.to_dict()})
        return
    repeated = f"; {done.change.repeated:,} stated before" if done.change.repeated else ""
    new = counted(len(done.change.arrived), "newcomer")
    typer.echo(f"added {counted(done.change.facts, 'fact')}, {new}{repeated}; position {done.change.position:,}")


@takes_retracted
def remove(
    run: options.RunArgument,
    store: options.Store,
    named: Annotated[
        list[str] | None, Argument(metavar="NAME ...", help="Newcomers, all of whose facts are retracted.")
    ] = None,
    who: options.Who = None,
    source: options.Source = None,
    key: options.Key = None,
    as_json: options.Json = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Remove newcomers from a store, or retract the facts of a file; all of them or none."""
    if bool(named) == bool(newcomers.facts):
        raise OptionError("name either newcomers to remove, or with --facts a file of facts to retract")
    newcomers.check()
    asked = Asked(who=asker(who), source=source, key=key)
    with ExitStack() as stack:
        read = stack.enter_context(read_from(newcomers.sources, newcomers)) if newcomers.facts else None
        live = stack.enter_context(over(stack.enter_context(loaded(run, "cpu")), run, store))
        done = live.remove(*(named or ()), **asked) if read is None else live.retract(read.rows(), **asked)
    if as_json:
        print_json({"position": done.position, "newcomers": done.left, "facts": done.facts})
        return
    gone = f"; gone: {', '.join(done.left)}" if done.left else ""
    typer.echo(f"retracted {counted(done.facts, 'fact')}{gone}; position {done.position:,}")


def list_newcomers(
    store: options.Store,
    prefix: Annotated[str, Option(help="Only names that begin so.")] = "",
    after: Annotated[str, Option(help="Only names that follow this one: the next page.")] = "",
    limit: Limit = LISTED,
    facts: Annotated[
        list[str] | None, Option(metavar="NAME", help="List the facts of this entity; may be repeated.")
    ] = None,
    history: Annotated[
        bool, Option("--history", help="With --facts: also what was retracted, in the order of the log.")
    ] = False,
    as_json: options.Lines = False,
) -> None:
    """List the newcomers of a store by name, or the facts of some, with who stated them and when."""
    if facts and (prefix or after):
        raise OptionError("--facts names whose facts are listed; leave out --prefix and --after")
    if history and not facts:
        raise OptionError("--history is that of an entity; name it with --facts")
    with opened(store) as opened_store, opened_store.reading() as state:
        if facts:
            _print_facts(state, list(dict.fromkeys(facts)), history, as_json)
        else:
            _print_page(state, after, limit, prefix, as_json)


def _print_page(state: "Reading", after: str, limit: int, prefix: str, as_json: bool) -> None:
    page = state.newcomers(after, limit + 1, prefix)
    shown, more = page[:limit], len(page) > limit
    if as_json:
        print_lines({"newcomer": one.name, "position": one.position, "at": one.at.isoformat()} for one in shown)
        return
    counts = f"{counted(state.count.newcomers, 'newcomer')}, {counted(state.count.facts, 'fact')}"
    rows = [(one.name, when(one.at), one.position) for one in shown]
    print_table(f"{counts}, at position {state.position:,}", ("newcomer", "came (UTC)", "position"), rows)
    if more:
        typer.echo(f"there are more: --after {shlex.quote(shown[-1].name)}")


def _print_facts(state: "Reading", names: Sequence[str], history: bool, as_json: bool) -> None:
    found = [(name, state.history(name) if history else state.facts_of([name])) for name in names]
    if as_json:
        print_lines(_fact_line(name, one) for name, stated in found for one in stated)
        return
    for name, stated in found:
        if not stated:
            typer.echo(f"facts of {name}: none")
            continue
        rows = [
            (in_words(one.fact), "stated" if one.is_stated else "retracted", one.who, when(one.at), one.source)
            for one in stated
        ]
        print_table(f"facts of {name}", ("fact", "was", "by", "when (UTC)", "source"), rows)


def _fact_line(name: str, one: "Statement") -> dict[str, Any]:
    fact = dict(zip(("head", "relation", "tail"), one.fact, strict=True))
    how = {"stated": one.is_stated, "position": one.position, "at": one.at.isoformat()}
    return {"entity": name, **fact, **how, "who": one.who, "source": one.source}


def answers(
    store: options.Store,
    entity: Annotated[str | None, Option("--entity", help="Only answers about this entity.")] = None,
    decision: Annotated[str | None, Option(help="Only answers that are open, accept, reject or unsure.")] = None,
    min_probability: Annotated[float, Option(help="Leave out answers that are less probable, from 0 to 1.")] = 0.0,
    after: Annotated[int, Option(callback=options.at_least(0), help="Only ids that follow this one.")] = 0,
    limit: Limit = LISTED,
    accept: Annotated[list[int] | None, Option("--accept", metavar="ID", help="Accept; may be repeated.")] = None,
    reject: Annotated[list[int] | None, Option("--reject", metavar="ID", help="Reject; may be repeated.")] = None,
    unsure: Annotated[list[int] | None, Option("--unsure", metavar="ID", help="Leave open; may be repeated.")] = None,
    note: Annotated[str, Option(help="With a decision: why.")] = "",
    who: options.Who = None,
    as_json: options.Lines = False,
) -> None:
    """List the answers that were recorded in a store, or decide on some; the latest decision on one counts."""
    decided: dict[int, Verdict] = {}
    for verdict, ids in (("accept", accept), ("reject", reject), ("unsure", unsure)):
        decided |= dict.fromkeys(ids or (), cast("Verdict", verdict))
    if len(decided) < sum(len(ids or ()) for ids in (accept, reject, unsure)):
        raise OptionError("an answer is decided on twice; name each id once")
    if decided and (entity is not None or decision is not None or min_probability or after):
        raise OptionError("a decision names its answers; leave out what filters a list of them")
    if not decided and (note or who is not None):
        raise OptionError("--note and --who go with a decision; name an answer with --accept, --reject or --unsure")
    if decision is not None:
        check_name("decision", decision, STATES)
    with opened(store) as opened_store:
        _decide(opened_store, decided, note, asker(who))
        with opened_store.reading() as state:
            if decided:
                found, more = [state.answer(one) for one in decided], False
            else:
                wanted = cast("Verdict | Literal['open'] | None", decision)
                page = state.answers(entity, min_probability, wanted, after, limit + 1)
                found, more = page[:limit], len(page) > limit
            _print_answers(found, more, state.count.answers, as_json)


def _decide(store: "Store", decided: "dict[int, Verdict]", note: str, who: str) -> None:
    """Write decisions down; none of them where one is about an answer that is not there."""
    with store.reading() as state:
        for one in decided:
            state.answer(one)
    for one, verdict in decided.items():
        store.decide(one, verdict, who=who, note=note)


def _print_answers(found: "Sequence[StoredAnswer]", more: bool, count: int, as_json: bool) -> None:
    if as_json:
        print_lines(map(_answer_line, found))
        return
    rows = [
        (f"{one.id}", in_words(stated_by(one.given)), f"{one.given.probability:.2f}", _verdict(one), one.given.reason)
        for one in found
    ]
    title = f"{len(found):,} of {counted(count, 'answer')} recorded"
    print_table(title, ("id", "fact", "probability", "decision", "reason"), rows)
    if more:
        typer.echo(f"there are more: --after {found[-1].id}")


def _verdict(one: "StoredAnswer") -> str:
    if one.decision is None:
        return "open"
    note = f": {one.decision.note}" if one.decision.note else ""
    return f"{one.decision.verdict} ({one.decision.who}){note}"


def _answer_line(one: "StoredAnswer") -> dict[str, Any]:
    given = one.given._asdict()
    asked = {"entity": given.pop("entity"), "relation": given.pop("relation")}
    asked["asked"] = "head" if given.pop("direction") == "heads" else "tail"
    come = {"model": one.model, "made_from": one.made_from, "position": one.position, "at": one.at.isoformat()}
    return {"id": one.id, **asked, **given, **come, "who": one.who, "decision": _decision_of(one.decision)}


def _decision_of(decision: "Decision | None") -> dict[str, Any] | None:
    if decision is None:
        return None
    return {**decision._asdict(), "at": decision.at.isoformat()}
