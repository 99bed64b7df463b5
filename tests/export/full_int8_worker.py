"""Exports small models in integers: `full_int8_worker.py OUT_DIRECTORY`; see test_full_int8.py."""

import itertools
import json
import os
import pathlib
import sys
import traceback
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers
from worker_cases import is_exhaustive

from keras_transformer import training
from keras_transformer.export import Evaluation, ExportOptions, FullInt8, QuantizationError, WeightError, export, load
from keras_transformer.export.onnx.quantization import full_integers as onnx_integers
from keras_transformer.export.onnx.quantization.full_integers import tensor_ranges as onnx_ranges
from keras_transformer.export.onnx.weights.folding import fold
from keras_transformer.export.tflite.quantization import full_integers as tflite_integers
from keras_transformer.export.tflite.quantization import loops
from keras_transformer.export.tflite.quantization.activation_ranges import tensor_ranges as tflite_ranges
from keras_transformer.export.tflite.tree import read
from keras_transformer.training.compression.integers.layers import quantizers_of
from keras_transformer.training.compression.integers.model import integer_layers


def convolutions():
    """Every kind of convolution, pooling, resizing, and factors of channels that are folded."""
    images = keras.Input((16, 16, 3), name="images")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(images)))
    x = layers.ReLU(6.0)(layers.BatchNormalization()(layers.DepthwiseConv2D(3, strides=2, padding="same")(x)))
    wide = layers.UpSampling2D(2, interpolation="bilinear")(layers.MaxPooling2D()(x))
    x = layers.Concatenate()([layers.Conv2D(8, 1)(x), wide, layers.SeparableConv2D(4, 3, padding="same")(x)])
    x = layers.AveragePooling2D(2)(layers.Conv2DTranspose(8, 2, strides=2, activation="relu", name="larger")(x))
    x = layers.Dense(16, activation="silu")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, layers.Dense(5, name="logits")(x)), (16, 16, 3)


def attention():
    """Attention under an additive mask, layer normalization, GELU and probabilities."""
    x = keras.Input((8, 16), name="x")
    mask = np.triu(np.full((8, 8), -1e9, "float32"), 1)
    scores = layers.Lambda(
        lambda y: keras.ops.matmul(y, keras.ops.transpose(y, (0, 2, 1))) * 0.25 + mask, name="scores"
    )
    weights = layers.Softmax()(scores(layers.Dense(16, name="query")(x)))
    context = layers.Dot((2, 1))([weights, layers.Dense(16, name="value")(x)])
    y = layers.LayerNormalization()(layers.Add()([x, context]))
    y = layers.Dense(16)(layers.Dense(32, activation="gelu")(y))
    return keras.Model(x, layers.Dense(4, "softmax", name="probabilities")(y)), (8, 16)


def gated():
    """Hard swishes, and a gate of the channels by their means."""
    images = keras.Input((8, 8, 3), name="images")
    x = layers.Conv2D(8, 3, padding="same", activation="hard_swish", name="wide")(images)
    gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
    gate = layers.Conv2D(8, 1, activation="hard_sigmoid", name="gate")(layers.Conv2D(4, 1, activation="relu")(gate))
    x = layers.Conv2D(8, 1, activation="hard_swish", name="narrow")(layers.Multiply()([x, gate]))
    return keras.Model(images, layers.Dense(5, name="logits")(layers.GlobalAveragePooling2D()(x))), (8, 8, 3)


def bounded():
    """A bound that no number of the data reaches, and a function that TensorFlow's quantizer does not know."""
    x = keras.Input((6, 16), name="x")
    y = layers.Dense(16, activation="elu", name="smooth")(layers.Dense(16, activation="relu6")(x))
    return keras.Model(x, layers.Dense(4, name="output")(y)), (6, 16)


def embedded():
    """A table of which the calibration data look up the rows with small numbers alone."""
    ids = keras.Input((6,), dtype="int32", name="ids")
    table = layers.Embedding(50, 16, name="table")
    x = layers.Flatten()(table(ids))
    # Without the range of the table itself, the last row would be cut off.
    factors = np.where(np.arange(50) == 49, 4, 1)[:, None]
    table.embeddings.assign(np.random.default_rng(0).normal(size=(50, 16)) * factors)
    return keras.Model(ids, layers.Dense(5, name="logits")(layers.Dense(16, activation="relu")(x))), (6,)


def recurrent():
    """Loops in TFLite, operators in ONNX, of which the products or the weights are of integers."""
    x = keras.Input((6, 8), name="x")
    y = layers.Bidirectional(layers.LSTM(8, return_sequences=True, name="memory"), name="both")(x)
    y = layers.SimpleRNN(8, name="simple")(layers.GRU(8, return_sequences=True, name="gates")(y))
    return keras.Model(x, layers.Dense(3, name="output")(y)), (6, 8)


def expected_ranges(model, x):
    """What the products of the forward LSTM read and compute at each step."""
    layer = model.get_layer("both").forward_layer
    states = np.pad(np.asarray(layer(x)), ((0, 0), (1, 0), (0, 0)))[:, :-1]
    kernels = [np.asarray(each) for each in (layer.cell.kernel, layer.cell.recurrent_kernel)]
    pairs = [(read, read @ kernel) for read, kernel in zip((x, states), kernels, strict=True)]
    return [[[float(each.min()), float(each.max())] for each in pair] for pair in pairs]


def measured_ranges(model, content, batches):
    """The same, as they are measured."""
    kernels = (
        model.get_layer("both").forward_layer.cell.kernel,
        model.get_layer("both").forward_layer.cell.recurrent_kernel,
    )
    found = loops.product_ranges(content, batches, loops.weights_of_steps(read(content), ()), "minmax")
    return [found[loops.content_of(np.asarray(each).T)] for each in kernels]


def trained_network():
    """Convolutions with norms, attention and a recurrent layer."""
    images = keras.Input((8, 8, 3), name="images")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False, name="first")(images)
    x = layers.ReLU(6.0, name="rectifier")(layers.BatchNormalization(momentum=0.8)(x))
    x = layers.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False, name="depthwise")(x)
    x = layers.ReLU(name="half")(layers.BatchNormalization(momentum=0.8)(x))
    y = layers.SeparableConv2D(16, 3, padding="same", activation="silu", name="separable")(x)
    x = layers.Conv2D(16, 1, activation="relu", name="pointwise")(layers.Add(name="sum")([x, y]))
    x = layers.Reshape((16, 16))(layers.Conv2DTranspose(16, 1, name="transposed")(x))
    x = layers.LayerNormalization(name="normed")(layers.MultiHeadAttention(2, 8, name="attention")(x, x))
    x = layers.LSTM(8, name="memory")(x)
    return keras.Model(images, layers.Dense(3, name="logits")(x), name="network")


def trained(out):
    """A model that was trained with its integers: what it computes, its ranges and weights, and what its files compute."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 128)
    data = (random.normal(size=(128, 8, 8, 3)) + np.eye(3)[labels][:, None, None]).astype("float32")
    aware = training.quantization_aware(trained_network(), "full_int8")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    aware.compile(keras.optimizers.Adam(3e-3), loss, jit_compile=False)
    aware.fit(data, labels, batch_size=16, epochs=8, verbose=0)
    mode = FullInt8(data[:40])
    export(aware, out / "trained", ["tflite", "onnx"], quantize=mode, progress=False)
    plain = training.learned_model(aware)
    outputs = {"aware": np.asarray(aware(data[:40])), "plain": np.asarray(plain(data[:40]))}
    outputs |= {format: load(out / "trained", format)(data[:40])["logits"] for format in ("tflite", "onnx")}
    quantizers = [each for layer in integer_layers(aware) for each in quantizers_of(layer)]
    return {
        "ranges": {each.path: each.range() for each in quantizers},
        "weights": {each.path: np.asarray(each).tolist() for each in aware.weights if "quantizer" not in each.path},
        "outputs": {name: each.tolist() for name, each in outputs.items()},
        "faults": {name: planted(aware, mode, name, module, out) for name, module in MODULES.items()},
    }


def planted(aware, mode, format, module, out):
    """What an export says of a file with the scales of ranges that are smaller than those that were learned."""
    quantize = module.in_integers

    def faulty(source, ranges, *arguments):
        return quantize(source, {key: (0.9 * least, 0.9 * most) for key, (least, most) in ranges.items()}, *arguments)

    with mock.patch.object(module, "in_integers", faulty):
        try:
            export(aware, out / f"fault_{format}", [format], quantize=mode, progress=False)
        except WeightError as error:
            return str(error)
    return ""


MODULES = {"tflite": tflite_integers, "onnx": onnx_integers}
ENDS = {8: {"input_type": "int8", "output_type": "uint8"}, 16: {"input_type": "int16", "output_type": "int16"}}
CASES = {each.__name__: each for each in (convolutions, attention, gated, bounded, embedded, recurrent)}
EXHAUSTIVE = ("gated", "embedded")


def label(name, format, bits):
    return f"{name}_{format}" if bits == 8 else f"{name}_{format}_{bits}"


def measured(out, name, format, bits):
    """What a bundle computes for other data, and what its report says."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    model, shape = CASES[name]()
    data = random.normal(size=(48, *shape))
    for each in model.weights:
        is_variance = each.path.endswith("variance")
        each.assign(each + random.normal(scale=0.1, size=each.shape) ** (2 if is_variance else 1))
    if model.inputs[0].dtype == "int32":
        data = np.concatenate([random.integers(0, 40, (40, *shape)), random.integers(0, 49, (8, *shape))])
    data = data.astype(model.inputs[0].dtype)
    folder = out / label(name, format, bits)
    ends = ENDS[bits] if name == "convolutions" and format == "tflite" else {}
    quantizations = ["float32", FullInt8((data[:40], np.zeros(40)), activation_bits=bits, **ends)]
    artifact = export(model, folder, [format], quantize=quantizations, progress=False)["full_int8"][format]
    (found,) = load(folder / "full_int8")(data[40:]).values()
    expected = np.asarray(model(data[40:]))
    of_steps = None
    batches = [{model.inputs[0].name: data[:40]}]
    file = folder / "float32" / f"model.{format}"
    if format == "tflite":
        if name == "recurrent":
            of_steps = {
                "expected": expected_ranges(model, data[:40]),
                "found": measured_ranges(model, file.read_bytes(), batches),
            }
        ranges = [[*key, *ends] for key, ends in tflite_ranges(file.read_bytes(), batches, bits=bits).items()]
    else:
        ranges = [[key, *ends] for key, ends in onnx_ranges(fold(file, folder), batches, bits=bits).items()]
    return {
        "error": float(np.sqrt(np.mean(np.square(found - expected)) / np.mean(np.square(expected)))),
        "agreement": float(np.mean(found.argmax(-1) == expected.argmax(-1))),
        "integers": artifact.integers.to_dict(),
        "ranges": ranges,
        "of_steps": of_steps,
    }


def costly(out, format):
    """What an export says of a network of which one layer does not bear 8 bits: the scales are those of what is not read."""
    x = keras.Input((64,), name="x")
    exact, fragile = (layers.Dense(size, use_bias=False, name=name) for size, name in ((64, "exact"), (32, "fragile")))
    model = keras.Model(x, fragile(exact(x)))
    kernel = np.random.default_rng(0).normal(0, 0.1, (64, 32))
    kernel[32:] = 100
    exact.kernel.assign(np.eye(64))
    fragile.kernel.assign(kernel)
    data = np.eye(64, dtype="float32")[:32]
    options = ExportOptions(evaluation=Evaluation([data], [kernel[:32].argmax(-1)], max_loss=0.1))
    mode = FullInt8(data, tolerance=10.0)
    try:
        export(model, out / f"costly_{format}", [format], quantize=mode, options=options, progress=False)
    except QuantizationError as error:
        return {"refused": str(error)}
    return {"refused": ""}


def main():
    out = pathlib.Path(sys.argv[1])
    results = {}
    chosen = [name for name in CASES if is_exhaustive() or name not in EXHAUSTIVE]
    for name, format, bits in itertools.product(chosen, ("tflite", "onnx"), ENDS):
        try:
            results[label(name, format, bits)] = measured(out, name, format, bits)
        except Exception:  # The test shows it.
            results[label(name, format, bits)] = {"crash": traceback.format_exc()}
    for format in ("tflite", "onnx"):
        results[f"costly_{format}"] = costly(out, format)
    try:
        results["trained"] = trained(out)
    except Exception:  # The test shows it.
        results["trained"] = {"crash": traceback.format_exc()}
    (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
