"""The ``newcomer`` command: its verbs, and how it ends when something is wrong."""

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from newcomer import __version__
from newcomer.cli import (
    classify,
    compare,
    data,
    evaluate,
    graphs,
    grow,
    handback,
    left_out,
    predict,
    reproduce,
    rulefiles,
    rules,
    serve,
    store,
    train,
    tune,
)
from newcomer.cli.commands import CommandGroup
from newcomer.errors import NewcomerError, OutputError, on_one_line

STOPPED = 128  # plus the number of the signal, as a shell says it
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

app = CommandGroup("Embed, complete and explain entities that arrive in a knowledge graph after training.", "newcomer")
for verb in (
    *(graphs.describe, graphs.split, rules.mine, rules.enrich, train.train, tune.tune),
    *(evaluate.evaluate, compare.compare, predict.predict, predict.suggest, predict.explain),
    *(classify.classify, classify.confidence, predict.embed, predict.similar, predict.draw, reproduce.reproduce),
    *(serve.serve, serve.token),
):
    app.command()(verb)
for verb in (store.add, store.remove):
    app.command()(verb)
app.command("list")(store.list_newcomers)
for verb in (store.answers, handback.export, handback.push, grow.grow):
    app.command()(verb)
app.add_typer(data.app, name="data")
app.add_typer(rulefiles.app, name="rules")


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
    _received.clear()  # of another call in the same process
    left_out.forget()
    try:
        with _stopping_in_order(), _guarded_output():
            code = app(standalone_mode=False)
    except NewcomerError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except _WrongCall as error:
        if str(error).startswith("Usage:"):  # no words at all: the help is the answer
            error.show()
        else:
            _complain(_in_our_words(error))
        sys.exit(NewcomerError.exit_code)
    except (_Stopped, Exception):  # of the end that a signal brought a library may have made another error
        if not _received:
            raise
        typer.echo(f"newcomer: stopped by {signal.Signals(_received[-1]).name}", err=True)
        sys.exit(STOPPED + _received[-1])
    if code:
        sys.exit(code)


_WrongCall: Any = typer.BadParameter.__base__  # of all errors in options and arguments


def _in_our_words(error: Any) -> str:
    """Typer's complaint about options and arguments as one sentence."""
    problem = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else app.info.name
    return f"{problem[:1].lower()}{problem[1:]}; see: {command} --help"


def _complain(sentence: str) -> None:
    """Print the sentence of an error on one line: a file's name may hold line ends."""
    typer.echo(f"newcomer: {on_one_line(sentence)}", err=True)


_received: list[int] = []  # signals to stop


class _Stopped(SystemExit):
    """The end that a signal brings."""


@contextmanager
def _stopping_in_order() -> Iterator[None]:
    """A signal to stop unwinds the program like an error, so that nothing half written stays behind."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # `nohup` asks to be let alone
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # whoever asks twice does not want to wait
    _received.append(number)
    raise _Stopped(STOPPED + number)


class _Output(io.FileIO):
    """Standard output that says once that it cannot be written, and then keeps quiet."""

    _failed = False

    def write(self, content: Any, /) -> int:
        if self._failed:  # what is still in buffers has nowhere to go
            return memoryview(content).nbytes
        try:
            return super().write(content)
        except BrokenPipeError:  # the reader has gone, as `head` does: nothing is wrong, and nobody listens
            self._failed = True
            raise SystemExit(STOPPED + signal.SIGPIPE) from None
        except OSError as error:
            self._failed = True
            raise OutputError(f"standard output cannot be written ({error.strerror}); choose another place") from None


@contextmanager
def _guarded_output() -> Iterator[None]:
    """Standard output through `_Output`, where it is a file, a pipe or a terminal."""
    plain = sys.stdout
    try:
        raw = _Output(plain.fileno(), "w", closefd=False)
    except (AttributeError, OSError, ValueError):  # closed, or kept in memory
        yield
        return
    plain.flush()
    errors = "backslashreplace"  # a file's name may hold what no encoding has
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), plain.encoding, errors, line_buffering=plain.isatty())
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = plain
