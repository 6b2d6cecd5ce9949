"""``newcomer compare``: trained models of the same data, question by question."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from newcomer.cli import options
from newcomer.cli.common import print_json, print_table, progress, working
from newcomer.cli.evaluate import CLASSIFICATION, RankingOptions, data_of, read_run, takes_ranking_options
from newcomer.cli.options import takes_read_options
from newcomer.cli.reports import CLASS_MEASURES, MEASURES, between, cells_of, figure
from newcomer.errors import DatasetError, OptionError, shown

if TYPE_CHECKING:
    from newcomer.data import ReadOptions
    from newcomer.evaluation.measure import ComparedModel, Evaluation
    from newcomer.evaluation.ranking import RankingProtocol
    from newcomer.evaluation.report import Report
    from newcomer.models.bundle import Bundle


@takes_read_options
@takes_ranking_options
def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN RUN ...", help="Folders of trained models.")],
    metric: Annotated[str, Option(help="mrr, hits@1, hits@3, hits@10, mr, amri, or accuracy.")] = "mrr",
    data: options.Data = None,
    any_data: options.AnyData = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    *,
    ranking: RankingOptions,
    reading: "ReadOptions",
) -> None:
    """Measure models of the same data on the same questions, and say how sure their differences are."""
    from newcomer.evaluation.measure import RANKING, Evaluation, classify_test, compare_classifications, metric_task
    from newcomer.models.device import choose_device

    if len(runs) < 2:
        raise OptionError(f"only {runs[0]} is named, and a comparison needs two models; name another one")
    task, protocol = metric_task(metric), ranking.protocol
    bundles = [read_run(run) for run in runs]
    _check_one_data_set(runs, bundles)
    dataset = data_of(runs[0], bundles[0], data, any_data, reading)
    cases = [Evaluation(bundle, dataset, choose_device(device), threads, seed) for bundle in bundles]
    if task == RANKING:
        compared = _by_rank(cases, protocol, ranking.full_graph, metric)
    else:
        ranking.refuse(CLASSIFICATION)
        with working("classifying"):
            compared = compare_classifications([classify_test(case) for case in cases], seed)
    report = {
        "task": task,
        "dataset": dataset.name,
        "metric": metric,
        "filter": protocol.filter if task == RANKING else None,
        "candidates": protocol.candidates if task == RANKING else None,
        "evaluation_seed": seed,
        "runs": [_compared(run, case, one) for run, case, one in zip(runs, cases, compared, strict=True)],
    }
    print_json(report) if as_json else _print_comparison(report)


def _check_one_data_set(runs: Sequence[Path], bundles: "Sequence[Bundle]") -> None:
    """Refuse models that were trained on different data."""
    first = bundles[0]
    for run, bundle in zip(runs, bundles, strict=True):
        if bundle.dataset_hash != first.dataset_hash:
            names = shown(bundle.dataset_name), shown(first.dataset_name)
            content = " of other content" if names[0] == names[1] else ""
            problem = f"was trained on {names[0]}{content}, but {runs[0]} on {names[1]}"
            raise DatasetError(f"{run}: {problem}; only models of the same data can be compared")


def _by_rank(
    cases: "Sequence[Evaluation]", protocol: "RankingProtocol", full_graph: str | None, metric: str
) -> "list[ComparedModel]":
    from newcomer.api import all_facts
    from newcomer.evaluation.measure import compare_rankings, headline, rank_test

    full, results = None if full_graph is None else all_facts(full_graph, cases[0].dataset), []
    for place, case in enumerate(cases):
        with progress(f"ranking {place + 1}/{len(cases)}") as advance:
            results.append(headline(rank_test(case, protocol, full, progress=advance).model[0]))
    return compare_rankings(results, metric, cases[0].seed)


def _compared(run: Path, case: "Evaluation", one: "ComparedModel") -> "Report":
    from newcomer.evaluation.report import json_ready, model_name

    config = case.bundle.config
    report = {
        "run": str(run),
        "model": model_name(config),
        "protocol": config.protocol,
        "seed": config.seed,
        "metrics": dict(one.metrics),
        "value": one.value,
        "interval": asdict(one.interval),
        "against_first": None if one.comparison is None else asdict(one.comparison),
    }
    return json_ready(report)


def _print_comparison(report: "Report") -> None:
    measures = MEASURES if report["filter"] is not None else CLASS_MEASURES
    metric = report["metric"]
    name = measures.get(metric, metric)
    under = f", {report['filter']} filter, {report['candidates']} candidates" if report["filter"] else ""
    title = f"{report['dataset']}{under}: {name} against {report['runs'][0]['run']}"
    titles = ("run", "model", "protocol", "seed", *measures.values(), "difference", "p")
    rows = []
    for run in report["runs"]:
        about = [str(run[name]) for name in titles[:4]]
        rows.append((*about, *cells_of(run["metrics"], measures), *_against(run)))
    print_table(title, titles, rows)
    typer.echo("figures in percent, ranks as they are; differences with their 95 % interval over resampled queries")
    protocols = {run["protocol"] for run in report["runs"]}
    if len(protocols) > 1:
        typer.echo(f"protocols differ ({', '.join(sorted(protocols))}): what was known in training differs, too")


def _against(run: Mapping[str, Any]) -> tuple[str, str]:
    found = run["against_first"]
    if found is None:
        return "", ""
    metric, ends = found["metric"], between(found["metric"], found["interval"])
    p_value = "-" if found["p_value"] is None else f"{found['p_value']:.3f}"
    return f"{figure(metric, found['difference'])} ({ends})", p_value
