"""Newcomers out of a pipe that may never end: each party is asked about as soon as it is complete, and forgotten."""

from collections.abc import Iterable, Iterator
from itertools import islice

from newcomer.errors import shown
from newcomer.predictor.batching import NewcomerBatch
from newcomer.predictor.fact_store import FactError, Triple
from newcomer.predictor.predictor import Predictor

REMEMBERED = 100_000  # newcomers that were there last, to notice one that comes back


class NewcomerStream:
    """Parties of newcomers, told apart by the order of their facts.

    The facts of a party stand together: each names a newcomer that one before it has named. So a party is complete when
    a fact comes that names none of its newcomers, when a gap (None) comes, or when the facts end. It is then asked
    about as `NewcomerBatches` says, and gone. A newcomer that comes back after that is an error, since an answer about
    it was given without all of its facts; the last 100,000 are remembered for that.

    Facts come with a number each, by which an error names the one to blame. ``facts`` counts those that came, and
    ``skipped`` those of them with a relation that the model lacks, where they may be skipped.

    >>> from newcomer.predictor import NewcomerStream
    >>> facts = [("ann", "lives_in", "city1"), ("cyd", "knows", "ann"), None, ("bob", "lives_in", "city2")]
    >>> for visit in NewcomerStream(model).visits(enumerate(facts)):
    ...     print(visit.newcomers, visit.model.tails(visit.newcomers[0], "citizen_of", k=1)[0].entity)
    ('ann', 'cyd') land1
    ('bob',) land2
    """

    def __init__(self, model: Predictor, on_unknown_relation: str = "error") -> None:
        model.check([], on_unknown_relation)
        self._model, self._unknown = model, on_unknown_relation
        self._stored = frozenset(model.newcomers)
        self._gone: dict[str, None] = {}  # in the order in which they went
        self.facts, self.skipped = 0, 0

    def visits(self, facts: Iterable[tuple[int, Triple | None]]) -> Iterator[NewcomerBatch]:
        """Each party in turn; more facts are taken only when the next one is wanted."""
        party: list[Triple] = []
        members: dict[str, None] = {}
        for number, fact in facts:
            arrived = None if fact is None else self._newcomers(fact, number)
            if arrived is not None and not arrived:
                continue  # skipped
            if party and (arrived is None or members.keys().isdisjoint(arrived)):
                yield self._visit(party, members)
                party, members = [], {}
            if fact is not None and arrived is not None:
                self._refuse_returning(arrived, number)
                party.append(fact)
                members |= dict.fromkeys(arrived)
        if party:
            yield self._visit(party, members)

    def _newcomers(self, fact: Triple, number: int) -> list[str]:
        """Those whom a fact names; none where it is skipped."""
        self.facts += 1
        try:
            skipped = self._model.check([fact], self._unknown)
        except FactError as error:
            raise FactError(str(error), number, error.skippable) from None
        self.skipped += skipped
        ends = () if skipped else (fact[0], fact[2])
        return [name for name in ends if name in self._stored or name not in self._model]

    def _refuse_returning(self, arrived: list[str], number: int) -> None:
        for name in arrived:
            if name in self._gone:
                problem = f"the newcomer {shown(name)} was answered about already, without this fact"
                advice = "let all facts of a newcomer, and of those it is tied to, follow each other"
                raise FactError(f"{problem}; {advice}", number)

    def _visit(self, party: list[Triple], members: dict[str, None]) -> NewcomerBatch:
        self._gone |= members
        for name in list(islice(self._gone, max(len(self._gone) - REMEMBERED, 0))):
            del self._gone[name]
        model = self._model.copy()
        model.add(party)
        return NewcomerBatch(model, tuple(members))
