"""What ranking asks of a model."""

from typing import Any, Protocol

import numpy.typing as npt

from newcomer.graph import Ids


class Scorer(Protocol):
    """Anything that can say how true each entity is as the tail of a query."""

    def scores(self, entities: Ids, relations: Ids, /) -> npt.NDArray[Any]:
        """Scores of shape (batch, num_entities), higher is better; ``relations`` from ``R`` on are inverses."""
