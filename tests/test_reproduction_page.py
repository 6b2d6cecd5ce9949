"""The page of results: a pure function of the files, with the figures where they belong."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from newcomer.reproduction.page import page_of, write_page
from newcomer.reproduction.plans import cells_of, load_plan
from newcomer.reproduction.stored import reduced, write_result
from newcomer.reproduction.tables import (
    FULL,
    PICTURE,
    UNLINKED,
    Figure,
    draw_shares,
    figure_of,
    markdown_table,
    rows_of,
    share_lines,
    shown_difference,
    shown_figure,
)

PNG = b"\x89PNG\r\n\x1a\n"
Json = dict[str, Any]


def metrics(mrr: float) -> Json:
    return {"mr": 175.4, "mrr": mrr, "hits@1": 0.345, "hits@3": 0.526, "hits@10": 0.701}


def intervals(mrr: float) -> Json:
    return {name: [0.9 * value, 1.1 * value] for name, value in metrics(mrr).items()}


def result(what: str, name: str, mrr: float = 0.5, **more: Any) -> Json:
    """What stands in the file of a planned cell."""
    cell = next(cell for cell in cells_of(load_plan(what)) if cell.name == f"{what}-{name}")
    return {
        "task": cell.task,
        "dataset": cell.dataset,
        "model": cell.model,
        "protocol": cell.protocol,
        "filter": "known",
        "candidates": "all",
        "seed": cell.seed,
        "metrics": metrics(mrr),
        "intervals": intervals(mrr),
        "table": what,
        "cell": cell.name,
        "label": cell.label,
        "overrides": [],
        "config_sha256": cell.settings_hash,
        "seconds": 90.0,
        "device": "cuda",
    } | more


def vn(seed: int, mrr: float = 0.5, **more: Any) -> Json:
    return result("link-prediction", f"fb15k-subject-10-vn-inductive-{seed}", mrr, **more)


def put_results(folder: Path, *found: Json) -> Path:
    for one in found:
        write_result(one, folder)
    return folder


def cells_under(page: str, heading: str) -> list[list[str]]:
    """The rows of the table below a heading."""
    below = page.split(f"{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n?)+", below, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.group().splitlines()]


def test_one_seed_has_the_interval_over_questions():
    (row,) = rows_of([vn(0, 0.463)])
    figure = figure_of(row, "mrr")
    assert figure is not None and shown_figure("mrr", figure) == "46.3 (41.7 to 50.9)"
    assert shown_figure("mr", figure_of(row, "mr")) == "175 (158 to 193)"
    assert row.seeds == "0"


def test_several_seeds_have_their_mean_and_range():
    (row,) = rows_of([vn(2, 0.48), vn(0, 0.46), vn(1, 0.50)])
    assert row.seeds == "0, 1, 2"
    assert shown_figure("mrr", figure_of(row, "mrr")) == "48.0 (46.0 to 50.0)"


def test_the_full_filter_is_shown_where_all_seeds_have_it():
    also = {"filter": "full", "metrics": metrics(0.8), "intervals": intervals(0.8)}
    (row,) = rows_of([vn(0, also=also)])
    assert shown_figure("mrr", figure_of(row, "mrr", FULL)) == "80.0 (72.0 to 88.0)"
    (row,) = rows_of([vn(0, also=also), vn(1)])
    assert figure_of(row, "mrr", FULL) is None


def test_unlinked_pairs_are_shown_where_all_seeds_tell_of_them():
    def also(mrr):
        return {"filter": "full", "metrics": metrics(0.8), "intervals": intervals(0.8), "unlinked": metrics(mrr)}

    (row,) = rows_of([vn(0, also=also(0.3)), vn(1, also=also(0.5))])
    assert shown_figure("mrr", figure_of(row, "mrr", UNLINKED)) == "40.0 (30.0 to 50.0)"
    page = page_of(row.results, "results")
    assert ["", "", "", "full filter, unlinked pairs"] in [
        line[:4] for line in cells_under(page, "### fb15k-subject-10")
    ]
    (row,) = rows_of([vn(0, also=also(0.3)), vn(1, also={**also(0.5), "unlinked": None})])
    assert figure_of(row, "mrr", UNLINKED) is None


def test_of_a_report_the_figures_are_kept_and_the_breakdowns_are_not():
    interval = {"low": 0.1, "high": 0.3, "level": 0.95}
    figures = {"metrics": {"mrr": 0.2}, "intervals": {"mrr": interval}}
    groups = [{"by": "evidence", "group": name, "mrr": mrr} for name, mrr in (("linked", 0.5), ("not linked", 0.1))]
    also = {"filter": "full", **figures, "breakdowns": groups}
    found = reduced({"task": "link-prediction", **figures, "also": also, "embedding": [], "breakdowns": groups})
    small = {"metrics": {"mrr": 0.2}, "intervals": {"mrr": [0.1, 0.3]}}
    assert found == {"task": "link-prediction", **small, "also": {"filter": "full", **small, "unlinked": {"mrr": 0.1}}}


def test_differences_have_a_sign_and_no_negative_nothing():
    assert shown_difference("mrr", Figure(46.34), 46.3) == "+0.0"
    assert shown_difference("mrr", Figure(46.26), 46.3) == "+0.0"
    assert shown_difference("mr", Figure(160.0), 175) == "-15"
    assert shown_difference("mrr", None, 1.0) == shown_difference("mrr", Figure(1.0), None) == "-"


def test_a_figure_that_is_not_there_is_a_dash():
    (row,) = rows_of([vn(0, metrics={**metrics(0.5), "mrr": None})])
    assert shown_figure("mrr", figure_of(row, "mrr")) == "-"
    assert markdown_table(["a", "b"], [["c", "-"]]) == "| a | b |\n| --- | --: |\n| c | - |"


def test_ours_the_papers_and_the_difference_stand_below_each_other():
    also = {"filter": "full", "metrics": metrics(0.8), "intervals": intervals(0.8)}
    ceiling = {"filter": "known", "candidates": "seen", "metrics": metrics(0.686)}
    rules = result("link-prediction", "fb15k-subject-10-rules-inductive-0", 0.606)
    page = page_of([vn(0, 0.5, also=also, ceiling=ceiling), rules], "results")
    table = cells_under(page, "### fb15k-subject-10")
    assert table[0] == ["model", "protocol", "seeds", "figure", "MR", "MRR", "Hits@10", "Hits@3", "Hits@1"]
    assert [row[:4] for row in table[2:]] == [
        ["rules", "inductive", "0", "ours"],
        ["vn", "inductive", "0", "ours"],
        ["", "", "", "ours, full filter"],
        ["", "", "", "paper"],
        ["", "", "", "difference"],
        ["ceiling of the known filter", "", "", "seen candidates"],
    ]
    assert [row[5] for row in table[2:]] == [
        "60.6 (54.5 to 66.7)",
        "50.0 (45.0 to 55.0)",
        "80.0 (72.0 to 88.0)",
        "46.3",
        "+3.7",
        "68.6",
    ]


def test_embedding_and_rules_by_themselves_stand_below_the_model_they_are_parts_of():
    parts = {
        part: [{"filter": name, "metrics": metrics(mrr), "intervals": {}} for name in ("known", "full")]
        for part, mrr in (("embedding", 0.4), ("rules", 0.61))
    }
    found = [result("link-prediction", f"fb15k-object-10-default-inductive-{seed}", **parts) for seed in (0, 1)]
    table = cells_under(page_of(found, "results"), "### fb15k-object-10")
    assert [(row[3], row[5]) for row in table[2:]] == [
        ("ours", "50.0 (50.0 to 50.0)"),
        ("embedding alone", "40.0 (40.0 to 40.0)"),
        ("rules alone", "61.0 (61.0 to 61.0)"),
    ]


def test_data_sets_stand_side_by_side_where_the_paper_has_them_so():
    found = [
        result("classification", f"wn11-object-{size}-lan-inductive-0", metrics={"accuracy": 0.8}, intervals={})
        for size in (1000, 5000)
    ]
    table = cells_under(page_of(found, "results"), "### Object: accuracy")
    assert table[0][4:] == ["wn11-object-1000", "wn11-object-3000", "wn11-object-5000"]
    assert [row[3:] for row in table[2:]] == [
        ["ours", "80.0", "-", "80.0"],
        ["paper", "84.7", "78.8", "74.3"],
        ["difference", "-4.7", "-", "+5.7"],
    ]


def suggestions(**more: Any) -> Json:
    return result("suggestions", "sample-default-cpu-inductive-0", intervals={}, **more)


def test_commands_stand_below_the_figures_of_suggestions():
    def part(answers: int, right: float | None, *bins: Json, **more: Any) -> Json:
        return {"answers": answers, "right": right, "probability": 0.5, "ece": 0.125, "bins": list(bins), **more}

    low = {"low": 0.0, "high": 0.1, "answers": 1200, "probability": 0.05, "right": 0.0625}
    low |= {"right_low": 0.03, "right_high": 0.09}
    groups = {name: part(4, 0.25, newcomers=2) for name in ("enough", "too_few")}
    verbs = {"predict": part(1234, 0.5, low), "classify": part(9, 0.5, true=part(0, None), false=part(9, 0.5))}
    found = suggestions(by_k=[part(3, 1.0, k=1), part(30, 0.5, k=10)], verbs={**verbs, "confidence": groups})
    page = page_of([found], "results")
    titles, _, *rows = cells_under(page, "By command (default-cpu, inductive, seed 0):")
    assert titles == ["command", "facts", "right", "mean probability", "error"]
    assert rows[0] == ["suggest: the likeliest", "3", "100.0", "50.0", "12.5"]
    assert rows[2] == ["predict: 10 best of each question", "1,234", "50.0", "50.0", "12.5"]
    assert ["classify: called true", "0", "-", "50.0", "12.5"] in rows
    assert rows[-1][0] == "confidence: too few facts (2 newcomers)"
    bands = cells_under(page, "By band of probability: its mean, right (95 % interval), facts:")
    assert bands[0] == ["probability", "suggest: 10 likeliest", "predict", "classify"]
    assert bands[2:] == [["0.0 to 0.1", "-", "5.0: 6.2 (3.0 to 9.0), 1,200", "-"]]


def test_results_of_suggestions_from_before_commands_were_measured_have_no_such_table():
    page = page_of([suggestions()], "results")
    assert "### sample" in page and "By command (" not in page


def test_statistics_are_compared_with_the_papers():
    counts = {"train": 108854, "aux": 249798, "newcomers": 2102, "valid": 11339, "test": 2811}
    found = result(
        "statistics",
        "fb15k-subject-10-rules-inductive-0",
        metrics={},
        counts=counts,
        neighbours={"before": 52.6, "after": 73},
    )
    table = cells_under(page_of([found], "results"), "### FB15K")
    assert table[2:] == [
        ["fb15k-subject-10", "ours", "108,854", "249,798", "2,102", "11,339", "2,811", "52.60", "73.00"],
        ["", "paper", "108,854", "249,798", "2,102", "11,339", "2,811", "52.33", "73.31"],
        ["", "difference", "+0", "+0", "+0", "+0", "+0", "+0.27", "-0.31"],
    ]


def test_what_is_missing_is_counted_and_named():
    nothing = page_of([], "results")
    assert "0 of 72 cells of the plan are done. Not run:" in nothing
    assert "* fb15k-subject-10: vn-structure inductive (seed 0);" in nothing
    some = page_of([vn(1)], "results")
    assert "1 of 72 cells of the plan are done." in some and "vn inductive (seeds 0, 2)" in some
    every = [result("ablation", cell.name.removeprefix("ablation-")) for cell in cells_of(load_plan("ablation"))]
    assert "5 of 5 cells of the plan are done.\n" in page_of(every, "results")


def test_results_beyond_the_plan_are_shown_too():
    extra = vn(0) | {"protocol": "refreshed", "cell": "link-prediction-fb15k-subject-10-vn-refreshed-0"}
    table = cells_under(page_of([extra], "results"), "### fb15k-subject-10")
    assert table[2][:4] == ["vn", "refreshed", "0", "ours"]


def test_other_settings_and_stand_ins_are_remarked_on():
    changed = vn(0, config_sha256="0" * 64)
    cut = result(
        "unseen-share",
        "fb15k-subject-15-vn-inductive-0",
        dataset_origin="cut from fb15k (subject, 15 %, seed 0)",
        dataset_note="a stand-in",
    )
    page = page_of([changed, vn(1, same_as="other-cell"), cut], "results")
    assert f"`{changed['cell']}` is not of the plan as it is now: it was run with other settings (" in page
    assert "was taken from it." in page and "`other-cell`" in page
    assert "fb15k-subject-15 was cut from fb15k (subject, 15 %, seed 0) and is a stand-in." in page
    assert "is not of the plan" not in page_of([vn(0)], "results")


def test_trainings_are_summed_up():
    training = {"epochs": 12, "validation": {"model": {"mrr": 0.512}}}
    page = page_of([vn(0, training=training), vn(1, training={"epochs": 3})], "results")
    assert "| vn | fb15k-subject-10 | inductive | 0 | 12 | MRR 51.2 | 1.5 | cuda |" in page
    told_apart = {"epochs": 12, "validation": {"model": {"mrr": 0.512, "auc": 0.9}}}
    assert "| 12 | AUC 90.0 |" in page_of([vn(0, training=told_apart)], "results")
    assert "| vn | fb15k-subject-10 | inductive | 1 | 3 | - | 1.5 | cuda |" in page


def test_the_page_is_a_pure_function_of_the_files(tmp_path):
    found = [vn(seed, 0.4 + seed / 100) for seed in range(3)]
    first, second = (
        put_results(tmp_path / "a" / "results", *found),
        put_results(tmp_path / "b" / "results", *found[::-1]),
    )
    (first / "notes.txt").write_text("not a result")
    write_page(first, tmp_path / "a" / "RESULTS.md")
    write_page(second, tmp_path / "b" / "RESULTS.md")
    page = (tmp_path / "a" / "RESULTS.md").read_bytes()
    assert page == (tmp_path / "b" / "RESULTS.md").read_bytes()
    write_page(first, tmp_path / "a" / "RESULTS.md")
    assert page == (tmp_path / "a" / "RESULTS.md").read_bytes()
    assert b"Generated by `newcomer reproduce report` from the files in `results`" in page
    put_results(first, vn(0, 0.9))
    write_page(first, tmp_path / "a" / "RESULTS.md")
    assert page != (tmp_path / "a" / "RESULTS.md").read_bytes()
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]


def test_the_reading_is_taken_over_as_it_is(tmp_path):
    results = put_results(tmp_path, vn(0))
    write_page(results, tmp_path / "page.md")
    assert "## Reading" not in (tmp_path / "page.md").read_text()
    (results / "reading.md").write_text("What *reproduces*: {nothing} | yet.\n\n### More\n", encoding="utf-8")
    write_page(results, tmp_path / "page.md")
    assert "## Reading\n\nWhat *reproduces*: {nothing} | yet.\n\n### More\n\n## " in (tmp_path / "page.md").read_text()


def shares() -> list[Json]:
    return [
        result("unseen-share", f"fb15k-{side}-{share}-{model}-inductive-0", 0.6 - share / 100)
        for side in ("subject", "object")
        for share in (25, 5, 10)
        for model in ("lan", "vn")
    ]


def test_lines_over_the_share_of_newcomers():
    plan = load_plan("unseen-share")
    lines = share_lines(plan.runs[0], rows_of(shares()), "mrr")
    assert list(lines) == ["lan", "vn"]
    assert [share for share, _ in lines["vn"]] == [5, 10, 25]
    assert [value for _, value in lines["vn"]] == pytest.approx([55.0, 50.0, 35.0])


def test_the_figure_is_drawn_and_shown(tmp_path):
    pytest.importorskip("matplotlib")
    results = put_results(tmp_path / "results", *shares())
    write_page(results, tmp_path / "RESULTS.md")
    picture = (results / PICTURE).read_bytes()
    assert picture.startswith(PNG)
    page = (tmp_path / "RESULTS.md").read_text()
    assert f"](results/{PICTURE})" in page
    table = cells_under(page, "### Subject: MRR")
    assert table[2][:4] == ["lan", "inductive", "0", "ours"] and table[2][6] == "-"
    draw_shares(load_plan("unseen-share"), shares(), tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == picture


def test_without_the_package_for_pictures_the_page_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    results = put_results(tmp_path / "results", *shares())
    write_page(results, tmp_path / "RESULTS.md")
    assert PICTURE not in (tmp_path / "RESULTS.md").read_text() and not (results / PICTURE).exists()
    (results / PICTURE).write_bytes(PNG)
    write_page(results, tmp_path / "RESULTS.md")
    assert PICTURE in (tmp_path / "RESULTS.md").read_text()
