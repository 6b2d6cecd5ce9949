"""Questions: one, or several at one position of the log."""

from fastapi import APIRouter, Response

from newcomer.service import forms, replies
from newcomer.service.answering import answer_all, answer_one
from newcomer.service.auth import Reader, must
from newcomer.service.problems import ServiceError, ok
from newcomer.service.routes.parameters import Here, Key
from newcomer.service.shared import Shared, reply
from newcomer.service.tokens import Caller

router = APIRouter(prefix="/v1", tags=["questions"])


async def _answer(shared: Shared, caller: Caller, question: forms.Question, key: str | None = None) -> Response:
    """The reply to one question, in its turn."""
    check_size(shared, question)
    records = getattr(question, "record", False)
    if records:
        must(caller, "write")
    live, metrics, who = shared.live.current, shared.metrics, caller.name
    work = shared.gate.run(lambda left: answer_one(live, question, left, metrics, who, key), whole=records)
    return reply(await work)


def check_size(shared: Shared, question: forms.Question) -> None:
    """An error where a question has more triples than are classified at once."""
    most = shared.settings.max_questions
    if len(question.about) > most:
        sentence = f"{len(question.about):,} triples are more than the {most:,} that are classified at once"
        raise ServiceError(413, "too-many", f"{sentence}; send them in parts", "triples")


@router.post("/tails", responses=ok(replies.Answers, 404))
async def tails(question: forms.Tails, shared: Here, caller: Reader, key: Key = None) -> Response:
    """The k best answers to (entity, relation, ?)."""
    return await _answer(shared, caller, question, key)


@router.post("/heads", responses=ok(replies.Answers, 404))
async def heads(question: forms.Heads, shared: Here, caller: Reader, key: Key = None) -> Response:
    """The k best answers to (?, relation, entity)."""
    return await _answer(shared, caller, question, key)


@router.post("/suggest", responses=ok(replies.Suggestions, 404))
async def suggest(question: forms.Suggest, shared: Here, caller: Reader, key: Key = None) -> Response:
    """The k facts of an entity that are most likely missing."""
    return await _answer(shared, caller, question, key)


@router.post("/explain", responses=ok(replies.Explanations, 404))
async def explain(question: forms.Explain, shared: Here, caller: Reader) -> Response:
    """The best answers, or one of them, with what speaks for and against each."""
    return await _answer(shared, caller, question)


@router.post("/classify", responses=ok(replies.Verdicts, 404))
async def classify(question: forms.Classify, shared: Here, caller: Reader) -> Response:
    """Whether triples count as true, all at one position of the log."""
    return await _answer(shared, caller, question)


@router.post("/embed", responses=ok(replies.Vector, 404))
async def embed(question: forms.Embed, shared: Here, caller: Reader) -> Response:
    """The vector of an entity."""
    return await _answer(shared, caller, question)


@router.post("/similar", responses=ok(replies.Similar, 404))
async def similar(question: forms.Similar, shared: Here, caller: Reader) -> Response:
    """The entities whose vectors point most nearly the same way."""
    return await _answer(shared, caller, question)


@router.post("/confidence", responses=ok(replies.Confidence, 404))
async def confidence(question: forms.Confidence, shared: Here, caller: Reader) -> Response:
    """How much is known of an entity, and which relation to learn next."""
    return await _answer(shared, caller, question)


@router.post("/neighbors", responses=ok(replies.Neighbors, 404))
async def neighbors(question: forms.Neighbors, shared: Here, caller: Reader) -> Response:
    """What an entity's vector rests on."""
    return await _answer(shared, caller, question)


@router.post("/questions", responses=ok(replies.Results))
async def questions(asked: forms.Questions, shared: Here, caller: Reader, key: Key = None) -> Response:
    """Several questions, all answered at one position of the log; what is wrong with one is told in its place."""
    most = shared.settings.max_questions
    if len(asked.questions) > most:
        sentence = f"{len(asked.questions):,} questions are more than the {most:,} that are answered at once"
        raise ServiceError(413, "too-many", f"{sentence}; send them in parts", "questions")
    for question in asked.questions:
        check_size(shared, question)
    records = any(getattr(question, "record", False) for question in asked.questions)
    if records:
        must(caller, "write")
    live, metrics, who = shared.live.current, shared.metrics, caller.name
    work = shared.gate.run(lambda left: answer_all(live, asked.questions, left, metrics, who, key), whole=records)
    return reply(await work)
