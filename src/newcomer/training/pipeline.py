"""Training from a data set to a model.

    search   newcomers are held out of the observed graph; a model is trained on the rest and validated on them every
             few epochs, until it no longer improves: that gives the number of epochs
    final    a fresh model is trained on all observed facts for that number of epochs; what the search learned that
             need not be learned anew is trained on: the propagation network, which knows relations and no entity, and
             vectors that are looked up (`newcomer.training.continuation`)

Without validation there is only the final phase, of as many epochs as the settings say. Without the final fit the best
model of the search is the result: it knows the observed graph without those held out, who count as newcomers.

Where rules are mined, a few steps of everything are timed: what there is no time or memory for is made smaller
(`newcomer.training.schedule`). Where the rest takes more than two minutes, a first model is made of one epoch and what
is counted, and handed over at once.

Every epoch ends with a checkpoint, and all randomness follows from the seed and the epoch: a run that was killed ends
with the same weights as one that was not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from newcomer.config import Config
from newcomer.graph import Graph, InductiveDataset
from newcomer.models.device import choose_device
from newcomer.rules.rule import RuleSet
from newcomer.training.checkpoint import CHECKPOINT, Identity, Journal, began_with_propagation, opened
from newcomer.training.continuation import final_epochs
from newcomer.training.fitted import PRELIMINARY, Fitted, Listener, World
from newcomer.training.phases import Exam, Run, for_a_batch
from newcomer.training.prices import measured
from newcomer.training.runtime import deterministic, memory_in_words, settled, torch_threads
from newcomer.training.schedule import Limits, Schedule, scheduled, with_settings
from newcomer.training.triple_classifier import corruption_of

__all__ = ["Fitted", "Limits", "Listener", "decided", "fit"]

FIRST_PAYS = 120.0  # seconds that the rest takes, from which on a first model is worth its time
FIRST = {"training.epochs": 1, "model.propagation": False}
FIRST_QUERIES, FIRST_QUESTIONS, FIRST_DIM, FIRST_BATCHES = 400, 1500, 32, 400  # at most
FIRST_SHARE, FEWEST = 0.05, 160  # of the time for what is asked to learn a first model, and how much that is at least
ASKED = 8  # times that each of its queries is asked, or one like it
Handover = Callable[[Fitted], None]


def fit(
    dataset: InductiveDataset,
    config: Config,
    *,
    device: str = "auto",
    rules: RuleSet | None = None,
    folder: Path | None = None,
    resume: bool = False,
    threads: int | None = None,
    report: Listener | None = None,
    full: Graph | None = None,
    limits: Limits | None = None,
    first: Handover | None = None,
) -> Fitted:
    """Train a model; ``rules`` are used instead of mined ones, ``full`` holds all that is true, for a second filter.

    With ``limits`` what does not fit is made smaller, and ``first`` is given a first model early on.
    """
    started, place = time.monotonic(), choose_device(device)
    config = decided(config, dataset, place, folder, resume)
    identity = Identity.of(dataset, config, rules)
    with deterministic(place, torch_threads(dataset, config, threads)), opened(folder, identity, resume) as journal:
        corruption = corruption_of(dataset) if config.model.triple_classifier else None
        run = Run(config, place, threads, report or Listener(), journal, corruption)
        run = replace(run, config=with_settings(config, journal.state.schedule or {}))
        return _Training(dataset, rules, full, run, limits, first, started).fitted()


def decided(
    config: Config, dataset: InductiveDataset, place: torch.device, folder: Path | None, resume: bool
) -> Config:
    """The settings with what they leave to the machine decided, as it was when a training that is resumed began."""
    before = began_with_propagation(folder / CHECKPOINT) if resume and folder is not None else None
    return settled(config, dataset, place, before)


@dataclass(frozen=True, eq=False)
class _Training:
    """A run with what it is given, and how much it may take."""

    dataset: InductiveDataset
    rules: RuleSet | None
    full: Graph | None
    run: Run
    limits: Limits | None
    first: Handover | None
    started: float

    def fitted(self) -> Fitted:
        """Both phases, or the one that is wanted."""
        training, schedule = self.run.config.training, None
        if self.limits is not None and not self.run.state.has_sizes:
            schedule = self._scheduled(None)
        if training.validation_rate > 0 and not training.final_fit:
            run = self._fitting(schedule)
            return run.search(self.dataset, run.exam(self.dataset, self.rules, self.full))
        whole = self.run.world(self.dataset, self.rules)  # first of all: what it cannot bear must not show only after
        run = self._fitting(schedule if schedule is None else self._scheduled(whole))
        if training.validation_rate == 0:
            return run.final(whole, run.config.training.epochs)
        learned = None
        if run.state.phase == "search":
            exam = run.exam(self.dataset, self.rules, self.full, rehearsed=True)
            self._hand_over_first(run, whole, exam)
            learned = run.search(self.dataset, exam)
        return run.final(whole, final_epochs(run.config, run.state.best_epoch), learned)

    def _scheduled(self, whole: World | None) -> Schedule:
        """The schedule of what is left, with the rules where these are there; the listener is told."""
        limits, run = self.limits or Limits(), self.run
        self.run.listener.stage("timing a few steps of everything")
        prepared = None if whole is None else whole.prepared
        with memory_in_words(for_a_batch(run.config)):
            prices = measured(self.dataset, run.config, run.place, run.threads, prepared)
        spent = time.monotonic() - self.started
        if whole is not None or self.rules is not None:
            prices = replace(prices, mining=0.0 if whole is None else whole.seconds)
        found = scheduled(run.config, self.dataset, prices, limits, whole is not None, spent)
        run.listener.schedule(found, mined=whole is not None)
        return found

    def _fitting(self, schedule: Schedule | None) -> Run:
        """The run with sizes that fit; one that is resumed has those that it began with."""
        if schedule is None:
            return self.run
        self.run.state.schedule = {name: found for name, (_, found) in schedule.smaller.items()}
        return replace(self.run, config=schedule.config, schedule=schedule)

    def _hand_over_first(self, run: Run, whole: World, exam: Exam) -> None:
        """Make a model of what is counted and of one epoch, where the rest takes long."""
        schedule = run.schedule
        if self.first is None or schedule is None or schedule.seconds <= FIRST_PAYS or run.state.epoch > 0:
            return
        questions = questions_of_first(schedule)
        run.listener.stage("making a first model")
        quick = replace(
            run,
            config=_first_config(run.config, questions // 2),
            journal=Journal(None, run.journal.identity),
            listener=Listener(),
            schedule=None,
            most_batches=FIRST_BATCHES,
        )
        learned = quick.search(self.dataset, exam.of(min(FIRST_QUERIES, questions // (2 * ASKED)), run.config.seed))
        found = quick.final(whole, 1, learned)
        run.journal.keep(run.journal.tensors)  # from here on it can be resumed, with the sizes that were decided
        self.first(replace(found, metrics={**found.metrics, PRELIMINARY: True}))


def questions_of_first(schedule: Schedule) -> int:
    """How many a first model may ask to learn its weights and probabilities: fewer where each takes long."""
    if schedule.question == 0:
        return 2 * ASKED * FIRST_QUERIES
    return max(FEWEST, int(FIRST_SHARE * schedule.seconds / schedule.question))


def _first_config(config: Config, questions: int) -> Config:
    """The settings of a first model: what takes long is left out, or small."""
    asked, dim = min(FIRST_QUESTIONS, questions, config.training.calibration_questions), config.model.dim
    smaller = {"training.calibration_questions": asked, "model.dim": min(FIRST_DIM, dim)}
    return with_settings(config, FIRST | smaller)
