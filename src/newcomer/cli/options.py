"""The options that several commands share, each declared once, and groups of them that arrive as one argument."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from newcomer.errors import OptionError

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.cut import FactsCut

MOST_THREADS = 1024


def at_least(least: int, most: int | None = None) -> Callable[[typer.CallbackParam, int | None], int | None]:
    """The check of a number, in our own words: a wrong one is answered with one sentence, not with the usage."""

    def check(option: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and not least <= value <= (value if most is None else most):
            end = "" if most is None else f" to {most}"
            raise OptionError(f"{option.opts[0]} is {value}, but must be an integer from {least}{end}")
        return value

    return check


DataArgument = Annotated[
    str, Argument(metavar="DATA", help="A folder or file, or a name that `newcomer data list` shows.")
]
RunArgument = Annotated[Path, Argument(metavar="RUN", help="The folder of a trained model.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
Lines = Annotated[bool, Option("--json", help="Print one line of JSON for each result.")]
Force = Annotated[bool, Option("--force", help="Replace the output if it exists.")]
Seed = Annotated[int, Option(callback=at_least(0), help="Seed of everything drawn.")]
ConfigSeed = Annotated[int | None, Option(callback=at_least(0), help="Seed of everything drawn [default: 0].")]
Threads = Annotated[
    int | None, Option(callback=at_least(1, MOST_THREADS), help="Threads [default: all cores]; the result is the same.")
]
Device = Annotated[str, Option("--device", help="auto (a GPU where there is one), cpu or cuda.")]
Rules = Annotated[Path | None, Option("--rules", help="A rule file [default: mine the observed graph now].")]
WalkedFacts = Annotated[
    str,
    Option(
        "--facts",
        help="The facts that rules are applied to: `own` (seen entities by observed facts, newcomers by their own) or "
        "`known` (all: newcomers can be reached from seen entities, and answers depend on who else arrived).",
    ),
]
Changes = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated. The last change of one counts."),
]
Data = Annotated[str | None, Option("--data", help="The data set [default: the one trained on, found by its name].")]
AnyData = Annotated[bool, Option("--any-data", help="Allow another data set than the one trained on.")]
Entity = Annotated[
    list[str] | None,
    Option("--entity", help="Entity to query; may be repeated [default: all newcomers of --facts or --store]."),
]
IN_STORE = "The store of newcomers: a SQLite file, or postgresql://USER@HOST/DATABASE."
Store = Annotated[str, Option("--store", metavar="URL", help=IN_STORE)]
Who = Annotated[str | None, Option("--who", help="Who asks for it [default: the name of your login].")]
Source = Annotated[str | None, Option("--source", help="Where the facts are from, in words.")]
Key = Annotated[
    str | None, Option("--key", help="A name for this request: sent again with the same one, it changes nothing.")
]
Top = Annotated[int, Option("--top", callback=at_least(1), help="How many of the best to give.")]
QueryDevice = Annotated[
    str,
    Option("--device", help="cpu, cuda, or auto (a GPU where there is one); scores may differ in the last digits."),
]
Out = Annotated[Path | None, Option("--out", help="Write a file instead of printing: .parquet, .tsv or .jsonl.")]


def takes(name: str, group: Callable[..., Any], *without: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of ``group``, but for those left out.

    What the group makes of them reaches the command as the argument ``name``. A dataclass is a group, too.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = signature(command)
        parameters = signature(group).parameters
        offered = {key: one.replace(kind=one.KEYWORD_ONLY) for key, one in parameters.items() if key not in without}

        def run(**given: Any) -> Any:
            chosen = {option: given.pop(option) for option in offered}
            return command(**given, **{name: group(**chosen)})

        kept = [p for p in own.parameters.values() if p.name != name]
        run.__signature__ = own.replace(parameters=[*kept, *offered.values()])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _read_options(
    *,
    delimiter: Annotated[
        str | None, Option(help="Character between columns (or: tab, comma, semicolon, pipe, space).")
    ] = None,
    header: Annotated[
        bool | None, Option("--header/--no-header", help="Whether the first line is a header [default: find out].")
    ] = None,
    quote: Annotated[str, Option(help="Character that encloses names, or `none`.")] = '"',
    columns: Annotated[
        str | None, Option(help="Columns by position, as in head,relation,tail,label; `_` for one to ignore.")
    ] = None,
    on_bad_line: Annotated[
        str, Option(help="What to do with a line that cannot be read: `error` or `skip`.")
    ] = "error",
    literals: Annotated[str, Option(help="RDF literals: `skip` (counted) or `keep` as entities.")] = "skip",
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


def _cut(
    *,
    known_facts: Annotated[
        int | None,
        Option(metavar="N", callback=at_least(1), help="Cut every newcomer to N of its facts [default: all]."),
    ] = None,
    known_facts_seed: Annotated[
        int | None, Option(callback=at_least(0), help="Seed that draws the N facts [default: 0].")
    ] = None,
) -> "FactsCut | None":
    """How newcomers are cut, where that was asked for."""
    from newcomer.data.cut import FactsCut

    if known_facts is None and known_facts_seed is not None:
        raise OptionError("--known-facts-seed draws the facts that newcomers keep; say how many with --known-facts")
    return None if known_facts is None else FactsCut(known_facts, known_facts_seed or 0)


takes_cut = takes("cut", _cut)
