"""Pictures of a ranking (extra ``plots``).

How far up the answers come, how that depends on what is known, and how often an answer of some probability is right.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.data.plots import any_letters, need_matplotlib
from newcomer.evaluation.breakdown import breakdown
from newcomer.evaluation.ranking import RankingResult
from newcomer.evaluation.verbs import by_command
from newcomer.files import fresh_file
from newcomer.graph import InductiveDataset

RANKS, FACTS, RELIABILITY = PICTURES = ("ranks.png", "hits-by-facts.png", "reliability.png")
SUGGESTIONS, COMMANDS = "suggestions.png", "commands.png"
LAST_OF_BIN = (1, 3, 10, 30, 100, 300, 1000)
PANELS = {"shown": "ten best answers", "first": "first answers", "triples": "triples"}  # of a reliability diagram
COLOURS = ("#4477aa", "#ee6677", "#228833")


def plot_ranking(results: dict[str, RankingResult], dataset: InductiveDataset, title: str, folder: Path) -> list[Path]:
    """Draw one or two rankings of the same questions, by name; gives the files."""
    groups = {name: breakdown(result, dataset, by=["facts"]) for name, result in results.items()}
    first = next(iter(groups.values()))
    labels = [f"{group['group']}\n({group['queries']:,})" for group in first]
    hits = {name: [100 * group["hits@10"] for group in members] for name, members in groups.items()}
    shares = {name: rank_shares(result.ranks) for name, result in results.items()}
    _bars(folder / RANKS, title, list(rank_bins()), shares, ("rank of the answer", "questions (%)"))
    _bars(folder / FACTS, title, labels, hits, ("known facts of the entity (questions)", "Hits@10 (%)"))
    return [folder / name for name in (RANKS, FACTS)]


def plot_reliability(calibration: Mapping[str, Any], title: str, folder: Path) -> Path:
    """Draw the share of right answers over their probability, from a report's ``calibration``; gives the file."""
    panels = [
        (PANELS[part], [_line(calibration[part], when) for when in ("after", "before")])
        for part in PANELS
        if part in calibration
    ]
    return _draw_reliability(panels, title, folder / RELIABILITY)


def plot_suggestions(report: Mapping[str, Any], title: str, folder: Path) -> Path:
    """The same of suggestions, the model's beside others; gives the file."""
    listed = [("model", report), *((one["name"], one) for one in report["others"])]
    panels = [
        (title, [(f"{name}{_error(one) if bins == 'bins_first' else ''}", one[bins]) for name, one in listed])
        for title, bins in (("ten likeliest of each newcomer", "bins_first"), ("all suggestions", "bins"))
    ]
    return _draw_reliability(panels, title, folder / SUGGESTIONS)


def plot_commands(report: Mapping[str, Any], title: str, folder: Path) -> Path:
    """The same of each command, with the intervals of the shares, from a report of suggestions; gives the file."""
    panels: dict[str, list[tuple[str, Any]]] = {}
    for name, part in by_command(report):
        command, _, what = name.partition(": ")
        panels.setdefault(command, []).append((f"{what}{_points(part['ece'])}", part["bins"]))
    panels["classify"] = panels["classify"][:1]  # those called true and false are its two halves
    return _draw_reliability(list(panels.items()), title, folder / COMMANDS)


def _error(figures: Mapping[str, Any]) -> str:
    return _points(figures["metrics"]["ece"])


def _points(error: float | None) -> str:
    return "" if error is None else f" (error {100 * error:.1f} points)"


def _line(part: Mapping[str, Any], when: str) -> tuple[str, Any]:
    return f"{when} calibration (error {100 * (part[f'ece_{when}'] or 0):.1f} points)", part[f"bins_{when}"]


def _draw_reliability(panels: Sequence[tuple[str, Any]], title: str, path: Path) -> Path:
    """A panel with a line for each list of bins that holds any, by name."""
    pyplot = need_matplotlib()
    figure, grid = pyplot.subplots(1, len(panels), figsize=(4.75 * len(panels), 4.6), sharey=True, squeeze=False)
    for axes, (name, lines) in zip(grid[0], panels, strict=True):
        axes.plot([0, 1], [0, 1], color="#bbbbbb", linestyle="--", label="as it should be")
        for (label, bins), colour in zip(lines, COLOURS, strict=False):
            if bins:
                points = [one["probability"] for one in bins], [one["right"] for one in bins]
                axes.plot(*points, color=colour, marker="o", label=label)
                if "right_low" in bins[0]:
                    ends = ([one[end] for one in bins] for end in ("right_low", "right_high"))
                    axes.vlines(points[0], *ends, color=colour, alpha=0.4)
        axes.set(title=name, xlabel="probability", xlim=(0, 1), ylim=(0, 1))
        axes.legend(fontsize="small", framealpha=0.5)  # points lie beneath
    grid[0][0].set_ylabel("share that is right")
    figure.suptitle(title, parse_math=False)
    save_picture(figure, path)
    return path


def rank_bins() -> tuple[str, ...]:
    """The bins of ranks in words: 1, 2-3, 4-10 and so on."""
    starts = [last + 1 for last in LAST_OF_BIN]
    inner = [f"{start}-{last}" for start, last in zip(starts, LAST_OF_BIN[1:], strict=False)]
    return (str(LAST_OF_BIN[0]), *inner, f"above {LAST_OF_BIN[-1]}")


def rank_shares(ranks: npt.NDArray[np.float64]) -> list[float]:
    """Percent of the ranks in each bin; a rank shared by a tie, such as 3.5, belongs to the bin of the next whole."""
    bins = np.searchsorted(LAST_OF_BIN, ranks)
    counts = np.bincount(bins, minlength=len(LAST_OF_BIN) + 1)
    shares: list[float] = (100 * counts / max(len(ranks), 1)).tolist()
    return shares


def _bars(
    path: Path, title: str, labels: list[str], heights: dict[str, list[float]], axes_names: tuple[str, str]
) -> None:
    pyplot = need_matplotlib()
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2))
    width = 0.8 / len(heights)
    for place, (name, values) in enumerate(heights.items()):
        left = np.arange(len(labels)) + (place - (len(heights) - 1) / 2) * width
        axes.bar(left, values, width, label=name, color=COLOURS[place % len(COLOURS)])
    axes.set_xticks(np.arange(len(labels)), labels)
    axes.set(xlabel=axes_names[0], ylabel=axes_names[1])
    axes.set_title(title, parse_math=False)
    axes.legend()
    save_picture(figure, path)


def save_picture(figure: Any, path: Path) -> None:
    """Write a figure as a PNG file that does not name the program that drew it, and close it."""
    try:
        with any_letters(), fresh_file(path) as partial:
            figure.tight_layout()
            figure.savefig(partial, format="png", dpi=130, metadata={"Software": None})
    finally:
        need_matplotlib().close(figure)
