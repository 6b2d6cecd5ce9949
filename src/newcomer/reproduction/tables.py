"""Figures of results as cells of a Markdown table: ours with its interval, the paper's, the difference.

One seed: the figure with its bootstrap interval over questions. Several: the mean over seeds with the smallest and the
largest. The paper's figures are in percent but for ranks and counts, as it prints them; those of results are fractions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from newcomer.reproduction.stored import Result

METRIC_NAMES = {
    "mr": "MR",
    "mrr": "MRR",
    "hits@1": "Hits@1",
    "hits@3": "Hits@3",
    "hits@10": "Hits@10",
    "accuracy": "accuracy",
    "train": "train",
    "aux": "aux",
    "newcomers": "newcomers",
    "valid": "valid",
    "test": "test",
    "neighbours_before": "before",
    "neighbours_after": "after",
}
RATIOS = ("neighbours_before", "neighbours_after")
COUNTS = ("train", "aux", "newcomers", "valid", "test")
NONE = "-"

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


def figure_of(row: Row, metric: str) -> Figure | None:
    """A metric of a row; `None` where a result lacks it."""
    return _over_seeds(row.results, metric)


def full_figure_of(row: Row, metric: str) -> Figure | None:
    """The same under the full filter."""
    others = [other for result in row.results for other in _under_full_filter(result)]
    return _over_seeds(others, metric) if len(others) == len(row.results) else None


def unlinked_figure_of(row: Row, metric: str) -> Figure | None:
    """The same of questions whose answer no known fact joins to the newcomer, though their relation was observed."""
    others = [other for result in row.results for other in _under_full_filter(result)]
    found = [{"metrics": other["unlinked"]} for other in others if other.get("unlinked")]
    return _over_seeds(found, metric) if len(found) == len(row.results) else None


def _under_full_filter(result: Result) -> Sequence[Mapping[str, Any]]:
    other = result.get("also")
    return [other] if other is not None and other["filter"] == "full" else []


def part_figure_of(row: Row, part: str, metric: str) -> Figure | None:
    """The same of the network or the rules of a model by themselves, under the known filter."""
    found = [one for result in row.results for one in result.get(part) or () if one["filter"] == "known"]
    return _over_seeds(found, metric) if len(found) == len(row.results) else None


def _over_seeds(results: Sequence[Mapping[str, Any]], metric: str) -> Figure | None:
    values = [_value(result, metric) for result in results]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) > 1:
        return Figure(sum(known) / len(known), min(known), max(known))
    low, high = results[0].get("intervals", {}).get(metric) or (None, None)
    if low is None or high is None:
        return Figure(known[0])
    return Figure(known[0], in_paper_units(metric, low), in_paper_units(metric, high))


def _value(result: Mapping[str, Any], metric: str) -> float | None:
    if metric in COUNTS:
        value = result["counts"][metric]
        return None if value is None else float(value)
    if metric in RATIOS:
        ratios = result["neighbours"] or {}
        return ratios.get(metric.removeprefix("neighbours_"))
    value = result["metrics"].get(metric)
    return None if value is None else in_paper_units(metric, value)


def in_paper_units(metric: str, value: float) -> float:
    """Ranks as they are, fractions in percent."""
    return value if metric == "mr" else 100 * value


def digits_of(metric: str) -> int:
    """Digits behind the point, as the paper prints them."""
    if metric in RATIOS:
        return 2
    return 0 if metric == "mr" or metric in COUNTS else 1


def shown_number(metric: str, value: float | None) -> str:
    """A number as it is printed, or a dash."""
    return NONE if value is None else f"{value:z,.{digits_of(metric)}f}"


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
    return f"{figure.value - published:+z,.{digits_of(metric)}f}"


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, all others to the right."""
    lines = [titles, ["---", *("--:" for _ in titles[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
