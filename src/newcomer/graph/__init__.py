"""Names and ids, graphs and data sets: everything after this room works on int32 ids."""

from newcomer.graph.overlay import AnswerCounts, Answers, Base, Overlay, OverlayArrays, about_newcomers
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
    changes,
    concatenate,
    offsets_of,
    read_only,
    seen_count,
)

__all__ = [
    "UNKNOWN",
    "Adjacency",
    "AnswerCounts",
    "Answers",
    "Base",
    "Graph",
    "Ids",
    "InductiveDataset",
    "Mask",
    "Offsets",
    "Overlay",
    "OverlayArrays",
    "TripleArray",
    "Vocabulary",
    "about_newcomers",
    "changes",
    "concatenate",
    "offsets_of",
    "read_only",
    "seen_count",
]
