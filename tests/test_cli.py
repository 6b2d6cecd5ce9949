"""The command line as a person uses it: what it prints, how it ends, what it leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import newcomer


def run(*words: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "newcomer", *map(str, words)]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("NEWCOMER_")} | environment
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line a user's mistake is answered with."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    folder = tmp_path / "graph"
    folder.mkdir()
    train = [(f"p{i}", "knows", f"p{(i * 7 + 3) % 40}") for i in range(40)] + [
        (f"p{i}", "lives_in", f"city{i % 5}") for i in range(40)
    ]
    test = [(f"p{i}", "likes", f"p{(i * 3 + 1) % 40}") for i in range(40)]
    for name, rows in (("train.txt", train), ("test.txt", test)):
        (folder / name).write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_version_and_help():
    assert run("--version").stdout.strip() == f"newcomer {newcomer.__version__}"
    assert "describe" in run("--help").stdout


def test_data_list_as_json_names_the_sample():
    listed = {row["name"]: row for row in json.loads(run("data", "list", "--json").stdout)}
    assert listed["sample"]["here"] is True
    assert listed["fb15k-subject-10"]["train"] == 108_854


def test_describe_prints_tables_and_json(graph):
    assert "lives_in" in run("describe", graph).stdout
    figures = json.loads(run("describe", graph, "--json").stdout)
    assert figures["triples"] == {"train": 80, "aux": 0, "valid": 0, "test": 40}
    assert figures["newcomers"] == 0


def test_describe_draws(graph, tmp_path):
    picture = tmp_path / "d.png"
    assert run("describe", graph, "--plot", picture).returncode == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_split_writes_a_sound_data_set(graph, tmp_path):
    done = run("split", graph, tmp_path / "out", "--unseen", "subject", "--rate", "25", "--seed", "3")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert manifest["made_by"] | {"newcomer": ""} == {
        "newcomer": "", "verb": "split", "graph": "graph", "unseen": "subject", "rate": 25.0, "seed": 3,
    }  # fmt: skip
    assert manifest["newcomers"] > 0
    checked = run("data", "check", tmp_path / "out")
    assert checked.returncode == 0 and "sound" in checked.stdout


def test_split_is_the_same_twice_and_another_with_another_seed(graph, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("split", graph, tmp_path / name, "--triples", "5", "--seed", str(seed)).returncode == 0
    content = {n: {p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in "abc"}
    assert content["a"] == content["b"]
    assert content["a"] != content["c"]


def test_split_around_given_newcomers(graph, tmp_path):
    (tmp_path / "who.txt").write_text("p3\n\np4\n", encoding="utf-8")
    assert run("split", graph, tmp_path / "out", "--newcomers", tmp_path / "who.txt").returncode == 0
    auxiliary = (tmp_path / "out" / "aux.tsv").read_text()
    assert "p3\tlives_in\tcity3" in auxiliary
    assert "p3\t" not in (tmp_path / "out" / "train.tsv").read_text()


def test_a_damaged_data_set_is_not_sound(graph, tmp_path):
    run("split", graph, tmp_path / "out", "--rate", "25")
    file = tmp_path / "out" / "train.tsv"
    file.write_text(file.read_text() + "p1\tknows\tp2\n", encoding="utf-8")
    done = run("data", "check", tmp_path / "out")
    assert done.returncode == 1 and "not the file its manifest describes" in done.stdout


@pytest.mark.parametrize("suffix", ["tsv", "csv", "tsv.gz", "tsv.zst", "parquet", "nt", "nt.gz"])
def test_convert_there_and_back(graph, tmp_path, suffix):
    there, back = tmp_path / f"there.{suffix}", tmp_path / "back.tsv"
    assert run("data", "convert", graph / "train.txt", there).returncode == 0
    assert run("data", "convert", there, back).returncode == 0
    assert sorted(back.read_text().splitlines()) == sorted((graph / "train.txt").read_text().splitlines())


def test_convert_a_folder(graph, tmp_path):
    assert run("data", "convert", graph, tmp_path / "out", "--format", "parquet").returncode == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"train.parquet", "test.parquet", "dataset.json"}


def test_bad_lines_stop_or_are_skipped_and_reported(tmp_path):
    file = tmp_path / "g.tsv"
    file.write_text("a\tr\tb\nonly two\tcolumns\nc\tr\td\n", encoding="utf-8")
    said = sentence(run("describe", file))
    assert f"{file}, line 2: 2 columns" in said and "--on-bad-line skip" in said
    done = run("describe", file, "--on-bad-line", "skip", "--json")
    assert json.loads(done.stdout)["triples"]["train"] == 2
    assert "skipped 1 lines" in done.stderr and "line 2" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["describe", "nowhere"], "newcomer data list"),
        (["describe", "./nowhere.tsv"], "nowhere.tsv"),
        (["describe", "sampel"], "did you mean 'sample'"),
        (["describe", "sample", "--delimiter", "ab"], "'ab'"),
        (["describe", "sample", "--columns", "head,tail"], "'relation'"),
        (["describe", "sample", "--on-bad-line", "ignore"], "unknown way to treat a bad line 'ignore'"),
        (["split", "sample", "out", "--unseen", "subjekt"], "did you mean 'subject'?"),
        (["split", "sample", "out", "--rate", "0"], "rate 0"),
        (["split", "sample", "out", "--rate", "5", "--triples", "5"], "not both"),
        (["split", "sample", "out", "--triples", "100000"], "100,000"),
        (["split", "sample", "out", "--newcomers", "nofile"], "nofile"),
        (["split", "sample", "out", "--format", "xls"], "unknown format 'xls'"),
        (["data", "get", "fb15"], "did you mean 'fb15k'?"),
        (["data", "get", "sample"], "ships with the package"),
        (["data", "convert", "sample", "out.tsv"], "folder"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(words, said, tmp_path):
    assert said in sentence(run(*words, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_kept_unless_forced(graph, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    assert "--force" in sentence(run("split", graph, tmp_path / "out"))
    assert (tmp_path / "out" / "precious").exists()
    assert run("split", graph, tmp_path / "out", "--force").returncode == 0
    assert not (tmp_path / "out" / "precious").exists()


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m newcomer describe sample --json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{\n" and done.stderr == ""
