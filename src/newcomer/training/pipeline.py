"""Training from a data set to a model.

    search   newcomers are held out of the observed graph; a model is trained on the rest and examined on them every few
             epochs, until it no longer improves: that gives the number of epochs
    final    a fresh model is trained on all observed facts for that number of epochs; only what paths have learned in
             the search, which is of relations and of no entity, is gone on with

Without validation there is only the final phase, of as many epochs as the settings say. Without the final fit the best
model of the search is the result: it knows the observed graph without those held out, who count as newcomers.

Every epoch ends with a checkpoint, and all randomness follows from the seed and the epoch: a run that was killed ends
with the same weights as one that was not.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.config import NOTHING, Config, TrainingConfig
from newcomer.evaluation.stored import CALIBRATION, THRESHOLDS, decides_by_probability
from newcomer.graph import Graph, InductiveDataset, Vocabulary
from newcomer.models.bundle import BundleParts, Thresholds, dataset_hash
from newcomer.models.embedding.graph_tensors import GraphTensors, build_graph_tensors
from newcomer.models.embedding.model import Model
from newcomer.models.ensemble import KINDS, all_kinds, features_of
from newcomer.models.propagation.network import PATHS, Propagation
from newcomer.models.propagation.own import path_weights
from newcomer.models.serialisation import inferred_by, weights_of
from newcomer.models.threads import one_thread
from newcomer.models.triple_classifier import Judge, TripleClassifierScorer, triple_classifier_weights
from newcomer.rules.rule import RuleSet
from newcomer.rules.virtual_neighbors import VirtualNeighbors
from newcomer.training.calibration import calibrate, newcomer_thresholds
from newcomer.training.checkpoint import (
    BEST,
    Figures,
    Identity,
    RunState,
    Tensors,
    learned_paths,
    model_tensors,
    restore_model,
    restore_trainer,
    trainer_tensors,
)
from newcomer.training.cost_model import stays_local
from newcomer.training.embedding import Trainer
from newcomer.training.ensemble import EnsembleLearner, World, rules_over
from newcomer.training.ensemble_weights import prior_of
from newcomer.training.holdout import HoldOut, hold_out_newcomers
from newcomer.training.journal import CHECKPOINT, Journal, opened
from newcomer.training.preparation import Prepared, prepare, renamed_rules
from newcomer.training.propagation import PropagationTrainer, carried_over
from newcomer.training.runtime import (
    check_finite,
    choose_device,
    memory_in_words,
    precision,
    settled,
    steady,
    torch_threads,
)
from newcomer.training.triple_classifier import Corruption, corruption_of, learn_triple_classifier

REHEARSED = 2  # batches
BEGUN = "begun."  # what paths have learned in the search
KEPT_EVERY = 100  # steps of learning what paths say
FOR_PATHS = "to learn what paths say; set model.propagation=false"


class Listener:
    """Told what a fit is doing; this one keeps it to itself."""

    def stage(self, what: str) -> None:
        """Something that takes a while begins."""

    def step(self, done: int, total: int) -> None:
        """How far the stage is."""

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        """An epoch is done and saved; ``last`` is the number of the phase's last one, if nothing stops it."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model, the world it was trained in, and how that went."""

    config: Config
    dataset: InductiveDataset  # as trained on: whose vectors the model has, and whose facts came later
    model: Model
    graph: GraphTensors
    labels: Tensor
    blend: npt.NDArray[np.float32] | None  # how far network and rules are believed, where both have a say
    rules: RuleSet
    neighbors: VirtualNeighbors | None
    history: list[Figures]
    metrics: dict[str, Any]
    judge: Judge | None = None  # of triples
    paths: Propagation | None = None  # what they say, where they have a say

    @property
    def learned_paths(self) -> tuple[Propagation, Vocabulary] | None:
        """What paths have learned, and the names of the relations that it is about."""
        return None if self.paths is None else (self.paths, self.dataset.relations)

    def bundle(self, source: InductiveDataset) -> BundleParts:
        """What to write of it; ``source`` is the data set that `fit` was given."""
        with steady(self.labels.device, torch_threads(source, self.config, None)):
            inferred = inferred_by(
                self.model, self.labels, self.graph, self.neighbors, self.dataset, self.rules, self.config
            )
        judged = {} if self.judge is None else triple_classifier_weights(self.judge)
        told = {} if self.paths is None else path_weights(self.paths)
        # Where false triples were made up, a verdict goes by its probability, which was learned from the same ones.
        found = self.metrics.get(THRESHOLDS, {"made_up": True})
        by_probability = found["made_up"] or decides_by_probability(self.metrics, self.config)
        return BundleParts(
            config=self.config,
            observed=self.dataset.observed,
            rules=self.rules,
            weights={**weights_of(self.model, self.labels, self.blend), **inferred.weights, **judged, **told},
            dataset_name=source.name,
            dataset_hash=dataset_hash(source),
            metrics=self.metrics,
            thresholds=None if by_probability else Thresholds(found["overall"], found["relations"]),
            auxiliary=self.dataset.auxiliary if len(self.dataset.auxiliary) else None,
            neighbors=inferred.neighbors,
            newcomer_neighbors=inferred.newcomer_neighbors,
        )


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
) -> Fitted:
    """Train a model; ``rules`` are used instead of mined ones, ``full`` holds all that is true, for a second filter."""
    place = choose_device(device)
    config = decided(config, dataset, place, folder, resume)
    identity = Identity.of(dataset, config, rules)
    with steady(place, torch_threads(dataset, config, threads)), opened(folder, identity, resume) as journal:
        habit = corruption_of(dataset) if config.model.triple_classifier else None
        run = _Run(config, place, threads, report or Listener(), journal, habit)
        if config.training.validation_rate == 0:
            return run.final(run.world(dataset, rules), config.training.epochs)
        if not config.training.final_fit:
            return run.search(dataset, rules, full)
        whole = run.world(dataset, rules)  # before the search: what it cannot bear must not show only after it
        learned = run.search(dataset, rules, full).learned_paths if run.state.phase == "search" else None
        return run.final(whole, run.state.best_epoch, learned)


def decided(
    config: Config, dataset: InductiveDataset, place: torch.device, folder: Path | None, resume: bool
) -> Config:
    """The settings with what they leave to the machine decided, as it was when a training that is resumed began."""
    before = learned_paths(folder / CHECKPOINT) if resume and folder is not None else None
    return settled(config, dataset, place, before)


class _Run:
    """The two phases, with what they share."""

    def __init__(
        self,
        config: Config,
        place: torch.device,
        threads: int | None,
        listener: Listener,
        journal: Journal,
        habit: Corruption | None,
    ) -> None:
        self.config, self.place, self.threads, self.habit = config, place, threads, habit
        self.listener, self.journal, self.state = listener, journal, journal.state

    def search(self, dataset: InductiveDataset, rules: RuleSet | None, full: Graph | None) -> Fitted:
        """Train until the held-out newcomers are served no better; gives the model at its best."""
        training, state = self.config.training, self.state
        exam = hold_out_newcomers(dataset, self.config, full)
        given = None if rules is None else renamed_rules(rules, dataset, exam.dataset)
        world = self.world(exam.dataset, given, newcomers=True)
        if not state.exam:
            self.listener.stage("asking the rules alone")
            state.exam = self._about(exam, world.prepared)
        trainer = self._trainer(world)
        while state.epoch < training.epochs and state.stale < training.patience:
            record = self._epoch(trainer)
            if is_due(state.epoch, training):
                figures = self._grade(exam, trainer, world)
                record |= figures
                if state.validated(figures):
                    self._keep_best(trainer)
            self._save(trainer, record, training.epochs)
        restore_model(trainer, _part_of(self.journal.tensors, BEST))
        paths = self._paths(world)
        ensemble_learner = self._weighing(trainer, world, paths)
        if self.config.model.ensemble and not state.blend:
            self._blend(exam, ensemble_learner)
        judge = self._judge(world)
        if not state.calibration:
            self._calibrate(exam, ensemble_learner, dataset, judge)
        return self._fitted(trainer, world, "those who were not held out", judge, paths)

    def _paths(self, world: World) -> Propagation | None:
        """Learn what paths say, where they are to have a say, or go on with that."""
        if not self.config.model.propagation:
            return None
        self.listener.stage("learning what paths say")
        trainer, others = self._path_trainer(world), dict(self.journal.tensors)
        if begun := _part_of(others, BEGUN):
            with self.journal.fitting():
                trainer.begin_with(begun)
        if self.state.path_step:
            with self.journal.fitting():
                trainer.restore(others)
            others = {name: value for name, value in others.items() if not name.startswith(PATHS)}
        with one_thread():
            while self.state.path_step < trainer.steps:
                with memory_in_words(FOR_PATHS):
                    loss = trainer.step(self.state.path_step)
                self.state.path_step += 1
                if self.state.path_step % KEPT_EVERY == 0 or self.state.path_step == trainer.steps:
                    where = f"step {self.state.path_step} of learning what paths say"
                    check_finite(float(loss), where, "take another seed, or set model.propagation=false")
                    self.journal.keep({**others, **trainer.tensors()})
                self.listener.step(self.state.path_step, trainer.steps)
        return trainer.network

    def _begun(self, world: World, learned: tuple[Propagation, Vocabulary] | None) -> Tensors:
        """What paths have learned in the search: of no entity in particular, so it serves the whole graph, too."""
        if learned is None:
            return Tensors()
        relations = world.prepared.dataset.relations
        fresh = Propagation(len(relations), torch.Generator().manual_seed(self.config.seed))
        return {f"{BEGUN}{name}": value for name, value in carried_over(*learned, fresh, relations).items()}

    def _path_trainer(self, world: World) -> PropagationTrainer:
        observed, seen = world.prepared.dataset.observed, world.prepared.num_seen
        begun = [self.journal.tensors.get(f"{phase}silent") for phase in (PATHS, BEGUN)]
        silent = next((bool(one) for one in begun if one is not None), None)  # as it was begun, wherever it goes on
        if silent is None:
            silent = self.place.type == "cpu" and stays_local(observed, seen)
        steps, seed = self.config.training.propagation_steps, self.config.seed
        return PropagationTrainer(observed, seen, steps, seed, self.place, silent)

    def _blend(self, exam: HoldOut, ensemble_learner: EnsembleLearner) -> None:
        """Weigh the network against the rules, and grade both together."""
        self.listener.stage("ensemble_learner network and rules")
        weights = ensemble_learner.learned_from(exam)
        self.state.blend = _blend_of(weights, self._voices)
        self.state.blended = exam.grade(ensemble_learner.blended(weights))

    def _judge(self, world: World) -> Judge | None:
        """A judge that practised on what is trained on, where the data set says what is false."""
        if self.habit is None:
            return None
        self.listener.stage("learning to judge triples")
        return learn_triple_classifier(world.prepared.dataset.observed, self.habit, self.config.seed)

    def _calibrate(
        self, exam: HoldOut, ensemble_learner: EnsembleLearner, source: InductiveDataset, judge: Judge | None
    ) -> None:
        """See how often answers like these are right, and from which score on triples are true."""
        self.listener.stage("calibrating probabilities")
        blended, seed = self.config.model.ensemble, self.config.seed
        scorer = (
            ensemble_learner.blended(_weights(self.state.blend, self._voices)) if blended else ensemble_learner.network
        )
        judging = (
            None
            if judge is None
            else TripleClassifierScorer(judge, ensemble_learner.world.prepared.dataset.known_facts())
        )
        self.state.thresholds = newcomer_thresholds(exam, judging or scorer, source, seed)
        self.state.calibration = calibrate(exam, scorer, source, blended, seed, judging)

    def final(self, world: World, epochs: int, learned: tuple[Propagation, Vocabulary] | None = None) -> Fitted:
        """Train a fresh model on everyone for a number of epochs; paths go on from what a search ``learned``."""
        if self.state.phase != "final":
            self.state.phase, self.state.epoch, self.state.path_step = "final", 0, 0
            self.journal.tensors = self._begun(world, learned)
        trainer = self._trainer(world)
        while self.state.epoch < epochs:
            self._save(trainer, self._epoch(trainer), epochs)
        return self._fitted(trainer, world, "everyone", self._judge(world), self._paths(world))

    def world(self, dataset: InductiveDataset, rules: RuleSet | None, newcomers: bool = False) -> World:
        """Rules, virtual neighbours and graph of a data set, and a proof that they can be trained on."""
        mines = rules is None and self.config.mines_rules
        self.listener.stage("mining rules and inferring virtual neighbours" if mines else "preparing")
        prepared = prepare(dataset, self.config, rules, self.threads, self.listener.step, newcomers)
        observed = prepared.dataset.observed
        world = World(prepared, build_graph_tensors(observed, prepared.num_seen, prepared.seen_neighbors, self.place))
        self.rehearse(world)
        return world

    def rehearse(self, world: World) -> None:
        """Two batches whose result is thrown away: what cannot work shows in seconds."""
        self.listener.stage("rehearsing")
        with memory_in_words(_for_a_batch(self.config)), precision(self.config, self.place):
            report = _Rehearsal(self.config, world.graph, self.place).epoch(0)
        check_finite(report.loss, "the rehearsal", _slower(self.config.training))
        if self.config.model.propagation:
            with memory_in_words(FOR_PATHS), one_thread():
                self._path_trainer(world).step(1)

    def _trainer(self, world: World) -> Trainer:
        """A fresh trainer, or one that stands where the phase was interrupted."""
        self.listener.stage(self.state.phase)
        trainer = Trainer(self.config, world.graph, self.place)
        if self.state.epoch > 0:
            with self.journal.fitting():
                restore_trainer(trainer, self.journal.tensors)
        return trainer

    def _epoch(self, trainer: Trainer) -> Figures:
        started = time.monotonic()
        with memory_in_words(_for_a_batch(self.config)), precision(self.config, self.place):
            report = trainer.epoch(self.state.epoch)
        self.state.epoch += 1
        check_finite(report.loss, f"epoch {self.state.epoch}", _slower(self.config.training))
        return {
            "phase": self.state.phase,
            "epoch": self.state.epoch,
            "loss": report.loss,
            "fact_loss": report.fact_loss,
            "virtual_loss": report.virtual_loss,
            "mean_label": report.mean_label,
            "seconds": round(time.monotonic() - started, 3),
        }

    def _keep_best(self, trainer: Trainer) -> None:
        self.journal.tensors = {f"{BEST}{name}": value for name, value in model_tensors(trainer).items()}

    def _save(self, trainer: Trainer, record: Figures, last: int) -> None:
        self.state.history.append(record)
        kept = {name: value for name, value in self.journal.tensors.items() if name.startswith((BEST, BEGUN))}
        self.journal.save(record, kept | trainer_tensors(trainer))
        self.listener.epoch(record, self.state, last)

    def _grade(self, exam: HoldOut, trainer: Trainer, world: World) -> dict[str, float]:
        with memory_in_words(_for_a_batch(self.config)):
            network = self._weighing(trainer, world).network
            told_apart = exam.judge(network, self.config.seed) if exam.has_labels else {}
            return exam.grade(network) | told_apart

    def _weighing(self, trainer: Trainer, world: World, paths: Propagation | None = None) -> EnsembleLearner:
        return EnsembleLearner(self.config, self.threads, trainer, world, paths)

    @property
    def _voices(self) -> tuple[str, ...]:
        return features_of(self.config.model.graph_statistics, bool(self.config.model.propagation))

    def _about(self, exam: HoldOut, prepared: Prepared) -> Figures:
        """What the exam asks, and what the rules of this run answer by themselves, where it has any."""
        return {
            "unseen": exam.unseen,
            "newcomers": len(exam.dataset.newcomers),
            "queries": len(exam.queries),
            "rules": exam.grade(rules_over(prepared, prepared.dataset, self.threads)) if len(prepared.rules) else None,
        }

    def _fitted(
        self, trainer: Trainer, world: World, trained_on: str, judge: Judge | None, paths: Propagation | None
    ) -> Fitted:
        state, prepared = self.state, world.prepared
        history = [{name: value for name, value in record.items() if name != "seconds"} for record in state.history]
        metrics: dict[str, Any] = {"trained_on": trained_on, "epochs": state.epoch, "history": history}
        if state.best:
            metrics["epochs"] = state.best_epoch
            metrics["validation"] = {**state.exam, "epoch": state.best_epoch, "model": state.blended or state.best}
            if state.blended:
                metrics["validation"]["network"] = state.best
        blend = None
        if self.config.model.ensemble:
            metrics["blend"] = state.blend or _first_blend(self._voices)
            blend = _weights(metrics["blend"], self._voices)
        if state.calibration:
            metrics[CALIBRATION] = state.calibration
        if state.thresholds:
            metrics[THRESHOLDS] = state.thresholds
        return Fitted(
            self.config,
            prepared.dataset,
            trainer.model.eval(),
            world.graph,
            trainer.labels,
            blend,
            prepared.rules,
            prepared.seen_neighbors,
            list(state.history),
            metrics,
            judge,
            paths,
        )


class _Rehearsal(Trainer):
    """A trainer whose epochs end early."""

    def _batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        yield from islice(super()._batches(generator), REHEARSED)


def _blend_of(weights: npt.NDArray[np.float32], voices: tuple[str, ...]) -> dict[str, float]:
    """All kinds by name, as a report shows them."""
    names = [f"{voice}{kind}" for kind in KINDS for voice in voices]
    return dict(zip(names, all_kinds(weights).reshape(-1).tolist(), strict=True))


def _first_blend(voices: tuple[str, ...]) -> dict[str, float]:
    """What is believed where no newcomers were held out to learn it from."""
    return _blend_of(prior_of(voices).numpy(), voices)


def _weights(blend: Mapping[str, float], voices: tuple[str, ...]) -> npt.NDArray[np.float32]:
    return np.array([[blend[f"{voice}{kind}"] for voice in voices] for kind in KINDS], dtype=np.float32)


def _part_of(tensors: Mapping[str, Tensor], prefix: str) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def is_due(epoch: int, training: TrainingConfig) -> bool:
    """Whether an epoch ends with a validation: every so many, and the last one."""
    return epoch % training.validate_every == 0 or epoch == training.epochs


def _slower(training: TrainingConfig) -> str:
    return f"lower training.lr (now {training.lr:g})"


def _for_a_batch(config: Config) -> str:
    """What memory is needed for, and which settings need less."""
    model, training = config.model, config.training
    drawn = "softmax_negatives" if model.answers_by_input else "negatives"
    now = f"model.dim ({model.dim}) or training.{drawn} ({getattr(training, drawn) or NOTHING})"
    more = f"raise training.batches ({training.batches or NOTHING}), or set training.fanout"
    return f"for a batch; lower {now}, {more}"
