"""``newcomer evaluate``: a trained model measured on test, on the screen and as JSON."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from newcomer.cli import options
from newcomer.cli.common import check_free, load, print_json, progress, working
from newcomer.cli.options import takes, takes_cut, takes_read_options
from newcomer.cli.reports import print_report
from newcomer.errors import DatasetError, OptionError, OutputError, check_name, shown

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.cut import FactsCut
    from newcomer.evaluation.ranking import RankingProtocol
    from newcomer.evaluation.report import Report
    from newcomer.graph import InductiveDataset
    from newcomer.models.bundle import Bundle


@dataclass(frozen=True)
class RankingOptions:
    """The options that only a ranking takes, as they were given."""

    filter: Annotated[str | None, Option(help="known (the data set's facts) or full [default: known].")] = None
    full_graph: Annotated[str | None, Option(metavar="GRAPH", help="The original graph with all true facts.")] = None
    candidates: Annotated[str | None, Option(help="all or seen entities [default: all].")] = None
    ties: Annotated[str | None, Option(help="Rank of a tie: mean, optimistic or pessimistic [default: mean].")] = None

    @property
    def protocol(self) -> "RankingProtocol":
        """What they say about ranks."""
        from newcomer.evaluation.ranking import RankingProtocol

        if self.filter == "full" and self.full_graph is None:
            raise OptionError("--filter full needs the original graph with all true facts; name it with --full-graph")
        return RankingProtocol(self.filter or "known", self.candidates or "all", self.ties or "mean")

    def refuse(self, **others: object) -> None:
        """Complain about any of them, and of others: the task is another one."""
        for name, value in {**vars(self), **others}.items():
            if value:
                option = f"--{name.replace('_', '-')}" + (f" {value}" if name == "by" else "")
                hint = "leave it out, or pass --task link-prediction"
                raise OptionError(f"triple classification knows no {option}; {hint}")


takes_ranking_options = takes("ranking", RankingOptions)

Task = Annotated[
    str | None, Option(help="link-prediction or triple-classification [default: the latter where test has labels].")
]
By = Annotated[
    list[str] | None, Option(help="Also by relation, class, facts, frequency, linked or evidence; may be repeated.")
]
RulesRow = Annotated[bool, Option("--rules-row", help="Also rank by the rules alone and by the embedding alone.")]
Ranks = Annotated[Path | None, Option(help="Write the rank of every answer to a Parquet file.")]
Plot = Annotated[Path | None, Option(metavar="FOLDER", help="Draw pictures (PNG) into it.")]
ThresholdsFrom = Annotated[
    str | None,
    Option(
        help="When a triple counts as true: newcomers (its score reaches the threshold found on held-out "
        "newcomers), valid (the threshold found on valid) or probabilities (its probability is at least a half) "
        "[default: valid; for newcomers, where the model has thresholds for them, probabilities if its classifier "
        "learned from labels, else newcomers]."
    ),
]
Out = Annotated[Path | None, Option(help="Where the report goes [default: RUN/result.json].")]


@takes_read_options
@takes_ranking_options
@takes_cut
def evaluate(
    run: options.RunArgument,
    data: options.Data = None,
    any_data: options.AnyData = False,
    task: Task = None,
    by: By = None,
    rules_row: RulesRow = False,
    ranks: Ranks = None,
    plot: Plot = None,
    thresholds: ThresholdsFrom = None,
    out: Out = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    cut: "FactsCut | None",
    ranking: RankingOptions,
    reading: "ReadOptions",
) -> None:
    """Measure a trained model on the test part of its data set."""
    from newcomer.api import evaluate as measure
    from newcomer.evaluation.measure import CLASSIFICATION, default_task
    from newcomer.evaluation.report import result_path

    groups = list(dict.fromkeys(by or ()))
    _check_names(task, thresholds, groups)
    protocol = ranking.protocol
    check_outputs(run, ranks, plot, out, force)
    bundle = read_run(run)
    dataset = data_of(run, bundle, data, any_data, reading)
    chosen = task or default_task(dataset)
    if chosen == CLASSIFICATION:
        ranking.refuse(rules_row=rules_row, ranks=ranks, by=next((one for one in groups if one != "relation"), None))
    elif thresholds is not None:
        raise OptionError("link prediction knows no --thresholds; leave it out, or pass --task triple-classification")
    with progress("ranking" if chosen != CLASSIFICATION else "classifying") as advance:
        report = measure(
            bundle,
            dataset,
            task=chosen,
            protocol=protocol,
            full_graph=ranking.full_graph,
            by=groups,
            parts=rules_row,
            cut=cut,
            thresholds=thresholds,
            any_data=True,  # checked already, with the names that the user gave
            device=device,
            threads=threads,
            seed=seed,
            ranks=ranks,
            plot=plot,
            progress=advance,
        )
    _give(report, out or result_path(run, chosen, dataset), rules_row, as_json)


def _give(report: "Report", place: Path, rules_row: bool, as_json: bool) -> None:
    """Print the report, and write it."""
    from newcomer.evaluation.report import write_report

    print_json(report) if as_json else print_report(report)
    if rules_row and not report["rules"]:
        typer.echo("newcomer: the model has no rules that could be ranked by alone", err=True)
    write_report(report, place)
    if not as_json:
        typer.echo(f"the report is in {place}")


def _check_names(task: str | None, thresholds: str | None, groups: Sequence[str]) -> None:
    """Refuse names that do not exist."""
    from newcomer.evaluation.breakdown import BREAKDOWNS
    from newcomer.evaluation.measure import TASKS, THRESHOLDS

    named = [("kind of thresholds", thresholds, THRESHOLDS), ("task", task, TASKS)]
    for kind, name, known in [*named, *(("breakdown", name, BREAKDOWNS) for name in groups)]:
        if name is not None:
            check_name(kind, name, known)


def check_outputs(run: Path, ranks: Path | None, plot: Path | None, out: Path | None, force: bool) -> None:
    """Refuse what cannot be written before the work is done, not after."""
    from newcomer.files import looking_at

    if ranks is not None and ranks.suffix.lower() != ".parquet":
        raise OutputError(f"{ranks}: ranks are written as Parquet; give a name that ends in .parquet")
    for path in (path for path in (ranks, out) if path is not None):
        _keep_out_of(run, path)
        check_free(path, force)
    if plot is not None:
        from newcomer.data.plots import need_matplotlib

        need_matplotlib()
        _keep_out_of(run, plot)
        with looking_at(plot):
            if plot.exists() and not plot.is_dir():
                raise OutputError(f"{plot}: is not a folder; choose another place for the pictures")
    _keep_apart(*(path for path in (ranks, out, plot) if path is not None))


def _keep_apart(*paths: Path) -> None:
    """No two outputs may take one place; nothing can lie in one that is a file, and pictures come last."""
    places = [Path(os.path.realpath(path)) for path in paths]
    for number, place in enumerate(places):
        if any(place in (other, *other.parents) for other in places[number + 1 :]):
            raise OutputError(f"{paths[number]}: is where another output goes, too; give each a place of its own")


def _keep_out_of(run: Path, path: Path) -> None:
    """A model's folder holds the model and its results: with anything else in it, it would not be read again."""
    from newcomer.files import looking_at
    from newcomer.models.bundle import RESULTS

    with looking_at(path):
        place, folder = path.resolve(), run.resolve()
    if folder in (place, *place.parents) and place not in [folder / name for name in RESULTS]:
        raise OutputError(f"{path}: lies in the folder of the model, which holds nothing else; choose another place")


def read_run(run: Path) -> "Bundle":
    """The model of a folder, with a spinner."""
    from newcomer.models.bundle import read_bundle

    with working(f"reading {run}"):
        return read_bundle(run)


def data_of(
    run: Path, bundle: "Bundle", data: str | None, any_data: bool, reading: "ReadOptions"
) -> "InductiveDataset":
    """The data set that is named, or the one trained on; unless any will do, it must be that one."""
    from newcomer.data import locate
    from newcomer.evaluation.measure import check_same_data

    place = bundle.dataset_name if data is None else data
    if data is None:
        try:
            locate(place)
        except (DatasetError, OptionError):
            problem = f"was trained on {shown(place)}, and no data set of that name is found here"
            raise DatasetError(f"{run}: {problem}; name its place with --data") from None
    dataset = load(place, reading).dataset
    if not any_data:
        check_same_data(bundle, dataset, run, place)
    return dataset
