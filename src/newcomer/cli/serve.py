"""``newcomer serve`` and ``newcomer token``: a model over a store as an HTTP service, and tokens for whoever asks."""

import os
import sys
from dataclasses import dataclass
from typing import Annotated

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.options import takes

STORE = "NEWCOMER_STORE"  # a variable: a URL may hold a password, which others see in the words of a command


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a service listens, and to whom."""

    host: Annotated[str, Option(help="The address to listen on; others than this machine's need tokens.")] = "127.0.0.1"
    port: Annotated[int, Option(help="The port; 0 for a free one.")] = 8765
    workers: Annotated[int, Option(help="Processes that answer.")] = 1
    tokens: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Who may ask, as `newcomer token` prints it, a line for each [default: NEWCOMER_TOKENS].",
        ),
    ] = None
    cors: Annotated[
        list[str] | None,
        Option(metavar="ORIGIN", help="Let web pages of this origin ask; may be repeated [default: none]."),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Another name by which a service on this machine is called; may be repeated."),
    ] = None
    docs: Annotated[bool, Option("--docs", help="Show all operations at /docs.")] = False
    log_facts: Annotated[bool, Option("--log-facts", help="Log what is asked, with the names in it.")] = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a service takes on."""

    at_once: Annotated[int, Option(help="Requests that each worker answers at once.")] = 2
    queue: Annotated[int, Option(help="Requests that wait for their turn; more are refused (429).")] = 64
    streams: Annotated[int, Option(help="Streams that are open at once in each worker; more are refused (429).")] = 8
    timeout: Annotated[int, Option(help="Seconds that a request may take.")] = 30
    grace: Annotated[int, Option(help="Seconds that requests have to finish when the service stops.")] = 30
    max_body: Annotated[int, Option(help="Bytes of a request.")] = 8_388_608
    max_facts: Annotated[int, Option(help="Facts of a request.")] = 10_000
    max_questions: Annotated[int, Option(help="Questions, or triples to classify, of a request.")] = 100


@takes("limits", Limits)
@takes("place", Place)
def serve(
    run: options.RunArgument,
    store: Annotated[
        str,
        Option(
            metavar="URL",
            help="Where newcomers are kept: a SQLite file or postgresql://USER:PASSWORD@HOST/DATABASE "
            "[default: NEWCOMER_STORE, else RUN.newcomers.db beside RUN].",
        ),
    ] = "",
    device: options.QueryDevice = "cpu",
    *,
    place: Place,
    limits: Limits,
) -> None:
    """Answer over HTTP: newcomers are added to a store, and the model is asked about them and about everyone else."""
    from newcomer.service.server import serve as serve_until_stopped
    from newcomer.service.settings import Settings

    settings = Settings(
        run=str(run),
        store=store or os.environ.get(STORE, ""),
        host=place.host,
        port=place.port,
        workers=place.workers,
        device=device,
        tokens=place.tokens,
        cors=tuple(place.cors or ()),
        hosts=tuple(place.allow_host or ()),
        docs=place.docs,
        log_facts=place.log_facts,
        **vars(limits),
    )
    serve_until_stopped(settings, _tell)


def _tell(line: str) -> None:
    """Print at once: nothing else may follow for weeks."""
    typer.echo(line)
    sys.stdout.flush()


def token(
    name: Annotated[str, Argument(metavar="NAME", help="Whose token it is; the store names who stated a fact by it.")],
    role: Annotated[
        str, Option(help="read (ask), write (also change newcomers), or operate (also load the model anew).")
    ] = "read",
) -> None:
    """Make a token for `newcomer serve`: it is shown once, with the line to keep in a file of tokens."""
    from newcomer.service.tokens import fresh_token

    secret, line = fresh_token(name, role)
    typer.echo(
        f"the token of {name}, which is not shown again:\n{secret}\nthe line to keep in the file of --tokens:\n{line}"
    )
