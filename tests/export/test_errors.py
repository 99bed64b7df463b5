"""Failed exports name the cause, write nothing, and keep the existing bundle."""

import math

import pytest

from keras_transformer.export import errors

UNSUPPORTED = {
    "eigenvalues_tflite": ("tflite", "Eig", "my_values"),
    "functional_eigenvalues_tflite": ("tflite", "Eig", "eig"),
    "eigenvalues_onnx": ("onnx", "Eig", "my_values"),
    "map_tflite": ("tflite", "TensorListReserve", "rows"),
}
BAD = (*UNSUPPORTED, "noise", "wrong_erfc", "impossible_tolerance")


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_op_names_the_op_and_its_layer(exported, case):
    result = exported[case]
    assert result["error"] == "UnsupportedOpError"
    format, op, layer = UNSUPPORTED[case]
    assert (result["format"], result["op"], result["layer"]) == (format, op, layer)
    assert all(word in result["message"] for word in (format, op, layer))
    assert "\n" not in result["message"]


@pytest.mark.parametrize("case", BAD)
def test_nothing_is_left_and_the_old_bundle_survives(exported, case):
    result = exported[case]
    assert result["error"] is not None
    assert result["survived"]
    assert result["left"] == []
    assert result["inside"] == ["manifest.json", "model.onnx", "probes.npz", "report.html"]


def test_a_file_that_computes_something_else_is_refused_with_figures(exported):
    result = exported["wrong_erfc"]
    assert result["error"] == "ParityError"
    assert result["format"] == "onnx"
    assert float(result["difference"]) > 0.1
    assert float(result["scale"]) > 0.1
    assert f"output '{result['output']}'" in result["message"]


def test_tolerance_is_kept_to(exported):
    result = exported["impossible_tolerance"]
    assert result["error"] == "ParityError"
    assert 0 < float(result["difference"]) < 1e-5


def test_a_model_that_is_random_in_inference_is_refused(exported):
    assert exported["noise"]["error"] == "NotDeterministicError"
    assert "not deterministic" in exported["noise"]["message"]


def test_every_error_is_one_line():
    made = [
        errors.ConversionError("onnx", "first\nsecond", "log"),
        errors.UnsupportedOpError("tflite", "Erf", "a", [("Roll", "b")]),
        errors.ParityError("onnx", "y", "batch=1", math.nan, 1.0, 1e-5),
        errors.InputError("x", "float32 (batch, 3)", "nothing"),
        errors.UnknownFormatError("coreml", ("tflite", "onnx")),
        errors.OutOfSpaceError("/somewhere"),
    ]
    for error in made:
        assert isinstance(error, errors.ExportError)
        assert "\n" not in str(error)
    assert str(made[0]) == "onnx: conversion failed: first"
    assert "Roll of 'b'" in str(made[1])
    assert "tflite, onnx" in str(made[4])


def test_unsupported_ops_are_read_from_the_converters_message():
    from keras_transformer.export.tflite.convert import _typed

    message = (
        'Could not translate MLIR to FlatBuffer.<unknown>:0: error: loc(callsite(fused["Erf:", "m_1/a_1/Erf@__f_1"] at '
        """fused["StatefulPartitionedCall:", "x@y"])): 'tf.Erf' op is neither a custom op nor a flex op\n"""
        """<unknown>:0: error: loc(fused["Roll:", "m_1/b/Roll@__f_1"]): failed to legalize operation 'tf.Roll' that was"""
    )
    error = _typed(message, lambda op, node: node, "")
    assert (error.op, error.layer) == ("Erf", "m_1/a_1/Erf")
    assert error.others == (("Roll", "m_1/b/Roll"),)
    assert isinstance(_typed("something else\nand more", None, "log"), errors.ConversionError)
