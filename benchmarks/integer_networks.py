"""The networks of `full_int8.py`: their data and their training, some minutes each."""

import collections
import io
import pathlib
import sys
import wave
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from measure import module_of
from micro import separable

from keras_transformer import load_model, models, tasks, training

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
BATCH, IGNORED = 64, 255
# Of those that follow with integers.
FURTHER_EPOCHS = 2
# Steps and bands of a spectrogram of a spoken digit, and the samples of a window.
STEPS, BANDS, WINDOW = 48, 32, 200
# Words of a question, and the least number of times that a known word occurs.
WORDS, OCCURRENCES = 24, 2


class Data(NamedTuple):
    """Inputs by name and labels, to train on and to test with."""

    train: dict
    labels: np.ndarray
    test: dict
    truth: np.ndarray


class Network(NamedTuple):
    """A network, the function of the options that returns its data, and its training."""

    make: Callable
    data: Callable
    epochs: int
    rate: float = 2e-3


def small_cnn():
    def unit(width, strides=1):
        convolution = layers.Conv2D(width, 3, strides, padding="same", use_bias=False)
        return [convolution, layers.BatchNormalization(), layers.ReLU()]

    units = [*unit(32), *unit(32, 2), *unit(64), *unit(64, 2), *unit(128, 2)]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(64, "relu"), layers.Dense(10, name="logits")]
    return keras.Sequential([keras.Input((32, 32, 3), name="images"), *units, *head])


def depthwise_cnn():
    """Separable convolutions with few numbers for each scale, and norms whose factors differ by channel."""

    def convolved(layer):
        return [layer, layers.BatchNormalization(momentum=0.9), layers.ReLU(6)]

    def unit(width, strides=1):
        depthwise = layers.DepthwiseConv2D(3, strides, padding="same", use_bias=False)
        return [*convolved(depthwise), *convolved(layers.Conv2D(width, 1, use_bias=False))]

    first = convolved(layers.Conv2D(16, 3, padding="same", use_bias=False))
    units = [*unit(32, 2), *unit(64), *unit(64, 2), *unit(128), *unit(128, 2), *unit(128)]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(10, name="logits")]
    return keras.Sequential([keras.Input((32, 32, 3), name="images"), *first, *units, *head])


def of_application(name, size, **options):
    """A network of `keras.applications` with a new head."""

    def make():
        images = keras.Input((size, size, 3), name="images")
        body = getattr(keras.applications, name)(
            include_top=False, weights=None, input_tensor=images, pooling="avg", **options
        )
        for layer in body.layers:
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = 0.9  # The default of 0.99 or 0.999 is for longer trainings.
        return keras.Model(images, layers.Dense(10, name="logits")(body.output))

    return make


def u_net():
    def unit(x, width):
        for _ in range(2):
            x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        return x

    images = keras.Input((64, 64, 3), name="images")
    x, skipped = images, []
    for width in (16, 32):
        skipped.append(unit(x, width))
        x = layers.MaxPooling2D()(skipped[-1])
    x = unit(x, 64)
    for width in (32, 16):
        x = layers.Conv2DTranspose(width, 2, 2)(x)
        x = unit(layers.Concatenate()([x, skipped.pop()]), width)
    return keras.Model(images, layers.Conv2D(4, 1, name="logits")(x))


def vit():
    backbone = models.ViT(models.Size(4, 96, 4, 192), patch_size=4, image_size=32)
    return tasks.ImageClassifier(backbone, 10, activation=None)


def tcn():
    x = spectrum = keras.Input((STEPS, BANDS), name="spectrum")
    x = layers.Conv1D(48, 1)(x)
    for dilation in (1, 2, 4, 8):
        y = layers.Conv1D(48, 3, dilation_rate=dilation, padding="causal", activation="relu")(x)
        x = layers.Add()([x, layers.Conv1D(48, 3, dilation_rate=dilation, padding="causal", activation="relu")(y)])
    return keras.Model(spectrum, layers.Dense(10, name="logits")(layers.GlobalAveragePooling1D()(x)))


def keyword_spotter():
    """DS-CNN."""
    spectrum = keras.Input((STEPS, BANDS), name="spectrum")
    x = layers.Reshape((STEPS, BANDS, 1))(spectrum)
    x = layers.Conv2D(64, (10, 4), 2, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    for _ in range(4):
        x = separable(x, 64)
    return keras.Model(spectrum, layers.Dense(10, name="logits")(layers.GlobalAveragePooling2D()(x)))


def recurrent(layer):
    def make():
        spectrum = keras.Input((STEPS, BANDS), name="spectrum")
        return keras.Model(spectrum, layers.Dense(10, name="logits")(layer()(spectrum)))

    return make


def bert():
    backbone = models.Encoder(models.Size(2, 128, 4, 256), 4096, max_sequence_length=WORDS, dropout=0.2)
    return tasks.SequenceClassifier(backbone, 6, pooling="mean", activation=None)


def pixels(size, scale=(1 / 127.5, -1.0)):
    """A function of the options that returns images of CIFAR-10 of a size, multiplied and shifted."""

    def data(options):
        if options.tiny:
            return random_data({"images": (size, size, 3)}, 10)
        from keras_transformer.data import load_images

        found = load_images(data_dir=options.data_dir / "cifar10_jpeg_subset")
        resize = tf.function(
            lambda images: tf.image.resize(tf.cast(images, "float32"), (size, size)) * scale[0] + scale[1]
        )
        test = slice(None, None, len(found.test.labels) // options.test_examples or 1)
        parts = [(found.train.images, found.train.labels), (found.test.images[test], found.test.labels[test])]
        (images, labels), (others, truth) = (
            (np.concatenate([resize(part) for part in np.array_split(images, 20)]), np.asarray(labels))
            for images, labels in parts
        )
        return Data({"images": images}, labels, {"images": others}, truth)

    return data


def shapes(options):
    """Drawn shapes, and the class of each of their pixels."""
    if options.tiny:
        return random_data({"images": (64, 64, 3)}, 4, (64, 64))
    sys.path.insert(0, str(EXAMPLES))
    draw = module_of(EXAMPLES / "segmentation.py").draw_shapes
    (images, labels), (others, truth) = draw(4000, seed=1), draw(min(options.test_examples, 500), seed=0)
    images, others = (each.astype("float32") / 127.5 - 1 for each in (images, others))
    return Data({"images": images}, labels, {"images": others}, truth)


def spectra(options):
    """Logarithmic spectrograms of spoken digits; the recordings 0 to 9 of each digit of each speaker are for the test."""
    if options.tiny:
        return random_data({"spectrum": (STEPS, BANDS)}, 10)
    examples, labels, is_test = [], [], []
    with zipfile.ZipFile(options.data_dir / "fsdd" / "recordings.zip") as archive:
        for name in sorted(each for each in archive.namelist() if each.endswith(".wav")):
            digit, _, number = pathlib.PurePath(name).stem.split("_")
            with wave.open(io.BytesIO(archive.read(name))) as file:
                samples = np.frombuffer(file.readframes(file.getnframes()), "int16") / 32768
            examples.append(spectrogram(samples))
            labels.append(int(digit))
            is_test.append(int(number) < 10)
    order = np.random.default_rng(0).permutation(len(labels))
    examples, labels, is_test = (np.array(each)[order] for each in (examples, labels, is_test))
    examples = ((examples - examples.mean()) / examples.std()).astype("float32")
    train, test = ({"spectrum": examples[rows]} for rows in (~is_test, is_test))
    return Data(train, labels[~is_test], test, labels[is_test])


def spectrogram(samples):
    """The logarithm of the power in bands of equal width, of steps of 15 ms, with silence behind."""
    samples = np.pad(samples, (0, max(0, WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::120][:STEPS] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, 2 * 128)[:, 1:]) ** 2
    found = np.log(power.reshape(len(frames), BANDS, -1).sum(-1) + 1e-6)
    return np.pad(found, ((0, STEPS - len(found)), (0, 0)), constant_values=np.log(1e-6))


def questions(options):
    """The words of the questions of TREC, and what is asked for."""
    if options.tiny:
        random = np.random.default_rng(0)
        ids, mask = random.integers(1, 4096, (128, WORDS)).astype("int32"), np.ones((128, WORDS), bool)
        labels = random.integers(0, 6, 128)
        return Data({"token_ids": ids, "padding_mask": mask}, labels, {"token_ids": ids, "padding_mask": mask}, labels)
    files = [options.data_dir / "sentence_cls" / f"TREC.{part}.all" for part in ("train", "test")]
    parts = [[line.split() for line in file.read_text("latin-1").splitlines()] for file in files]
    counts = collections.Counter(word for _, *words in parts[0] for word in words)
    known = [word for word, count in counts.most_common(4094) if count >= OCCURRENCES]
    ids = {word: number for number, word in enumerate(known, 2)}
    found = []
    for part in parts:
        rows = np.zeros((len(part), WORDS), "int32")
        for row, (_, *words) in zip(rows, part, strict=True):
            row[: len(words)] = [ids.get(word, 1) for word in words[:WORDS]]
        found += [{"token_ids": rows, "padding_mask": rows > 0}, np.array([int(label) for label, *_ in part])]
    return Data(*found)


def random_data(shapes, classes, targets=()):
    random = np.random.default_rng(0)
    parts = []
    for _ in range(2):
        parts += [
            {name: random.normal(size=(128, *shape)).astype("float32") for name, shape in shapes.items()},
            random.integers(0, classes, (128, *targets)),
        ]
    return Data(*parts)


NETWORKS = {
    "small CNN": Network(small_cnn, pixels(32), 4),
    "depthwise CNN": Network(depthwise_cnn, pixels(32), 6),
    "MobileNetV2 0.35": Network(of_application("MobileNetV2", 64, alpha=0.35), pixels(64), 4),
    "MobileNetV3Small": Network(of_application("MobileNetV3Small", 64, include_preprocessing=False), pixels(64), 4),
    "EfficientNetB0": Network(of_application("EfficientNetB0", 48), pixels(48, (1.0, 0.0)), 2),
    "ResNet50": Network(of_application("ResNet50", 32), pixels(32), 2, 1e-3),
    "U-Net": Network(u_net, shapes, 4),
    "ViT": Network(vit, pixels(32), 4, 1e-3),
    "TCN": Network(tcn, spectra, 12),
    "keyword spotter": Network(keyword_spotter, spectra, 12),
    "BERT": Network(bert, questions, 6, 1e-3),
    "LSTM": Network(recurrent(lambda: layers.LSTM(64)), spectra, 12),
    "GRU": Network(recurrent(lambda: layers.GRU(64)), spectra, 12),
    "bidirectional LSTM": Network(recurrent(lambda: layers.Bidirectional(layers.LSTM(32))), spectra, 12),
}


def trained(name, data, path, options):
    """A network after its training, or from the file of one."""
    if not path.exists():
        keras.utils.set_random_seed(0)
        network = NETWORKS[name]
        fitted(network.make(), data, network.rate, network.epochs, options).save(path)
    return load_model(path)


def trained_on(model, name, data, options):
    """A model after further epochs with its integers, and after as many in float."""
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    aware = training.quantization_aware(model, "full_int8")
    rate = NETWORKS[name].rate / 4
    return [fitted(each, data, rate, FURTHER_EPOCHS, options) for each in (aware, twin)]


def fitted(model, data, rate, epochs, options):
    count, epochs = (BATCH, 1) if options.tiny else (len(data.labels), epochs)
    steps = epochs * (count // BATCH)
    schedule = keras.optimizers.schedules.CosineDecay(
        rate / 10, steps, alpha=0.01, warmup_target=rate, warmup_steps=min(100, steps - 1)
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=IGNORED)
    model.compile(keras.optimizers.Adam(schedule), loss, jit_compile=False)
    rows = {key: array[:count] for key, array in data.train.items()}
    model.fit(rows, data.labels[:count], batch_size=BATCH, epochs=epochs, verbose=0)
    return model
