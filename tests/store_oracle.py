"""A store as plain Python: sets and lists that are looked through from end to end."""

from collections.abc import Callable
from typing import Any, NamedTuple

from newcomer.store import Fact, GivenAnswer


class Told(NamedTuple):
    """A log entry, without its moment."""

    who: str
    kind: str
    key: str | None
    stated: tuple[Fact, ...] = ()
    retracted: tuple[Fact, ...] = ()
    arrived: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    answers: tuple[int, ...] = ()
    verdict: tuple[int, str] | None = None


class Oracle:
    """Requests return what a store returns, as plain tuples, or "refused"."""

    def __init__(self, is_seen: Callable[[str], bool]) -> None:
        self.is_seen = is_seen
        self.facts: dict[Fact, int] = {}
        self.log: list[Told] = []
        self.answers: list[GivenAnswer] = []
        self.verdicts: dict[int, str] = {}
        self.keys: dict[tuple[str, str], tuple[Any, Any]] = {}

    @property
    def newcomers(self) -> set[str]:
        return {end for head, _, tail in self.facts for end in (head, tail) if not self.is_seen(end)}

    def once(self, who: str, key: str | None, request: Any, work: Callable[[], Any]) -> Any:
        """What a request comes to, or came to when its key was used first."""
        if key is None:
            return work()
        if (who, key) in self.keys:
            first, outcome = self.keys[who, key]
            return outcome if first == request else "refused"
        outcome = work()
        if outcome != "refused":
            self.keys[who, key] = request, outcome
        return outcome

    def add(self, facts: list[Fact], who: str, key: str | None) -> Any:
        def work() -> Any:
            fresh = tuple(dict.fromkeys(fact for fact in facts if fact not in self.facts))
            if not fresh:
                return len(self.log), (), (), 0, len(facts)
            before = self.newcomers
            self.facts |= dict.fromkeys(fresh, len(self.log) + 1)
            arrived = tuple(sorted(self.newcomers - before))
            self.log.append(Told(who, "add", key, stated=fresh, arrived=arrived))
            return len(self.log), arrived, (), len(fresh), len(facts) - len(fresh)

        return self.once(who, key, ("add", facts), work)

    def retract(self, facts: list[Fact], who: str, key: str | None) -> Any:
        def work() -> Any:
            distinct = tuple(dict.fromkeys(facts))
            if not distinct:
                return len(self.log), (), (), 0, 0
            if not set(distinct) <= self.facts.keys():
                return "refused"
            return *self._forget(distinct, "retract", who, key), len(facts) - len(distinct)

        return self.once(who, key, ("retract", facts), work)

    def remove(self, names: list[str], who: str, key: str | None) -> Any:
        def work() -> Any:
            if not set(names) <= self.newcomers:
                return "refused"
            mine = tuple(fact for fact in self.facts if {fact[0], fact[2]} & set(names))
            return (*self._forget(mine, "remove", who, key), 0) if mine else (len(self.log), (), (), 0, 0)

        return self.once(who, key, ("remove", list(dict.fromkeys(names))), work)

    def _forget(self, facts: tuple[Fact, ...], kind: str, who: str, key: str | None) -> tuple[Any, ...]:
        before = self.newcomers
        for fact in facts:
            del self.facts[fact]
        left = tuple(sorted(before - self.newcomers))
        self.log.append(Told(who, kind, key, retracted=facts, left=left))
        return len(self.log), (), left, len(facts)

    def record(self, answers: list[GivenAnswer], who: str, key: str | None) -> Any:
        def work() -> Any:
            if not answers:
                return len(self.log), ()
            ids = tuple(range(len(self.answers) + 1, len(self.answers) + len(answers) + 1))
            self.answers += answers
            self.log.append(Told(who, "record", key, answers=ids))
            return len(self.log), ids

        return self.once(who, key, ("record", answers), work)

    def decide(self, answer: int, verdict: str, who: str, key: str | None) -> Any:
        def work() -> Any:
            if answer > len(self.answers):
                return "refused"
            self.verdicts[answer] = verdict
            self.log.append(Told(who, "decide", key, verdict=(answer, verdict)))
            return len(self.log), (), (), 0, 0

        return self.once(who, key, ("decide", answer, verdict), work)

    def facts_of(self, names: set[str]) -> list[Fact]:
        return [fact for fact in self.facts if {fact[0], fact[2]} & names]

    def component(self, name: str) -> set[str]:
        """By joining until nothing is joined any more."""
        members = {name} & self.newcomers
        while True:
            ends = {end for head, _, tail in self.facts_of(members) for end in (head, tail)} & self.newcomers
            if ends <= members:
                return members
            members |= ends
