"""Settings: what every run is told, as frozen dataclasses that refuse a wrong value as soon as they are made.

    Config          preset, protocol, seed
    ├── rules       RulesConfig: which rules are mined, and which of them may add virtual neighbours
    ├── model       ModelConfig: encoder, decoder, soft labels
    └── training    TrainingConfig: the loop and how it ends

A setting is named ``section.field`` (``training.lr``) on the command line and in messages. Presets are TOML files that
state only what differs from the defaults below. ``to_toml`` writes all settings with their documentation: that is the
manual. TOML has no null, so there, and on the command line, "nothing" is the word ``none``.
"""

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from newcomer.errors import InputError, OptionError, shown, unknown_name

RULE_KINDS = ("one", "two", "both", "three", "constant", "exists")
MEASURES = ("pca", "standard", "smoothed")
ENCODERS = ("vn", "mean", "lstm", "lan", "relational", "foldin")
OPTIMISERS = ("adam", "adagrad")
DECODERS = ("distmult", "transe", "complex")
LABELS = ("soft", "hard", "none")
LOSSES = ("binary", "softmax")
PROTOCOLS = ("inductive", "refreshed", "transductive")
UNSEEN_SIDES = ("auto", "subject", "object", "both")
BATCH, FEWEST = 1000, 30  # facts in a mini-batch, and mini-batches an epoch, where nobody says how many
INT_MAX = 2**63 - 1  # what TOML promises to hold
NOTHING = "none"


def _setting(
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
) -> Any:
    """A field with its documentation and what it may be: one of ``choices``, or a number within the limits."""
    limits = {"at least": low, "above": above, "at most": high, "below": below}
    stated = {words: limit for words, limit in limits.items() if limit is not None}
    return field(default=default, metadata={"about": about, "choices": choices, "limits": stated})


class _Settings:
    """What the four dataclasses share: every field is converted and checked when one is made."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        for one in _plain_fields(type(self)):
            name = f"{self.section}.{one.name}" if self.section else one.name
            value = _converted(name, getattr(self, one.name), types[one.name])
            _check(name, value, one)
            object.__setattr__(self, one.name, value)


@dataclass(frozen=True)
class RulesConfig(_Settings):
    """Which rules are mined, and which of them may add virtual neighbours."""

    section: ClassVar[str] = "rules"

    kinds: tuple[str, ...] = _setting(
        ("one", "two", "both"), "Shapes of the logic rules to mine; empty for none.", choices=RULE_KINDS
    )
    min_support: int = _setting(2, "Facts that a mined rule must conclude rightly.", low=1)
    min_head_coverage: float = _setting(
        0.01, "Share of its head relation's facts that a mined rule must conclude.", low=0, high=1
    )
    min_head_size: int = _setting(1, "Facts that the head relation of a rule must have.", low=1)
    max_constants: int | None = _setting(
        1_000_000, "Rules of the kinds constant and exists that are kept, the most confident first.", low=1
    )
    min_confidence: float = _setting(
        0.8, "Confidence from which a rule may add virtual neighbours, in the measure below.", low=0, high=1
    )
    measure: str = _setting("pca", "The confidence that counts.", choices=MEASURES)
    neighbor_min_support: int = _setting(10, "Support from which a rule may add virtual neighbours.", low=1)
    paths: bool = _setting(True, "Whether symmetric-path rules add virtual neighbours too.")
    walks: int = _setting(1000, "Random walks an entity that look for symmetric paths.", low=1)
    max_per_entity: int | None = _setting(None, "Virtual neighbours an entity keeps, the best first.", low=1)


@dataclass(frozen=True)
class ModelConfig(_Settings):
    """How an entity becomes a vector and a triple a score."""

    section: ClassVar[str] = "model"

    encoder: str = _setting("vn", "How an entity is embedded from its neighbours.", choices=ENCODERS)
    decoder: str = _setting("distmult", "How a triple is scored; complex needs an even dim.", choices=DECODERS)
    dim: int = _setting(100, "Numbers in the vector of an entity.", low=1)
    layers: int = _setting(3, "Structure-aware layers (encoder vn).", low=1)
    query_aware: bool = _setting(True, "Whether a query-aware layer follows them (encoder vn).")
    residual: bool = _setting(False, "Whether the query-aware layer keeps an entity's own vector (encoder vn).")
    relation_shifts: bool = _setting(
        False, "Whether a neighbour's vector is shifted by one of its relation before it is summed (encoder vn)."
    )
    normalise: bool = _setting(True, "Whether a sum over neighbours is divided by their number (encoder vn).")
    dropout: float = _setting(0.25, "Share of a vector's numbers dropped while training.", low=0, below=1)
    labels: str = _setting(
        "soft",
        "Truth of a virtual neighbour: refined with the embeddings, always 1, or no virtual neighbours at all.",
        choices=LABELS,
    )
    soft_label_c: float = _setting(0.01, "How much the rules move a soft label: the penalty C.", low=0)
    constrained: bool = _setting(
        True, "Whether a prediction that rules infer is scored by its label, the optimum under the rules."
    )
    evidence: bool = _setting(
        False, "Whether all rules have a say in the answer beside the network, weighed on validation newcomers."
    )
    propagation: bool = _setting(
        False,
        "Whether paths from the entity asked about have a say, too (with evidence); to learn from more than a few "
        "thousand facts takes a GPU.",
    )
    judge: bool = _setting(
        False,
        "Whether triples are judged by what is seen around both ends, learned on observed facts, where valid says what "
        "is false.",
    )
    own_answers: bool = _setting(
        False, "Whether an answer is compared by its trained vector, with everyone while training, not encoded."
    )
    max_neighbors: int = _setting(64, "Neighbours of an entity that are looked at (all encoders but vn).", low=1)
    gamma: float = _setting(12.0, "Score of a triple without any distance (decoder transe).", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder == "complex" and self.dim % 2:
            raise OptionError(f"model.dim is {self.dim}, but must be even for the decoder complex")
        if self.encoder == "foldin" and self.decoder == "transe":
            raise OptionError(
                "model.decoder is transe, but the encoder foldin needs distmult or complex; change either, or take "
                "--preset paper-fb15k"
            )
        if self.propagation and not self.evidence:
            raise OptionError(
                "model.propagation is true, but paths have a say beside rules only; set model.evidence=true"
            )
        if self.encoder == "foldin" and not self.own_answers:
            raise OptionError("model.own_answers is false, but must be true for the encoder foldin")


@dataclass(frozen=True)
class TrainingConfig(_Settings):
    """The training loop, and how it ends."""

    section: ClassVar[str] = "training"

    epochs: int = _setting(100, "Passes over the observed triples, at most.", low=1)
    batches: int | None = _setting(
        100, f"Mini-batches an epoch; none: as many as have {BATCH:,} facts each, {FEWEST} at least.", low=1
    )
    negatives: int = _setting(
        64, "Corrupted triples drawn for each true one; with model.own_answers all rivals are instead.", low=1
    )
    rivals: int | None = _setting(
        50_000,
        "Entities that an answer is compared with under model.own_answers, drawn for each batch where there are more; "
        "none: everyone.",
        low=1,
    )
    loss: str = _setting(
        "binary", "Whether each triple is true, or which of a true one and its corruptions is.", choices=LOSSES
    )
    edge_dropout: float = _setting(0.0, "Share of the edges that a mini-batch does not see.", low=0, below=1)
    hide_pairs: bool = _setting(
        False, "Whether all other facts between the ends of a predicted one are hidden with it: for graphs of inverses."
    )
    own_weight: float = _setting(
        0.0, "Weight in the loss of the facts as the entities' trained vectors alone score them.", low=0
    )
    optimiser: str = _setting("adam", "How a gradient is followed.", choices=OPTIMISERS)
    lr: float = _setting(0.002, "Learning rate of the optimiser.", above=0)
    l2: float = _setting(0.001, "Weight of the squared embeddings in the loss.", low=0)
    n3: float = _setting(0.0, "Weight of the cubed sizes of the embeddings' numbers in the loss.", low=0)
    newcomer_share: float = _setting(
        0.5, "Share of a batch's entities that are embedded as if they were newcomers.", low=0, high=1
    )
    newcomer_answers: float = _setting(
        0.0,
        "Share of the batches whose answers, true and corrupted, are embedded as newcomers too; not with own answers.",
        low=0,
        high=1,
    )
    grad_clip: float = _setting(1.0, "Longest gradient that is followed whole; 0 clips none.", low=0)
    patience: int = _setting(5, "Validations without improvement after which training stops.", low=1)
    validate_every: int = _setting(2, "Epochs from one validation to the next.", low=1)
    validation_rate: float = _setting(
        10.0,
        "Percent of the valid triples whose entities are held out as newcomers to validate on; 0 trains all epochs.",
        low=0,
        high=100,
    )
    validation_unseen: str = _setting(
        "auto", "Which ends of them are held out: those that are new in test, or as named.", choices=UNSEEN_SIDES
    )
    validation_queries: int | None = _setting(2000, "Questions that a validation asks, at most.", low=1)
    final_fit: bool = _setting(True, "Whether to train once more, on all entities, for the number of epochs found.")
    propagation_steps: int = _setting(
        3000, "Batches of questions that paths are learned from, at most (model.propagation).", low=1
    )
    virtual_weight: float = _setting(1.0, "Weight of the virtual triples in the loss.", low=0)
    amp: bool = _setting(False, "Whether to calculate in half precision where the device gains from it.")
    fanout: int | None = _setting(
        None, "Neighbours of an entity drawn anew for each batch, which then shares its negatives.", low=1
    )

    def batches_of(self, facts: int) -> int:
        """Mini-batches of an epoch over so many facts: none is empty."""
        wanted = max(FEWEST, math.ceil(facts / BATCH)) if self.batches is None else self.batches
        return min(wanted, facts)


@dataclass(frozen=True)
class Config(_Settings):
    """All settings of a run."""

    preset: str = _setting(MISSING, "The preset that these settings started from.")
    protocol: str = _setting(
        "inductive",
        "What is seen before test: observed facts, also newcomers' facts for mining rules, or these for training too.",
        choices=PROTOCOLS,
    )
    seed: int = _setting(0, "Start of all random numbers.", low=0)
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

        if self.model.own_answers and self.training.newcomer_answers:
            share = self.training.newcomer_answers
            raise OptionError(
                f"training.newcomer_answers is {share:g}, but must be 0 with model.own_answers: none is embedded"
            )

    @property
    def has_virtual_neighbors(self) -> bool:
        """Whether rules add anything to what an entity's own facts say."""
        return self.model.labels != "none" and bool(self.rules.kinds or self.rules.paths)

    @property
    def mines_rules(self) -> bool:
        """Whether rules between relations are needed: for virtual neighbours, or to have a say in the answers."""
        return bool(self.rules.kinds) and (self.model.labels != "none" or self.model.evidence)

    def to_dict(self) -> dict[str, Any]:
        """All settings as strings, numbers, lists and ``None``, by section: what JSON can hold."""
        sections = {name: _plain_values(getattr(self, name)) for name in SECTIONS}
        return {**_plain_values(self), **sections}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "Config":
        """Back from `to_dict`, or from TOML; a setting that is not there has its default, the preset is ``custom``."""
        return _merged(cls(preset="custom"), settings)


SECTIONS: dict[str, type[_Settings]] = {"rules": RulesConfig, "model": ModelConfig, "training": TrainingConfig}


def _plain_fields(kind: type) -> tuple[Field[Any], ...]:
    """The fields that hold a value, not a section."""
    return tuple(one for one in fields(kind) if one.default_factory is MISSING)


def _plain_values(settings: _Settings) -> dict[str, Any]:
    values = {one.name: getattr(settings, one.name) for one in _plain_fields(type(settings))}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


# What a value must be, for each type of field.
_IN_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    int | None: "a whole number or none",
    tuple[str, ...]: "a list of words",
}


def _converted(name: str, value: Any, kind: Any) -> Any:
    """The value as its field's type: a list as a tuple, a whole number as a number; all else must fit as it is."""
    if kind == int | None and (value is None or value == NOTHING):
        return None
    if kind is float and _is_number(value):
        return _finite(name, value)
    if kind in (int, int | None) and isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str):
        return str(value)
    if kind == tuple[str, ...] and isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return tuple(str(word) for word in value)
    raise OptionError(f"{name} is {shown(value)}, but must be {_IN_WORDS[kind]}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(name: str, value: float) -> float:
    try:
        number = float(value) + 0.0  # the sum makes -0.0 the same setting as 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise OptionError(f"{name} is {shown(value)}, but must be a finite number")
    return number


def _check(name: str, value: Any, one: Field[Any]) -> None:
    """Whether the value is among its choices and within its limits."""
    choices = one.metadata["choices"]
    if choices is not None:
        words = value if isinstance(value, tuple) else (value,)
        for word in words:
            if word not in choices:
                raise unknown_name(name, word, choices)
        if len(set(words)) < len(words):
            raise OptionError(f"{name} is {shown(list(words))}, but must name each once")
    elif _is_number(value):
        limits = one.metadata["limits"]
        if not _within(value, limits):
            raise OptionError(f"{name} is {shown(value)}, but must be {_limits_in_words(limits)}")
        if isinstance(value, int) and value > INT_MAX:
            raise OptionError(f"{name} is {shown(value)}, but must be at most {INT_MAX}")


def _within(value: float, limits: Mapping[str, float]) -> bool:
    return (
        value >= limits.get("at least", -math.inf)
        and value > limits.get("above", -math.inf)
        and value <= limits.get("at most", math.inf)
        and value < limits.get("below", math.inf)
    )


def _limits_in_words(limits: Mapping[str, float]) -> str:
    return " and ".join(f"{words} {limit:g}" for words, limit in limits.items())


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
    inside = [f"{name}.{one.name}" for name, kind in SECTIONS.items() for one in _plain_fields(kind)]
    return (*(one.name for one in _plain_fields(Config)), *inside)


def _unknown_setting(name: str) -> OptionError:
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


def _merged(config: Config, settings: Mapping[str, Any]) -> Config:
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
            raise unknown_name("section", str(name), SECTIONS) if near else _unknown_setting(str(name))
    return replace(config, **changed)


def _section_values(section: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise OptionError(f"{section} is {shown(values)}, but must be a table of settings")
    for name in values:
        if f"{section}.{name}" not in setting_names():
            raise _unknown_setting(f"{section}.{name}")
    return {str(name): value for name, value in values.items()}


def with_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """The settings with changes such as ``training.lr=0.001``; of two changes to one setting the last counts."""
    stated: dict[str, Any] = {}
    for text in overrides:
        name, value = _override(text)
        section, _, bare = name.rpartition(".")
        (stated.setdefault(section, {}) if section else stated)[bare] = value
    return _merged(config, stated)


def _override(text: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise OptionError(f"{shown(text)} is no change of a setting; write NAME=VALUE, such as training.lr=0.001")
    if name not in setting_names():
        raise _unknown_setting(name)
    section, _, bare = name.rpartition(".")
    return name, _parsed(value, get_type_hints(SECTIONS[section] if section else Config)[bare])


_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _parsed(text: str, kind: Any) -> Any:
    """A text as a field's type; a text that is none stays as it is, for `_converted` to complain about."""
    if kind is bool:
        return _TRUTH.get(text.lower(), text)
    if kind == tuple[str, ...]:
        words = (word.strip().strip("'\"") for word in text.removeprefix("[").removesuffix("]").split(","))
        return tuple(word for word in words if word)
    if kind is str:
        return text
    if text.lower() == NOTHING:
        return NOTHING
    try:
        return float(text) if kind is float else int(text)
    except ValueError:
        return text


def config_hash(config: Config) -> str:
    """A SHA-256 that two runs share when all of their settings are the same."""
    text = json.dumps(config.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def to_toml(config: Config) -> str:
    """All settings with their documentation, as TOML."""
    parts = ["# Settings of newcomer.\n" + "\n".join(_documented(config))]
    for name in SECTIONS:
        section = getattr(config, name)
        parts.append(f"# {type(section).__doc__}\n[{name}]\n" + "\n".join(_documented(section)))
    return "\n\n".join(parts) + "\n"


def _documented(settings: _Settings) -> list[str]:
    lines, types = [], get_type_hints(type(settings))
    for one in _plain_fields(type(settings)):
        allowed = _allowed(one, types[one.name])
        lines += [f"# {one.metadata['about']} ({allowed})", f"{one.name} = {_toml(getattr(settings, one.name))}"]
    return lines


def _allowed(one: Field[Any], kind: Any) -> str:
    """What a field takes, in words."""
    if one.metadata["choices"] is not None:
        return ", ".join(one.metadata["choices"])
    limits = _limits_in_words(one.metadata["limits"])
    return f"{_IN_WORDS[kind]}, {limits}" if limits else _IN_WORDS[kind]


def _toml(value: Any) -> str:
    """A value as TOML writes it; no setting holds a character that TOML's strings escape unlike JSON's."""
    return json.dumps(NOTHING if value is None else value)


def read_config(path: Path) -> Config:
    """The settings of a TOML file; what it does not state is as in the preset that it names, or as in ``default``."""
    try:
        stated = tomllib.loads(path.read_bytes().decode("utf-8"))
        return _merged(load_preset(stated.get("preset", "default")), stated)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})", hint="check the path") from None
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not TOML ({' '.join(str(error).split())})", hint="mend the line") from None
    except OptionError as error:
        raise InputError(path, str(error)) from None


def preset_names() -> tuple[str, ...]:
    """The presets that ship with the package."""
    found = (file.name for file in files("newcomer").joinpath("presets").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def load_preset(name: str) -> Config:
    """The settings of this name; a wrong name is answered with the nearest right one."""
    if name not in preset_names():
        raise unknown_name("preset", str(name), preset_names())
    text = files("newcomer").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")
    return _merged(Config(preset=name), tomllib.loads(text))


# The rows of the paper's ablation table: each adds one component to the one before.
ABLATION_ROWS: dict[str, dict[str, Any]] = {
    "structure": {"labels": "none", "paths": False, "query_aware": False},
    "hard": {"labels": "hard", "paths": False, "query_aware": False},
    "logic": {"labels": "soft", "paths": False, "query_aware": False},
    "logic-and-paths": {"labels": "soft", "paths": True, "query_aware": False},
    "full": {"labels": "soft", "paths": True, "query_aware": True},
}


def ablation(config: Config, row: str) -> Config:
    """The settings of one row of the paper's table "Effectiveness of Each Component", all else as in ``config``."""
    if row not in ABLATION_ROWS:
        raise unknown_name("row of the ablation", row, ABLATION_ROWS)
    parts = ABLATION_ROWS[row]
    model = replace(config.model, encoder="vn", labels=parts["labels"], query_aware=parts["query_aware"])
    return replace(config, model=model, rules=replace(config.rules, paths=parts["paths"]))
