"""Which settings there are: frozen dataclasses that refuse a wrong value as soon as they are made.

The defaults are the preset ``default``: trained vectors, newcomers solved for by their own facts (fold-in), and beside
them rules, graph statistics and propagation, in an ensemble whose weights are learned on held-out newcomers. What they
were chosen on: docs/experiments and docs/MODEL.md.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar, Literal, get_type_hints

from newcomer.config.fields import AUTO, Settings, accepted, plain_fields, plain_values, setting
from newcomer.errors import OptionError, shown, unknown_name

RULE_KINDS = ("one", "two", "both", "three", "constant", "exists")
MEASURES = ("pca", "standard", "smoothed")
ENCODERS = ("vn", "mean", "lstm", "lan", "foldin")
OPTIMISERS = ("adam", "adagrad")
DECODERS = ("distmult", "transe", "complex")
LABELS = ("soft", "hard", "none")
LOSSES = ("binary", "softmax")
PROTOCOLS = ("inductive", "refreshed", "transductive")
UNSEEN_SIDES = ("auto", "subject", "object", "both")
BATCH, FEWEST = 1000, 30  # facts in a mini-batch, and mini-batches an epoch, where no setting says how many


@dataclass(frozen=True)
class RulesConfig(Settings):
    """Which rules are mined, and which of them may add virtual neighbours."""

    section: ClassVar[str] = "rules"

    kinds: tuple[str, ...] = setting(
        ("one", "two", "constant"), "Shapes of the logic rules to mine; empty for none.", choices=RULE_KINDS
    )
    min_support: int = setting(2, "Facts that a mined rule must conclude rightly.", low=1)
    min_head_coverage: float = setting(
        0.0, "Share of its head relation's facts that a mined rule must conclude.", low=0, high=1
    )
    min_head_size: int = setting(1, "Facts that the head relation of a rule must have.", low=1)
    max_constants: int | None = setting(
        1_000_000, "Rules of the kinds constant and exists that are kept, the most confident first.", low=1
    )
    min_confidence: float = setting(
        0.8, "Confidence from which a rule may add virtual neighbours, in the measure below.", low=0, high=1
    )
    measure: str = setting("pca", "The confidence that counts.", choices=MEASURES)
    neighbor_min_support: int = setting(10, "Support from which a rule may add virtual neighbours.", low=1)
    paths: bool = setting(True, "Whether symmetric-path rules add virtual neighbours too.")
    walks: int = setting(1000, "Random walks an entity that look for symmetric paths.", low=1)
    max_per_entity: int | None = setting(None, "Virtual neighbours an entity keeps, the best first.", low=1)


@dataclass(frozen=True)
class ModelConfig(Settings):
    """How an entity becomes a vector, a triple a score, and what else scores answers beside that network."""

    section: ClassVar[str] = "model"

    encoder: str = setting(
        "foldin",
        "How a newcomer is embedded: foldin solves for its vector by its facts; the others are networks over "
        "neighbours.",
        choices=ENCODERS,
    )
    decoder: str = setting("complex", "How a triple is scored; complex needs an even dim.", choices=DECODERS)
    dim: int = setting(200, "Numbers in the vector of an entity.", low=1)
    layers: int = setting(3, "Structure-aware layers (encoder vn).", low=1)
    query_aware: bool = setting(True, "Whether a query-aware layer follows them (encoder vn).")
    residual: bool = setting(False, "Whether the query-aware layer keeps an entity's own vector (encoder vn).")
    relation_shifts: bool = setting(
        False, "Whether a neighbour's vector is shifted by one of its relation before it is summed (encoder vn)."
    )
    dropout: float = setting(0.0, "Share of a vector's numbers dropped while training.", low=0, below=1)
    labels: str = setting(
        "soft",
        "Truth of a virtual neighbour: refined with the embeddings, always 1, or no virtual neighbours at all.",
        choices=LABELS,
    )
    soft_label_c: float = setting(0.01, "How much the rules move a soft label: the penalty C.", low=0)
    constrained: bool = setting(
        False, "Whether a prediction that rules infer is scored by its label, the optimum under the rules."
    )
    ensemble: bool = setting(
        True,
        "Whether answers are scored by an ensemble of the network and all rules, its weights learned on held-out "
        "newcomers.",
    )
    graph_statistics: bool = setting(
        True,
        "Whether the ensemble (model.ensemble) uses statistics of all known facts, other newcomers' too: how often an "
        "entity is an answer, how similar it is to known answers, and for rare relations which others link the same "
        "pairs.",
    )
    propagation: bool | Literal["auto"] = setting(
        AUTO,
        "Whether the ensemble (model.ensemble) has a path-based network that propagates from the query's entity; auto: "
        "wherever there are facts enough to learn it from (on a GPU always).",
    )
    propagation_hubs: int | None = setting(
        None,
        "Facts of an entity at most that sends messages in a propagation network that a CPU learns; 0: of any number; "
        "none: as many as the graph affords.",
        low=0,
    )
    triple_classifier: bool = setting(
        True,
        "Whether triples are classified by features of both ends, learned on observed facts, where valid states false "
        "triples.",
    )
    answers_by_input: bool = setting(
        True, "Whether a candidate answer is scored by its trained vector, all candidates at once, not encoded."
    )
    gamma: float = setting(12.0, "Score of a triple without any distance (decoder transe).", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder == "complex" and self.dim % 2:
            raise OptionError(f"model.dim is {self.dim}, but must be even for the decoder complex")
        if self.encoder == "foldin" and self.decoder == "transe":
            raise OptionError(
                "model.decoder is transe, but the encoder foldin needs distmult or complex; change either, or take "
                "--preset paper-fb15k"
            )
        if self.propagation is True and not self.ensemble:
            raise OptionError(
                "model.propagation is true, but propagation is part of the ensemble only; set model.ensemble=true"
            )
        if self.encoder == "foldin" and not self.answers_by_input:
            raise OptionError("model.answers_by_input is false, but must be true for the encoder foldin")


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """The training loop, and how it ends."""

    section: ClassVar[str] = "training"

    epochs: int = setting(16, "Passes over the observed triples, at most.", low=1)
    batches: int | None = setting(
        None, f"Mini-batches an epoch; none: as many as have {BATCH:,} facts each, {FEWEST} at least.", low=1
    )
    negatives: int = setting(
        64, "Corrupted triples drawn for each true one, where model.answers_by_input is false.", low=1
    )
    softmax_negatives: int | None = setting(
        1_000,
        "Entities that an answer is compared with, where model.answers_by_input is true: drawn for each batch where "
        "there are more; none: all.",
        low=1,
    )
    loss: str = setting(
        "softmax", "Whether each triple is true, or which of a true one and its corruptions is.", choices=LOSSES
    )
    hide_pairs: bool = setting(
        False,
        "Whether all other facts between the ends of a predicted one are masked with it: for graphs of inverses.",
    )
    own_weight: float = setting(
        0.0, "Weight in the loss of the facts as the entities' trained vectors alone score them.", low=0
    )
    optimiser: str = setting("adagrad", "How a gradient is followed.", choices=OPTIMISERS)
    lr: float = setting(0.1, "Learning rate of the optimiser.", above=0)
    l2: float = setting(0.0, "Weight of the squared embeddings in the loss.", low=0)
    n3: float = setting(0.05, "Weight of the cubed sizes of the embeddings' numbers in the loss.", low=0)
    newcomer_share: float = setting(
        0.0, "Share of a batch's entities that are embedded as if they were newcomers.", low=0, high=1
    )
    newcomer_answers: float = setting(
        0.0,
        "Share of the batches whose answers, true and corrupted, are embedded as newcomers too; 0 where "
        "model.answers_by_input is true.",
        low=0,
        high=1,
    )
    grad_clip: float = setting(0.0, "Longest gradient that is followed whole; 0 clips none.", low=0)
    patience: int = setting(5, "Validations without improvement after which training stops.", low=1)
    validate_every: int = setting(16, "Epochs from one validation to the next.", low=1)
    validation_rate: float = setting(
        20.0,
        "Percent of the valid triples (4,000 at most) whose entities are held out as newcomers to validate on; 0 "
        "trains all epochs.",
        low=0,
        high=100,
    )
    validation_unseen: str = setting(
        "auto", "Which ends of them are held out: those that are new in test, or as named.", choices=UNSEEN_SIDES
    )
    validation_queries: int | None = setting(2000, "Queries of a validation, at most.", low=1)
    calibration_questions: int = setting(
        6000, "Questions about newcomers with masked facts that probabilities are learned from, at most.", low=1
    )
    final_fit: bool = setting(True, "Whether to train once more, on all entities, for the number of epochs found.")
    final_share: float = setting(
        0.25,
        "Share of these epochs that the final fit takes where it goes on from the search's vectors (encoder foldin); 1 "
        "trains anew.",
        above=0,
        high=1,
    )
    propagation_steps: int = setting(
        4000,
        "Batches of queries that the propagation network is trained on, at most (model.propagation); a final fit takes "
        "0.1 to 0.15 of it.",
        low=1,
    )
    virtual_weight: float = setting(0.0, "Weight of the virtual triples in the loss.", low=0)
    fanout: int | None = setting(
        None, "Neighbours of an entity drawn anew for each batch, which then shares its negatives.", low=1
    )

    def batches_of(self, facts: int) -> int:
        """Mini-batches of an epoch over so many facts: none is empty."""
        wanted = max(FEWEST, math.ceil(facts / BATCH)) if self.batches is None else self.batches
        return min(wanted, facts)


@dataclass(frozen=True)
class Config(Settings):
    """All settings of a run."""

    preset: str = setting("default", "The preset that these settings started from.")
    protocol: str = setting(
        "inductive",
        "What is seen before test: observed facts, also newcomers' facts for mining rules, or these for training too.",
        choices=PROTOCOLS,
    )
    seed: int = setting(0, "Start of all random numbers.", low=0)
    rules: RulesConfig = field(default_factory=RulesConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.preset):
            raise OptionError(f"preset is {shown(self.preset)}, but must be letters and digits, with '-', '_' or '.'")
        for name, kind in SECTIONS.items():
            if not isinstance(getattr(self, name), kind):
                raise OptionError(f"{name} is {shown(getattr(self, name))}, but must be a {kind.__name__}")
        share, answers = self.training.newcomer_share, self.training.newcomer_answers
        if self.model.encoder == "foldin" and share:
            raise OptionError(
                f"training.newcomer_share is {share:g}, but must be 0 for the encoder foldin: newcomers are solved for"
            )
        if self.model.answers_by_input and answers:
            raise OptionError(
                f"training.newcomer_answers is {answers:g}, but must be 0 with model.answers_by_input: none is embedded"
            )

    @property
    def mines_rules(self) -> bool:
        """Whether rules between relations are needed: for virtual neighbours, or in the ensemble."""
        return bool(self.rules.kinds) and (self.model.labels != "none" or self.model.ensemble)

    def to_dict(self) -> dict[str, Any]:
        """All settings as strings, numbers, lists and ``None``, by section: what JSON can hold."""
        sections = {name: plain_values(getattr(self, name)) for name in SECTIONS}
        return {**plain_values(self), **sections}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "Config":
        """Back from `to_dict`, or from TOML; a setting that is not there has its default, the preset is ``custom``."""
        return merged(cls(preset="custom"), settings)


SECTIONS: dict[str, type[Settings]] = {"rules": RulesConfig, "model": ModelConfig, "training": TrainingConfig}


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `Config.to_dict` by their full names, ``section.field``."""
    named: dict[str, Any] = {}
    for name, value in settings.items():
        inside = value if isinstance(value, Mapping) else None
        named |= {name: value} if inside is None else {f"{name}.{bare}": one for bare, one in inside.items()}
    return named


def nested_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by section, as `merged` takes them, from those by their full names."""
    stated: dict[str, Any] = {}
    for name, value in settings.items():
        section, _, bare = name.rpartition(".")
        (stated.setdefault(section, {}) if section else stated)[bare] = value
    return stated


# What other tools, and earlier versions, call these settings.
OTHER_NAMES = {
    "learning_rate": "training.lr",
    "num_epochs": "training.epochs",
    "batch_size": "training.batches",
    "num_batches": "training.batches",
    "num_negatives": "training.negatives",
    "weight_decay": "training.l2",
    "early_stopping": "training.patience",
    "embedding_dim": "model.dim",
    "hidden_dim": "model.dim",
    "num_layers": "model.layers",
    "margin": "model.gamma",
    "random_seed": "seed",
    "company": "model.graph_statistics",
    "evidence": "model.ensemble",
    "judge": "model.triple_classifier",
    "own_answers": "model.answers_by_input",
    "rivals": "training.softmax_negatives",
}


@cache
def setting_names() -> tuple[str, ...]:
    """All settings as ``section.field``, in the order of the manual."""
    inside = [f"{name}.{one.name}" for name, kind in SECTIONS.items() for one in plain_fields(kind)]
    return (*(one.name for one in plain_fields(Config)), *inside)


def field_and_type(name: str) -> tuple[Field[Any], Any]:
    """What a setting is, by its full name; one that does not exist is an error."""
    if name not in setting_names():
        raise unknown_setting(name)
    section, _, bare = name.rpartition(".")
    kind = SECTIONS[section] if section else Config
    return {one.name: one for one in plain_fields(kind)}[bare], get_type_hints(kind)[bare]


def check_setting(name: str, value: Any) -> None:
    """Refuse a setting that does not exist, and a value that it never takes, whatever the others are."""
    accepted(name, value, *field_and_type(name))


def unknown_setting(name: str) -> OptionError:
    """The error for a setting that does not exist: its field is looked for in its own section, then in all."""
    section, _, bare = name.rpartition(".")
    own = [known for known in setting_names() if section in SECTIONS and known.startswith(f"{section}.")]
    guess = OTHER_NAMES.get(bare) or _nearest(bare, own) or _nearest(bare, setting_names())
    hint = f"; did you mean {guess!r}?" if guess else ";"
    known = "" if guess and not own else f" known: {', '.join(own or setting_names())}"
    return OptionError(f"unknown setting {shown(name)}{hint}{known}")


def _nearest(bare: str, names: Iterable[str]) -> str | None:
    by_field = {name.rpartition(".")[2]: name for name in names}
    near = get_close_matches(bare, by_field, n=1, cutoff=0.6)
    return by_field[near[0]] if near else None


def merged(config: Config, settings: Mapping[str, Any]) -> Config:
    """The settings that are stated, over those of ``config``."""
    if not isinstance(settings, Mapping):
        raise OptionError(f"settings are {shown(settings)}, but must be a table")
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        if name in SECTIONS:
            if not isinstance(value, Mapping):
                raise OptionError(f"{name} is {shown(value)}, but must be a table of settings")
            for bare in value:
                if f"{name}.{bare}" not in setting_names():
                    raise unknown_setting(f"{name}.{bare}")
            changed[name] = replace(getattr(config, name), **value)
        elif name in setting_names() and "." not in name:
            changed[name] = value
        else:
            near = get_close_matches(str(name), SECTIONS, n=1, cutoff=0.6) if isinstance(value, Mapping) else []
            raise unknown_name("section", str(name), SECTIONS) if near else unknown_setting(str(name))
    return replace(config, **changed)
