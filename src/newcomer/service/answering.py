"""Questions answered by a model over a store: all of a request at one position of the log, each with its scope."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from newcomer.errors import NewcomerError, OptionError, shown
from newcomer.predictor import Answer, Predictor, Suggestion, UnknownEntityError, UnknownNameError
from newcomer.predictor.answers import plain
from newcomer.service import forms
from newcomer.service.limits import Deadline
from newcomer.service.metrics import Metrics
from newcomer.service.problems import ServiceError, problem, service_error
from newcomer.service.stored_predictor import Scope, StoredPredictor
from newcomer.store import GivenAnswer
from newcomer.store.records import Direction

MOST_SIMILAR = 10  # known answers that an explanation names
Reply = dict[str, Any]


@dataclass(eq=False)
class Answered:
    """The reply to one question, and what of it is kept where that was asked for."""

    reply: Reply
    given: list[GivenAnswer] | None = None
    first: float | None = None  # the probability of the first answer
    complete: bool = True


class Asked:
    """Questions of a request, and for each part of each the model with the newcomers that it is about."""

    def __init__(
        self, live: StoredPredictor, questions: Sequence[forms.Question], deadline: Deadline, metrics: Metrics
    ) -> None:
        self._live, self._questions, self._deadline, self._metrics = live, questions, deadline, metrics
        self._scopes: list[list[Scope] | NewcomerError] = []
        with live.store.reading() as state:
            self.position = state.position
            for question in questions:
                deadline.check()
                try:
                    self._scopes.append([live.scope_in(state, names) for names in question.about])
                except OptionError as error:
                    self._scopes.append(error)

    def answered(self, place: int) -> Answered:
        """The answer to one of them; what is wrong with it is an error."""
        question, scopes = self._questions[place], self._scopes[place]
        self._deadline.check()
        if isinstance(scopes, NewcomerError):
            raise scopes
        try:
            found = ANSWERS[type(question)](question, scopes, self._deadline)
        except UnknownNameError as error:
            field = "entity" if isinstance(error, UnknownEntityError) else "relation"
            blamed = field if getattr(question, field, None) == error.name else ""  # else one of a list
            raise service_error(error, blamed) from None
        found.complete = all(scope.complete for scope in scopes)
        kind = type(question).__name__.lower()
        self._metrics.questions.labels(kind).inc()
        if found.first is not None:
            self._metrics.probability.labels(kind).observe(found.first)
        return found

    def record(self, found: Sequence[Answered], who: str, key: str | None) -> None:
        """Keep what has to be kept: all in one change of the store. Each reply tells its answers' ids."""
        kept = [one for one in found if one.given is not None]
        if not kept:
            return
        given = [answer for one in kept for answer in one.given or ()]
        recorded = self._live.store.record(given, model=self._live.version, made_from=self.position, who=who, key=key)
        ids = iter(recorded.ids)
        for one in kept:
            one.reply["recorded"] = [next(ids) for _ in one.given or ()]

    def head(self, complete: bool) -> Reply:
        """What every reply begins with."""
        return {"position": self.position, "model": self._live.version, "complete": complete}


def answer_one(
    live: StoredPredictor, question: forms.Question, deadline: Deadline, metrics: Metrics, who: str, key: str | None
) -> Reply:
    """The reply to one question; what is wrong with it is an error."""
    asked = Asked(live, [question], deadline, metrics)
    found = asked.answered(0)
    asked.record([found], who, key)
    return asked.head(found.complete) | found.reply


def answer_all(
    live: StoredPredictor,
    questions: Sequence[forms.Question],
    deadline: Deadline,
    metrics: Metrics,
    who: str,
    key: str | None,
) -> Reply:
    """The replies to several; where one of them is wrong, the others are answered."""
    asked = Asked(live, questions, deadline, metrics)
    found = [_or_problem(asked, place) for place in range(len(questions))]
    asked.record(found, who, key)
    results = [one.reply if "problem" in one.reply else {"complete": one.complete} | one.reply for one in found]
    return asked.head(all(one.complete for one in found)) | {"results": results}


def _or_problem(asked: Asked, place: int) -> Answered:
    try:
        return asked.answered(place)
    except NewcomerError as error:
        found = service_error(error)
        if found.status >= 500:  # it is not about the question alone
            raise
        return Answered({"problem": problem(found)})


def _tails(asked: forms.Tails, scopes: Sequence[Scope], _: Deadline) -> Answered:
    found = scopes[0].model.tails(asked.entity, asked.relation, **_options(asked), known=asked.known)
    return _answers(asked, "tails", found)


def _heads(asked: forms.Heads, scopes: Sequence[Scope], _: Deadline) -> Answered:
    found = scopes[0].model.heads(asked.relation, asked.entity, **_options(asked), known=asked.known)
    return _answers(asked, "heads", found)


def _options(asked: forms.Tails | forms.Heads | forms.Suggest | forms.Explain) -> dict[str, Any]:
    return {"k": asked.k, "min_probability": asked.min_probability, "types": asked.types}


def _answers(asked: forms.Tails | forms.Heads, direction: Direction, found: Sequence[Answer]) -> Answered:
    about = asked.entity, asked.relation, direction
    given = [
        GivenAnswer(*about, one.entity, rank, one.probability, one.if_any, str(one.because))
        for rank, one in enumerate(found, 1)
        if asked.record
    ]
    reply = {"answers": [_line(one, asked.because) for one in found]}
    return Answered(reply, given if asked.record else None, _first(found))


def _suggest(asked: forms.Suggest, scopes: Sequence[Scope], _: Deadline) -> Answered:
    found = scopes[0].model.suggest(asked.entity, relations=asked.relations, **_options(asked))
    given = [_given(asked.entity, rank, one) for rank, one in enumerate(found, 1) if asked.record]
    reply = {"suggestions": [_line(one, asked.because) for one in found]}
    return Answered(reply, given if asked.record else None, _first(found))


def _given(entity: str, rank: int, one: Suggestion) -> GivenAnswer:
    """A suggestion as an answer to the question that it completes."""
    head, relation, tail = one.fact
    direction: Direction = "tails" if head == entity else "heads"
    answer = tail if head == entity else head
    reason = str(one.because)
    return GivenAnswer(entity, relation, direction, answer, rank, one.probability, one.if_any, reason)


def _first(found: Sequence[Answer | Suggestion]) -> float | None:
    return found[0].probability if found else None


def _line(one: Answer | Suggestion, because: bool) -> Reply:
    """An answer as plain values; its reasons only where they are wanted, since it takes time to find them."""
    if because:
        return one.to_dict() | {"reason": str(one.because)}
    stated: Reply = {"entity": one.entity} if isinstance(one, Answer) else {"fact": list(one.fact)}
    figures = ("score", "probability", "if_any", "calibrated")
    return stated | {name: getattr(one, name) for name in figures}


def _explain(asked: forms.Explain, scopes: Sequence[Scope], deadline: Deadline) -> Answered:
    found = _explained(asked, scopes[0].model)
    if asked.answer is not None:
        found = [one for one in found if isinstance(one, Answer) and one.entity == asked.answer]
        if not found:
            problem = f"{shown(asked.answer)} is not among the first {asked.k:,} answers"
            raise ServiceError(404, "not-there", f"{problem}; ask for more with k", "answer")
    lines = []
    for one in found:
        deadline.check()
        because = one.because.to_dict()
        because["similar"] = because["similar"][:MOST_SIMILAR]
        lines.append(_line(one, because=False) | because)
    return Answered({"explanations": lines}, first=_first(found))


def _explained(asked: forms.Explain, model: Predictor) -> Sequence[Answer | Suggestion]:
    if asked.relation is None:
        if asked.answer is not None:
            raise OptionError("an answer is explained as one to a relation; name the relation")
        return model.suggest(asked.entity, **_options(asked))
    if asked.direction == "heads":
        return model.heads(asked.relation, asked.entity, **_options(asked), known=asked.known)
    return model.tails(asked.entity, asked.relation, **_options(asked), known=asked.known)


def _classify(asked: forms.Classify, scopes: Sequence[Scope], deadline: Deadline) -> Answered:
    verdicts = []
    for scope, triple in zip(scopes, asked.triples, strict=True):
        deadline.check()
        verdicts += [one.to_dict() for one in scope.model.classify([triple])]
    return Answered({"verdicts": verdicts})


def _embed(asked: forms.Embed, scopes: Sequence[Scope], _: Deadline) -> Answered:
    return Answered({"vector": scopes[0].model.embed(asked.entity, asked.relation).tolist()})


def _similar(asked: forms.Similar, scopes: Sequence[Scope], _: Deadline) -> Answered:
    found = scopes[0].model.similar(asked.entity, asked.k)
    return Answered({"similar": [{"entity": name, "cosine": cosine} for name, cosine in found]})


def _confidence(asked: forms.Confidence, scopes: Sequence[Scope], _: Deadline) -> Answered:
    return Answered({"confidence": scopes[0].model.confidence(asked.entity).to_dict()})


def _neighbors(asked: forms.Neighbors, scopes: Sequence[Scope], _: Deadline) -> Answered:
    return Answered({"neighbors": plain(scopes[0].model.neighbors(asked.entity))})


ANSWERS: dict[type[forms.Question], Callable[[Any, Sequence[Scope], Deadline], Answered]] = {
    forms.Tails: _tails,
    forms.Heads: _heads,
    forms.Suggest: _suggest,
    forms.Explain: _explain,
    forms.Classify: _classify,
    forms.Embed: _embed,
    forms.Similar: _similar,
    forms.Confidence: _confidence,
    forms.Neighbors: _neighbors,
}
