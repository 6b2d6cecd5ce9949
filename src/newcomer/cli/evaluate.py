"""``newcomer evaluate``: a trained model measured on test, on the screen and as JSON."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from newcomer.cli import options
from newcomer.cli.common import check_free, cut_commands, load, print_json, progress, working
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


RANKING, CLASSIFICATION, SUGGESTION = "link-prediction", "triple-classification", "suggest"
DOING = {RANKING: "ranking", CLASSIFICATION: "classifying", SUGGESTION: "asking for suggestions"}
SUITS = {  # the tasks that know an option
    "filter": (RANKING, SUGGESTION),
    "full_graph": (RANKING, SUGGESTION),
    "candidates": (RANKING,),
    "ties": (RANKING,),
    "rules_row": (RANKING,),
    "ranks": (RANKING,),
    "thresholds": (CLASSIFICATION,),
    "newcomers": (SUGGESTION,),
}
BREAKDOWNS_OF = {CLASSIFICATION: ("relation",), SUGGESTION: ("facts", "relation")}  # a ranking knows all


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

    def refuse(self, task: str, by: Sequence[str] = ()) -> None:
        """Complain about any of them, and of breakdowns, that the task does not know."""
        stated = {f"--{name.replace('_', '-')}": SUITS[name] for name, value in vars(self).items() if value}
        stated |= {
            f"--by {name}": (RANKING, *(one for one in BREAKDOWNS_OF if name in BREAKDOWNS_OF[one])) for name in by
        }
        for option, tasks in stated.items():
            if task not in tasks:
                hint = f"leave it out, or pass --task {tasks[0]}"
                raise OptionError(f"{task.replace('-', ' ')} knows no {option}; {hint}")


@dataclass(frozen=True)
class TaskOptions(RankingOptions):
    """These and all others that not every task takes."""

    rules_row: Annotated[
        bool, Option("--rules-row", help="Also rank by the rules alone and by the embedding alone.")
    ] = False
    ranks: Annotated[Path | None, Option(help="Write the rank of every answer to a Parquet file.")] = None
    thresholds: Annotated[
        str | None,
        Option(
            help="When a triple counts as true: newcomers (its score reaches the threshold found on held-out "
            "newcomers), valid (the threshold found on valid) or probabilities (its probability is at least a half) "
            "[default: valid; for newcomers, where the model has thresholds for them, probabilities if its classifier "
            "learned from labels, else newcomers]."
        ),
    ] = None
    newcomers: Annotated[
        int | None,
        Option(
            callback=options.at_least(1),
            help="Newcomers asked about, drawn by the seed (task suggest) [default: 300].",
        ),
    ] = None


takes_ranking_options = takes("ranking", RankingOptions)
takes_task_options = takes("chosen", TaskOptions)

Task = Annotated[
    str | None,
    Option(
        help="link-prediction, triple-classification [default: the latter where test has labels], or suggest: what is "
        "suggested of newcomers with half of their relations masked."
    ),
]
By = Annotated[
    list[str] | None, Option(help="Also by relation, class, facts, frequency, linked or evidence; may be repeated.")
]
Plot = Annotated[Path | None, Option(metavar="FOLDER", help="Draw pictures (PNG) into it.")]
Out = Annotated[Path | None, Option(help="Where the report goes [default: RUN/result.json].")]


@takes_read_options
@takes_task_options
@takes_cut
def evaluate(
    run: options.RunArgument,
    data: options.Data = None,
    any_data: options.AnyData = False,
    task: Task = None,
    by: By = None,
    plot: Plot = None,
    out: Out = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    cut: "FactsCut | None",
    chosen: TaskOptions,
    reading: "ReadOptions",
) -> None:
    """Measure a trained model on the test part of its data set."""
    from newcomer.api import evaluate as measure
    from newcomer.evaluation.measure import default_task
    from newcomer.evaluation.report import result_path

    groups = list(dict.fromkeys(by or ()))
    _check_names(task, chosen.thresholds, groups)
    protocol = chosen.protocol
    check_outputs(run, chosen.ranks, plot, out, force)
    bundle = read_run(run)
    dataset = data_of(run, bundle, data, any_data, reading)
    task = task or default_task(dataset)
    chosen.refuse(task, groups)
    with progress(DOING[task]) as advance:
        report = measure(
            bundle,
            dataset,
            task=task,
            protocol=protocol,
            full_graph=chosen.full_graph,
            by=groups,
            parts=chosen.rules_row,
            cut=cut,
            any_data=True,  # checked already, with the names that the user gave
            device=device,
            threads=threads,
            seed=seed,
            plot=plot,
            progress=advance,
            **{name: getattr(chosen, name) for name in ("thresholds", "newcomers", "ranks")},
        )
    _give(report, out or result_path(run, task, dataset), chosen.rules_row, as_json)


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
    from newcomer.files import looking_at, must_be_writable

    if ranks is not None and ranks.suffix.lower() != ".parquet":
        raise OutputError(f"{ranks}: ranks are written as Parquet; give a name that ends in .parquet")
    for path in (path for path in (ranks, out) if path is not None):
        _keep_out_of(run, path)
        must_be_writable(path)
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
            hint = "name its place with --data, or, if it has no test part, see: newcomer split --help"
            raise DatasetError(f"{run}: {problem}; {hint}") from None
    dataset = load(place, reading).dataset
    if not any_data:
        check_same_data(bundle, dataset, run, place)
    if len(dataset.test) == 0:
        commands = " && ".join(cut_commands(place, dataset.name))
        raise DatasetError(
            f"{place} has no test part to evaluate on; cut newcomers out and train on the rest: {commands}"
        )
    return dataset
