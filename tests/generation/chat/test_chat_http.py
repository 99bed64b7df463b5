"""Chat completions over HTTP: the answers of `chat`, whole and as a stream, and errors that name the parameter."""

import http.client
import json
import socket
import threading

import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from small_models import talking_model  # noqa: E402

from keras_transformer.generation import Engine  # noqa: E402
from keras_transformer.generation.engine.http import application  # noqa: E402

TEMPLATE = (
    "{% if tools %}{{ tools[0].function.name }}{% endif %}"
    "{% for each in messages %}{{ each.role }}: {{ each.content }}{{ eos_token }}{% endfor %}assistant:"
)
MESSAGES = [{"role": "system", "content": "sat"}, {"role": "user", "content": "the dog on the mat"}]


@pytest.fixture(scope="module")
def model():
    return talking_model(TEMPLATE)


@pytest.fixture(scope="module")
def post(model):
    """Returns a function that posts a body and returns the status and the text of the response."""
    with Engine(model, num_blocks=64, block_size=8) as engine:
        server = uvicorn.Server(uvicorn.Config(application(engine, "tiny"), log_level="error", lifespan="off"))
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()

        def post(**body):
            connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=60)
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()

        yield post
        server.should_exit = True
        thread.join(10)


def test_answer_is_that_of_chat(model, post):
    status, text = post(messages=MESSAGES, temperature=0, max_tokens=11)
    found, expected = json.loads(text), model.chat(MESSAGES, max_new_tokens=11)
    assert status == 200
    assert len(expected) > 3
    assert found["object"] == "chat.completion"
    assert found["choices"][0]["message"] == {"role": "assistant", "content": expected}
    assert found["choices"][0]["finish_reason"] == "length"
    prompt = len(model.generator().chat_prompt(MESSAGES))
    assert found["usage"] == {"prompt_tokens": prompt, "completion_tokens": 11, "total_tokens": prompt + 11}


def test_parts_tools_and_the_other_name_of_the_limit(model, post):
    tools = [{"type": "function", "function": {"name": "the dog", "parameters": {}}}]
    parts = [{"type": "text", "text": "the dog "}, {"type": "text", "text": "on the mat"}]
    body = {"messages": [MESSAGES[0], {"role": "user", "content": parts}], "tools": tools}
    _, text = post(**body, temperature=0, max_completion_tokens=9)
    found, prompts = (
        json.loads(text),
        [len(model.generator().chat_prompt(MESSAGES, tools=each)) for each in (tools, None)],
    )
    expected = model.chat(MESSAGES, tools=tools, max_new_tokens=9)
    assert found["choices"][0]["message"]["content"] == expected
    assert found["usage"]["prompt_tokens"] == prompts[0] > prompts[1]


def test_stream_has_the_same_text(model, post):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    _, text = post(messages=MESSAGES, temperature=0, max_tokens=11, n=2, **options)
    lines = text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert {each["object"] for each in events} == {"chat.completion.chunk"}
    assert events[-1]["usage"]["completion_tokens"] == 22
    for index in range(2):
        deltas = [each["choices"][0] for each in events[:-1] if each["choices"][0]["index"] == index]
        assert deltas[0]["delta"]["role"] == "assistant"
        assert all("role" not in each["delta"] for each in deltas[1:])
        assert "".join(each["delta"].get("content", "") for each in deltas) == model.chat(MESSAGES, max_new_tokens=11)
        assert deltas[-1]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "parameter", "words"),
    [
        ({}, "messages", "'messages' is missing"),
        ({"messages": []}, "messages", "not empty"),
        ({"messages": [{"role": "user"}]}, "messages", "Message 0"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "must be text"),
        ({"messages": MESSAGES, "prompt": "x"}, "prompt", "Unknown parameter"),
        ({"messages": MESSAGES, "response_format": {"type": "xml"}}, "response_format", "json_object"),
        ({"messages": MESSAGES, "max_tokens": 0}, "max_tokens", "positive"),
    ],
)
def test_errors_name_the_parameter(post, body, parameter, words):
    status, text = post(**body)
    assert status == 400
    assert json.loads(text)["error"]["param"] == parameter
    assert words in json.loads(text)["error"]["message"]
