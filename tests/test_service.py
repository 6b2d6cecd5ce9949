"""A service in this process: the same answers as Python, changes that are made as a whole, and errors in one sentence.

Covers newcomer.service.app, newcomer.service.answering, newcomer.service.shared, newcomer.service.forms,
newcomer.service.replies, newcomer.service.routes.questions, newcomer.service.routes.newcomers,
newcomer.service.routes.answers, newcomer.service.routes.model, newcomer.service.routes.health and
newcomer.service.routes.parameters.
"""

import json

import pytest

import newcomer
from newcomer.predictor import Predictor
from newcomer.predictor.answers import plain
from newcomer.service.forms import Questions
from service_world import NDJSON, YAN, ZOE, Inside, inside


@pytest.fixture(scope="module")
def model(people) -> Predictor:
    """A plain model with the facts that the service is told."""
    found = newcomer.load(people)
    found.add(ZOE)
    return found


@pytest.fixture(scope="module")
def asked(people, tmp_path_factory):
    """A service that knows zoe; nobody changes it."""
    with inside(people, tmp_path_factory.mktemp("asked")) as made:
        assert made.post("/v1/newcomers", {"facts": ZOE, "source": "registry"}).status_code == 200
        yield made


@pytest.fixture
def service(people, tmp_path):
    """A service over an empty store."""
    with inside(people, tmp_path) as made:
        yield made


def body(service: Inside, path: str, **content) -> dict:
    found = service.post(path, content)
    assert found.status_code == 200, found.text
    return found.json()


def problem(found, status: int) -> dict:
    assert found.status_code == status, found.text
    return found.json()


def same(value):
    """As JSON has it: tuples are lists."""
    return json.loads(json.dumps(plain(value)))


QUESTIONS = [
    ("tails", {"entity": "zoe", "relation": "citizen_of", "k": 3}, "answers"),
    ("tails", {"entity": "zoe", "relation": "lives_in", "k": 2, "known": True, "min_probability": 0.01}, "answers"),
    ("tails", {"entity": "p03", "relation": "knows", "types": ["city1"]}, "answers"),
    ("heads", {"entity": "city1", "relation": "lives_in", "k": 100, "known": True}, "answers"),
    ("suggest", {"entity": "zoe", "k": 5}, "suggestions"),
    ("suggest", {"entity": "zoe", "relations": ["citizen_of"], "min_probability": 0.1}, "suggestions"),
    ("classify", {"triples": [["zoe", "citizen_of", "land1"], ["p01", "knows", "p02"]]}, "verdicts"),
    ("embed", {"entity": "zoe"}, "vector"),
    ("embed", {"entity": "zoe", "relation": "citizen_of"}, "vector"),
    ("similar", {"entity": "zoe", "k": 4}, "similar"),
    ("confidence", {"entity": "zoe"}, "confidence"),
    ("neighbors", {"entity": "zoe"}, "neighbors"),
]


def in_python(model: Predictor, ask: str, question: dict):
    """What a model answers to the same words."""
    call = getattr(model, ask)
    if ask == "heads":
        rest = {name: value for name, value in question.items() if name not in ("relation", "entity")}
        return call(question["relation"], question["entity"], **rest)
    if ask == "embed":
        return call(**question).tolist()
    if ask == "similar":
        return [{"entity": name, "cosine": cosine} for name, cosine in call(**question)]
    return call(**question)


def without_reason(value):
    """Without the sentence, which Python gives as the text of `because`."""
    return [{k: v for k, v in one.items() if k != "reason"} if isinstance(one, dict) else one for one in value]


@pytest.mark.parametrize(("ask", "question", "name"), QUESTIONS)
def test_answers_are_those_of_python_to_the_bit(asked, model, ask, question, name):
    found = body(asked, f"/v1/{ask}", **question)
    expected = same(in_python(model, ask, question))
    mine = found[name] if isinstance(found[name], dict) else without_reason(found[name])
    assert mine == expected and expected
    assert (found["position"], found["complete"]) == (1, True)
    assert found["model"] == asked.shared.live.current.version


def test_the_reason_of_an_answer_is_the_text_of_its_explanation(asked, model):
    (best,) = body(asked, "/v1/tails", entity="zoe", relation="citizen_of", k=1)["answers"]
    assert best["reason"] == str(model.tails("zoe", "citizen_of", k=1)[0].because)
    (bare,) = body(asked, "/v1/tails", entity="zoe", relation="citizen_of", k=1, because=False)["answers"]
    assert bare == {name: best[name] for name in bare} and "because" not in bare and "reason" not in bare


def test_an_explanation_has_what_speaks_for_and_against_an_answer(asked, model):
    best, second = model.tails("zoe", "citizen_of", k=2)
    found = body(asked, "/v1/explain", entity="zoe", relation="citizen_of", k=2)["explanations"]
    for one, expected in zip(found, (best, second), strict=True):
        assert one["entity"] == expected.entity
        assert {name: one[name] for name in ("reasons", "without")} == {
            name: same(expected.because.to_dict())[name] for name in ("reasons", "without")
        }
    question = {"entity": "zoe", "relation": "citizen_of", "k": 2, "answer": second.entity}
    assert body(asked, "/v1/explain", **question)["explanations"] == found[1:]
    missing = asked.post("/v1/explain", question | {"answer": "city5"})
    assert problem(missing, 404)["field"] == "answer"
    facts = [one["fact"] for one in body(asked, "/v1/explain", entity="zoe", k=2)["explanations"]]
    assert facts == [list(one.fact) for one in model.suggest("zoe", k=2)]
    heads = body(asked, "/v1/explain", entity="city1", relation="lives_in", direction="heads", k=1)["explanations"]
    assert heads[0]["entity"] == model.heads("lives_in", "city1", k=1)[0].entity


def test_several_questions_are_answered_at_one_position(asked):
    questions = [{"ask": ask, **question} for ask, question, _ in QUESTIONS]
    found = body(asked, "/v1/questions", questions=[*questions, {"ask": "embed", "entity": "nobody"}])
    for (ask, question, name), result in zip(QUESTIONS, found["results"], strict=False):
        assert result[name] == body(asked, f"/v1/{ask}", **question)[name] and result["complete"]
    assert found["results"][-1]["problem"]["type"].endswith(":unknown-entity")
    assert len(found["results"]) == len(questions) + 1


def test_a_stream_answers_line_by_line(asked):
    questions = [{"ask": ask, **question} for ask, question, _ in QUESTIONS]
    wrong = [b"{", b"[1]", b'{"ask": "tails"}', b'{"ask": "embed", "entity": "nobody"}', b"\xff", b"[" * 100_000]
    text = b"\n".join([*(json.dumps(one).encode() for one in questions), b"", *wrong])
    found = asked.call("POST", "/v1/stream/questions", content=text, headers=NDJSON)
    lines = [json.loads(line) for line in found.text.splitlines()]
    for place, (ask, question, _) in enumerate(QUESTIONS):
        assert lines[place] == {"line": place + 1} | body(asked, f"/v1/{ask}", **question)
    assert [one["problem"]["status"] for one in lines[len(questions) :]] == [400, 422, 422, 404, 400, 400]
    assert [one["line"] for one in lines[len(questions) :]] == list(range(len(questions) + 2, len(questions) + 8))
    assert asked.shared.streams == 0


def test_a_line_of_a_stream_is_bounded(asked):
    found = asked.call("POST", "/v1/stream/questions", content=b"x" * 2_000_000, headers=NDJSON)
    assert json.loads(found.text)["problem"]["status"] == 413
    assert problem(asked.call("POST", "/v1/stream/questions", content=b"{}"), 415)


def test_facts_are_added_listed_retracted_and_removed(service):
    added = body(service, "/v1/newcomers", facts=[*ZOE, *YAN], source="registry")
    assert {name: added[name] for name in ("newcomers", "facts", "repeated", "skipped")} == {
        "newcomers": ["yan", "zoe"],
        "facts": 4,
        "repeated": 0,
        "skipped": 0,
    }
    again = body(service, "/v1/newcomers", facts=ZOE)
    assert (again["position"], again["facts"], again["repeated"]) == (1, 0, 2)
    one = service.get("/v1/newcomer", name="zoe").json()
    assert sorted(tuple(fact["fact"]) for fact in one["facts"]) == sorted([*ZOE, YAN[0]])
    assert {(fact["who"], fact["source"], fact["position"]) for fact in one["facts"]} == {("local", "registry", 1)}
    gone = body(service, "/v1/newcomers/retract", facts=[YAN[0]])
    assert (gone["position"], gone["left"], gone["facts"]) == (2, [], 1)
    gone = service.call("DELETE", "/v1/newcomer", params={"name": "yan"}).json()
    assert (gone["position"], gone["left"], gone["facts"]) == (3, ["yan"], 1)
    assert [one["name"] for one in service.get("/v1/newcomers").json()["newcomers"]] == ["zoe"]
    history = service.get("/v1/newcomer", name="yan", history=True).json()["facts"]
    assert [(fact["is_stated"], fact["position"]) for fact in history] == [(True, 1)] * 2 + [(False, 2), (False, 3)]
    kinds = [one["kind"] for one in service.get("/v1/log").json()["entries"]]
    assert kinds == ["add", "retract", "remove"]
    assert service.get("/v1/position").json()["position"] == 3
    problem(service.get("/v1/newcomer", name="yan"), 404)
    problem(service.call("DELETE", "/v1/newcomer", params={"name": "yan"}), 404)
    problem(service.call("DELETE", "/v1/newcomer", params={"name": "p03"}), 422)
    problem(service.post("/v1/newcomers/retract", {"facts": [YAN[0]]}), 404)


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        (["zoe", "likes", "p03"], 422, "facts.1"),
        (["p01", "knows", "p03"], 422, "facts.1"),
        (["zoe", "knows", " "], 422, "facts.1"),
        (["zoe", "knows", ""], 422, "facts.1.2"),
        (["zoe", "knows"], 422, "facts.1"),
        (["zoe", "knows", 3], 422, "facts.1.2"),
        (["zoe\0", "knows", "p03"], 422, None),
        (["zoe\ud800", "knows", "p03"], 422, "facts.1.0"),
    ],
)
def test_where_one_fact_is_wrong_none_is_stated(service, wrong, status, field):
    text = json.dumps({"facts": [["zoe", "lives_in", "city1"], wrong]})
    found = service.call("POST", "/v1/newcomers", content=text, headers={"Content-Type": "application/json"})
    assert problem(found, status).get("field") == field
    assert service.get("/v1/position").json()["position"] == 0


def test_facts_that_the_model_cannot_use_are_left_out_where_that_is_asked_for(service):
    facts = [*ZOE, ("zoe", "likes", "p03"), ("p01", "knows", "p03")]
    found = body(service, "/v1/newcomers", facts=facts, on_unknown_relation="skip", on_seen_fact="skip")
    assert (found["facts"], found["skipped"]) == (2, 2)


def test_a_request_with_its_key_is_done_once(service):
    headers = {"Idempotency-Key": "k1"}
    first = service.post("/v1/newcomers", {"facts": ZOE}, headers=headers)
    body(service, "/v1/newcomers", facts=YAN)
    assert service.post("/v1/newcomers", {"facts": ZOE}, headers=headers).json() == first.json()
    other = service.post("/v1/newcomers", {"facts": YAN}, headers=headers)
    assert problem(other, 422)["type"].endswith(":key-reused")
    assert service.get("/v1/position").json()["position"] == 2
    gone = service.call("DELETE", "/v1/newcomer", params={"name": "zoe"}, headers={"Idempotency-Key": "k2"})
    again = service.call("DELETE", "/v1/newcomer", params={"name": "zoe"}, headers={"Idempotency-Key": "k2"})
    assert gone.json() == again.json() and gone.status_code == 200
    problem(service.post("/v1/newcomers", {"facts": ZOE}, headers={"Idempotency-Key": "k" * 201}), 422)


def test_answers_are_kept_and_decided_on(service):
    body(service, "/v1/newcomers", facts=ZOE)
    found = body(service, "/v1/tails", entity="zoe", relation="citizen_of", k=2, record=True)
    suggested = body(service, "/v1/suggest", entity="zoe", k=2, record=True)
    nothing = body(service, "/v1/tails", entity="zoe", relation="citizen_of", min_probability=1.0, record=True)
    assert (found["recorded"], suggested["recorded"], nothing["recorded"]) == ([1, 2], [3, 4], [])
    listed = service.get("/v1/answers", entity="zoe").json()["answers"]
    assert [one["answer"] for one in listed[:2]] == [one["entity"] for one in found["answers"]]
    assert {(one["made_from"], one["model"], one["who"]) for one in listed} <= {
        (1, found["model"], "local"),
        (2, found["model"], "local"),
    }
    for one, fact in zip(listed[2:], suggested["suggestions"], strict=True):
        ends = [one["entity"], one["answer"]] if one["direction"] == "tails" else [one["answer"], one["entity"]]
        assert [ends[0], one["relation"], ends[1]] == fact["fact"]
    assert body(service, "/v1/answers/1/decision", verdict="accept", note="seen")["position"] == 4
    one = service.get("/v1/answers/1").json()
    assert one["answer"]["decision"] == one["decisions"][0] and one["decisions"][0]["verdict"] == "accept"
    assert [one["id"] for one in service.get("/v1/answers", decision="open", limit=2).json()["answers"]] == [2, 3]
    assert service.get("/v1/answers", decision="open", limit=2).json()["after"] == 3
    problem(service.get("/v1/answers/9"), 404)
    problem(service.post("/v1/answers/9/decision", {"verdict": "accept"}), 404)
    problem(service.post("/v1/answers/1/decision", {"verdict": "maybe"}), 422)


def test_what_several_questions_keep_is_one_change(service):
    body(service, "/v1/newcomers", facts=ZOE)
    question = {"ask": "tails", "entity": "zoe", "relation": "citizen_of", "k": 2}
    asked = [question | {"record": True}, question, question | {"ask": "heads", "entity": "land1", "record": True}]
    found = body(service, "/v1/questions", questions=asked)
    assert [one.get("recorded") for one in found["results"]] == [[1, 2], None, [3, 4]]
    assert service.get("/v1/position").json()["position"] == 2


def test_pages_follow_each_other(service):
    names = [f"n{number}" for number in range(7)]
    body(service, "/v1/newcomers", facts=[(name, "lives_in", "city1") for name in names])
    found, after = [], ""
    while after is not None:
        page = service.get("/v1/newcomers", limit=3, after=after, prefix="n").json()
        found += [one["name"] for one in page["newcomers"]]
        after = page["after"]
    assert found == names
    assert service.get("/v1/newcomers", prefix="x").json()["newcomers"] == []
    problem(service.get("/v1/newcomers", limit=0), 422)
    problem(service.get("/v1/newcomers", limit="many"), 422)
    assert problem(service.get("/v1/newcomers", lmit=3), 422)["field"] == "lmit"
    assert problem(service.get("/v1/newcomers", prefix=["a", "b"]), 422)["field"] == "prefix"


def test_any_name_can_be_a_newcomer(service):
    for name in ("..", "a/b", "http://example.org/x?y=1#z", "ä ö", "é\u202e", "%2F", "x" * 3_000):
        body(service, "/v1/newcomers", facts=[(name, "lives_in", "city1")])
        assert service.get("/v1/newcomer", name=name).json()["name"] == name
        assert body(service, "/v1/confidence", entity=name)["confidence"]["entity"] == name
        assert service.call("DELETE", "/v1/newcomer", params={"name": name}).json()["left"] == [name]


@pytest.mark.parametrize(
    ("path", "content", "status", "kind", "field"),
    [
        ("/v1/tails", {"entity": "nobody", "relation": "knows"}, 404, "unknown-entity", "entity"),
        ("/v1/tails", {"entity": "zoe", "relation": "knows", "types": ["nobody"]}, 404, "unknown-entity", None),
        ("/v1/tails", {"entity": "zoe", "relation": "likes"}, 422, "wrong-value", "relation"),
        ("/v1/tails", {"entity": "zoe"}, 422, "wrong-value", "relation"),
        ("/v1/tails", {"entity": "zoe", "relation": "knows", "k": 0}, 422, "wrong-value", "k"),
        ("/v1/tails", {"entity": "zoe", "relation": "knows", "k": True}, 422, "wrong-value", "k"),
        ("/v1/tails", {"entity": "zoe", "relation": "knows", "why": 1}, 422, "wrong-value", "why"),
        ("/v1/tails", {"entity": ["zoe"], "relation": "knows"}, 422, "wrong-value", "entity"),
        ("/v1/position?after=1", {}, 405, "wrong-method", None),
        ("/v1/tails?k=3", {"entity": "zoe", "relation": "knows"}, 422, "wrong-value", "k"),
        ("/v1/tails", [], 422, "wrong-value", None),
        ("/v1/explain", {"entity": "zoe", "answer": "p01"}, 422, "wrong-value", None),
        ("/v1/questions", {"questions": []}, 422, "wrong-value", "questions"),
        ("/v1/questions", {"questions": [{"ask": "why"}]}, 422, "wrong-value", "questions.0"),
        ("/v1/questions", {"questions": [{"ask": "embed", "entity": "zoe"}] * 101}, 413, "too-many", "questions"),
        ("/v1/classify", {"triples": [["zoe", "knows", "p01"]] * 101}, 413, "too-many", "triples"),
        ("/v1/newcomers", {"facts": [["x", "knows", "p01"]] * 10_001}, 413, "too-many", "facts"),
        ("/v1/nothing", {}, 404, "no-such-place", None),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(asked, path, content, status, kind, field):
    found = problem(asked.post(path, content), status)
    assert found["type"] == f"urn:newcomer:problem:{kind}" and found.get("field") == field


def test_the_sentence_is_that_of_python(asked, model):
    with pytest.raises(newcomer.NewcomerError) as error:
        model.tails("zoe", "livesin")
    assert problem(asked.post("/v1/tails", {"entity": "zoe", "relation": "livesin"}), 422)["detail"] == str(error.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"nothing", b"\xff\xfe", b'{"entity": "\xe4"}', b"[" * 100_000, b"9" * 10_000, b"\0"]
)
def test_a_body_that_is_no_json_is_refused(asked, content):
    found = asked.call("POST", "/v1/tails", content=content, headers={"Content-Type": "application/json"})
    assert found.status_code in (400, 422)


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_has_to_be_said_to_be_json(asked, media):
    found = asked.call("POST", "/v1/embed", content=b'{"entity": "zoe"}', headers={"Content-Type": media})
    assert problem(found, 415)["type"].endswith(":wrong-media-type")


def test_a_number_that_json_does_not_have_is_no_number(asked):
    text = b'{"entity": "zoe", "relation": "knows", "min_probability": NaN}'
    found = asked.call("POST", "/v1/tails", content=text, headers={"Content-Type": "application/json"})
    assert problem(found, 422)["field"] == "min_probability"


def test_the_model_tells_what_it_is(asked, model):
    card = asked.get("/v1/model").json()
    assert card["settings"] == same(model.bundle.config.to_dict()) and card["metrics"]["epochs"]
    assert card["counts"] == {
        "entities": 33,
        "newcomers": 4,
        "relations": 4,
        "facts": len(model.bundle.observed.triples),
    }
    assert card["store"] == {"newcomers": 1, "facts": 2, "answers": 0} and "history" not in card["metrics"]
    assert asked.get("/v1/relations").json()["relations"] == list(model.relations)


def test_it_is_alive_and_ready_until_the_store_is_gone(people, tmp_path):
    with inside(people, tmp_path) as service:
        assert service.get("/healthz").json() == {"status": "alive"}
        assert service.get("/readyz").json()["status"] == "ready"
        for path in tmp_path.glob("store.db*"):
            path.write_bytes(b"no database" * 1_000)
        assert problem(service.get("/readyz"), 503)["type"].endswith(":store-fault")
        found = problem(service.post("/v1/newcomers", {"facts": ZOE}), 503)
        assert str(tmp_path) not in found["detail"]
        assert service.get("/healthz").status_code == 200


def test_the_examples_of_the_description_are_answered(asked):
    described = asked.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    examples = {name: one["examples"] for name, one in described["components"]["schemas"].items() if "examples" in one}
    tried = 0
    for path, methods in described["paths"].items():
        schema = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        name = schema.get("schema", {}).get("$ref", "").rpartition("/")[2]
        if path.startswith("/v1/newcomers") or name == "Decide":
            continue  # they change the store
        for example in examples.get(name, ()):
            assert asked.post(path, example).status_code == 200
            tried += 1
    assert tried == len(QUESTIONS) - 2  # each kind of question once, and several at once
    assert Questions.model_validate(examples["Questions"][0]).questions[0].about == [["zoe"]]
