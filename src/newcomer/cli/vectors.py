"""``newcomer embed`` and ``newcomer similar``: vectors of newcomers and of all others."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from newcomer.cli.answer_files import VECTOR_ENDINGS, check_out, vector_file
from newcomer.cli.common import print_table
from newcomer.cli.newcomers import NewcomerFacts, takes_facts_of_one, takes_newcomers
from newcomer.cli.options import EntityOption, ForceOption, RunArgument, TopOption


@takes_newcomers
def embed(
    run: RunArgument,
    out: Annotated[Path, typer.Option("--out", help="The file to write: .parquet, .tsv or .npy (names beside it).")],
    entity: EntityOption = None,
    relation: Annotated[
        str | None, typer.Option("--relation", help="Vectors as they are for queries about this relation.")
    ] = None,
    force: ForceOption = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Write the vectors of newcomers (or of any entities named)."""
    check_out(out, VECTOR_ENDINGS, "vectors", force)
    newcomers.check()
    with newcomers.open(run, entity) as queried, vector_file(out) as file:
        for model, names in queried.batches():
            for name in names:
                file.add(name, model.embed(name, relation))
    typer.echo(f"written {file.count:,} vector{'' if file.count == 1 else 's'} of {file.dim} numbers to {out}")


@takes_facts_of_one
def similar(
    run: RunArgument,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    top: TopOption = 10,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """The entities whose vectors point most nearly the same way."""
    newcomers.check()
    with replace(newcomers, together=True).open(run, [entity]) as queried:
        for model, _ in queried.batches():
            print_table(f"most similar to {entity}", ("entity", "cosine"), model.similar(entity, top))
