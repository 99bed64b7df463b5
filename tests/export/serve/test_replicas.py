"""Replicas of a bundle, without a server."""

import asyncio
import contextlib
import json

import numpy as np
import pytest

from keras_transformer.export import ExportError, load
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.serving.replicas import ArrayReplica, TextReplica, served_signatures
from keras_transformer.export.serving.requests import RequestError


def test_signatures_that_clients_may_name(exported):
    assert served_signatures(read_manifest(exported.bundle("two_signatures")), "onnx") == ["prefill", "decode_step"]
    assert served_signatures(read_manifest(exported.bundle("only_tflite").parent / "only"), "onnx") == []


def test_signatures_of_one_length_are_not_named(language):
    names = served_signatures(read_manifest(language.bundle("gpt")), "tflite")
    assert "decode" in names
    assert not any(name[-1].isdigit() for name in names)


def test_requests_of_several_signatures(exported):
    bundle = exported.bundle("two_signatures")
    replica = ArrayReplica(bundle)
    models = {name: load(bundle, signature=name) for name in ("prefill", "decode_step")}
    asks = [(name, models[name].example(batch=batch)) for batch in (1, 3) for name in models]
    answers, sizes = replica.run(asks)
    assert sizes == [4, 4]
    for (name, arrays), answer in zip(asks, answers, strict=True):
        np.testing.assert_allclose(answer["last"], models[name](arrays)["last"], atol=1e-6)


def test_values_that_cannot_be_computed_are_the_clients_fault(exported):
    replica = ArrayReplica(exported.bundle("encoder"))
    good = {"token_ids": np.array([[3, 4]], "int32"), "padding_mask": np.ones((1, 2), bool)}
    bad = {**good, "token_ids": np.array([[3, 10**6]], "int32")}
    answers, _ = replica.run([("serve", good), ("serve", bad)])
    assert answers[0]["pooled"].shape[0] == 1
    assert isinstance(answers[1], RequestError)
    assert answers[1].status == 422
    assert "\n" not in answers[1].reason


def test_a_replica_that_computes_something_else_says_so(exported):
    replica = ArrayReplica(exported.bundle("mlp"))
    probe = replica._probes["serve"]
    probe.outputs = {name: array + 0.01 for name, array in probe.outputs.items()}
    with pytest.raises(ExportError, match="does not compute what it computed when it was exported: 'probabilities'"):
        replica.check_health()


async def _answer(replica, asked, stop_after=None):
    messages = []
    async with contextlib.aclosing(replica.complete(json.dumps(asked).encode())) as stream:
        async for message in stream:
            messages.append(message)
            if stop_after is not None and len(messages) > stop_after:
                break
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])


def test_texts(language):
    bundle = language.bundle("gpt")
    replica = TextReplica(bundle, "gpt", num_blocks=16, block_size=4)
    expected = load(bundle).generate("Zeus", max_new_tokens=8, stop=None)
    asked = {"prompt": "Zeus", "max_tokens": 8, "temperature": 0}
    status, content = asyncio.run(_answer(replica, asked))
    assert (status, json.loads(content)["choices"][0]["text"]) == (200, expected)
    status, content = asyncio.run(_answer(replica, {**asked, "stream": True}))
    events = [json.loads(line[6:]) for line in content.decode().split("\n\n")[:-2]]
    assert "".join(event["choices"][0]["text"] for event in events) == expected
    status, content = asyncio.run(_answer(replica, {**asked, "max_tokens": 1000}))
    assert status == 400
    assert json.loads(content)["error"]["code"] == "context_length_exceeded"
    replica.check_health()
    asyncio.run(_answer(replica, {**asked, "stream": True}, stop_after=1))
    replica.engine.close(drain=True)
    assert replica.engine.stats()["running"] == 0
    with pytest.raises(ExportError, match="closed"):
        replica.check_health()
