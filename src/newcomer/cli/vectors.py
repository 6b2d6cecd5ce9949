"""``newcomer embed`` and ``newcomer similar``: vectors of newcomers and of all others."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.answer_files import VECTOR_ENDINGS, check_out, write_vectors
from newcomer.cli.common import print_table
from newcomer.cli.newcomers import NewcomerFacts, takes_facts_of_one, takes_newcomers


@takes_newcomers
def embed(
    run: options.RunArgument,
    out: Annotated[Path, Option(help="The file to write: .parquet, .tsv or .npy (names beside it).")],
    entity: options.Entity = None,
    relation: Annotated[str | None, Option(help="Vectors as they are for queries about this relation.")] = None,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Write the vectors of newcomers (or of any entities named)."""
    check_out(out, VECTOR_ENDINGS, "vectors", force)
    newcomers.check()
    vectors = ((name, model.embed(name, relation)) for model, name in newcomers.each(run, entity))
    count, dim = write_vectors(out, vectors)
    typer.echo(f"written {count:,} vector{'' if count == 1 else 's'} of {dim} numbers to {out}")


@takes_facts_of_one
def similar(
    run: options.RunArgument,
    entity: Annotated[str, Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    top: options.Top = 10,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """The entities whose vectors point most nearly the same way."""
    newcomers.check()
    for model, _ in replace(newcomers, together=True).each(run, [entity]):
        print_table(f"most similar to {entity}", ("entity", "cosine"), model.similar(entity, top))
