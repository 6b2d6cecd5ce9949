"""``newcomer draw``: an entity, its known facts, what rules infer, and the likely answers, as a picture."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.common import check_free
from newcomer.cli.newcomers import NewcomerFacts, takes_facts_of_one


@takes_facts_of_one
def draw(
    run: options.RunArgument,
    entity: Annotated[str, Argument(metavar="ENTITY", help="A seen entity, or a newcomer of --facts.")],
    out: Annotated[Path, Option(help="The picture to write: .png, .svg, .pdf.")],
    top: Annotated[int, Option(help="How many answers to show.")] = 5,
    force: options.Force = False,
    *,
    newcomers: NewcomerFacts,
) -> None:
    """Draw an entity: known facts solid, virtual neighbours dashed, likely answers highlighted."""
    from newcomer.data.plots import need_matplotlib
    from newcomer.predictor.draw import draw as draw_scene
    from newcomer.predictor.draw import scene

    need_matplotlib()  # before the work, not after it
    check_free(out, force)
    newcomers.check()
    for model, _ in newcomers.each(run, [entity]):
        draw_scene(scene(model, entity, top), out)
    typer.echo(f"drawn in {out}")
