"""The paper's figure of link prediction over the share of newcomers, drawn from results (extra ``plots``)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from newcomer.data.plots import need_matplotlib
from newcomer.evaluation.plots import save_picture
from newcomer.reproduction.plans import Plan, Run
from newcomer.reproduction.stored import Result
from newcomer.reproduction.tables import METRIC_NAMES, Row, figure_of, rows_of

PICTURE = "unseen-share.png"
STYLES = {
    "mean": ("#4477aa", "o"),
    "lstm": ("#228833", "s"),
    "lan": ("#ccbb44", "^"),
    "vn": ("#ee6677", "D"),
}
OTHERS = ("#777777", "x")

Points = list[tuple[int, float]]


def share_lines(run: Run, rows: Sequence[Row], metric: str) -> Mapping[str, Points]:
    """(share in percent, figure) of each model, by label; the share is the number at the end of a data set's name."""
    lines: dict[str, Points] = {}
    for row in rows:
        figure = figure_of(row, metric)
        if row.dataset in run.datasets and row.protocol in run.protocols and figure is not None:
            share = int(row.dataset.rpartition("-")[2])
            lines.setdefault(row.label, []).append((share, figure.value))
    return {label: sorted(points) for label, points in lines.items()}


def draw_shares(plan: Plan, results: Sequence[Result], path: Path) -> None:
    """A panel a metric and side, a line a model."""
    pyplot = need_matplotlib()
    rows = rows_of(results)
    size = len(plan.metrics), len(plan.runs)
    figure, panels = pyplot.subplots(*size, figsize=(4.2 * size[1], 3.2 * size[0]), squeeze=False)
    for metric, across in zip(plan.metrics, panels, strict=True):
        for run, axes in zip(plan.runs, across, strict=True):
            _draw(axes, share_lines(run, rows, metric))
            axes.set(title=f"FB15K {run.title}-R", xlabel="R (%)", ylabel=f"{METRIC_NAMES[metric]} (%)")
    save_picture(figure, path)


def _draw(axes: Any, lines: Mapping[str, Points]) -> None:
    for label, points in lines.items():
        colour, marker = STYLES.get(label, OTHERS)
        shares, values = zip(*points, strict=True)
        axes.plot(shares, values, color=colour, marker=marker, label=label)
    if lines:
        axes.legend()
        axes.set_xticks(sorted({share for points in lines.values() for share, _ in points}))
