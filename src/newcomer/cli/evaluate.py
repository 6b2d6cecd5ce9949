"""``newcomer evaluate``: a trained model measured on test, on the screen and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newcomer.cli.common import check_free, load, print_json, progress, working
from newcomer.cli.options import (
    AnyDataOption,
    CandidatesOption,
    DataOption,
    DeviceOption,
    FilterOption,
    ForceOption,
    FullOption,
    JsonOption,
    KnownFactsOption,
    KnownFactsSeedOption,
    RunArgument,
    SeedOption,
    ThreadsOption,
    TiesOption,
    takes,
    takes_read_options,
)
from newcomer.cli.reports import print_report

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.cut import FactsCut
    from newcomer.evaluation.ranking import RankingProtocol
    from newcomer.graph import InductiveDataset
    from newcomer.models.bundle import Bundle


@dataclass(frozen=True)
class RankingOptions:
    """The options that only a ranking takes, as they were given."""

    filter: str | None
    full_graph: str | None
    candidates: str | None
    ties: str | None

    @property
    def protocol(self) -> "RankingProtocol":
        """What they say about ranks."""
        from newcomer.errors import OptionError
        from newcomer.evaluation.ranking import RankingProtocol

        if self.filter == "full" and self.full_graph is None:
            raise OptionError("--filter full needs the original graph with all true facts; name it with --full-graph")
        return RankingProtocol(self.filter or "known", self.candidates or "all", self.ties or "mean")

    def refuse(self, **others: object) -> None:
        """Complain about any of them, and of others: the task is another one."""
        from newcomer.errors import OptionError

        for name, value in {**vars(self), **others}.items():
            if value:
                option = f"--{name.replace('_', '-')}" + (f" {value}" if name == "by" else "")
                hint = "leave it out, or pass --task link-prediction"
                raise OptionError(f"triple classification knows no {option}; {hint}")


def _ranking_options(
    *,
    filter_name: FilterOption = None,
    full_graph: FullOption = None,
    candidates: CandidatesOption = None,
    ties: TiesOption = None,
) -> RankingOptions:
    return RankingOptions(filter_name, full_graph, candidates, ties)


takes_ranking_options = takes("ranking", _ranking_options)


@takes_read_options
@takes_ranking_options
def evaluate(
    run: RunArgument,
    data: DataOption = None,
    any_data: AnyDataOption = False,
    task: Annotated[
        str | None,
        typer.Option(
            "--task", help="link-prediction or triple-classification [default: the latter where test has labels]."
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Also by relation, class, facts, frequency, linked or evidence; may be repeated."),
    ] = None,
    rules_row: Annotated[
        bool, typer.Option("--rules-row", help="Also rank by the rules alone and by the embedding alone.")
    ] = False,
    ranks: Annotated[
        Path | None, typer.Option("--ranks", help="Write the rank of every answer to a Parquet file.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FOLDER", help="Draw pictures (PNG) into it.")] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(
            "--thresholds",
            help="When a triple counts as true: newcomers (its score reaches the threshold found on held-out "
            "newcomers), valid (the threshold found on valid) or probabilities (its probability is at least a half) "
            "[default: valid; for newcomers, where the model has thresholds for them, probabilities if its classifier "
            "learned from labels, else newcomers].",
        ),
    ] = None,
    known_facts: KnownFactsOption = None,
    known_facts_seed: KnownFactsSeedOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where the report goes [default: RUN/result.json].")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    as_json: JsonOption = False,
    *,
    ranking: RankingOptions,
    reading: "ReadOptions",
) -> None:
    """Measure a trained model on the test part of its data set."""
    from newcomer.api import evaluate as measure
    from newcomer.errors import OptionError
    from newcomer.evaluation.measure import CLASSIFICATION, default_task
    from newcomer.evaluation.report import result_path, write_report

    groups = list(dict.fromkeys(by or ()))
    check_names(task, groups, thresholds)
    protocol, cut = ranking.protocol, facts_cut(known_facts, known_facts_seed)
    check_outputs(run, ranks, plot, out, force)
    bundle = read_run(run)
    dataset = data_of(run, bundle, data, any_data, reading)
    chosen = task or default_task(dataset)
    if chosen == CLASSIFICATION:
        other = next((name for name in groups if name != "relation"), None)
        ranking.refuse(rules_row=rules_row, ranks=ranks, by=other)
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
    print_json(report) if as_json else print_report(report)
    if rules_row and not report["rules"]:
        typer.echo("newcomer: the model has no rules that could be ranked by alone", err=True)
    place = out if out is not None else result_path(run, chosen, dataset)
    write_report(report, place)
    if not as_json:
        typer.echo(f"the report is in {place}")


def check_names(task: str | None, groups: Sequence[str], thresholds: str | None = None) -> None:
    """Refuse names that do not exist."""
    from newcomer.errors import unknown_name
    from newcomer.evaluation.breakdown import BREAKDOWNS
    from newcomer.evaluation.measure import TASKS, THRESHOLDS

    if thresholds is not None and thresholds not in THRESHOLDS:
        raise unknown_name("kind of thresholds", thresholds, THRESHOLDS)
    if task is not None and task not in TASKS:
        raise unknown_name("task", task, TASKS)
    for name in groups:
        if name not in BREAKDOWNS:
            raise unknown_name("breakdown", name, BREAKDOWNS)


def check_outputs(run: Path, ranks: Path | None, plot: Path | None, out: Path | None, force: bool) -> None:
    """Refuse what cannot be written before the work is done, not after."""
    from newcomer.errors import OutputError
    from newcomer.files import looking_at

    if ranks is not None and ranks.suffix.lower() != ".parquet":
        raise OutputError(f"{ranks}: ranks are written as Parquet; give a name that ends in .parquet")
    for path in (path for path in (ranks, out) if path is not None):
        _keep_out_of(run, path)
        check_free(path, force)
    if plot is not None:
        from newcomer.evaluation.plots import need_matplotlib

        need_matplotlib()
        _keep_out_of(run, plot)
        with looking_at(plot):
            if plot.exists() and not plot.is_dir():
                raise OutputError(f"{plot}: is not a folder; choose another place for the pictures")


def _keep_out_of(run: Path, path: Path) -> None:
    """A model's folder holds the model and its results: with anything else in it, it would not be read again."""
    from newcomer.errors import OutputError
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
    from newcomer.errors import DatasetError, OptionError, shown
    from newcomer.evaluation.measure import check_same_data

    name = bundle.dataset_name
    if data is None:
        try:
            locate(name)
        except (DatasetError, OptionError):
            raise DatasetError(
                f"{run}: was trained on {shown(name)}, and no data set of that name is found here; "
                "name its place with --data"
            ) from None
    dataset = load(data if data is not None else name, reading).dataset
    if not any_data:
        check_same_data(bundle, dataset, run, data if data is not None else name)
    return dataset


def facts_cut(known_facts: int | None, seed: int | None) -> "FactsCut | None":
    """How newcomers are cut, where that was asked for."""
    from newcomer.data.cut import FactsCut
    from newcomer.errors import OptionError

    if known_facts is None and seed is not None:
        raise OptionError("--known-facts-seed draws the facts that newcomers keep; say how many with --known-facts")
    return None if known_facts is None else FactsCut(known_facts, seed or 0)
