"""Embeddings in OpenAI's form."""

import base64

import numpy as np
import pytest

pytest.importorskip("prometheus_client")

from starlette.testclient import TestClient

from keras_transformer.export import ArraySpec, Limits
from keras_transformer.export.serving.gateway import Gateway
from keras_transformer.export.serving.requests import Reader
from keras_transformer.export.serving.served_model import ServedModel
from keras_transformer.text import Bytes

AXES = ("batch", "length")
INPUTS = (ArraySpec("token_ids", "int32", (None, None), AXES), ArraySpec("padding_mask", "bool", (None, None), AXES))
VECTOR, OTHER = (ArraySpec(name, "float32", (None, 2), ("batch", None)) for name in ("pooled", "other"))


class Counts:
    """The vector of a text: its number of tokens and their sum."""

    async def predict(self, signature, arrays):
        mask = arrays["padding_mask"]
        vectors = np.stack([mask.sum(1), (arrays["token_ids"] * mask).sum(1)], axis=1).astype("float32")
        return {"other": -vectors, "pooled": vectors}, len(mask)

    async def is_healthy(self):
        pass


def client(outputs=(OTHER, VECTOR), tokenizer=True):
    limits = Limits(max_examples=3)
    reader = Reader({"serve": INPUTS}, limits, Bytes() if tokenizer else None)
    gateway = Gateway([ServedModel("encoder", Counts(), reader, {}, {"serve": outputs})], limits, 0)
    return TestClient(gateway.application)


def test_vectors_of_texts():
    found = client().post("/v1/embeddings", json={"model": "encoder", "input": ["ab", "c"]}).json()
    ids = [Bytes()(text)["token_ids"] for text in (["ab"], ["c"])]
    expected = [[each.size, each.sum()] for each in ids]
    assert [(each["index"], each["embedding"]) for each in found["data"]] == list(enumerate(expected))
    assert found["usage"]["prompt_tokens"] == sum(each.size for each in ids)
    asked = {"input": "ab", "encoding_format": "base64"}
    found = client((VECTOR,)).post("/v1/embeddings", json=asked).json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(found), "<f4").tolist() == expected[0]


@pytest.mark.parametrize(
    "asked, status, reason",
    [
        ({}, 400, "'input' is missing"),
        ({"input": []}, 400, "'input' must be text"),
        ({"input": [[1, 2]]}, 400, "'input' must be text"),
        ({"input": "a", "encoding_format": "int8"}, 400, "'encoding_format' must be"),
        ({"input": "a", "dimensions": 1}, 400, "Unknown parameter 'dimensions'"),
        ({"input": "a", "model": "other"}, 404, "there is no model 'other'"),
        ({"input": ["a"] * 4}, 413, "4 examples at once; at most 3"),
    ],
)
def test_what_is_refused(asked, status, reason):
    answer = client().post("/v1/embeddings", json=asked)
    assert (answer.status_code, reason in answer.json()["error"]["message"]) == (status, True)


def test_models_without_vectors():
    for other in (client((OTHER, ArraySpec("third", "float32", (None, 2), AXES))), client(tokenizer=False)):
        answer = other.post("/v1/embeddings", json={"input": "a"})
        assert (answer.status_code, "makes no embeddings" in answer.json()["error"]["message"]) == (400, True)


def long_client(predicted, **limits):
    class Recorded(Counts):
        async def predict(self, signature, arrays):
            predicted.append(arrays["token_ids"].shape)
            return await super().predict(signature, arrays)

    limits = Limits(**limits)
    reader = Reader({"serve": INPUTS}, limits, Bytes())
    model = ServedModel("encoder", Recorded(), reader, {}, {"serve": (VECTOR,)})
    return TestClient(Gateway([model], limits, 0).application)


def test_many_texts_are_computed_in_parts_of_bounded_memory():
    """As many sequences at once as keep the sum of the squares of their lengths below that of the longest one allowed."""
    predicted = []
    texts = ["abcdefgh"[: 1 + index % 8] for index in range(20)]
    found = long_client(predicted, max_tokens=16).post("/v1/embeddings", json={"input": texts}).json()
    length = predicted[0][1]
    assert all(rows * length**2 <= 16**2 for rows, _ in predicted)
    assert sum(rows for rows, _ in predicted) == 20
    ids = [Bytes()([text])["token_ids"] for text in texts]
    assert [each["embedding"] for each in found["data"]] == [[each.size, each.sum()] for each in ids]


def test_one_long_text_is_refused_before_it_is_computed():
    predicted = []
    answer = long_client(predicted).post("/v1/embeddings", json={"input": "a" * 30_000})
    assert answer.status_code == 413
    assert "a sequence of 30" in answer.json()["error"]["message"]
    assert not predicted
    asked = {"inputs": {"token_ids": [[1] * 16] * 2, "padding_mask": [[True] * 16] * 2}}
    answer = long_client(predicted, max_tokens=16).post("/v1/models/encoder:predict", json=asked)
    assert answer.status_code == 413
    assert "2 sequences of 16 tokens at once; at most 1" in answer.json()["error"]["message"]
