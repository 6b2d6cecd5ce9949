"""Asking what paths say over all that is known: the observed graph, and the facts of every newcomer who is there.

Where newcomers bring more facts than were observed, most of what is known of a candidate is what they tell of it. What
is learned of paths is learned of relations, on the observed graph alone (`newcomer.training.propagation`), so it
serves any graph of these relations; here that is the whole one.
"""

from copy import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Graph, Ids, InductiveDataset, TripleArray, concatenate
from newcomer.models.propagation.attribution import Chain, Question, attributed_chains
from newcomer.models.propagation.edges import PropagationEdges, propagation_edges
from newcomer.models.propagation.network import Propagation, batch_size
from newcomer.models.propagation.own import Paths, PathScorer, told_relations
from newcomer.models.scorer import Scorer
from newcomer.models.threads import one_thread
from newcomer.rules.similarity import brought_by_newcomers


class WidePaths:
    """A trained network over all that is known, ready to be asked; ``since`` gives it with what has come later."""

    def __init__(
        self, network: Propagation, observed: Graph, told: TripleArray, num_seen: int, device: torch.device
    ) -> None:
        """Over the observed graph and what was ``told`` of newcomers; the first entities, so many, are seen."""
        self.device = torch.device("cpu") if network.is_sparse else device
        self.network, self.num_seen = network.to(self.device).eval(), num_seen
        self.num_relations = observed.num_relations
        self._told = told_relations(network)
        facts = concatenate([observed.triples, brought_by_newcomers(told, num_seen)])
        self._known = self._edges(facts, max(num_seen, observed.num_entities))
        self._latest: PropagationEdges | None = None
        self._unheard = self._unheard_of(self._known)

    @property
    def num_entities(self) -> int:
        """Those who are known of, by the highest id."""
        return max(one.rows.num_rows for one in self._parts)

    @property
    def _parts(self) -> list[PropagationEdges]:
        return [self._known] if self._latest is None else [self._known, self._latest]

    def since(self, latest: TripleArray, gone: Ids) -> "WidePaths":
        """With facts of newcomers; those of ``gone`` take the place of what was known of them. Ids may be new."""
        if len(latest) == 0 and len(gone) == 0:
            return self
        found = copy(self)
        if len(gone):
            found._known = self._without(gone)
            found._unheard = self._unheard_of(found._known)
        size = 1 + int(max(latest.heads.max(initial=-1), latest.tails.max(initial=-1)))
        found._latest = self._edges(latest, max(self.num_entities, size))
        return found

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """(questions, ids): the log of each one's share in the softmax over all seen entities.

        Nothing but zeros for a relation that nobody seen has.
        """
        found = np.zeros((len(entities), self.num_entities), dtype=np.float32)
        known = np.flatnonzero(self._told[relations])
        asked = np.stack([entities[known], relations[known]], axis=1).astype(np.int64)
        distinct, places = np.unique(asked, axis=0, return_inverse=True)  # one question may have many answers
        step = batch_size(self._known, self.num_entities)
        for start in range(0, len(distinct), step):
            shares = self._asked(distinct[start : start + step])
            of_these = (places >= start) & (places < start + step)
            found[known[of_these]] = shares[places[of_these] - start]
        return found

    def ways(self, entity: int, relation: int, answer: int) -> list[Chain]:
        """The facts along which paths lead to an answer; none for a relation that nobody seen has."""
        if not self._told[relation]:
            return []
        return attributed_chains(
            self.network, self._parts, Question(entity, relation, answer, self.num_entities, self.num_seen)
        )

    def _asked(self, questions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """(questions, ids): what is said, for rows of entity and oriented relation."""
        sources, queries = torch.from_numpy(questions).to(self.device).unbind(dim=1)
        with torch.no_grad(), one_thread():
            unheard = None
            if self._unheard is not None:
                unheard = [self._unheard, *map(self.network.background_of, self._parts[1:])]
            scores = self.network(self._parts, sources, queries, self.num_entities, background=unheard)
            shares = scores - torch.logsumexp(scores[:, : self.num_seen], dim=1, keepdim=True)
        found: npt.NDArray[np.float32] = shares.cpu().numpy()
        return found

    def _unheard_of(self, edges: PropagationEdges) -> Tensor | None:
        """What everyone would hear if nobody had heard of anything, the same for all questions, where that helps."""
        if self.device.type == "cuda" or self.network.is_sparse:
            return None
        with torch.no_grad(), one_thread():
            return self.network.background_of(edges)

    def _edges(self, facts: TripleArray, num_entities: int) -> PropagationEdges:
        """The edges of facts; relations that nobody seen has are not heard of.

        In order, so that sums are the same to the bit, in whatever order facts came.
        """
        heard = facts.take(self._told[facts.relations])
        heard = heard.take(np.lexsort((heard.tails, heard.relations, heard.heads)))
        heads, relations, tails = torch.from_numpy(heard.rows.astype(np.int64)).to(self.device).unbind(dim=1)
        return propagation_edges(heads, relations, tails, self.num_relations, num_entities)

    def _without(self, gone: Ids) -> PropagationEdges:
        """What was known when the model was written, without the facts of some newcomers."""
        rows = self._known.rows
        away = torch.zeros(max(rows.num_rows, 1), dtype=torch.bool, device=self.device)
        away[torch.from_numpy(gone.astype(np.int64)).to(self.device)] = True
        return self._known.with_weights(self._known.weights.masked_fill(away[rows.row_ids()] | away[rows.columns], 0.0))


def path_scorer(
    network: Propagation, dataset: InductiveDataset, num_seen: int, device: torch.device, wide: bool
) -> Scorer:
    """Paths asked about the entities of a data set: over all that is known, or each by its own facts."""
    if wide:
        return WidePaths(network, dataset.observed, dataset.auxiliary.triples, num_seen, device)
    paths = Paths(network, dataset.observed, num_seen, device)
    return PathScorer(paths, dataset.own_facts, len(dataset.entities))
