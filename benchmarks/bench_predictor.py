"""A trained model at work on FB15K Subject-10: loading it, newcomers one by one and as a stream, against retraining.

Needs NEWCOMER_DATA. A model of the default preset is trained for one epoch without validation, which is also what
"train again to include the newcomer" costs here, at the least; ``--model FOLDER`` uses one that is there, and compares
with the seconds that its epochs took where it was trained, if it has a record of them (`newcomer reproduce` leaves
one). Each of the measured newcomers has the facts of one that test asks about, under a name that the
model has never seen; the newcomers stored with the model are there too, so that 14,296 entities are ranked.

All of it runs on one thread and is measured in seconds of the processor, so that what else the machine does hardly
matters; on an idle machine they are those of the clock. "the first" is a newcomer right after loading, when compiled
code is read and nothing has been asked yet.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness import Bar, Child, data_folder, finish, in_child

DATA = "fb15k-subject-10"
LOAD_SECONDS, COMMAND_SECONDS, STREAM_SECONDS = 3.0, 6.0, 40.0
MEDIAN_MS, HIGH_MS = 15.0, 60.0
CHEAPER, SOONER = 1_000.0, 1.5
WARM_UP, MEASURED = 500, 1_000
PROPAGATED = 60  # questions
IN_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import bench_predictor; bench_predictor.{call}(sys.argv[2])\n"
Fact = tuple[str, str, str]


def train(folder: str) -> None:
    """In a process of its own: from the data set to the model's folder."""
    from newcomer.config import load_preset, with_overrides
    from newcomer.data import load_dataset
    from newcomer.models.bundle import write_bundle
    from newcomer.training.pipeline import fit

    start = time.process_time()
    config = with_overrides(load_preset("default"), ["training.epochs=1", "training.validation_rate=0"])
    dataset = load_dataset(DATA)
    write_bundle(Path(folder), fit(dataset, config, device="cpu", threads=1).bundle(dataset))
    print(json.dumps({"seconds": time.process_time() - start}))


def load(folder: str) -> None:
    """In a process of its own: reading a model, with everything imported."""
    import torch

    import newcomer.predictor

    torch.set_num_threads(1)
    start = time.process_time()
    newcomer.predictor.load(folder)
    print(json.dumps({"seconds": time.process_time() - start}))


def visits() -> tuple[dict[str, list[Fact]], list[tuple[str, str]]]:
    """The facts of the newcomers that test asks about, under new names, and what is asked of them."""
    from newcomer.data import load_dataset

    dataset = load_dataset(DATA)
    heads, relations = dataset.entities.names_of(dataset.test.heads), dataset.relations.names_of(dataset.test.relations)
    asked = [(f"new {head}", relation) for head, relation in zip(heads, relations, strict=True)]
    facts: dict[str, list[Fact]] = {name: [] for name, _ in asked}
    for head, relation, tail in dataset.auxiliary.named():
        ends = tuple(f"new {end}" if f"new {end}" in facts else end for end in (head, tail))
        for end in set(ends) & facts.keys():
            facts[end].append((ends[0], relation, ends[1]))
    return facts, asked


def serve(folder: str) -> None:
    """In a process of its own: a newcomer arrives, is embedded, asked about and explained, and leaves."""
    import torch

    import newcomer.predictor

    torch.set_num_threads(1)
    model = newcomer.predictor.load(folder)
    facts, asked = visits()
    order = np.random.default_rng(0).permutation(len(asked))
    times = []
    for name, relation in islice((asked[place] for place in order), WARM_UP + MEASURED):
        start = time.process_time()
        model.add(facts[name])
        model.embed(name)
        for answer in model.tails(name, relation, k=10):
            str(answer.because)
        times.append(time.process_time() - start)
        model.remove(name)
    median, high = np.percentile(times[WARM_UP:], [50, 99])
    print(json.dumps({"median": median, "high": high, "first": times[0]}))


def propagate(folder: str) -> None:
    """In a process of its own: questions propagated as they are answered, and by the layers that training uses."""
    import torch

    import newcomer.predictor

    torch.set_num_threads(1)
    model = newcomer.predictor.load(folder)
    scorer, overlay = model.engine.propagation, model.engine.overlay
    times: list[tuple[float, float]] = []
    if scorer is not None:
        edges, size = [scorer._base_edges], overlay.num_entities
        for entity, relation in islice(np.random.default_rng(0).permutation(overlay_facts(overlay)), PROPAGATED):
            start = time.process_time()
            scorer.scores(overlay, np.array([entity], dtype=np.int32), np.array([relation], dtype=np.int32))
            middle = time.process_time()
            with torch.no_grad():
                scorer.network(edges, torch.tensor([entity]), torch.tensor([relation]), size)
            times.append((middle - start, time.process_time() - middle))
    seconds, plainly = np.median(times or [(0.0, 0.0)], axis=0)
    print(json.dumps({"seconds": seconds, "plainly": plainly}))


def overlay_facts(overlay: Any) -> Any:
    """(n, 2): newcomers with the relations that they have."""
    rows = overlay.base.rows
    of_newcomers = (rows.owners >= overlay.num_seen) & (rows.relations < overlay.num_relations)
    return np.stack([rows.owners[of_newcomers], rows.relations[of_newcomers]], axis=1)


def propagating(folder: Path) -> list[Bar]:
    """Nothing of a model without propagation."""
    said = child("propagate", folder).said
    if not said["seconds"]:
        return []
    detail = f"{1_000 * said['seconds']:.1f} ms a question, {1_000 * said['plainly']:.1f} ms by the layers of training"
    ratio = said["plainly"] / said["seconds"]
    return [Bar("propagation as in training / as questions are answered", ratio, SOONER, at_least=True, detail=detail)]


def serving(folder: Path) -> tuple[list[Bar], float]:
    said = child("serve", folder).said
    detail = (
        f"add, embed, rank everyone, reasons; {MEASURED:,} questions after {WARM_UP:,}; the first {said['first']:.1f} s"
    )
    return [
        Bar("milliseconds a newcomer, median", 1_000 * said["median"], MEDIAN_MS, detail=detail),
        Bar("milliseconds a newcomer, 99th percentile", 1_000 * said["high"], HIGH_MS),
    ], said["median"]


def loading(folder: Path) -> Bar:
    seconds = min(child("load", folder).said["seconds"] for _ in range(3))
    return Bar("seconds to load the model, torch imported", seconds, LOAD_SECONDS, detail="best of 3")


def commands(folder: Path) -> list[Bar]:
    facts, asked = visits()
    with tempfile.TemporaryDirectory() as place:
        few, many, questions = (Path(place) / name for name in ("few.tsv", "many.tsv", "questions.tsv"))
        name, relation = asked[0]
        write_rows(few, facts[name])
        write_rows(many, [fact for stated in facts.values() for fact in stated])
        write_rows(questions, [(name, relation, "?") for name, relation in asked])
        one = min(predict(folder, few, "--relation", relation)[0] for _ in range(3))
        seconds, lines = predict(folder, many, "--questions", str(questions), "--json")
    assert lines == 10 * len(asked), f"{lines:,} answers to {len(asked):,} questions"
    detail = f"{len(facts):,} newcomers, {len(asked):,} questions"
    return [
        Bar("seconds of `newcomer predict`, one newcomer", one, COMMAND_SECONDS, detail="best of 3"),
        Bar("seconds of `newcomer predict --json`, all newcomers of test", seconds, STREAM_SECONDS, detail=detail),
    ]


def write_rows(path: Path, rows: list[Fact]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def predict(folder: Path, facts: Path, *options: str) -> tuple[float, int]:
    """Run the command: its seconds of the processor, starting up included, and the number of lines it prints."""
    command = [sys.executable, "-m", "newcomer", "predict", str(folder), "--facts", str(facts), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, done.stdout.count(b"\n")


def child(call: str, folder: Path) -> Child:
    return in_child(IN_CHILD.format(call=call), str(Path(__file__).parent), str(folder))


def recorded(folder: Path) -> tuple[float, str] | None:
    """The seconds that the epochs of a model took, by the clock where it was trained, and what they are."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    if not {"epoch_seconds", "epochs", "epochs_run"} <= metrics.keys():
        return None
    needed, run, spent = metrics["epochs"], metrics["epochs_run"], metrics["epoch_seconds"]
    detail = f"recorded when it was trained: {spent:,.0f} s by the clock for {run} epochs, of which {needed} count"
    return spent * needed / run, f"{detail}; mining and validation left out"


def retrained(folder: Path) -> tuple[float, str]:
    """Train a model into a folder: the seconds, and what they are."""
    seconds = child("train", folder).said["seconds"]
    return seconds, f"{seconds:.0f} s for one epoch"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a trained Subject-10 model, instead of training one")
    chosen = parser.parse_args()
    if data_folder(DATA) is None:
        return
    with tempfile.TemporaryDirectory() as place:
        folder, bars = chosen.model or Path(place) / "model", []
        retraining = recorded(folder) if chosen.model else retrained(folder)
        served, median = serving(folder)
        bars += [loading(folder), *served, *propagating(folder), *commands(folder)]
        if retraining is not None:
            seconds, detail = retraining
            bars.append(Bar("training again / one newcomer", seconds / median, CHEAPER, at_least=True, detail=detail))
    finish(bars)


if __name__ == "__main__":
    main()
