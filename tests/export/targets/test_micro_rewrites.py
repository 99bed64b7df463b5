"""Operators that microcontrollers lack: each rewritten graph computes what the original one does, there too."""

import numpy as np
import pytest
from tflite_graphs import Built

from keras_transformer.export.targets.microcontrollers.interpreter import MicroRuntime
from keras_transformer.export.targets.microcontrollers.rewrites import rewrite, rewrite_integers
from keras_transformer.export.tflite.tree import schema, write

pytest.importorskip("tflite_micro")
MASK = np.array([[True, False, True, False]])


def choice(kind, dtype, op="SELECT", shape=(1, 4)):
    built = Built(mask=("BOOL", (1, 4)), x=(kind, shape), z=(kind, shape))
    built.finish(y=built.add(op, ("mask", "x", "z"), kind, (1, 4)))
    random = np.random.default_rng(0)
    given = {name: random.integers(-(2**31), 2**31 - 1, shape).astype(dtype) for name in ("x", "z")}
    return built, {"mask": MASK, **given}


def existence():
    built = Built(mask=("BOOL", (1, 4)))
    axes = built.constant(np.array([1], "int32"))
    return built.finish(y=built.add("REDUCE_ANY", ("mask", axes), "BOOL", (1,), "Reducer", keepDims=False)), {
        "mask": MASK
    }


def none():
    return existence()[0], {"mask": ~MASK & MASK}


CASES = {
    "floats": (choice("FLOAT32", "float32"), ["SELECT_V2"]),
    "integers": (choice("INT32", "int32"), ["LOGICAL_NOT", "CAST", "MUL", "CAST", "MUL", "ADD"]),
    "scalars": (choice("INT32", "int32", "SELECT_V2", ()), ["LOGICAL_NOT", "CAST", "MUL", "CAST", "MUL", "ADD"]),
    "any": (existence(), ["LOGICAL_NOT", "REDUCE_ALL", "LOGICAL_NOT"]),
    "none": (none(), ["LOGICAL_NOT", "REDUCE_ALL", "LOGICAL_NOT"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rewritten_graph_computes_the_same(name):
    (built, given), kinds = CASES[name]
    expected = built.run(**given)["y"]
    rewrite(built.model)
    assert built.kinds() == kinds
    np.testing.assert_array_equal(built.run(**given)["y"], expected)
    np.testing.assert_array_equal(MicroRuntime(write(built.model))(given)["y"], expected)


@pytest.mark.parametrize("approximate", [False, True])
def test_a_gelu_of_integers_is_a_lookup_of_all_its_numbers(approximate):
    built = Built(x=("INT8", (1, 256)))
    result = built.add("GELU", ("x",), "INT8", (1, 256), "Gelu", approximate=approximate)
    for index, (scale, zero) in {built.tensors["x"]: (0.05, 12), result: (0.03, -117)}.items():
        parameters = schema().QuantizationParametersT()
        parameters.scale, parameters.zeroPoint = np.array([scale], "float32"), np.array([zero], "int64")
        built.graph.tensors[index].quantization = parameters
    built.finish(y=result)
    codes = np.arange(-128, 128, dtype="int8")[None]
    expected = built.run(x=codes)["y"]
    rewrite_integers(built.model)
    assert built.kinds() == ["CAST", "ADD", "GATHER"]
    found = built.run(x=codes)["y"]
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) > 100
    micro = MicroRuntime(write(built.model))({"x": codes})["y"]
    np.testing.assert_allclose(micro, (found.astype("float32") + 117) * np.float32(0.03), rtol=1e-6)
