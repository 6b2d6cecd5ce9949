"""Reports of evaluations as tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from newcomer.cli.common import print_table

if TYPE_CHECKING:
    from newcomer.evaluation.report import Report

MEASURES = {"mr": "mean rank", "mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10"}
CLASS_MEASURES = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1", "auc": "ROC AUC"}
SUGGESTION_MEASURES = {
    "precision@0.5": "right from 0.5",
    "recall@0.5": "of what is missing",
    "precision@0.9": "right from 0.9",
    "right": "right",
    "probability": "mean probability",
    "ece": "calibration error",
    "second_values": "second values",
}
RIGHT = {"known": "the data set states", "full": "the full graph states"}
MOST_ROWS = 20  # of a breakdown, on the screen
THRESHOLDS = {
    "newcomers": "thresholds from newcomers that were held out of the observed graph",
    "probabilities": "true where the probability is at least a half",
    "valid": "thresholds from valid",
}


def print_report(report: "Report") -> None:
    """Print a report: figures, notes and breakdowns."""
    from newcomer.data.cut import cut_in_words

    named = f"{report['model']} ({report['encoder']}, {report['decoder']}), {report['protocol']} protocol"
    title = f"{report['dataset']}: {named}, seed {report['seed']}{cut_in_words(report['known_facts'])}"
    if report["task"] == "suggest":
        _print_suggestions(title, report)
        return
    is_ranking = report["filter"] is not None
    measures = MEASURES if is_ranking else CLASS_MEASURES
    print_table(title, ("", *measures.values()), _rows(report, measures))
    print_cut_note(report["known_facts"])
    _print_ranking_notes(report) if is_ranking else _print_classification_notes(report)
    if is_ranking and report["also"] is not None:
        for part in (report, report["also"]):
            _print_breakdowns(part["breakdowns"], is_ranking, f", {part['filter']} filter")
    else:
        _print_breakdowns(report["breakdowns"], is_ranking)


def print_cut_note(found: Mapping[str, int] | None) -> None:
    """How many of the newcomers' facts are known, where they are cut."""
    if found is not None:
        everything = found["kept"] + found["withheld"]
        typer.echo(f"{found['kept']:,} of {everything:,} auxiliary facts are known, drawn by seed {found['seed']}")


def _rows(report: "Report", measures: Mapping[str, str]) -> list[Sequence[str]]:
    if measures is CLASS_MEASURES:
        return [("model", *cells_of(report["metrics"], measures)), _interval_row(report["intervals"], measures)]
    asked = [("model", report), *(("model", other) for other in [report["also"]] if other)]
    asked += [("embedding alone", embedding) for embedding in report["embedding"]]
    asked += [("rules alone", rules) for rules in report["rules"]]
    asked += [(f"model, {seen['queries']:,} queries about seen entities", seen) for seen in report["seen"]]
    rows: list[Sequence[str]] = []
    for who, figures in asked:
        rows.append((f"{who}, {figures['filter']} filter", *cells_of(figures["metrics"], measures)))
        rows.append(_interval_row(figures["intervals"], measures))
    if report["ceiling"] is not None:
        rows.append(("ceiling of the known filter", *cells_of(report["ceiling"]["metrics"], measures)))
    return rows


def cells_of(metrics: Mapping[str, float | None], measures: Iterable[str]) -> tuple[str, ...]:
    """The figures of these measures as cells of a table."""
    return tuple(figure(name, metrics[name]) for name in measures)


def figure(name: str, value: float | None) -> str:
    """A mean rank as it is, all else in percent."""
    if value is None:
        return "-"
    return f"{value:z,.1f}" if name == "mr" else f"{100 * value:z.1f}"


def between(name: str, interval: Mapping[str, float]) -> str:
    """The ends of an interval of a figure."""
    return f"{figure(name, interval['low'])} to {figure(name, interval['high'])}"


def _interval_row(intervals: Mapping[str, Any], measures: Mapping[str, str]) -> Sequence[str]:
    level = next(iter(intervals.values()))["level"]
    cells = [between(name, intervals[name]) if intervals.get(name) else "" for name in measures]
    return (f"  {100 * level:g} % interval", *cells)


def _print_ranking_notes(report: "Report") -> None:
    asked = f"{report['queries']:,} queries; MRR and Hits in percent; candidates: {report['candidates']}"
    typer.echo(f"{asked}; ties at the {report['ties']} rank")
    if report["unknown_relation_queries"]:
        count = f"{report['unknown_relation_queries']:,}"
        typer.echo(f"the model does not have the relation of {count} queries: their candidates all tie")
    _print_training_note(report)
    found = report["calibration"]
    parts = [("ten best answers", found["shown"]), ("first answers", found["first"])]
    parts += [(f"  of those with {one['group']} known facts", one["first"]) for one in found["known_facts"]]
    _print_probabilities(parts, ("answers", "right"), found["calibrated"])


def _print_probabilities(
    parts: Sequence[tuple[str, Mapping[str, Any]]], counts: Sequence[str], calibrated: bool
) -> None:
    titles = ("percent", *counts, "probability before", "probability after", "error before", "error after")
    names = ("right", "probability_before", "probability_after", "ece_before", "ece_after")
    rows = [(who, part["answers"], *(figure(name, part[name]) for name in names)) for who, part in parts]
    print_table("Probabilities, before and after calibration", titles, rows)
    if not calibrated:
        typer.echo("the model is not calibrated: it was trained without validation")


def _print_classification_notes(report: "Report") -> None:
    typer.echo(f"{report['queries']:,} triples; figures in percent; {THRESHOLDS[report['thresholds']]}")
    if report["made_up_negatives"]:
        unlabelled = " and ".join(report["made_up_negatives"])
        typer.echo(
            f"{unlabelled} without labels: as many false triples were made up, by seed {report['evaluation_seed']}"
        )
    _print_training_note(report)
    found = report["calibration"]
    parts = [("triples", found["triples"])]
    parts += [(f"  about those with {one['group']} known facts", one["triples"]) for one in found["known_facts"]]
    _print_probabilities(parts, ("count", "true"), found["calibrated"])


def _print_suggestions(title: str, report: "Report") -> None:
    listed = [("model", report), *((f"{one['name']} alone", one) for one in report["others"])]
    rows = [(who, *cells_of(one["metrics"], SUGGESTION_MEASURES)) for who, one in listed]
    print_table(title, ("", *SUGGESTION_MEASURES.values()), rows)
    typer.echo(
        f"{report['suggested']} facts suggested about each of {report['newcomers']:,} newcomers, of whose facts "
        f"{report['masked']:,} are masked, whole relations at a time; {report['missing']:,} facts are missing; right "
        f"is what {RIGHT[report['filter']]}; figures in percent, the last four of the ten likeliest"
    )
    for one in report["others"] if report["metrics"]["precision@0.5"] is not None else ():
        same = f"{figure('', one['recall_at_same_precision'])} % of what is missing"
        typer.echo(f"with the precision that the model has from 0.5 on, {one['name']} alone would find {same}")
    columns = ("suggestions", "right", "probability", "ece", "recall", "second_values")
    levels = [(f"from {one['from']:g}", *(_cell(name, one[name]) for name in columns)) for one in report["thresholds"]]
    titles = ("probability", "suggestions", "right", "mean probability", "error", "of what is missing", "second values")
    print_table("Suggestions by probability", titles, levels)
    _print_commands(report)
    if not report["calibrated"]:
        typer.echo("the model is not calibrated: it was trained without validation")
    _print_training_note(report)
    for by in dict.fromkeys(row["by"] for row in report["breakdowns"]):
        found = [row for row in report["breakdowns"] if row["by"] == by]
        names = [
            name for name in ("newcomers", "suggestions", "right", "probability", "recall", "ece") if name in found[0]
        ]
        cells = [(_group(row), *(_cell(name, row[name]) for name in names)) for row in found[:MOST_ROWS]]
        print_table(f"By {by}: suggestions with a probability of a half at least", ("", *names), cells)


def _print_commands(report: "Report") -> None:
    """How far each command's probabilities can be believed: altogether, and by band of probability."""
    from newcomer.evaluation.verbs import bands_of, by_command

    columns = ("answers", "right", "probability", "ece")
    rows = [(name, *(_cell(column, part[column]) for column in columns)) for name, part in by_command(report)]
    print_table("Probabilities by command", ("", "facts", "right", "mean probability", "error"), rows)
    bands = bands_of(report)
    cells = [(name, *(_band(row) for row in found)) for name, found in bands.rows]
    print_table("By band of probability: its mean, right (95 % interval), facts", ("", *bands.commands), cells)


def _band(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    middle, right, low, high = (
        f"{100 * row[name]:.0f}" for name in ("probability", "right", "right_low", "right_high")
    )
    return f"{middle}: {right} ({low} to {high}), {row['answers']:,}"


def _group(row: Mapping[str, Any]) -> str:
    return f"{row['group']} ({row['asked']}s)" if "asked" in row else str(row["group"])


def _print_training_note(report: "Report") -> None:
    if report["trained_on_sha256"] != report["dataset_sha256"]:
        typer.echo("this is not the data set that the model was trained on")


def _print_breakdowns(rows: Sequence[Mapping[str, Any]], is_ranking: bool, under: str = "") -> None:
    columns = ("queries", "share", *MEASURES, "lost") if is_ranking else ("triples", "true", "accuracy")
    names = {**MEASURES, "lost": "share of the loss"}
    for by in dict.fromkeys(row["by"] for row in rows):
        found = [row for row in rows if row["by"] == by]
        cells = [(row["group" if is_ranking else "relation"], *(_cell(n, row[n]) for n in columns)) for row in found]
        more = f", {MOST_ROWS} of {len(found):,}" if len(found) > MOST_ROWS else ""
        titles = ("", *(names.get(name, name) for name in columns))
        print_table(f"By {by}{under}{more}", titles, cells[:MOST_ROWS])


def _cell(name: str, value: float | None) -> object:
    counts = ("queries", "triples", "true", "suggestions", "newcomers", "answers")
    return value if name in counts else figure(name, value)
