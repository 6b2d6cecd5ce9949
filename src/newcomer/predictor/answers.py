"""What a model answers, as plain values by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from newcomer.predictor.fact_store import Triple

SHOWN = 2  # digits of a confidence, and of what a feature adds, that a reader sees
SHARED = 2  # facts that are named of those that similar answers share


def in_logic(facts: Iterable[Triple]) -> str:
    """Facts as logic writes them."""
    return " and ".join(f"{relation}({head}, {tail})" for head, relation, tail in facts)


def plain(value: Any) -> Any:
    """A value as JSON can hold it: numbers, texts, None, lists and dictionaries of them."""
    if value is None or isinstance(value, str | int | float):  # nearly all are
        return value
    if isinstance(value, Plain):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, Iterable):
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
    is known when the question is asked. A symmetric path (``is_path``) may add virtual neighbours, and is no part of an
    ensemble's score.
    """

    rule: str
    confidence: float
    support: int
    premises: tuple[Triple, ...]
    counted: bool = False
    is_path: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As that of all others, but written out: a line of answers has dozens of groundings."""
        return {
            "rule": self.rule,
            "confidence": self.confidence,
            "support": self.support,
            "premises": [list(fact) for fact in self.premises],
            "counted": self.counted,
            "is_path": self.is_path,
        }

    def __str__(self) -> str:
        confidence = f"{self.confidence:.{SHOWN}f}" if self.is_readable else f"below {10**-SHOWN}"
        text = f"{in_logic(self.premises)}; rule {self.rule}, confidence {confidence}, support {self.support:,}"
        return text + " (newcomers' facts counted, too)" * self.counted

    @property
    def is_readable(self) -> bool:
        """Whether a reader would see a confidence above zero; a rule of less is no reason."""
        return round(self.confidence, SHOWN) > 0


@dataclass(frozen=True)
class Weighed(Plain):
    """A known fact and the share of the query-aware layer's attention that it has."""

    fact: Triple
    share: float

    def __str__(self) -> str:
        return f"{in_logic([self.fact])} ({self.share:.0%})"

    @property
    def is_readable(self) -> bool:
        """Whether a reader would see a share above zero."""
        return round(self.share, 2) > 0


@dataclass(frozen=True)
class Similar(Plain):
    """A known answer that another one is similar to: its share in that similarity, and the facts that both have."""

    answer: str
    share: float
    facts: tuple[Triple, ...]  # those that fewest others have first

    def __str__(self) -> str:
        facts = in_logic(self.facts[:SHARED])
        return f"similar to {self.answer}, a known answer: {facts} ({self.share:.0%} of the similarity)"

    @property
    def is_readable(self) -> bool:
        """Whether a reader would see a share above zero."""
        return round(self.share, 2) > 0


@dataclass(frozen=True)
class Chain(Plain):
    """Known facts that lead from the entity asked about to an answer, one after the other.

    Without them the log share that propagation gives the answer, before it is weighed, would be lower by ``loss``.
    """

    facts: tuple[Triple, ...]
    loss: float

    def __str__(self) -> str:
        lower = f"without this chain its log share by propagation would be {self.loss:.{SHOWN}f} lower"
        return f"connected by {in_logic(self.facts)}; {lower}"

    @property
    def is_readable(self) -> bool:
        """Whether a reader would see a loss above zero."""
        return round(self.loss, SHOWN) > 0


Evidence = Grounding | Weighed | Similar | Chain | Triple


@dataclass(frozen=True)
class Reason:
    """What one feature says for or against an answer.

    ``adds`` is how much more of the score the answer has from the feature than a typical candidate: one that has of
    every feature the median over all candidates. It is None where the embedding alone decides, which has no parts.
    ``evidence`` is what the sentence is about, the strongest first; the sentence names the first or a few.
    """

    feature: str
    adds: float | None
    sentence: str
    evidence: tuple[Evidence, ...] = ()

    def __str__(self) -> str:
        if self.adds is None:
            return f"because {self.sentence}"
        return f"speaks {'for' if self.speaks_for else 'against'}: {self.sentence} ({self.adds:+.{SHOWN}f})"

    @property
    def speaks_for(self) -> bool:
        return self.adds is None or self.adds > 0


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
