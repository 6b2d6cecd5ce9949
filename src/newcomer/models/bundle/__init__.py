"""A trained model as a folder: everything that answering queries needs, and nothing that could run.

    config.toml           all settings, with their documentation
    entities.parquet      names in id order; relations.parquet likewise
    observed.parquet      the graph it was trained on, as int32 head, relation, tail
    auxiliary.parquet     newcomers' facts that were known then (optional)
    rules.parquet         the rules, see `newcomer.models.bundle.rules`
    seen/                 virtual neighbours of the seen entities (optional), see `newcomer.models.bundle.rules`
    newcomers/            virtual neighbours of those in auxiliary.parquet (optional)
    thresholds.json       from which score on a triple counts as true (optional)
    metrics.json          what was measured
    weights.safetensors   the trained numbers
    manifest.json         versions, seed, data set, and size and SHA-256 of every other file

Beside these may lie what evaluations found later, ``result.json`` and ``result-TASK.json``: they are no part of the
model, the manifest does not list them, and reading the model does not open them.

The folder appears whole or not at all. Reading checks every byte against the manifest, and the manifest against a
checksum of its own. Only file names known here are ever opened, and nothing is unpickled. The manifest carries no date:
the same model gives the same bytes.
"""

from newcomer.models.bundle.folder import Bundle, Thresholds, dataset_hash, metrics_of, read_bundle, write_bundle
from newcomer.models.bundle.manifest import RESULT, RESULTS
from newcomer.models.bundle.tables import Weights

__all__ = [
    "RESULT",
    "RESULTS",
    "Bundle",
    "Thresholds",
    "Weights",
    "dataset_hash",
    "metrics_of",
    "read_bundle",
    "write_bundle",
]
