"""Exports models of every kind, and calls each bundle as the model is called: `model_kinds_worker.py OUT`.

Arrays have other sizes than those on which the models were built.
"""

import itertools
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers, ops

from keras_transformer.export import ExportOptions, export, load

RANDOM = np.random.default_rng(7)
FORMATS = ("saved_model", "tflite", "onnx")


def normal(*shape):
    return RANDOM.normal(size=shape).astype("float32")


class Autoencoder(keras.Model):
    """A model that takes no arguments of Keras, and whose methods are entry points."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(3, activation="tanh"), layers.Dense(4)

    def call(self, x, training=False):
        return self.decode(self.encode(x))

    def encode(self, x, training=None):
        return self.encoder(x) * (2.0 if training else 1.0)

    def decode(self, code):
        return self.decoder(code)


class OfDicts(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, inputs, training=False):
        return {"b": self.dense(inputs["x"]), "a": [inputs["rest"][0] * 2, inputs["rest"][1]["y"] - 1]}


class OfTokens(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding, self.pool, self.dense = (
            layers.Embedding(10, 4),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3),
        )

    def call(self, tokens, mask=None, training=False):
        return self.dense(self.pool(self.embedding(tokens), mask=mask))


class Minus(layers.Layer):
    """Two arguments that are not in alphabetical order."""

    def call(self, start, end, scale=None):
        return (start - end) * (1.0 if scale is None else scale)


class SquaresOfRows(layers.Layer):
    """A square kernel, read as it is, transposed, and transposed of matrices of more axes."""

    def build(self, shape):
        names, width = ("plain", "turned", "turned_alone"), shape[-1]
        self.kernels = [self.add_weight(name=each, shape=(width, width)) for each in names]

    def call(self, x):
        plain, turned, alone = self.kernels
        y = ops.matmul(ops.matmul(x, ops.transpose(turned)), plain) + ops.matmul(x, turned)
        return ops.matmul(y[:, 0], ops.transpose(alone))


def fitted(model, x, y):
    model.compile("adam", "mse")
    model.fit(x, y, batch_size=32, verbose=0)
    return model


def sequential():
    x, y = normal(64, 6, 6), normal(64, 3)
    return fitted(keras.Sequential([layers.Flatten(), layers.Dense(3)]), x, y), [normal(7, 6, 6)], {}


def sequential_of_tokens():
    model = keras.Sequential([layers.Embedding(10, 4), layers.GlobalAveragePooling1D(), layers.Dense(3)])
    return fitted(model, np.ones((64, 5), int), normal(64, 3)), [RANDOM.integers(0, 10, (3, 5))], {}


def loaded(suffix):
    model = keras.Sequential([layers.Dense(3, activation="relu"), layers.Dense(2)])
    model(normal(32, 4))
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.{suffix}")
        return keras.models.load_model(f"{folder}/model.{suffix}", compile=False), [normal(3, 4)], {}


def of_saved_model(endpoint):
    x = keras.Input((4,))
    folder = tempfile.mkdtemp()
    keras.Model(x, layers.Dense(3)(x)).export(folder, verbose=False)
    return layers.TFSMLayer(folder, call_endpoint=endpoint), [normal(2, 4)], {}


def subclassed():
    model, spec = OfDicts(), keras.InputSpec
    inputs = {"x": spec(shape=(None, 4)), "rest": [spec(shape=(None, 1)), {"y": keras.Input((2,))}]}
    return model, [{"x": normal(2, 4), "rest": [normal(2, 1), {"y": normal(2, 2)}]}], {"inputs": inputs}


def subclassed_and_built():
    model = Autoencoder()
    model(normal(32, 4))
    return model, [normal(5, 4)], {}


def fitted_on_tokens():
    return fitted(OfTokens(), np.ones((64, 5), int), normal(64, 3)), [RANDOM.integers(0, 10, (3, 5))], {}


def with_mask():
    inputs = {"tokens": keras.InputSpec(shape=(None, None), dtype="int32")}
    inputs["mask"] = keras.InputSpec(shape=(None, None), dtype="bool")
    mask = np.arange(12).reshape(2, 6) % 4 < 3
    return OfTokens(), [RANDOM.integers(0, 10, (2, 6))], {"inputs": inputs}, {"mask": mask}


def half():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = Autoencoder()
    model(normal(32, 4))
    keras.config.set_dtype_policy("float32")
    return model, [normal(5, 4)], {"tolerance": 0.02}


def bare_layer():
    layer = layers.MultiHeadAttention(2, 4)
    layer(normal(2, 3, 8), normal(2, 5, 8))
    return layer, [normal(4, 3, 8), normal(4, 5, 8)], {}


def arguments_in_order():
    inputs = {name: keras.InputSpec(shape=(None, 3)) for name in ("end", "start")}
    return Minus(), [normal(2, 3), normal(2, 3)], {"inputs": inputs}


def outputs_in_order():
    x = keras.Input((4,))
    return keras.Model(x, [layers.Dense(2, name=name)(x) for name in ("b", "a", "c")]), [normal(2, 4)], {}


def dict_in_order():
    x = keras.Input((4,))
    return keras.Model(x, {name: layers.Dense(2)(x) for name in ("b", "a", "c")}), [normal(2, 4)], {}


def list_of_inputs():
    left, right = keras.Input((2,)), keras.Input((2,))
    return keras.Model([left, right], left - 2 * right), [[normal(3, 2).tolist(), normal(3, 2).tolist()]], {}


def shared_tensors():
    x, other = keras.Input((4,)), keras.Input((4,))
    hidden = layers.Dense(4)(x)
    return keras.Model([x, other], [x, hidden, hidden, other, hidden + other]), [(normal(2, 4), normal(2, 4))], {}


def names():
    inputs = {name: keras.Input((4,), name=name) for name in ("1st", "class", "größe (cm)", "self", "长度", "-x")}
    outputs = {f"{name} twice": each * 2 for name, each in inputs.items()}
    outputs |= {"1": layers.Dense(2)(inputs["1st"]), "größe": inputs["self"] + 1, "gr_e": inputs["class"]}
    return keras.Model(inputs, outputs), [{name: normal(2, 4) for name in inputs}], {}


def two_lengths():
    query, memory = keras.Input((None, 8)), keras.Input((None, 8))
    mask = keras.Input((None,), dtype="bool")
    attended = layers.MultiHeadAttention(2, 4)(query, memory, attention_mask=mask[:, None])
    return (
        keras.Model([query, memory, mask], attended),
        [[normal(2, 3, 8), normal(2, 7, 8), np.arange(14).reshape(2, 7) > 2]],
        {},
    )


def of(function, x):
    inputs = keras.Input(x.shape[1:])
    return keras.Model(inputs, function(inputs)), [x], {}


def of_doubles():
    keras.config.set_floatx("float64")
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3, activation="tanh")(x))
    keras.config.set_floatx("float32")
    return model, [normal(2, 4).astype("float64")], {}


def of_groups():
    """Convolutions of groups of channels, each with a bias: not every processor has one as an operation of TensorFlow."""
    row, image, volume = (keras.Input((*[6] * rank, 4)) for rank in (1, 2, 3))
    options = {"groups": 2, "activation": "relu", "bias_initializer": "normal"}
    found = [
        layers.Conv1D(6, 3, padding="causal", **options)(row),
        layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(6, 3, groups=2, use_bias=False)(image))),
        layers.Conv2D(6, 3, strides=2, padding="same", **options)(image),
        layers.Conv3D(6, 2, **options)(volume),
        layers.Conv3D(4, 2, data_format="channels_first")(volume),
    ]
    return keras.Model([row, image, volume], found), [[normal(2, *[6] * rank, 4) for rank in (1, 2, 3)]], {}


CASES = {
    "sequential": sequential,
    "sequential_of_tokens": sequential_of_tokens,
    "loaded_keras": lambda: loaded("keras"),
    "loaded_h5": lambda: loaded("h5"),
    "saved_model": lambda: of_saved_model("serve"),
    "saved_model_signature": lambda: of_saved_model("serving_default"),
    "subclassed": subclassed,
    "subclassed_and_built": subclassed_and_built,
    "fitted_on_tokens": fitted_on_tokens,
    "with_mask": with_mask,
    "half": half,
    "bare_layer": bare_layer,
    "arguments_in_order": arguments_in_order,
    "outputs_in_order": outputs_in_order,
    "dict_in_order": dict_in_order,
    "list_of_inputs": list_of_inputs,
    "shared_tensors": shared_tensors,
    "names": names,
    "two_lengths": two_lengths,
    "squares": lambda: of(SquaresOfRows(), normal(3, 2, 16)),
    "roots": lambda: of(ops.sqrt, normal(3, 5)),
    "sums_of_logarithms": lambda: of(lambda x: ops.sum(ops.log(x), -1, keepdims=True), np.abs(normal(3, 30))),
    "doubles": of_doubles,
    "groups": of_groups,
}


def leaves(value, key=()):
    """The names and values of a structure in its own order, as bundles name them."""
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in leaves(part, (*key, str(name)))]
    if isinstance(value, (list, tuple)):
        return [leaf for name, part in enumerate(value) for leaf in leaves(part, (*key, str(name)))]
    return [("_".join(key), np.asarray(value))]


def differences(name):
    """For each format the names of the outputs by file and by model, and the largest difference as a share of the scale."""
    keras.utils.set_random_seed(1)
    model, arguments, options, *named = CASES[name]()
    named = named[0] if named else {}
    values = (
        keras.tree.map_structure(np.asarray, arguments)
        if name != "list_of_inputs"
        else [list(map(np.array, arguments[0]))]
    )
    expected = leaves(model(*values, **named))
    with tempfile.TemporaryDirectory() as folder:
        export(model, f"{folder}/bundle", FORMATS, progress=False, options=ExportOptions(**options))
        found = {format: load(f"{folder}/bundle", backend=format)(*arguments, **named) for format in FORMATS}
    return {f"{name}-{format}": difference(each, expected) for format, each in found.items()}


def difference(found, expected):
    shapes = [(found_value.shape, each.shape) for found_value, (_, each) in zip(found.values(), expected, strict=True)]
    if any(a != b for a, b in shapes):
        return f"shapes {shapes}"
    pairs = list(zip(found.values(), (each.astype("float64") for _, each in expected), strict=True))
    same = all(np.array_equal(np.isnan(one), np.isnan(other)) for one, other in pairs)
    worst = max(np.nanmax(np.abs(one - other)) / np.nanmax(np.abs(other)) for one, other in pairs) if same else np.inf
    return {"found": list(found), "expected": [key for key, _ in expected], "difference": float(worst)}


def streaming(format):
    """Differences from Keras in two calls and after a reset; with a state that is given, the one that comes back."""
    x = keras.Input(batch_shape=(1, 1, 4))
    layer = layers.GRU(3, stateful=True)
    model = keras.Model(x, layers.Dense(2)(layer(x)))
    calls = normal(3, 1, 1, 4)
    model(calls[2])  # A state that is left over belongs to no file.
    with tempfile.TemporaryDirectory() as folder:
        export(model, f"{folder}/bundle", [format], progress=False)
        bundle = load(f"{folder}/bundle", backend=format)
        layer.reset_state()
        expected = [np.asarray(model(each)) for each in calls]
        found = [bundle(each)["output"] for each in calls]
        bundle.reset_state()
        found, expected = [*found, bundle(calls[0])["output"]], [*expected, expected[0]]
        given = bundle(input=calls[1], state=np.ones((1, 3)))
        layer.states[0].assign(np.ones((1, 3), "float32"))
        model(calls[1])
        state = np.abs(given["state"] - np.asarray(layer.states[0])).max()
    return [*(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True)), float(state)]


class Sampling(layers.Layer):
    """The latent vector of a variational autoencoder, with dropout that never ends."""

    def __init__(self):
        super().__init__()
        self.seed, self.dropout = keras.random.SeedGenerator(1), layers.Dropout(0.25)

    def call(self, x):
        mean, variance = ops.split(x, 2, axis=-1)
        noise = keras.random.normal(ops.shape(mean), stddev=2.0, seed=self.seed)
        return self.dropout(mean + ops.exp(variance / 2) * noise, training=True)


def sampling(format):
    """Differences with the noise of the call, the shapes of what the bundle draws, and how far two calls of it differ."""
    x = keras.Input((4,), name="x")
    model, array = keras.Model(x, Sampling()(x)), normal(6, 4)
    noise, uniform = normal(6, 2), RANDOM.random((6, 2)).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        export(model, f"{folder}/bundle", [format], progress=False)
        bundle = load(f"{folder}/bundle", backend=format)
        found = bundle(array, normal_noise=noise, uniform_noise=uniform)["output"]
        expected = (array[:, :2] + np.exp(array[:, 2:] / 2) * 2 * noise) * (uniform >= 0.25) / 0.75
        given = [each.describe() for each in bundle.inputs]
        again = [bundle(array, uniform_noise=uniform)["output"] for _ in "ab"]
    return {
        "difference": float(np.abs(found - expected).max()),
        "inputs": given,
        "drawn": float(np.abs(again[0] - again[1]).max()),
        "dropped": [float(np.abs(each[uniform < 0.25]).max(initial=0.0)) for each in again],
    }


def signatures(format):
    """Differences of each signature of a model, in half precision too, and of one that has no `call`."""
    model, x, found = Autoencoder(), normal(3, 4), []
    code = model.encode(x)
    decode = (model.decode, keras.InputSpec(shape=(None, 3)))
    expected = {"serve": (x, model(x)), "encode": (x, code), "decode": (code, model.decode(code))}
    with tempfile.TemporaryDirectory() as folder:
        options = ExportOptions(signatures={"encode": model.encode, "decode": decode})
        export(model, f"{folder}/bundle", [format], progress=False, options=options)
        for name, (given, wanted) in expected.items():
            output = load(f"{folder}/bundle", backend=format, signature=name)(np.asarray(given))["output"]
            found.append(float(np.abs(output - np.asarray(wanted)).max()))
        fresh = Autoencoder()
        first = (fresh.encode, keras.InputSpec(shape=(None, 4)))
        export(fresh, f"{folder}/one", [format], progress=False, options=ExportOptions(signatures={"encode": first}))
        output = load(f"{folder}/one", backend=format)(x)["output"]
        found.append(float(np.abs(output - np.asarray(fresh.encode(x))).max()))
    return found


def main(out):
    results = {}
    for name in CASES:
        try:
            results |= differences(name)
        except Exception as error:  # The test shows it.
            results |= {f"{name}-{format}": f"{type(error).__name__}: {error}" for format in FORMATS}
    for format, case in itertools.product(FORMATS, (sampling, streaming, signatures)):
        try:
            results[f"{case.__name__}-{format}"] = case(format)
        except Exception as error:  # The test shows it.
            results[f"{case.__name__}-{format}"] = f"{type(error).__name__}: {error}"
    pathlib.Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
