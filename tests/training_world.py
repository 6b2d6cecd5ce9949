"""A small world to train on: people live in cities, cities lie in countries, and people are citizens of them."""

from dataclasses import replace

from conftest import make_dataset
from newcomer.config import Config, load_preset, with_overrides
from newcomer.graph import InductiveDataset
from newcomer.training.checkpoint import Figures, RunState
from newcomer.training.pipeline import Fitted, Listener

PEOPLE, CITIES, COUNTRIES, NEWCOMERS = 24, 6, 3, 4
Triple = tuple[str, str, str]
SMALL = (
    "model.dim=8",
    "model.layers=1",
    "model.constrained=yes",
    "model.ensemble=no",
    "training.batches=3",
    "training.negatives=4",
    "training.lr=0.02",
    "training.epochs=4",
    "training.patience=2",
    "training.validate_every=2",
    "training.validation_rate=50",
    "rules.kinds=one,two,both",
    "rules.neighbor_min_support=2",
    "rules.walks=20",
)


def lives(name: str, number: int) -> Triple:
    return name, "lives_in", f"city{number % CITIES}"


def citizen(name: str, number: int) -> Triple:
    return name, "citizen_of", f"land{number % CITIES % COUNTRIES}"


def parts() -> dict[str, list[Triple]]:
    """Of every fourth person the citizenship is not in train but asked in valid."""
    people = [f"p{i:02}" for i in range(PEOPLE)]
    places = [(f"city{c}", "city_in", f"land{c % COUNTRIES}") for c in range(CITIES)]
    knows = [(name, "knows", people[(i * 5 + 3) % PEOPLE]) for i, name in enumerate(people)]
    arrived = [f"q{i}" for i in range(NEWCOMERS)]
    return {
        "train": [
            *places,
            *knows,
            *(lives(name, i) for i, name in enumerate(people)),
            *(citizen(name, i) for i, name in enumerate(people) if i % 4),
        ],
        "aux": [
            *(lives(name, i) for i, name in enumerate(arrived)),
            *((name, "knows", people[i]) for i, name in enumerate(arrived)),
        ],
        "valid": [citizen(name, i) for i, name in enumerate(people) if i % 4 == 0],
        "test": [citizen(name, i) for i, name in enumerate(arrived)],
    }


def world(**changes: list[Triple]) -> InductiveDataset:
    """The data set, with other rows for some parts."""
    return make_dataset(**{**parts(), **changes})


PAPER = (
    "model.residual=true",
    "training.loss=softmax",
    "training.own_weight=1",
    "training.newcomer_share=1",
)
PAPER_SETTINGS = with_overrides(  # the paper's encoder with a binary loss
    replace(load_preset("paper-fb15k"), preset="default"),
    [
        "rules.min_head_size=1",
        "rules.neighbor_min_support=10",
        "model.residual=no",
        "training.loss=binary",
        "training.own_weight=0",
        "training.newcomer_share=0.5",
        "training.epochs=100",
        "training.validate_every=2",
        "training.patience=5",
    ],
)
FOLDED = ("model.encoder=foldin", "model.answers_by_input=true", "training.newcomer_share=0")


def settings(*changes: str) -> Config:
    """The paper's encoder, small; others are asked for by name."""
    return with_overrides(PAPER_SETTINGS, [*SMALL, *PAPER, *changes])


def choosing(encoder: str) -> tuple[str, ...]:
    """The changes that ask for an encoder, with what it needs beside it."""
    return FOLDED if encoder == "foldin" else (f"model.encoder={encoder}",)


def weights(fitted: Fitted) -> dict[str, bytes]:
    """Every trained number, to the bit."""
    found = {**fitted.model.embedding.state_dict(), "labels": fitted.model.labels}
    return {name: value.cpu().numpy().tobytes() for name, value in found.items()}


class Stopped(BaseException):
    """The end of a process, as far as a test in this one can have it."""


class StopAfter(Listener):
    """Ends everything when so many epochs are saved."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def epoch(self, record: Figures, state: RunState, last: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stopped
