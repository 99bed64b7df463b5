"""The Responses API, whole and as events, by way of the chat completions of an engine."""

import json

import pytest

pytest.importorskip("prometheus_client")

from small_models import talking_model
from starlette.testclient import TestClient

from keras_transformer.export import Limits
from keras_transformer.export.serving.http_application import engine_gateway
from keras_transformer.generation import Engine
from keras_transformer.utils.http.access import Access

TEMPLATE = "{% for each in messages %}{{ each.role }}: {{ each.content }}{{ eos_token }}{% endfor %}assistant:"
SYSTEM, USER = {"role": "system", "content": "sat"}, {"role": "user", "content": "the dog on the mat"}


@pytest.fixture(scope="module")
def model():
    return talking_model(TEMPLATE)


@pytest.fixture(scope="module")
def client(model):
    with Engine(model, num_blocks=64, block_size=8) as engine:
        yield TestClient(engine_gateway(engine, "tiny", Limits(), Access()).application)


def test_a_response_is_the_answer_of_chat(model, client):
    asked = {"model": "tiny", "input": USER["content"], "instructions": "sat", "temperature": 0, "max_output_tokens": 9}
    found = client.post("/v1/responses", json=asked).json()
    expected = model.chat([SYSTEM, USER], max_new_tokens=9)
    (item,) = found["output"]
    assert item["content"] == [{"type": "output_text", "text": expected, "annotations": []}]
    assert (found["object"], found["model"], found["status"]) == ("response", "tiny", "incomplete")
    assert found["incomplete_details"] == {"reason": "max_output_tokens"}
    assert found["usage"]["output_tokens"] == 9
    parts = [{"role": "user", "content": [{"type": "input_text", "text": USER["content"]}]}]
    other = client.post("/v1/responses", json={**asked, "input": parts}).json()
    assert other["output"][0]["content"] == item["content"]


def test_events_have_the_same_text(model, client):
    asked = {"input": [SYSTEM, USER], "temperature": 0, "max_output_tokens": 9, "stream": True}
    blocks = client.post("/v1/responses", json=asked).text.split("\n\n")[:-1]
    events = [json.loads(each.partition("\ndata: ")[2]) for each in blocks]
    assert [each.partition("\n")[0] for each in blocks] == [f"event: {each['type']}" for each in events]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    kinds = [each["type"].removeprefix("response.") for each in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    expected = model.chat([SYSTEM, USER], max_new_tokens=9)
    assert "".join(each["delta"] for each in events if each["type"].endswith(".delta")) == expected
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == expected
    assert events[-1]["response"]["usage"]["output_tokens"] == 9


@pytest.mark.parametrize(
    ("asked", "status", "parameter", "words"),
    [
        ({}, 400, "input", "'input' is missing"),
        ({"input": "a", "previous_response_id": "resp_1"}, 400, "previous_response_id", "is not supported"),
        ({"input": [{"type": "function_call_output"}]}, 400, "input", "must be a message"),
        ({"input": "a", "temperature": 9}, 400, "temperature", "to 2"),
        ({"input": [{"role": "bob", "content": "a"}]}, 400, "messages", "no role 'bob'"),
        ({"input": "a", "model": "other"}, 404, None, "there is no model 'other'"),
    ],
)
def test_what_is_refused(client, asked, status, parameter, words):
    answer = client.post("/v1/responses", json=asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, parameter)
    assert words in answer.json()["error"]["message"]
