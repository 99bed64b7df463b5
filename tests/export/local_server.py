"""A server of a gateway in a thread, with a runtime that sums, and a client that sends bytes."""

import http.client
import json
import socket
import threading
import time

import numpy as np

from keras_transformer.export import ArraySpec, Batching, Limits
from keras_transformer.export.serving.gateway import Gateway
from keras_transformer.export.serving.local_replicas import LocalReplicas
from keras_transformer.export.serving.requests import Reader
from keras_transformer.export.serving.served_model import ServedModel
from keras_transformer.utils.http.access import Access
from keras_transformer.utils.http.server import Server, listen

X = ArraySpec("x", "float32", (None, 2), ("batch", None))
Y = ArraySpec("y", "float32", (None,), ("batch",))


class Sums:
    """A replica whose output is the sum of each example; it computes while its gate is open."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, requests):
        self.batches.append([len(arrays["x"]) for _, arrays in requests])
        self.gate.wait(20)
        return [{"y": arrays["x"].sum(1)} for _, arrays in requests], [sum(self.batches[-1])]

    def check_health(self):
        pass


def sums_gateway(replica=None, threads=1, access=None, limits=None, **batching):
    replicas = LocalReplicas([replica or Sums()] * threads, Batching(**{"wait_ms": 0, **batching}))
    limits = limits or Limits()
    model = ServedModel("sums", replicas, Reader({"serve": (X,)}, limits), {"id": "sums"}, {"serve": (Y,)}, "test")
    return Gateway([model], limits, 0, access or Access.of_address("127.0.0.1"))


class LocalServer:
    """Serves a guarded application on a free port until it is left."""

    def __init__(self, guard, connections=None, beside=None):
        self._listener = listen("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        self.server = Server(guard, connections, beside)
        options = {"kwargs": {"sockets": [self._listener]}, "daemon": True}
        self.thread = threading.Thread(target=self.server.run, **options)

    def __enter__(self):
        self.thread.start()
        wait_until(lambda: self.server.started)
        return self

    def __exit__(self, *_):
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()

    def send(self, *parts):
        """An open connection to which bytes were sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        for part in parts:
            connection.sendall(part)
        return connection

    def ask(self, method, path, body=None, headers=()):
        """Returns status, content and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        body = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content, response.headers

    def predict(self, inputs, **options):
        return self.ask("POST", "/v1/models/sums:predict", {"inputs": inputs}, **options)


def received(connection):
    """Everything until the server closes the connection."""
    content = b""
    while part := connection.recv(65536):
        content += part
    connection.close()
    return content


def wait_until(is_met, seconds=10):
    end = time.monotonic() + seconds
    while not is_met():
        assert time.monotonic() < end
        time.sleep(0.005)


def binary_body(array, **more):
    """The JSON of `infer` with one binary input, and its content."""
    content = np.ascontiguousarray(array).tobytes()
    given = {
        "name": "x",
        "datatype": "FP32",
        "shape": list(array.shape),
        "parameters": {"binary_data_size": len(content)},
    }
    head = json.dumps({"inputs": [given], **more}).encode()
    return head, content
