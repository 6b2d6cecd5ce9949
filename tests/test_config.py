"""Settings: every wrong value is refused by name, every right one survives TOML, JSON and the command line."""

import json
import tomllib
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import complaint
from newcomer.config import (
    Config,
    ModelConfig,
    RulesConfig,
    TrainingConfig,
    ablation,
    config_hash,
    load_preset,
    preset_names,
    read_config,
    setting_names,
    to_toml,
    with_overrides,
)
from newcomer.config.reading import ABLATION_ROWS
from newcomer.config.settings import LOSSES, MEASURES, OPTIMISERS, RULE_KINDS, UNSEEN_SIDES
from newcomer.data import split
from newcomer.errors import InputError, OptionError
from newcomer.rules import virtual_neighbors as neighbors
from newcomer.rules.rule import Kind

PLAIN = replace(load_preset("paper-fb15k"), preset="custom")  # whose settings go with nearly all others


def share(low: float = 0.0, high: float = 1.0, **options: Any) -> st.SearchStrategy[float]:
    return st.floats(low, high, **options)


COUNT = st.integers(1, 2**63 - 1)
POSITIVE = share(0, 1e300, exclude_min=True)
NOT_NEGATIVE = share(0, 1e300)
ALLOWED: dict[str, st.SearchStrategy[Any]] = {
    "preset": st.sampled_from(["default", "my_own-1.2"]),
    "protocol": st.sampled_from(["inductive", "refreshed", "transductive"]),
    "seed": st.integers(0, 2**63 - 1),
    "rules.kinds": st.lists(st.sampled_from(RULE_KINDS), unique=True).map(tuple),
    "rules.min_support": COUNT,
    "rules.min_head_coverage": share(),
    "rules.min_head_size": COUNT,
    "rules.min_confidence": share(),
    "rules.measure": st.sampled_from(MEASURES),
    "rules.neighbor_min_support": COUNT,
    "rules.paths": st.booleans(),
    "rules.walks": COUNT,
    "rules.max_per_entity": st.none() | COUNT,
    "rules.max_constants": st.none() | COUNT,
    "model.encoder": st.sampled_from(["vn", "mean", "lstm", "lan"]),  # foldin is not free to go with all
    "model.decoder": st.sampled_from(["distmult", "transe", "complex"]),
    "model.dim": st.integers(1, 10**6).map(lambda half: 2 * half),
    "model.layers": COUNT,
    "model.query_aware": st.booleans(),
    "model.residual": st.booleans(),
    "model.relation_shifts": st.booleans(),
    "model.ensemble": st.booleans(),
    "model.graph_statistics": st.booleans(),
    "model.propagation": st.sampled_from([True, False, "auto"]),
    "model.triple_classifier": st.booleans(),
    "model.constrained": st.booleans(),
    "model.answers_by_input": st.booleans(),
    "training.hide_pairs": st.booleans(),
    "model.dropout": share(exclude_max=True),
    "model.labels": st.sampled_from(["soft", "hard", "none"]),
    "model.soft_label_c": NOT_NEGATIVE,
    "model.gamma": POSITIVE,
    "training.epochs": COUNT,
    "training.batches": COUNT | st.none(),
    "training.negatives": COUNT,
    "training.softmax_negatives": st.none() | COUNT,
    "training.loss": st.sampled_from(LOSSES),
    "training.own_weight": NOT_NEGATIVE,
    "training.optimiser": st.sampled_from(OPTIMISERS),
    "training.lr": POSITIVE,
    "training.l2": NOT_NEGATIVE,
    "training.n3": NOT_NEGATIVE,
    "training.newcomer_share": share(),
    "training.newcomer_answers": share(),
    "training.grad_clip": NOT_NEGATIVE,
    "training.patience": COUNT,
    "training.validate_every": COUNT,
    "training.validation_rate": share(0, 100),
    "training.validation_unseen": st.sampled_from(UNSEEN_SIDES),
    "training.validation_queries": st.none() | COUNT,
    "model.propagation_hubs": st.none() | st.integers(0, 5000),
    "training.final_fit": st.booleans(),
    "training.calibration_questions": st.integers(1, 10**6),
    "training.final_share": st.floats(1e-3, 1),
    "training.propagation_steps": COUNT,
    "training.virtual_weight": NOT_NEGATIVE,
    "training.fanout": st.none() | COUNT,
}


def go_together(settings: dict[str, Any]) -> bool:
    if settings.get("model.propagation") is True and not settings.get("model.ensemble"):
        return False
    return not (settings.get("model.answers_by_input") and settings.get("training.newcomer_answers"))


SOME_SETTINGS = (
    st.lists(st.sampled_from(sorted(ALLOWED)), unique=True)
    .flatmap(lambda names: st.fixed_dictionaries({name: ALLOWED[name] for name in names}))
    .filter(go_together)
)


def value_of(config: Config, name: str) -> Any:
    section, _, bare = name.rpartition(".")
    return getattr(getattr(config, section) if section else config, bare)


def as_text(value: Any) -> str:
    """A value as people type it."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def made(settings: dict[str, Any]) -> Config:
    return with_overrides(PLAIN, [f"{name}={as_text(value)}" for name, value in settings.items()])


def test_every_setting_has_a_strategy_here_and_a_line_of_documentation():
    assert set(ALLOWED) == set(setting_names())
    for section in (RulesConfig, ModelConfig, TrainingConfig):
        assert all(len(one.metadata["about"]) > 10 for one in fields(section))


def test_the_words_are_those_of_the_rooms_that_use_them():
    assert tuple(kind.name.lower() for kind in Kind) == RULE_KINDS
    assert neighbors.MEASURES == MEASURES
    assert ("auto", *split.SIDES) == UNSEEN_SIDES


@given(SOME_SETTINGS)
def test_an_override_sets_what_it_names_and_nothing_else(settings):
    config = made(settings)
    for name in setting_names():
        expected = settings.get(name, value_of(PLAIN, name))
        assert value_of(config, name) == expected
        assert type(value_of(config, name)) is type(expected)


@given(SOME_SETTINGS)
def test_settings_survive_json_and_toml_exactly(settings):
    config = made(settings)
    for back in (json.loads(json.dumps(config.to_dict())), tomllib.loads(to_toml(config))):
        again = Config.from_dict(back)
        assert again == config
        assert config_hash(again) == config_hash(config)
        assert to_toml(again) == to_toml(config)


@given(SOME_SETTINGS, SOME_SETTINGS)
def test_the_hash_tells_settings_apart(first, second):
    one, other = made(first), made(second)
    assert (config_hash(one) == config_hash(other)) == (one == other)


@given(st.sampled_from(sorted(ALLOWED)), st.text())
def test_any_text_is_taken_or_refused_in_one_sentence(name, text):
    try:
        config = with_overrides(PLAIN, [f"{name}={text}"])
    except OptionError as error:
        assert name in str(error) and "\n" not in str(error)
    else:
        assert Config.from_dict(tomllib.loads(to_toml(config))) == config


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["rules", "model", "training", "seed", "preset", "lr", "training.lr"]) | st.text(max_size=5)
INNER = st.sampled_from([name.rpartition(".")[2] for name in sorted(ALLOWED)])


@given(st.dictionaries(KEYS, JSON_VALUES | st.dictionaries(INNER, JSON_VALUES, max_size=3), max_size=4))
def test_any_table_is_taken_or_refused_in_one_sentence(table):
    try:
        config = Config.from_dict(table)
    except OptionError as error:
        assert "\n" not in str(error)
    else:
        assert Config.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("training.lr=fast", "training.lr is 'fast', but must be a number"),
        ("training.lr=0", "training.lr is 0.0, but must be above 0"),
        ("training.lr=nan", "training.lr is nan, but must be a finite number"),
        ("training.l2=inf", "training.l2 is inf, but must be a finite number"),
        ("training.epochs=1.5", "training.epochs is '1.5', but must be a whole number"),
        ("training.epochs=", "training.epochs is '', but must be a whole number"),
        ("training.epochs=none", "training.epochs is 'none', but must be a whole number"),
        ("training.fanout=0", "training.fanout is 0, but must be at least 1"),
        ("training.fanout=few", "training.fanout is 'few', but must be a whole number or none"),
        ("training.final_fit=1", "training.final_fit is '1', but must be true or false"),
        ("training.validation_rate=101", "training.validation_rate is 101.0, but must be at least 0 and at most 100"),
        ("model.dropout=1", "model.dropout is 1.0, but must be at least 0 and below 1"),
        ("seed=-1", "seed is -1, but must be at least 0"),
        ("seed=9223372036854775808", "seed is 9223372036854775808, but must be at most 9223372036854775807"),
        ("rules.kinds=one,one", "rules.kinds is ['one', 'one'], but must name each once"),
        ("preset=my own", "preset is 'my own', but must be letters and digits, with '-', '_' or '.'"),
        (
            "model.decoder=dismult",
            "unknown model.decoder 'dismult'; did you mean 'distmult'? known: complex, distmult, transe",
        ),
        (
            "rules.kinds=one,tow",
            "unknown rules.kinds 'tow'; did you mean 'two'? known: both, constant, exists, one, three, two",
        ),
        ("lr=0.1", "unknown setting 'lr'; did you mean 'training.lr'?"),
        ("trainng.epochs=3", "unknown setting 'trainng.epochs'; did you mean 'training.epochs'?"),
        ("training.lr", "'training.lr' is no change of a setting; write NAME=VALUE, such as training.lr=0.001"),
        ("=3", "'=3' is no change of a setting; write NAME=VALUE, such as training.lr=0.001"),
    ],
)
def test_a_wrong_change_is_answered_with_what_is_wrong(change, sentence):
    assert str(complaint(with_overrides, PLAIN, [change])) == sentence


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("training.learning_rate", "training.lr"),
        ("training.batch_size", "training.batches"),
        ("training.epoch", "training.epochs"),
        ("model.lr", "training.lr"),
        ("model.droput", "model.dropout"),
        ("model.company", "model.graph_statistics"),
        ("model.evidence", "model.ensemble"),
        ("model.judge", "model.triple_classifier"),
        ("model.own_answers", "model.answers_by_input"),
        ("training.rivals", "training.softmax_negatives"),
        ("rules.min_confidense", "rules.min_confidence"),
    ],
)
def test_a_near_miss_is_answered_with_what_was_meant(name, meant):
    section, bare = name.split(".")
    for call, argument in (
        (lambda t: with_overrides(PLAIN, [t]), f"{name}=1"),
        (Config.from_dict, {section: {bare: 1}}),
    ):
        text = str(complaint(call, argument))
        assert text.startswith(f"unknown setting {name!r}; did you mean {meant!r}? known: {section}.")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"modle": {"dim": 3}}, "unknown section 'modle'; did you mean 'model'? known: model, rules, training"),
        ({"model": 3}, "model is 3, but must be a table of settings"),
        ({"model": {"dim": "3"}}, "model.dim is '3', but must be a whole number"),
        ({"model": {"dim": True}}, "model.dim is True, but must be a whole number"),
        ({"model": {"dropout": True}}, "model.dropout is True, but must be a number"),
        ({"model": {"gamma": 10**400}}, "must be a finite number"),
        ({"rules": {"kinds": "one"}}, "rules.kinds is 'one', but must be a list of words"),
        ({"rules": {"kinds": [1]}}, "rules.kinds is [1], but must be a list of words"),
        ({"seed": None}, "seed is None, but must be a whole number"),
        ({"training.lr": 1}, "unknown setting 'training.lr'"),
    ],
)
def test_a_wrong_table_is_answered_with_what_is_wrong(table, sentence):
    assert sentence in str(complaint(Config.from_dict, table))


def test_values_are_checked_however_a_config_is_made():
    assert "training.lr is -1.0" in str(complaint(TrainingConfig, lr=-1))
    assert "model.dim is 5, but must be even" in str(complaint(ModelConfig, decoder="complex", dim=5))
    assert "model.dim is 5" in str(complaint(replace, ModelConfig(decoder="distmult", dim=5), decoder="complex"))
    assert "rules is {}, but must be a RulesConfig" in str(complaint(Config, "custom", rules={}))
    assert RulesConfig(kinds=["one"]).kinds == ("one",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ["model.decoder=transe"],
            "model.decoder is transe, but the encoder foldin needs distmult or complex; change either, or take "
            "--preset paper-fb15k",
        ),
        (["model.answers_by_input=no"], "model.answers_by_input is false, but must be true for the encoder foldin"),
        (
            ["training.newcomer_share=0.5"],
            "training.newcomer_share is 0.5, but must be 0 for the encoder foldin: newcomers are solved for",
        ),
    ],
)
def test_what_fold_in_cannot_do_is_refused(changes, sentence):
    folded = with_overrides(PLAIN, ["model.encoder=foldin", "model.answers_by_input=yes", "training.newcomer_share=0"])
    assert str(complaint(with_overrides, folded, changes)) == sentence
    assert with_overrides(folded, [*changes, "model.encoder=lan"]).model.encoder == "lan"


def test_answers_by_input_are_never_embedded_as_newcomers():
    changes = ["training.newcomer_answers=0.5", "model.answers_by_input=yes"]
    sentence = "training.newcomer_answers is 0.5, but must be 0 with model.answers_by_input: none is embedded"
    assert str(complaint(with_overrides, PLAIN, changes)) == sentence
    assert with_overrides(PLAIN, changes[:1]).training.newcomer_answers == 0.5


def test_several_changes_are_judged_together_and_the_last_of_one_setting_counts():
    odd = Config("custom", model=ModelConfig(decoder="distmult", dim=5))
    config = with_overrides(odd, ["model.decoder=complex", "model.dim=7", "model.dim = 8"])
    assert (config.model.decoder, config.model.dim) == ("complex", 8)
    assert with_overrides(odd, []) == odd


@pytest.mark.parametrize("text", ["one,two", " one , two ", "[one,two]", '["one", "two"]', "one,two,"])
def test_lists_may_be_typed_in_several_ways(text):
    assert with_overrides(PLAIN, [f"rules.kinds={text}"]).rules.kinds == ("one", "two")


def test_numbers_that_are_the_same_are_the_same_setting():
    whole, minus = ({"training": {"l2": value}} for value in (0, -0.0))
    assert config_hash(Config.from_dict(whole)) == config_hash(Config.from_dict(minus))


def test_the_written_settings_are_the_manual():
    text = to_toml(load_preset("default"))
    lines = text.splitlines()
    for name in setting_names():
        bare = name.rpartition(".")[2]
        place = next(i for i, line in enumerate(lines) if line.startswith(f"{bare} = "))
        assert lines[place - 1].startswith("# ") and lines[place - 1].endswith(")")
    assert "# Learning rate of the optimiser. (a number, above 0)\nlr = 0.1\n" in text
    assert 'max_per_entity = "none"' in text


def test_presets_hold_the_papers_numbers():
    papers = {"paper-fb15k": (100, 0.25), "paper-wn11": (200, 0.3), "paper-yago37": (200, 0.2)}
    for name, (dim, dropout) in papers.items():
        config = load_preset(name)
        assert (config.model.dim, config.model.dropout) == (dim, dropout)
        assert (config.model.encoder, config.model.decoder, config.model.layers) == ("vn", "distmult", 3)
        assert (config.training.lr, config.training.l2, config.model.soft_label_c) == (0.002, 0.001, 0.01)
        assert (config.training.batches, config.training.negatives) == (100, 64)
        assert (config.rules.min_confidence, config.rules.measure, config.rules.min_head_size) == (0.8, "pca", 100)


def test_the_baselines_know_no_virtual_neighbours():
    for name, decoder in {"mean": "distmult", "lstm": "transe", "lan": "transe"}.items():
        config = load_preset(name)
        assert (config.model.encoder, config.model.decoder, config.model.dim) == (name, decoder, 100)
        assert config.model.labels == "none"


def test_the_defaults_are_the_preset_default():
    assert load_preset("default") == Config()


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_states_only_what_differs(name):
    stated = tomllib.loads(files("newcomer").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8"))
    assert load_preset(name).preset == name
    defaults = Config().to_dict()
    for section, values in stated.items():
        for setting, value in values.items():
            assert defaults[section][setting] != value, f"{section}.{setting} is the default"


def test_the_presets_are_listed_and_a_wrong_name_is_answered():
    assert preset_names() == ("default", "lan", "lstm", "mean", "paper-fb15k", "paper-wn11", "paper-yago37")
    assert "did you mean 'paper-fb15k'?" in str(complaint(load_preset, "paper-fb15"))
    assert "unknown preset '../presets/mean'" in str(complaint(load_preset, "../presets/mean"))


def test_the_rows_of_the_ablation_add_one_component_each():
    full = load_preset("paper-fb15k")
    rows = [ablation(full, row) for row in ABLATION_ROWS]
    shown = [(c.model.labels != "none", c.model.labels, c.rules.paths, c.model.query_aware) for c in rows]
    assert shown == [
        (False, "none", False, False),
        (True, "hard", False, False),
        (True, "soft", False, False),
        (True, "soft", True, False),
        (True, "soft", True, True),
    ]
    assert rows[-1] == full
    assert all(row.training == full.training and row.model.dim == full.model.dim for row in rows)
    assert len({config_hash(row) for row in rows}) == len(rows)
    assert "did you mean 'logic'?" in str(complaint(ablation, full, "logc"))


def test_a_file_of_settings_starts_from_the_preset_it_names(put):
    path = put("my.toml", 'preset = "paper-wn11"\n[training]\nlr = 1\n')
    assert read_config(path) == with_overrides(load_preset("paper-wn11"), ["training.lr=1"])
    assert read_config(put("empty.toml", "")) == load_preset("default")
    changed = with_overrides(load_preset("paper-wn11"), ["rules.max_per_entity=5"])
    assert read_config(put("all.toml", to_toml(changed))) == changed


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"lr = ", "is not TOML (Invalid value (at end of document))"),
        (b"\xff", "is not TOML"),
        (b'preset = "fast"', "unknown preset 'fast'"),
        (b"preset = 3", "unknown preset '3'"),
        (b"[training]\nlearning_rate = 1", "did you mean 'training.lr'?"),
        (b"a = " + b"[" * 20_000, "is not TOML"),
    ],
    ids=["broken", "bytes", "preset", "number", "unknown", "deep"],
)
def test_a_wrong_file_of_settings_is_named(put, content, problem):
    error = complaint(read_config, put("my.toml", content))
    assert isinstance(error, InputError) and problem in str(error)


def test_a_missing_file_of_settings_is_named(tmp_path: Path):
    assert "cannot be read (No such file or directory)" in str(complaint(read_config, tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("batches", "facts", "expected"),
    [(100, 5_000, 100), (100, 7, 7), (None, 7, 7), (None, 8_234, 30), (None, 108_854, 109)],
)
def test_an_epoch_has_as_many_batches_as_said_or_as_the_facts_fill(batches, facts, expected):
    assert TrainingConfig(batches=batches).batches_of(facts) == expected
