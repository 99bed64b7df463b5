"""NPUs beside a microcontroller: what Vela compiles, what is left to the CPU, and what is said of what was not run."""

import pathlib
import re
import shutil
import subprocess

import keras
import numpy as np
import pytest
from keras import layers

from keras_transformer.export import EthosU, ExportOptions, FullInt8, TargetError, export
from keras_transformer.export.targets import TARGETS, get_target
from keras_transformer.export.targets.microcontrollers.interpreter import MicroRuntime
from keras_transformer.export.targets.microcontrollers.sources import array_of
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read_file

pytest.importorskip("tflite_micro")
pytest.importorskip("ethosu")
STUBS = pathlib.Path(__file__).parents[2] / "examples" / "micro_stubs"
DATA = np.random.default_rng(3).normal(size=(16, 8, 8, 3)).astype("float32")


def network():
    keras.utils.set_random_seed(0)
    images = keras.Input((8, 8, 3), name="images")
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(images)
    running = layers.Lambda(lambda y: keras.ops.cumsum(y, axis=1), name="running")(x)
    return keras.Model(images, layers.Dense(5, name="scores")(layers.GlobalAveragePooling2D()(running)))


def simple():
    keras.utils.set_random_seed(0)
    images = keras.Input((8, 8, 3), name="images")
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3, activation="relu")(images))
    return keras.Model(images, layers.Dense(5, "softmax", name="probabilities")(x))


def exported(model, folder, target, **mode):
    options = ExportOptions(target=target)
    return export(model, folder, quantize=FullInt8(DATA, **mode), progress=False, options=options)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ethos") / "bundle"
    return exported(simple(), folder, EthosU(least_share=1.0), input_type="int8", output_type="int8")


@pytest.mark.slow
def test_the_npu_takes_every_operator_of_integers(report):
    (found,) = report.target.signatures
    assert found.taken == found.nodes >= 4
    assert found.figures["multiplications"] > 6 * 6 * 8 * 27
    assert found.figures["cycles"] == pytest.approx(found.figures["milliseconds"] * 500_000, rel=1e-3)  # Of 500 MHz.
    assert "before ethos-u-vela" in report.target.simulator
    assert report.target.simulator.endswith("compiled it for ethos-u55-128, not by the NPU")


def test_the_compiled_file_is_one_call_of_the_npu(report):
    folder = pathlib.Path(report.directory)
    (graph,) = graphs(read_file(folder / "model.ethos-u/model.tflite"))
    assert [graph.kind(each) for each in graph.subgraph.operators] == ["CUSTOM"]
    assert array_of(folder / "model.ethos-u") == (folder / "model.ethos-u/model.tflite").read_bytes()
    text = (folder / "model.ethos-u/model.h").read_text()
    assert "MicroMutableOpResolver<1>" in text
    assert "resolver.AddEthosU()" in text
    runtime = MicroRuntime((folder / "model.tflite").read_bytes())
    arena = round(report.target.signatures[0].figures["sram_bytes"]) + runtime.persistent_bytes()
    assert f"kArenaSize = {arena};" in text


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_array_compiles(report):
    source = pathlib.Path(report.directory) / "model.ethos-u/model.cc"
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{STUBS}", source]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]


@pytest.mark.slow
def test_what_the_cpu_runs_is_named_with_its_layer(tmp_path):
    (found,) = exported(network(), tmp_path / "bundle", "ethos-u").target.signatures
    assert found.nodes - found.taken == sum(each.count for each in found.fallbacks)
    by_op = {(each.op, *each.layers): each for each in found.fallbacks}
    assert by_op["CUMSUM", "running"].reason == "Unsupported opType"
    ends = [each for each in found.fallbacks if "input_type='int8'" in each.remedy]
    assert {each.op for each in ends} == {"QUANTIZE", "DEQUANTIZE"}


@pytest.mark.slow
def test_an_input_may_be_an_output(tmp_path):
    a, b = (keras.Input((6,), name=name) for name in "ab")
    model = keras.Model([a, b], {"sum": layers.Dense(2)(layers.Add()([a, b])), "same": a})
    data = {name: np.random.default_rng(0).normal(size=(16, 6)).astype("float32") for name in "ab"}
    mode = FullInt8(data, input_type="int8", output_type="int8")
    export(model, tmp_path / "bundle", quantize=mode, progress=False, options=ExportOptions(target="ethos-u"))
    text = (tmp_path / "bundle/model.ethos-u/model.h").read_text()
    inputs, outputs = (re.search(rf"{side}\[\] = {{(.*?)}};", text, re.DOTALL)[1] for side in ("kInputs", "kOutputs"))
    assert re.findall(r'"(\w+)"', inputs) == ["a", "b"]
    assert sorted(re.findall(r'"(\w+)"', outputs)) == ["same", "sum"]


@pytest.mark.slow
def test_less_than_the_least_share_is_refused(tmp_path):
    with pytest.raises(TargetError, match=r"it runs \d of \d+ nodes, less than least_share=0.9: .*CUMSUM of 'running'"):
        exported(network(), tmp_path / "bundle", EthosU(least_share=0.9))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [({"accelerator": "ethos-u55-7"}, "accelerator must be one of ethos-u55-32"), ({"least_share": 95}, "from 0 to 1")],
)
def test_wrong_options_are_errors(options, message):
    with pytest.raises(TargetError, match=message):
        EthosU(**options)


def test_a_target_is_made_again_of_its_options():
    target = EthosU("ethos-u85-256", least_share=0.5)
    assert TARGETS[target.name](**target.options) == target
    assert get_target(target) is target
    assert repr(ExportOptions(target=target)) == f"ExportOptions(target={target!r})"


def test_floats_are_refused_for_the_npu(tmp_path):
    with pytest.raises(TargetError, match="does not run quantize=None; it runs 'full_int8'"):
        export(simple(), tmp_path / "bundle", progress=False, options=ExportOptions(target="ethos-u"))


def test_the_edge_tpu_is_not_run(tmp_path):
    found = exported(simple(), tmp_path / "bundle", "edgetpu", input_type="int8", output_type="int8").target
    assert (found.simulator, found.is_proven) == (None, False)
    assert "NOT RUN (the compiler of the Edge TPU, edgetpu_compiler, is no Python library)" in str(found)
    assert [each.fallbacks for each in found.signatures] == [()]
