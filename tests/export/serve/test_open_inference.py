"""The Open Inference Protocol, byte by byte over HTTP, and over gRPC with messages of our own and of Triton's client."""

import asyncio
import contextlib
import json

import numpy as np
import pytest

pytest.importorskip("prometheus_client")

from local_server import LocalServer, binary_body, sums_gateway
from starlette.testclient import TestClient

from keras_transformer.export import Access, ArraySpec
from keras_transformer.export.serving.gateway import Gateway
from keras_transformer.export.serving.open_inference.tensors import from_bytes, from_lists, to_bytes
from keras_transformer.export.serving.requests import Limits, Reader, RequestError
from keras_transformer.export.serving.served_model import ServedModel

LENGTH = "Inference-Header-Content-Length"
DTYPES = {"BOOL": "bool", "INT64": "int64", "UINT8": "uint8", "FP16": "float16", "FP32": "float32", "FP64": "float64"}


class Echo:
    """Returns its inputs."""

    async def predict(self, signature, arrays):
        return {f"{name}_out": array for name, array in arrays.items()}, 1

    async def is_healthy(self):
        pass


def side(suffix, dtypes):
    axes = ("batch", None)
    return tuple(ArraySpec(f"{name}{suffix}", dtype, (None, 2), axes) for name, dtype in dtypes.items())


def echo_gateway(dtypes=None, limits=None):
    dtypes = dtypes or {"x": "float32", "n": "int32", "t": "string", "b": "bool"}
    limits = limits or Limits()
    names = {"serve": dtypes, "other": {"x": "float32"}}
    reader = Reader({name: side("", each) for name, each in names.items()}, limits)
    outputs = {name: side("_out", each) for name, each in names.items()}
    texts = ServedModel("gpt", Echo(), None, platform="test")
    return Gateway([ServedModel("echo", Echo(), reader, {}, outputs, "test"), texts], limits, 0)


@pytest.fixture
def client():
    return TestClient(echo_gateway().application, raise_server_exceptions=False)


X = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
INPUTS = [
    {**X, "data": [1.5, -2]},
    {"name": "n", "datatype": "INT32", "shape": [1, 2], "data": [[7, -7]]},
    {"name": "t", "datatype": "BYTES", "shape": [1, 2], "data": ["ä", ""]},
    {"name": "b", "datatype": "BOOL", "shape": [1, 2], "data": [True, False]},
]


def test_server_and_model_metadata(client):
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    found = client.get("/v2/models/echo/versions/1").json()
    assert (found["name"], found["versions"], found["platform"]) == ("echo", ["1"], "test")
    assert found["inputs"][2] == {"name": "t", "datatype": "BYTES", "shape": [-1, 2]}
    assert found["outputs"][0] == {"name": "x_out", "datatype": "FP32", "shape": [-1, 2]}
    assert [each["name"] for each in client.get("/v2/models/echo_other").json()["inputs"]] == ["x"]
    assert client.get("/v2/models/echo_other/ready").json() == {"name": "echo_other", "ready": True}
    names = [each["name"] for each in client.post("/v2/repository/index").json()]
    assert names == ["echo", "echo_serve", "echo_other", "gpt"]
    for path in ("none", "echo/versions/2", "none/ready"):
        assert client.get(f"/v2/models/{path}").status_code == 404
    assert client.get("/v2/models/none").json()["error"].startswith("there is no model 'none'")
    assert client.get("/v2/none").json() == {"error": "Not Found"}


def test_tensors_as_json(client):
    answer = client.post("/v2/models/echo/infer", json={"id": "7", "inputs": INPUTS})
    assert answer.json() == {
        "model_name": "echo",
        "model_version": "1",
        "id": "7",
        "outputs": [
            {**each, "name": f"{each['name']}_out", "data": np.ravel(each["data"]).tolist()} for each in INPUTS
        ],
    }
    asked = {"inputs": INPUTS, "outputs": [{"name": "n_out"}]}
    assert [each["data"] for each in client.post("/v2/models/echo/infer", json=asked).json()["outputs"]] == [[7, -7]]


def test_binary_tensors():
    """Bytes as the extension defines them: little endian, one byte for a BOOL, a length before each text."""
    contents = [
        b"\x00\x00\xc0\x3f\x00\x00\x00\xc0",
        b"\x07\x00\x00\x00\xf9\xff\xff\xff",
        b"\x02\x00\x00\x00\xc3\xa4\x00\x00\x00\x00",
        b"\x01\x00",
    ]
    inputs = [{key: each[key] for key in ("name", "datatype", "shape")} for each in INPUTS]
    for each, content in zip(inputs, contents, strict=True):
        each["parameters"] = {"binary_data_size": len(content)}
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    with LocalServer(echo_gateway().application) as server:
        headers = {LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
        status, body, found = server.ask("POST", "/v2/models/echo/infer", head + b"".join(contents), headers)
        assert (status, found["content-type"]) == (200, "application/octet-stream")
        size = int(found[LENGTH])
        assert body[size:] == b"".join(contents)
        outputs = json.loads(body[:size])["outputs"]
        assert [each["parameters"] for each in outputs] == [each["parameters"] for each in inputs]
        assert [each["shape"] for each in outputs] == [[1, 2]] * 4
        # One output as JSON, one input as JSON, in a request whose others are binary.
        given = [{**X, "data": [1.5, -2]}, *inputs[1:]]
        wanted = [{"name": "n_out", "parameters": {"binary_data": False}}, {"name": "b_out"}]
        asked = {"inputs": given, "outputs": wanted, "parameters": {"binary_data_output": True}}
        head = json.dumps(asked).encode()
        headers[LENGTH] = str(len(head))
        _, body, found = server.ask("POST", "/v2/models/echo/infer", head + b"".join(contents[1:]), headers)
        size = int(found[LENGTH])
        assert body[size:] == contents[3]
        assert json.loads(body[:size])["outputs"][0]["data"] == [7, -7]


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_there_and_back(datatype):
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(DTYPES[datatype])
    raw = to_bytes(values)
    assert raw == values.tobytes()
    for found in (
        from_bytes("x", datatype, [2, 3], memoryview(raw)),
        from_lists("x", datatype, [2, 3], values.tolist()),
        from_lists("x", datatype, [2, 3], values.ravel().tolist()),
    ):
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)


def body_of(change):
    """A request for one input that is changed."""
    given = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    for key, value in change.items():
        if value is None:
            del given[key]
        else:
            given[key] = value
    return {"inputs": [given]}


SIZE = {"parameters": {"binary_data_size": 8}, "data": None}
REFUSED = {
    "no inputs": ({}, "'inputs' must be a list"),
    "object": ({"inputs": [3]}, "an input must be an object"),
    "unknown": (body_of({"name": "y"}), "no input is named 'y'"),
    "name": (body_of({"name": 3}), "needs a 'name'"),
    "datatype": (body_of({"datatype": "FP31"}), "the datatype must be one of BOOL"),
    "shape": (body_of({"shape": [1, 3]}), "2 values, expected 3 for [1, 3]"),
    "negative": (body_of({"shape": [-1, -2]}), "the shape must be a list"),
    "huge": (body_of({"shape": [2**31, 2**31]}), "the shape must be a list"),
    "large": (body_of({"shape": [2**30, 2**30, 2**30]}), "expected"),
    "boolean": (body_of({"shape": [True, 2]}), "the shape must be a list"),
    "rank": (body_of({"shape": [1] * 40}), "at most 32 sizes"),
    "ragged": (body_of({"data": [[1], [2, 3]]}), "a ragged list"),
    "text": (body_of({"data": ["a", "b"]}), "the data are no FP32"),
    "range": (body_of({"datatype": "INT8", "data": [1, 300]}), "outside the range of INT8"),
    "float": (body_of({"datatype": "INT8", "data": [1, 3.5]}), "the data are no INT8"),
    "deep": (body_of({"data": json.loads("[" * 500 + "1" + "]" * 500)}), "the data"),
    "missing": (body_of({"data": None}), "neither 'data' nor 'binary_data_size'"),
    "both": (body_of({"parameters": {"binary_data_size": 0}}), "both 'data' and"),
    "beyond": (body_of(SIZE), "at most 0"),
    "minus": (body_of({**SIZE, "parameters": {"binary_data_size": -8}}), "at most 0"),
    "memory": (body_of({"parameters": {"shared_memory_region": "a"}}), "'shared_memory_region' is not supported"),
    "key": ({"inputs": [], "color": 1}, "unknown key 'color'"),
    "output": ({**body_of({}), "outputs": [{"name": "z"}]}, "there is no output 'z'; there is x_out"),
    "twice": ({"inputs": body_of({})["inputs"] * 2}, "given twice"),
    "sequence": ({**body_of({}), "parameters": {"sequence_id": 3}}, "'sequence_id' is not supported"),
    "id": ({**body_of({}), "id": 3}, "'id' must be text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(client, name):
    body, reason = REFUSED[name]
    answer = client.post("/v2/models/echo_other/infer", json=body)
    assert answer.status_code == 400, answer.text
    assert reason in answer.json()["error"]
    assert len(answer.json()["error"]) < 400


def test_binary_contents_that_do_not_fit(client):
    head, content = binary_body(np.ones((1, 2), "float32"))
    path = "/v2/models/echo_other/infer"
    good = client.post(path, content=head + content, headers={LENGTH: str(len(head))})
    assert good.json()["outputs"][0]["data"] == [1, 1]
    for body, length, reason in (
        (head + content[:-1], len(head), "at most 7"),
        (head + content + b"1", len(head), "1 bytes after the last input"),
        (head + content, len(head) - 1, "not JSON"),
        (head + content, len(head) + 9, "must be the size of the JSON"),
        (head + content, -1, "must be the size of the JSON"),
        (head + content, "9" * 30, "must be the size of the JSON"),
        (head + content, None, "not JSON"),
    ):
        answer = client.post(path, content=body, headers={} if length is None else {LENGTH: str(length)})
        assert answer.status_code == 400
        assert reason in answer.json()["error"]
    nan = binary_body(np.array([[np.nan, 1]], "float32"))
    answer = client.post(path, content=b"".join(nan), headers={LENGTH: str(len(nan[0]))})
    assert "too large" in answer.json()["error"]
    answer = client.post(path, content=b"x", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415
    for raw in (b"\x05\x00\x00\x00abc", b"\x05\x00", b"\x01\x00\x00\x00\xff"):
        with pytest.raises(RequestError):
            from_bytes("t", "BYTES", [1], memoryview(raw))
    with pytest.raises(RequestError, match="a BOOL is 0 or 1"):
        from_bytes("t", "BOOL", [1], memoryview(b"\x02"))


def test_other_kinds_of_models_and_limits(client):
    answer = client.post("/v2/models/gpt/infer", json=body_of({}))
    assert (answer.status_code, "is a language model" in answer.json()["error"]) == (400, True)
    small = TestClient(echo_gateway(limits=Limits(max_examples=1, max_bytes=500)).application)
    twice = body_of({"shape": [2, 2], "data": [1, 2, 3, 4]})
    answer = small.post("/v2/models/echo_other/infer", json=twice)
    assert (answer.status_code, answer.json()["error"]) == (413, "2 examples at once; at most 1")
    answer = small.post("/v2/models/echo_other/infer", content=b" " * 501)
    assert (answer.status_code, answer.json()["error"]) == (413, "the body has more than 500 bytes")


# gRPC.


@contextlib.contextmanager
def grpc_server(gateway):
    pytest.importorskip("grpc")
    from keras_transformer.export.serving.open_inference.grpc_service import GrpcServer

    beside = GrpcServer(gateway, "127.0.0.1", 0)
    with LocalServer(gateway.application, beside=beside) as server:
        yield server, f"127.0.0.1:{beside.port}"


def call(address, method, metadata=None, **fields):
    """The response to a message, with a channel and no generated code."""
    import grpc

    from keras_transformer.export.serving.open_inference.messages import MESSAGES, SERVICE

    with grpc.insecure_channel(address) as channel:
        serialize, parse = MESSAGES[f"{method}Request"].SerializeToString, MESSAGES[f"{method}Response"].FromString
        method_call = channel.unary_unary(f"/{SERVICE}/{method}", serialize, parse)
        return method_call(MESSAGES[f"{method}Request"](**fields), timeout=10, metadata=metadata)


def test_the_service():
    import grpc

    gateway = echo_gateway()
    with grpc_server(gateway) as (server, address):
        assert call(address, "ServerLive").live
        assert call(address, "ServerReady").ready
        assert call(address, "ModelReady", name="echo").ready
        assert call(address, "ServerMetadata").name == "keras_transformer"
        found = call(address, "ModelMetadata", name="echo")
        assert [(each.name, each.datatype, list(each.shape)) for each in found.inputs][1] == ("n", "INT32", [-1, 2])
        raw = {**X, "shape": [2, 2]}
        values = np.array([[1, 2], [3, -4]], "<f4")
        asked = {"model_name": "echo_other", "id": "9", "inputs": [raw]}
        found = call(address, "ModelInfer", **asked, raw_input_contents=[values.tobytes()])
        assert (found.model_name, found.id, found.outputs[0].name, list(found.outputs[0].shape)) == (
            *("echo_other", "9", "x_out"),
            [2, 2],
        )
        assert found.raw_output_contents[0] == values.tobytes()
        typed = [
            {**X, "contents": {"fp32_contents": [1, 2]}},
            {"name": "n", "datatype": "INT32", "shape": [1, 2], "contents": {"int_contents": [7, -7]}},
            {"name": "t", "datatype": "BYTES", "shape": [1, 2], "contents": {"bytes_contents": ["ä".encode(), b""]}},
            {"name": "b", "datatype": "BOOL", "shape": [1, 2], "contents": {"bool_contents": [True, False]}},
        ]
        found = call(
            address, "ModelInfer", model_name="echo", inputs=typed, outputs=[{"name": "n_out"}, {"name": "t_out"}]
        )
        assert found.raw_output_contents[0] == np.array([7, -7], "<i4").tobytes()
        assert found.raw_output_contents[1] == b"\x02\x00\x00\x00\xc3\xa4\x00\x00\x00\x00"
        code = grpc.StatusCode
        for fields, status, reason in (
            ({"model_name": "none"}, code.NOT_FOUND, "no model 'none'"),
            ({"model_name": "gpt"}, code.INVALID_ARGUMENT, "language model"),
            ({"model_name": "echo_other", "inputs": [raw]}, code.INVALID_ARGUMENT, "0 values in fp32_contents"),
            ({**asked, "raw_input_contents": [b"1"]}, code.INVALID_ARGUMENT, "1 bytes, expected 16"),
            ({**asked, "raw_input_contents": [b"", b""]}, code.INVALID_ARGUMENT, "2 raw_input_contents for 1 inputs"),
            ({**asked, "outputs": [{"name": "y"}]}, code.INVALID_ARGUMENT, "0 values"),
            ({**asked, "parameters": {"priority": {"int64_param": 1}}}, code.INVALID_ARGUMENT, "'priority' is not"),
            ({**asked, "raw_input_contents": [bytes(5 << 20)]}, code.RESOURCE_EXHAUSTED, "larger than max"),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call(address, "ModelInfer", **fields)
            assert refused.value.code() == status
            assert reason in refused.value.details()
        server.server.drain()
        with pytest.raises(grpc.RpcError) as refused:
            call(address, "ModelInfer", **asked)
        assert refused.value.code() == code.UNAVAILABLE


def test_the_service_needs_the_key():
    import grpc

    with grpc_server(sums_gateway(access=Access("secret"))) as (_, address):
        assert call(address, "ServerLive").live
        for metadata in (None, [("authorization", "Bearer other")]):
            with pytest.raises(grpc.RpcError) as refused:
                call(address, "ModelReady", metadata, name="sums")
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert call(address, "ModelReady", [("authorization", "Bearer secret")], name="sums").ready


def test_the_messages_are_those_of_tritons_client():
    """Numbers, types and labels of all fields. Its messages have further ones."""
    theirs = pytest.importorskip("tritonclient.grpc.service_pb2").DESCRIPTOR.pool
    from keras_transformer.export.serving.open_inference.messages import MESSAGES

    for name, message in MESSAGES.items():
        expected = theirs.FindMessageTypeByName(f"inference.{name}").fields_by_name
        for field in message.DESCRIPTOR.fields:
            found, other = field, expected[field.name]
            for each in ("number", "type", "is_repeated"):
                assert getattr(found, each) == getattr(other, each), field.full_name
            if field.message_type is not None:
                assert field.message_type.full_name == other.message_type.full_name


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritons_client(kind):
    triton = pytest.importorskip(f"tritonclient.{kind}")
    gateway = echo_gateway()
    with grpc_server(gateway) as (server, address):
        client = triton.InferenceServerClient(address if kind == "grpc" else f"127.0.0.1:{server.port}")
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("echo")
        assert not client.is_model_ready("none")
        found = client.get_model_metadata("echo_other")
        assert (found["name"] if kind == "http" else found.name) == "echo_other"
        arrays = {
            "x": np.array([[1.5, 2]], "float32"),
            "n": np.array([[3, -4]], "int32"),
            "t": np.array([["ä", "b"]], object),
            "b": np.array([[True, False]]),
        }
        types = {"x": "FP32", "n": "INT32", "t": "BYTES", "b": "BOOL"}
        inputs = [triton.InferInput(name, [1, 2], types[name]) for name in arrays]
        for each in inputs:
            each.set_data_from_numpy(arrays[each.name()])
        result = client.infer("echo", inputs, request_id="7")
        for name, array in arrays.items():
            expected = np.array([["ä".encode(), b"b"]], object) if name == "t" else array
            np.testing.assert_array_equal(result.as_numpy(f"{name}_out"), expected)
        result = client.infer("echo", inputs, outputs=[triton.InferRequestedOutput("n_out")])
        assert result.as_numpy("x_out") is None
        np.testing.assert_array_equal(result.as_numpy("n_out"), arrays["n"])
        with pytest.raises(Exception, match="no model 'none'"):
            client.infer("none", inputs)
        client.close()


def test_a_request_is_counted():
    gateway = sums_gateway()
    client = TestClient(gateway.application, base_url="http://localhost")
    head, content = binary_body(np.ones((3, 2), "float32"))
    assert client.post("/v2/models/sums/infer", content=head + content, headers={LENGTH: str(len(head))}).is_success
    figures = client.get("/metrics").text
    assert 'keras_transformer_requests_total{model="sums",status="200"} 1.0' in figures
    assert 'keras_transformer_batch_examples_sum{model="sums"} 3.0' in figures
    assert asyncio.run(gateway.figures()) == {"sums": {}}
