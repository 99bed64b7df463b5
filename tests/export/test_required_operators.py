"""The configuration file of a reduced build of ONNX Runtime: its lines by hand, and as the runtime's tools have them."""

import pathlib
import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from keras_transformer.export import ConversionError, InvalidBundleError, required_operators


@pytest.fixture
def path(tmp_path):
    """MatMul, Gelu, and a Gather by int32 indices; ONNX Runtime fuses Add into Gemm, and folds Mul of two constants."""
    values = {
        "a": np.ones((3, 2), "float32"),
        "b": np.ones(2, "float32"),
        "c": np.ones(2, "float32"),
        "table": np.ones((5, 3), "float32"),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "a"], ["product"]),
        helper.make_node("Mul", ["b", "c"], ["bias"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Gelu", ["sum"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT32, [4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 2])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, tmp_path / "graph.onnx")
    return tmp_path / "graph.onnx"


def test_the_lines(path):
    """Each operator is at the version that introduced it; those before the optimization and after it are both there."""
    comment, *lines = required_operators(path).splitlines()
    assert comment == "# Operators of graph.onnx"
    of_floats = '{"inputs": {"0": ["float"]}}'
    assert lines == [
        'ai.onnx;13;Gather{"inputs": {"0": ["float"], "1": ["int32_t"]}},' + f"Gemm{of_floats},MatMul{of_floats}",
        f"ai.onnx;14;Add{of_floats},Mul{of_floats}",
        "ai.onnx;20;Gelu",
    ]
    without = required_operators(path, types=False)
    assert "{" not in without
    assert re.sub(r"\{.*?\}\}", "", "\n".join(lines)) == "\n".join(without.splitlines()[1:])


def test_the_lines_are_those_of_the_tools_of_onnx_runtime(path, tmp_path):
    """The tool converts at one level, so its lines are compared for a graph that is already optimized."""
    from onnxruntime.tools.convert_onnx_models_to_ort import OptimizationStyle, convert_onnx_models_to_ort

    folder = tmp_path / "optimized"
    folder.mkdir()
    model = onnx.load(path)
    del model.graph.node[1:]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, [4, 3]))
    onnx.save(model, folder / "plain.onnx")
    convert_onnx_models_to_ort(
        folder, optimization_styles=[OptimizationStyle.Fixed], enable_type_reduction=True, target_platform="arm"
    )
    (config,) = pathlib.Path(folder).glob("*.config")
    theirs = [line for line in config.read_text().splitlines() if not line.startswith("#")]
    assert required_operators(folder / "plain.onnx").splitlines()[1:] == theirs


def test_a_build_reads_it(path, tmp_path):
    from onnxruntime.tools.reduced_build_config_parser import parse_config

    (tmp_path / "required_operators.config").write_text(required_operators(path))
    operators, types = parse_config(str(tmp_path / "required_operators.config"), True)
    assert {"Gather", "MatMul"} <= set(operators["ai.onnx"][13])
    assert types.is_typed_registration_needed("ai.onnx", "MatMul", "float")
    assert not types.is_typed_registration_needed("ai.onnx", "MatMul", "double")


def test_what_has_no_operators_is_refused(tmp_path):
    with pytest.raises(InvalidBundleError, match="no such bundle"):
        required_operators(tmp_path / "nothing")
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    with pytest.raises(ConversionError, match=r"broken\.onnx"):
        required_operators(tmp_path / "broken.onnx")
