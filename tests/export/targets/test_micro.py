"""Microcontrollers: what is refused, what the interpreter computes, and the C++ that contains a file."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import keras
import numpy as np
import pytest
from keras import layers
from tflite_graphs import Built

from keras_transformer.export import ExportOptions, FullInt8, MissingLibraryError, TargetError, export, load
from keras_transformer.export.targets import get_target
from keras_transformer.export.targets.microcontrollers import interpreter as micro_interpreter
from keras_transformer.export.targets.microcontrollers import kernels
from keras_transformer.export.targets.microcontrollers.interpreter import MicroRuntime
from keras_transformer.export.targets.microcontrollers.operators import method_of, refused_nodes
from keras_transformer.export.targets.microcontrollers.sources import array_of, compacted, resolver_methods
from keras_transformer.export.targets.target import RefusedNodeError
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import operator_names, read, write

runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")
ROOT = pathlib.Path(__file__).parents[3]
STUBS, RECIPES = ROOT / "tests/examples/micro_stubs", ROOT / "examples/deploy/micro"
DATA = np.random.default_rng(3).normal(size=(16, 8, 8, 3)).astype("float32")


def network():
    keras.utils.set_random_seed(0)
    images = keras.Input((8, 8, 3), name="images")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(images)))
    x = layers.DepthwiseConv2D(3, strides=2, padding="same", activation="relu")(x)
    x = layers.Flatten()(layers.AveragePooling2D(4)(x))
    return keras.Model(images, layers.Dense(5, "softmax", name="probabilities")(x))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The report and the folder of integers, and the same of floats."""
    folder = tmp_path_factory.mktemp("micro")
    mode, options = FullInt8(DATA, input_type="int8", output_type="int8"), ExportOptions(target="micro")
    return {
        "int8": export(network(), folder / "int8", quantize=mode, progress=False, options=options),
        "float": export(network(), folder / "float", progress=False, options=options),
    }


@pytest.mark.slow
def test_a_file_of_integers_is_that_of_litert_bit_for_bit(bundle):
    (found,) = bundle["int8"].target.signatures
    assert (found.taken, found.fallbacks) == (found.nodes, ())
    assert found.figures["operators_compared_with_litert"] == found.figures["equal_bit_for_bit"] == found.nodes
    path = pathlib.Path(bundle["int8"].directory) / "model.tflite"
    micro, litert = MicroRuntime(path.read_bytes()), load(path.parent, "tflite")
    for image in DATA:
        ours, theirs = (run({"images": image[None]})["probabilities"] for run in (micro, litert))
        assert np.abs(ours - theirs).max() <= 1 / 256  # A step of the probabilities.
    assert len(np.unique(np.concatenate([litert({"images": each[None]})["probabilities"] for each in DATA]))) > 8


def test_a_file_of_floats_computes_what_keras_does(bundle):
    (found,) = bundle["float"].target.signatures
    assert 0 < found.difference < 1e-5
    assert set(found.figures) == {"arena_bytes", "weight_bytes", "array_bytes"}
    assert found.figures["weight_bytes"] > 4 * 300


def test_the_arena_is_the_smallest(bundle):
    path = pathlib.Path(bundle["int8"].directory) / "model.tflite"
    content, size = path.read_bytes(), bundle["int8"].target.signatures[0].figures["arena_bytes"]
    assert size == MicroRuntime(content).arena_bytes()
    case = MicroRuntime(content).codes({"images": DATA[:1]})
    assert micro_interpreter.runs_in(content, size, case)
    assert not micro_interpreter.runs_in(content, size - 32, case)


def test_the_report_and_the_manifest_say_what_was_measured(bundle):
    folder = pathlib.Path(bundle["int8"].directory)
    assert re.search(r"arena \d\.\d kB, weight \d\.\d kB, array \d\.\d kB, operators", str(bundle["int8"].target))
    record = json.loads((folder / "manifest.json").read_text())["target"]
    assert record["signatures"][0]["figures"] == bundle["int8"].target.signatures[0].figures
    assert record["compiled"] == ["model.micro"]


def test_the_array_has_what_kernels_read_and_computes_the_same(bundle):
    folder = pathlib.Path(bundle["int8"].directory)
    content, array = (folder / "model.tflite").read_bytes(), array_of(folder / "model.micro")
    assert array == compacted(content)
    assert len(array) < 0.8 * len(content)
    (graph,) = graphs(read(array))
    assert {each.name for each in graph.tensors} == {None}
    before, after = MicroRuntime(content), MicroRuntime(array)
    for image in DATA[:4]:
        given = {"images": image[None]}
        np.testing.assert_array_equal(before(given)["probabilities"], after(given)["probabilities"])


def test_the_header_has_the_operators_the_scales_and_the_arena(bundle):
    folder = pathlib.Path(bundle["int8"].directory)
    text = (folder / "model.micro/model.h").read_text()
    inputs, outputs = MicroRuntime((folder / "model.tflite").read_bytes()).ends
    ((name, count, scale, zero, _),) = re.findall(r'\{"(\w+)", (\d+), (\S+)f, (-?\d+)\},  // (int8) \(1, 8', text)
    assert (name, int(count), int(zero)) == ("images", 192, inputs["images"].zero)
    assert np.float32(scale) == np.float32(inputs["images"].scale)
    assert '{"probabilities", 5, 3.90625e-03f, -128},  // int8 (1, 5)' in text
    assert outputs["probabilities"].zero == -128
    size = bundle["int8"].target.signatures[0].figures["arena_bytes"]
    assert int(re.search(r"kArenaSize = (\d+);", text)[1]) <= size
    methods = ["AddAveragePool2D", "AddConv2D", "AddDepthwiseConv2D", "AddFullyConnected", "AddSoftmax"]
    assert re.findall(r"resolver\.(\w+)\(", text) == methods


def test_numbers_near_zero_are_quantized(tmp_path):
    """The quantizer widens ranges of some millionths."""
    x = keras.Input((8,), name="x")
    small = layers.Dense(8, "relu", kernel_initializer=keras.initializers.RandomNormal(stddev=2e-7, seed=1))(x)
    model = keras.Model(
        x, layers.Dense(3, kernel_initializer=keras.initializers.RandomNormal(stddev=1e6, seed=2))(small)
    )
    rows = np.random.default_rng(0).normal(size=(32, 8)).astype("float32")
    report = export(
        model, tmp_path / "b", quantize=FullInt8(rows), progress=False, options=ExportOptions(target="micro")
    )
    found = load(tmp_path / "b", "tflite")({"x": rows[:1]})["output"]
    expected = model.predict_on_batch(rows[:1])
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
    assert report.target.is_whole


@pytest.mark.slow
def test_a_state_is_taken_as_it_was_returned(tmp_path):
    """Both ends have the same codes, and a stream stays near that of Keras."""
    keras.utils.set_random_seed(0)
    frame = keras.Input(batch_shape=(1, 1, 10), name="frame")
    memory = layers.GRU(8, stateful=True, unroll=True, name="memory")
    model = keras.Model(frame, layers.Dense(3, name="words")(memory(frame)))
    frames = np.random.default_rng(1).normal(size=(128, 1, 10)).astype("float32")
    states = []
    for each in frames:
        states.append(np.array(memory.states[0])[0])
        model.predict_on_batch(each[None])
    mode = FullInt8({"frame": frames, "state": np.array(states)}, input_type="int8", output_type="int8")
    export(model, tmp_path / "stream", quantize=mode, progress=False, options=ExportOptions(target="micro"))
    micro = MicroRuntime((tmp_path / "stream/model.tflite").read_bytes())
    inputs, outputs = micro.ends
    assert inputs["state"] == outputs["state"]
    state, scores, expected = np.zeros((1, 8), "float32"), [], []
    memory.reset_states()
    for each in np.random.default_rng(2).normal(size=(20, 1, 10)).astype("float32"):
        found = micro({"frame": each[None], "state": state})
        state = found["state"]
        scores.append(found["words"])
        expected.append(model.predict_on_batch(each[None]))
    assert (state < -4 * outputs["state"].scale).any()
    assert np.abs(np.array(scores) - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize(
    "program", ["esp32/main/main.cc", "arduino/run_model/run_model.ino", "zephyr/src/main.cpp", None]
)
@pytest.mark.parametrize("precision", ["int8", "float"])
def test_programs_compile(bundle, program, precision):
    generated = pathlib.Path(bundle[precision].directory) / "model.micro"
    source = generated / "model.cc" if program is None else RECIPES / program
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command = ["g++", *flags, f"-I{STUBS}", f"-I{generated}", f"-I{RECIPES / 'common'}", "-x", "c++", source]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("CONV_2D", "AddConv2D"),
        ("BATCH_MATMUL", "AddBatchMatMul"),
        ("PADV2", "AddPadV2"),
        ("SELECT_V2", "AddSelectV2"),
        ("L2_NORMALIZATION", "AddL2Normalization"),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", "AddUnidirectionalSequenceLSTM"),
        ("RELU_N1_TO_1", None),
        ("SELECT", None),
    ],
)
def test_operators_have_the_methods_of_the_resolver(kind, method):
    assert method_of(kind) == method


@pytest.mark.exhaustive
def test_the_interpreter_has_the_operators_of_the_list():
    """Each operator in place of an addition: one that is not registered is refused before its kernel looks at it."""
    built = Built(x=("FLOAT32", (1, 4)), z=("FLOAT32", (1, 4)))
    built.finish(y=built.add("ADD", ("x", "z"), "FLOAT32", (1, 4)))
    code = built.model.operatorCodes[0]
    for number, kind in sorted(operator_names().items()):
        code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
        if kind not in ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"):
            assert is_registered(write(built.model)) == (method_of(kind) is not None), kind


def is_registered(content):
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 2)
            try:
                runtime.Interpreter.from_bytes(content, arena_size=100_000)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        log.seek(0)
        return b"Didn't find op" not in log.read()


def test_an_unknown_operator_is_named(tmp_path):
    built = Built(x=("FLOAT32", (1, 4)))
    path = tmp_path / "model.tflite"
    path.write_bytes(write(built.finish(y=built.add("GELU", ("x",), "FLOAT32", (1, 4))).model))
    (found,) = refused_nodes(path)
    assert (found.op, found.reason) == ("GELU", "operation not supported")
    assert "hard_silu" in found.remedy
    assert found.name.startswith("block_0/gelu")


def test_a_dynamic_shape_is_named(tmp_path):
    built = Built(x=("FLOAT32", (None, 4)))
    path = tmp_path / "model.tflite"
    path.write_bytes(write(built.finish(y=built.add("NEG", ("x",), "FLOAT32", (None, 4))).model))
    assert [each.reason for each in refused_nodes(path)] == ["dynamic shapes"]


def test_a_kernel_without_the_type_is_named():
    built = Built(x=("INT64", (1, 4)), z=("INT64", (1, 4)))
    content = write(built.finish(y=built.add("SUB", ("x", "z"), "INT64", (1, 4), "Sub")).model)
    with pytest.raises(RefusedNodeError, match=r"SUB 'block_0/sub_\d': .*INT64") as caught:
        MicroRuntime(content)({name: np.ones((1, 4), "int64") for name in ("x", "z")})
    assert caught.value.node.op == "SUB"


def test_the_interpreter_computes():
    built = Built(x=("FLOAT32", (1, 3)), z=("FLOAT32", (1, 3)))
    built.finish(y=built.add("SUB", ("x", "z"), "FLOAT32", (1, 3), "Sub"))
    micro = MicroRuntime(write(built.model))
    given = {"z": np.array([[1, 2, 3]], "float32"), "x": np.array([[10, 20, 40]], "float32")}
    np.testing.assert_array_equal(micro(given)["y"], [[9, 18, 37]])
    assert resolver_methods(write(built.model)) == ["AddSub"]


def test_a_planted_step_is_found(bundle, monkeypatch):
    """A kernel that adds a step somewhere is not equal."""
    content = (pathlib.Path(bundle["int8"].directory) / "model.tflite").read_bytes()
    case = MicroRuntime(content).codes({"images": DATA[:1]})
    assert {each.steps for each in kernels.compare_operators(content, [case])} == {0}
    original = kernels._outputs
    monkeypatch.setattr(kernels, "_outputs", lambda *given: [each - 3 for each in original(*given)])
    assert {each.steps for each in kernels.compare_operators(content, [case])} == {3}


def test_what_is_refused_is_named_with_its_layer(tmp_path):
    x = keras.Input((4,), name="x")
    model = keras.Model(x, layers.Dense(3, name="scores")(layers.Dense(4, activation="gelu", name="hidden")(x)))
    with pytest.raises(TargetError, match=r"1 GELU of 'hidden': operation not supported; quantize with FullInt8"):
        export(model, tmp_path / "bundle", progress=False, options=ExportOptions(target="micro"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_one_signature(tmp_path):
    model = keras.Sequential([keras.Input((None, 4)), layers.Conv1D(2, 1)])
    options = ExportOptions(target="micro", static=[{"length": 4}, {"length": 8}])
    with pytest.raises(TargetError, match="a file has one signature there, not 'serve', 'serve_1x8'"):
        export(model, tmp_path / "bundle", progress=False, options=options)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    library = micro_interpreter.TFLITE_MICRO._replace(module="no_such_module")
    monkeypatch.setattr(type(get_target("micro")), "libraries", (library,))
    with pytest.raises(MissingLibraryError, match=r"target 'micro' needs tflite-micro: pip install '.*\[micro\]'"):
        export(network(), tmp_path / "bundle", progress=False, options=ExportOptions(target="micro"))
