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
    assert str(made[0]) == "onnx: conversion failed: first (keras-transformer explain conversionerror)"
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


def test_the_type_that_tflite_lacks_is_read_from_the_converters_message():
    from keras_transformer.export.tflite.convert import _typed

    place = """loc(callsite(fused["AddV2:", "m_1/a_1/add@__f_1"] at fused["PartitionedCall:", "x@y"]))"""
    message = (
        f"<unknown>:0: error: {place}: 'tf.AddV2' op is neither a custom op nor a flex op\n<unknown>:0: note: {place}: see "
        """current operation: %1 = "tf.AddV2"(%0, %c) {device = ""} : (tensor<?x6xui16>, tensor<ui16>) -> tensor<?x6xui16>"""
    )
    error = _typed(message, lambda op, node: node, "")
    assert isinstance(error, errors.UnsupportedOpError)
    assert (
        "op AddV2 of layer 'm_1/a_1/add' has no built-in counterpart in this format: LiteRT does not have it of uint16"
        in (str(error))
    )
    assert "uint16" not in str(_typed(message.replace("ui16", "f32"), lambda op, node: node, ""))


def test_other_errors_of_tflites_converter_name_the_layer_and_the_cause():
    from keras_transformer.export.tflite.convert import _typed

    message = (
        'Could not translate MLIR to FlatBuffer.<unknown>:0: error: loc(callsite(fused["Conv2D:", "m/conv/Conv2D@__f_1"] at '
        """fused["PartitionedCall:", "x@y"])): 'tfl.conv_2d' op failed to verify its bias\n<unknown>:0: note: called from"""
    )
    error = _typed(message, lambda op, node: node.split("/")[1], "log")
    assert "tflite: conversion failed: layer 'conv': 'tfl.conv_2d' op failed to verify its bias; leave" in str(error)
    assert error.log == "log"


def test_why_a_handler_of_tf2onnx_fails_is_kept():
    import logging

    import onnx_ir as ir

    from keras_transformer.export.onnx.convert import _check_unsupported
    from keras_transformer.export.onnx.rewriters import failed_nodes

    logger = logging.getLogger("tf2onnx.tfonnx")
    with failed_nodes() as failed:
        try:
            raise ValueError("the rank is not known\nat all")
        except ValueError:
            logger.exception("Failed to convert node %r (fct=%r)\n%r", "m/a/Roll", print, "")
        logger.error("Tensorflow op [%s: %s] is not supported", "m/b/Erf", "Erf")
    assert list(failed) == ["m/a/Roll"]

    nodes = [ir.Node("", name, [], name=f"m/a/{name}") for name in ("Roll", "Relu")]
    model = ir.Model(ir.Graph([], [], nodes=nodes, opset_imports={"": 18}), ir_version=9)
    with pytest.raises(
        errors.UnsupportedOpError, match=r"onnx: op Roll of layer 'a' .*: tf2onnx fails: the rank is not known; "
    ):
        _check_unsupported(model, lambda op, node: node.split("/")[1], failed)
    # In a branch, a node has the name of that in front. ONNX has an operator of its name, with other attributes.
    inside = ir.Graph([], [], nodes=[ir.Node("", "Relu", [], name="m/cond_true_0_m/a/Roll")])
    branch = ir.AttrGraph("then_branch", inside)
    model = ir.Model(ir.Graph([], [], nodes=[ir.Node("", "If", [], [branch], name="m/cond")]), ir_version=9)
    with pytest.raises(errors.UnsupportedOpError, match=r"onnx: op Relu of .*: tf2onnx fails: the rank is not known; "):
        _check_unsupported(model, lambda op, node: "cond", failed)
