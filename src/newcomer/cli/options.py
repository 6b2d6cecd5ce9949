"""The options that several commands share, each declared once, and groups of them that arrive as one argument."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from newcomer.data import ReadOptions


def at_least(least: int) -> Callable[[typer.CallbackParam, int | None], int | None]:
    """The check of a number, in our own words: a wrong one is answered with one sentence, not with the usage."""

    def check(option: typer.CallbackParam, value: int | None) -> int | None:
        from newcomer.errors import OptionError

        if value is not None and value < least:
            raise OptionError(f"{option.opts[0]} is {value}, but must be an integer from {least}")
        return value

    return check


DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder or file, or a name that `newcomer data list` shows.")
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
LinesOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON for each result.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
SeedOption = Annotated[int, typer.Option("--seed", callback=at_least(0), help="Seed of everything drawn.")]
ConfigSeedOption = Annotated[
    int | None, typer.Option("--seed", callback=at_least(0), help="Seed of everything drawn [default: 0].")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", callback=at_least(1), help="Threads [default: all cores]; the result is the same."),
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto (a GPU where there is one), cpu or cuda.")]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", help="A rule file [default: mine the observed graph now].")
]
WalkedFactsOption = Annotated[
    str,
    typer.Option(
        "--facts",
        help="The facts that rules are applied to: `own` (seen entities by observed facts, newcomers by their own) or "
        "`known` (all: newcomers can be reached from seen entities, and answers depend on who else arrived).",
    ),
]
ChangesOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated.")
]
KnownFactsOption = Annotated[
    int | None,
    typer.Option(
        "--known-facts", metavar="N", callback=at_least(1), help="Cut every newcomer to N of its facts [default: all]."
    ),
]
KnownFactsSeedOption = Annotated[
    int | None,
    typer.Option("--known-facts-seed", callback=at_least(0), help="Seed that draws the N facts [default: 0]."),
]
DataOption = Annotated[
    str | None, typer.Option("--data", help="The data set [default: the one trained on, found by its name].")
]
AnyDataOption = Annotated[bool, typer.Option("--any-data", help="Allow another data set than the one trained on.")]
FilterOption = Annotated[
    str | None, typer.Option("--filter", help="known (the data set's facts) or full [default: known].")
]
FullOption = Annotated[
    str | None, typer.Option("--full-graph", metavar="GRAPH", help="The original graph with all true facts.")
]
CandidatesOption = Annotated[str | None, typer.Option("--candidates", help="all or seen entities [default: all].")]
TiesOption = Annotated[
    str | None, typer.Option("--ties", help="Rank of a tie: mean, optimistic or pessimistic [default: mean].")
]
FactsOption = Annotated[
    list[str] | None,
    typer.Option("--facts", help="A file of newcomers' facts in any known format, or `-` for a pipe; may be repeated."),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="Format of `-`: tsv, csv, parquet, nt, nq, ttl, trig [default: tsv, or csv]."),
]
EntityOption = Annotated[
    list[str] | None,
    typer.Option("--entity", help="Entity to query; may be repeated [default: all newcomers of --facts]."),
]
TogetherOption = Annotated[
    bool,
    typer.Option(
        "--together", help="Add all newcomers at once, so that each is a candidate for the others; needs more memory."
    ),
]
UnknownOption = Annotated[
    str, typer.Option("--on-unknown-relation", help="A fact whose relation the model lacks: `error` or `skip`.")
]
TopOption = Annotated[int, typer.Option("--top", help="How many of the best to give.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Write a file instead of printing: .parquet, .tsv or .jsonl.")
]


def takes(name: str, group: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of ``group``; what the group makes of them reaches it as the argument ``name``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own, offered = signature(command), signature(group)

        def run(**given: Any) -> Any:
            chosen = {option: given.pop(option) for option in offered.parameters}
            return command(**given, **{name: group(**chosen)})

        parameters = [p for p in own.parameters.values() if p.name != name]
        run.__signature__ = own.replace(parameters=[*parameters, *offered.parameters.values()])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _read_options(
    *,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="Character between columns (or: tab, comma, semicolon, pipe, space)."),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first line is a header [default: find out]."),
    ] = None,
    quote: Annotated[str, typer.Option("--quote", help="Character that encloses names, or `none`.")] = '"',
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Columns by position, as in head,relation,tail,label; `_` for one to ignore."),
    ] = None,
    on_bad_line: Annotated[
        str, typer.Option("--on-bad-line", help="What to do with a line that cannot be read: `error` or `skip`.")
    ] = "error",
    literals: Annotated[
        str, typer.Option("--literals", help="RDF literals: `skip` (counted) or `keep` as entities.")
    ] = "skip",
) -> "ReadOptions":
    from newcomer.data.options import ReadOptions, parse_delimiter

    return ReadOptions(
        delimiter=None if delimiter is None else parse_delimiter(delimiter),
        header=header,
        quote=None if quote.lower() == "none" else quote,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        on_bad_line=on_bad_line,
        literals=literals,
    )


takes_read_options = takes("reading", _read_options)
