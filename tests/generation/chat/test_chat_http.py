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
from keras_transformer.generation.chat.template import ChatTemplate  # noqa: E402
from keras_transformer.generation.engine.http import application  # noqa: E402

TEMPLATE = (
    "{% if tools %}{{ tools[0].function.name }}{% endif %}"
    "{% for each in messages %}{{ each.role }}: {{ each.content }}"
    "{% for call in each.tool_calls or [] %}{{ call.function.arguments.on }}{% endfor %}{{ eos_token }}"
    "{% endfor %}assistant:"
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


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"on": {"type": "boolean"}},
                "required": ["on"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("the", "dog")
]


def test_a_required_call_is_in_the_calls_of_the_answer(post):
    pytest.importorskip("llguidance")
    body = {"messages": MESSAGES, "tools": TOOLS, "temperature": 0, "max_tokens": 80}
    for choice, names in (("required", {"the", "dog"}), ({"type": "function", "function": {"name": "dog"}}, {"dog"})):
        status, text = post(**body, tool_choice=choice)
        assert status == 200, text
        (found,) = json.loads(text)["choices"]
        (call,) = found["message"]["tool_calls"]
        assert found["finish_reason"] == "tool_calls"
        assert found["message"]["content"] is None
        assert call["function"]["name"] in names
        assert isinstance(json.loads(call["function"]["arguments"])["on"], bool)
        _, text = post(**body, tool_choice=choice, stream=True)
        chunks = [json.loads(each.removeprefix("data: ")) for each in text.split("\n\n")[:-2]]
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
        assert chunks[-1]["choices"][0]["delta"]["tool_calls"][0]["function"] == call["function"]


def test_no_tools_are_told_where_none_may_be_called(model, post):
    _, text = post(messages=MESSAGES, tools=TOOLS, tool_choice="none", temperature=0, max_tokens=5)
    assert json.loads(text)["usage"]["prompt_tokens"] == len(model.generator().chat_prompt(MESSAGES))


def test_log_probabilities_of_a_chat(post):
    status, text = post(messages=MESSAGES, temperature=0, max_tokens=3, logprobs=True, top_logprobs=2)
    content = json.loads(text)["choices"][0]["logprobs"]["content"]
    assert status == 200
    assert len(content) == 3
    for each in content:
        assert each["logprob"] == each["top_logprobs"][0]["logprob"] > each["top_logprobs"][1]["logprob"]
        assert bytes(each["bytes"]).decode() == each["token"]


@pytest.mark.parametrize(
    "body, parameter, words",
    [
        (
            {"messages": [{"role": "bob", "content": "a"}]},
            "messages",
            "There is no role 'bob'. Valid: system, developer",
        ),
        ({"messages": MESSAGES, "tool_choice": "required"}, "tool_choice", "there are no 'tools'"),
        ({"messages": MESSAGES, "tools": [{"name": "a"}]}, "tools", "a list of functions"),
        (
            {"messages": MESSAGES, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "cat"}}},
            "tool_choice",
            "'tool_choice' names 'cat'",
        ),
        ({"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs", "needs 'logprobs'"),
        ({"messages": MESSAGES, "temperature": 9}, "temperature", "to 2"),
    ],
)
def test_parameters_of_openai_are_checked(post, body, parameter, words):
    status, text = post(**body)
    error = json.loads(text)["error"]
    assert (status, error["param"], error["code"]) == (400, parameter, "invalid_value")
    assert words in error["message"]


def test_a_call_and_its_result_are_told(model, post):
    """The content of a call is null, and its arguments are text, as `openai` sends them."""
    call = {"id": "c", "type": "function", "function": {"name": "the dog", "arguments": '{"on": "the mat"}'}}
    messages = [{"role": "user", "content": "sat"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    messages.append({"role": "tool", "tool_call_id": "c", "content": "the cat"})
    status, text = post(messages=messages, temperature=0, max_tokens=5)
    call = {**call, "function": {"name": "the dog", "arguments": {"on": "the mat"}}}
    messages[1] = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert status == 200
    assert json.loads(text)["choices"][0]["message"]["content"] == model.chat(messages, max_new_tokens=5)
    told = ChatTemplate.of(model.tokenizer).render(messages)
    assert told.startswith("user: sat</s>assistant: the mat</s>tool: the cat</s>")
    assert json.loads(text)["usage"]["prompt_tokens"] == len(model.generator().chat_prompt(messages))


def test_a_developer_speaks_as_the_system(model, post):
    _, text = post(messages=[{**MESSAGES[0], "role": "developer"}, MESSAGES[1]], temperature=0, max_tokens=5)
    assert json.loads(text)["choices"][0]["message"]["content"] == model.chat(MESSAGES, max_new_tokens=5)
