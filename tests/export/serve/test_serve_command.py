"""The command `serve` with bundles of real models, in a process of its own."""

import concurrent.futures
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from starlette.testclient import TestClient

from keras_transformer.export import http_application, load
from keras_transformer.export.commands import main as cli

COMMAND = [sys.executable, "-m", "keras_transformer.export.commands.main"]


@contextlib.contextmanager
def served(*words):
    """Runs a server; yields its process and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*COMMAND, *map(str, words), "--port", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        while "serving" not in (line := process.stderr.readline()):
            assert line, "the server ended"
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def ask(url, body=None, headers=()):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, dict(headers)), timeout=30) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_two_bundles_until_a_signal(exported, end):
    mlp, two = exported.bundle("mlp"), exported.bundle("two_signatures")
    model = load(mlp)
    (spec,) = model.inputs
    arrays = np.random.default_rng(0).normal(size=(40, *spec.shape[1:])).astype("float32")
    with served("serve", f"first={mlp}", two, "--sessions", 2) as (process, address):
        names = [each["id"] for each in json.loads(ask(f"{address}/v1/models")[1])["data"]]
        assert names == ["first", "two_signatures"]
        found = json.loads(ask(f"{address}/v2/models/two_signatures_decode_step")[1])
        decode = load(two, signature="decode_step")
        assert [each["name"] for each in found["inputs"]] == [each.name for each in decode.inputs]
        inputs = {name: array.tolist() for name, array in decode.example(batch=2).items()}
        body = json.dumps({"signature_name": "decode_step", "inputs": inputs}).encode()
        outputs = json.loads(ask(f"{address}/v1/models/two_signatures:predict", body)[1])["outputs"]
        np.testing.assert_allclose(outputs["last"], decode(decode.example(batch=2))["last"], atol=1e-6)

        def infer(array):
            tensor = {"name": spec.name, "datatype": "FP32", "shape": [1, *array.shape], "parameters": {}}
            tensor["parameters"]["binary_data_size"] = array.nbytes
            head = json.dumps({"inputs": [tensor]}).encode()
            length = {"Inference-Header-Content-Length": str(len(head))}
            return ask(f"{address}/v2/models/first/infer", head + array.tobytes(), length)

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = [pool.submit(infer, array) for array in arrays]
            while sum(each.done() for each in answers) < 5:
                time.sleep(0.001)
            process.send_signal(end)
            answers = [each.exception() or each.result() for each in answers]
        expected = model({spec.name: arrays})
        for at, answer in enumerate(answers):
            if isinstance(answer, Exception):  # It came when nobody listened any more.
                assert at >= 20
                continue
            assert answer[0] in (200, 503)
            if answer[0] == 200:
                for found in json.loads(answer[1])["outputs"]:
                    np.testing.assert_allclose(found["data"], expected[found["name"]][at].ravel(), atol=1e-5)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_a_language_model_behind_the_same_application(language):
    bundle = language.bundle("gpt")
    client = TestClient(http_application({"gpt": bundle}), base_url="http://localhost")
    expected = load(bundle).generate("Zeus", max_new_tokens=9, stop=None)
    asked = {"model": "gpt", "prompt": "Zeus", "max_tokens": 9, "temperature": 0}
    assert client.post("/v1/completions", json=asked).json()["choices"][0]["text"] == expected
    lines = client.post("/v1/completions", json={**asked, "stream": True}).text.split("\n\n")
    texts = [json.loads(line.removeprefix("data: "))["choices"][0]["text"] for line in lines[:-2]]
    assert (lines[-2:], "".join(texts)) == (["data: [DONE]", ""], expected)
    assert client.post("/v1/completions", json={**asked, "model": "other"}).status_code == 404
    answer = client.post("/v1/models/gpt:predict", json={"inputs": [[1]]})
    assert "is a language model" in answer.json()["error"]["message"]
    assert client.get("/health").json()["finished"] == 2
    figures = client.get("/metrics").text
    assert 'keras_transformer_engine{figure="finished",model="gpt"} 2.0' in figures
    assert 'keras_transformer_requests_total{model="gpt",status="200"} 2.0' in figures


def test_what_the_command_refuses(exported, capsys, monkeypatch, tmp_path):
    bundle = str(exported.bundle("mlp"))
    for words, reason in (
        ([str(tmp_path)], "manifest"),
        ([f"a={bundle}", f"a={bundle}"], "different names"),
        ([bundle, "--backend", "tflow"], "tflow"),
        ([bundle, "--timeout", "nan"], "timeout_s must be positive"),
    ):
        assert cli.main(["serve", *words]) == 1
        assert reason in capsys.readouterr().err
    monkeypatch.setenv("KERAS_TRANSFORMER_API_KEY", "")
    assert cli.main(["serve", bundle]) == 1
    assert "KERAS_TRANSFORMER_API_KEY: the API key must be printable" in capsys.readouterr().err
    monkeypatch.delenv("KERAS_TRANSFORMER_API_KEY")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main(["serve", bundle, "--port", str(taken.getsockname()[1])]) == 1
        assert "in use" in capsys.readouterr().err
        words = ["serve", bundle, "--host", "0.0.0.0", "--port", str(taken.getsockname()[1])]
        assert cli.main(words) == 1
        assert "WARNING: everyone who reaches 0.0.0.0 may send requests" in capsys.readouterr().err
