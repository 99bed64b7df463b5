"""Contents of TFLite files with the operations of one signature, from which large files are run."""

import numpy as np
import pytest

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.tflite import runtime as runtime_file
from keras_transformer.export.tflite.flatbuffer.signatures import content_of
from keras_transformer.export.tflite.generation_steps import TFLiteSteps
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.runtime import TFLiteRuntime
from keras_transformer.export.tflite.tree import read


def counts(model):
    return [len(graph.subgraph.operators) for graph in graphs(model)]


def test_other_signatures_keep_one_operation(language):
    path = language.bundle("rwkv") / "model.tflite"
    whole = read(path.read_bytes())
    for signature in whole.signatureDefs:
        part = read(content_of(path, signature.signatureKey.decode()))
        own = signature.subgraphIndex
        assert counts(part)[own] == counts(whole)[own] > 0
        others = [each.subgraphIndex for each in whole.signatureDefs if each is not signature]
        assert len(others) > 1
        assert {counts(part)[each] for each in others} == {1}
        for got, expected in zip(part.buffers, whole.buffers, strict=True):
            np.testing.assert_array_equal(got.data, expected.data)


def test_graphs_of_loops_stay(language):
    path = language.bundle("rwkv") / "model.tflite"
    whole = read(path.read_bytes())
    signatures = {each.subgraphIndex: each.signatureKey.decode() for each in whole.signatureDefs}
    bodies = {
        (signatures[number], operator.builtinOptions.bodySubgraphIndex)
        for number in signatures
        for operator in whole.subgraphs[number].operators
        if hasattr(operator.builtinOptions, "bodySubgraphIndex")
    }
    assert bodies
    for signature, body in bodies:
        assert counts(read(content_of(path, signature)))[body] == counts(whole)[body] > 0


@pytest.mark.parametrize("name", ["gpt", "translator", "rwkv"])
def test_large_files_compute_the_same(language, monkeypatch, name):
    bundle = language.bundle(name)
    arguments = str(bundle / "model.tflite"), "prefill", 1
    whole = TFLiteRuntime(*arguments)
    monkeypatch.setattr(runtime_file, "_LARGE", 0)
    split = TFLiteRuntime(*arguments)
    probes = read_probes(bundle)
    signatures = read_manifest(bundle).artifact("tflite").signatures
    for signature in signatures:
        inputs = probes[signature][0].inputs
        expected = whole.call(signature, inputs)
        for key, got in split.call(signature, inputs).items():
            np.testing.assert_array_equal(got, expected[key])
    assert len(signatures) > 3
    with pytest.raises(ValueError, match="absent"):
        split.call("absent", {})


def test_frugal_steps_keep_one_signature(language, monkeypatch):
    monkeypatch.setattr(runtime_file, "_LARGE", 0)
    bundle = language.bundle("gpt")
    manifest = read_manifest(bundle)
    found = []
    for is_frugal in (False, True):
        steps = TFLiteSteps(bundle, manifest, "tflite", 1)
        steps.is_frugal = is_frugal
        cache = steps.init_cache(2, 9)
        first, cache = steps.prefill([[1, 2], [3, 0]], [2, 1], cache)
        second, cache = steps.decode_step([[4], [5]], cache, [2, 1])
        found.append((first.logits, second.logits, *(steps.as_numpy(each) for each in cache.values())))
        assert list(steps._runtime._runners) == (["decode"] if is_frugal else ["prefill", "decode"])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)
