"""Which settings there are: frozen dataclasses that refuse a wrong value as soon as they are made."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar, Literal

from newcomer.config.fields import Settings, plain_fields, plain_values, setting
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
BATCH, FEWEST = 1000, 30  # facts in a mini-batch, and mini-batches an epoch, where nobody says how many


@dataclass(frozen=True)
class RulesConfig(Settings):
    """Which rules are mined, and which of them may add virtual neighbours."""

    section: ClassVar[str] = "rules"

    kinds: tuple[str, ...] = setting(
        ("one", "two", "both"), "Shapes of the logic rules to mine; empty for none.", choices=RULE_KINDS
    )
    min_support: int = setting(2, "Facts that a mined rule must conclude rightly.", low=1)
    min_head_coverage: float = setting(
        0.01, "Share of its head relation's facts that a mined rule must conclude.", low=0, high=1
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
    """How an entity becomes a vector and a triple a score."""

    section: ClassVar[str] = "model"

    encoder: str = setting("vn", "How an entity is embedded from its neighbours.", choices=ENCODERS)
    decoder: str = setting("distmult", "How a triple is scored; complex needs an even dim.", choices=DECODERS)
    dim: int = setting(100, "Numbers in the vector of an entity.", low=1)
    layers: int = setting(3, "Structure-aware layers (encoder vn).", low=1)
    query_aware: bool = setting(True, "Whether a query-aware layer follows them (encoder vn).")
    residual: bool = setting(False, "Whether the query-aware layer keeps an entity's own vector (encoder vn).")
    relation_shifts: bool = setting(
        False, "Whether a neighbour's vector is shifted by one of its relation before it is summed (encoder vn)."
    )
    dropout: float = setting(0.25, "Share of a vector's numbers dropped while training.", low=0, below=1)
    labels: str = setting(
        "soft",
        "Truth of a virtual neighbour: refined with the embeddings, always 1, or no virtual neighbours at all.",
        choices=LABELS,
    )
    soft_label_c: float = setting(0.01, "How much the rules move a soft label: the penalty C.", low=0)
    constrained: bool = setting(
        True, "Whether a prediction that rules infer is scored by its label, the optimum under the rules."
    )
    ensemble: bool = setting(
        False, "Whether all rules have a say in the answer beside the network, weighed on validation newcomers."
    )
    graph_statistics: bool = setting(
        False,
        "Where rules have a say (evidence): whether all that is known is heard, other newcomers' facts, too: how often "
        "everyone answers, who is like the answers known already, and for relations seldom observed what else ties the "
        "same pairs.",
    )
    propagation: bool | Literal["auto"] = setting(
        False,
        "Whether paths from the entity asked about have a say, too (with evidence); auto: where a GPU trains, "
        "and on a processor where the graph is so sparse that they are learned in the time that vectors take.",
    )
    propagate_newcomers: bool = setting(
        False,
        "Where paths have a say and all that is known is heard (company): whether paths go along other newcomers' "
        "facts, too.",
    )
    triple_classifier: bool = setting(
        False,
        "Whether triples are judged by what is seen around both ends, learned on observed facts, where valid says what "
        "is false.",
    )
    answers_by_input: bool = setting(
        False, "Whether an answer is compared by its trained vector, with everyone while training, not encoded."
    )
    gamma: float = setting(12.0, "Score of a triple without any distance (decoder transe).", above=0)

    @property
    def propagates_newcomers(self) -> bool:
        """Whether paths, where there are any, go over all that is known."""
        return self.graph_statistics and self.propagate_newcomers

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
                "model.propagation is true, but paths have a say beside rules only; set model.ensemble=true"
            )
        if self.encoder == "foldin" and not self.answers_by_input:
            raise OptionError("model.answers_by_input is false, but must be true for the encoder foldin")


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """The training loop, and how it ends."""

    section: ClassVar[str] = "training"

    epochs: int = setting(100, "Passes over the observed triples, at most.", low=1)
    batches: int | None = setting(
        100, f"Mini-batches an epoch; none: as many as have {BATCH:,} facts each, {FEWEST} at least.", low=1
    )
    negatives: int = setting(
        64, "Corrupted triples drawn for each true one; with model.answers_by_input all rivals are instead.", low=1
    )
    softmax_negatives: int | None = setting(
        50_000,
        "Entities that an answer is compared with under model.answers_by_input, drawn for each batch where there are "
        "more; "
        "none: everyone.",
        low=1,
    )
    loss: str = setting(
        "binary", "Whether each triple is true, or which of a true one and its corruptions is.", choices=LOSSES
    )
    hide_pairs: bool = setting(
        False, "Whether all other facts between the ends of a predicted one are hidden with it: for graphs of inverses."
    )
    own_weight: float = setting(
        0.0, "Weight in the loss of the facts as the entities' trained vectors alone score them.", low=0
    )
    optimiser: str = setting("adam", "How a gradient is followed.", choices=OPTIMISERS)
    lr: float = setting(0.002, "Learning rate of the optimiser.", above=0)
    l2: float = setting(0.001, "Weight of the squared embeddings in the loss.", low=0)
    n3: float = setting(0.0, "Weight of the cubed sizes of the embeddings' numbers in the loss.", low=0)
    newcomer_share: float = setting(
        0.5, "Share of a batch's entities that are embedded as if they were newcomers.", low=0, high=1
    )
    newcomer_answers: float = setting(
        0.0,
        "Share of the batches whose answers, true and corrupted, are embedded as newcomers too; not with own answers.",
        low=0,
        high=1,
    )
    grad_clip: float = setting(1.0, "Longest gradient that is followed whole; 0 clips none.", low=0)
    patience: int = setting(5, "Validations without improvement after which training stops.", low=1)
    validate_every: int = setting(2, "Epochs from one validation to the next.", low=1)
    validation_rate: float = setting(
        10.0,
        "Percent of the valid triples whose entities are held out as newcomers to validate on; 0 trains all epochs.",
        low=0,
        high=100,
    )
    validation_unseen: str = setting(
        "auto", "Which ends of them are held out: those that are new in test, or as named.", choices=UNSEEN_SIDES
    )
    validation_queries: int | None = setting(2000, "Questions that a validation asks, at most.", low=1)
    final_fit: bool = setting(True, "Whether to train once more, on all entities, for the number of epochs found.")
    propagation_steps: int = setting(
        4000,
        "Batches of questions that paths are learned from, at most (model.propagation); a final fit takes 0.3 of it.",
        low=1,
    )
    virtual_weight: float = setting(1.0, "Weight of the virtual triples in the loss.", low=0)
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

    preset: str = setting(MISSING, "The preset that these settings started from.")
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
        if self.model.encoder == "foldin" and self.training.newcomer_share:
            share = self.training.newcomer_share
            raise OptionError(
                f"training.newcomer_share is {share:g}, but must be 0 for the encoder foldin: newcomers are solved for"
            )

        if self.model.answers_by_input and self.training.newcomer_answers:
            share = self.training.newcomer_answers
            raise OptionError(
                f"training.newcomer_answers is {share:g}, but must be 0 with model.answers_by_input: none is embedded"
            )

    @property
    def has_virtual_neighbors(self) -> bool:
        """Whether rules add anything to what an entity's own facts say."""
        return self.model.labels != "none" and bool(self.rules.kinds or self.rules.paths)

    @property
    def mines_rules(self) -> bool:
        """Whether rules between relations are needed: for virtual neighbours, or to have a say in the answers."""
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


def completed(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of `Config.to_dict` with the defaults of those that came after them: what a model was, it still is.

    As they are where this version knows some of them no longer.
    """
    try:
        whole = Config.from_dict(settings).to_dict()
    except OptionError:
        return settings
    return {name: whole[name] for name in settings}


# What other tools call these settings.
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
}


@cache
def setting_names() -> tuple[str, ...]:
    """All settings as ``section.field``, in the order of the manual."""
    inside = [f"{name}.{one.name}" for name, kind in SECTIONS.items() for one in plain_fields(kind)]
    return (*(one.name for one in plain_fields(Config)), *inside)


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
            changed[name] = replace(getattr(config, name), **_section_values(name, value))
        elif name in setting_names() and "." not in name:
            changed[name] = value
        else:
            near = get_close_matches(str(name), SECTIONS, n=1, cutoff=0.6) if isinstance(value, Mapping) else []
            raise unknown_name("section", str(name), SECTIONS) if near else unknown_setting(str(name))
    return replace(config, **changed)


def _section_values(section: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise OptionError(f"{section} is {shown(values)}, but must be a table of settings")
    for name in values:
        if f"{section}.{name}" not in setting_names():
            raise unknown_setting(f"{section}.{name}")
    return {str(name): value for name, value in values.items()}
