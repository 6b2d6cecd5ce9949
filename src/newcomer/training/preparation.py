"""From a data set to what a model is trained on: the protocol's facts, the rules, and the virtual neighbours.

    inductive      rules from the observed graph, which alone is trained on
    refreshed      rules from the observed graph and the newcomers' facts; all else as before
    transductive   the newcomers' facts belong to the observed graph: all entities are seen, and trained on

Everything here follows from the data, the settings and the seed, and is stored with a model only to save time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from newcomer.config import Config
from newcomer.errors import DatasetError
from newcomer.graph import InductiveDataset, Overlay, seen_count
from newcomer.models.embedding.model import ENCODERS
from newcomer.models.rule_engine import ground
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.rule import NONE, Kind, RuleSet
from newcomer.rules.virtual_neighbors import VirtualNeighbors

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The data set as training sees it, its rules, and what they conclude about seen entities."""

    dataset: InductiveDataset
    rules: RuleSet
    seen_neighbors: VirtualNeighbors | None
    mined: bool = False  # the rules are from these facts, not given

    @property
    def num_seen(self) -> int:
        return seen_count(self.dataset.observed)


def prepare(
    dataset: InductiveDataset,
    config: Config,
    rules: RuleSet | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    grounded: bool = True,
) -> Prepared:
    """Mine rules (unless given) and, where ``grounded``, find what they conclude about the seen entities."""
    check_trainable(dataset)
    mined = rules is None
    if rules is None:
        rules = mined_rules(dataset, config, threads, progress)
    dataset = under_protocol(dataset, config.protocol)
    if not grounded:
        return Prepared(dataset, rules, None, mined)
    seen = np.arange(seen_count(dataset.observed), dtype=np.int32)
    found = ground(rules, Overlay.of(dataset.observed), seen, config, threads)
    return Prepared(dataset, rules, found, mined)


def learns_from_neighbors(config: Config) -> bool:
    """Whether anything that is trained or chosen depends on what rules conclude about seen entities."""
    by_vectors = ENCODERS[config.model.encoder].uses_virtual_edges or config.model.constrained
    return by_vectors or config.training.virtual_weight > 0


def check_trainable(dataset: InductiveDataset) -> None:
    """Refuse a data set without observed facts, and one whose seen entities are not the first ids."""
    if len(dataset.observed) == 0:
        raise DatasetError(f"{dataset.name} has no observed facts to train on; give a data set with a train file")
    if len(dataset.newcomers) and int(dataset.newcomers.min()) < seen_count(dataset.observed):
        raise DatasetError(f"the ids of {dataset.name} do not start with the seen entities; read it with load_dataset")


def under_protocol(dataset: InductiveDataset, protocol: str) -> InductiveDataset:
    """The data set with all facts that may be trained on as its observed graph."""
    return dataset.reunited() if protocol == "transductive" else dataset


def mined_rules(
    dataset: InductiveDataset, config: Config, threads: int | None = None, progress: Progress | None = None
) -> RuleSet:
    """The rules that the settings ask for, from the facts that the protocol allows."""
    wanted = config.rules
    if not config.mines_rules:
        return RuleSet.empty(len(dataset.relations))
    plan = MiningPlan(
        kinds=tuple(Kind[name.upper()] for name in wanted.kinds),
        min_support=wanted.min_support,
        min_head_coverage=wanted.min_head_coverage,
        min_head_size=wanted.min_head_size,
        max_constants=wanted.max_constants,
    )
    graph = dataset.observed if config.protocol == "inductive" else dataset.known_facts()
    return mine_rules(graph, plan, config.seed, threads, progress).rules


def renamed_rules(rules: RuleSet, source: InductiveDataset, target: InductiveDataset) -> RuleSet:
    """The same rules in the ids of another data set; those with a name that it lacks are dropped."""
    plain = target.relations.ids(source.relations.names)
    inverse = np.where(plain == NONE, NONE, plain + len(target.relations))
    relations = np.concatenate([plain, inverse, [NONE]])  # no atom, id -1, stays none
    entities = np.append(target.entities.ids(source.entities.names), NONE)  # no constant, id -1, stays none
    lost = np.zeros(len(rules), dtype=bool)
    columns = {}
    for name in ("heads", "body1", "body2", "body3", "head_constants", "body_constants"):
        ids = entities if name.endswith("constants") else relations
        columns[name] = ids[getattr(rules, name)]
        lost |= (columns[name] == NONE) & (getattr(rules, name) != NONE)
    # Ids may stand in another order there; of two atoms side by side the lower one goes first.
    both, first, second = rules.kinds == Kind.BOTH, columns["body1"], columns["body2"]
    columns["body1"] = np.where(both, np.minimum(first, second), first)
    columns["body2"] = np.where(both, np.maximum(first, second), second)
    return replace(rules, num_relations=len(target.relations), **columns).where(~lost)
