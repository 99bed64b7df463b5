"""Models of every kind: subclassed, sequential without an input, bare layers, with states, any names, several signatures."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_transformer.export import (
    ArraySpec,
    ExportOptions,
    InputError,
    InvalidModelError,
    NotDeterministicError,
    export,
    load,
)
from keras_transformer.export.runtime.inputs import named_arrays
from keras_transformer.export.spec.functional_form import functional_form
from keras_transformer.export.spec.state import layers_in_training

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
WORKER = pathlib.Path(__file__).with_name("model_kinds_worker.py")
FORMATS = ("saved_model", "tflite", "onnx")
CASES = (
    *("sequential", "sequential_of_tokens", "loaded_keras", "loaded_h5", "saved_model", "saved_model_signature"),
    *(
        "subclassed",
        "subclassed_and_built",
        "fitted_on_tokens",
        "with_mask",
        "half",
        "bare_layer",
        "arguments_in_order",
    ),
    *("outputs_in_order", "dict_in_order", "list_of_inputs", "shared_tensors", "names", "two_lengths", "roots"),
    *("sums_of_logarithms", "doubles", "squares", "groups"),
)
# Of outputs that have no key in the Keras model.
NAMES = {
    "outputs_in_order": ["b", "a", "c"],
    **dict.fromkeys(("shared_tensors", "groups"), [f"output_{number}" for number in range(5)]),
}
# Of what Keras computes in 16 bits.
LIMITS = {"half": 0.02}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    out = tmp_path_factory.mktemp("kinds") / "results.json"
    subprocess.run([sys.executable, str(WORKER), str(out)], check=True, capture_output=True)
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_bundles_are_called_and_compute_as_the_model(files, case, format):
    found = files[f"{case}-{format}"]
    assert not isinstance(found, str), found
    assert found["difference"] < LIMITS.get(case, 4e-6)
    expected = NAMES.get(case, found["expected"])
    assert found["found"] == (["output"] if expected == [""] else expected)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_states_go_from_call_to_call(files, format):
    found = files[f"streaming-{format}"]
    assert not isinstance(found, str), found
    assert max(found) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_methods_are_signatures(files, format):
    found = files[f"signatures-{format}"]
    assert not isinstance(found, str), found
    assert max(found) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_random_numbers_are_inputs_that_the_bundle_draws(files, format):
    found = files[f"sampling-{format}"]
    assert not isinstance(found, str), found
    assert found["inputs"] == ["float32 (batch, 4)", "float32 (batch, 2)", "float32 (batch, 2)"]
    assert found["difference"] < 1e-5
    assert found["drawn"] > 0.1
    assert found["dropped"] == [0.0, 0.0]


@pytest.mark.exhaustive
def test_the_order_of_outputs_does_not_depend_on_the_hash_seed(tmp_path):
    x = keras.Input((4,))
    names = ["b", "a", "c", "e", "d"]
    export(keras.Model(x, [layers.Dense(2, name=name)(x) for name in names]), tmp_path / "bundle", progress=False)
    code = (
        "import sys, numpy as np; from keras_transformer.export import load\n"
        "for backend in ('saved_model', 'tflite', 'onnx'):\n"
        "    print(*load(sys.argv[1], backend=backend)(np.ones((1, 4), 'float32')))"
    )
    for seed in "123":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(tmp_path / "bundle")]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        assert done.stdout.splitlines() == [" ".join(names)] * 3


class Conditional(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(4), layers.Dense(4)

    def call(self, x, context=None, training=False):
        return self.first(x) if context is None else self.first(x) + self.second(context)


def test_an_optional_argument_that_is_left_out_is_named():
    model = Conditional()
    model(np.ones((2, 3)), context=np.ones((2, 5)))
    with pytest.warns(UserWarning, match="as called without 'context'"):
        assert len(functional_form(model).inputs) == 1
    both = {"x": keras.InputSpec(shape=(None, 3)), "context": keras.InputSpec(shape=(None, 5))}
    assert len(functional_form(model, both).inputs) == 2


class TestCalls:
    """What the inputs of a call are, by name."""

    left, right = (ArraySpec(name, "float32", (None, 2), ("batch", None)) for name in ("left", "right"))

    def named(self, *arrays, **named):
        return named_arrays((self.left, self.right), arrays, named)

    def test_arrays_go_by_position(self):
        expected = {"left": [[1, 2]], "right": [[3, 4]]}
        assert self.named([[1, 2]], [[3, 4]]) == expected
        assert self.named([[[1, 2]], [[3, 4]]]) == expected
        assert self.named([[1, 2]], right=[[3, 4]]) == expected
        assert self.named({"right": [[3, 4]]}, left=[[1, 2]]) == expected

    def test_nested_structures_are_flattened_as_keras_does(self):
        specs = [ArraySpec(name, "float32", (None,), ("batch",)) for name in ("a_b", "c_0", "c_1")]
        one, two, three = (np.full(2, float(number)) for number in range(3))
        found = named_arrays(specs, [{"c": [two, three], "a": {"b": one}}], {})
        assert {name: each[0] for name, each in found.items()} == {"a_b": 0.0, "c_0": 1.0, "c_1": 2.0}
        assert [each[0] for each in named_arrays(specs, [[one, (two, three)]], {}).values()] == [0.0, 1.0, 2.0]

    def test_a_list_in_a_list_is_no_input_of_the_number_of_its_place(self):
        specs = [ArraySpec(f"input_{number}", "float32", (None,), ("batch",)) for number in range(3)]
        arrays = [np.full(2, float(number)) for number in range(3)]
        found = named_arrays(specs, [(arrays[0], (arrays[1], arrays[2]))], {})
        assert {name: each[0] for name, each in found.items()} == {"input_0": 0.0, "input_1": 1.0, "input_2": 2.0}

    def test_names_of_the_model_stand_for_identifiers(self):
        specs = [ArraySpec(name, "float32", (None,), ("batch",)) for name in ("left_right_2", "input_1st")]
        assert named_arrays(specs, [{"left-right 2": [1.0], "1st": [2.0]}], {}) == {
            "left_right_2": [1.0],
            "input_1st": [2.0],
        }

    def test_a_list_of_numbers_is_the_only_input(self):
        assert named_arrays([self.left], [[[1, 2]]], {}) == {"left": [[1, 2]]}
        assert named_arrays([self.left], [[[[1, 2], [3, 4]]]], {}) == {"left": [[1, 2], [3, 4]]}
        rows = [np.ones(2), np.zeros(2)]
        assert named_arrays([self.left], [rows], {})["left"] is rows

    def test_too_few_arrays_are_refused(self):
        with pytest.raises(InputError, match=r"expected left, right, in this order or in a dict, got 1 arrays"):
            self.named(np.ones((2, 2)))


class Noise(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(1)

    def call(self, x, noise=None):
        if noise is None:
            noise = keras.random.truncated_normal(ops.shape(x), seed=self.seed)
        return x + noise


class Sum(keras.Model):
    def call(self, one, other):
        return one + other


class WithDefaultShape(keras.Model):
    """A model that is built by `build()` alone, before it was called."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def build(self, input_shape=(None, 3)):
        self.dense.build(input_shape)

    def call(self, x):
        return self.dense(x)


class TestRefusals:
    """What is refused, and the remedy that each error names."""

    def test_random_numbers_are_an_input(self, tmp_path):
        x, noise = keras.Input((4,), name="x"), keras.Input((4,), name="noise")
        with pytest.raises(
            NotDeterministicError, match=r"layer 'noise' \(Noise\) draws random numbers.*noise = keras.Input"
        ):
            export(keras.Model(x, Noise()(x)), tmp_path / "bundle", ["onnx"], progress=False)
        export(keras.Model([x, noise], Noise()(x, noise)), tmp_path / "bundle", ["onnx"], progress=False)
        assert load(tmp_path / "bundle")(x=np.ones((1, 4)), noise=np.full((1, 4), 2.0))["output"].tolist() == [
            [3.0] * 4
        ]

    def test_inputs_that_are_not_known_are_given(self, tmp_path):
        model, spec = Sum(), keras.InputSpec(shape=(None, 3))
        with pytest.raises(
            InvalidModelError, match=r"model 'sum(_\d+)?' \(Sum\) are not known.*ExportOptions\(inputs="
        ):
            export(model, tmp_path / "bundle", ["onnx"], progress=False)
        model(np.ones((2, 3)), np.ones((2, 3)))
        with pytest.raises(InvalidModelError, match=r"missing a required argument: 'other'.*ExportOptions\(inputs="):
            export(model, tmp_path / "bundle", ["onnx"], progress=False)
        options = ExportOptions(inputs={"one": spec, "other": spec})
        export(model, tmp_path / "bundle", ["onnx"], progress=False, options=options)
        assert load(tmp_path / "bundle")(np.ones((1, 3)), np.full((1, 3), 2.0))["output"].tolist() == [[3.0] * 3]

    def test_shapes_that_a_class_builds_itself_with_are_known(self, tmp_path):
        model = WithDefaultShape()
        model.build()
        model.dense.set_weights([np.full((3, 2), 2.0), np.ones(2)])
        export(model, tmp_path / "bundle", ["onnx"], progress=False)
        assert load(tmp_path / "bundle")(np.ones((4, 3), "float32"))["output"].tolist() == [[7.0, 7.0]] * 4

    def test_nan_everywhere_is_no_model(self, tmp_path):
        x = keras.Input((4,))
        with pytest.raises(InvalidModelError, match=r"NaN in output 'output' on batch=1, and on every other probe"):
            export(keras.Model(x, ops.sqrt(-1.0 - ops.abs(x))), tmp_path / "bundle", ["onnx"], progress=False)

    def test_a_signature_is_a_method_of_the_model(self, tmp_path):
        model = functional_form(layers.Dense(2), keras.InputSpec(shape=(None, 3)))
        with pytest.raises(InvalidModelError, match=r"signatures\['encode'\] must be a method of model"):
            export(model, tmp_path / "bundle", ["onnx"], options=ExportOptions(signatures={"encode": Sum().call}))


def test_a_form_leaves_the_layer_as_it_was():
    layer = layers.Dense(3)
    outputs = layer(keras.Input((4,)))
    assert functional_form(layer).output_shape == (None, 3)
    assert layer.output is outputs


def test_the_batch_of_an_input_stays():
    model = keras.Sequential([keras.Input(batch_shape=(1, 4)), layers.Dense(3)])
    assert functional_form(model) is model
    deferred = keras.Sequential([layers.Dense(3)])
    deferred(np.ones((1, 4)))
    assert functional_form(deferred).input_shape == (None, 4)


class Noisy(layers.Layer):
    def call(self, inputs, **options):
        return inputs + 1.0 if options.get("training") else inputs


def test_layers_that_the_user_calls_in_training_are_found():
    x = keras.Input((8, 8, 3))
    outputs = layers.CenterCrop(4, 4)(x)  # `training=True` is its default.
    outputs = layers.Dropout(0.5, name="monte_carlo")(outputs, training=True)
    inner = keras.Model(x, Noisy(name="noisy")(outputs, training=True))
    model = keras.Model(x, layers.Dropout(0.5, name="usual")(inner(x)))
    assert layers_in_training(model) == ["monte_carlo", "noisy"]
