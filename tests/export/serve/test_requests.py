"""Request bodies: parsing, and errors with their reasons."""

import json
import pickle

import numpy as np
import pytest

from keras_transformer.export import ArraySpec, ExportError
from keras_transformer.export.serving.requests import Limits, Reader, RequestError, write_outputs
from keras_transformer.text import Bytes

IDS = ArraySpec("token_ids", "int32", (None, None), ("batch", "length"))
MASK = ArraySpec("padding_mask", "bool", (None, None), ("batch", "length"))
X = ArraySpec("x", "float32", (None, 2), ("batch", None))
LIMITS = Limits(max_bytes=2000, max_examples=4)


@pytest.fixture
def reader():
    return Reader({"serve": (X,), "read": (IDS, MASK)}, LIMITS)


def body(inputs, **others):
    return json.dumps({"inputs": inputs, **others}).encode()


def test_arrays_by_name_and_alone(reader):
    for inputs in ([[1, 2], [3, 4.5]], {"x": [[1, 2], [3, 4.5]]}):
        signature, arrays = reader.read(body(inputs))
        assert signature == "serve"
        assert arrays["x"].dtype == "float32"
        assert arrays["x"].tolist() == [[1, 2], [3, 4.5]]
    inputs = {"token_ids": [[1, 2, 3]], "padding_mask": [[True, True, False]]}
    signature, arrays = reader.read(body(inputs, signature_name="read"))
    assert signature == "read"
    assert arrays["padding_mask"].tolist() == [[True, True, False]]


@pytest.mark.parametrize(
    "sent, status, reason",
    [
        (b"", 400, "the body is not JSON"),
        (b"\xff\xfe\x00", 400, "the body is not JSON"),
        (b"{", 400, "the body is not JSON"),
        (b'{"inputs": [[NaN, 1]]}', 400, "the body is not JSON"),
        (b"[" * 1500, 400, "the body is not JSON"),
        (b"[1]", 400, "must be a JSON object"),
        (b"null", 400, "must be a JSON object"),
        (b"{}", 400, "'inputs' is missing"),
        (b'{"inputs": null}', 400, "input 'x': expected float32"),
        (b'{"inputs": {}}', 400, "input 'x': expected float32 (batch, 2), got nothing"),
        (b'{"inputs": [[1, 2]], "more": 1}', 400, "unknown key 'more'"),
        (b'{"inputs": [[1, 2]], "signature_name": "other"}', 400, "no such signature_name; there is serve, read"),
        (b'{"inputs": [[1, 2]], "signature_name": ["serve"]}', 400, "no such signature_name"),
        (b'{"inputs": [[1, 2]], "signature_name": "read"}', 400, "must be an object with token_ids, padding_mask"),
        (b'{"inputs": {"y": [[1, 2]]}}', 400, "no input is named 'y': the input is named 'x'"),
        (b'{"inputs": [[1, 2], [3]]}', 400, "a ragged list"),
        (b'{"inputs": [[1, 2, 3]]}', 400, "(batch, 2) with batch=1, got int64 (1, 3)"),
        (b'{"inputs": [["1", 2]]}', 400, "got dtype <U"),
        (b'{"inputs": [[{}, 2]]}', 400, "got dtype object"),
        (b'{"inputs": [[1e999, 2]]}', 400, "number is infinity when parsed as double"),
        (b'{"inputs": [[1e39, 2]]}', 400, "input 'x' has a number that is too large for float32"),
        (b'{"inputs": []}', 400, "input 'x'"),
        (b'{"inputs": [[1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]}', 413, "5 examples at once; at most 4"),
        (b'{"inputs": [' + b"[1, 2]," * 400 + b"[1, 2]]}", 413, "more than 2000 bytes"),
        (b'{"inputs": ["a text"]}', 400, "no tokenizer"),
        (b'{"inputs": {"token_ids": [[1.5]], "padding_mask": [[1]]}, "signature_name": "read"}', 400, "token_ids"),
        (b'{"inputs": {"token_ids": [[1]], "padding_mask": [[1, 1]]}, "signature_name": "read"}', 400, "length=1"),
        (
            b'{"inputs": {"token_ids": [[99999999999]], "padding_mask": [[1]]}, "signature_name": "read"}',
            400,
            "outside",
        ),
        (
            b'{"inputs": {"token_ids": [[' + b"9" * 30 + b'1]], "padding_mask": [[1]]}, "signature_name": "read"}',
            400,
            "ids",
        ),
    ],
)
def test_what_is_refused(reader, sent, status, reason):
    with pytest.raises(RequestError) as refused:
        reader.read(sent)
    assert refused.value.status == status
    assert reason in refused.value.reason
    assert "\n" not in refused.value.reason
    assert len(refused.value.reason) < 400


def test_texts():
    reader = Reader({"serve": (IDS, MASK)}, LIMITS, Bytes())
    _, arrays = reader.read(body(["ab", "a"]))
    single = reader.read(body("ab"))[1]
    np.testing.assert_array_equal(arrays["token_ids"][:1], single["token_ids"])
    assert arrays["padding_mask"].sum(1).tolist()[0] == arrays["padding_mask"].sum(1).tolist()[1] + 1
    for inputs, status in ((["a"] * 5, 413), (["a", 1], 400)):
        with pytest.raises(RequestError) as refused:
            reader.read(body(inputs))
        assert refused.value.status == status


def test_as_many_examples_as_the_limit_are_read():
    reader = Reader({"serve": (IDS, MASK)}, LIMITS, Bytes())
    assert len(reader.read(body(["a"] * LIMITS.max_examples))[1]["token_ids"]) == LIMITS.max_examples
    arrays = Reader({"serve": (X,)}, LIMITS).read(body([[1, 2]] * LIMITS.max_examples))[1]
    assert len(arrays["x"]) == LIMITS.max_examples


def test_outputs_are_json_whatever_they_are():
    arrays = {
        "x": np.array([[1.5, np.nan], [np.inf, -1]], "float32"),
        "n": np.array([3], "int32"),
        "t": np.array(["é"]),
    }
    assert json.loads(write_outputs(arrays)) == {"outputs": {"x": [[1.5, None], [None, -1.0]], "n": [3], "t": ["é"]}}


def test_a_refusal_travels_between_processes():
    error = pickle.loads(pickle.dumps(RequestError(422, "no")))
    assert (error.status, error.reason) == (422, "no")


@pytest.mark.parametrize("wrong", [{"max_bytes": 0}, {"max_examples": 1.5}, {"timeout_s": -1}, {"max_bytes": True}])
def test_limits_out_of_range(wrong):
    with pytest.raises(ExportError, match=f"{next(iter(wrong))} must be positive"):
        Limits(**wrong)
