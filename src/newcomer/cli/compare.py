"""``newcomer compare``: trained models of the same data, question by question."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli.common import JsonOption, console, print_json, table, takes_read_options, working
from newcomer.cli.evaluate import (
    CLASS_MEASURES,
    MEASURES,
    AnyDataOption,
    Asking,
    CandidatesOption,
    DataOption,
    DeviceOption,
    FilterOption,
    FullOption,
    TiesOption,
    case_of,
    cells_of,
    data_of,
    figure,
    read_run,
)
from newcomer.cli.rules import SeedOption, ThreadsOption, progress

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.evaluation.comparison import ComparedModel
    from newcomer.evaluation.measure import Evaluation
    from newcomer.evaluation.ranking import RankingProtocol
    from newcomer.evaluation.report import Report
    from newcomer.models.bundle import Bundle


@takes_read_options
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="Folders of trained models.")],
    metric: Annotated[
        str, typer.Option("--metric", help="mrr, hits@1, hits@3, hits@10, mr, amri, or accuracy.")
    ] = "mrr",
    data: DataOption = None,
    any_data: AnyDataOption = False,
    filter_name: FilterOption = None,
    full_graph: FullOption = None,
    candidates: CandidatesOption = None,
    ties: TiesOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Measure models of the same data on the same questions, and say how sure their differences are."""
    from newcomer.errors import OptionError
    from newcomer.evaluation.comparison import metric_task
    from newcomer.evaluation.measure import RANKING

    if len(runs) < 2:
        raise OptionError(f"only {runs[0]} is named, and a comparison needs two models; name another one")
    task = metric_task(metric)
    asking = Asking(filter_name, full_graph, candidates, ties)
    protocol = asking.protocol
    bundles = [read_run(run) for run in runs]
    check_one_data_set(runs, bundles)
    dataset = data_of(runs[0], bundles[0], data, any_data, reading)
    cases = [case_of(bundle, dataset, device, threads, seed) for bundle in bundles]
    if task == RANKING:
        entrants = _rivals_by_rank(cases, protocol, asking, metric)
    else:
        asking.refuse()
        entrants = _rivals_by_label(cases)
    report = _comparison(runs, cases, entrants, metric, protocol if task == RANKING else None)
    print_json(report) if as_json else _print_comparison(report)


def check_one_data_set(runs: Sequence[Path], bundles: "Sequence[Bundle]") -> None:
    """Refuse models that were trained on different data."""
    from newcomer.errors import DatasetError, shown

    first = bundles[0].manifest
    for run, bundle in zip(runs, bundles, strict=True):
        if bundle.manifest.dataset_hash != first.dataset_hash:
            names = shown(bundle.manifest.dataset_name), shown(first.dataset_name)
            content = " of other content" if names[0] == names[1] else ""
            raise DatasetError(
                f"{run}: was trained on {names[0]}{content}, but {runs[0]} on {names[1]}; "
                "only models of the same data can be compared"
            )


def _rivals_by_rank(
    cases: "Sequence[Evaluation]", protocol: "RankingProtocol", asking: Asking, metric: str
) -> "list[ComparedModel]":
    from newcomer.evaluation.comparison import compare_rankings
    from newcomer.evaluation.measure import headline, rank_test

    full, results = asking.graph(cases[0].dataset), []
    for place, case in enumerate(cases):
        with progress(f"ranking {place + 1}/{len(cases)}") as advance:
            results.append(headline(rank_test(case, protocol, full, progress=advance).model[0]))
    return compare_rankings(results, metric, cases[0].seed)


def _rivals_by_label(cases: "Sequence[Evaluation]") -> "list[ComparedModel]":
    from newcomer.evaluation.comparison import compare_classifications
    from newcomer.evaluation.measure import classify_test

    with working("classifying"):
        return compare_classifications([classify_test(case) for case in cases], cases[0].seed)


def _comparison(
    runs: Sequence[Path],
    cases: "Sequence[Evaluation]",
    entrants: "Sequence[ComparedModel]",
    metric: str,
    protocol: "RankingProtocol | None",
) -> "Report":
    from newcomer.evaluation.comparison import metric_task

    return {
        "task": metric_task(metric),
        "dataset": cases[0].dataset.name,
        "metric": metric,
        "filter": None if protocol is None else protocol.filter,
        "candidates": None if protocol is None else protocol.candidates,
        "evaluation_seed": cases[0].seed,
        "runs": [_entrant(run, case, entrant) for run, case, entrant in zip(runs, cases, entrants, strict=True)],
    }


def _entrant(run: Path, case: "Evaluation", entrant: "ComparedModel") -> "Report":
    from newcomer.evaluation.report import json_ready, model_name

    config = case.bundle.config
    report = {
        "run": str(run),
        "model": model_name(config),
        "protocol": config.protocol,
        "seed": config.seed,
        "metrics": dict(entrant.metrics),
        "value": entrant.value,
        "interval": asdict(entrant.interval),
        "against_first": None if entrant.comparison is None else asdict(entrant.comparison),
    }
    return json_ready(report)


def _print_comparison(report: "Report") -> None:
    measures = MEASURES if report["filter"] is not None else CLASS_MEASURES
    metric = report["metric"]
    name = measures.get(metric, metric)
    under = f", {report['filter']} filter, {report['candidates']} candidates" if report["filter"] else ""
    title = f"{report['dataset']}{under}: {name} against {report['runs'][0]['run']}"
    titles = ("run", "model", "protocol", "seed", *measures.values(), "difference", "p")
    rows = [
        (
            run["run"],
            run["model"],
            run["protocol"],
            str(run["seed"]),
            *cells_of(run["metrics"], measures),
            *_against(run),
        )
        for run in report["runs"]
    ]
    console().print(table(title, titles, rows))
    typer.echo("figures in percent, ranks as they are; differences with their 95 % interval over resampled questions")
    protocols = {run["protocol"] for run in report["runs"]}
    if len(protocols) > 1:
        typer.echo(f"protocols differ ({', '.join(sorted(protocols))}): what was known in training differs, too")


def _against(run: Mapping[str, Any]) -> tuple[str, str]:
    found = run["against_first"]
    if found is None:
        return "", ""
    metric, interval = found["metric"], found["interval"]
    ends = f"{figure(metric, interval['low'])} to {figure(metric, interval['high'])}"
    p_value = "-" if found["p_value"] is None else f"{found['p_value']:.3f}"
    return f"{figure(metric, found['difference'])} ({ends})", p_value
