"""The two phases of a training, and the stages that they have in common.

A `Run` holds what does not change while it goes on; how far it has come is the state of its journal, which is saved
after every epoch.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from newcomer.config import NOTHING, Config, TrainingConfig
from newcomer.evaluation.stored import CALIBRATION, THRESHOLDS
from newcomer.graph import Graph, InductiveDataset, Overlay
from newcomer.models.device import one_thread
from newcomer.models.embedding.graph_tensors import build_graph_tensors
from newcomer.models.engine import TrainedModel
from newcomer.models.ensemble import KINDS, Weights, feature_names
from newcomer.models.propagation.network import PREFIX, Propagation
from newcomer.models.serialisation import under
from newcomer.models.triple_classifier import TripleClassifier, TripleClassifierScorer
from newcomer.rules.limits import thread_count
from newcomer.rules.ranking import RuleRanker, RuleScorer
from newcomer.rules.rule import RuleSet
from newcomer.training.calibration import asked_triples, calibrate, masked_examples, newcomer_thresholds, ranked
from newcomer.training.candidate_propagation import propagation_trainer, way_of
from newcomer.training.checkpoint import (
    BEST,
    Figures,
    Journal,
    RunState,
    Tensors,
    copied,
    model_tensors,
    restore_model,
    restore_trainer,
    trainer_tensors,
)
from newcomer.training.continuation import continues, go_on_from, learned_vectors
from newcomer.training.embedding import ShortTrainer, Trainer
from newcomer.training.ensemble import EnsembleLearner, priors_of
from newcomer.training.fitted import CUT_SHORT, Fitted, Listener, World
from newcomer.training.holdout import HoldOut, hold_out_newcomers
from newcomer.training.preparation import (
    Prepared,
    check_trainable,
    learns_from_neighbors,
    mined_rules,
    prepare,
    renamed_rules,
)
from newcomer.training.propagation import PropagationTrainer, carried_over
from newcomer.training.runtime import check_finite, memory_in_words
from newcomer.training.schedule import PROPAGATION, VECTORS, Schedule
from newcomer.training.triple_classifier import Corruption, learn_triple_classifier

REHEARSED = 2  # batches
BEGUN = "begun."  # the propagation network of the search
KEPT_EVERY = 100  # steps of the propagation network
FOR_PROPAGATION = "for the propagation network; set model.propagation=false"


class Exam(NamedTuple):
    """Newcomers held out of a data set, and what is left of it."""

    held_out: HoldOut
    world: World

    def of(self, most: int, seed: int) -> "Exam":
        """With so many queries at most."""
        queries = self.held_out.queries
        if len(queries) <= most:
            return self
        drawn = np.sort(np.random.default_rng([seed, 6]).choice(len(queries), size=most, replace=False))
        return self._replace(held_out=replace(self.held_out, queries=queries.take(drawn)))


@dataclass(frozen=True, eq=False)
class Run:
    """The two phases, with what they share."""

    config: Config
    place: torch.device
    threads: int | None
    listener: Listener
    journal: Journal
    corruption: Corruption | None
    schedule: Schedule | None = None
    most_batches: int | None = None  # of an epoch, where it is cut short

    @property
    def state(self) -> RunState:
        return self.journal.state

    def exam(
        self, dataset: InductiveDataset, rules: RuleSet | None, full: Graph | None, rehearsed: bool = False
    ) -> Exam:
        """Newcomers held out of a data set, and what is left of it."""
        held_out = hold_out_newcomers(dataset, self.config, full)
        given = None if rules is None else renamed_rules(rules, dataset, held_out.dataset)
        grounded = learns_from_neighbors(self.config) or not self.config.training.final_fit
        return Exam(held_out, self.world(held_out.dataset, given, grounded, rehearsed))

    def search(self, dataset: InductiveDataset, exam: Exam) -> Fitted:
        """Train until the held-out newcomers are ranked no better; gives the model at its best."""
        state, (held_out, world) = self.state, exam
        if not state.validation:
            self.listener.stage("ranking by the rules alone")
            state.validation = self._about(held_out, world.prepared)
        trainer = self._trainer(world)
        self._search_epochs(trainer, exam)
        restore_model(trainer, under(BEST, self.journal.tensors))
        model = self._model(trainer, world, self._propagation(world))
        learner = EnsembleLearner(model, world.prepared, self.threads, self.listener.step)
        if self.config.model.ensemble and not state.feature_weights:
            self._weigh(held_out, learner)
        model = replace(model, triple_classifier=self._triple_classifier(world))
        if not state.calibration:
            self._calibrate(held_out, learner, dataset, model.triple_classifier)
        fitted = self._fitted(model, world, "those who were not held out")
        if not continues(self.config):
            return fitted
        return replace(fitted, vectors=learned_vectors(trainer, held_out.dataset, learner.engine.initial))

    def _search_epochs(self, trainer: Trainer, exam: Exam) -> None:
        """Train and validate, until there is no improvement any more, or no time."""
        training, state, started = self.config.training, self.state, time.monotonic()
        while state.epoch < training.epochs and state.stale < training.patience and VECTORS not in state.cut:
            record = self._epoch(trainer)
            if state.epoch < training.epochs and self._is_late(VECTORS, started):
                state.cut[VECTORS] = state.epoch
            if is_due(state.epoch, training) or (VECTORS in state.cut and not state.best):
                figures = self._validate(exam.held_out, trainer, exam.world)
                record |= figures
                if state.validated(figures):
                    self.journal.tensors = model_tensors(trainer, BEST)
            self._save(trainer, record, training.epochs)

    def _is_late(self, stage: str, started: float) -> bool:
        """Whether a stage has taken so much longer than it was said to take that it is cut short."""
        return self.schedule is not None and time.monotonic() - started >= self.schedule.most(stage)

    def _model(self, trainer: Trainer, world: World, propagation: Propagation | None = None) -> TrainedModel:
        """What was trained so far."""
        prepared = world.prepared
        return TrainedModel(
            self.config,
            prepared.dataset.observed,
            prepared.rules,
            trainer.model,
            world.graph,
            trainer.labels,
            prepared.seen_neighbors,
            propagation=propagation,
        )

    def _propagation(self, world: World) -> Propagation | None:
        """Train the propagation network, where there is to be one, or go on with that."""
        if not self.config.model.propagation:
            return None
        self.listener.stage("training the propagation network")
        trainer, others = self._propagation_trainer(world), dict(self.journal.tensors)
        with self.journal.fitting():
            if begun := under(BEGUN, others):
                trainer.begin_with(begun)
            if self.state.propagation_step:
                trainer.restore(others)
        others = {name: value for name, value in others.items() if not name.startswith(PREFIX)}
        state, started, stage = self.state, time.monotonic(), f"{PROPAGATION}, {self.state.phase}"
        with one_thread():
            while state.propagation_step < trainer.steps and stage not in state.cut:
                with memory_in_words(FOR_PROPAGATION):
                    loss = trainer.step(state.propagation_step)
                state.propagation_step += 1
                if state.propagation_step < trainer.steps and self._is_late(PROPAGATION, started):
                    state.cut[stage] = state.propagation_step
                ends = state.propagation_step == trainer.steps or stage in state.cut
                if ends or state.propagation_step % KEPT_EVERY == 0:
                    where = f"step {state.propagation_step} of the propagation network"
                    check_finite(float(loss), where, "take another seed, or set model.propagation=false")
                    self.journal.keep({**others, **trainer.tensors()})
                self.listener.step(state.propagation_step, trainer.steps)
        return trainer.network

    def _begun(self, world: World, learned: Fitted | None) -> Tensors:
        """What the final fit goes on from: the propagation network of the search, and its vectors."""
        found, dataset = Tensors(), world.prepared.dataset
        if learned is not None and learned.vectors is not None:
            trainer = Trainer(self.config, world.graph, self.place)
            go_on_from(learned.vectors, trainer, dataset)
            found |= trainer_tensors(trainer)
        if learned is not None and learned.learned_propagation is not None:
            network, names = learned.learned_propagation
            generator = torch.Generator().manual_seed(self.config.seed)
            fresh = Propagation(len(dataset.relations), generator, layers=network.layers)
            found |= copied(BEGUN, carried_over(network, names, fresh, dataset.relations))
        return found

    def _propagation_trainer(self, world: World) -> PropagationTrainer:
        observed, seen = world.prepared.dataset.observed, world.prepared.num_seen
        begun = [way_of(under(prefix, self.journal.tensors)) for prefix in (PREFIX, BEGUN)]
        way = next((one for one in begun if one is not None), None)  # as it began, wherever it goes on
        steps, seed = self.config.training.propagation_steps, self.config.seed
        hubs = self.config.model.propagation_hubs or 0  # decided by then
        return propagation_trainer(observed, seen, steps, seed, self.place, way, self.threads, hubs)

    def _weigh(self, held_out: HoldOut, learner: EnsembleLearner) -> None:
        """Learn the weights of the ensemble."""
        self.listener.stage("learning the weights of the ensemble")
        self.state.feature_weights = _by_name(learner.learned_from(held_out), self._features)

    def _triple_classifier(self, world: World) -> TripleClassifier | None:
        """A triple classifier trained on what is trained on, where the data set has false triples."""
        if self.corruption is None:
            return None
        self.listener.stage("training the triple classifier")
        return learn_triple_classifier(world.prepared.dataset.observed, self.corruption, self.config.seed)

    def _calibrate(
        self, held_out: HoldOut, learner: EnsembleLearner, source: InductiveDataset, classifier: TripleClassifier | None
    ) -> None:
        """Rank by the ensemble, count how often answers are right, and from which score on triples are true."""
        self.listener.stage("calibrating probabilities")
        is_ensemble, seed = self.config.model.ensemble, self.config.seed
        weights = _weights(self.state.feature_weights, self._features) if is_ensemble else None
        scorer, triple_scorer = learner.embedding if weights is None else learner.scorer(weights), None
        if classifier is not None:
            triple_scorer = TripleClassifierScorer(classifier, learner.prepared.dataset.known_facts())
        answers = None
        if is_ensemble:
            self.state.ensemble, answers = ranked(held_out, scorer, source)
        facts = masked_examples(learner, weights, held_out, source, self.listener.step)
        triples = asked_triples(held_out, scorer, source, seed, triple_scorer)
        self.state.thresholds = newcomer_thresholds(triples, held_out, seed)
        self.state.calibration = calibrate(held_out, scorer, source, is_ensemble, seed, facts, triples, answers)

    def final(self, world: World, epochs: int, learned: Fitted | None = None) -> Fitted:
        """Train a fresh model on everyone for a number of epochs; what the search learned is gone on from."""
        if self.state.phase != "final":
            self.state.phase, self.state.epoch, self.state.propagation_step = "final", 0, 0
            self.journal.tensors = self._begun(world, learned)
        trainer = self._trainer(world)
        while self.state.epoch < epochs:
            self._save(trainer, self._epoch(trainer), epochs)
        classifier = self._triple_classifier(world)
        model = self._model(trainer, world, self._propagation(world))
        return self._fitted(replace(model, triple_classifier=classifier), world, "everyone")

    def world(
        self, dataset: InductiveDataset, rules: RuleSet | None, grounded: bool = True, rehearsed: bool = False
    ) -> World:
        """Rules and graph of a data set, virtual neighbours where ``grounded``, and a proof that they can be trained
        on, unless a larger one was ``rehearsed``.
        """
        started, mined = time.monotonic(), rules is None
        if mined and self.config.mines_rules:
            check_trainable(dataset)
            self.listener.stage("mining rules")
            rules = mined_rules(dataset, self.config, self.threads, self.listener.step)
        self.listener.stage("inferring virtual neighbours" if grounded else "preparing")
        prepared = replace(prepare(dataset, self.config, rules, self.threads, None, grounded), mined=mined)
        observed, seconds = prepared.dataset.observed, time.monotonic() - started
        graph = build_graph_tensors(observed, prepared.num_seen, prepared.seen_neighbors, self.place)
        world = World(prepared, graph, seconds)
        if not rehearsed:
            self.rehearse(world)
        return world

    def rehearse(self, world: World) -> None:
        """Two batches whose result is thrown away: what cannot work shows in seconds."""
        self.listener.stage("rehearsing")
        with memory_in_words(for_a_batch(self.config)):
            report = ShortTrainer(self.config, world.graph, self.place, REHEARSED).epoch(0)
        check_finite(report.loss, "the rehearsal", _slower(self.config.training))
        if self.config.model.propagation:
            with memory_in_words(FOR_PROPAGATION), one_thread():
                self._propagation_trainer(world).step(1)

    def _trainer(self, world: World) -> Trainer:
        """A fresh trainer, or one that stands where the phase was interrupted."""
        self.listener.stage(self.state.phase)
        asked = self.config, world.graph, self.place
        trainer = Trainer(*asked) if self.most_batches is None else ShortTrainer(*asked, self.most_batches)
        if under("model.", self.journal.tensors):
            with self.journal.fitting():
                restore_trainer(trainer, self.journal.tensors)
        return trainer

    def _epoch(self, trainer: Trainer) -> Figures:
        started = time.monotonic()
        with memory_in_words(for_a_batch(self.config)):
            report = trainer.epoch(self.state.epoch)
        self.state.epoch += 1
        check_finite(report.loss, f"epoch {self.state.epoch}", _slower(self.config.training))
        return {
            "phase": self.state.phase,
            "epoch": self.state.epoch,
            **asdict(report),
            "seconds": round(time.monotonic() - started, 3),
        }

    def _save(self, trainer: Trainer, record: Figures, last: int) -> None:
        self.state.history.append(record)
        kept = {name: value for name, value in self.journal.tensors.items() if name.startswith((BEST, BEGUN))}
        self.journal.save(record, kept | trainer_tensors(trainer))
        self.listener.epoch(record, self.state, last)

    def _validate(self, held_out: HoldOut, trainer: Trainer, world: World) -> dict[str, float]:
        with memory_in_words(for_a_batch(self.config)):
            scorer = EnsembleLearner(self._model(trainer, world), world.prepared, self.threads).embedding
            classified = held_out.classification_metrics(scorer, self.config.seed) if held_out.has_labels else {}
            return held_out.ranking_metrics(scorer) | classified

    @property
    def _features(self) -> tuple[str, ...]:
        return feature_names(self.config.model.graph_statistics, bool(self.config.model.propagation))

    def _about(self, held_out: HoldOut, prepared: Prepared) -> Figures:
        """What the hold-out asks, and what the rules of this run answer by themselves, where it has any."""
        overlay = Overlay.of_dataset(prepared.dataset)
        rules = RuleScorer(RuleRanker.of(prepared.rules), overlay, thread_count(self.threads))
        return {
            "unseen": held_out.unseen,
            "newcomers": len(held_out.dataset.newcomers),
            "queries": len(held_out.queries),
            "rules": held_out.ranking_metrics(rules) if len(prepared.rules) else None,
        }

    def _fitted(self, model: TrainedModel, world: World, trained_on: str) -> Fitted:
        state = self.state
        history = [{name: value for name, value in record.items() if name != "seconds"} for record in state.history]
        metrics: dict[str, Any] = {"trained_on": trained_on, "epochs": state.epoch, "history": history}
        if state.best:
            metrics["epochs"] = state.best_epoch
            best = {"epoch": state.best_epoch, "model": state.ensemble or state.best}
            metrics["validation"] = state.validation | best
            if state.ensemble:
                metrics["validation"]["embedding"] = state.best
        if self.config.model.ensemble:
            metrics["ensemble"] = state.feature_weights or _by_name(priors_of(self._features), self._features)
            model = replace(model, weights=_weights(metrics["ensemble"], self._features))
        if state.calibration:
            metrics[CALIBRATION] = state.calibration
        if state.thresholds:
            metrics[THRESHOLDS] = state.thresholds
        if state.cut:
            metrics[CUT_SHORT] = dict(state.cut)
        model.embedding.eval()
        return Fitted(model, world.prepared.dataset, list(state.history), metrics)


def _by_name(weights: Weights, features: tuple[str, ...]) -> dict[str, float]:
    """All kinds of weights by name, as a report shows them."""
    names = [f"{feature}{kind}" for kind in KINDS for feature in features]
    return dict(zip(names, weights.reshape(-1).tolist(), strict=True))


def _weights(by_name: Mapping[str, float], features: tuple[str, ...]) -> Weights:
    return np.array([[by_name[f"{feature}{kind}"] for feature in features] for kind in KINDS], dtype=np.float32)


def is_due(epoch: int, training: TrainingConfig) -> bool:
    """Whether an epoch ends with a validation: every so many, and the last one."""
    return epoch % training.validate_every == 0 or epoch == training.epochs


def _slower(training: TrainingConfig) -> str:
    return f"lower training.lr (now {training.lr:g})"


def for_a_batch(config: Config) -> str:
    """What memory is needed for, and which settings need less."""
    model, training = config.model, config.training
    drawn = "softmax_negatives" if model.answers_by_input else "negatives"
    now = f"model.dim ({model.dim}) or training.{drawn} ({getattr(training, drawn) or NOTHING})"
    more = f"raise training.batches ({training.batches or NOTHING}), or set training.fanout"
    return f"for a batch; lower {now}, {more}"
