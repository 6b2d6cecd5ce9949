"""The ``newcomer`` command: its verbs, and how it ends when something is wrong."""

import os
import sys
from typing import Annotated

import typer

from newcomer import __version__
from newcomer.cli import data, graphs, rules
from newcomer.errors import NewcomerError

INTERRUPTED = 130

app = typer.Typer(
    name="newcomer",
    help="Embed, complete and explain entities that arrive in a knowledge graph after training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.command()(graphs.describe)
app.command()(graphs.split)
app.command()(rules.mine)
app.command()(rules.enrich)
app.add_typer(rules.app, name="rules")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"newcomer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before the verb."""


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and exit code 2, never in a traceback."""
    try:
        app()
    except NewcomerError as error:
        typer.echo(f"newcomer: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("newcomer: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (as `head` does): nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
