"""Mining, enriching and rule files on the command line: what is printed, what is written, how mistakes are answered."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from command_line import call, run, sentence
from newcomer.data import load_dataset, write_dataset
from newcomer.data.cut import FactsCut
from newcomer.rules.files.rule_table import HEADER, read_rules

Put = Callable[[str, str | bytes], Path]
KINDS = ("one", "two", "both", "three", "constant", "exists")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default rules of the sample graph."""
    path = tmp_path_factory.mktemp("rules") / "rules.tsv"
    done = call("mine", "sample", "--out", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def all_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rules of every kind."""
    path = tmp_path_factory.mktemp("rules") / "all.tsv"
    assert call("mine", "sample", "--out", path, "--kinds", "all", "--samples", "20000").returncode == 0
    return path


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_process_of_its_own_mines_enriches_and_evaluates(tmp_path):
    mined = run("mine", "sample", "--out", "r.tsv", "--top", "2", cwd=tmp_path)
    assert mined.returncode == 0 and mined.stderr == ""
    assert "has_city(y,x) => city_in(x,y)" in mined.stdout and "148 rules from 8,234 facts" in mined.stdout
    enriched = run("enrich", "sample", "--rules", "r.tsv", "--out", "more", "--walks", "100", cwd=tmp_path)
    assert enriched.returncode == 0 and enriched.stderr == ""
    ranked = run("rules", "evaluate", "sample", "--rules", "r.tsv", cwd=tmp_path)
    assert ranked.returncode == 0 and ranked.stderr == "" and "283 queries" in ranked.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["more", "r.tsv"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_mined_alone(kind, tmp_path):
    out = tmp_path / "rules.tsv"
    done = call("mine", "sample", "--out", out, "--kinds", kind, "--samples", "20000", "--top", "0")
    assert done.returncode == 0 and "Best rules" not in done.stdout
    shown = json.loads(call("rules", "show", out, "--json").stdout)
    assert list(shown["kinds"]) == [kind] and shown["kinds"][kind] == shown["rules"] == len(lines(out)) - 1 > 0


def test_all_kinds_together(all_rules):
    shown = json.loads(call("rules", "show", all_rules, "--json").stdout)
    assert set(shown["kinds"]) == set(KINDS) and sum(shown["kinds"].values()) == shown["rules"]
    assert shown["pca_at_least"]["0.5"] >= shown["pca_at_least"]["0.8"] >= shown["pca_at_least"]["0.95"] > 0
    assert "kind constant" in call("rules", "show", all_rules).stdout


@pytest.mark.parametrize(
    ("limit", "value", "holds"),
    [
        ("--min-support", "20", lambda r: (r.support >= 20).all()),
        ("--min-head-coverage", "0.3", lambda r: (r.head_coverage >= 0.3).all()),
        ("--min-confidence", "0.5", lambda r: (r.confidence >= 0.5).all()),
        ("--min-pca", "0.9", lambda r: (r.pca_confidence >= 0.9).all()),
        ("--min-head-size", "400", lambda r: (r.head_size >= 400).all()),
        ("--max-rules", "7", lambda r: len(r) == 7),
    ],
)
def test_limits_of_mining(limit, value, holds, rules, tmp_path):
    out, dataset = tmp_path / "rules.tsv", load_dataset("sample")
    assert call("mine", "sample", "--out", out, limit, value).returncode == 0
    found = read_rules(out, dataset.relations, dataset.entities)
    assert 0 < len(found) < len(lines(rules)) - 1 and holds(found)


def test_threads_and_memory_do_not_change_a_byte(tmp_path):
    common = ("--kinds", "all", "--samples", "20000", "--seed", "4")
    for name, more in (("a", ("--threads", "1")), ("b", ("--threads", "2")), ("c", ("--memory-limit", "0.1"))):
        assert call("mine", "sample", "--out", tmp_path / name, *common, *more).returncode == 0
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1
    for name in ("1", "2"):
        words = ("--rules", tmp_path / "a", "--out", tmp_path / f"more{name}", "--walks", "100", "--threads", name)
        assert call("enrich", "sample", *words).returncode == 0
    files = [{p.name: p.read_bytes() for p in (tmp_path / f"more{name}").iterdir()} for name in ("1", "2")]
    assert files[0] == files[1] and len(files[0]) == 5


def test_auxiliary_facts_are_mined_only_when_asked(rules, tmp_path):
    done = call("mine", "sample", "--out", tmp_path / "r.tsv", "--with-auxiliary")
    assert "from 9,735 facts" in done.stdout
    assert lines(tmp_path / "r.tsv") != lines(rules)


def test_a_short_time_is_said_to_have_been_short(tmp_path):
    done = call("mine", "sample", "--out", tmp_path / "r.tsv", "--time-limit", "0.000000001")
    assert done.returncode == 0
    assert "time limit reached" in done.stderr and "of 23 head relations left out" in done.stderr


def test_an_existing_file_is_kept_unless_forced(tmp_path, rules):
    out = tmp_path / "r.tsv"
    out.write_text("precious")
    assert "--force" in sentence(call("mine", "sample", "--out", out))
    assert "--force" in sentence(call("rules", "convert", rules, out, "--data", "sample"))
    assert out.read_text() == "precious"
    assert call("mine", "sample", "--out", out, "--force").returncode == 0
    assert lines(out) == lines(rules)
    out.write_text("precious")
    assert call("rules", "convert", rules, out, "--data", "sample", "--force").returncode == 0
    assert lines(out) == lines(rules)


def test_top_prints_the_best_of_a_relation(rules):
    done = call("rules", "top", rules, "--relation", "in_timezone", "--top", "2")
    assert "Best of 4 rules for in_timezone" in done.stdout
    assert done.stdout.count(" => in_timezone(x,y)") == 2 and "pca confidence" in done.stdout
    for measure in ("standard", "smoothed"):
        assert f"{measure} confidence" in call("rules", "top", rules, "--measure", measure).stdout


def test_top_counts_rules_with_constants_of_either_direction(all_rules):
    assert " => is_a(x,city)" in call("rules", "top", all_rules, "--relation", "is_a", "--top", "3000").stdout


@pytest.mark.parametrize("form", ["amie", "anyburl"])
def test_other_tools_forms_there_and_back(form, rules, tmp_path):
    there, back = tmp_path / "there", tmp_path / "back.tsv"
    done = call("rules", "convert", rules, there, "--data", "sample", "--to", form)
    assert done.returncode == 0 and "written 148 rules" in done.stdout
    assert call("rules", "convert", there, back, "--data", "sample", "--from", form).returncode == 0
    if form == "amie":
        assert back.read_bytes() == rules.read_bytes()
    else:  # AnyBURL states neither the head's size nor the PCA body's
        kept = [0, 1, 2, 6]
        cells, expected = ([line.split("\t") for line in lines(path)] for path in (back, rules))
        assert [[row[i] for i in kept] for row in cells] == [[row[i] for i in kept] for row in expected]
        assert all(row[3] == row[4] == row[5] == row[7] == "" for row in cells[1:])


def test_every_kind_goes_through_the_other_forms(all_rules, tmp_path):
    for form in ("amie", "anyburl"):
        there, back = tmp_path / form, tmp_path / f"{form}.tsv"
        assert call("rules", "convert", all_rules, there, "--data", "sample", "--to", form).returncode == 0
        assert call("rules", "convert", there, back, "--data", "sample", "--from", form).returncode == 0
        assert [row.split("\t")[0] for row in lines(back)] == [row.split("\t")[0] for row in lines(all_rules)]


def test_figures_that_are_not_there_are_not_made_up(rules, tmp_path):
    call("rules", "convert", rules, tmp_path / "anyburl", "--data", "sample", "--to", "anyburl")
    words = ("--data", "sample", "--from", "anyburl", "--to", "amie")
    said = sentence(call("rules", "convert", tmp_path / "anyburl", tmp_path / "amie", *words))
    assert "states the pca_body_size" in said
    assert [p.name for p in tmp_path.iterdir()] == ["anyburl"]


def test_rule_files_may_be_compressed(rules, tmp_path):
    packed = tmp_path / "rules.tsv.zst"
    assert call("rules", "convert", rules, packed, "--data", "sample").returncode == 0
    assert packed.stat().st_size < rules.stat().st_size / 3
    assert json.loads(call("rules", "show", packed, "--json").stdout)["rules"] == 148


def test_enrich_writes_neighbours_reasons_and_a_summary(rules, tmp_path):
    out = tmp_path / "more"
    done = call("enrich", "sample", "--rules", rules, "--out", out, "--walks", "200", "--json")
    summary = json.loads(done.stdout)
    assert summary == json.loads((out / "enrichment.json").read_text(encoding="utf-8"))
    neighbours, groundings = (pq.read_table(out / f"{name}.parquet") for name in ("neighbors", "groundings"))
    assert summary["virtual_triples"] == len(neighbours) > 100
    assert summary["groundings"] == len(groundings) == sum(neighbours["groundings"].to_pylist())
    assert sum(summary["by_kind"].values()) == len(neighbours)
    assert summary["asked"] == 293 and 0 < summary["helped"] <= 293
    ratio = summary["neighbours_per_predicted_fact"]
    assert ratio["after"] > ratio["before"] == pytest.approx(5.03, abs=0.005)
    assert len(lines(out / "neighbors.tsv")) == len(neighbours) + 1


def test_no_virtual_neighbour_is_a_known_fact(rules, tmp_path):
    dataset = load_dataset("sample")
    call("enrich", "sample", "--rules", rules, "--out", tmp_path / "more", "--who", "all", "--walks", "100")
    table = pq.read_table(tmp_path / "more" / "neighbors.parquet")
    ids = dataset.entities.ids(table["head"].to_pylist()), dataset.entities.ids(table["tail"].to_pylist())
    relations = dataset.relations.ids(table["relation"].to_pylist())
    assert len(table) > 100 and not dataset.known_facts().contains(ids[0], relations, ids[1]).any()


def test_without_rules_given_the_graph_is_mined(rules, tmp_path):
    assert call("enrich", "sample", "--out", tmp_path / "a", "--no-paths").returncode == 0
    assert call("enrich", "sample", "--out", tmp_path / "b", "--no-paths", "--rules", rules).returncode == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_who_is_enriched(rules, tmp_path, put: Put):
    who = put("who.txt", "Juba\nSouth Sudan\n")
    asked = {}
    for name, words in {
        "test": ("--who", "test"),
        "seen": ("--who", "seen"),
        "some": ("--entities", who),
        "capped": ("--max-per-entity", "1"),
    }.items():
        done = call("enrich", "sample", "--rules", rules, "--out", tmp_path / name, "--no-paths", "--json", *words)
        asked[name] = json.loads(done.stdout)
    assert [asked[name]["asked"] for name in ("test", "seen", "some")] == [161, 1675, 2]
    assert asked["some"]["entities"] == "who.txt"
    heads_and_tails = pq.read_table(tmp_path / "some" / "neighbors.parquet").select(["head", "tail"]).to_pylist()
    assert all({"Juba", "South Sudan"} & set(row.values()) for row in heads_and_tails)
    assert asked["capped"]["virtual_triples"] <= asked["capped"]["asked"]


def test_enriching_again_needs_force(rules, tmp_path):
    out = tmp_path / "more"
    words = ("enrich", "sample", "--rules", rules, "--out", out, "--no-paths")
    assert call(*words).returncode == 0
    (out / "note").write_text("mine")
    assert "--force" in sentence(call(*words))
    assert (out / "note").exists()
    assert call(*words, "--force").returncode == 0 and not (out / "note").exists()


def test_evaluate_prints_figures_and_json(rules):
    rows = json.loads(call("rules", "evaluate", "sample", "--rules", rules, "--json").stdout)
    [row] = rows
    assert row["queries"] == 283 and row["rules"] == 148 and row["protocol"] == "inductive"
    assert 0.5 < row["metrics"]["mrr"] <= row["metrics"]["hits@10"] <= 1
    printed = call("rules", "evaluate", "sample", "--rules", rules).stdout
    assert f"{100 * row['metrics']['mrr']:.1f}" in printed and "ties at the mean rank" in printed


def test_evaluate_under_both_filters_and_other_settings(rules):
    words = ("rules", "evaluate", "sample", "--rules", rules, "--json")
    known, full = json.loads(call(*words, "--full", "sample").stdout)
    assert known["filter"] == "known" and full["filter"] == "full" and known["metrics"] == full["metrics"]
    [other] = json.loads(call(*words, "--no-frequency", "--aggregation", "noisy-or", "--candidates", "seen").stdout)
    assert other["candidates"] == "seen" and other["metrics"] != known["metrics"]
    [threaded] = json.loads(call(*words, "--threads", "2").stdout)
    assert threaded == known


def test_evaluate_with_newcomers_cut_to_few_facts(rules, tmp_path):
    words = ("--rules", rules, "--json")
    [whole] = json.loads(call("rules", "evaluate", "sample", *words).stdout)
    [cut] = json.loads(call("rules", "evaluate", "sample", *words, "--known-facts", "1").stdout)
    assert whole["known_facts"] is None and cut["queries"] == whole["queries"]
    assert cut["metrics"]["mrr"] < whole["metrics"]["mrr"] - 0.2
    assert cut["known_facts"]["kept"] + cut["known_facts"]["withheld"] == 1501
    fewer = FactsCut(1).of(load_dataset("sample"))
    write_dataset(fewer, tmp_path / "fewer")
    _, by_hand = json.loads(call("rules", "evaluate", tmp_path / "fewer", *words, "--full", "sample").stdout)
    assert (by_hand["filter"], by_hand["metrics"]) == ("full", cut["metrics"])
    printed = " ".join(call("rules", "evaluate", "sample", "--rules", rules, "--known-facts", "3").stdout.split())
    assert "inductive protocol, newcomers cut to 3 known facts" in printed
    assert "of 1,501 auxiliary facts are known, drawn by seed 0" in printed


def test_a_tiny_graph_by_hand(tmp_path, put: Put):
    """Two of three likes are returned. More are liked than like, so PCA looks at y, and all three y are liked."""
    graph = put("g.tsv", "a\tlikes\tb\nb\tlikes\ta\nb\tlikes\tc\n")
    done = call("mine", graph, "--out", tmp_path / "r.tsv")
    assert done.returncode == 0 and "1 rules from 3 facts" in done.stdout
    assert lines(tmp_path / "r.tsv")[1] == f"likes(y,x) => likes(x,y)\t2\t3\t3\t3\t{2 / 3!r}\t{2 / 3!r}\t{2 / 3!r}"


def test_a_graph_without_rules_is_no_error(tmp_path, put: Put):
    graph, out = put("g.tsv", "a\tr\tb\n"), tmp_path / "r.tsv"
    assert "0 rules from 1 facts" in call("mine", graph, "--out", out, "--kinds", "all").stdout
    assert out.read_text() == "\t".join(HEADER) + "\n"
    assert json.loads(call("rules", "show", out, "--json").stdout)["rules"] == 0
    assert "holds no rules" in call("rules", "top", out).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mine sample --kinds nonsense", "unknown kind of rule 'nonsense'"),
        ("mine sample --kinds one,,two", "unknown kind of rule ''"),
        ("mine sample --kinds construct", "did you mean 'constant'?"),
        ("mine sample --min-pca 1.5", "min_pca is 1.5"),
        ("mine sample --min-confidence -0.1", "min_confidence is -0.1"),
        ("mine sample --min-head-coverage 2", "min_head_coverage is 2.0"),
        ("mine sample --min-head-coverage nan", "min_head_coverage is nan"),
        ("mine sample --min-support -1", "min_support is -1"),
        ("mine sample --min-head-size 0", "min_head_size is 0"),
        ("mine sample --max-rules -5", "max_rules is -5"),
        ("mine sample --time-limit -1", "time_limit is -1.0"),
        ("mine sample --memory-limit -1", "--memory-limit is -1"),
        ("mine sample --memory-limit inf", "--memory-limit is inf"),
        ("mine sample --memory-limit nan", "--memory-limit is nan"),
        ("mine sample --samples 0", "samples is 0"),
        ("mine sample --threads 0", "--threads is 0"),
        ("mine sample --seed -1", "--seed is -1"),
        ("mine sample --top -1", "--top is -1"),
        ("mine sampel", "did you mean 'sample'"),
        ("enrich sample --who nonsense", "unknown group of entities 'nonsense'"),
        ("enrich sample --measure nonsense", "unknown measure 'nonsense'"),
        ("enrich sample --min-confidence 1.01", "min_confidence 1.01"),
        ("enrich sample --min-support -1", "min_support -1"),
        ("enrich sample --min-head-size 0", "min_head_size 0"),
        ("enrich sample --max-per-entity -2", "max_per_entity -2"),
        ("enrich sample --walks 0", "walks is 0"),
        ("enrich sample --threads 0", "--threads is 0"),
        ("enrich sample --entities nofile", "nofile"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence_and_nothing_is_written(words, said, tmp_path):
    assert said in sentence(call(*words.split(), "--out", "out", cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("evaluate sample --aggregation mean", "unknown aggregation 'mean'"),
        ("evaluate sample --candidates some", "unknown candidates 'some'"),
        ("evaluate sample --protocol transductive", "unknown protocol 'transductive'"),
        ("evaluate sample --threads 0", "--threads is 0"),
        ("evaluate sample --full nowhere", "nowhere"),
        ("evaluate sample --known-facts 0", "--known-facts is 0, but must be an integer from 1"),
        ("evaluate sample --known-facts-seed 0", "say how many with --known-facts"),
        ("top {rules} --relation bordres", "no rule concludes the relation 'bordres'; did you mean 'borders'?"),
        ("top {rules} --relation utc_offset", "no rule concludes the relation 'utc_offset'; see"),
        ("top {rules} --measure pcaa", "unknown measure 'pcaa'; did you mean 'pca'?"),
        ("top {rules} --top 0", "--top is 0"),
        ("convert {rules} out --data sample --from xls", "unknown rule format 'xls'"),
        ("convert {rules} out --data sample --to ammie", "did you mean 'amie'?"),
    ],
)
def test_mistakes_about_rules(words, said, rules, tmp_path):
    done = call("rules", *words.format(rules=rules).split(), cwd=tmp_path)
    assert said in sentence(done)
    assert list(tmp_path.iterdir()) == []


HEAD = "\t".join(HEADER) + "\n"
GOOD = "borders(y,x) => borders(x,y)\t4\t10\t5\t8\t0.5\t0.4\t0.8\n"
WRONG_FILES: dict[str, tuple[str | bytes, str]] = {
    "syntax": (HEAD + GOOD + "\n" + GOOD.replace("x,y)\t", "x,y\t"), "line 4: expected an atom"),
    "sign": (HEAD + GOOD.replace("=>", "->"), "line 2: cannot read '>"),
    "relation": (HEAD + GOOD + GOOD.replace("borders(y", "likes(y"), "line 3: unknown relation 'likes'"),
    "entity": (HEAD + "borders(x,Gondor) => is_a(x,city)\t1\t1\t1\t1\t1.0\t1.0\t1.0\n", "unknown entity 'Gondor'"),
    "counts": (HEAD + GOOD.replace("\t10\t", "\t3\t"), "line 2: confidence '0.4' contradicts the counts"),
    "columns": (HEAD + GOOD.replace("\t0.8", ""), "line 2: 7 columns where 8 are expected"),
    "not utf-8": (HEAD.encode() + b"\xff\xfe\n", "line 2: is not UTF-8"),
    "no table": ("a\tb\tc\n", "line 1: the header is"),
    "empty": ("", "line 1: the header is ''"),
    "cut off": (b"\x1f\x8b\x08\x00", "is not a whole gzip file"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_rule_file_is_named_with_its_line(name, tmp_path, put: Put):
    content, said = WRONG_FILES[name]
    path = put("wrong.tsv", content)
    for words in (
        ("enrich", "sample", "--rules", path, "--out", "out"),
        ("rules", "evaluate", "sample", "--rules", path),
        ("rules", "convert", path, "out", "--data", "sample"),
    ):
        answer = sentence(call(*words, cwd=tmp_path))
        assert str(path) in answer and said in answer
    if name not in ("relation", "entity"):  # without a graph at hand any name will do
        for verb in ("show", "top"):
            assert said in sentence(call("rules", verb, path))
    assert [p.name for p in tmp_path.iterdir()] == ["wrong.tsv"]


@pytest.mark.parametrize("where", ["folder", "nowhere.tsv"])
def test_a_rule_file_that_is_none(where, tmp_path):
    (tmp_path / "folder").mkdir()
    for words in (
        ("rules", "show", where),
        ("rules", "top", where),
        ("rules", "convert", where, "out", "--data", "sample"),
        ("rules", "evaluate", "sample", "--rules", where),
        ("enrich", "sample", "--rules", where, "--out", "out"),
    ):
        said = sentence(call(*words, cwd=tmp_path))
        a_model_will_do = where == "folder" and words[1] in ("show", "top", "convert")
        assert where in said and ("give the folder of a trained model" if a_model_will_do else "cannot be read") in said
    assert "--data is missing" in sentence(call("rules", "convert", "nowhere.tsv", "out", cwd=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("verb", [("mine", "--out", "out"), ("enrich", "--out", "out"), ("rules", "evaluate")])
def test_an_empty_graph(verb, tmp_path, put: Put):
    graph = put("empty.tsv", "")
    words = [*verb[:2], graph] if verb[0] == "rules" else [verb[0], graph, *verb[1:]]
    assert "empty.tsv: is empty" in sentence(call(*words, cwd=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["empty.tsv"]


def test_a_data_set_without_newcomers_or_test(tmp_path, put: Put):
    graph = put("g.tsv", "a\tr\tb\nb\tr\ta\n")
    said = sentence(call("enrich", graph, "--out", tmp_path / "out"))
    assert "no entities of the group 'newcomers'" in said and "--who" in said
    assert "no query to rank" in sentence(call("rules", "evaluate", graph))
    assert [p.name for p in tmp_path.iterdir()] == ["g.tsv"]
    assert call("enrich", graph, "--out", tmp_path / "out", "--who", "seen").returncode == 0


@pytest.mark.parametrize("verb", ["mine", "convert"])
def test_a_place_that_cannot_hold_a_file_is_said_at_once(verb, rules, tmp_path):
    (tmp_path / "folder").mkdir()
    for place, said in (("folder", "is a folder"), ("x" * 300, "cannot be written")):
        words = (
            ("mine", "sample", "--out", place)
            if verb == "mine"
            else ("rules", "convert", rules, place, "--data", "sample")
        )
        assert said in sentence(call(*words, "--force", cwd=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_refreshed_rules_are_mined_with_the_auxiliary_facts(tmp_path):
    # Only newcomers show that who is born somewhere also lives there.
    parts = {
        "train": [(f"a{i}", "born_in", f"b{i}") for i in range(6)] + [("a0", "lives_in", "b3")],
        "aux": [(f"n{i}", r, f"b{i}") for i in range(5) for r in ("born_in", "lives_in")] + [("n5", "born_in", "b5")],
        "test": [("n5", "lives_in", "b5")],
    }
    for role, rows in parts.items():
        (tmp_path / f"{role}.txt").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    ranks = {}
    for protocol in ("inductive", "refreshed"):
        done = call("rules", "evaluate", tmp_path, "--protocol", protocol, "--json")
        [row] = json.loads(done.stdout)
        assert row["protocol"] == protocol
        ranks[protocol] = row["metrics"]["mr"]
    assert ranks["refreshed"] == 1.0 < ranks["inductive"]


def test_rule_files_are_text(tmp_path):
    done = call("mine", "sample", "--out", "rules.parquet", cwd=tmp_path)
    assert "rule files are text" in sentence(done)


def test_enriching_never_replaces_what_it_reads_or_what_is_not_its_own(tmp_path):
    made = call("split", "sample", "in", "--rate", "20", cwd=tmp_path)
    assert made.returncode == 0
    assert "what is read" in sentence(call("enrich", "in", "--out", "in", "--force", cwd=tmp_path))
    assert call("data", "convert", "sample", "other", cwd=tmp_path).returncode == 0
    assert "other" in sentence(call("enrich", "in", "--out", "other", "--force", cwd=tmp_path))
    assert {p.name for p in (tmp_path / "other").iterdir()} >= {"dataset.json", "train.tsv"}


def test_newcomers_are_found_as_answers_where_rules_walk_over_all_known_facts(tmp_path):
    # Both ends of the question are new; only Ann's own facts lead from the village to her.
    parts = {
        "train": [(f"a{i}", "lives_in", f"v{i % 3}") for i in range(9)]
        + [(f"a{i}", "knows", f"a{j}") for i in range(9) for j in range(9) if i % 3 == j % 3 and i != j],
        "aux": [("Ann", "lives_in", "v0"), ("Bob", "lives_in", "v0")],
        "test": [("Ann", "knows", "Bob")],
    }
    for role, rows in parts.items():
        (tmp_path / f"{role}.txt").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    ranks = {}
    for facts in ("own", "known"):
        [row] = json.loads(call("rules", "evaluate", tmp_path, "--facts", facts, "--json").stdout)
        ranks[facts] = row["metrics"]["mr"]
    assert ranks["known"] < ranks["own"]
    assert "unknown set of facts 'all'" in sentence(call("rules", "evaluate", tmp_path, "--facts", "all"))
