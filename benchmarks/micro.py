"""Microcontrollers: the four networks of MLPerf Tiny, trained here a little, in TensorFlow Lite for Microcontrollers.

    python benchmarks/micro.py --data-dir DIR     # DIR/fsdd/recordings.zip and DIR/cifar10_jpeg_subset
    python benchmarks/micro.py --tiny             # smoke test: random data, one step of training

The networks are those of the benchmark (Banbury et al., "MLPerf Tiny Benchmark", 2021); the data are not: digits of the
Free Spoken Digit Dataset for the keyword spotter and the autoencoder, whose anomalies are the same recordings with a
hum, and CIFAR-10 for the images, for MobileNet enlarged, and told apart as animals and vehicles. Scores are accuracies
in percent, or the area under the curve. Files are of int8 at both ends, too, and calibrated on rows of the training
data. The arena, and the operators that equal those of LiteRT bit for bit, are measured in tflite-micro; what the NPU
takes and its cycles are those of Arm's Vela.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import io
import pathlib
import re
import tempfile
import wave
import zipfile
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from measure import Table, arguments, versions

from keras_transformer.export import EthosU, ExportOptions, FullInt8, export, load

CALIBRATION, RATE = 100, 8000
NAME = re.compile(r"recordings/(?P<digit>\d)_\w+_(?P<index>\d+)\.wav$")
# As in the official split, the first five recordings of each digit by each speaker are for tests.
TEST_INDICES = 5
ANIMALS = (2, 3, 4, 5, 6, 7)


def normalized(x, activation=True):
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.ReLU()(x) if activation else x


def separable(x, width, strides=1):
    x = normalized(layers.DepthwiseConv2D(3, strides, padding="same", use_bias=False)(x))
    return normalized(layers.Conv2D(width, 1, use_bias=False)(x))


def keyword_spotter():
    """DS-CNN: ten cepstral coefficients of 49 frames."""
    spectrum = keras.Input((49, 10, 1), name="spectrum")
    x = normalized(layers.Conv2D(64, (10, 4), 2, padding="same", use_bias=False)(spectrum))
    for _ in range(4):
        x = separable(x, 64)
    x = layers.Flatten()(layers.AveragePooling2D((25, 5))(x))
    return keras.Model(spectrum, layers.Dense(10, "softmax", name="probabilities")(x))


def mobilenet():
    """MobileNetV1, with a quarter of the channels."""
    images = keras.Input((96, 96, 3), name="images")
    x = normalized(layers.Conv2D(8, 3, 2, padding="same", use_bias=False)(images))
    blocks = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)]
    for width, strides in blocks:
        x = separable(x, width, strides)
    x = layers.Flatten()(layers.AveragePooling2D(3)(x))
    return keras.Model(images, layers.Dense(2, "softmax", name="probabilities")(x))


def resnet():
    """ResNet-8."""
    images = keras.Input((32, 32, 3), name="images")
    x = normalized(layers.Conv2D(16, 3, padding="same", use_bias=False)(images))
    for width, strides in ((16, 1), (32, 2), (64, 2)):
        y = normalized(layers.Conv2D(width, 3, strides, padding="same", use_bias=False)(x))
        y = normalized(layers.Conv2D(width, 3, padding="same", use_bias=False)(y), activation=False)
        x = x if strides == 1 else layers.Conv2D(width, 1, strides, padding="same")(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return keras.Model(images, layers.Dense(10, "softmax", name="probabilities")(x))


def autoencoder():
    """Five frames of 128 bands, through eight numbers."""
    spectrum = keras.Input((640,), name="spectrum")
    x = spectrum
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = normalized(layers.Dense(width, use_bias=False)(x))
    return keras.Model(spectrum, layers.Dense(640, name="restored")(x))


class Data(NamedTuple):
    """Rows to train on and to test with, and what is to be found of them."""

    train: np.ndarray
    targets: np.ndarray
    test: np.ndarray
    truth: np.ndarray


def cepstra(options):
    """The frames of spoken digits, and the digits."""
    if options.tiny:
        return random_data((49, 10, 1), 10)
    samples, digits, is_test = recordings(options.data_dir)
    found = tf.signal.mfccs_from_log_mel_spectrograms(bands(samples, 320, 160, 40))[:, :49, :10, None].numpy()
    found = (found - found[~is_test].mean((0, 1))) / found[~is_test].std((0, 1))
    return Data(found[~is_test], digits[~is_test], found[is_test], digits[is_test])


def windows(options):
    """Windows of five frames of spoken digits; those of the test, and the same with a hum, which are the anomalies."""
    if options.tiny:
        data = random_data((640,), 2)
        return data._replace(targets=data.train)
    samples, _, is_test = recordings(options.data_dir)
    hum = 0.02 * np.sin(2 * np.pi * 400 * np.arange(samples.shape[1]) / RATE).astype("float32")
    train, normal, anomalies = (joined(each) for each in (samples[~is_test], samples[is_test], samples[is_test] + hum))
    mean, deviation = train.mean(), train.std()
    train, test = ((each - mean) / deviation for each in (train, np.concatenate([normal, anomalies])))
    return Data(train, train, test, np.repeat([0, 1], [len(normal), len(anomalies)]))


def joined(samples):
    """One window of five frames of each recording, from its start."""
    return bands(samples, 1024, 512, 128).numpy()[:, 1:6].reshape(len(samples), 640)


def bands(samples, length, step, count):
    """Logarithms of mel bands `(B, T, count)`."""
    size = 1 << (length - 1).bit_length()
    spectra = tf.abs(tf.signal.stft(samples, length, step, size))
    weights = tf.signal.linear_to_mel_weight_matrix(count, size // 2 + 1, RATE, 20, RATE / 2)
    return tf.math.log(spectra @ weights + 1e-3)


def recordings(folder):
    """`(samples, digits, is_test)`: a second of each recording."""
    samples, digits, indices = [], [], []
    with zipfile.ZipFile(folder / "fsdd" / "recordings.zip") as archive:
        for name in archive.namelist():
            match = NAME.search(name)
            with wave.open(io.BytesIO(archive.read(name))) as file:
                array = np.frombuffer(file.readframes(RATE), "<i2").astype("float32") / 2**15
            samples.append(np.pad(array, (0, RATE - len(array))))
            digits.append(int(match["digit"]))
            indices.append(int(match["index"]))
    return np.stack(samples), np.array(digits), np.array(indices) < TEST_INDICES


def pixels(options, size=32, classes=10):
    """Images of CIFAR-10 from -1 to 1."""
    if options.tiny:
        return random_data((size, size, 3), classes)
    from keras_transformer.data import load_images

    found = load_images(data_dir=options.data_dir / "cifar10_jpeg_subset")
    parts = []
    for part in (found.train, found.test):
        images = np.repeat(np.repeat(part.images, size // 32, 1), size // 32, 2).astype("float32") / 127.5 - 1
        labels = np.asarray(part.labels)
        parts += [images, labels if classes == 10 else np.isin(labels, ANIMALS).astype(int)]
    return Data(*parts)


def random_data(shape, classes):
    random = np.random.default_rng(0)
    train, test = random.normal(size=(2, 64, *shape)).astype("float32")
    targets, truth = (np.arange(64) * random.integers(1, 9)) % classes, np.arange(64) % classes
    return Data(train, targets, test, truth)


def accuracy(outputs, data):
    return round(100 * float(np.mean(outputs.argmax(-1) == data.truth)), 2)


def area(outputs, data):
    """Area under the curve of the squared errors."""
    errors = np.square(outputs - data.test).mean(-1)
    ranks = errors.argsort().argsort() + 1
    anomalies = data.truth == 1
    count, others = anomalies.sum(), (~anomalies).sum()
    return round(float((ranks[anomalies].sum() - count * (count + 1) / 2) / (count * others)), 4)


class Network(NamedTuple):
    """A network, its data and its training."""

    make: object
    data: object
    score: object
    loss: str
    epochs: int


_CLASSES = "sparse_categorical_crossentropy"
NETWORKS = {
    "keyword spotter": Network(keyword_spotter, cepstra, accuracy, _CLASSES, 8),
    "MobileNetV1 0.25": Network(mobilenet, lambda options: pixels(options, 96, 2), accuracy, _CLASSES, 3),
    "ResNet-8": Network(resnet, pixels, accuracy, _CLASSES, 6),
    "autoencoder": Network(autoencoder, windows, area, "mse", 30),
}


def trained(network, data, options):
    keras.utils.set_random_seed(0)
    model = network.make()
    model.compile(keras.optimizers.Adam(2e-3), network.loss)
    epochs = 1 if options.tiny else network.epochs
    model.fit(data.train, data.targets, batch_size=64, epochs=epochs, verbose=0)
    return model


def measure(table, options, name):
    network = NETWORKS[name]
    data = network.data(options)
    model = trained(network, data, options)
    whole = network.score(model.predict(data.test, verbose=0), data)
    mode = FullInt8(data.train[:CALIBRATION], input_type="int8", output_type="int8")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        targets = {"micro": "micro", "ethos-u": EthosU(options.accelerator)}
        found = {}
        for key, target in targets.items():
            chosen = ExportOptions(target=target)
            report = export(model, folder / key, quantize=mode, progress=False, options=chosen)
            (found[key],) = report.target.signatures
        run, entry = load(folder / "micro", "tflite"), model.inputs[0].name
        outputs = np.concatenate([next(iter(run({entry: row[None]}).values())) for row in data.test])
        size = (folder / "micro" / "model.tflite").stat().st_size
    score, figures, npu = network.score(outputs, data), found["micro"].figures, found["ethos-u"]
    table.add(
        network=name,
        float=whole,
        int8=score,
        lost=round(whole - score, 4),
        bytes=size,
        array=figures["array_bytes"],
        arena=figures["arena_bytes"],
        equal=f"{figures['equal_bit_for_bit']} of {figures['operators_compared_with_litert']}",
        npu=f"{npu.taken} of {npu.nodes}",
        cycles=npu.figures["cycles"],
        milliseconds=round(npu.figures["milliseconds"], 3),
    )


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--accelerator", default="ethos-u55-128", help="the NPU that Vela compiles for")
    options = parser.parse_args()
    if not options.tiny and options.data_dir is None:
        parser.error("--data-dir is required")
    table = Table("microcontrollers", versions("tensorflow", "tflite-micro", "ethos-u-vela", "ai-edge-litert"))
    for name in options.networks:
        measure(table, options, name)
    table.finish(options.json)


if __name__ == "__main__":
    main()
