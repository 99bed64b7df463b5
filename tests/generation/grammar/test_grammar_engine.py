"""Grammars in an engine and over HTTP: each request has its own, and answers are those of `generate`."""

import http.client
import json
import socket
import threading

import jsonschema
import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from small_models import talking_model  # noqa: E402

from keras_transformer import tasks  # noqa: E402
from keras_transformer.generation import Engine, GrammarError, JsonSchema, Random, Regex  # noqa: E402
from keras_transformer.generation.engine.http import application  # noqa: E402
from keras_transformer.generation.grammar.grammar import library  # noqa: E402

TEMPLATE = "{% for each in messages %}{{ each.role }}: {{ each.content }}{{ eos_token }}{% endfor %}assistant:"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}
MESSAGES = [{"role": "user", "content": "the dog on the mat"}]


@pytest.fixture(scope="module")
def model():
    model = talking_model(TEMPLATE)
    model.compile(jit_compile=False)
    return model


@pytest.fixture(scope="module")
def engine(model):
    with Engine(model, num_blocks=64, block_size=8, max_batch_size=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def post(engine):
    """Returns a function that posts a body and returns the status and the JSON of the response, or the lines of a stream."""
    server = uvicorn.Server(uvicorn.Config(application(engine, "tiny"), log_level="error", lifespan="off"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()

    def post(path, **body):
        connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=60)
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, text if body.get("stream") else json.loads(text)

    yield post
    server.should_exit = True
    thread.join(10)


def test_requests_of_different_grammars_share_a_batch(model, engine):
    cases = [
        {"grammar": JsonSchema(SCHEMA), "sampler": Random(), "seed": 1, "max_new_tokens": 200},
        {"grammar": Regex("[a-f]{8}"), "max_new_tokens": 20},
        {"max_new_tokens": 20},
        {"grammar": JsonSchema(SCHEMA, compact=True), "repetition_penalty": 1.2, "max_new_tokens": 60},
        {"grammar": Regex("(cat|dog)( sat)?"), "sampler": Random(2.0), "seed": 5, "max_new_tokens": 20},
    ]
    requests = [engine.submit("the cat", **case) for case in cases]
    results = [request.result(60) for request in requests]
    assert results == [model.generate("the cat", **case) for case in cases]
    assert [request.finish_reason for request in requests][:2] == ["stop", "stop"]


def test_samples_of_one_prompt(model, engine):
    options = {"grammar": Regex("[a-z]{3,5}"), "sampler": Random(), "seed": 3, "max_new_tokens": 9}
    found = [each.result(60) for each in engine.submit_samples("the cat", 3, **options)]
    assert found == model.generate(["the cat"] * 3, **options)
    assert len(set(found)) > 1


def test_a_preempted_request_goes_on_with_its_grammar(model):
    options = {"grammar": Regex("[a-z]{60}"), "max_new_tokens": 61}
    with Engine(model, num_blocks=18, block_size=4, max_batch_size=4) as engine:
        requests = [engine.submit(text, **options) for text in ("the cat", "dog", "mat", "sat on")]
        found = [each.result(60) for each in requests]
        assert engine.stats()["preemptions"] > 0
    assert found == [model.generate(text, **options) for text in ("the cat", "dog", "mat", "sat on")]


def test_an_invalid_grammar_is_refused_at_once(engine):
    with pytest.raises(GrammarError, match="end of a text|where a text ends"):
        engine.submit("the cat", grammar=Regex("a"), stop="b")


def test_without_an_end_token_the_request_stops_with_its_grammar(model):
    model = tasks.LanguageModel(model.backbone, tokenizer=model.tokenizer)
    model.end_id = None
    model.compile(jit_compile=False)
    with Engine(model, num_blocks=16, block_size=8) as engine:
        request = engine.submit("the cat", grammar=Regex("cat|dog"), max_new_tokens=20)
        assert request.result(60) in ("cat", "dog")
        assert request.finish_reason == "stop"


@pytest.mark.parametrize("seed", range(3))
def test_a_chat_answers_with_json_of_the_schema(model, post, seed):
    asked = {"messages": MESSAGES, "response_format": FORMAT, "seed": seed, "temperature": 1, "max_tokens": 200}
    status, found = post("/v1/chat/completions", **asked)
    assert status == 200
    (choice,) = found["choices"]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    expected = model.chat(MESSAGES, grammar=JsonSchema(SCHEMA), sampler=Random(), seed=seed, max_new_tokens=200)
    assert choice["message"]["content"] == expected


def test_a_stream_has_the_same_text(model, post):
    asked = {"messages": MESSAGES, "response_format": FORMAT, "temperature": 0, "max_tokens": 100, "stream": True}
    _, text = post("/v1/chat/completions", **asked)
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2]]
    pieces = [event["choices"][0]["delta"].get("content", "") for event in events]
    assert "".join(pieces) == model.chat(MESSAGES, grammar=JsonSchema(SCHEMA), max_new_tokens=100)
    assert "".join(model.stream_chat(MESSAGES, grammar=JsonSchema(SCHEMA), max_new_tokens=100)) == "".join(pieces)


def test_a_completion_has_a_format_too(model, post):
    asked = {"prompt": "the cat", "response_format": FORMAT, "temperature": 0, "max_tokens": 100}
    status, found = post("/v1/completions", **asked)
    assert status == 200
    jsonschema.validate(json.loads(found["choices"][0]["text"]), SCHEMA)


def test_any_object(post):
    asked = {"messages": MESSAGES, "response_format": {"type": "json_object"}, "max_tokens": 12, "seed": 0}
    status, found = post("/v1/chat/completions", **asked)
    assert status == 200
    assert found["choices"][0]["message"]["content"].startswith("{")
    plain = {"messages": MESSAGES, "max_tokens": 12, "seed": 0}
    texts = [post("/v1/chat/completions", **plain, **more) for more in ({}, {"response_format": {"type": "text"}})]
    assert texts[0][1]["choices"] == texts[1][1]["choices"]


@pytest.mark.parametrize(
    "given, words",
    [
        ({"type": "xml"}, "text, json_object, json_schema"),
        ({"type": "json_schema"}, "'json_schema'"),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, "'schema'"),
        ({"type": "json_schema", "json_schema": {"schema": {"not": {}}}}, '"not"'),
        ("json_object", "an object"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_an_invalid_format_names_the_parameter(post, path, given, words):
    prompt = {"messages": MESSAGES} if "chat" in path else {"prompt": "the cat"}
    status, found = post(path, **prompt, response_format=given)
    assert (status, found["error"]["param"]) == (400, "response_format")
    assert words in found["error"]["message"]


def test_a_server_without_the_library_says_so(post, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    library.cache_clear()
    try:
        status, found = post("/v1/completions", prompt="the cat", response_format=FORMAT)
    finally:
        library.cache_clear()
    assert (status, found["error"]["param"]) == (400, "response_format")
    assert "[grammar]" in found["error"]["message"]


def test_a_conversation_keeps_its_cache(model):
    conversation = model.conversation()
    answers = [conversation.send("the cat", grammar=Regex("sat|mat"), max_new_tokens=9) for _ in range(2)]
    assert set(answers) <= {"sat", "mat"}
    expected = model.chat(conversation.messages[:3], grammar=Regex("sat|mat"), max_new_tokens=9)
    assert answers[1] == expected
