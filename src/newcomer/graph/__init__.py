"""Names and ids, graphs and data sets: everything after this room works on int32 ids."""

from newcomer.graph.types import (
    UNKNOWN,
    Adjacency,
    Graph,
    Ids,
    InductiveDataset,
    Mask,
    Offsets,
    TripleArray,
    Vocabulary,
    concatenate,
    read_only,
    seen_count,
    sort_unique,
    stack_rows,
)

__all__ = [
    "UNKNOWN",
    "Adjacency",
    "Graph",
    "Ids",
    "InductiveDataset",
    "Mask",
    "Offsets",
    "TripleArray",
    "Vocabulary",
    "concatenate",
    "read_only",
    "seen_count",
    "sort_unique",
    "stack_rows",
]
