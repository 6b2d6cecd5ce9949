"""``newcomer export`` and ``push``: what a store holds, back into a graph, as a file or by SPARQL."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from newcomer.cli import options
from newcomer.cli.answer_files import check_out, write_rows
from newcomer.cli.common import print_json, progress
from newcomer.cli.stored import counted, opened
from newcomer.errors import OptionError, check_name
from newcomer.exchange.selection import BOTH, COLUMNS, WHAT, rows

if TYPE_CHECKING:
    from newcomer.store.reading import Reading

EXPORT_ENDINGS = (".nq", ".tsv", ".parquet", ".jsonl")
What = Annotated[str, Option("--what", help="facts of newcomers, accepted answers (answers), or both.")]
Base = Annotated[
    str | None,
    Option("--base", metavar="IRI", help="What the names of graphs begin with [default: urn:newcomer-store:]."),
]
MOST_SECONDS = 3600


def export(
    store: options.Store,
    out: Annotated[Path, Option(help="The file to write: .nq (with provenance), .tsv, .parquet or .jsonl.")],
    what: What = BOTH,
    since: Annotated[
        int, Option(callback=options.at_least(0), help="Only what was stated or accepted after this position.")
    ] = 0,
    base: Base = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write facts of newcomers and accepted answers, with who said so and when; the same state gives the same bytes."""
    check_name("part", what, WHAT)
    check_out(out, EXPORT_ENDINGS, "facts and answers", force)
    in_quads = out.suffix.lower() == ".nq"
    if base is not None and not in_quads:
        raise OptionError(f"--base names graphs of RDF; leave it out, or let --out {out} end in .nq")
    with opened(store) as opened_store, opened_store.reading() as state:
        if in_quads:
            count, unit = _write_quads(out, state, base, what, since), "quad"
        else:
            count, unit = write_rows(out, COLUMNS, rows(state, what, since)), "row"
        position = state.position
    if as_json:
        print_json({"out": str(out), f"{unit}s": count, "position": position})
    else:
        typer.echo(f"written {counted(count, unit)} to {out}; position {position:,}")


def _write_quads(out: Path, state: "Reading", base: str | None, what: str, since: int) -> int:
    """Write N-Quads, and count them; the file appears when all is written."""
    from newcomer.exchange.provenance import BASE, quads
    from newcomer.files import create_bytes

    count = 0
    with create_bytes(out) as stream:
        for quad in quads(state, BASE if base is None else base, what, since):
            stream.write(f"{quad} .\n".encode())
            count += 1
    return count


def push(
    store: options.Store,
    to: Annotated[str, Option("--to", metavar="URL", help="Where the endpoint takes SPARQL updates.")],
    query: Annotated[
        str | None,
        Option("--query", metavar="URL", help="Where it answers queries [default: /query beside /update, else --to]."),
    ] = None,
    what: What = BOTH,
    base: Base = None,
    user: Annotated[
        str | None,
        Option(
            "--user",
            help="A user of the endpoint; the password is NEWCOMER_SPARQL_PASSWORD in the environment. A token without "
            "user is NEWCOMER_SPARQL_TOKEN.",
        ),
    ] = None,
    timeout: Annotated[
        int, Option(callback=options.at_least(1, MOST_SECONDS), help="Seconds to wait for each answer of the endpoint.")
    ] = 60,
    as_json: options.Json = False,
) -> None:
    """Bring a SPARQL endpoint to the state of a store: from where the last push ended, and nothing twice."""
    check_name("part", what, WHAT)
    from newcomer.exchange.provenance import BASE
    from newcomer.exchange.push import Push
    from newcomer.exchange.sparql import Endpoint, authorisation

    endpoint = Endpoint(to, query, authorisation(user, os.environ), timeout)
    with opened(store) as opened_store, progress("pushing") as show:
        done = Push(opened_store, endpoint, BASE if base is None else base, what).run(show)
    if as_json:
        print_json(asdict(done))
        return
    facts = f"{counted(done.facts, 'fact')}, {counted(done.retracted, 'retraction')}"
    way = f"from position {done.began:,} to {done.position:,}, in {counted(done.requests, 'request')}"
    typer.echo(f"pushed {facts} and {counted(done.decisions, 'decision')}; {way}")
