"""Asking a trained propagation network (`newcomer.models.propagation.network`).

Here paths from a newcomer begin with its own facts and go on in the observed graph. So what they say changes neither
with who else arrives, nor for anyone seen. `newcomer.models.propagation.wide` asks over all that is known instead.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.errors import DatasetError
from newcomer.graph import Adjacency, Graph, Ids
from newcomer.models.propagation.attribution import Chain, Question, attributed_chains
from newcomer.models.propagation.edges import PropagationEdges, propagation_edges
from newcomer.models.propagation.network import PREFIX, Propagation, batch_size
from newcomer.models.threads import one_thread


class Asked(NamedTuple):
    """Who is asked about: a seen entity, or a newcomer (``entity`` is None) with its facts.

    Neighbours that are newcomers themselves are numbered from the number of seen entities on.
    """

    entity: int | None
    relations: npt.NDArray[np.int64]  # (k,) oriented
    neighbors: npt.NDArray[np.int64]  # (k,)


class Said(NamedTuple):
    """What paths say of everyone: the log of each one's share in the softmax over all seen entities."""

    seen: Tensor  # (questions, seen)
    itself: Tensor  # (questions,): the newcomer asked about; of a seen entity as `apart`
    neighbors: Tensor  # (questions, newcomers among the neighbours)
    apart: Tensor  # (questions,): anybody whom no path leads to


class Paths:
    """A trained network over the observed graph, ready to be asked."""

    def __init__(self, network: Propagation, observed: Graph, num_seen: int, device: torch.device) -> None:
        device = torch.device("cpu") if network.is_sparse else device
        self.network, self.num_seen, self.device = network.to(device).eval(), num_seen, device
        heads, relations, tails = self._tensor(observed.triples.rows).unbind(dim=1)
        self.edges = propagation_edges(heads, relations, tails, observed.num_relations, num_seen)
        with torch.no_grad():  # the same for all questions; neither a GPU nor a silent network asks for it
            self._unheard = None if device.type == "cuda" or network.is_sparse else network.background_of(self.edges)
        self._told = told_relations(network)

    def knows(self, relations: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Which oriented relations the network has learned of."""
        known: npt.NDArray[np.bool_] = self._told[relations]
        return known

    def ask(self, asked: Asked, relations: npt.NDArray[np.integer]) -> Said:
        """What is said of everyone as an answer to (entity, oriented relation, ?), for relations that are known of."""
        itself = self._number_of(asked)
        parts, source = self._parts(asked), itself if asked.entity is None else asked.entity
        sources, queries = self._tensor(np.full(len(relations), source)), self._tensor(relations)
        with torch.no_grad(), one_thread():
            of_all = self._unheard
            unheard = None if of_all is None else [of_all, *map(self.network.background_of, parts[1:])]
            scores = self.network(parts, sources, queries, itself + 2, background=unheard)  # the last one has no edges
            shares = scores - torch.logsumexp(scores[:, : self.num_seen], dim=1, keepdim=True)
        seen, neighbors, own_share, apart = shares.split([self.num_seen, itself - self.num_seen, 1, 1], dim=1)
        return Said(seen, own_share[:, 0], neighbors, apart[:, 0])

    def ways(self, asked: Asked, relation: int, answer: int) -> list[Chain]:
        """The facts along which paths lead to an answer; none for a relation that nobody seen has.

        In them a newcomer asked about has the number after its neighbours.
        """
        if not self._told[relation]:
            return []
        itself = self._number_of(asked)
        source = itself if asked.entity is None else asked.entity
        question = Question(source, relation, answer, itself + 2, self.num_seen)
        return attributed_chains(self.network, self._parts(asked), question)

    def _number_of(self, asked: Asked) -> int:
        """The number of a newcomer that is asked about: after the newcomers among its neighbours."""
        return self.num_seen + int((np.unique(asked.neighbors) >= self.num_seen).sum())

    def _parts(self, asked: Asked) -> list[PropagationEdges]:
        """The observed edges, and those of a newcomer's facts that are known of."""
        if asked.entity is not None:
            return [self.edges]
        known, itself = self.knows(asked.relations), self._number_of(asked)
        along, to = self._tensor(asked.relations[known]), self._tensor(asked.neighbors[known])
        own = propagation_edges(torch.full_like(to, itself), along, to, self.edges.num_relations, itself + 1)
        return [self.edges, own]

    def _tensor(self, values: npt.NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self.device)


class PathScorer:
    """Paths asked about the entities of a data set, each by its own facts."""

    def __init__(self, paths: Paths, own_facts: Adjacency, num_entities: int) -> None:
        self.paths, self.own_facts, self.num_entities = paths, own_facts, num_entities

    def scores(self, entities: Ids, relations: Ids) -> npt.NDArray[np.float32]:
        """One row of log shares a query; nothing but zeros for a relation that nobody seen has."""
        found = np.zeros((len(entities), self.num_entities), dtype=np.float32)
        known = self.paths.knows(relations)
        for entity in np.unique(entities[known]).tolist():
            places = np.flatnonzero((entities == entity) & known)
            found[places] = self._of(entity, relations[places])
        return found

    def _of(self, entity: int, relations: Ids) -> npt.NDArray[np.float32]:
        seen, nothing = self.paths.num_seen, np.empty(0, dtype=np.int64)
        strangers = nothing
        asked = Asked(entity, nothing, nothing)
        if entity >= seen:
            own, tails = self.own_facts.of(entity)
            others = tails != entity
            own, tails = own[others].astype(np.int64), tails[others].astype(np.int64)
            strangers = np.unique(tails[tails >= seen])
            tails = np.where(tails >= seen, seen + np.searchsorted(strangers, tails), tails)
            asked = Asked(None, own, tails)
        distinct, places = np.unique(relations, return_inverse=True)  # one question may have many answers
        most = batch_size(self.paths.edges, seen)
        parts = [self._rows(entity, asked, strangers, distinct[at : at + most]) for at in range(0, len(distinct), most)]
        found: npt.NDArray[np.float32] = np.concatenate(parts)[places]
        return found

    def _rows(
        self, entity: int, asked: Asked, strangers: npt.NDArray[np.int64], relations: Ids
    ) -> npt.NDArray[np.float32]:
        seen, said = self.paths.num_seen, self.paths.ask(asked, relations)
        rows: npt.NDArray[np.float32] = said.apart[:, None].repeat(1, self.num_entities).cpu().numpy()
        rows[:, :seen] = said.seen.cpu().numpy()
        rows[:, strangers] = said.neighbors.cpu().numpy()
        if entity >= seen:
            rows[:, entity] = said.itself.cpu().numpy()
        return rows


def told_relations(network: Propagation) -> npt.NDArray[np.bool_]:
    """(2 relations,): which oriented relations the network has learned of."""
    told: npt.NDArray[np.bool_] = network.known_relations.cpu().numpy() > 0
    return told


def path_weights(network: Propagation) -> dict[str, npt.NDArray[np.floating]]:
    """Its numbers by name, as a model keeps them."""
    return {f"{PREFIX}{name}": value.detach().cpu().numpy() for name, value in network.state_dict().items()}


def propagation_of(weights: Mapping[str, npt.NDArray[np.floating]], num_relations: int) -> Propagation | None:
    """The network of paths that a model keeps, if it has one."""
    own = {name.removeprefix(PREFIX): value for name, value in weights.items() if name.startswith(PREFIX)}
    if not own:
        return None
    network = Propagation(num_relations, torch.Generator())
    try:
        network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in own.items()})
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise DatasetError(f"the paths do not fit the relations ({reason}); train the model again") from None
    return network.eval()
