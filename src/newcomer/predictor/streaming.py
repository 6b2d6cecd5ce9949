"""Streams of newcomers that may never end: each batch is asked about as soon as it is complete, and dropped."""

from collections.abc import Iterable, Iterator
from itertools import islice

from newcomer.errors import shown
from newcomer.graph import UNKNOWN
from newcomer.predictor.batching import NewcomerBatch
from newcomer.predictor.fact_store import FactError, Triple
from newcomer.predictor.predictor import Predictor

REMEMBERED = 100_000  # newcomers that were dropped last, to notice one that returns


class NewcomerStream:
    """Batches of newcomers, found by the order of their facts.

    The facts of a batch are consecutive: each names a newcomer that one before it has named. So a batch is complete
    when a fact names none of its newcomers, at a gap (None), and at the end. It is then asked about as in
    `NewcomerBatches`, and dropped. A newcomer that returns after that is an error, since an answer about it was given
    without all of its facts; the last 100,000 are remembered for that.

    Facts come with a number each, by which an error names the one to blame. ``facts`` counts those that came, and
    ``skipped`` those of them with a relation that the model lacks, where they may be skipped.

    >>> from newcomer.predictor import NewcomerStream
    >>> facts = [("ann", "lives_in", "city1"), ("cyd", "knows", "ann"), None, ("bob", "lives_in", "city2")]
    >>> for batch in NewcomerStream(model).batches(enumerate(facts)):
    ...     print(batch.newcomers, batch.model.tails(batch.newcomers[0], "citizen_of", k=1)[0].entity)
    ('ann', 'cyd') land1
    ('bob',) land2
    """

    def __init__(self, model: Predictor, on_unknown_relation: str = "error") -> None:
        model.check([], on_unknown_relation)
        self._model, self._unknown = model, on_unknown_relation
        self._dropped: dict[str, None] = {}  # in the order in which they went
        self.facts, self.skipped = 0, 0

    def batches(self, facts: Iterable[tuple[int, Triple | None]]) -> Iterator[NewcomerBatch]:
        """Each batch in turn; more facts are taken only when the next one is wanted."""
        batch: list[Triple] = []
        members: dict[str, None] = {}
        for number, fact in facts:
            arrived = None if fact is None else self._newcomers(fact, number)
            if arrived is not None and not arrived:
                continue  # skipped
            if batch and (arrived is None or members.keys().isdisjoint(arrived)):
                yield self._batch(batch, members)
                batch, members = [], {}
            if fact is not None and arrived is not None:
                self._refuse_returning(arrived, number)
                batch.append(fact)
                members |= dict.fromkeys(arrived)
        if batch:
            yield self._batch(batch, members)

    def _newcomers(self, fact: Triple, number: int) -> list[str]:
        """Those whom a fact names; none where it is skipped."""
        self.facts += 1
        try:
            skipped = self._model.check([fact], self._unknown)
        except FactError as error:
            raise FactError(str(error), number, error.skippable) from None
        self.skipped += skipped
        ends = () if skipped else (fact[0], fact[2])
        return [name for name in ends if self._model.names.seen(name) == UNKNOWN]

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
