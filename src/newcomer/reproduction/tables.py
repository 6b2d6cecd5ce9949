"""Figures of results as cells of a Markdown table, and drawn: ours with its interval, the paper's, the difference.

One seed: the figure with its bootstrap interval over questions. Several: the mean over seeds with the smallest and the
largest. The paper's figures are in percent but for ranks and counts, as it prints them; those of results are fractions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from newcomer.data.plots import need_matplotlib
from newcomer.evaluation.plots import save_picture
from newcomer.evaluation.verbs import bands_of, by_command
from newcomer.reproduction.plans import Plan, Run
from newcomer.reproduction.stored import Result

RATIOS = {"neighbours_before": "before", "neighbours_after": "after"}
COUNTS = ("train", "aux", "newcomers", "valid", "test")
METRIC_NAMES = {
    **{"mr": "MR", "mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "accuracy": "accuracy"},
    **{name: name for name in COUNTS},
    **RATIOS,
    **{"precision@0.5": "right from 0.5", "recall@0.5": "found from 0.5", "precision@0.9": "right from 0.9"},
    **{"right": "right of ten", "ece": "error", "second_values": "second values"},
}
NONE = "-"
STYLES = {  # of the lines of the figure
    "mean": ("#4477aa", "o"),
    "lstm": ("#228833", "s"),
    "lan": ("#ccbb44", "^"),
    "vn": ("#ee6677", "D"),
}
OTHERS = ("#777777", "x")
PICTURE = "unseen-share.png"

Figures = Mapping[str, Any]  # of a result or a part of it: ``metrics`` and ``intervals``
Paper = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]


@dataclass(frozen=True)
class Figure:
    """A figure in the units of the paper, and how far it may be off."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Row:
    """The results of one model on one data set under one protocol, a result a seed."""

    dataset: str
    label: str
    protocol: str
    results: tuple[Result, ...]

    @property
    def seeds(self) -> str:
        return ", ".join(str(result["seed"]) for result in self.results)


def rows_of(results: Sequence[Result], order: Sequence[tuple[str, str, str]] = ()) -> list[Row]:
    """Results by data set, label and protocol; first those of the order given, then the rest by name."""
    groups: dict[tuple[str, str, str], list[Result]] = {key: [] for key in order}
    for result in sorted(results, key=lambda one: (one["dataset"], one["label"], one["protocol"], one["seed"])):
        groups.setdefault((result["dataset"], result["label"], result["protocol"]), []).append(result)
    return [Row(*key, tuple(found)) for key, found in groups.items() if found]


def figure_of(row: Row, metric: str, part: str = "ours") -> Figure | None:
    """A metric of a row, or of one of the `PARTS` of its results; `None` where a result lacks it."""
    found = [figures for result in row.results for figures in _part(result, part)]
    values = [_value(figures, metric) for figures in found]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(row.results):
        return None
    if len(known) > 1:
        return Figure(sum(known) / len(known), min(known), max(known))
    ends = found[0].get("intervals", {}).get(metric, ())
    return Figure(known[0], *(in_paper_units(metric, end) for end in ends if end is not None))


def _part(result: Result, part: str) -> Sequence[Figures]:
    full = [other for other in [result.get("also")] if other is not None and other["filter"] == "full"]
    if part == UNLINKED:
        return [{"metrics": other["unlinked"]} for other in full if other.get("unlinked")]
    if part in ALONE:
        return [figures for figures in result.get(ALONE[part]) or () if figures["filter"] == "known"]
    return full if part == FULL else [result]


def _value(figures: Figures, metric: str) -> float | None:
    if metric in COUNTS:
        value = figures["counts"][metric]
        return None if value is None else float(value)
    if metric in RATIOS:
        return (figures["neighbours"] or {}).get(RATIOS[metric])
    value = figures["metrics"].get(metric)
    return None if value is None else in_paper_units(metric, value)


def in_paper_units(metric: str, value: float) -> float:
    """Ranks as they are, fractions in percent."""
    return value if metric == "mr" else 100 * value


def _digits(metric: str) -> int:
    """Digits behind the point, as the paper prints them."""
    if metric in RATIOS:
        return 2
    return 0 if metric == "mr" or metric in COUNTS else 1


def shown_number(metric: str, value: float | None) -> str:
    """A number as it is printed, or a dash."""
    return NONE if value is None else f"{value:z,.{_digits(metric)}f}"


def shown_figure(metric: str, figure: Figure | None) -> str:
    """``46.3 (44.9 to 47.8)``."""
    if figure is None:
        return NONE
    if figure.low is None or figure.high is None:
        return shown_number(metric, figure.value)
    ends = f"{shown_number(metric, figure.low)} to {shown_number(metric, figure.high)}"
    return f"{shown_number(metric, figure.value)} ({ends})"


def shown_difference(metric: str, figure: Figure | None, published: float | None) -> str:
    """Ours minus the paper's, with its sign; taken before rounding."""
    if figure is None or published is None:
        return NONE
    return f"{figure.value - published:+z,.{_digits(metric)}f}"


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, all others to the right."""
    lines = [titles, ["---", *("--:" for _ in titles[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def command_table(result: Result) -> str:
    """How far the probabilities of each command can be believed, from a result that has `verbs`."""
    rows = [
        [name, f"{part['answers']:,}", *(shown_share(part[column]) for column in ("right", "probability", "ece"))]
        for name, part in by_command(result)
    ]
    return markdown_table(["command", "facts", "right", "mean probability", "error"], rows)


def band_table(result: Result) -> str:
    """The same in bands of probability: its mean, the share that is right with its interval, and the facts there."""
    bands = bands_of(result)
    rows = [[name, *(_band(one) for one in found)] for name, found in bands.rows]
    return markdown_table(["probability", *bands.commands], rows)


def _band(row: Figures | None) -> str:
    if row is None:
        return NONE
    middle, right, low, high = (shown_share(row[name]) for name in ("probability", "right", "right_low", "right_high"))
    return f"{middle}: {right} ({low} to {high}), {row['answers']:,}"


def shown_share(value: float | None) -> str:
    """A fraction in percent, or a dash."""
    return NONE if value is None else f"{100 * value:z.1f}"


# The lines of figures that a row may have, and where a result has those of an ensemble's parts.
FULL, UNLINKED = "ours, full filter", "full filter, unlinked pairs"
ALONE = {"embedding alone": "embedding", "rules alone": "rules", "frequency alone": "frequency"}
PARTS = ("ours", FULL, UNLINKED, *ALONE)


def share_lines(run: Run, rows: Sequence[Row], metric: str) -> Mapping[str, list[tuple[int, float]]]:
    """(share in percent, figure) of each model, by label; the share is the number at the end of a data set's name."""
    lines: dict[str, list[tuple[int, float]]] = {}
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


def _draw(axes: Any, lines: Mapping[str, list[tuple[int, float]]]) -> None:
    for label, points in lines.items():
        colour, marker = STYLES.get(label, OTHERS)
        shares, values = zip(*points, strict=True)
        axes.plot(shares, values, color=colour, marker=marker, label=label)
    if lines:
        axes.legend()
        axes.set_xticks(sorted({share for points in lines.values() for share, _ in points}))
