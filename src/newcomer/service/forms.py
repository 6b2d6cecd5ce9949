"""What clients send: questions and changes, in the words of Python and of the command line.

Each form takes nothing but its fields, and each of these no more than it has to.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

NAME_LENGTH = 10_000
NOTE_LENGTH = 10_000
MOST_ANSWERS = 1_000
SEVERAL = 1_000  # types, relations

Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]
Entity = Annotated[Name, Field(description="An entity that the model was trained on, or a newcomer of the store.")]
Relation = Annotated[Name, Field(description="A relation that the model knows.")]
Triple = Annotated[list[Name], Field(min_length=3, max_length=3, description="Head, relation, tail.")]


def whole(value: object) -> object:
    """A number without decimals, which JSON may write with some (3.0), as the integer that it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


K = Annotated[int, Field(ge=1, le=MOST_ANSWERS, description="How many of the best to give."), BeforeValidator(whole)]
Least = Annotated[
    float, Field(ge=0, le=1, allow_inf_nan=False, description="Leave out answers that are less probable.")
]
Types = Annotated[
    list[Name] | None,
    Field(max_length=SEVERAL, description="Only answers that have a fact with one of these entities as its tail."),
]
Because = Annotated[bool, Field(description="Whether each answer has its best reason and the rules that infer it.")]
Known = Annotated[bool, Field(description="Whether answers that are known to be true are given, too.")]
Record = Annotated[bool, Field(description="Whether answers are kept in the store, for people to decide on.")]
Choice = Literal["error", "skip"]


def shown_as(**example: Any) -> ConfigDict:
    """A form that takes nothing but its fields, each of its own type, with an example."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [example]})


class Form(BaseModel):
    """What is sent as JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Question(Form):
    """A question about entities."""

    @property
    def about(self) -> list[list[str]]:
        """The entities asked about: a list for each part that is answered by itself."""
        return [[getattr(self, "entity", "")]]


class Tails(Question):
    """The k best answers to (entity, relation, ?)."""

    model_config = shown_as(ask="tails", entity="zoe", relation="citizen_of", k=3)
    ask: Literal["tails"] = "tails"
    entity: Entity
    relation: Relation
    k: K = 10
    known: Known = False
    min_probability: Least = 0.0
    types: Types = None
    because: Because = True
    record: Record = False


class Heads(Question):
    """The k best answers to (?, relation, entity)."""

    model_config = shown_as(ask="heads", entity="city1", relation="lives_in", k=3)
    ask: Literal["heads"] = "heads"
    entity: Entity
    relation: Relation
    k: K = 10
    known: Known = False
    min_probability: Least = 0.0
    types: Types = None
    because: Because = True
    record: Record = False


class Suggest(Question):
    """The k facts of an entity that are most likely missing, over all relations."""

    model_config = shown_as(ask="suggest", entity="zoe", k=3)
    ask: Literal["suggest"] = "suggest"
    entity: Entity
    k: K = 20
    relations: Annotated[
        list[Name] | None, Field(max_length=SEVERAL, description="Only facts along these relations.")
    ] = None
    min_probability: Least = 0.0
    types: Types = None
    because: Because = True
    record: Record = False


class Explain(Question):
    """The best answers with what speaks for and against each, and the fact that decides.

    Without a relation they are the facts that are most likely missing.
    """

    model_config = shown_as(ask="explain", entity="zoe", relation="citizen_of", k=1)
    ask: Literal["explain"] = "explain"
    entity: Entity
    relation: Annotated[Name | None, Field(description="The relation asked about.")] = None
    direction: Annotated[Literal["tails", "heads"], Field(description="Which end is asked for.")] = "tails"
    answer: Annotated[Name | None, Field(description="Only this answer, of the first k to a relation.")] = None
    k: K = 3
    known: Known = False
    min_probability: Least = 0.0
    types: Types = None


class Classify(Question):
    """Whether triples count as true."""

    model_config = shown_as(ask="classify", triples=[["zoe", "citizen_of", "land1"]])
    ask: Literal["classify"] = "classify"
    triples: Annotated[list[Triple], Field(min_length=1)]

    @property
    def about(self) -> list[list[str]]:
        """The ends of each triple."""
        return [[head, tail] for head, _, tail in self.triples]


class Embed(Question):
    """The vector of an entity; with a relation, as a question about its tails asks for it."""

    model_config = shown_as(ask="embed", entity="zoe")
    ask: Literal["embed"] = "embed"
    entity: Entity
    relation: Annotated[Name | None, Field(description="A relation that the model knows.")] = None


class Similar(Question):
    """The k entities whose vectors point most nearly the same way."""

    model_config = shown_as(ask="similar", entity="zoe", k=3)
    ask: Literal["similar"] = "similar"
    entity: Entity
    k: K = 10


class Confidence(Question):
    """How much is known of an entity, and which relation to learn next."""

    model_config = shown_as(ask="confidence", entity="zoe")
    ask: Literal["confidence"] = "confidence"
    entity: Entity


class Neighbors(Question):
    """What an entity's vector rests on: its facts, and what rules infer of it."""

    model_config = shown_as(ask="neighbors", entity="zoe")
    ask: Literal["neighbors"] = "neighbors"
    entity: Entity


AnyQuestion = Annotated[
    Tails | Heads | Suggest | Explain | Classify | Embed | Similar | Confidence | Neighbors,
    Field(discriminator="ask", json_schema_extra={"required": ["ask"]}),
]


class Questions(Form):
    """Several questions, all answered at one position of the log."""

    model_config = shown_as(
        questions=[
            {"ask": "tails", "entity": "zoe", "relation": "citizen_of", "k": 1},
            {"ask": "confidence", "entity": "zoe"},
        ]
    )
    questions: Annotated[list[AnyQuestion], Field(min_length=1)]


class NewFacts(Form):
    """Facts of newcomers: all are stated or, where one is wrong, none."""

    model_config = shown_as(facts=[["zoe", "lives_in", "city1"], ["zoe", "knows", "p03"]], source="registry")
    facts: Annotated[list[Triple], Field(min_length=1, description="Each is head, relation, tail.")]
    source: Annotated[str, Field(max_length=NAME_LENGTH, description="Where they are from.")] = ""
    on_unknown_relation: Annotated[Choice, Field(description="A fact whose relation the model lacks.")] = "error"
    on_seen_fact: Annotated[
        Choice, Field(description="A fact between two entities that the model was trained on, which its graph lacks.")
    ] = "error"


class OldFacts(Form):
    """Facts to retract: all of them are or, where one is not in the store, none."""

    model_config = shown_as(facts=[["zoe", "knows", "p03"]])
    facts: Annotated[list[Triple], Field(min_length=1, description="Each is head, relation, tail.")]
    source: Annotated[str, Field(max_length=NAME_LENGTH, description="Who or what says so.")] = ""


class Decide(Form):
    """A decision on an answer; the latest counts, and all are kept."""

    model_config = shown_as(verdict="accept", note="seen in the register")
    verdict: Literal["accept", "reject", "unsure"]
    note: Annotated[str, Field(max_length=NOTE_LENGTH)] = ""
