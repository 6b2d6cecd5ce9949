"""``newcomer embed`` and ``newcomer similar``: vectors of newcomers and of all others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newcomer.cli.asking import (
    EntityOption,
    FactsOption,
    FormatOption,
    RunArgument,
    TogetherOption,
    UnknownOption,
    asked_of,
    check_format,
)
from newcomer.cli.common import ForceOption, console, table, takes_read_options
from newcomer.cli.written import VECTOR_ENDINGS, check_out, vector_file

if TYPE_CHECKING:
    from newcomer.data import ReadOptions


@takes_read_options
def embed(
    run: RunArgument,
    out: Annotated[Path, typer.Option("--out", help="The file to write: .parquet, .tsv or .npy (names beside it).")],
    facts: FactsOption = None,
    file_format: FormatOption = None,
    entity: EntityOption = None,
    relation: Annotated[str | None, typer.Option("--relation", help="As a question about this relation asks.")] = None,
    together: TogetherOption = False,
    on_unknown_relation: UnknownOption = "error",
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Write the vectors of newcomers (or of any entities named)."""
    check_out(out, VECTOR_ENDINGS, "vectors", force)
    check_format(file_format, facts)
    with (
        asked_of(run, facts, file_format, entity, together, on_unknown_relation, reading) as asked,
        vector_file(out) as file,
    ):
        for model, names in asked.turns():
            for name in names:
                file.add(name, model.embed(name, relation))
    typer.echo(f"written {file.count:,} vector{'' if file.count == 1 else 's'} of {file.dim} numbers to {out}")


@takes_read_options
def similar(
    run: RunArgument,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    facts: FactsOption = None,
    file_format: FormatOption = None,
    top: Annotated[int, typer.Option("--top", help="How many of the best to give.")] = 10,
    on_unknown_relation: UnknownOption = "error",
    *,
    reading: "ReadOptions",
) -> None:
    """The entities whose vectors point most nearly the same way."""
    check_format(file_format, facts)
    with asked_of(run, facts, file_format, [entity], True, on_unknown_relation, reading) as asked:
        for model, _ in asked.turns():
            console().print(table(f"most like {entity}", ("entity", "cosine"), model.similar(entity, top)))
