"""The same search of settings for each of the paper's four networks: what the presets were chosen on.

    PYTHONPATH=src python benchmarks/search.py --list
    PYTHONPATH=src python benchmarks/search.py TRIAL ... --data-root FOLDER --out FOLDER [--device auto]
    PYTHONPATH=src python benchmarks/search.py --table FOLDER

A trial starts from the settings of a network before the search, changes one or two of them, trains without the
newcomers that its seed holds out, and is graded on these: test is not looked at. Every network has the same number of
trials of the same number of epochs. A trial whose file is there is not run again.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from newcomer import __version__
from newcomer.config import Config, config_hash, with_overrides
from newcomer.data import load_dataset
from newcomer.files import fresh_file
from newcomer.models.device import DEVICES
from newcomer.reproduction.cells import commit
from newcomer.reproduction.plans import cells_of, load_plan
from newcomer.training.pipeline import fit

NETWORKS = ("mean", "lstm", "lan", "vn")
DECODERS = ("distmult", "transe", "complex")
LENGTH = ("training.epochs=12", "training.validate_every=6", "training.final_fit=false")
OWN = ("training.loss=softmax", "model.answers_by_input=true")  # answers by their trained vectors, against everyone
ENCODED = ("training.loss=softmax", "model.answers_by_input=false")  # answers encoded, against some that are drawn
RATES = ("0.002", "0.005", "0.01")
SEARCHED = {"fb15k-subject-10": "link-prediction", "wn11-object-5000": "classification"}  # data set: its plan
EVERYONE = "training.softmax_negatives=50000"
BEFORE = ("training.lr=0.005", "training.batches=100", "training.hide_pairs=false", "training.newcomer_answers=0")
START: dict[str, dict[str, tuple[str, ...]]] = {  # before the search; since then the presets have what it found
    "fb15k-subject-10": {
        "mean": ("model.decoder=distmult", "model.dropout=0.25", "training.lr=0.005"),
        "lstm": ("model.decoder=distmult", "model.dropout=0.25", "training.lr=0.002", EVERYONE),
        "lan": ("model.decoder=distmult", "model.dropout=0.25", "training.lr=0.005", EVERYONE),
    },
    "wn11-object-5000": {
        "lstm": ("training.hide_pairs=false",),
        "lan": ("model.dropout=0.3",),
        "vn": ("model.dim=200", "model.dropout=0.3", "model.relation_shifts=false", *BEFORE),
    },
}
# The last trials of each network: what did best before, joined, and what it suggested.
HIDDEN, AS_NEW = "training.hide_pairs=true", "training.newcomer_answers=0.5"
SHIFTED = "model.relation_shifts=true"
TOGETHER: dict[str, dict[str, list[tuple[str, ...]]]] = {
    "fb15k-subject-10": {
        "mean": [("model.decoder=complex", *OWN, "training.lr=0.01", "model.dropout=0")],
        "lstm": [("model.decoder=transe", *OWN, "training.lr=0.01", "model.dropout=0")],
        "lan": [("model.decoder=transe", *OWN, "training.lr=0.01", "model.dropout=0")],
        "vn": [("model.decoder=complex", *OWN, "training.lr=0.005", "model.layers=1")],
    },
    "wn11-object-5000": {
        "mean": [("training.lr=0.002",), ("training.lr=0.002", "model.dropout=0.1")],
        "lstm": [(HIDDEN, "model.dropout=0.1"), (HIDDEN, "model.dropout=0.1", "training.lr=0.002")],
        "lan": [(HIDDEN, "model.dropout=0.1"), ("model.dropout=0.1", "training.lr=0.002")],
        "vn": [(HIDDEN, AS_NEW, SHIFTED), (HIDDEN, AS_NEW, SHIFTED, "model.dropout=0.1")],
    },
}


class Trial(NamedTuple):
    """Settings of a network to be tried on a data set."""

    name: str
    dataset: str
    network: str
    changes: tuple[str, ...]
    config: Config


def ranked(network: str, rate: float) -> Iterator[tuple[str, ...]]:
    """Three decoders with two losses, two other learning rates, and one change of the network's own."""
    yield from ((f"model.decoder={decoder}", *loss) for decoder in DECODERS for loss in (OWN, ENCODED))
    yield from ((f"training.lr={other}",) for other in RATES if float(other) != rate)
    yield ("model.layers=1",) if network == "vn" else ("model.dropout=0",)


def classified(network: str, rate: float) -> Iterator[tuple[str, ...]]:
    """One thing at a time, with TransE (short trials of the others told validation's triples apart much worse)."""
    yield ()
    yield ("training.lr=0.01",)
    yield ("training.loss=softmax",)
    yield (HIDDEN,)
    yield ("model.dropout=0.1",)
    # Who is pooled from neighbours has no vector of its own to be without.
    yield (AS_NEW,) if network == "vn" else (*OWN, "training.softmax_negatives=2000")


CHANGES = {"fb15k-subject-10": ranked, "wn11-object-5000": classified}


def trials(dataset: str) -> Iterator[Trial]:
    """Of each network the same number; the last ones join what did best."""
    what = SEARCHED[dataset]
    planned = {cell.label: cell for cell in cells_of(load_plan(what)) if cell.dataset == dataset and cell.seed == 0}
    for network in NETWORKS:
        stated = planned[network].config
        assert stated is not None
        config = with_overrides(stated, START.get(dataset, {}).get(network, ()))
        tried = list(CHANGES[dataset](network, config.training.lr))
        tried += TOGETHER[dataset][network]
        for number, changes in enumerate(tried):
            full = with_overrides(config, [*LENGTH, *changes])
            yield Trial(f"{dataset}-{network}-{number}", dataset, network, changes, full)


def run(trial: Trial, root: Path, device: str) -> dict[str, Any]:
    started = time.monotonic()
    dataset = load_dataset(root / trial.dataset)
    fitted = fit(dataset, trial.config, device=device, threads=1)
    return {
        "trial": trial.name,
        "dataset": trial.dataset,
        "network": trial.network,
        "changes": trial.changes,
        "seed": trial.config.seed,
        "config_sha256": config_hash(trial.config),
        "validation": fitted.metrics["validation"],
        "seconds": round(time.monotonic() - started, 1),
        "device": device,
        "versions": {"newcomer": __version__, "torch": torch.__version__},
        "commit": commit(),
    }


def table(folder: Path) -> str:
    """The figure that decided, trial by trial, of each data set; the best of each network in bold."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    lines = []
    for dataset in dict.fromkeys(one["dataset"] for one in found):
        mine = [one for one in found if one["dataset"] == dataset]
        best = {name: max((score(one) for one in mine if one["network"] == name), default=0.0) for name in NETWORKS}
        lines += [f"| {dataset} | {' | '.join(NETWORKS)} |", "|---" * (len(NETWORKS) + 1) + "|"]
        for changes in dict.fromkeys(tuple(one["changes"]) for one in mine):
            cells = {one["network"]: one for one in mine if tuple(one["changes"]) == changes}
            shown = [cell(cells.get(name), best[name]) for name in NETWORKS]
            named = ", ".join(change.partition(".")[2] for change in changes) or "as planned"
            lines.append(f"| {named} | {' | '.join(shown)} |")
        lines.append("")
    return "\n".join(lines)


def score(one: dict[str, Any]) -> float:
    """What decides: the area under the curve where triples have labels, else MRR."""
    figures = one["validation"]["model"]
    return float(figures.get("auc", figures["mrr"]))


def cell(one: dict[str, Any] | None, best: float) -> str:
    if one is None:
        return ""
    figures = one["validation"]["model"]
    second = figures["accuracy"] if "auc" in figures else figures["hits@10"]
    text = f"{100 * score(one):.1f} / {100 * second:.1f}"
    return f"**{text}**" if score(one) == best else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="names of trials")
    parser.add_argument("--list", action="store_true", help="the names of all trials and what they change")
    parser.add_argument("--table", type=Path, metavar="FOLDER", help="show what trials found, run nothing")
    parser.add_argument("--data-root", type=Path, default=Path(), help="where the published data sets are")
    parser.add_argument("--out", type=Path, help="where files of trials go")
    parser.add_argument("--device", default="auto", choices=DEVICES)
    options = parser.parse_args()
    every = {trial.name: trial for dataset in SEARCHED for trial in trials(dataset)}
    if options.table:
        print(table(options.table))
    elif options.list:
        for trial in every.values():
            print(trial.name, *trial.changes)
    elif not options.trials or options.out is None:
        parser.error("name trials and --out; --list shows their names")
    elif unknown := set(options.trials) - every.keys():
        parser.error(f"no trial is called {', '.join(sorted(unknown))}; --list shows their names")
    else:
        for name in options.trials:
            path = options.out / f"{name}.json"
            if not path.exists():
                found = run(every[name], options.data_root, options.device)
                with fresh_file(path) as partial:
                    partial.write_text(json.dumps(found, indent=1), encoding="utf-8")
                print(name, cell(found, -1), f"{found['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
