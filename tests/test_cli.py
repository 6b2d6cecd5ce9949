"""The command line as a person uses it: what it prints, how it ends, what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import newcomer
from command_line import call, run, sentence
from newcomer.cli.common import print_table


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
    assert "skipped 1 line:" in done.stderr and "line 2" in done.stderr


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
        (["data", "convert", "sample", "-"], "folder"),
        (["describe", "~/no-such-file.tsv"], "no-such-file.tsv' does not exist"),
        (["describe", "/dev/null"], "'/dev/null' is neither a file nor a folder"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(words, said, tmp_path):
    assert said in sentence(run(*words, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rules", "show", "x" * 300], "cannot be read (File name too long)"),
        (["rules", "convert", "x" * 300, "out.tsv"], "cannot be read (File name too long)"),
        (["rules", "show", "a\nb.tsv"], "a\\nb.tsv"),
        (["reproduce", "ablation", "--data-root", "x" * 300], "cannot be read (File name too long)"),
        (["describe"], "missing argument 'DATA'; see: "),
        (["describe", "sample", "--top", "many"], "invalid value for '--top'"),
        (["describe", "sample", "--topp", "1"], "no such option: --topp"),
        (["describe", "sample", "a\nb"], "got unexpected extra argument(s) (a"),
        (["nonsense"], "no such command 'nonsense'"),
    ],
)
def test_a_wrong_word_or_a_strange_name_is_answered_with_one_sentence(words, said, tmp_path):
    assert said in sentence(call(*words, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_kept_unless_forced(graph, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    assert "--force" in sentence(run("split", graph, tmp_path / "out"))
    assert "holds 'precious'" in sentence(run("split", graph, tmp_path / "out", "--force"))
    assert (tmp_path / "out" / "precious").read_text() == "x"
    assert run("split", graph, tmp_path / "new").returncode == 0
    assert run("split", graph, tmp_path / "new", "--force", "--rate", "50").returncode == 0
    assert "50" in (tmp_path / "new" / "dataset.json").read_text()


@pytest.mark.parametrize("verb", [["split"], ["data", "convert"]])
def test_an_output_that_is_the_input_or_holds_it_is_refused(graph, tmp_path, verb):
    folder = tmp_path / "set"
    assert run("split", graph, folder, "--rate", "25").returncode == 0
    (tmp_path / "link").symlink_to(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for source, out in (
        ("set", "set"),
        ("link", "set"),
        ("set", "../" + tmp_path.name + "/set"),
        ("set/train.tsv", "set"),
    ):
        assert "what is read" in sentence(run(*verb, source, out, "--force", cwd=tmp_path))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_is_not_converted_onto_itself(graph):
    assert "what is read" in sentence(run("data", "convert", "train.txt", "./train.txt", "--force", cwd=graph))
    assert (graph / "train.txt").read_text().count("\n") == 80


@pytest.mark.parametrize("out", ["out.ttl", "out.xlsx", "-"])
def test_a_file_is_not_converted_into_a_folder_with_an_ending(graph, out):
    assert "unknown format to write" in sentence(run("data", "convert", "train.txt", out, cwd=graph))
    assert sorted(path.name for path in graph.iterdir()) == ["test.txt", "train.txt"]


def test_convert_and_describe_tell_of_literals(tmp_path):
    (tmp_path / "g.nt").write_text(
        '<http://a> <http://r> <http://b> .\n<http://a> <http://r> "1" .\n', encoding="utf-8"
    )
    assert run("data", "convert", "g.nt", "g.tsv", cwd=tmp_path).stdout.endswith("to g.tsv, 1 literals left out\n")
    assert run("data", "convert", "g.nt", "set", cwd=tmp_path).stdout == "written to set, 1 literals left out\n"
    assert "literals left out" in run("describe", "g.nt", cwd=tmp_path).stdout
    assert "literals" not in run("describe", "g.tsv", cwd=tmp_path).stdout


def test_convert_reports_the_lines_it_skips(tmp_path):
    (tmp_path / "g.tsv").write_text("a\tr\tb\nbad\n", encoding="utf-8")
    done = run("data", "convert", "g.tsv", "g.csv", "--on-bad-line", "skip", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.startswith("newcomer: g.tsv: skipped 1 line:\n  g.tsv, line 2")


def test_split_says_that_false_triples_are_left_out(graph, tmp_path):
    test = graph / "test.txt"
    labelled = [f"{line}\t{-1 if i < 7 else 1}" for i, line in enumerate(test.read_text().splitlines())]
    assert "labelled false" not in run("split", graph, tmp_path / "plain").stdout
    test.write_text("\n".join(labelled) + "\n", encoding="utf-8")
    assert "7 triples labelled false" in run("split", graph, tmp_path / "labelled").stdout


def test_a_small_graph_without_test_is_split_with_every_seed(tmp_path):
    (tmp_path / "g.tsv").write_text("".join(f"a{i}\tr\ta{i + 1}\n" for i in range(8)), encoding="utf-8")
    for seed in range(3):
        done = run("split", "g.tsv", f"out{seed}", "--seed", seed, cwd=tmp_path)
        assert done.returncode == 0 and "held out" in done.stdout, done.stderr


def test_the_catalogue_does_not_judge_a_folder_of_ones_own(graph, tmp_path):
    assert run("split", graph, tmp_path / "sample").returncode == 0
    checked = run("data", "check", "./sample", cwd=tmp_path)
    assert checked.returncode == 0 and "catalogue" not in checked.stdout
    assert "catalogue says" in run("data", "check", "sample").stdout


def test_figures_of_the_list_stand_to_the_right():
    lines = run("data", "list").stdout.splitlines()
    title = next(line for line in lines if "newcomers" in line)
    row = next(line for line in lines if line.split()[:1] == ["fb15k"])
    for column in ("train", "aux", "valid", "newcomers"):
        end = title.index(column) + len(column)
        assert row[end - 1] not in " " and row[end : end + 1] == " ", column


def test_names_are_printed_as_they_are(tmp_path):
    folder = tmp_path / "o[" / "b]x :cat: [red]"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("a\tr\tb\nb\tr\tc\nc\tr\td\n", encoding="utf-8")
    described = run("describe", "o[/b]x :cat: [red]", cwd=tmp_path)
    assert described.returncode == 0 and described.stdout.startswith("b]x :cat: [red]")
    for out in ("o[/b]x", "[red]", "[/b]"):
        done = run("split", folder, out, "--triples", "1", cwd=tmp_path)
        assert done.returncode == 0 and f"written to {out}" in done.stdout, done.stderr


def test_a_place_whose_name_is_no_text_is_printed_escaped(graph, tmp_path):
    odd = tmp_path / "\udcff"
    done = run("split", graph, odd, "--triples", "4")
    assert done.returncode == 0 and "written to" in done.stdout and "\\udcff" in done.stdout, done.stderr
    for verb, *options in (
        ["describe"],
        ["enrich", "--out", tmp_path / "e"],
        ["split", tmp_path / "s", "--rate", "50"],
    ):
        assert call(verb, odd, *options).returncode == 0
    names = tmp_path / "\udcfe.txt"
    names.write_text("p1\n")
    assert call("enrich", odd, "--out", tmp_path / "e", "--entities", names, "--force").returncode == 0
    summary = json.loads((tmp_path / "e" / "enrichment.json").read_text())
    assert summary["dataset"] == r"\udcff" and summary["entities"] == r"\udcfe.txt"


@pytest.mark.parametrize("folder", ["~root", "\udcff"])
def test_parquet_goes_where_the_name_says_whatever_it_begins_with(folder, graph, tmp_path):
    done = call("data", "convert", graph, f"{folder}/all", "--format", "parquet", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / folder / "all" / "train.parquet").is_file(), done.stderr
    file = tmp_path / folder / "all" / "train.parquet"
    done = call("data", "convert", file, f"{folder}/one.parquet", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / folder / "one.parquet").is_file()
    assert call("enrich", graph, "--out", f"{folder}/more", "--who", "seen", cwd=tmp_path).returncode == 0
    assert (tmp_path / folder / "more" / "neighbors.parquet").is_file()


def test_a_command_without_a_word_shows_its_help():
    for words in ([], ["data"]):
        done = call(*words)
        assert done.returncode == 2 and done.stderr.startswith("Usage: ") and "Commands" in done.stderr


def test_lines_left_out_are_reported_on_a_line_each_whatever_the_file_is_called(graph, tmp_path):
    (tmp_path / "a\nb.tsv").write_text("a\tr\tb\nonly two\tcolumns\nc\tr\td\n", encoding="utf-8")
    done = call("data", "convert", "a\nb.tsv", "out.tsv", "--on-bad-line", "skip", cwd=tmp_path)
    first, second = done.stderr.splitlines()
    assert first == r"newcomer: a\nb.tsv: skipped 1 line:" and second.startswith(r"  a\nb.tsv, line 2: ")


def test_a_table_prints_brackets_and_colons_as_they_are(capsys):
    print_table("[u] :x:", ("[red] title", "b"), [("[/b] :cat:", "a cell")])
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("[u] :x:", "[red] title", "[/b] :cat:"))


def test_the_name_does_not_depend_on_how_the_path_is_typed(graph):
    typed = ("train.txt", "./train.txt", graph / "train.txt")
    names = [json.loads(run("describe", path, "--json", cwd=graph).stdout)["name"] for path in typed]
    assert names == ["train"] * 3


@pytest.mark.parametrize("words", [["describe", "sample"], ["describe", "sample", "--json"], ["--help"]])
def test_a_full_disk_behind_the_output_is_one_sentence(words):
    with Path("/dev/full").open("w") as full:
        done = start(words, stdout=full)
        _, said = done.communicate()
    assert done.returncode == 2
    assert said == "newcomer: standard output cannot be written (No space left on device); choose another place\n"


@pytest.mark.parametrize("words", [["describe", "sample"], ["describe", "sample", "--json"], ["--version"]])
def test_a_reader_that_goes_away_is_no_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    done = start(words, stdout=writer)
    os.close(writer)
    _, said = done.communicate()
    assert (done.returncode, said) == (128 + signal.SIGPIPE, "")


SLOW = """
import signal, sys, time
for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # a test that runs in the background may hand them down ignored
    signal.signal(signal.Signals[name], signal.SIG_DFL)
from newcomer.data import dataset
from newcomer.cli import main

def slow(path, *rest):
    path.write_text("half")
    print("writing", flush=True)
    time.sleep(60)

dataset.write_triples = slow
sys.argv = ["newcomer", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_in_order(name, graph, tmp_path):
    (tmp_path / "out").mkdir()
    number = signal.Signals[name]
    child = start(["split", graph, tmp_path / "out" / "set"], code=SLOW, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == "writing\n"
    assert len(list((tmp_path / "out").iterdir())) == 1
    child.send_signal(number)
    _, said = child.communicate()
    assert (child.returncode, said) == (128 + number, f"newcomer: stopped by {name}\n")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_signal_that_is_ignored_stays_ignored(graph, tmp_path):
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom newcomer.cli import main"
    code = SLOW.replace("sleep(60)", "sleep(1)").replace("from newcomer.cli import main", ignored)
    child = start(["split", graph, tmp_path / "set"], code=code, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == "writing\n"
    child.send_signal(signal.SIGHUP)
    _, said = child.communicate()
    assert child.returncode == 0, said


def test_the_process_is_left_as_it_was(capfd):
    before = sys.stdout, [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert call("--version").returncode == 0
    assert (sys.stdout, [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]) == before


def start(words, code="from newcomer.cli import main; main()", **streams):
    """A child process that can be sent signals."""
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **streams)
