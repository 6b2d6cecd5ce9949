"""The neighbourhoods that an encoder works on: for each entity its edges, inverses included."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from newcomer.models.sparse import Rows, row_sums, single_rows


@dataclass(frozen=True, eq=False)
class Edges:
    """A row an entity; ``weights`` are 1 for a fact, the soft label for a virtual edge, 0 for a hidden one."""

    rows: Rows
    relations: Tensor  # (edges,) oriented ids
    weights: Tensor  # (edges,)
    by_relation: Rows | None = None  # the relations as rows of one entry: found once for edges that are used often

    @cached_property
    def degrees(self) -> Tensor:
        """(rows,): the sum of an entity's weights."""
        return row_sums(self.rows, self.weights)

    @cached_property
    def shares(self) -> Tensor:
        """(edges,): the weight of an edge in the sum of its entity's."""
        return self.weights / self.degrees.clamp_min(1e-6)[self.rows.row_ids()]

    def pick(self, entities: Tensor, width: int, kinds: int) -> "Edges":
        """The edges of some entities, a row each, in a space of that width; there are ``kinds`` oriented relations."""
        rows, entries = self.rows.pick(entities)
        relations = self.relations[entries]
        picked = Edges(rows.widened(width), relations, self.weights[entries], single_rows(relations, kinds))
        if "shares" in self.__dict__:  # an entity's shares are the same in either
            picked.__dict__["shares"] = self.shares[entries]
        return picked


def join_edges(first: Edges, second: Edges) -> Edges:
    """The rows of both, one after the other."""
    rows = Rows(
        torch.cat([first.rows.offsets, second.rows.offsets[1:] + first.rows.offsets[-1]]),
        torch.cat([first.rows.columns, second.rows.columns]),
        second.rows.width,
    )
    relations = torch.cat([first.relations, second.relations])
    return Edges(rows, relations, torch.cat([first.weights, second.weights]))
