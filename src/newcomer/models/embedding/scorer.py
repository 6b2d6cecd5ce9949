"""What the embeddings alone say of every entity as an answer, and of single triples, in a snapshot of newcomers.

Who is there at one moment, and with which component, is a snapshot.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from newcomer.graph import Ids, Mask, Overlay
from newcomer.models.device import one_thread
from newcomer.models.embedding.encoder import States
from newcomer.models.embedding.newcomers import EncodedComponent, NewcomerEncoder

ABSENT = -1
TABLE_BYTES = 1 << 30  # of vectors that are kept for queries to come
CERTAIN = 30.0  # a score whose truth is one in single precision
Scores = npt.NDArray[np.float32]


class Slot(NamedTuple):
    """Where a newcomer stands: which number it has in which component."""

    encoded: EncodedComponent
    number: int

    @property
    def place(self) -> int:
        """Its place in the states of the component."""
        return len(self.encoded.near) + self.number


@dataclass(frozen=True, eq=False)
class Members:
    """A component in a snapshot: the ids that its newcomers have there, ``ABSENT`` of those who have moved on."""

    encoded: EncodedComponent
    ids: Ids


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All known facts and all newcomers. Entities have ids: the seen ones first, then newcomers.

    Every newcomer's id has a slot; ``is_present`` is false of one that nothing is known of (any longer).
    """

    overlay: Overlay
    members: Sequence[Members]
    is_present: Mask
    num_entities: int = field(init=False)
    num_seen: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_entities", self.overlay.num_entities)
        object.__setattr__(self, "num_seen", self.overlay.num_seen)

    @property
    def components(self) -> list[EncodedComponent]:
        """In the order in which `rows` counts their newcomers."""
        return [one.encoded for one in self.members]

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """(newcomers,): where each stands when the newcomers of all components are written one after the other."""
        ids = np.concatenate([np.empty(0, dtype=np.int32), *(one.ids for one in self.members)])
        there = np.flatnonzero(ids != ABSENT)
        rows = np.zeros(self.num_entities - self.num_seen, dtype=np.int64)
        rows[ids[there] - self.num_seen] = there
        return rows

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(one.encoded.size for one in self.members)])

    def slot(self, entity: int) -> Slot | None:
        """The slot of a newcomer; None for a seen entity."""
        if entity < self.num_seen:
            return None
        row = int(self.rows[entity - self.num_seen])
        place = int(np.searchsorted(self._starts, row, side="right")) - 1
        return Slot(self.members[place].encoded, row - int(self._starts[place]))

    def members_with(self, slot: Slot) -> Members:
        """The component of a slot."""
        return next(one for one in self.members if one.encoded is slot.encoded)


@dataclass(frozen=True, eq=False)
class _Table:
    """Vectors of all candidates for one query: of the seen entities, and of each component needed so far."""

    seen: Tensor
    newcomers: WeakKeyDictionary[EncodedComponent, Tensor] = field(default_factory=WeakKeyDictionary)


class EmbeddingScorer:
    """Scores candidates in a snapshot, one query at a time: so nobody's score depends on what else is asked."""

    def __init__(self, encoder: NewcomerEncoder, num_entities: int) -> None:
        self.encoder, self.model, self.device = encoder, encoder.model, encoder.device
        size = num_entities * encoder.states.layers[0].shape[1] * 4
        self._keep = max(4, TABLE_BYTES // max(size, 1)) if self.model.encoder.query_aware else 1
        self._tables: OrderedDict[int, _Table] = OrderedDict()
        self._lock = RLock()
        self._lifts = _seen_lifts(encoder)

    def vector(self, snapshot: Snapshot, entity: int, query: int) -> Tensor:
        """(1, d): an entity, embedded for an oriented relation."""
        with torch.no_grad():
            return self.model.encoder.embed(*self._located(snapshot, entity), self._ids([query]))

    def plain_vector(self, snapshot: Snapshot, entity: int) -> Tensor:
        """(1, d): an entity, embedded for no query."""
        with torch.no_grad():
            return self.model.encoder.plain(*self._located(snapshot, entity))

    def _located(self, snapshot: Snapshot, entity: int) -> tuple[States, Tensor]:
        """The graph that an entity is embedded in, and its place (1,) there."""
        slot = snapshot.slot(entity)
        if slot is None:
            return self.encoder.around(self._ids([entity]))
        return slot.encoded.states, self._ids([slot.place])

    def plain_vectors(self, snapshot: Snapshot) -> Tensor:
        """(entities, d): everyone, embedded for no query."""
        with torch.no_grad():
            everyone = torch.arange(snapshot.num_seen, device=self.device)
            seen = self.model.encoder.plain(self.encoder.states, everyone)
            parts = [self.model.encoder.plain(one.states, one.places) for one in snapshot.components]
            return self._by_id(snapshot, seen, parts)

    def scores(self, snapshot: Snapshot, entity: int, relation: int) -> Scores:
        """(entities,): everyone as an answer to (entity, oriented relation, ?)."""
        vector, decoder = self.vector(snapshot, entity, relation), self.model.decoder
        with torch.no_grad(), one_thread():
            query = decoder.query_vector(vector, decoder.relation_vectors(self._ids([relation])))
            seen, newcomers = self._candidates(snapshot, relation)
            # Row by row: a product of matrices would round a newcomer's score differently with the number of them.
            of_newcomers = [decoder.fit_pairs(query.expand_as(vectors), vectors) for vectors in newcomers]
            scores = self._by_id(snapshot, decoder.fit_candidates(query, seen)[0], of_newcomers).float()
            answers, support = self._inferred(snapshot, entity, relation)
            if len(answers):
                scores[answers] = lifted(scores[answers], support, scores.max())
        found: Scores = scores.cpu().numpy()
        return found

    def triple_score(self, snapshot: Snapshot, head: int, relation: int, tail: int) -> float:
        """The score of one triple by itself."""
        if self.model.answers_by_input and tail >= snapshot.num_seen > head:
            # The newcomer is the entity asked about, whichever end it is.
            head, relation, tail = tail, self.model.inverse(relation), head
        ends = self.vector(snapshot, head, relation), self._answer(snapshot, tail, relation)
        with torch.no_grad():
            score = self.model.decoder.triples(ends[0], self._ids([relation]), ends[1]).float()
            answers, support = self._inferred(snapshot, head, relation)
            mine = answers == tail
            if bool(mine.any()):
                score = lifted(score, support[mine][:1], score.new_tensor(CERTAIN))
        return float(score[0])

    def _answer(self, snapshot: Snapshot, entity: int, relation: int) -> Tensor:
        """(1, d): an entity as an answer to an oriented relation."""
        if not self.model.answers_by_input:
            return self.vector(snapshot, entity, self.model.inverse(relation))
        if entity < snapshot.num_seen:
            return self.encoder.states.layers[0][self._ids([entity])]
        return self.plain_vector(snapshot, entity)

    def _candidates(self, snapshot: Snapshot, relation: int) -> tuple[Tensor, list[Tensor]]:
        """(seen, d), and (newcomers, d) of each component: vectors of candidates for (?, relation)."""
        depends = self.model.encoder.query_aware and not self.model.answers_by_input
        query = self.model.inverse(relation) if depends else 0
        components = snapshot.components
        with self._lock:
            table = self._tables.get(query) or _Table(self.encoder.everyone(query))
            self._tables[query] = table
            self._tables.move_to_end(query)
            while len(self._tables) > self._keep:
                self._tables.popitem(last=False)
            missing = [one for one in components if one not in table.newcomers]
            if missing:
                table.newcomers.update(zip(missing, self.encoder.newcomers(missing, query), strict=True))
            return table.seen, [table.newcomers[one] for one in components]

    def _by_id(self, snapshot: Snapshot, seen: Tensor, parts: list[Tensor]) -> Tensor:
        """A row for each entity, of rows for the seen ones and for each component."""
        if not parts:
            return seen
        return torch.cat([seen, torch.cat(parts)[torch.from_numpy(snapshot.rows).to(self.device)]])

    def _inferred(self, snapshot: Snapshot, entity: int, relation: int) -> tuple[Tensor, Tensor]:
        """The answers that rules infer, where these are scored by their labels, and what rules add to their truth."""
        if self._lifts is None:
            return self._ids([]), torch.empty(0, device=self.device)
        slot = snapshot.slot(entity)
        members = snapshot.members if slot is None else [snapshot.members_with(slot)]
        found = [self._inferred_in(snapshot, one, entity, relation) for one in members]
        if slot is None:
            found.append(self._lifts.of(self._ids([entity * 2 * self.model.num_relations + relation])))
        return torch.cat([answers for answers, _ in found]), torch.cat([support for _, support in found])

    def _inferred_in(self, snapshot: Snapshot, members: Members, entity: int, relation: int) -> tuple[Tensor, Tensor]:
        """The same by the virtual triples of one component."""
        encoded, size = members.encoded, self.model.num_relations
        virtual = encoded.virtual
        if virtual is None or encoded.support is None or len(virtual) == 0:
            return self._ids([]), torch.empty(0, device=self.device)
        triples = virtual.triples
        starts, ends = (triples.heads, triples.tails) if relation < size else (triples.tails, triples.heads)
        of_entity = global_ids(starts, members, snapshot.num_seen) == entity
        which = np.flatnonzero(of_entity & (triples.relations == relation % size))
        answers = global_ids(ends[which], members, snapshot.num_seen)
        there = answers != ABSENT
        support = encoded.support[torch.from_numpy(which[there]).to(self.device)]
        return self._ids(answers[there].tolist()), self.encoder.lift(support)

    def _ids(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def global_ids(ids: npt.NDArray[np.integer], members: Members, num_seen: int) -> npt.NDArray[np.int64]:
    """Ids of a component as those of the snapshot; ``ABSENT`` for who has moved on."""
    own = members.encoded.component.ids
    places = np.minimum(np.searchsorted(own, ids), max(len(own) - 1, 0))
    found: npt.NDArray[np.int64] = np.where(ids < num_seen, ids, members.ids[places] if len(own) else ids)
    return found.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Lifts:
    """Queries about seen entities that rules answer: ascending keys, an answer each, and what is added to its truth."""

    keys: Tensor
    answers: Tensor
    support: Tensor

    def of(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """The answers to one query."""
        first, end = (int(torch.searchsorted(self.keys, key, right=right)) for right in (False, True))
        return self.answers[first:end], self.support[first:end]


def _seen_lifts(encoder: NewcomerEncoder) -> _Lifts | None:
    """What rules infer between seen entities; None where answers are not scored by their labels."""
    if encoder.support is None:
        return None
    triples, size = encoder.graph.virtual, 2 * encoder.num_relations
    forward = triples[:, 0] * size + triples[:, 1]
    backward = triples[:, 2] * size + encoder.model.inverse(triples[:, 1])
    keys, order = torch.sort(torch.cat([forward, backward]), stable=True)
    answers = torch.cat([triples[:, 2], triples[:, 0]])[order]
    return _Lifts(keys, answers, encoder.lift(encoder.support).repeat(2)[order])


def lifted(scores: Tensor, support: Tensor, top: Tensor) -> Tensor:
    """The score of ``truth + support``: its log odds; from one on, above the top by as much as it exceeds one.

    Labels end at one, yet answers have an order: those that rules make certain are ordered by how far they would go on.
    """
    rest = torch.sigmoid(-scores) - support  # what is left to certainty
    odds = torch.log(torch.sigmoid(scores) + support) - torch.log(rest.clamp_min(1e-30))
    return torch.where(rest > 1e-30, odds, torch.maximum(top, scores) + 1.0 - rest)
