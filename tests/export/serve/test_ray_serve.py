"""The Ray Serve application in separate processes, if Ray is installed: load, a killed replica, overload."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

import numpy as np
import pytest

pytest.importorskip("ray.serve")

from keras_transformer.export import load

SCRIPT = pathlib.Path(__file__).parents[3] / "examples" / "serve.py"


# The application whose gateways are processes of Ray too, behind Ray's own server.
CLUSTER = """
import sys, time, ray
from ray import serve
from keras_transformer.export import ray_application
ray.init(include_dashboard=False, configure_logging=False)
serve.start(http_options={"port": int(sys.argv[sys.argv.index("--port") + 1])})
serve.run(ray_application(sys.argv[1], name="model", num_replicas=2, cpus_per_replica=0))
time.sleep(600)
"""


class Server:
    """Runs `examples/serve.py`, or another script, in a separate process."""

    def __init__(self, folder, bundle, *words, script=(str(SCRIPT),)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / "log"
        command = [sys.executable, *script, str(bundle), "--name", "model", "--cpus", "0", "--port", str(self.port)]
        self.mark = f"KERAS_TRANSFORMER_TEST={uuid.uuid4()}"
        environment = os.environ | dict([self.mark.split("=")])
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([*command, *map(str, words)], stdout=log, stderr=log, env=environment)

    def __enter__(self):
        for _ in range(300):
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError):
                if self.ask("health")[0] == 200:
                    return self
            time.sleep(0.2)
        raise TimeoutError(self.log.read_text())

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def ask(self, path, body=None, timeout=60):
        """Returns status and content."""
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def replicas(self, name):
        """Returns the processes of a deployment's replicas, found by their Ray name and this environment."""
        found = []
        for each in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_ours = self.mark.encode() in (each / "environ").read_bytes()
                if is_ours and f":{name}".encode() in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
        return found

    def ask_often(self, path, bodies, at_once):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda body: self.ask(path, body), bodies))


def kill_one(server, name):
    victims = server.replicas(name)
    assert len(victims) == 2
    os.kill(victims[0], signal.SIGKILL)


def test_arrays_under_load_with_a_replica_killed_and_overload(exported, tmp_path):
    bundle = exported.bundle("mlp")
    model = load(bundle)
    random = np.random.default_rng(0)
    (spec,) = model.inputs
    examples = [random.normal(size=(1 + index % 3, *spec.shape[1:])).astype("float32") for index in range(300)]
    bodies = [{"inputs": each.tolist()} for each in examples]
    path = "v1/models/model:predict"
    with Server(tmp_path, bundle, "--replicas", 2, "--max-batch-size", 4, "--max-waiting", 8) as server:
        with concurrent.futures.ThreadPoolExecutor(1) as killer:
            killed = killer.submit(lambda: (time.sleep(0.2), kill_one(server, "ArrayDeployment")))
            answers = server.ask_often(path, bodies, at_once=8)
            killed.result()
        for (status, content), given in zip(answers, examples, strict=True):
            assert status == 200, content
            for name, expected in model({spec.name: given}).items():
                np.testing.assert_allclose(json.loads(content)["outputs"][name], expected, atol=1e-5)
        figures = server.ask("metrics")[1].decode()
        assert f'keras_transformer_requests_total{{model="model",status="200"}} {len(bodies)}.0' in figures
        for body, status in ((b"{", 400), ({"inputs": [[1]]}, 400), (b" " * (5 << 20), 413)):
            found, content = server.ask(path, body)
            assert found == status
            assert "Traceback" not in content.decode()
            assert json.loads(content)["error"]["message"]
        # More than two replicas can queue: some are refused, the others answered; afterwards all are answered.
        statuses = [status for status, _ in server.ask_often(path, bodies * 2, at_once=128)]
        assert set(statuses) <= {200, 429}
        assert statuses.count(429) > 0
        assert [status for status, _ in server.ask_often(path, bodies[:20], at_once=4)] == [200] * 20


def test_a_stream_outlives_its_replica(language, tmp_path):
    bundle = language.bundle("gpt")
    expected = load(bundle).generate("Zeus", max_new_tokens=15, stop=None)
    asked = {"prompt": "Zeus", "max_tokens": 15, "temperature": 0}
    with Server(tmp_path, bundle, script=("-c", CLUSTER)) as server:
        status, content = server.ask("v1/completions", asked)
        assert (status, json.loads(content)["choices"][0]["text"]) == (200, expected)
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            streams = [pool.submit(server.ask, "v1/completions", {**asked, "stream": True}) for _ in range(64)]
            kill_one(server, "TextDeployment")
            for stream in streams:
                status, content = stream.result()
                lines = [line.removeprefix("data: ") for line in content.decode().split("\n\n") if line]
                assert status == 200
                assert lines.pop() == "[DONE]"
                assert "".join(json.loads(line)["choices"][0]["text"] for line in lines) == expected
        assert server.ask("v1/completions", {"prompt": "a" * 100, "max_tokens": 2})[0] == 400
        assert server.ask("health")[0] == 200


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_what_was_accepted_is_answered_and_nobody_else_is_let_in(exported, tmp_path, end):
    """28 of 30 requests were lost, and every process listened on every interface."""
    bundle = exported.bundle("mlp")
    model = load(bundle)
    (spec,) = model.inputs
    examples = np.random.default_rng(0).normal(size=(30, 1, *spec.shape[1:])).astype("float32")
    # Each batch waits for others for two seconds, so that the signal comes before the responses.
    with Server(tmp_path, bundle, "--wait-ms", 2000, "--max-batch-size", 64) as server:
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            address, port = line.split()[1].split(":")
            assert int(port, 16) != server.port or address == "0100007F"
        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            path = "v1/models/model:predict"
            answers = [pool.submit(server.ask, path, {"inputs": each.tolist()}) for each in examples]
            time.sleep(1)
            server.process.send_signal(end)
            answers = [each.result() for each in answers]
        assert [status for status, _ in answers] == [200] * 30
        for (_, content), each in zip(answers, examples, strict=True):
            for name, expected in model({spec.name: each}).items():
                np.testing.assert_allclose(json.loads(content)["outputs"][name], expected, atol=1e-5)
        assert server.process.wait(30) == 0


def environment_of(pid):
    content = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(each.partition("=")[::2] for each in content.split("\0") if each)


def ports_of(pid):
    """The TCP ports on which a process listens."""
    sockets = set()
    for each in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
    tables = [pathlib.Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()]
    listening = [line for line in lines if line[3] == "0A" and line[9] in sockets]
    return {int(line[1].rpartition(":")[2], 16) for line in listening}


@pytest.mark.exhaustive
def test_the_ports_of_replicas_need_the_token(exported, tmp_path):
    """One port of each is on every interface, and takes code to run from everyone who has the token."""
    grpc = pytest.importorskip("grpc")

    def status_of(port, *metadata):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/ray.rpc.CoreWorkerService/NumPendingTasks")
            try:
                call(b"", metadata=metadata, timeout=10)
            except grpc.RpcError as error:
                return error.code().name
        return "OK"

    with Server(tmp_path, exported.bundle("mlp")) as server:
        (pid,) = server.replicas("ArrayDeployment")
        token = environment_of(pid)["RAY_AUTH_TOKEN"]
        ports = ports_of(pid)
        answered = [port for port in ports if status_of(port, ("authorization", f"Bearer {token}")) == "OK"]
        assert answered
        for port in ports:
            assert status_of(port) != "OK"
            assert status_of(port, ("authorization", f"Bearer {'0' * len(token)}")) != "OK"
        for port in answered:
            assert status_of(port) == "UNAUTHENTICATED"
