"""From a data set to what a model learns from: the protocol's facts, the rules, and the virtual neighbours.

    inductive      rules from the observed graph, which alone is trained on
    refreshed      rules from the observed graph and the newcomers' facts; all else as before
    transductive   the newcomers' facts belong to the observed graph: everyone is seen, and trained on

Everything here follows from the data, the settings and the seed, and is stored with a model only to save time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from newcomer.config import Config, RulesConfig
from newcomer.errors import DatasetError
from newcomer.graph import Adjacency, Graph, Ids, InductiveDataset, TripleArray, Vocabulary
from newcomer.rules.limits import thread_count
from newcomer.rules.mining import MiningPlan, mine_rules
from newcomer.rules.neighbors import NeighborLimits, VirtualNeighbors, virtual_neighbors
from newcomer.rules.paths import PathLimits
from newcomer.rules.rule import NONE, Kind, RuleSet

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The data set as training sees it, its rules, and what they conclude about seen entities and newcomers."""

    dataset: InductiveDataset
    rules: RuleSet
    seen_neighbors: VirtualNeighbors | None
    newcomer_neighbors: VirtualNeighbors | None
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
    newcomers: bool = True,
) -> Prepared:
    """Mine (unless rules are given) and ground; without ``newcomers`` only what is trained on is grounded."""
    check_trainable(dataset)
    mined = rules is None
    if rules is None:
        rules = mined_rules(dataset, config, threads, progress)
    dataset = under_protocol(dataset, config.protocol)
    seen = ground_seen(rules, dataset.observed, config, threads)
    arrived = ground(rules, dataset.own_facts, dataset.newcomers, config, threads) if newcomers else None
    return Prepared(dataset, rules, seen, arrived, mined)


def check_trainable(dataset: InductiveDataset) -> None:
    """Whether there is something to learn from, with seen entities in front."""
    if len(dataset.observed) == 0:
        raise DatasetError(f"{dataset.name} has no observed facts to train on; give a data set with a train file")
    if len(dataset.newcomers) and int(dataset.newcomers.min()) < seen_count(dataset.observed):
        raise DatasetError(f"the ids of {dataset.name} do not start with the seen entities; read it with load_dataset")


def seen_count(observed: Graph) -> int:
    """How many entities have a trained vector: ids up to the last one with an observed fact."""
    return int(np.flatnonzero(observed.degrees)[-1]) + 1 if len(observed) else 0


def under_protocol(dataset: InductiveDataset, protocol: str) -> InductiveDataset:
    """The data set with all facts that may be trained on as its observed graph."""
    if protocol != "transductive":
        return dataset
    nothing = Graph.build(dataset.entities, dataset.relations, TripleArray.empty())
    return replace(dataset, observed=dataset.known_facts(), auxiliary=nothing)


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


def ground_seen(rules: RuleSet, observed: Graph, config: Config, threads: int | None = None) -> VirtualNeighbors | None:
    """What the rules conclude about those who are trained on, from observed facts."""
    everyone = np.arange(seen_count(observed), dtype=np.int32)
    return ground(rules, observed.adjacency, everyone, config, threads)


def ground(
    rules: RuleSet, facts: Adjacency, entities: Ids, config: Config, threads: int | None
) -> VirtualNeighbors | None:
    """What the rules, and symmetric paths if they are asked for, conclude about these entities from these facts."""
    wanted = config.rules
    if config.model.labels == "none" or not (len(rules) or wanted.paths):
        return None
    paths = PathLimits(walks=wanted.walks) if wanted.paths else None
    return virtual_neighbors(rules, facts, entities, limits_of(wanted), paths, config.seed, thread_count(threads))


def limits_of(wanted: RulesConfig) -> NeighborLimits:
    """Which rules may add virtual neighbours."""
    return NeighborLimits(
        wanted.min_confidence,
        wanted.measure,
        wanted.neighbor_min_support,
        wanted.min_head_size,
        wanted.max_per_entity,
    )


def renamed_rules(rules: RuleSet, source: InductiveDataset, target: InductiveDataset) -> RuleSet:
    """The same rules in the ids of another data set; those that name something it lacks are dropped."""
    relations = _oriented_ids(source.relations, target.relations)
    entities = np.append(target.entities.ids(source.entities.names), NONE)  # no constant, id -1, stays none
    lost = np.zeros(len(rules), dtype=bool)
    columns = {}
    for name in ("heads", "body1", "body2", "body3"):
        columns[name] = relations[getattr(rules, name)]
        lost |= (columns[name] == NONE) & (getattr(rules, name) != NONE)
    for name in ("head_constants", "body_constants"):
        columns[name] = entities[getattr(rules, name)]
        lost |= (columns[name] == NONE) & (getattr(rules, name) != NONE)
    # Ids may stand in another order there; of two atoms side by side the lower one goes first.
    both, first, second = rules.kinds == Kind.BOTH, columns["body1"], columns["body2"]
    columns["body1"] = np.where(both, np.minimum(first, second), first)
    columns["body2"] = np.where(both, np.maximum(first, second), second)
    return replace(rules, num_relations=len(target.relations), **columns).where(~lost)


def _oriented_ids(source: Vocabulary, target: Vocabulary) -> npt.NDArray[np.integer]:
    """For each oriented relation of one vocabulary that of the other; at the end, for -1, none."""
    plain = target.ids(source.names)
    inverse = np.where(plain == NONE, NONE, plain + len(target))
    return np.concatenate([plain, inverse, [NONE]])
