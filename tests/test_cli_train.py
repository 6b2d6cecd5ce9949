"""``newcomer train``: a model or one sentence; a training that can be killed at any moment and resumed."""

import json
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch

from command_line import Done, call, environment, run, sentence, with_defaults
from newcomer.cli import train as verb
from newcomer.cli import watching
from newcomer.config import load_preset, with_overrides
from newcomer.data import write_dataset
from newcomer.models.bundle import read_bundle
from newcomer.models.propagation import gpu
from newcomer.models.serialisation import load_model
from newcomer.training import propagation as cost_model
from newcomer.training.checkpoint import CHECKPOINT, METRICS, RunState
from newcomer.training.runtime import settled
from nn_oracle import one_thread
from training_world import SMALL, StopAfter, Stopped, world

on_one_thread = pytest.fixture(autouse=True)(one_thread)
SET = [word for change in SMALL for word in ("--set", change)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_dataset(world(), tmp_path / "town")
    return tmp_path / "town"


def train(data: Path, *words: str | Path) -> Done:
    return call("train", data, *SET, *with_defaults(*words, threads="1"), cwd=data.parent)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupt(monkeypatch: pytest.MonkeyPatch, data: Path, epochs: int, *words: str | Path) -> None:
    """Leave a training behind that was killed after so many epochs."""
    monkeypatch.setattr(verb, "watching", lambda: nullcontext(StopAfter(epochs)))
    with pytest.raises(Stopped):
        train(data, *words)
    monkeypatch.undo()


def told(table: str) -> str:
    """The words of a table, whose cells may go on over several lines."""
    return " ".join(table.split())


def planned(*changes: str, device: str = "cpu", resume: bool = False) -> dict[str, str]:
    """The rows of the plan for a small world, by what they are about."""
    dataset, asked = world(), with_overrides(load_preset("default"), [*SMALL, "model.ensemble=yes", *changes])
    chosen = settled(asked, dataset, torch.device(device))
    return dict(verb.plan_of(dataset, asked, chosen, device, None, Path("m.training"), resume))


def test_the_plan_says_what_was_decided_about_propagation_and_why(monkeypatch):
    assert planned("model.propagation=no")["propagation"] == "none"
    assert planned("model.propagation=yes")["propagation"] == "learned from at most 4,000 batches"
    assert "too few facts to learn it from" in planned()["propagation"]
    assert "only an ensemble uses it" in planned("model.ensemble=no")["propagation"]
    assert "decided when this training began" in planned(resume=True)["propagation"]
    monkeypatch.setattr(cost_model, "MIN_STEPS", 1)
    assert planned()["propagation"].startswith("learned from at most 4,000 batches: there are facts enough to learn it")
    for halves, why in ((True, "a GPU trains"), (False, "cannot compute with halves")):
        monkeypatch.setattr(gpu, "keeps_halves", lambda found=halves: found)
        row = planned(device="cuda")["propagation"]
        assert why in row and ("learned from" in row) is halves and row.endswith("(model.propagation=auto)")


def test_the_plan_of_a_training_without_a_search_or_a_final_fit():
    plain = planned("training.validation_rate=0")
    assert plain["validation"] == "none" and "search" not in plain
    assert plain["final"] == "4 epochs of 3 batches on the whole graph"
    anew = planned("training.final_share=1")["final"]
    assert anew == "a fresh model on the whole graph, for as many epochs as were best in the search"
    assert planned("training.final_fit=no")["final"] == "none: the best model of the search is kept"


@pytest.mark.parametrize(
    "facts",
    [["a r b"], ["a r b", "b s c"], ["a r b", "c r d", "e r f", "g r h"], ["a r b", "a r c", "a r d", "a r e"]],
    ids=len,
)
def test_a_graph_of_a_few_facts_is_trained_on_without_validation(tmp_path, facts):
    (tmp_path / "tiny.tsv").write_text("".join(fact.replace(" ", "\t") + "\n" for fact in facts))
    done = call("train", "tiny.tsv", "--out", "m", "--threads", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "newcomer split" not in done.stdout  # there is too little to cut
    assert "none: no newcomers can be held out of so few facts; probabilities are not calibrated" in told(done.stdout)
    asked = call("suggest", "m", "--entity", "a", "--top", "1", "--json", cwd=tmp_path)
    assert asked.returncode == 0 and json.loads(asked.stdout.splitlines()[0])["calibrated"] is False


def test_the_plan_then_the_model_then_the_figures(data):
    done = train(data)
    assert done.returncode == 0, done.stderr
    model = data.parent / "runs" / "town"
    bundle = read_bundle(model)
    load_model(bundle)
    assert bundle.dataset_name == "town" and bundle.metrics["validation"]["queries"] == 3
    assert names(model.parent) == ["town"]
    for words in (
        "72 facts, 33 entities, 4 relations",
        "4, with 8 facts",
        "inductive, seed 0, preset default",
        "encoder foldin, decoder complex, dim 8",
        "mined from observed facts: one, two, both",
        "rules of pca confidence from 0.8 and symmetric paths (20 walks per entity), soft labels",
        "newcomers: the heads of 50 % of the valid triples, who leave the graph and are asked about",
        "at most 4 epochs of 3 batches on the graph without them, validated every 2 epochs and at the end",
        "stops after 2 times without a better MRR",
        "vectors go on on the whole graph, for 0.25 of the epochs that were best",
        "none: only an ensemble uses it (model.propagation=auto)",
        "validation: 3 queries about 3 newcomers held out of the graph",
        "rules alone",
        "trained on everyone for",
        "the model is in runs/town",
        "newcomer evaluate runs/town",
    ):
        assert words in told(done.stdout), words
    assert "search, epoch 2 of 4: loss" in done.stderr and "validation MRR" in done.stderr and "final" in done.stderr


def test_a_model_needs_a_name_of_its_own(data, tmp_path):
    (tmp_path / "here").mkdir()
    for force in ([], ["--force"]):
        said = sentence(call("train", data, "--out", ".", *force, cwd=tmp_path / "here"))
        assert said == "newcomer: .: is no name for a model's folder; choose another place"


def test_after_a_training_without_a_test_part_the_printed_command_works(data):
    done = train(data / "train.tsv", "--set", "training.validation_rate=0", "--out", "alone")
    assert done.returncode == 0, done.stderr
    (hint,) = [line for line in done.stdout.splitlines() if line.startswith("query it: newcomer ")]
    assert "evaluate it on test" not in done.stdout
    answered = call(*shlex.split(hint)[3:], "--top", "3", cwd=data)
    assert answered.returncode == 0 and "likely missing of" in answered.stdout


def test_the_commands_printed_where_there_is_no_test_part_lead_to_a_measurement(data):
    file = data / "train.tsv"
    done = train(file, "--out", "alone")
    printed = [line.strip() for line in done.stdout.splitlines() if line.startswith("  newcomer ")]
    said = sentence(call("evaluate", "alone", "--data", file, cwd=data))
    assert "has no test part" in said and said.endswith(" && ".join(printed))
    assert "see: newcomer split --help" in sentence(call("evaluate", "alone", cwd=data))
    for line in printed:
        _, verb, *words = shlex.split(line)
        done = call(verb, *words, *(SET if verb == "train" else ()), cwd=data)
        assert done.returncode == 0, done.stderr
    assert verb == "evaluate" and "train-cut: default" in done.stdout and "queries; MRR and Hits" in done.stdout


def test_the_command_to_evaluate_names_the_data_where_its_name_does_not_lead_there(data, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for place, named in ((data.parent, False), (elsewhere, True)):
        done = call("train", data, *SET, "--out", "m", "--threads", "1", cwd=place)
        (hint,) = [line for line in done.stdout.splitlines() if line.startswith("evaluate it on test: newcomer ")]
        assert (f"--data {data}" in hint) is named
        assert call(*shlex.split(hint)[5:], cwd=place).returncode == 0


def test_the_quick_start_in_a_process_of_its_own(tmp_path):
    small = ["training.epochs=1", "training.batches=5", "model.dim=4", "rules.kinds=one,two,both"]
    done = run(
        "train",
        "sample",
        *(word for change in small for word in ("--set", change)),
        "--threads",
        "1",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["model"] == "runs/sample" and summary["epochs"] == 1
    assert summary["validation"]["rules"]["mrr"] > 0.5
    assert names(tmp_path / "runs") == ["sample"]
    bundle = read_bundle(tmp_path / "runs" / "sample")
    assert bundle.metrics["validation"] == summary["validation"]
    assert len(bundle.rules) == summary["rules"] > 0


def test_on_a_terminal_there_are_bars(capsys):
    record = {"phase": "search", "epoch": 2, "loss": 0.5, "mrr": 0.25}
    with watching._bars() as listener:
        listener.stage("search")
        listener.step(1, 3)
        listener.epoch(record, RunState(best={"mrr": 0.375}, best_epoch=1), 8)
        assert "loss 0.5000, validation MRR 25.0, best 37.5 after epoch 1" in watching.figures_of(
            record, RunState(best={"mrr": 0.375}, best_epoch=1)
        )
    assert capsys.readouterr().out == ""


def test_options_are_settings(data, put):
    file = put("my.toml", 'preset = "mean"\n[training]\nlr = 0.5\n')
    words = ["--config", file, "--decoder", "complex", "--protocol", "refreshed", "--seed", "7", "--device", "cpu"]
    done = train(data, "--out", data.parent / "m", *words, "--set", "training.epochs=1", "--set", "seed=8")
    assert done.returncode == 0, done.stderr
    config = read_bundle(data.parent / "m").config
    assert (config.preset, config.model.encoder, config.model.decoder) == ("mean", "mean", "complex")
    assert (config.protocol, config.seed, config.training.epochs) == ("refreshed", 8, 1)  # --set has the last word
    assert config.training.lr == 0.02  # also over the file
    assert "rules alone" not in done.stdout and "rules top" not in done.stdout
    listed = train(data, "--out", data.parent / "n", "--preset", "lan", "--set", "training.validation_rate=0")
    assert listed.returncode == 0 and "validation:" not in listed.stdout
    assert read_bundle(data.parent / "n").config.model.encoder == "lan"


def test_given_rules_are_used(data):
    rules = data.parent / "rules.tsv"
    assert call("mine", data, "--out", rules, "--kinds", "one", "--top", "0").returncode == 0
    done = train(data, "--rules", rules, "--out", data.parent / "m")
    assert done.returncode == 0 and "rules.tsv" in done.stdout
    back = data.parent / "back.tsv"
    assert call("rules", "convert", data.parent / "m", back).returncode == 0
    assert back.read_bytes() == rules.read_bytes()
    for unused in (("--data", data), ("--from", "amie")):  # a model's rules are in no file format, and have names
        said = sentence(call("rules", "convert", data.parent / "m", data.parent / "other.tsv", *unused))
        assert "leave out --data and --from" in said
    assert not (data.parent / "other.tsv").exists()


MISTAKES = [
    (["--preset", "papr"], "unknown preset 'papr'"),
    (["--preset", "mean", "--config", "my.toml"], "leave out --preset"),
    (["--config", "nowhere.toml"], "nowhere.toml: cannot be read"),
    (["--decoder", "dismult"], "did you mean 'distmult'?"),
    (["--protocol", "deductive"], "did you mean 'inductive'?"),
    (["--set", "training.learning_rate=1"], "did you mean 'training.lr'?"),
    (["--set", "training.lr"], "write NAME=VALUE"),
    (["--rules", "nowhere.tsv"], "nowhere.tsv"),
    (["--device", "gpu"], "unknown device 'gpu'"),
    (["--seed", "-1"], "--seed is -1, but must be an integer from 0"),
    (["--threads", "0"], "--threads is 0, but must be an integer from 1"),
    (["--resume"], "there is no training to resume; leave out --resume"),
    (["--out", "town"], "choose another place"),
    (["--out", "."], "choose another place"),
    (["--out", "file"], "exists already"),
    (["--out", "file/m"], "cannot be written (Not a directory); choose another place"),
    (["--threads", "2147483648"], "--threads is 2147483648, but must be an integer from 1 to 1024"),
    (["--set", "training.lr=1e30"], "lower training.lr"),
    (["--set", "training.lr=1e300"], "lower training.lr (now 1e+300)"),
    (["--set", "model.dim=9223372036854775806"], "there is too little memory"),
    (["--set", "training.lr=1e30", "--out", "deep/er/m"], "lower training.lr"),
]


@pytest.mark.parametrize(("words", "problem"), MISTAKES, ids=lambda value: " ".join(value)[:40] if value else "")
def test_a_mistake_is_one_sentence_and_leaves_nothing(data, words, problem):
    (data.parent / "file").write_text("")
    assert problem in sentence(train(data, *words), after_progress=True)
    assert names(data.parent) == ["file", "town"]


def test_a_graph_that_nobody_can_be_held_out_of_and_is_not_tiny_is_a_mistake(put):
    path = put("star.tsv", "".join(f"a\tr\tb{i}\n" for i in range(60)))
    text = sentence(call("train", path, cwd=path.parent), after_progress=True)
    assert "set training.validation_rate=0 to train for training.epochs without validation" in text
    words = ["--set", "training.validation_rate=0", "--set", "training.epochs=1", "--set", "model.dim=4"]
    done = call("train", path, *words, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    assert names(path.parent) == ["runs", "star.tsv"]


def test_a_training_that_stopped_is_resumed_or_replaced_only_when_asked(data, monkeypatch):
    out, kept = data.parent / "m", data.parent / "m.training"
    interrupt(monkeypatch, data, 3, "--out", out)
    assert names(kept) == [CHECKPOINT, METRICS] and not out.exists()
    before = (kept / CHECKPOINT).read_bytes()
    text = sentence(train(data, "--out", out))
    assert f"{kept}: holds a training that was interrupted; pass --resume to go on with it, or --force" in text
    other = sentence(train(data, "--out", out, "--resume", "--set", "training.lr=0.3"))
    assert "was written with training.lr = 0.02, not 0.3" in other
    assert "was written with seed = 0, not 1" in sentence(train(data, "--out", out, "--resume", "--seed", "1"))
    assert (kept / CHECKPOINT).read_bytes() == before
    resumed = train(data, "--out", out, "--resume")
    assert resumed.returncode == 0 and "search, epoch 4 of 4" in resumed.stderr
    assert "search, epoch 2 of 4" not in resumed.stderr
    assert names(data.parent) == ["m", "town"]
    interrupt(monkeypatch, data, 3, "--out", data.parent / "n")
    anew = train(data, "--out", data.parent / "n", "--force")
    assert anew.returncode == 0 and "search, epoch 2 of 4" in anew.stderr
    assert contents(out) == contents(data.parent / "n")


def test_a_model_is_replaced_only_when_asked(data):
    out = data.parent / "m"
    assert train(data, "--out", out).returncode == 0
    assert "exists already; choose another place or pass --force" in sentence(train(data, "--out", out))
    assert train(data, "--out", out, "--force", "--seed", "1").returncode == 0
    assert read_bundle(out).config.seed == 1
    (data.parent / "thesis").mkdir()
    (data.parent / "thesis" / "one.tex").write_text("years of work")
    refused = train(data, "--out", data.parent / "thesis", "--force")
    assert refused.returncode == 2 and (data.parent / "thesis" / "one.tex").exists()


def test_a_damaged_checkpoint_is_one_sentence(data, monkeypatch):
    interrupt(monkeypatch, data, 1, "--out", data.parent / "m")
    path = data.parent / "m.training" / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-9])
    text = sentence(train(data, "--out", data.parent / "m", "--resume"))
    assert "is not a whole checkpoint" in text and text.endswith("start anew with --force")


LONG = ["--set", "training.epochs=20", "--set", "training.validate_every=5", "--set", "training.patience=9"]


@contextmanager
def started(data: Path, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A training in a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "newcomer", "train", data, *SET, "--threads", "1", *LONG, *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(list(map(str, command)), cwd=data.parent, env=environment(), **quiet) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def wait_for_epochs(process: subprocess.Popen[str], folder: Path, more: int) -> None:
    """Until so many more epochs are written down, or the process is at its end."""
    written = epochs_in(folder)
    while process.poll() is None and epochs_in(folder) < written + more:
        time.sleep(0.005)


def epochs_in(folder: Path) -> int:
    path = folder / METRICS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_again_and_again_it_ends_with_the_same_bytes(data):
    chance = random.Random(4)
    whole, cut, folder = (data.parent / name for name in ("whole", "cut", "cut.training"))
    assert train(data, *LONG, "--out", whole).returncode == 0
    kills = 0
    while not cut.exists():
        with started(data, "--out", cut, *(["--resume"] if folder.exists() else [])) as process:
            wait_for_epochs(process, folder, chance.randint(6, 8))
            time.sleep(chance.uniform(0, 0.03))
            process.kill()
            complaints = process.communicate()[1]
        assert "Traceback" not in complaints and process.returncode in (-signal.SIGKILL, 0), complaints
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 2
    assert contents(cut) == contents(whole)


def test_nobody_comes_between_and_a_signal_ends_it_in_order(data):
    more = [word for name in ("epochs", "patience") for word in ("--set", f"training.{name}=9999")]
    with started(data, "--out", "m", "--force", "--time", "none", *more) as process:
        wait_for_epochs(process, data.parent / "m.training", 1)
        assert "pass --resume to go on with it, or --force to start anew" in sentence(train(data, "--out", "m"))
        assert "another training works here" in sentence(train(data, "--out", "m", "--force"))
        assert names(data.parent / "m.training") and process.poll() is None
        process.terminate()
        said = process.communicate()[1].splitlines()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert said[-1] == "newcomer: stopped by SIGTERM"
    assert said[-2].startswith("newcomer: the training is kept in m.training; go on with: newcomer train")
    assert said[-2].endswith("--resume --force")
    assert {"m.training", "town"} <= set(names(data.parent)) <= {"m", "m.training", "town"}  # m: a first model
    assert names(data.parent / "m.training") == [CHECKPOINT, METRICS]
