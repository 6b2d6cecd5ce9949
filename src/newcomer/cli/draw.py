"""``newcomer draw``: an entity, what is known of it, what rules infer, and the likely answers, as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newcomer.cli.asking import FactsOption, FormatOption, RunArgument, UnknownOption, asked_of, check_format
from newcomer.cli.common import ForceOption, takes_read_options

if TYPE_CHECKING:
    from newcomer.data import ReadOptions


@takes_read_options
def draw(
    run: RunArgument,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    out: Annotated[Path, typer.Option("--out", help="The picture to write: .png, .svg, .pdf.")],
    facts: FactsOption = None,
    file_format: FormatOption = None,
    top: Annotated[int, typer.Option("--top", help="How many answers to show.")] = 5,
    on_unknown_relation: UnknownOption = "error",
    force: ForceOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Draw an entity: known facts solid, virtual neighbours dashed, likely answers highlighted."""
    from newcomer.evaluation.plots import need_matplotlib
    from newcomer.files import exists_already
    from newcomer.predictor.draw import draw as draw_scene
    from newcomer.predictor.draw import scene

    need_matplotlib()  # better known now than after the work
    if out.exists() and not force:
        raise exists_already(out)
    check_format(file_format, facts)
    with asked_of(run, facts, file_format, [entity], False, on_unknown_relation, reading) as asked:
        for model, _ in asked.turns():
            draw_scene(scene(model, entity, top), out)
    typer.echo(f"drawn in {out}")
