"""``newcomer grow``: the next model, trained on the graph of the present one and what a store holds by now."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from newcomer.cli import options
from newcomer.cli.amounts import AUTO, NONE
from newcomer.cli.answer_files import in_words
from newcomer.cli.common import print_json, print_table, refuse_input, working
from newcomer.cli.stored import counted, opened
from newcomer.cli.train import (
    MemoryLimit,
    TimeLimit,
    limits_of,
    plan_of,
    print_summary,
    resume_hint,
    summary_of,
)
from newcomer.cli.watching import watching

if TYPE_CHECKING:
    from newcomer.service.growth import Growth


def grow(
    run: options.RunArgument,
    store: options.Store,
    out: Annotated[Path, Option(help="The folder of the next model.")],
    accepted: Annotated[bool, Option("--accepted", help="Take accepted answers for facts, too.")] = False,
    again: Annotated[
        int,
        Option("--again", callback=options.at_least(0), help="How many recorded answers to ask again of both models."),
    ] = 200,
    device: options.Device = "auto",
    threads: options.Threads = None,
    time_limit: TimeLimit = AUTO,
    memory_limit: MemoryLimit = NONE,
    resume: Annotated[bool, Option("--resume", help="Go on where a training of this place stopped.")] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Train the next model on the graph of this one and the facts of a store, and say which answers would change."""
    from newcomer.api import checkpoint_folder, train_into, trainable
    from newcomer.models.bundle import read_bundle
    from newcomer.models.device import choose_device
    from newcomer.training.pipeline import decided

    started = time.monotonic()
    refuse_input(out, run)
    growth, settings = _growth(run, store, accepted), read_bundle(run).config
    folder, machine = checkpoint_folder(out, resume, force), choose_device(device)
    limits = limits_of(time_limit, memory_limit, machine.type)
    if not as_json:
        planned = decided(trainable(settings, growth.dataset), growth.dataset, machine, folder, resume)
        plan = plan_of(growth.dataset, settings, planned, machine.type, None, folder, resume)
        print_table(f"training on {growth.dataset.name}", ("", ""), [("new", _in_words(growth)), *plan])
    with resume_hint(out, folder), watching() as listener:
        fitted = train_into(
            out,
            growth.dataset,
            settings,
            device=device,
            threads=threads,
            resume=resume,
            force=force,
            report=listener,
            limits=limits,
        )
    summary = summary_of(fitted, out, time.monotonic() - started)
    _report(summary, growth, _compared(run, out, store, again), as_json)


def _growth(run: Path, store: str, accepted: bool) -> "Growth":
    from newcomer.api import growth_of

    with opened(store):  # a store that is not there is not made
        return growth_of(run, store, accepted)


def _compared(run: Path, out: Path, store: str, most: int) -> dict[str, Any] | None:
    """The answers given before, asked again."""
    from newcomer.api import ask_again
    from newcomer.models.device import limited_threads

    if most == 0:
        return None
    with limited_threads(1), working("asking again what was answered before"):
        return ask_again(run, out, store, most)


def _in_words(growth: "Growth") -> str:
    accepted = f", {counted(growth.accepted, 'accepted answer')}" if growth.accepted else ""
    arrived = f"{counted(growth.entities, 'newcomer')}, {counted(growth.relations, 'relation')}"
    return f"{counted(growth.facts, 'fact')}{accepted}, {arrived}; position {growth.position:,} of the store"


def _report(summary: Mapping[str, Any], growth: "Growth", again: dict[str, Any] | None, as_json: bool) -> None:
    if as_json:
        grown = {name: getattr(growth, name) for name in ("position", "facts", "accepted", "entities", "relations")}
        print_json({**summary, "grown": grown, "again": again})
        return
    print_summary(summary)
    if again is None or not again["asked"]:
        return
    before, after = again["probability_before"], again["probability_after"]
    rows = [(in_words(one["fact"]), one["before"], one["after"]) for one in again["most"]]
    print_table(f"{counted(again['asked'], 'answer')} asked again", ("those that moved most", "before", "after"), rows)
    first = f"first in the present model {again['first_before']:,}, in the next one {again['first_after']:,}"
    mean = f"mean probability {before:.2f} and {after:.2f}, moved by {again['moved']:.2f}"
    typer.echo(f"{first}, in both {again['stayed_first']:,}; {mean}")
    typer.echo(f"{again['known']:,} more are known by now, {again['unasked']:,} cannot be asked any more")
