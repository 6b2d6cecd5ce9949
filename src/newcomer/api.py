"""The package as a few calls: train a model, evaluate it, mine rules. The command line makes the same calls."""

import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from newcomer.config import Config, load_preset, with_overrides
from newcomer.data import load_dataset
from newcomer.data.cut import FactsCut, cut_in_words
from newcomer.errors import DatasetError, OptionError, OutputError, optional
from newcomer.evaluation.measure import (
    CLASSIFICATION,
    SUGGESTION,
    Evaluation,
    RankedTest,
    check_same_data,
    classify_with_probabilities,
    default_task,
    headline,
    rank_test,
)
from newcomer.evaluation.plots import plot_commands, plot_ranking, plot_reliability, plot_suggestions
from newcomer.evaluation.ranking import Progress, RankingProtocol, align
from newcomer.evaluation.report import Report, classification_report, ranking_report, suggestion_report, write_ranks
from newcomer.evaluation.suggest import NEWCOMERS, suggestion_test
from newcomer.files import exists_already, looking_at, parents_of
from newcomer.graph import Graph, InductiveDataset
from newcomer.models.bundle import Bundle, metrics_of, read_bundle, write_bundle
from newcomer.models.device import choose_device
from newcomer.predictor import Predictor, load
from newcomer.rules.files.rule_table import read_rules
from newcomer.rules.mining import MiningPlan
from newcomer.rules.mining import mine_rules as mine_by_plan
from newcomer.rules.rule import RuleSet
from newcomer.store import open_store
from newcomer.training.checkpoint import has_checkpoint, in_use, remove_training
from newcomer.training.fitted import PRELIMINARY
from newcomer.training.holdout import hold_out_newcomers
from newcomer.training.pipeline import Fitted, Limits, Listener, fit

if TYPE_CHECKING:
    from newcomer.service.growth import Growth
    from newcomer.service.stored_predictor import StoredPredictor

FEW = 50  # facts
Source = InductiveDataset | str | Path  # a data set, its folder or file, or its name


def train(
    dataset: Source,
    config: Config | None = None,
    *,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    rules: RuleSet | str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    resume: bool = False,
    force: bool = False,
    report: Listener | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
) -> Predictor:
    """Train a model and load it; with ``out`` it is also kept in that folder.

    ``config`` holds all settings (the preset ``default`` where it is left out); ``settings`` change some by name.
    ``rules`` (or a rule file) are used instead of mined ones. A training that was interrupted goes on with ``resume``;
    ``force`` replaces a model that ``out`` holds already. What does not fit into ``time_limit`` (seconds) and
    ``memory_limit`` (bytes) is made smaller; the model's settings tell how.

    >>> model = newcomer.train("town", settings=["model.dim=8", "training.epochs=2", "training.batches=3"])
    >>> model
    Predictor(33 seen entities, 4 newcomers, 4 relations)
    """
    limits = None if time_limit is None and memory_limit is None else Limits(time_limit, memory_limit)
    data = _dataset(dataset)
    with TemporaryDirectory() if out is None else nullcontext("") as folder:
        place = Path(folder) / "model" if out is None else Path(out)
        chosen = with_overrides(config or load_preset("default"), list(settings))
        train_into(
            place,
            data,
            chosen,
            rules=rules,
            device=device,
            threads=threads,
            resume=resume,
            force=force,
            report=report,
            limits=limits,
        )
        return load(place)


def trainable(config: Config, dataset: InductiveDataset) -> Config:
    """The settings; without validation where the graph is so small that no newcomers can be held out of it.

    A larger graph of which that is true is a mistake that `fit` tells of.
    """
    if config.training.validation_rate == 0 or not 0 < len(dataset.observed) <= FEW:
        return config
    try:
        hold_out_newcomers(dataset, config)
    except DatasetError:
        return with_overrides(config, ["training.validation_rate=0"])
    return config


def train_into(
    out: Path,
    dataset: InductiveDataset,
    config: Config,
    *,
    rules: RuleSet | str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    resume: bool = False,
    force: bool = False,
    report: Listener | None = None,
    limits: Limits | None = None,
) -> Fitted:
    """Train a model and write it to a folder; checkpoints lie in ``OUT.training`` until the model is there.

    With ``limits`` on time or memory a training that takes minutes puts a first model there early on, where there is
    no finished one.
    """
    folder = checkpoint_folder(out, resume, force)
    config = trainable(config, dataset)
    if isinstance(rules, str | Path):
        rules = read_rules(Path(rules), dataset.relations, dataset.entities)

    def write(fitted: Fitted) -> None:
        write_bundle(out, fitted.bundle(dataset), force or is_preliminary(out))

    def write_first(fitted: Fitted) -> None:
        write(fitted)
        if report is not None:
            report.first(out)

    is_free = not out.exists() or is_preliminary(out)
    with parents_of(folder):
        try:
            fitted = fit(
                dataset,
                config,
                device=device,
                rules=rules,
                folder=folder,
                resume=resume,
                threads=threads,
                report=report,
                limits=limits,
                first=write_first if is_free else None,
            )
            write(fitted)
        except BaseException:
            if not in_use(folder) and not has_checkpoint(folder):  # nothing that could be resumed
                remove_training(folder)
            raise
    shutil.rmtree(folder, ignore_errors=True)
    return fitted


def checkpoint_folder(out: Path, resume: bool, force: bool) -> Path:
    """Where a training keeps its checkpoints; an older one is resumed, removed or an error."""
    if out.name in ("", ".."):
        raise OutputError(f"{out}: is no name for a model's folder; choose another place")
    folder = out.with_name(f"{out.name}.training")
    with looking_at(out):
        if out.exists() and not force:
            if not is_preliminary(out):
                raise exists_already(out)
            if not resume:
                go_on = "pass --resume to go on with it, or --force" if has_checkpoint(folder) else "pass --force"
                raise OutputError(
                    f"{out}: holds the first model of a training that is not finished; {go_on} to start anew"
                )
        if resume and not folder.is_dir():
            raise OptionError(f"{folder}: does not exist, so there is no training to resume; leave out --resume")
        if not resume and has_checkpoint(folder):
            if not force:
                hint = "pass --resume to go on with it, or --force to start anew"
                raise OutputError(f"{folder}: holds a training that was interrupted; {hint}")
            remove_training(folder)
    return folder


def is_preliminary(out: Path) -> bool:
    """Whether a folder holds a first model, which its training goes on to replace."""
    return bool(metrics_of(out).get(PRELIMINARY))


def open(model: str | Path, store: str | Path, device: str = "cpu", threads: int | None = None) -> "StoredPredictor":
    """The model in a folder over a store of newcomers: a SQLite file, ``sqlite:///FILE`` or ``postgresql://...``.

    >>> with newcomer.open("people", store="people.db") as live:
    ...     added = live.add([("yan", "knows", "p03"), ("yan", "lives_in", "city1")])
    ...     best = live.tails("yan", "citizen_of", k=1)[0]
    >>> added.newcomers, best.entity
    (('yan',), 'land1')
    """
    optional("sqlalchemy", "a store of newcomers", "store")
    from newcomer.service.stored_predictor import StoredPredictor, model_version

    loaded, version = load(model, device, threads), model_version(model)
    return StoredPredictor(loaded, open_store(store), version)


def growth_of(model: str | Path, store: str | Path, accepted: bool = False) -> "Growth":
    """What the next model of a folder is trained on: its observed graph and the facts that a store holds by now.

    ``accepted`` answers are taken for facts, too.

    >>> with newcomer.open("people", store="grown.db") as live:
    ...     added = live.add([("yan", "knows", "p03"), ("yan", "lives_in", "city1")])
    >>> growth = newcomer.growth_of("people", "grown.db")
    >>> growth.dataset.name, growth.facts, growth.entities
    ('made+store@1', 2, 1)
    """
    optional("sqlalchemy", "a store of newcomers", "store")
    from newcomer.service.growth import growth_of as growth_in

    bundle = read_bundle(Path(model))
    with open_store(store) as opened, opened.reading() as state:
        return growth_in(bundle, state, accepted)


def grow(
    model: str | Path,
    store: str | Path,
    out: str | Path,
    *,
    accepted: bool = False,
    device: str = "auto",
    threads: int | None = None,
    resume: bool = False,
    force: bool = False,
    report: Listener | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
) -> Predictor:
    """Train the next model, by the settings of the one in a folder, on what `growth_of` gives; it is loaded.

    >>> with newcomer.open("people", store="next.db") as live:
    ...     added = live.add([("yan", "knows", "p03"), ("yan", "lives_in", "city1")])
    >>> newcomer.grow("people", "next.db", "people-2")
    Predictor(34 seen entities, 4 newcomers, 4 relations)
    >>> newcomer.ask_again("people", "people-2", "next.db")["asked"]  # no answer was recorded
    0
    """
    limits = None if time_limit is None and memory_limit is None else Limits(time_limit, memory_limit)
    train_into(
        Path(out),
        growth_of(model, store, accepted).dataset,
        read_bundle(Path(model)).config,
        device=device,
        threads=threads,
        resume=resume,
        force=force,
        report=report,
        limits=limits,
    )
    return load(out)


def ask_again(before: str | Path, after: str | Path, store: str | Path, most: int = 200) -> dict[str, Any]:
    """The answers that were recorded last in a store, asked again of two models: how many stay first, and what moves.

    >>> with newcomer.open("people", store="asked.db") as live:
    ...     added = live.add([("yan", "knows", "p03"), ("yan", "lives_in", "city1")])
    >>> newcomer.ask_again("people", "people", "asked.db")["unasked"]
    0
    """
    optional("sqlalchemy", "a store of newcomers", "store")
    from newcomer.service.growth import compared

    with open(before, store) as old, open(after, store) as new, old.store.reading() as state:
        return compared(old, new, state, most).to_dict()


def evaluate(
    model: Predictor | Bundle | str | Path,
    dataset: Source | None = None,
    *,
    task: str | None = None,
    protocol: RankingProtocol | None = None,
    full_graph: Source | None = None,
    by: Sequence[str] = (),
    parts: bool = False,
    cut: FactsCut | None = None,
    thresholds: str | None = None,
    newcomers: int | None = None,
    any_data: bool = False,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
    ranks: Path | None = None,
    plot: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Measure a model (or the model in a folder) on the test part of a data set: a report that JSON can hold.

    The data set is the one trained on, found by its name, unless another is given. ``task`` is link-prediction,
    triple-classification, which is the default where test has labels, or suggest, about so many ``newcomers`` at most.
    ``protocol`` says how answers are ranked, ``full_graph`` has all true facts for the filter ``full``; ``by`` names
    breakdowns; ``parts`` ranks the parts of the model alone, too; ``cut`` leaves newcomers fewer facts. ``ranks`` is a
    Parquet file to write, ``plot`` a folder for pictures.

    >>> report = newcomer.evaluate("people", "town")
    >>> report["task"], report["queries"], 0 < report["metrics"]["mrr"] <= 1
    ('link-prediction', 4, True)
    """
    started = time.monotonic()
    bundle = _bundle(model)
    name = bundle.dataset_name
    data = _dataset(name if dataset is None else dataset)
    if not any_data:
        check_same_data(bundle, data, Path("the model"), data.name)
    evaluation = Evaluation(bundle, data, choose_device(device), threads, seed, cut, thresholds)
    if (task or default_task(data)) == CLASSIFICATION:
        classified = classify_with_probabilities(evaluation)
        report = classification_report(evaluation, classified, by, time.monotonic() - started)
        if plot is not None:
            plot_reliability(report["calibration"], _title(report, "triple classification"), plot)
        return report
    protocol = protocol or RankingProtocol()
    full = None if full_graph is None else all_facts(full_graph, data)
    if task == SUGGESTION:
        suggested = suggestion_test(evaluation, protocol.filter, full, newcomers or NEWCOMERS, progress)
        report = suggestion_report(evaluation, suggested, by, time.monotonic() - started)
        if plot is not None:
            _draw_suggestions(report, plot)
        return report
    ranked = rank_test(evaluation, protocol, full, parts, progress)
    report = ranking_report(evaluation, ranked, by, full, time.monotonic() - started)
    if ranks is not None:
        write_ranks(ranked.model[0], ranks)
    if plot is not None:
        _draw_ranking(ranked, evaluation, report, _title(report, str(protocol)), plot)
    return report


def _draw_ranking(ranked: RankedTest, evaluation: Evaluation, report: Report, title: str, folder: Path) -> None:
    """The pictures of a ranking."""
    drawn = {"model": headline(ranked.model[0])}
    if ranked.rules:
        drawn["rules alone"] = headline(ranked.rules[0])
    plot_ranking(drawn, evaluation.visible, title, folder)
    plot_reliability(report["calibration"], title, folder)


def _draw_suggestions(report: Report, folder: Path) -> None:
    """The pictures of suggestions."""
    for draw, what in ((plot_suggestions, "suggestions"), (plot_commands, "commands")):
        draw(report, _title(report, f"{what}, {report['filter']} facts"), folder)


def _title(report: Report, what: str) -> str:
    return f"{report['dataset']}{cut_in_words(report['known_facts'])}: {what}"


def all_facts(source: Source, dataset: InductiveDataset) -> Graph:
    """Everything stated in a data set, in the ids of another one: what is true, for the filter ``full``."""
    return align(_dataset(source).known(), dataset)


def mine_rules(
    source: Source | Graph, plan: MiningPlan | None = None, *, seed: int = 0, threads: int | None = None
) -> RuleSet:
    """The rules of a graph, or of the observed graph of a data set, with exact support and confidence.

    >>> data = newcomer.load_dataset("town")
    >>> rules = newcomer.mine_rules(data)
    >>> rules.where(rules.pca_confidence == 1).texts(data.relations, data.entities)[0]
    'lives_in(x,z), city_in(z,y) => citizen_of(x,y)'
    """
    graph = source if isinstance(source, Graph) else _dataset(source).observed
    return mine_by_plan(graph, plan, seed, threads).rules


def _dataset(source: Source) -> InductiveDataset:
    return source if isinstance(source, InductiveDataset) else load_dataset(source)


def _bundle(model: Predictor | Bundle | str | Path) -> Bundle:
    if isinstance(model, Predictor):
        return model.bundle
    return model if isinstance(model, Bundle) else read_bundle(Path(model))
