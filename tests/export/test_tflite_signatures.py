"""Signatures of fixed shapes, and the nodes that delegates accept."""

import collections

import numpy as np
import pytest
from tflite_files import constants, kinds, reference, run, share_of_scale

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.static_signatures import static_signatures
from keras_transformer.export.tflite.inspection import delegate_report
from keras_transformer.export.tflite.runtime import fitting_signature


def halves(tensors):
    return {"y": tensors["x"] * np.float32(0.5)}


def spec():
    inputs = (ArraySpec("x", "float32", (None, None, 3), ("batch", "length", None)),)
    probes = [Probe({"x": np.arange(2 * 4 * 3, dtype="float32").reshape(2, 4, 3)}, "batch=2, length=4")]
    return ExportSpec({"serve": Signature(halves, inputs, probes)})


def test_a_static_signature_computes_what_keras_computes(tflite):
    assert tflite["encoder"]["signatures"] == ["serve", "serve_2x16"]
    inputs, expected = reference(tflite.directory)
    path = tflite.directory / "encoder/model.tflite"
    (got,) = run(path, "serve_2x16", inputs).values()
    assert share_of_scale(got, expected) < 1e-5


def test_signatures_of_fixed_and_of_dynamic_shapes_share_their_weights(tflite):
    """With fixed shapes the converter folds the scale of an RMS norm into kernels, which would duplicate them."""
    tflite["decoder"]
    found = collections.Counter(shape for _, shape in constants(tflite.directory / "decoder/model.tflite").values())
    assert found == {(64, 64): 4, (128, 64): 1, (64, 128): 1, (300, 64): 1}


def test_its_probes_have_its_sizes_and_references_of_their_own():
    pytest.importorskip("tensorflow")
    found = static_signatures(spec(), [{"batch": 1, "length": 2}, {"length": 6, "batch": 3}])
    assert list(found.signatures) == ["serve", "serve_1x2", "serve_3x6"]
    static = found.signatures["serve_3x6"]
    assert static.formats == ("tflite",)
    assert static.inputs[0].shape == (3, 6, 3)
    assert static.inputs[0].axes == (None, None, None)
    x = static.probes[0].inputs["x"]
    assert x.shape == (3, 6, 3)
    np.testing.assert_array_equal(static.probes[0].outputs["y"], x / 2)
    np.testing.assert_array_equal(x[0, :4], spec().signatures["serve"].probes[0].inputs["x"][0])
    np.testing.assert_array_equal(found.signatures["serve_1x2"].probes[0].inputs["x"][0], x[0, :2])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch": 1, "width": 3}, r"names \['width'\].*\['batch', 'length'\]"),
        ({"batch": 1}, r"lacks \['length'\]"),
        ({"batch": 0, "length": 3}, "'batch' must be a positive integer, not 0"),
        ({"batch": 1, "length": 2.5}, "'length' must be a positive integer, not 2.5"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message):
    with pytest.raises(InvalidModelError, match=message):
        static_signatures(spec(), sizes)


def test_the_signature_of_exactly_the_shapes_is_chosen():
    dynamic = spec().signatures["serve"].inputs
    exact = (ArraySpec("x", "float32", (1, 8, 3), (None, None, None)),)
    signatures = {"serve": dynamic, "serve_1x8": exact}
    assert fitting_signature(signatures, "serve", {"x": np.zeros((1, 8, 3))}) == "serve_1x8"
    assert fitting_signature(signatures, "serve", {"x": np.zeros((1, 7, 3))}) == "serve"
    assert fitting_signature({"serve": dynamic, "other": exact}, "serve", {"x": np.zeros((1, 8, 3))}) == "serve"


def test_xnnpack_takes_a_static_encoder_in_one_piece(tflite):
    tflite["encoder"]
    dynamic, static = delegate_report(tflite.directory / "encoder/model.tflite")
    assert (dynamic.signature, static.signature) == ("serve", "serve_2x16")
    # Embedding lookup and mask use integers and booleans.
    assert static.partitions == 1
    assert {reason for _, reason in static.outside} <= {"type int32", "type bool"}
    assert static.taken == static.nodes - sum(static.outside.values()) > 80
    assert static.gpu == ()
    assert dynamic.gpu == ("dynamic shapes",)
    assert dynamic.taken < dynamic.nodes - 10
    assert "serve_2x16: XNNPACK takes" in str(static)
    assert "GPU: compatible" in str(static)


def test_loops_are_reported_by_themselves(tflite):
    tflite["decoder"]
    rows = {row.signature: row for row in delegate_report(tflite.directory / "decoder/model.tflite")}
    assert {"prefill", "decode", "generate", "decode_1", "prefill_4", "generate/loop 1"} <= set(rows)
    assert ("WHILE", "type bool") in rows["generate"].outside or any(
        op == "WHILE" for op, _ in rows["generate"].outside
    )
    assert rows["generate/loop 1"].taken > 20


def test_norms_are_light_and_the_factor_of_the_scores_lies_in_the_weights(tflite):
    tflite["encoder"]
    path = tflite.directory / "encoder/model.tflite"
    found = kinds(path)
    norms = found.count("RSQRT")
    assert norms == 5
    assert found.count("SUB") == norms
    assert "NEG" not in found
    # Two per norm, one for the mask, and one per layer for queries without visible keys.
    assert found.count("MUL") == 2 * norms + 1 + 2
    # Both signatures share the query weights.
    assert sum(shape == (64, 64) for _, shape in constants(path).values()) == 8
