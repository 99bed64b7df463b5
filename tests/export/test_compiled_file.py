"""Signatures of fixed shapes in LiteRT's CompiledModel, on files of a few operators."""

import subprocess
import sys

import numpy as np
import pytest
from targets.tflite_graphs import Built

from keras_transformer.export.tflite.compiled_file import CacheTensor, CompiledFile
from keras_transformer.export.tflite.engine import Obstacle, obstacle, overwritable
from keras_transformer.export.tflite.runtime import TFLiteRuntime
from keras_transformer.export.tflite.tree import schema, write
from keras_transformer.export.tflite.weight_cache import WeightCache

WEIGHTS = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
SLOTS = (1, 2, 6, 4)
RNG = np.random.default_rng(1)


def decoder(reads_again=False):
    """A step that writes a row into a cache, and a product; `reads_again` reads the old cache, too."""
    built = Built(x=("FLOAT32", (1, 4)), row=("FLOAT32", (1, 2, 1, 4)), at=("INT32", (4,)), slots=("FLOAT32", SLOTS))
    bias = built.constant(np.zeros(8, "float32"))
    product = built.add("FULLY_CONNECTED", ["x", built.constant(WEIGHTS), bias], "FLOAT32", (1, 8), "FullyConnected")
    written = built.add("DYNAMIC_UPDATE_SLICE", ["slots", "row", "at"], "FLOAT32", SLOTS, "DynamicUpdateSlice")
    other = "slots" if reads_again else written
    doubled = built.add("ADD", [written, other], "FLOAT32", SLOTS, "Add")
    return built.finish(product=product, slots=written, doubled=doubled)


def saved(built, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(write(built.model))
    return path


def arrays(slot):
    return {
        "x": RNG.normal(size=(1, 4)).astype("float32"),
        "row": RNG.normal(size=(1, 2, 1, 4)).astype("float32"),
        "at": np.array([0, 0, slot, 0], "int32"),
    }


def expected(given, cache):
    """What the step computes, and the next cache."""
    slots = cache.copy()
    slots[:, :, given["at"][2]] = given["row"][:, :, 0]
    return {"product": given["x"] @ WEIGHTS.T, "doubled": 2 * slots}, slots


def test_steps_write_into_a_cache_in_place(tmp_path):
    path = saved(decoder(), tmp_path)
    assert obstacle(path, "serve") is None
    assert overwritable(path, ["slots", "x"], "serve") == {"slots"}
    file = CompiledFile(1, WeightCache(path))
    cache = RNG.normal(size=SLOTS).astype("float32")
    tensor, buffer = CacheTensor(cache), None
    for slot in (2, 5, 0):
        given = arrays(slot)
        found = file.run("serve", given, {"slots": tensor}, {"slots"})
        values, cache = expected(given, cache)
        for name, each in values.items():
            np.testing.assert_allclose(found[name], each, rtol=1e-6, atol=1e-6)
        assert found["slots"] is tensor
        buffer = buffer or tensor._values
        assert tensor._values is buffer
        np.testing.assert_array_equal(tensor.numpy(), cache)
        assert (tensor.shape, tensor.dtype) == (SLOTS, np.float32)


def test_a_cache_that_is_read_again_stays_as_it_was(tmp_path):
    path = saved(decoder(reads_again=True), tmp_path)
    assert overwritable(path, ["slots"], "serve") == set()
    file = CompiledFile(1, WeightCache(path))
    before = RNG.normal(size=SLOTS).astype("float32")
    tensor, given = CacheTensor(before), arrays(3)
    found = file.run("serve", given, {"slots": tensor})
    np.testing.assert_array_equal(tensor.numpy(), before)
    _, after = expected(given, before)
    np.testing.assert_array_equal(found["slots"].numpy(), after)
    np.testing.assert_allclose(found["doubled"], before + after, rtol=1e-6)
    # What was returned is the cache of another step.
    given = arrays(1)
    again = file.run("serve", given, {"slots": found["slots"]})
    np.testing.assert_array_equal(again["slots"].numpy(), expected(given, after)[1])
    np.testing.assert_array_equal(found["slots"].numpy(), after)


def test_a_runtime_returns_arrays_that_later_calls_leave(tmp_path):
    runtime = TFLiteRuntime(str(saved(decoder(), tmp_path)), "serve", 1)
    assert runtime.is_compiled("serve")
    assert not runtime.is_compiled("absent")
    cache = RNG.normal(size=SLOTS).astype("float32")
    calls = [arrays(slot) for slot in (1, 2)]
    results = [runtime({**each, "slots": cache}) for each in calls]
    for given, found in zip(calls, results, strict=True):
        values, slots = expected(given, cache)
        np.testing.assert_array_equal(found["slots"], slots)
        np.testing.assert_allclose(found["product"], values["product"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 4), "float32")}, r"'x' is float32 of shape \(1, 4\). Received: float32 of shape \(2, 4\)"),
        ({"at": np.zeros(4, "int64")}, r"'at' is int32 of shape \(4,\). Received: int64"),
        ({"slots": CacheTensor(np.zeros((1, 2, 7, 4), "float32"))}, "'slots' is float32"),
        ({"y": np.zeros(1, "float32")}, "the inputs are x, row, at, slots. Received: x, row, at, y, slots"),
    ],
)
def test_other_inputs_are_refused_before_anything_is_written(tmp_path, change, message):
    file = CompiledFile(1, WeightCache(saved(decoder(), tmp_path)))
    given = {**arrays(1), "slots": CacheTensor(np.zeros(SLOTS, "float32"))} | change
    cache = {name: each for name, each in given.items() if isinstance(each, CacheTensor)}
    with pytest.raises(ValueError, match=message):
        file.run("serve", {name: each for name, each in given.items() if name not in cache}, cache)


def test_an_output_that_is_an_input_is_returned(tmp_path):
    built = Built(x=("FLOAT32", (2,)), mask=("BOOL", (2,)))
    chosen = built.add("SELECT", ["mask", "x", built.constant(np.zeros(2, "float32"))], "FLOAT32", (2,), "Select")
    built.finish(y=chosen, mask=built.tensors["mask"])
    path = saved(built, tmp_path)
    assert obstacle(path, "serve") is None
    assert overwritable(path, ["mask"], "serve") == set()
    file, given = CompiledFile(1, WeightCache(path)), {"x": np.float32([1, 2]), "mask": np.array([True, False])}
    found = file.run("serve", given)
    given["mask"][0] = False
    np.testing.assert_array_equal(found["mask"], [True, False])
    np.testing.assert_array_equal(found["y"], [1, 0])
    tensor = CacheTensor(np.array([True, True]))
    found = file.run("serve", {"x": given["x"]}, {"mask": tensor})
    assert found["mask"] is tensor
    np.testing.assert_array_equal(found["y"], [1, 2])
    np.testing.assert_array_equal(tensor.numpy(), [True, True])


def dynamic():
    built = decoder()
    built.graph.tensors[built.tensors["x"]].shapeSignature = np.array([-1, 4], "int32")
    return built


def of_another_type():
    built = Built(x=("INT64", (2,)))
    return built.finish(y=built.add("NEG", ["x"], "INT64", (2,), "Neg"))


def of_integers_that_stand_for_floats():
    built = Built(x=("INT8", (2,)))
    parameters = schema().QuantizationParametersT()
    parameters.scale, parameters.zeroPoint = np.array([0.5], "float32"), np.array([3], "int64")
    built.graph.tensors[built.tensors["x"]].quantization = parameters
    return built.finish(y=built.add("DEQUANTIZE", ["x"], "FLOAT32", (2,), "Dequantize"))


def of_a_constant():
    built = Built(x=("FLOAT32", (2,)))
    return built.finish(y=built.add("NEG", ["x"], "FLOAT32", (2,), "Neg"), z=built.constant(np.ones(2, "float32")))


def of_equal_outputs():
    built = Built(x=("FLOAT32", (2,)))
    result = built.add("NEG", ["x"], "FLOAT32", (2,), "Neg")
    return built.finish(y=result, z=result)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (of_a_constant, Obstacle.OUTPUTS),
        (of_equal_outputs, Obstacle.OUTPUTS),
        (dynamic, Obstacle.SHAPES),
        (of_another_type, Obstacle.TYPES),
        (of_integers_that_stand_for_floats, Obstacle.TYPES),
    ],
)
def test_the_interpreter_runs_the_other_signatures(tmp_path, make, reason):
    path = saved(make(), tmp_path)
    assert obstacle(path, "serve") is reason
    assert not TFLiteRuntime(str(path), "serve", 1).is_compiled("serve")


def test_the_interpreter_runs_everything_in_earlier_releases(tmp_path):
    path = saved(decoder(), tmp_path)
    code = f"""
import sys
sys.modules["ai_edge_litert.cpu_options"] = None
from keras_transformer.export.tflite.engine import obstacle
from keras_transformer.export.tflite.runtime import TFLiteRuntime
import numpy as np, pathlib
print(obstacle(pathlib.Path({str(path)!r}), "serve").name)
given = dict(x=np.ones((1, 4), "float32"), row=np.ones((1, 2, 1, 4), "float32"), at=np.zeros(4, "int32"))
print(TFLiteRuntime({str(path)!r}, "serve", 1)(given | dict(slots=np.zeros({SLOTS}, "float32")))["doubled"].sum())
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout.split() == ["MISSING", "16.0"], process.stderr


def test_nothing_is_printed(tmp_path):
    path = saved(decoder(), tmp_path)
    code = f"""
from keras_transformer.export.tflite.runtime import TFLiteRuntime
import numpy as np, sys
runtime = TFLiteRuntime({str(path)!r}, "serve", 1)
given = dict(x=np.ones((1, 4), "float32"), row=np.ones((1, 2, 1, 4), "float32"), at=np.zeros(4, "int32"))
runtime(given | dict(slots=np.zeros({SLOTS}, "float32")))
del runtime
print("from Python", file=sys.stderr)
import atexit
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "from Python\n")
