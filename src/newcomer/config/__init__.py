"""The settings of a run, as frozen dataclasses that refuse a wrong value as soon as they are made.

A setting is named ``section.field`` (``training.lr``) on the command line and in messages. The defaults are the preset
``default``; the other presets are TOML files that state only what differs from it. ``to_toml`` writes all settings with
their documentation: that is the manual. TOML has no null, so there, and on the command line, "nothing" is ``none``.
"""

from newcomer.config.fields import AUTO, NOTHING
from newcomer.config.reading import (
    ablation,
    config_hash,
    load_preset,
    preset_names,
    read_config,
    to_toml,
    with_overrides,
)
from newcomer.config.settings import (
    PROTOCOLS,
    SECTIONS,
    Config,
    ModelConfig,
    RulesConfig,
    TrainingConfig,
    check_setting,
    flat_settings,
    setting_names,
)

__all__ = [
    "AUTO",
    "NOTHING",
    "PROTOCOLS",
    "SECTIONS",
    "Config",
    "ModelConfig",
    "RulesConfig",
    "TrainingConfig",
    "ablation",
    "check_setting",
    "config_hash",
    "flat_settings",
    "load_preset",
    "preset_names",
    "read_config",
    "setting_names",
    "to_toml",
    "with_overrides",
]
