"""``newcomer train``: the plan, the progress, the model and its figures."""

import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from newcomer.cli import options
from newcomer.cli.amounts import AUTO, NONE, bytes_of, seconds_of
from newcomer.cli.common import cut_commands, load, print_json, print_table, refuse_input
from newcomer.cli.options import takes_read_options
from newcomer.cli.reports import cells_of
from newcomer.cli.watching import watching
from newcomer.errors import NewcomerError, OptionError

if TYPE_CHECKING:
    from newcomer.config import Config
    from newcomer.data import ReadOptions
    from newcomer.graph import InductiveDataset
    from newcomer.training.pipeline import Fitted, Limits

RUNS = Path("runs")
CPU_TIME = "15m"
IN_TIME = "How long it may take, as in 90s, 10m or 2h; none: as long as it needs; auto: 15m on a CPU."
TimeLimit = Annotated[str, Option("--time", metavar="TIME", help=IN_TIME)]
IN_MEMORY = "How much memory it may take, as in 4G; none: as it needs."
MemoryLimit = Annotated[str, Option("--memory", metavar="SIZE", help=IN_MEMORY)]
MEASURES = {"mrr": "MRR", "hits@1": "Hits@1", "hits@3": "Hits@3", "hits@10": "Hits@10", "mr": "mean rank"}


@takes_read_options
def train(
    data: options.DataArgument,
    out: Annotated[Path | None, Option(help="The folder of the model [default: runs/DATA].")] = None,
    preset: Annotated[str | None, Option(help="Settings by name [default: default].")] = None,
    config: Annotated[Path | None, Option(help="A TOML file of settings.")] = None,
    decoder: Annotated[str | None, Option(help="distmult, transe or complex.")] = None,
    changes: options.Changes = None,
    protocol: Annotated[str | None, Option(help="inductive, refreshed or transductive [default: inductive].")] = None,
    rules: options.Rules = None,
    device: options.Device = "auto",
    seed: options.ConfigSeed = None,
    threads: options.Threads = None,
    time_limit: TimeLimit = AUTO,
    memory_limit: MemoryLimit = NONE,
    resume: Annotated[bool, Option("--resume", help="Go on where a training of this place stopped.")] = False,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    reading: "ReadOptions",
) -> None:
    """Train a model on a data set; it can be interrupted and resumed at any time."""
    from newcomer.api import checkpoint_folder, train_into, trainable
    from newcomer.data import locate
    from newcomer.models.device import choose_device
    from newcomer.rules.files.rule_table import read_rules
    from newcomer.training.pipeline import decided

    started = time.monotonic()
    settings = settings_of(preset, config, {"model.decoder": decoder, "protocol": protocol, "seed": seed}, changes)
    dataset = load(data, reading).dataset
    place = out if out is not None else RUNS / dataset.name
    refuse_input(place, locate(data))
    known = None if rules is None else read_rules(rules, dataset.relations, dataset.entities)
    folder, machine = checkpoint_folder(place, resume, force), choose_device(device)
    limits = limits_of(time_limit, memory_limit, machine.type)
    if not as_json:
        planned = decided(trainable(settings, dataset), dataset, machine, folder, resume)
        rows = plan_of(dataset, settings, planned, machine.type, rules, folder, resume)
        print_table(f"training on {dataset.name}", ("", ""), rows)
    with resume_hint(place, folder), watching() as listener:
        fitted = train_into(
            place,
            dataset,
            settings,
            rules=known,
            device=device,
            threads=threads,
            resume=resume,
            force=force,
            report=listener,
            limits=limits,
        )
    _report(summary_of(fitted, place, time.monotonic() - started), dataset, data, as_json)


def _report(summary: Mapping[str, Any], dataset: "InductiveDataset", data: str, as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    print_summary(summary)
    _print_next(summary["model"], dataset, data)


def limits_of(time_limit: str, memory_limit: str, device: str) -> "Limits":
    """What a training may take; on a CPU a quarter of an hour, unless more is given."""
    from newcomer.training.pipeline import Limits

    chosen = time_limit.strip().lower()
    if chosen == AUTO:
        chosen = CPU_TIME if device == "cpu" else NONE
    return Limits(seconds_of(chosen, "--time"), bytes_of(memory_limit, "--memory"))


def settings_of(
    preset: str | None, file: Path | None, named: Mapping[str, object], changes: list[str] | None
) -> "Config":
    """The preset or the file; ``named`` options change it, and ``--set`` changes both."""
    from newcomer.config import load_preset, read_config, with_overrides

    if preset is not None and file is not None:
        raise OptionError("--config names its preset itself (preset = ...); leave out --preset")
    base = read_config(file) if file is not None else load_preset(preset or "default")
    stated = [f"{name}={value}" for name, value in named.items() if value is not None]
    return with_overrides(base, [*stated, *(changes or [])])


@contextmanager
def resume_hint(place: Path, folder: Path) -> Iterator[None]:
    """When a training is interrupted, print what there is of it: a first model, and the command to resume it."""
    from newcomer.api import is_preliminary
    from newcomer.training.checkpoint import has_checkpoint, in_use

    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        if is_preliminary(place):
            typer.echo(f"newcomer: a first model is in {place}", err=True)
        if has_checkpoint(folder) and not in_use(folder):
            again = again_with("--resume", *(["--force"] if "--force" in sys.argv else []))
            typer.echo(f"newcomer: the training is kept in {folder}; go on with: {again}", err=True)
        raise


def again_with(*others: str) -> str:
    """This command, with other options for how to begin."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--force")]
    return shlex.join(["newcomer", *words, *others])


def plan_of(
    dataset: "InductiveDataset",
    settings: "Config",
    planned: "Config",
    device: str,
    rules: Path | None,
    folder: Path,
    resume: bool,
) -> list[tuple[str, str]]:
    """The plan of a training, before it begins; ``planned`` are the settings with all that they leave open decided."""
    model = planned.model
    seen, arrived = int(dataset.is_seen.sum()), len(dataset.newcomers)
    return [
        ("observed", f"{len(dataset.observed):,} facts, {seen:,} entities, {len(dataset.relations):,} relations"),
        ("newcomers", f"{arrived:,}, with {len(dataset.auxiliary):,} facts"),
        ("protocol", f"{planned.protocol}, seed {planned.seed}, preset {planned.preset}"),
        ("model", f"encoder {model.encoder}, decoder {model.decoder}, dim {model.dim}"),
        ("rules", _rules_in_words(planned, rules)),
        ("virtual neighbours", _neighbors_in_words(planned, rules)),
        ("propagation", _propagation_in_words(settings, planned, device, resume)),
        ("validation", _validation_in_words(dataset, settings, planned)),
        *_phases_in_words(dataset, planned),
        ("device", device),
        ("checkpoints", f"{folder}, {'resumed' if resume else 'after every epoch'}"),
    ]


def _propagation_in_words(settings: "Config", planned: "Config", device: str, resume: bool) -> str:
    """Whether propagation is learned, and why, where the settings leave that open."""
    from newcomer.config import AUTO

    learned, most = planned.model.propagation is True, planned.training.propagation_steps
    words = f"learned from at most {most:,} batches" if learned else "none"
    if settings.model.propagation != AUTO:
        return words
    if resume:
        why = "as it was decided when this training began"
    elif not planned.model.ensemble:
        why = "only an ensemble uses it"
    elif device == "cuda":
        why = "a GPU trains" if learned else "this GPU cannot compute with halves"
    elif learned:
        why = "there are facts enough to learn it from"
    else:
        why = "too few facts to learn it from for a CPU; a GPU has it always"
    return f"{words}: {why} (model.propagation=auto)"


def _rules_in_words(config: "Config", rules: Path | None) -> str:
    if rules is not None:
        return str(rules)
    if not config.mines_rules:
        return "none"
    source = "observed facts" if config.protocol == "inductive" else "observed and newcomers' facts"
    return f"mined from {source}: {', '.join(config.rules.kinds)}"


def _neighbors_in_words(config: "Config", rules: Path | None) -> str:
    chosen = config.rules
    if config.model.labels == "none" or not (chosen.paths or chosen.kinds or rules):
        return "none"
    by_rules = f"rules of {chosen.measure} confidence from {chosen.min_confidence:g}"
    by_paths = f"symmetric paths ({chosen.walks:,} walks per entity)"
    used = [by_rules] * bool(chosen.kinds or rules) + [by_paths] * chosen.paths
    return f"{' and '.join(used)}, {config.model.labels} labels"


def _validation_in_words(dataset: "InductiveDataset", settings: "Config", planned: "Config") -> str:
    from newcomer.training.holdout import drawn_rate, unseen_side

    training = planned.training
    if training.validation_rate == 0:
        why = ": no newcomers can be held out of so few facts; probabilities are not calibrated"
        return "none" + why * (settings.training.validation_rate > 0)
    side = unseen_side(dataset) if training.validation_unseen == "auto" else training.validation_unseen
    ends = {"subject": "heads", "object": "tails", "both": "heads and tails"}[side]
    valid, seen = dataset.valid.positives, dataset.is_seen
    drawn = "the valid triples" if (seen[valid.heads] & seen[valid.tails]).any() else "a tenth of the facts"
    share = f"{drawn_rate(dataset, planned):.3g} % of {drawn}"
    return f"newcomers: the {ends} of {share}, who leave the graph and are asked about"


def _phases_in_words(dataset: "InductiveDataset", planned: "Config") -> list[tuple[str, str]]:
    """What is trained, one phase after the other."""
    from newcomer.training.continuation import continues

    training = planned.training
    epochs, batches = f"{training.epochs:,} epochs", training.batches_of(len(dataset.observed))
    if training.validation_rate == 0:
        return [("final", f"{epochs} of {batches:,} batches on the whole graph")]
    search = (
        f"at most {epochs} of {batches:,} batches on the graph without them, validated every "
        f"{training.validate_every} epochs and at the end; stops after {training.patience} times without a better MRR"
    )
    final = "none: the best model of the search is kept"
    if training.final_fit:
        final = "a fresh model on the whole graph, for as many epochs as were best in the search"
        if continues(planned):
            final = f"vectors go on on the whole graph, for {training.final_share:g} of the epochs that were best"
    return [("search", search), ("final", final)]


def summary_of(fitted: "Fitted", place: Path, seconds: float) -> dict[str, Any]:
    """What a training was and found, for people and programs."""
    from newcomer.evaluation.stored import CALIBRATION
    from newcomer.training.fitted import CUT_SHORT

    validation = fitted.metrics.get("validation")
    return {
        "dataset": fitted.dataset.name,
        "model": str(place),
        "protocol": fitted.config.protocol,
        "seed": fitted.config.seed,
        "trained_on": fitted.metrics["trained_on"],
        "propagation": bool(fitted.config.model.propagation),
        "calibrated": CALIBRATION in fitted.metrics,
        "epochs": fitted.metrics["epochs"],
        "rules": len(fitted.model.rules),
        "virtual_triples": len(fitted.model.labels),
        "validation": validation,
        "cut_short": fitted.metrics.get(CUT_SHORT, {}),
        "seconds": round(seconds, 1),
    }


def print_summary(summary: Mapping[str, Any]) -> None:
    """What a training was and found, in a table and sentences."""
    from newcomer.training.schedule import VECTORS

    validation = summary["validation"]
    if validation is not None:
        rows = [(f"model, after {validation['epoch']} epochs", *cells_of(validation["model"], MEASURES))]
        if validation["rules"] is not None:
            rows.append(("rules alone", *cells_of(validation["rules"], MEASURES)))
        asked = f"{validation['queries']:,} queries about {validation['newcomers']:,} newcomers held out of the graph"
        print_table(f"validation: {asked}", ("", *MEASURES.values()), rows)
        weighed = "; the weights of the ensemble were learned on these queries" if "embedding" in validation else ""
        typer.echo(f"MRR and Hits in percent; known filter, all candidates, ties at the mean rank{weighed}")
    known = f"{summary['rules']:,} rules, {summary['virtual_triples']:,} virtual triples"
    typer.echo(f"trained on {summary['trained_on']} for {summary['epochs']:,} epochs ({known})")
    for what, done in summary["cut_short"].items():
        counted = "epochs" if what == VECTORS else "steps"
        typer.echo(f"ended early, for lack of time: {what}, after {done:,} {counted}")
    typer.echo(f"the model is in {summary['model']}, after {summary['seconds']:.0f} s")


def _print_next(model: str, dataset: "InductiveDataset", data: str) -> None:
    """What can be done with the model, as commands that work."""
    from newcomer.api import FEW

    if len(dataset.test):
        words = ["newcomer", "evaluate", model, *(() if _is_found(dataset.name, data) else ("--data", data))]
        typer.echo(f"evaluate it on test: {shlex.join(words)}")
        return
    name = dataset.entities[int(dataset.observed.degrees.argmax())]
    typer.echo(f"query it: {shlex.join(['newcomer', 'suggest', model, '--entity', name])}")
    typer.echo("newcomers are added with --facts FILE")
    if len(dataset.observed) > FEW:
        typer.echo("how good answers about newcomers are can be measured where some are cut out before the training:")
        for command in cut_commands(data, dataset.name):
            typer.echo(f"  {command}")


def _is_found(name: str, data: str) -> bool:
    """Whether a data set's name alone leads to it."""
    from newcomer.data import locate

    try:
        return locate(name).resolve() == locate(data).resolve()
    except NewcomerError:
        return False
