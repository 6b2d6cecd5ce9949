"""The first two layers of `newcomer.models.propagation.network`, where next to nobody has heard of a question yet.

After the first layer only the neighbours of the entity asked about know anything; all others are the same vector ``c``,
whatever the question. So that layer is worked out for these pairs of entity and question alone, and the sums of the
second are

    sum over edges (v, r, u) of w_r * h_u  =  (sum over edges of w_r) * c  +  sum over those who know of w_r * (h_u - c)

whose first part is the same for all questions and whose second has few terms.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from newcomer.models.sparse import Rows, weighted_sum


class Known(NamedTuple):
    """Numbers of some pairs of entity and question."""

    entities: Tensor  # (pairs,)
    questions: Tensor  # (pairs,)
    numbers: Tensor  # (pairs, d)

    def below(self, entities: int) -> "Known":
        """Those of the first entities."""
        inside = self.entities < entities
        return Known(*(part[inside] for part in self))

    def beside(self, *others: "Known") -> "Known":
        """All of them, pairs as often as they are named."""
        return Known(*(torch.cat(parts) for parts in zip(self, *others, strict=True)))

    def summed_up(self, count: int) -> "Known":
        """Each pair once, its numbers added up in the order in which they stand; of ``count`` questions."""
        keys, order = torch.sort(self.entities * count + self.questions, stable=True)
        pairs, sizes = torch.unique_consecutive(keys, return_counts=True)
        offsets = torch.nn.functional.pad(torch.cumsum(sizes, 0), (1, 0))
        ones = self.numbers.new_ones(len(order))
        return Known(pairs // count, pairs % count, weighted_sum(Rows(offsets, order, len(order)), ones, self.numbers))

    def added_to(self, table: Tensor) -> Tensor:
        """(entities, questions, d): a table with the numbers added; each pair may be named once."""
        place = self.entities, self.questions
        return table.index_put(place, table[place] + self.numbers)


def told_on(rows: Rows, relations: Tensor, weights: Tensor, scales: Tensor, known: Known) -> Known:
    """What those who know tell their neighbours, each neighbour as often as it is told.

    The row of v has its edges (v, relation, u), each of which u has, too, the other way round.
    """
    telling = known.below(rows.num_rows)
    picked, entries = rows.pick(telling.entities)
    teller, inverse = picked.row_ids(), (relations[entries] + len(scales) // 2) % len(scales)
    said = telling.numbers[teller] * scales[inverse] * weights[entries][:, None]
    return Known(picked.columns, telling.questions[teller], said)
