"""Pictures of a data set (extra ``plots``)."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from newcomer.errors import optional, unknown_name
from newcomer.files import fresh_file
from newcomer.graph import Ids, InductiveDataset

SEEN_COLOUR, NEWCOMER_COLOUR = "#4477aa", "#ee6677"


def need_matplotlib() -> Any:
    """The drawing module, or which extra to install."""
    optional("matplotlib", "drawing", "plots").use("Agg")
    from matplotlib import pyplot

    return pyplot


@contextmanager
def any_letters() -> Iterator[None]:
    """Letters that the font lacks are drawn as boxes, without a warning about each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def plot_description(dataset: InductiveDataset, path: Path) -> None:
    """Degree distributions of seen entities and newcomers, and relation frequencies, side by side."""
    pyplot = need_matplotlib()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        pyplot.close(figure)
        raise unknown_name("kind of picture", kind, figure.canvas.get_supported_filetypes())
    _degrees(left, dataset.observed.degrees[dataset.is_seen], "seen entities", SEEN_COLOUR)
    _degrees(left, dataset.auxiliary.degrees[dataset.is_newcomer], "newcomers", NEWCOMER_COLOUR)
    left.set(xscale="log", yscale="log", xlabel="known facts of an entity", ylabel="entities with at least so many")
    left.set_title("How much is known of an entity")
    left.legend()
    _relations(right, np.sort(dataset.observed.relation_counts)[::-1])
    figure.suptitle(dataset.name, parse_math=False)
    try:
        with any_letters(), fresh_file(path) as partial:
            figure.tight_layout()
            figure.savefig(partial, format=kind, dpi=130)
    finally:
        pyplot.close(figure)


def _degrees(axes: Any, degrees: Ids, label: str, colour: str) -> None:
    """How many entities have at least so many facts; between two degrees it is as many as at the higher one."""
    if len(degrees):
        values, counts = np.unique(degrees, return_counts=True)
        at_least = counts[::-1].cumsum()[::-1]
        axes.step(values, at_least, where="pre", label=f"{label} ({len(degrees):,})", color=colour)


def _relations(axes: Any, counts: Ids) -> None:
    used = counts[counts > 0]
    axes.plot(np.arange(1, len(used) + 1), used, ".-", color=SEEN_COLOUR)
    axes.set(xscale="log", yscale="log", xlabel="relation, most frequent first", ylabel="triples in train")
    axes.set_title(f"How often each of {len(used):,} relations occurs")
