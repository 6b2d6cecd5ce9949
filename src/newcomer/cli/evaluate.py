"""``newcomer evaluate``: what a trained model is worth, on the screen and as JSON."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.common import ForceOption, JsonOption, console, load, print_json, table, takes_read_options, working
from newcomer.cli.rules import SeedOption, ThreadsOption, at_least, progress

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.data.cut import FactsCut
    from newcomer.evaluation.measure import Evaluation
    from newcomer.evaluation.ranking import RankingProtocol
    from newcomer.evaluation.report import Report
    from newcomer.graph import Graph, InductiveDataset
    from newcomer.models.bundle import Bundle

MEASURES = {"mr": "mean rank", "mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}
CLASS_MEASURES = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1", "auc": "ROC AUC"}
MOST_ROWS = 20  # of a breakdown, on the screen

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")]
DataOption = Annotated[
    str | None, typer.Option("--data", help="The data set [default: the one trained on, found by its name].")
]
AnyDataOption = Annotated[bool, typer.Option("--any-data", help="Allow another data set than the one trained on.")]
FilterOption = Annotated[
    str | None, typer.Option("--filter", help="known (the data set's facts) or full [default: known].")
]
FullOption = Annotated[
    str | None, typer.Option("--full-graph", metavar="GRAPH", help="The original graph: all that is true.")
]
CandidatesOption = Annotated[str | None, typer.Option("--candidates", help="all or seen entities [default: all].")]
TiesOption = Annotated[
    str | None, typer.Option("--ties", help="Rank of a tie: mean, optimistic or pessimistic [default: mean].")
]
ThresholdsOption = Annotated[
    str | None,
    typer.Option(
        "--thresholds",
        help="What makes a triple true: newcomers (a score from thresholds found on held-out ones on), valid (the same "
        "with those of valid) or probabilities (a probability of a half). [default: valid; for newcomers, where the "
        "model has them, probabilities of a network, else newcomers]",
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto (a GPU where there is one), cpu or cuda.")]

KnownFactsOption = Annotated[
    int | None,
    typer.Option(
        "--known-facts", metavar="N", callback=at_least(1), help="Cut every newcomer to N of its facts [default: all]."
    ),
]
KnownFactsSeedOption = Annotated[
    int | None,
    typer.Option("--known-facts-seed", callback=at_least(0), help="Seed that draws the N facts [default: 0]."),
]


@dataclass(frozen=True)
class Asking:
    """The options that only a ranking takes, as they were given."""

    filter: str | None
    full_graph: str | None
    candidates: str | None
    ties: str | None
    rules_row: bool = False
    ranks: Path | None = None
    plot: Path | None = None

    @property
    def protocol(self) -> "RankingProtocol":
        """What they say about ranks."""
        from newcomer.errors import OptionError
        from newcomer.evaluation.ranking import RankingProtocol

        if self.filter == "full" and self.full_graph is None:
            raise OptionError(
                "--filter full needs the original graph, with all that is true; name it with --full-graph"
            )
        return RankingProtocol(self.filter or "known", self.candidates or "all", self.ties or "mean")

    def graph(self, dataset: "InductiveDataset") -> "Graph | None":
        """All that is true, where it was named."""
        from newcomer.data import load_dataset
        from newcomer.evaluation.ranking import align

        if self.full_graph is None:
            return None
        with working("reading the original graph"):
            return align(load_dataset(self.full_graph).known(), dataset)

    def refuse(self, groups: Sequence[str] = ()) -> None:
        """Complain about any of them: the task is another one."""
        from newcomer.errors import OptionError

        given = [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value and name != "plot"]
        given += [f"--by {name}" for name in groups if name != "relation"]
        if given:
            raise OptionError(
                f"triple classification knows no {given[0]}; leave it out, or pass --task link-prediction"
            )


@takes_read_options
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
    filter_name: FilterOption = None,
    full_graph: FullOption = None,
    candidates: CandidatesOption = None,
    ties: TiesOption = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Also by relation, class, facts, frequency, linked or evidence; may be repeated."),
    ] = None,
    rules_row: Annotated[
        bool, typer.Option("--rules-row", help="Also what the rules answer by themselves, and the network.")
    ] = False,
    ranks: Annotated[
        Path | None, typer.Option("--ranks", help="Write the rank of every answer to a Parquet file.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FOLDER", help="Draw pictures (PNG) into it.")] = None,
    thresholds: ThresholdsOption = None,
    known_facts: KnownFactsOption = None,
    known_facts_seed: KnownFactsSeedOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where the report goes [default: RUN/result.json].")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    as_json: JsonOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Measure a trained model on the test part of its data set."""
    from newcomer.errors import OptionError
    from newcomer.evaluation.measure import CLASSIFICATION, default_task
    from newcomer.evaluation.report import result_path, write_report

    started = time.monotonic()
    groups = check_names(task, by, thresholds)
    asking = Asking(filter_name, full_graph, candidates, ties, rules_row, ranks, plot)
    protocol = asking.protocol
    cut = facts_cut(known_facts, known_facts_seed)
    check_outputs(run, ranks, plot, out, force)
    bundle = read_run(run)
    dataset = data_of(run, bundle, data, any_data, reading)
    case = case_of(bundle, dataset, device, threads, seed, cut, thresholds)
    chosen = task or default_task(dataset)
    if thresholds is not None and chosen != CLASSIFICATION:
        raise OptionError("link prediction knows no --thresholds; leave it out, or pass --task triple-classification")
    if chosen == CLASSIFICATION:
        asking.refuse(groups)
        report = _classification(case, plot, groups, started)
    else:
        report = _ranking(case, protocol, asking, groups, started)
    print_json(report) if as_json else _print_report(report)
    if rules_row and not report["rules"]:
        typer.echo("newcomer: the model has no rules that could answer by themselves", err=True)
    place = out if out is not None else result_path(run, chosen, dataset)
    write_report(report, place)
    if not as_json:
        typer.echo(f"the report is in {place}")


def check_names(task: str | None, by: Sequence[str] | None, thresholds: str | None = None) -> list[str]:
    """Refuse names that do not exist; gives the breakdowns, each once."""
    from newcomer.errors import unknown_name
    from newcomer.evaluation.breakdown import BREAKDOWNS
    from newcomer.evaluation.measure import TASKS, THRESHOLDS

    if thresholds is not None and thresholds not in THRESHOLDS:
        raise unknown_name("kind of thresholds", thresholds, THRESHOLDS)

    if task is not None and task not in TASKS:
        raise unknown_name("task", task, TASKS)
    for name in by or ():
        if name not in BREAKDOWNS:
            raise unknown_name("breakdown", name, BREAKDOWNS)
    return list(dict.fromkeys(by or ()))


def check_outputs(run: Path, ranks: Path | None, plot: Path | None, out: Path | None, force: bool) -> None:
    """Say what cannot be written before the work is done, not after."""
    from newcomer.errors import OutputError
    from newcomer.files import exists_already, looking_at

    if ranks is not None and ranks.suffix.lower() != ".parquet":
        raise OutputError(f"{ranks}: ranks are written as Parquet; give a name that ends in .parquet")
    for path in (path for path in (ranks, out) if path is not None):
        _keep_out_of(run, path)
        with looking_at(path):
            if path.is_dir():
                raise OutputError(f"{path}: is a folder; give the name of a file")
            if path.exists() and not force:
                raise exists_already(path)
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
    """The model, with a sign of life."""
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

    name = bundle.manifest.dataset_name
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
        raise OptionError(
            "--known-facts-seed says which facts newcomers are cut to; say to how many with --known-facts"
        )
    return None if known_facts is None else FactsCut(known_facts, seed or 0)


def cut_words(found: Mapping[str, int] | None) -> str:
    """What a title says of newcomers that are cut: nothing where they are not."""
    if found is None:
        return ""
    facts = "fact" if found["most"] == 1 else "facts"
    return f", newcomers cut to {found['most']:,} known {facts}"


def print_cut_note(found: Mapping[str, int] | None) -> None:
    """How much is left of what is known of newcomers, where they are cut."""
    if found is not None:
        everything = found["kept"] + found["withheld"]
        typer.echo(f"{found['kept']:,} of {everything:,} auxiliary facts are known, drawn by seed {found['seed']}")


def case_of(
    bundle: "Bundle",
    dataset: "InductiveDataset",
    device: str,
    threads: int | None,
    seed: int,
    cut: "FactsCut | None" = None,
    thresholds: str | None = None,
) -> "Evaluation":
    """What is measured, with the device by name."""
    from newcomer.evaluation.measure import Evaluation
    from newcomer.models.device import choose_device

    return Evaluation(bundle, dataset, choose_device(device), threads, seed, cut, thresholds)


def _ranking(
    case: "Evaluation", protocol: "RankingProtocol", asking: Asking, groups: Sequence[str], started: float
) -> "Report":
    from newcomer.evaluation.measure import headline, rank_test
    from newcomer.evaluation.report import ranking_report, write_ranks

    full = asking.graph(case.dataset)
    with progress("ranking") as advance:
        ranked = rank_test(case, protocol, full, asking.rules_row, advance)
    report = ranking_report(case, ranked, groups, full, time.monotonic() - started)
    if asking.ranks is not None:
        write_ranks(ranked.model[0], asking.ranks)
    if asking.plot is not None:
        from newcomer.evaluation.plots import plot_ranking, plot_reliability

        drawn = {"model": headline(ranked.model[0])}
        if ranked.rules:
            drawn["rules alone"] = headline(ranked.rules[0])
        title = f"{case.dataset.name}{cut_words(report['known_facts'])}: {protocol}"
        plot_ranking(drawn, case.visible, title, asking.plot)
        plot_reliability(report["calibration"], title, asking.plot)
    return report


def _classification(case: "Evaluation", plot: Path | None, groups: Sequence[str], started: float) -> "Report":
    from newcomer.evaluation.measure import classify_with_probabilities
    from newcomer.evaluation.report import classification_report

    with working("classifying"):
        classified = classify_with_probabilities(case)
    report = classification_report(case, classified, groups, time.monotonic() - started)
    if plot is not None:
        from newcomer.evaluation.plots import plot_reliability

        title = f"{case.dataset.name}{cut_words(report['known_facts'])}: triple classification"
        plot_reliability(report["calibration"], title, plot)
    return report


def _print_report(report: "Report") -> None:
    named = f"{report['model']} ({report['encoder']}, {report['decoder']}), {report['protocol']} protocol"
    title = f"{report['dataset']}: {named}, seed {report['seed']}{cut_words(report['known_facts'])}"
    is_ranking = report["filter"] is not None
    measures = MEASURES if is_ranking else CLASS_MEASURES
    rows = _ranking_rows(report) if is_ranking else _classification_rows(report)
    console().print(table(title, ("", *measures.values()), rows))
    print_cut_note(report["known_facts"])
    _print_ranking_notes(report) if is_ranking else _print_classification_notes(report)
    if is_ranking and report["also"] is not None:
        for part in (report, report["also"]):
            _print_breakdowns(part["breakdowns"], is_ranking, f", {part['filter']} filter")
    else:
        _print_breakdowns(report["breakdowns"], is_ranking)


def _ranking_rows(report: "Report") -> list[Sequence[str]]:
    asked = [("model", report), *(("model", other) for other in [report["also"]] if other)]
    asked += [("network alone", network) for network in report["network"]]
    asked += [("rules alone", rules) for rules in report["rules"]]
    asked += [(f"model, {seen['queries']:,} questions about seen entities", seen) for seen in report["seen"]]
    rows: list[Sequence[str]] = []
    for who, figures in asked:
        rows.append((f"{who}, {figures['filter']} filter", *cells_of(figures["metrics"], MEASURES)))
        rows.append(_interval_row(figures["intervals"], MEASURES))
    if report["ceiling"] is not None:
        rows.append(("ceiling of the known filter", *cells_of(report["ceiling"]["metrics"], MEASURES)))
    return rows


def _classification_rows(report: "Report") -> list[Sequence[str]]:
    cells = cells_of(report["metrics"], CLASS_MEASURES)
    return [("model", *cells), _interval_row(report["intervals"], CLASS_MEASURES)]


def cells_of(metrics: Mapping[str, float | None], measures: Mapping[str, str]) -> tuple[str, ...]:
    """The figures of these measures as cells of a table."""
    return tuple(figure(name, metrics[name]) for name in measures)


def figure(name: str, value: float | None) -> str:
    """A mean rank as it is, all else in percent."""
    if value is None:
        return "-"
    return f"{value:z,.1f}" if name == "mr" else f"{100 * value:z.1f}"


def _interval_row(intervals: Mapping[str, Any], measures: Mapping[str, str]) -> Sequence[str]:
    level = next(iter(intervals.values()))["level"]
    ends = [intervals.get(name) for name in measures]
    cells = [
        "" if end is None else f"{figure(name, end['low'])} to {figure(name, end['high'])}"
        for name, end in zip(measures, ends, strict=True)
    ]
    return (f"  {100 * level:g} % interval", *cells)


def _print_ranking_notes(report: "Report") -> None:
    asked = f"{report['queries']:,} questions; MRR and Hits in percent; candidates: {report['candidates']}"
    typer.echo(f"{asked}; ties at the {report['ties']} rank")
    if report["unknown_relation_queries"]:
        count = f"{report['unknown_relation_queries']:,}"
        typer.echo(f"the model does not have the relation of {count} questions: there all candidates tie")
    _print_training_note(report)
    _print_calibration(report["calibration"])


def _print_calibration(found: Mapping[str, Any]) -> None:
    parts = [("ten best answers", found["shown"]), ("first answers", found["first"])]
    parts += [(f"  of those with {one['group']} known facts", one["first"]) for one in found["known_facts"]]
    _print_probabilities(parts, ("answers", "right"), found["calibrated"])


def _print_triples_calibration(found: Mapping[str, Any]) -> None:
    parts = [("triples", found["triples"])]
    parts += [(f"  about those with {one['group']} known facts", one["triples"]) for one in found["known_facts"]]
    _print_probabilities(parts, ("count", "true"), found["calibrated"])


def _print_probabilities(
    parts: Sequence[tuple[str, Mapping[str, Any]]], counts: Sequence[str], calibrated: bool
) -> None:
    titles = ("percent", *counts, "probability before", "probability after", "error before", "error after")
    names = ("right", "probability_before", "probability_after", "ece_before", "ece_after")
    rows = [(who, part["answers"], *(figure(name, part[name]) for name in names)) for who, part in parts]
    console().print(table("Probabilities, before and after calibration", titles, rows))
    if not calibrated:
        typer.echo("the model is not calibrated: it was trained without validation")


def _print_classification_notes(report: "Report") -> None:
    by = {
        "newcomers": "thresholds from newcomers that were held out of the observed graph",
        "probabilities": "true from a probability of a half on",
        "valid": "thresholds from valid",
    }
    typer.echo(f"{report['queries']:,} triples; figures in percent; {by[report['thresholds']]}")
    if report["made_up_negatives"]:
        parts = " and ".join(report["made_up_negatives"])
        typer.echo(f"{parts} without labels: as many false triples were made up, by seed {report['evaluation_seed']}")
    _print_training_note(report)
    _print_triples_calibration(report["calibration"])


def _print_training_note(report: "Report") -> None:
    if report["trained_on_sha256"] != report["dataset_sha256"]:
        typer.echo("this is not the data set that the model was trained on")


def _print_breakdowns(rows: Sequence[Mapping[str, Any]], is_ranking: bool, under: str = "") -> None:
    for name in dict.fromkeys(row["by"] for row in rows):
        _print_breakdown(f"By {name}{under}", [row for row in rows if row["by"] == name], is_ranking)


def _print_breakdown(title: str, rows: Sequence[Mapping[str, Any]], is_ranking: bool) -> None:
    shown = rows[:MOST_ROWS]
    more = f", {len(shown)} of {len(rows):,}" if len(rows) > len(shown) else ""
    if is_ranking:
        titles: tuple[str, ...] = ("", "questions", "share", *MEASURES.values(), "share of the loss")
        cells: list[Sequence[object]] = [
            (row["group"], row["queries"], _percent(row["share"]), *cells_of(row, MEASURES), _percent(row["lost"]))
            for row in shown
        ]
    else:
        titles = ("", "triples", "true", "accuracy")
        cells = [(row["relation"], row["triples"], row["true"], _percent(row["accuracy"])) for row in shown]
    console().print(table(f"{title}{more}", titles, cells))


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
