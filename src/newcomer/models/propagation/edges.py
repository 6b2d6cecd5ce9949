"""The edges that messages go along, each fact seen from both of its ends."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.models.sparse import Rows, row_sums, single_rows

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class Messages(NamedTuple):
    """Edges for compiled loops, as what is sent along them."""

    receivers: Ids  # (messages,)
    senders: Ids
    relations: Ids  # oriented, as the receiver sees them
    weights: Floats


@dataclass(frozen=True, eq=False)
class PropagationEdges:
    """Row v has an entry for each of its edges (v, relation, u), namely u.

    ``weights`` are 1, or 0 of an edge that is masked. There may be fewer rows than entities: later ones have no edges
    here. ``silent`` are the first entities, of which some receive messages and send none (`silent_hubs`); where there
    are several parts, the first one tells.
    """

    rows: Rows
    relations: Tensor  # (edges,) oriented ids
    weights: Tensor  # (edges,)
    num_relations: int
    silent: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @cached_property
    def by_relation(self) -> Rows:
        """For each oriented relation the numbers of its edges."""
        turned, order = single_rows(self.relations, 2 * self.num_relations).transposed
        return Rows(turned.offsets, order, len(order))

    @cached_property
    def numbers(self) -> Rows:
        """The rows with the numbers of the edges as entries."""
        every = torch.arange(len(self.relations), device=self.relations.device)
        return Rows(self.rows.offsets, every, len(every)).knowing(self.rows.row_ids, self.rows.sizes)

    @cached_property
    def messages(self) -> Messages:
        """What each row receives, in the order of the edges, on a CPU."""
        tensors = self.rows.row_ids, self.rows.columns, self.relations, self.weights
        return Messages(*(one.contiguous().numpy() for one in tensors))

    @cached_property
    def degrees(self) -> Tensor:
        """(rows,): the sum of a row's weights."""
        if len(self.relations) == 0:
            return self.weights.new_zeros(self.rows.num_rows)
        return row_sums(self.rows, self.weights)

    def with_weights(self, weights: Tensor, degrees: Tensor | None = None) -> "PropagationEdges":
        """The same edges with other weights (and their sums by row, if known); what does not depend on them is kept."""
        other = replace(self, weights=weights)
        for name in ("by_relation", "numbers"):
            other.__dict__[name] = getattr(self, name)
        if degrees is not None:
            other.__dict__["degrees"] = degrees
        return other

    def on(self, device: torch.device) -> "PropagationEdges":
        """The same edges on a device."""
        rows = Rows(self.rows.offsets.to(device), self.rows.columns.to(device), self.rows.width)
        return replace(self, rows=rows, relations=self.relations.to(device), weights=self.weights.to(device))


def silent_hubs(degrees: npt.NDArray[np.integer], most: int) -> Bools:
    """Who has more facts than ``most``, and therefore sends no messages; 0: nobody.

    What a hub tells its thousands of neighbours tells little, and most of the work would be done for it.
    """
    found: Bools = degrees > most if most else np.zeros(0, dtype=np.bool_)
    return found


def propagation_edges(
    heads: Tensor, relations: Tensor, tails: Tensor, num_relations: int, num_entities: int
) -> PropagationEdges:
    """The edges of facts."""
    row, column = torch.cat([heads, tails]), torch.cat([tails, heads])
    oriented = torch.cat([relations, (relations + num_relations) % (2 * num_relations)])
    order = torch.argsort(row, stable=True)
    every = torch.arange(num_entities + 1, device=row.device)
    rows = Rows(torch.searchsorted(row[order], every), column[order], num_entities)
    return PropagationEdges(rows, oriented[order], torch.ones(len(order), device=row.device), num_relations)
