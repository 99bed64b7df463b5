"""Completions over HTTP with real sockets and a formula model: texts, errors and disconnecting clients."""

import dataclasses
import http.client
import json
import socket
import threading
import time

import numpy as np
import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from keras_transformer.generation import Engine, GenerationError, Generator, Random  # noqa: E402
from keras_transformer.generation.engine.http import application  # noqa: E402
from keras_transformer.text import Characters  # noqa: E402

TOKENIZER = Characters("abcdefgh ")


class Steps:
    """A formula that stores the tokens of each block."""

    model_version = 0
    keeps_slots, keeps_states = True, False

    def __init__(self, formula, num_blocks, block_size, max_batch_size, chunk_size, quantize):
        self.formula, self.block_size, self.chunk_size = formula, block_size, chunk_size
        self.spec = dataclasses.replace(formula.spec, max_length=(num_blocks - 1) * block_size)
        self.pool = np.zeros((num_blocks, block_size), int)
        self.gate = threading.Event()
        self.gate.set()
        self.error = None

    def step(self, token_ids, tables, cache_index, states):
        self.gate.wait(20)
        if self.error is not None:
            raise self.error
        logits = []
        for new, table, index in zip(token_ids, tables, cache_index, strict=True):
            for slot, token in enumerate(new, index):
                self.pool[table[slot // self.block_size], slot % self.block_size] = token
            read = self.pool[table].ravel()[: index + len(new)]
            logits.append(self.formula.formula(read[None], np.zeros((1, 1)))[0][0])
        return np.array(logits, "float32")

    def copy(self, pairs):
        for source, target in pairs:
            self.pool[target] = self.pool[source]

    def reset(self):
        pass


class Model:
    def __init__(self, formula, tokenizer):
        self.formula, self._generator = formula, Generator(formula, tokenizer)

    def generator(self):
        return self._generator

    def generate(self, *arguments, **options):
        return self._generator.generate(*arguments, **options)

    def paged_steps(self, num_blocks, block_size, **options):
        return Steps(self.formula, num_blocks, block_size, **options)


class Server:
    """An engine served by uvicorn on a free port."""

    def __init__(self, model, **options):
        self.model = model
        self.engine = Engine(model, **{"max_batch_size": 3, "num_blocks": 40, "block_size": 4, **options})
        config = uvicorn.Config(application(self.engine, "tiny"), log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    def close(self):
        self.engine.steps.gate.set()
        self.engine.close()
        self._server.should_exit = True
        self._thread.join(10)

    def call(self, method, path, body=None):
        """Returns status, JSON and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers

    def complete(self, **body):
        return self.call("POST", "/v1/completions", body)

    def events(self, **body):
        """Returns the events of a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = response.read().decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def wait(self, is_met):
        """Waits until the engine has the expected statistics."""
        deadline = time.monotonic() + 10
        while not is_met(stats := self.engine.stats()):
            assert time.monotonic() < deadline, stats
            time.sleep(0.002)


@pytest.fixture(scope="module")
def formula(models):
    return models.History(vocabulary_size=TOKENIZER.vocabulary_size, seed=1)


@pytest.fixture(scope="module")
def refusing(formula):
    server = Server(Model(formula, TOKENIZER))
    yield server
    server.close()


@pytest.fixture
def server(formula):
    server = Server(Model(formula, TOKENIZER), max_waiting=4)
    yield server
    server.close()


def test_a_completion_is_the_text_of_generate(server):
    sampler = Random(0.8, top_k=5, top_p=0.9)
    expected = server.model.generate("ab c", max_new_tokens=12, sampler=sampler, seed=3, repetition_penalty=1.2)
    asked = {"max_tokens": 12, "temperature": 0.8, "top_k": 5, "top_p": 0.9, "seed": 3, "repetition_penalty": 1.2}
    status, answer, _ = server.complete(model="tiny", prompt="ab c", **asked)
    assert status == 200
    assert answer["object"] == "text_completion"
    assert answer["model"] == "tiny"
    assert answer["choices"] == [{"index": 0, "text": expected, "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16}
    assert len(expected) > 5


def test_greedy_stop_several_prompts_and_token_ids(server):
    generate = server.model.generate
    prompts = ["abc", "h"]
    whole = generate(prompts, max_new_tokens=30)
    stop = whole[0][4]
    _, answer, _ = server.complete(prompt=prompts, max_tokens=30, temperature=0, stop=[stop, "zz"])
    assert [choice["text"] for choice in answer["choices"]] == generate(prompts, max_new_tokens=30, stop=[stop, "zz"])
    assert answer["choices"][0]["finish_reason"] == "stop"
    _, answer, _ = server.complete(prompt=TOKENIZER.encode("abc"), max_tokens=30, temperature=0)
    assert answer["choices"][0]["text"] == whole[0]


def test_several_texts_of_one_prompt(server):
    expected = server.model.generate(["abc"] * 3, max_new_tokens=9, sampler="random", seed=4)
    _, answer, _ = server.complete(prompt="abc", n=3, max_tokens=9, seed=4)
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 27


def test_a_stream_gives_the_same_text_in_pieces(server):
    expected = server.model.generate(["abc"] * 2, max_new_tokens=14, sampler="random", seed=4)
    events = server.events(prompt="abc", n=2, max_tokens=14, seed=4, stream_options={"include_usage": True})
    assert events.pop()["usage"] == {"prompt_tokens": 3, "completion_tokens": 28, "total_tokens": 31}
    choices = [event["choices"][0] for event in events]
    for index in range(2):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in own) == expected[index]
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["length"]
        assert len(own) > 5
    assert len({event["id"] for event in events}) == 1


def test_without_a_tokenizer_ids_come_and_go(formula):
    server = Server(Model(formula, None))
    try:
        expected = server.model.generate([1, 2], max_new_tokens=5)
        _, answer, _ = server.complete(prompt=[1, 2], max_tokens=5, temperature=0)
        assert answer["choices"][0]["token_ids"] == expected
        events = server.events(prompt=[1, 2], max_tokens=5, temperature=0)
        assert [token for event in events for token in event["choices"][0]["token_ids"]] == expected
        assert server.complete(prompt="ab")[0] == 400
    finally:
        server.close()


REFUSED = {
    "missing": ({}, "prompt", "'prompt' is missing"),
    "empty": ({"prompt": ""}, None, "Prompt 0 is empty"),
    "form": ({"prompt": {"a": 1}}, "prompt", "'prompt' must be text"),
    "mixed": ({"prompt": ["a", 1]}, "prompt", "'prompt' must be text"),
    "ids": ({"prompt": [1, 99]}, None, "token ids outside"),
    "tokens": ({"prompt": "a", "max_tokens": 0}, "max_tokens", "a positive integer"),
    "bool": ({"prompt": "a", "max_tokens": True}, "max_tokens", "a positive integer"),
    "temperature": ({"prompt": "a", "temperature": -1}, "temperature", "a number from 0"),
    "hot": ({"prompt": "a", "temperature": 9}, "temperature", "to 2"),
    "frequency": ({"prompt": "a", "frequency_penalty": 2.5}, "frequency_penalty", "from -2 to 2"),
    "bias": ({"prompt": "a", "logit_bias": {"a": 1}}, "logit_bias", "token ids"),
    "bias of no token": ({"prompt": "a", "logit_bias": {"99": 1}}, None, "logit_bias has the token 99"),
    "cold": ({"prompt": "a", "temperature": 1e-45}, "temperature", "0 (greedy), or a number from 0.0001"),
    "huge top_k": ({"prompt": "a", "top_k": 2**31}, "top_k", "below 2^31"),
    "huge max_tokens": ({"prompt": "a", "max_tokens": 10**30}, "max_tokens", "below 2^31"),
    "huge seed": ({"prompt": "a", "seed": 2**63}, "seed", "below 2^63"),
    "huge id": ({"prompt": [1, 2**40]}, None, "token ids outside"),
    "larger id": ({"prompt": [1, 10**30]}, "prompt", "'prompt' must be"),
    "negative id": ({"prompt": [1, -7]}, None, "token ids outside"),
    "small penalty": ({"prompt": "a", "repetition_penalty": 1e-300}, "repetition_penalty", "from 0.01 to 100"),
    "large penalty": ({"prompt": "a", "repetition_penalty": 1e300}, "repetition_penalty", "from 0.01 to 100"),
    "top_p": ({"prompt": "a", "top_p": 0}, "top_p", "above 0"),
    "stop": ({"prompt": "a", "stop": [""]}, "stop", "at most 16 texts"),
    "seed": ({"prompt": "a", "seed": -1}, "seed", "from 0"),
    "many": ({"prompt": ["a"] * 65, "n": 2}, "n", "must be at most 128"),
    "logprobs": ({"prompt": "a", "logprobs": 6}, "logprobs", "from 0 to 5"),
    "unknown": ({"prompt": "a", "color": 3}, "color", "Unknown parameter 'color'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused_with_a_reason(refusing, name):
    body, parameter, words = REFUSED[name]
    status, answer, _ = refusing.complete(**body)
    assert status == 400
    assert words in answer["error"]["message"]
    assert answer["error"]["param"] == parameter
    assert answer["error"]["type"] == "invalid_request_error"
    assert refusing.engine.stats()["tokens_read"] == 0


DEEP = b'{"a": ' * 40 + b"[" * 40 + b"]" * 40 + b"}" * 40


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        DEEP,
        b'{"prompt": "a", "messages": [], "response_format": ' + DEEP + b"}",
        b'{"prompt": ' + b"[" * 900 + b"1" + b"]" * 900 + b', "messages": []}',
        b'{"prompt": "a", "messages": [], "temperature": NaN}',
        b'{"prompt": "a", "messages": [], "temperature": 1e400}',
        b'{"prompt": "a", "messages": [], "repetition_penalty": Infinity}',
        b'{"prompt": "a", "messages": [], "seed": ' + b"9" * 5000 + b"}",
        b'{"prompt": "a", "messages": [], "max_tokens": -' + b"9" * 400 + b"}",
        b'{"prompt": "\xff", "messages": []}',
        b'{"prompt": "\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}',
    ],
    ids=range(13),
)
def test_absurd_bodies_are_the_clients_fault(refusing, path, body):
    status, answer, _ = refusing.call("POST", path, body)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert len(answer["error"]["message"]) < 400


def test_bodies_lengths_models_and_paths(server):
    assert server.call("POST", "/v1/completions", b"{")[0] == 400
    assert server.call("POST", "/v1/completions", b"[1]")[0] == 400
    status, answer, _ = server.complete(prompt="a" * 170, max_tokens=5)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert "exceeds the 160" in answer["error"]["message"]
    assert server.call("POST", "/v1/completions", b" " * (5 << 20))[0] == 413
    status, answer, _ = server.complete(prompt="a", model="other")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert server.call("GET", "/v1/completions")[0] == 405
    status, answer, _ = server.call("GET", "/v2")
    assert (status, answer["error"]["code"]) == (404, "404")
    assert server.complete(prompt="a", logprobs=None, echo=False, presence_penalty=0.0, user="me")[0] == 200


def test_models_and_health(server):
    _, answer, _ = server.call("GET", "/v1/models")
    (record,) = answer["data"]
    assert {name: type(value) for name, value in record.items()} == {
        "id": str,
        "object": str,
        "created": int,
        "owned_by": str,
    }
    assert record["id"] == "tiny"
    status, answer, _ = server.call("GET", "/health")
    assert (status, answer["status"], answer["blocks"], answer["blocks_used"]) == (200, "ok", 40, 0)
    server.engine.close()
    assert server.call("GET", "/health")[0] == 503
    status, answer, _ = server.complete(prompt="a")
    assert (status, answer["error"]["code"]) == (503, "engine_closed")


def test_a_full_queue_answers_429_and_what_it_took_is_answered(server):
    server.engine.steps.gate.clear()
    answers = []
    bodies = [{"prompt": "ab", "max_tokens": 5, "temperature": 0}] * 7
    threads = [threading.Thread(target=lambda body=body: answers.append(server.complete(**body))) for body in bodies]
    for count, thread in enumerate(threads, 1):
        thread.start()
        if count == 1:  # The first runs; the others that fit the batch join after its step.
            server.wait(lambda stats: stats["running"] == 1)
    server.wait(lambda stats: stats["waiting"] == 4)
    deadline = time.monotonic() + 10
    while len(answers) < 2 and time.monotonic() < deadline:
        time.sleep(0.002)
    assert [status for status, _, _ in answers] == [429, 429]
    assert answers[0][1]["error"]["code"] == "queue_full"
    assert answers[0][2]["retry-after"] == "1"
    # Several prompts are accepted or rejected together.
    assert server.complete(prompt=["a", "b"])[0] == 429
    server.engine.steps.gate.set()
    for thread in threads:
        thread.join(10)
    expected = server.model.generate("ab", max_new_tokens=5)
    assert [answer["choices"][0]["text"] for status, answer, _ in answers if status == 200] == [expected] * 5


def test_users_and_priorities_reach_the_engine(formula):
    server = Server(Model(formula, TOKENIZER), max_per_user=1)
    submitted, submit = [], server.engine.submit_samples

    def recorded(*arguments, **options):
        submitted.extend(found := submit(*arguments, **options))
        return found

    server.engine.submit_samples = recorded
    server.engine.steps.gate.clear()
    answers = []
    body = {"prompt": "ab", "max_tokens": 5, "temperature": 0, "user": "ada", "priority": 2}
    thread = threading.Thread(target=lambda: answers.append(server.complete(**body)))
    thread.start()
    server.wait(lambda stats: stats["running"] == 1)
    status, answer, _ = server.complete(**body)
    assert (status, "1 of at most 1" in answer["error"]["message"]) == (429, True)
    other = threading.Thread(target=lambda: answers.append(server.complete(**{**body, "user": "bob", "priority": -1})))
    other.start()
    server.wait(lambda stats: stats["running"] + stats["waiting"] == 2)
    server.engine.steps.gate.set()
    for each in (thread, other):
        each.join(10)
    assert [status for status, _, _ in answers] == [200, 200]
    assert sorted((request.user, request.priority) for request in submitted) == [("ada", 2), ("bob", -1)]
    assert server.complete(**{**body, "priority": "high"})[0] == 400
    server.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_its_requests(server, stream):
    server.engine.steps.gate.clear()
    client = socket.create_connection(("127.0.0.1", server.port))
    body = json.dumps({"prompt": ["ab", "cd"], "n": 2, "max_tokens": 100, "stream": stream}).encode()
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    server.wait(lambda stats: stats["running"] > 0)
    client.close()
    time.sleep(0.1)
    server.engine.steps.gate.set()
    server.wait(lambda stats: stats["finished"] == 4)
    assert server.engine.stats()["blocks_used"] == 0
    assert server.engine.stats()["tokens_written"] < 40


def test_a_failing_model_is_the_servers_error(server):
    server.engine.steps.error = RuntimeError("broken")
    status, answer, _ = server.complete(prompt="ab")
    assert (status, answer["error"]["type"]) == (500, "server_error")
    assert answer["error"]["message"] == "The model failed: RuntimeError: broken"
    events = server.events(prompt="ab")
    assert events[-1]["error"]["code"] == "failed"
    server.engine.steps.error = None
    assert server.complete(prompt="ab")[0] == 200


def test_what_a_request_leaves_out_is_as_the_model_says(formula):
    """Without a word of the model, the text of `generate`; otherwise its own sampling."""
    server = Server(Model(formula, TOKENIZER))
    assert server.complete(prompt="abc", max_tokens=9)[1]["choices"][0]["text"] == server.model.generate(
        "abc", max_new_tokens=9
    )
    server.close()
    model = Model(formula, TOKENIZER)
    model.metadata = {"sampling": {"temperature": 0.7, "top_k": 5, "repetition_penalty": 1.3}}
    server = Server(model)
    try:
        own = {"max_new_tokens": 9, "seed": 2, "repetition_penalty": 1.3}
        _, answer, _ = server.complete(prompt="abc", max_tokens=9, seed=2)
        assert answer["choices"][0]["text"] == model.generate("abc", sampler=Random(0.7, top_k=5), **own)
        _, answer, _ = server.complete(prompt="abc", max_tokens=9, seed=2, temperature=1.5, top_k=3)
        assert answer["choices"][0]["text"] == model.generate("abc", sampler=Random(1.5, top_k=3), **own)
    finally:
        server.close()
    model.metadata = {"sampling": {"heat": 1}}
    with pytest.raises(GenerationError, match="'sampling': Unknown defaults of sampling: heat; valid: temperature"):
        Engine(model, num_blocks=4, block_size=4)


def logits_of(server, tokens):
    """The logits of the formula after tokens."""
    return server.model.formula.formula(np.array(tokens)[None], np.zeros((1, 1)))[0][0]


def test_log_probabilities_are_those_of_the_model(server):
    _, answer, _ = server.complete(prompt="ab", max_tokens=4, temperature=0, logprobs=2)
    found = answer["choices"][0]["logprobs"]
    prompt = TOKENIZER.encode("ab")
    tokens = server.model.generate(prompt, max_new_tokens=4)
    assert found["tokens"] == [TOKENIZER.decode([each]) for each in tokens]
    for index, token in enumerate(tokens):
        logits = logits_of(server, [*prompt, *tokens[:index]]).astype("float64")
        expected = logits - np.log(np.exp(logits).sum())
        np.testing.assert_allclose(found["token_logprobs"][index], expected[token], atol=1e-5)
        np.testing.assert_allclose(sorted(found["top_logprobs"][index].values()), np.sort(expected)[-2:], atol=1e-5)
    events = server.events(prompt="ab", max_tokens=4, temperature=0, logprobs=2)
    streamed = [each for event in events for each in event["choices"][0]["logprobs"]["token_logprobs"]]
    np.testing.assert_allclose(streamed, found["token_logprobs"])


def test_penalties_and_biases_change_logits(server):
    """A bias of 100 writes one token always; with a penalty that is larger, it is written once less."""
    (token,) = TOKENIZER.encode("c")
    body = {"prompt": "ab", "max_tokens": 5, "temperature": 0}
    _, answer, _ = server.complete(**body, logit_bias={str(token): 100})
    assert answer["choices"][0]["text"] == "ccccc"
    _, plain, _ = server.complete(**body, logit_bias={str(token): -100})
    assert "c" not in plain["choices"][0]["text"]
    written = []
    for _ in range(5):
        logits = np.array(logits_of(server, [*TOKENIZER.encode("ab"), *written]), "float32")
        counts = np.bincount(written, minlength=len(logits))
        written.append(int((logits - 1.5 * counts - 0.5 * (counts > 0)).argmax()))
    _, answer, _ = server.complete(**body, frequency_penalty=1.5, presence_penalty=0.5)
    assert answer["choices"][0]["text"] == TOKENIZER.decode(written)


def test_a_schema_of_many_properties_is_refused_at_once(refusing):
    schema = {"type": "object", "properties": {f"name_{index}": {"type": "integer"} for index in range(3000)}}
    status, answer, _ = refusing.complete(
        prompt="a", response_format={"type": "json_schema", "json_schema": {"schema": schema}}
    )
    assert (status, answer["error"]["param"]) == (400, "response_format")
    assert "The schema has 6002 properties and items; at most 2000" in answer["error"]["message"]
