"""What a training works on, whom it tells of it, and what it ends with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from newcomer.config import Config
from newcomer.evaluation.stored import THRESHOLDS, decides_by_probability
from newcomer.graph import InductiveDataset, Vocabulary
from newcomer.models.bundle import Bundle, Thresholds, dataset_hash
from newcomer.models.embedding.graph_tensors import GraphTensors
from newcomer.models.engine import TrainedModel
from newcomer.models.propagation.network import Propagation
from newcomer.models.serialisation import inferred_by, weights_of
from newcomer.training.checkpoint import Figures, RunState
from newcomer.training.continuation import LearnedVectors
from newcomer.training.preparation import Prepared
from newcomer.training.runtime import deterministic, torch_threads
from newcomer.training.schedule import Schedule

PRELIMINARY = "preliminary"  # among what was measured: this model is there until the training is done
CUT_SHORT = "cut_short"  # likewise: what ended for lack of time, and after how many epochs or steps


class Listener:
    """Notified of what a training is doing; this one keeps it to itself."""

    def schedule(self, schedule: Schedule, mined: bool) -> None:
        """What is going to be done, and what it costs; once more when rules are ``mined``, with their part in it."""

    def first(self, place: Path) -> None:
        """A first model is there, and the training goes on."""

    def stage(self, what: str) -> None:
        """Something that takes a while begins."""

    def step(self, done: int, total: int) -> None:
        """How far the stage is."""

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        """An epoch is done and saved; ``last`` is the number of the phase's last one, if nothing stops it."""


@dataclass(frozen=True, eq=False)
class World:
    """A prepared data set and its graph on the device."""

    prepared: Prepared
    graph: GraphTensors
    seconds: float = 0.0  # that mining and what follows from rules took


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model, the data set it was trained on, and how that went."""

    model: TrainedModel
    dataset: InductiveDataset  # as trained on: whose vectors the model has, and whose facts came later
    history: list[Figures]
    metrics: dict[str, Any]
    vectors: LearnedVectors | None = None  # to go on from

    @property
    def config(self) -> Config:
        return self.model.config

    @property
    def is_preliminary(self) -> bool:
        """Whether the training goes on to a better model."""
        return bool(self.metrics.get(PRELIMINARY))

    @property
    def learned_propagation(self) -> tuple[Propagation, Vocabulary] | None:
        """The propagation network, and the names of its relations."""
        return None if self.model.propagation is None else (self.model.propagation, self.dataset.relations)

    def bundle(self, source: InductiveDataset) -> Bundle:
        """What to write of it; ``source`` is the data set that `fit` was given."""
        with deterministic(self.model.device, torch_threads(source, self.config, None)):
            inferred = inferred_by(self.model, self.dataset.auxiliary.triples)
        # Where false triples were made up, a verdict goes by its probability, which was learned from the same ones.
        found = self.metrics.get(THRESHOLDS, {"made_up": True})
        by_probability = found["made_up"] or decides_by_probability(self.metrics, self.config)
        return Bundle(
            config=self.config,
            observed=self.dataset.observed,
            rules=self.model.rules,
            weights={**weights_of(self.model), **inferred.weights},
            dataset_name=source.name,
            dataset_hash=dataset_hash(source),
            metrics=self.metrics,
            thresholds=None if by_probability else Thresholds(found["overall"], found["relations"]),
            auxiliary=self.dataset.auxiliary if len(self.dataset.auxiliary) else None,
            neighbors=inferred.neighbors,
            newcomer_neighbors=inferred.newcomer_neighbors,
        )
