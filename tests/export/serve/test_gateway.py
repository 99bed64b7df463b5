"""The gateway with simulated replicas: statuses and reasons, retries, resumed streams and metrics."""

import asyncio
import json

import numpy as np
import pytest
from starlette.testclient import TestClient

pytest.importorskip("prometheus_client")

from local_server import LocalServer, Sums, sums_gateway, wait_until

from keras_transformer.export import ArraySpec
from keras_transformer.export.serving.gateway import Gateway
from keras_transformer.export.serving.requests import Limits, Reader, RequestError
from keras_transformer.export.serving.served_model import ReplicaDiedError, ServedModel

X = ArraySpec("x", "float32", (None, 2), ("batch", None))
Y = ArraySpec("y", "float32", (None,), ("batch",))
LIMITS = Limits(max_bytes=500, max_examples=4, timeout_s=0.5)
GOOD = {"inputs": [[1, 2]]}


class Replicas:
    """Returns the given results in sequence, then correct ones."""

    def __init__(self, *told):
        self.told, self.asked = list(told), []

    async def predict(self, signature, arrays):
        self.asked.append(arrays)
        if self.told:
            told = self.told.pop(0)
            if isinstance(told, Exception):
                raise told
            await asyncio.sleep(told)
        return {"y": arrays["x"].sum(1)}, 3

    async def is_healthy(self):
        if self.told:
            raise self.told.pop(0)


class Writers:
    """Completion streams that break off after a number of events."""

    def __init__(self, *lengths, status=200):
        self.lengths, self.status, self.bodies = list(lengths), status, []

    async def complete(self, body, path):
        asked = json.loads(body)
        self.bodies.append(asked)
        number = len(self.bodies)
        kind = b"text/event-stream" if asked.get("stream") else b"application/json"
        yield {"type": "http.response.start", "status": self.status, "headers": [(b"content-type", kind)]}
        random = np.random.default_rng(asked["seed"])
        letters = [chr(97 + letter) for letter in random.integers(0, 26, 6)]
        if not asked.get("stream"):
            if self.lengths and self.lengths.pop(0) is not None:
                raise ReplicaDiedError
            yield {"type": "http.response.body", "body": json.dumps({"text": "".join(letters)}).encode()}
            return
        length = self.lengths.pop(0) if self.lengths else len(letters)
        for letter in letters[:length]:
            event = {"id": f"cmpl-{number}", "created": number, "choices": [{"index": 0, "text": letter}]}
            yield {"type": "http.response.body", "body": b"data: %s\n\n" % json.dumps(event).encode()}
        if length < len(letters):
            raise ReplicaDiedError
        yield {"type": "http.response.body", "body": b"data: [DONE]\n\n"}
        yield {"type": "http.response.body", "body": b""}

    async def is_healthy(self):
        pass


def arrays_client(*told, retries=3):
    replicas = Replicas(*told)
    model = ServedModel("model", replicas, Reader({"serve": (X,)}, LIMITS), {"id": "model"}, {"serve": (Y,)})
    gateway = Gateway([model], LIMITS, retries)
    return TestClient(gateway.application, raise_server_exceptions=False), replicas


def text_client(*lengths, **options):
    writers = Writers(*lengths, **options)
    gateway = Gateway([ServedModel("model", writers, None)], LIMITS, retries=3)
    return TestClient(gateway.application, raise_server_exceptions=False), writers


def figure(client, name):
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(f"keras_transformer_{name}")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_an_answer():
    client, _ = arrays_client()
    answer = client.post("/v1/models/model:predict", json=GOOD)
    assert (answer.status_code, answer.json()) == (200, {"outputs": {"y": [3.0]}})
    assert client.get("/v1/models").json()["data"][0]["id"] == "model"
    record = client.get("/v1/models/model").json()
    assert record == client.get("/v1/models").json()["data"][0]
    assert {name: type(value) for name, value in record.items()} == {
        "id": str,
        "object": str,
        "created": int,
        "owned_by": str,
    }
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "path, body, status, reason",
    [
        ("model:predict", b"{", 400, "not JSON"),
        ("model:predict", b'{"inputs": [[1]]}', 400, "(batch, 2) with batch=1, got int64 (1, 1)"),
        ("model:predict", b'{"inputs": [[1, 2]]}' + b" " * 500, 413, "more than 500 bytes"),
        ("other:predict", b'{"inputs": [[1, 2]]}', 404, "there is no model 'other'"),
        ("model", b"", 405, "Method Not Allowed"),
    ],
)
def test_what_is_refused_reaches_no_replica(path, body, status, reason):
    client, replicas = arrays_client()
    answer = client.post(f"/v1/models/{path}", content=body)
    assert answer.status_code == status
    assert reason in answer.json()["error"]["message"]
    assert not replicas.asked


@pytest.mark.parametrize(
    "told, status, reason",
    [
        (RequestError(422, "these values cannot be computed"), 422, "these values"),
        (RequestError(429, "all slots are taken"), 429, "all slots"),
        (RuntimeError("secret, line 12 of file.py"), 500, "the server failed: RuntimeError"),
        (2.0, 504, "no response within 0.5 seconds"),
    ],
)
def test_what_goes_wrong_behind_it(told, status, reason):
    client, _ = arrays_client(told)
    answer = client.post("/v1/models/model:predict", json=GOOD)
    assert answer.status_code == status
    assert reason in answer.json()["error"]["message"]
    assert "secret" not in answer.text
    assert ("retry-after" in answer.headers) == (status == 429)
    assert client.post("/v1/models/model:predict", json=GOOD).status_code == 200
    assert figure(client, "requests_total")[f'keras_transformer_requests_total{{model="model",status="{status}"}}'] == 1


def test_a_request_outlives_its_replicas():
    client, replicas = arrays_client(ReplicaDiedError(), ReplicaDiedError())
    assert client.post("/v1/models/model:predict", json=GOOD).json() == {"outputs": {"y": [3.0]}}
    assert len(replicas.asked) == 3
    assert figure(client, "retries_total") == {'keras_transformer_retries_total{model="model"}': 2}
    assert figure(client, "requests_in_progress") == {'keras_transformer_requests_in_progress{model="model"}': 0}
    assert figure(client, "batch_examples_sum") == {'keras_transformer_batch_examples_sum{model="model"}': 3}
    client, replicas = arrays_client(*[ReplicaDiedError()] * 5, retries=1)
    answer = client.post("/v1/models/model:predict", json=GOOD)
    assert answer.status_code == 503
    assert len(replicas.asked) == 2


def test_health_says_why_not():
    client, _ = arrays_client(ReplicaDiedError("no replica"))
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable", "reason": "no replica"})


def texts(answer):
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_stream_goes_on_where_it_was():
    """Also without a seed: the gateway draws one, so that all replicas generate the same text."""
    for seed in ({"seed": 5}, {}):
        client, writers = text_client(4, 0, 2)
        answer = client.post("/v1/completions", json={"prompt": "a", "stream": True, **seed})
        events = texts(answer)
        assert len(writers.bodies) == 4
        drawn = {body["seed"] for body in writers.bodies}
        assert len(drawn) == 1
        letters = np.random.default_rng(drawn.pop()).integers(0, 26, 6)
        assert [event["choices"][0]["text"] for event in events] == [chr(97 + letter) for letter in letters]
        assert {(event["id"], event["created"]) for event in events} == {("cmpl-1", 1)}


def test_a_stream_whose_replicas_all_die_ends_with_an_error():
    client, writers = text_client(2, 1, 0, 3)
    lines = client.post("/v1/completions", json={"prompt": "a", "stream": True}).text.split("\n\n")
    assert len(writers.bodies) == 4
    assert "every replica for this request has died" in json.loads(lines[3].removeprefix("data: "))["error"]["message"]
    assert "[DONE]" not in lines[-1]


def test_a_whole_text_is_asked_for_again():
    client, writers = text_client(0, 0)
    answer = client.post("/v1/completions", json={"prompt": "a", "seed": 3})
    letters = np.random.default_rng(3).integers(0, 26, 6)
    assert answer.json() == {"text": "".join(chr(97 + letter) for letter in letters)}
    assert len(writers.bodies) == 3


def test_a_client_that_goes_away_ends_its_text():
    class Endless:
        cancelled = 0

        async def complete(self, body, path):
            yield {"type": "http.response.start", "status": 200, "headers": []}
            try:
                await asyncio.sleep(20)
            finally:
                self.cancelled += 1

    writers = Endless()
    gateway = Gateway([ServedModel("model", writers, None)], Limits(), 0)
    with LocalServer(gateway.application) as server:
        body = b'{"prompt": "a"}'
        connection = server.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n", body)
        wait_until(lambda: server.server.traffic.active == 1)
        connection.close()
        wait_until(lambda: writers.cancelled == 1 and server.server.traffic.active == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/models/sums:predict", b'{"inputs": [[1, 2]]}'),
        (
            "/v2/models/sums/infer",
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}',
        ),
    ],
)
def test_arrays_of_a_client_that_has_gone_are_not_computed(path, body):
    sums = Sums()
    sums.gate.clear()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with LocalServer(sums_gateway(sums).application) as server:
        traffic = server.server.traffic
        computed = server.send(head, body)
        wait_until(lambda: sums.batches == [[1]])
        gone = [server.send(head, body) for _ in range(3)]
        wait_until(lambda: traffic.active == 4)
        for connection in gone:
            connection.close()
        wait_until(lambda: traffic.active == 1)
        sums.gate.set()
        assert computed.recv(100).startswith(b"HTTP/1.1 200")
        computed.close()
    assert sums.batches == [[1]]


def test_refusals_of_texts():
    client, writers = text_client()
    for asked, status, reason in (
        ({"prompt": 1}, 400, "'prompt' must be"),
        ({"prompt": "a", "model": "other"}, 404, "there is no model 'other'"),
        ({"prompt": "a", "temperature": "hot"}, 400, "'temperature' must be"),
        ({"prompt": "a" * 600}, 413, "more than 500 bytes"),
    ):
        answer = client.post("/v1/completions", json=asked)
        assert answer.status_code == status
        assert reason in answer.json()["error"]["message"]
        code = {400: "invalid_value", 404: "model_not_found", 413: "request_too_large"}[status]
        assert answer.json()["error"]["code"] == code
    assert not writers.bodies
    client, _ = text_client(status=429)
    answer = client.post("/v1/completions", json={"prompt": "a", "stream": False})
    assert answer.status_code == 429
