"""Streams of newcomers that may never end: each batch is asked about as soon as it is complete, and dropped."""

from collections.abc import Iterable, Iterator
from itertools import islice

from newcomer.errors import shown
from newcomer.graph import UNKNOWN
from newcomer.predictor.batching import Introduced, NewcomerBatch
from newcomer.predictor.fact_store import FactError, Skipping, Triple, checked
from newcomer.predictor.predictor import Predictor

REMEMBERED = 100_000  # newcomers that were dropped last, to notice one that returns


class NewcomerStream:
    """Batches of newcomers, found by the order of their facts.

    The facts of a batch are consecutive: each names a newcomer that one before it has named. So a batch is complete
    when a fact names none of its newcomers, at a gap (None), and at the end. It is then asked about as in
    `NewcomerBatches`, and dropped. A newcomer that returns after that is an error, since an answer about it was given
    without all of its facts; the last 100,000 are remembered for that.

    Facts come with a number each, by which an error names the one to blame. ``facts`` counts those that came,
    ``unknown_relations``, ``seen_facts`` and ``known`` those of them that are as in `NewcomerBatches`. Such facts end
    no batch; who is introduced by them is a batch when the last of its facts has come.

    >>> from newcomer.predictor import NewcomerStream
    >>> facts = [("ann", "lives_in", "city1"), ("cyd", "knows", "ann"), None, ("bob", "lives_in", "city2")]
    >>> for batch in NewcomerStream(model).batches(enumerate(facts)):
    ...     print(batch.newcomers, batch.model.tails(batch.newcomers[0], "citizen_of", k=1)[0].entity)
    ('ann', 'cyd') land1
    ('bob',) land2
    """

    def __init__(self, model: Predictor, on_unknown_relation: str = "error", on_seen_fact: str = "error") -> None:
        self._model, self._skipping = model, Skipping(on_unknown_relation, on_seen_fact)
        self._introduced = Introduced(model.bundle.observed)
        self._dropped: dict[str, None] = {}  # in the order in which they went
        self.facts, self.known, self.unknown_relations, self.seen_facts = 0, 0, 0, 0

    def batches(self, facts: Iterable[tuple[int, Triple | None]]) -> Iterator[NewcomerBatch]:
        """Each batch in turn; more facts are taken only when the next one is wanted."""
        batch: list[Triple] = []
        members: dict[str, None] = {}
        for number, fact in facts:
            arrived, introduced = (None, []) if fact is None else self._named_by(fact, number)
            if introduced:
                yield NewcomerBatch(self._model, tuple(introduced))
            if arrived is not None and not arrived:
                continue  # known, or skipped
            if batch and (arrived is None or members.keys().isdisjoint(arrived)):
                yield self._batch(batch, members)
                batch, members = [], {}
            if fact is not None and arrived is not None:
                self._refuse_returning(arrived, number)
                batch.append(fact)
                members |= dict.fromkeys(arrived)
        if batch:
            yield self._batch(batch, members)

    def _named_by(self, fact: Triple, number: int) -> tuple[list[str], list[str]]:
        """The newcomers whom a fact names, and who is introduced by it."""
        self.facts += 1
        names = self._model.names
        try:
            found = checked([fact], names, self._model.bundle.observed, self._skipping)
        except FactError as error:
            raise FactError(str(error), number, error.skipped_by) from None
        self.known += len(found.known)
        self.unknown_relations += found.unknown_relations
        self.seen_facts += found.seen_facts
        arrived = [name for head, _, tail in found.facts for name in (head, tail) if names.seen(name) == UNKNOWN]
        return arrived, [names.entity_names[end] for one in found.known for end in self._introduced.by(one)]

    def _refuse_returning(self, arrived: list[str], number: int) -> None:
        for name in arrived:
            if name in self._dropped:
                problem = f"the newcomer {shown(name)} was answered about already, without this fact"
                advice = "let all facts of a newcomer, and of those it is tied to, follow each other"
                raise FactError(f"{problem}; {advice}", number)

    def _batch(self, batch: list[Triple], members: dict[str, None]) -> NewcomerBatch:
        self._dropped |= members
        for name in list(islice(self._dropped, max(len(self._dropped) - REMEMBERED, 0))):
            del self._dropped[name]
        return NewcomerBatch.of(self._model, batch, members)
