"""What a model answers, as plain values by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from newcomer.predictor.fact_store import Triple


def plain(value: Any) -> Any:
    """A value as JSON can hold it: numbers, texts, None, lists and dictionaries of them."""
    if isinstance(value, Plain):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(one) for one in value]
    return value


class Plain:
    """Something that is answered, which can be had as plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Its fields as `json.dumps` takes them: numbers, texts, None, lists and dictionaries; reasons as groundings.

        >>> import json
        >>> answer = model.tails("zoe", "citizen_of", k=1)[0].to_dict()
        >>> answer["entity"], answer["because"][0]["premises"][0], len(json.dumps(answer)) > 0
        ('land1', ['zoe', 'lives_in', 'city1'], True)
        """
        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Grounding(Plain):
    """A rule that infers something, and the facts it does so from.

    Rules were mined from the observed graph. That of a relation which was seldom observed is ``counted`` over all that
    is known when the question is asked.
    """

    rule: str
    confidence: float
    support: int
    premises: tuple[Triple, ...]
    counted: bool = False

    def __str__(self) -> str:
        facts = " and ".join(f"{relation}({head}, {tail})" for head, relation, tail in self.premises)
        text = f"{facts}; rule {self.rule}, confidence {self.confidence:.2f}, support {self.support:,}"
        return text + " (newcomers' facts counted, too)" * self.counted


@dataclass(frozen=True)
class Weighed(Plain):
    """A known fact and the share of the query-aware layer's attention that it has."""

    fact: Triple
    share: float


@dataclass(frozen=True)
class Similar(Plain):
    """A known answer that another one is similar to: its share in that similarity, and the facts that both have."""

    answer: str
    share: float
    facts: tuple[Triple, ...]  # those that fewest others have first


@dataclass(frozen=True)
class Chain(Plain):
    """Known facts that lead from the entity asked about to an answer, one after the other.

    Without them the log share that propagation gives the answer, before it is weighed, would be lower by ``loss``.
    """

    facts: tuple[Triple, ...]
    loss: float


@dataclass(frozen=True)
class Verdict(Plain):
    """Whether a triple counts as true; figures as in `Answer`.

    ``among_labelled`` is the probability among triples half of which are true, which decides in models that learned
    from labelled triples; None of others.
    """

    fact: Triple
    is_true: bool
    score: float
    probability: float
    calibrated: bool = False
    among_labelled: float | None = None


@dataclass(frozen=True)
class Neighbor(Plain):
    """A fact of an entity (label 1), or a virtual one with its label and its groundings, strongest first."""

    fact: Triple
    virtual: bool
    label: float
    groundings: tuple[Grounding, ...] = ()


@dataclass(frozen=True)
class Added(Plain):
    """What adding did: newcomers that were not there before, facts that were not, those that were, those skipped."""

    newcomers: tuple[str, ...]
    facts: int
    repeated: int
    skipped: int
