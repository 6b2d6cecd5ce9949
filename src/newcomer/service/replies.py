"""What clients get, as OpenAPI describes it.

Responses are made of plain values; tests hold them against these forms.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from newcomer.service.forms import shown_as

Words = list[str]


class Reply(BaseModel):
    """What every reply to a request names."""

    model_config = ConfigDict(extra="forbid", strict=True)

    position: int = Field(description="The position of the store's log that the reply is of.", examples=[7])
    model: str = Field(description="The version of the model: the beginning of its checksum.")


class Answering(Reply):
    """What every reply to a question names."""

    complete: bool = Field(description="Whether all newcomers that are connected to those asked about were looked at.")


class Part(BaseModel):
    """A part of a reply."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Grounding(Part):
    """A rule that infers an answer, and the facts it does so from."""

    rule: str
    confidence: float
    support: int
    premises: list[Words]
    counted: bool
    is_path: bool


class Figures(Part):
    """How likely something is: ``probability`` is that of the fact, ``if_any`` that if the question has an answer."""

    score: float | None
    probability: float
    if_any: float
    calibrated: bool


class Answer(Figures):
    """An entity that may complete a question."""

    entity: str
    because: list[Grounding] | None = None
    reason: str | None = None


class Suggestion(Figures):
    """A fact that is likely missing."""

    fact: Words
    because: list[Grounding] | None = None
    reason: str | None = None


Recorded = list[int] | None


class Answers(Answering):
    """The best answers, best first; ``recorded`` are their ids in the store."""

    answers: list[Answer]
    recorded: Recorded = None


class Suggestions(Answering):
    """The likeliest missing facts; ``recorded`` are their ids in the store."""

    suggestions: list[Suggestion]
    recorded: Recorded = None


class Reason(Part):
    """What one feature says for or against an answer."""

    feature: str
    adds: float | None
    sentence: str


class Explanation(Figures):
    """An answer, or a suggested fact, with what speaks for and against it."""

    entity: str | None = None
    fact: Words | None = None
    reasons: list[Reason]
    groundings: list[Grounding]
    typical: float | None
    parts: dict[str, float | None]
    chains: list[dict[str, Any]]
    weighed: list[dict[str, Any]]
    similar: list[dict[str, Any]]
    links: list[Words]
    without: Words | None


class Explanations(Answering):
    """The best answers in full."""

    explanations: list[Explanation]


class Verdict(Part):
    """Whether a triple counts as true."""

    fact: Words
    is_true: bool
    score: float | None
    probability: float
    calibrated: bool
    among_labelled: float | None


class Verdicts(Answering):
    """A verdict for each triple, in their order."""

    verdicts: list[Verdict]


class Vector(Answering):
    """The vector of an entity."""

    vector: list[float]


class Alike(Part):
    """An entity and the cosine of its vector."""

    entity: str
    cosine: float


class Similar(Answering):
    """The entities whose vectors point most nearly the same way."""

    similar: list[Alike]


class Opened(Part):
    """A question that rules could answer, and the confidence of the best of them."""

    question: str
    confidence: float


class Lesson(Part):
    """A relation whose facts would help."""

    question: str
    gain: float
    opens: list[Opened]


class Expected(Part):
    """What is to be expected of one question about an entity."""

    question: str
    relation: str
    asked: str
    known: int
    applies: float
    missing: float


class Best(Part):
    """The likeliest missing fact."""

    fact: Words
    probability: float


class Figured(Part):
    """How much is known of an entity."""

    entity: str
    facts: int
    tied: bool
    enough: bool
    calibrated: bool
    like: str
    questions: int
    right: float | None
    learn: list[Lesson]
    expected: list[Expected]
    best: Best | None


class Confidence(Answering):
    """How much is known of an entity, and which relation to learn next."""

    confidence: Figured


class Neighbor(Part):
    """A fact of an entity (label 1), or one that rules infer."""

    fact: Words
    virtual: bool
    label: float
    groundings: list[Grounding]


class Neighbors(Answering):
    """What an entity's vector rests on."""

    neighbors: list[Neighbor]


class Results(Answering):
    """A result for each question, in their order: as by itself, or what is wrong with it."""

    results: list[dict[str, Any]]


class Added(Reply):
    """What adding did: newcomers that were not there, facts that were not, those that were, those skipped."""

    model_config = shown_as(position=1, model="0cbb64086a26", newcomers=["zoe"], facts=2, repeated=0, skipped=0)
    newcomers: Words
    facts: int
    repeated: int
    skipped: int


class Removed(Reply):
    """What retracting did: newcomers that left, and how many facts went."""

    left: Words
    facts: int


class Listed(Part):
    """A newcomer, and the change that it came with."""

    name: str
    position: int
    at: datetime


class Newcomers(Reply):
    """A page of newcomers by name; the next one begins ``after`` the last of them."""

    newcomers: list[Listed]
    after: str | None


class Statement(Part):
    """A fact that was stated, or retracted: in which change, when, by whom, from where."""

    fact: Words
    is_stated: bool
    position: int
    at: datetime
    who: str
    source: str


class Newcomer(Reply):
    """A newcomer with its facts, or with all that was ever stated and retracted about it."""

    name: str
    facts: list[Statement]


class Decision(Part):
    """What someone decided on an answer."""

    position: int
    answer: int
    verdict: Literal["accept", "reject", "unsure"]
    note: str
    at: datetime
    who: str


class Given(Part):
    """An answer that was recorded; ``made_from`` is the position of the facts that the model saw."""

    id: int
    entity: str
    relation: str
    direction: Literal["tails", "heads"]
    answer: str
    rank: int
    probability: float
    if_any: float
    reason: str
    model: str
    made_from: int
    position: int
    at: datetime
    who: str
    decision: Decision | None


class GivenAnswers(Reply):
    """A page of recorded answers by id; the next one begins ``after`` the last of them."""

    answers: list[Given]
    after: int | None


class OneGiven(Reply):
    """A recorded answer with all decisions on it."""

    answer: Given
    decisions: list[Decision]


class Changed(Reply):
    """The position of a change."""


class Entry(Part):
    """A change of the store, with all that changed."""

    position: int
    at: datetime
    who: str
    kind: str
    source: str
    stated: list[Words]
    retracted: list[Words]
    arrived: Words
    left: Words
    answers: list[int]
    decision: Decision | None


class Log(Reply):
    """A page of the log; the next one begins ``after`` the last entry."""

    entries: list[Entry]
    after: int | None


class Counts(Part):
    """How much there is of something."""

    entities: int
    newcomers: int
    relations: int
    facts: int


class Stored(Part):
    """What the store holds."""

    newcomers: int
    facts: int
    answers: int


class Card(Reply):
    """The model: what it was trained on and how, what was measured of it, and what the store holds beside it."""

    newcomer: str = Field(description="The version of this package.")
    dataset: dict[str, str]
    counts: Counts
    calibrated: bool
    settings: dict[str, Any]
    metrics: dict[str, Any]
    store: Stored


class Reloaded(Reply):
    """Whether the folder had another model, which now answers."""

    loaded: bool


class Relations(Reply):
    """The relations that the model knows."""

    relations: Words


class Alive(Part):
    """The process answers."""

    status: Literal["alive"]


class Ready(Reply):
    """The service answers questions."""

    status: Literal["ready"]


class Position(Reply):
    """The position of the store's last change."""
