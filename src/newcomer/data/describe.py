"""What a data set is made of, in figures: sizes, degrees, relations, and how much is known of its newcomers."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from newcomer.data.dataset import LoadedDataset, parts_of
from newcomer.graph import Graph, Ids, InductiveDataset, Mask, TripleArray, concatenate

FACT_BANDS = ((1, 1), (2, 5), (6, 20), (21, 100), (101, None))
MANY = 1.5  # heads per tail (or tails per head) from which a relation counts as "many" on that side


@dataclass(frozen=True)
class DegreeSummary:
    """How many facts the entities of a group have."""

    entities: int
    mean: float
    median: float
    largest: int
    bands: dict[str, int]


@dataclass(frozen=True)
class RelationSummary:
    """A relation's frequency in the observed graph and its class: 1-1, 1-N, N-1, N-N, or "-" where it has no triple."""

    name: str
    triples: int
    tails_per_head: float
    heads_per_tail: float
    kind: str


@dataclass(frozen=True)
class Description:
    """All figures of `newcomer describe`; neighbours per predicted fact is `None` without test newcomers."""

    name: str
    triples: dict[str, int]
    duplicates: dict[str, int]
    self_loops: dict[str, int]
    literals: dict[str, int]
    entities: int
    seen: int
    newcomers: int
    test_newcomers: int
    without_facts: int
    relations: int
    relations_never_observed: int
    test_triples_with_such_relations: int
    seen_degrees: DegreeSummary
    newcomer_degrees: DegreeSummary
    relation_kinds: dict[str, int]
    relation_table: tuple[RelationSummary, ...]
    neighbours_per_predicted_fact: float | None
    test_triples_asked: int
    test_pairs_linked: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def describe(loaded: LoadedDataset) -> Description:
    """Count everything once."""
    dataset = loaded.dataset
    test = dataset.test.positives
    relations = relation_summaries(dataset.observed)
    unobserved = dataset.observed.relation_counts == 0
    return Description(
        name=dataset.name,
        triples={role: len(triples) for role, triples in parts_of(dataset).items()},
        duplicates={role: part.duplicates for role, part in loaded.parts.items()},
        self_loops={role: part.self_loops for role, part in loaded.parts.items()},
        literals={role: part.literals for role, part in loaded.parts.items()},
        entities=len(dataset.entities),
        seen=int(dataset.is_seen.sum()),
        newcomers=len(dataset.newcomers),
        test_newcomers=len(dataset.test_newcomers),
        without_facts=int((~dataset.is_seen & ~dataset.is_newcomer).sum()),
        relations=len(dataset.relations),
        relations_never_observed=int(unobserved.sum()),
        test_triples_with_such_relations=int(unobserved[test.relations].sum()),
        seen_degrees=degree_summary(dataset.observed.degrees[dataset.is_seen]),
        newcomer_degrees=degree_summary(dataset.auxiliary.degrees[dataset.is_newcomer]),
        relation_kinds={kind: sum(r.kind == kind for r in relations) for kind in ("1-1", "1-N", "N-1", "N-N", "-")},
        relation_table=relations,
        neighbours_per_predicted_fact=neighbours_per_predicted_fact(dataset, dataset.auxiliary.degrees),
        test_triples_asked=len(test),
        test_pairs_linked=int(linked_pairs(dataset, test).sum()),
    )


def degree_summary(degrees: Ids) -> DegreeSummary:
    """Mean, median, largest and the counts by band."""
    bands = {
        band_name(band): int(((degrees >= band[0]) & (degrees <= (band[1] or np.inf))).sum()) for band in FACT_BANDS
    }
    if len(degrees) == 0:
        return DegreeSummary(0, 0.0, 0.0, 0, bands)
    return DegreeSummary(len(degrees), float(degrees.mean()), float(np.median(degrees)), int(degrees.max()), bands)


def band_name(band: tuple[int, int | None]) -> str:
    """``1``, ``2-5``, ..., ``over 100``."""
    low, high = band
    if high is None:
        return f"over {low - 1}"
    return str(low) if low == high else f"{low}-{high}"


def relation_summaries(graph: Graph) -> tuple[RelationSummary, ...]:
    """Every relation, the most frequent first."""
    counts, names = graph.relation_counts, list(graph.relations)
    per_head, per_tail = (triples_per_end(graph, ends) for ends in (graph.triples.heads, graph.triples.tails))
    order = np.lexsort((np.arange(len(names)), -counts))
    return tuple(
        RelationSummary(
            names[r], int(counts[r]), float(per_head[r]), float(per_tail[r]), _kind(counts[r], per_head[r], per_tail[r])
        )
        for r in order
    )


def triples_per_end(graph: Graph, ends: Ids) -> npt.NDArray[np.float64]:
    """How many triples of each relation an entity has on average that stands at this end of any: 0 without a triple."""
    pairs = np.unique(graph.triples.relations.astype(np.int64) * graph.num_entities + ends)
    distinct = np.bincount(pairs // max(graph.num_entities, 1), minlength=graph.num_relations)
    return graph.relation_counts / np.maximum(distinct, 1)


def _kind(count: int, tails_per_head: float, heads_per_tail: float) -> str:
    if count == 0:
        return "-"
    return f"{'N' if heads_per_tail >= MANY else '1'}-{'N' if tails_per_head >= MANY else '1'}"


def neighbours_per_predicted_fact(dataset: InductiveDataset, degrees: Ids) -> float | None:
    """Mean over the newcomers of test of (their known facts / their test triples); `None` without any."""
    test, newcomers = dataset.test.positives, dataset.test_newcomers
    if len(newcomers) == 0:
        return None
    asked = np.bincount(np.concatenate([test.heads, test.tails]), minlength=len(dataset.entities))
    asked = asked[newcomers]
    ratios = degrees[newcomers][asked > 0] / asked[asked > 0]
    return float(ratios.mean()) if len(ratios) else None


def linked_pairs(dataset: InductiveDataset, triples: TripleArray) -> Mask:
    """For each triple, whether its two ends are joined by any known fact, in either direction."""
    size = len(dataset.entities)
    known = concatenate([dataset.observed.triples, dataset.auxiliary.triples])
    return np.isin(_pair_keys(triples, size), _pair_keys(known, size))


def _pair_keys(triples: TripleArray, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    low = np.minimum(triples.heads, triples.tails).astype(np.int64)
    return low * size + np.maximum(triples.heads, triples.tails)
