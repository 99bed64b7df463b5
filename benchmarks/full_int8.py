"""Integers throughout: accuracy, size and time of small networks, beside the files of TensorFlow and ONNX Runtime.

    python benchmarks/full_int8.py --data-dir cifar10
    python benchmarks/full_int8.py --digits-dir DIR --networks LSTM GRU    # DIR/recordings.zip of spoken digits
    python benchmarks/full_int8.py --data-dir cifar10 --networks "depthwise CNN" --ranges mse --train
    python benchmarks/full_int8.py --tiny    # smoke test: random data, one step of training

The networks are trained here for some minutes on CIFAR-10, those of recurrent layers on the Free Spoken Digit Dataset. All
files are calibrated on the same examples. Accuracy is in percent over the test examples; time is that of one, the median of
`--rounds`. With `--train`, "trained" is the model after further epochs with its integers, and "float32, trained" after as
many without. TensorFlow's converter does not take recurrent layers of Keras 3 with a dynamic batch.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import io
import pathlib
import tempfile
import wave
import zipfile

import keras
import numpy as np
import onnx
import tensorflow as tf
from keras import layers
from measure import Table, arguments, milliseconds, ratio, take_turns, timed, versions

from keras_transformer import training
from keras_transformer.export import FullInt8, QuantizationError, export

CALIBRATION, ROWS = 128, 200
# Of `--train`.
FURTHER_RATE, FURTHER_EPOCHS = 5e-4, 2
RANGES = ("mse", "minmax", "percentile", "entropy", "moving_average")
# Steps and bands of a spectrogram of a spoken digit, and the samples of a window.
STEPS, BANDS, WINDOW = 48, 32, 200


def small_cnn():
    def unit(width, strides=1):
        convolution = layers.Conv2D(width, 3, strides, padding="same", use_bias=False)
        return [convolution, layers.BatchNormalization(), layers.ReLU()]

    units = [*unit(32), *unit(32, 2), *unit(64), *unit(64, 2), *unit(128, 2)]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(64, "relu"), layers.Dense(10, name="logits")]
    return keras.Sequential([keras.Input((32, 32, 3), name="images"), layers.Rescaling(1 / 127.5, -1), *units, *head])


def depthwise_cnn():
    """Separable convolutions with few numbers for each scale, and norms whose factors differ by channel."""

    def unit(width, strides=1):
        layer = layers.Conv2D(width, 1, use_bias=False)
        depthwise = layers.DepthwiseConv2D(3, strides, padding="same", use_bias=False)
        norms = [layers.BatchNormalization(momentum=0.9) for _ in range(2)]
        return [depthwise, norms[0], layers.ReLU(6), layer, norms[1], layers.ReLU(6)]

    first = [
        layers.Conv2D(16, 3, padding="same", use_bias=False),
        layers.BatchNormalization(momentum=0.9),
        layers.ReLU(6),
    ]
    units = [*unit(32, 2), *unit(64), *unit(64, 2), *unit(128), *unit(128, 2), *unit(128)]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(10, name="logits")]
    image = [keras.Input((32, 32, 3), name="images"), layers.Rescaling(1 / 127.5, -1)]
    return keras.Sequential([*image, *first, *units, *head])


def mobilenet_v2():
    images = keras.Input((32, 32, 3), name="images")
    larger = layers.Rescaling(1 / 127.5, -1)(layers.UpSampling2D(2, interpolation="bilinear")(images))
    body = keras.applications.MobileNetV2((64, 64, 3), alpha=0.35, include_top=False, weights=None, pooling="avg")
    for layer in body.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9  # The default of 0.999 is for longer trainings.
    return keras.Model(images, layers.Dense(10, name="logits")(body(larger)))


def bidirectional():
    return layers.Bidirectional(layers.LSTM(32))


OF_IMAGES = {"small CNN": (small_cnn, 4), "depthwise CNN": (depthwise_cnn, 6), "MobileNetV2 0.35": (mobilenet_v2, 3)}
OF_SOUNDS = {"LSTM": lambda: layers.LSTM(64), "GRU": lambda: layers.GRU(64), "bidirectional LSTM": bidirectional}
NETWORKS = (*OF_IMAGES, *OF_SOUNDS)


def built(network):
    """A network and its epochs."""
    if network in OF_IMAGES:
        make, epochs = OF_IMAGES[network]
        return make(), epochs
    x = keras.Input((STEPS, BANDS), name="x")
    return keras.Model(x, layers.Dense(10, name="logits")(OF_SOUNDS[network]()(x))), 12


def trained(network, data, options):
    keras.utils.set_random_seed(0)
    model, epochs = built(network)
    return fitted(model, data, 2e-3, epochs, options)


def fitted(model, data, learning_rate, epochs, options):
    loss, (images, labels) = keras.losses.SparseCategoricalCrossentropy(from_logits=True), data
    count, epochs = (64, 1) if options.tiny else (len(images), epochs)
    steps = epochs * -(-count // 64)
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, steps, alpha=0.05)
    # XLA's convolutions are slower on CPUs.
    model.compile(keras.optimizers.Adam(schedule), loss, metrics=["accuracy"], jit_compile=False)
    model.fit(images[:count], labels[:count], batch_size=64, epochs=epochs, verbose=0)
    return model


def trained_on(model, data, options):
    """The model after further epochs with its integers, and after as many in float."""
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    aware = training.quantization_aware(model, "full_int8")
    return [fitted(each, data, FURTHER_RATE, FURTHER_EPOCHS, options) for each in (aware, twin)]


def data_of(network, options):
    """The examples and labels to train on, and those to test."""
    if options.tiny:
        random, shape = np.random.default_rng(0), (32, 32, 3) if network in OF_IMAGES else (STEPS, BANDS)
        sets = [(random.uniform(0, 255, (128, *shape)), random.integers(0, 10, 128)) for _ in range(2)]
        return [(examples.astype("float32"), labels) for examples, labels in sets]
    if network in OF_SOUNDS:
        return spoken_digits(options.digits_dir)
    from keras_transformer.data import load_images

    data = load_images(data_dir=options.data_dir)
    return [(images.astype("float32"), np.asarray(labels)) for images, labels in (data.train, data.test)]


def spoken_digits(folder):
    """Logarithmic spectrograms of spoken digits, in an order of chance; the recordings 0 to 9 of each are for the test."""
    examples, labels, is_test = [], [], []
    with zipfile.ZipFile(folder / "recordings.zip") as archive:
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
    return [(examples[~is_test], labels[~is_test]), (examples[is_test], labels[is_test])]


def spectrogram(samples):
    """The logarithm of the power in bands of equal width, of steps of 15 ms, with silence behind."""
    samples = np.pad(samples, (0, max(0, WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::120][:STEPS] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, 2 * 128)[:, 1:]) ** 2
    found = np.log(power.reshape(len(frames), BANDS, -1).sum(-1) + 1e-6)
    return np.pad(found, ((0, STEPS - len(found)), (0, 0)), constant_values=np.log(1e-6))


def tensorflow_file(model, calibration, folder):
    """The file of TensorFlow's own converter, with floats at both ends."""
    model.export(folder / "saved", verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "saved"))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([row[None]] for row in calibration)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS]
    path = folder / "tensorflow.tflite"
    path.write_bytes(converter.convert())
    return path


def onnxruntime_file(float_file, calibration, folder):
    """The file of onnxruntime.quantization, after its own preprocessing of our float file."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    (name,) = (each.name for each in onnx.load(float_file, load_external_data=False).graph.input)

    class Reader(CalibrationDataReader):
        rows = iter(calibration)

        def get_next(self):
            return next(({name: row[None]} for row in self.rows), None)

    quant_pre_process(str(float_file), str(folder / "prepared.onnx"), skip_symbolic_shape=True)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    path = folder / "onnxruntime.onnx"
    quantize_static(str(folder / "prepared.onnx"), str(path), Reader(), per_channel=True, **types)
    return path


def runner(path, threads):
    """A function from images to logits, of a file."""
    if path.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(path), num_threads=threads, experimental_disable_delegate_clustering=True)
        signature = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
        name = next(iter(signature.get_input_details()))
        return lambda images: next(iter(signature(**{name: images}).values()))
    from keras_transformer.export.onnx.runtime import onnx_session

    session = onnx_session(str(path), threads)
    return lambda images: session.run(None, {session.get_inputs()[0].name: images})[0]


def accuracy(run, test):
    """Accuracy in percent."""
    images, labels = test
    found = [run(images[start : start + ROWS]).argmax(-1) for start in range(0, len(images), ROWS)]
    return round(100 * float(np.mean(np.concatenate(found) == labels)), 2)


def files_of(model, further, calibration, folder, options):
    """The float files, ours of all modes, and those of the peers, by format and label."""
    export(model, folder / "float", ["tflite", "onnx"], progress=False)
    found = {format: {"float32": folder / "float" / f"model.{format}"} for format in ("tflite", "onnx")}
    modes = {method: (model, FullInt8(calibration, ranges=method)) for method in options.ranges}
    modes["16 bits"] = model, FullInt8(calibration, activation_bits=16)
    modes |= {"trained": (further[0], FullInt8(calibration))} if further else {}
    for label, (exported, mode) in modes.items():
        for format, files in found.items():
            path = folder / label / format
            try:
                export(exported, path, [format], quantize=mode, progress=False)
            except QuantizationError as error:
                print(f"{format}, {label}: {error}", flush=True)
            else:
                files[f"ours, {label}"] = path / f"model.{format}"
    if not any(isinstance(layer, (layers.RNN, layers.Bidirectional)) for layer in model.layers):
        found["tflite"]["TensorFlow"] = tensorflow_file(model, calibration, folder)
    found["onnx"]["onnxruntime"] = onnxruntime_file(found["onnx"]["float32"], calibration, folder)
    return found


def measure(table, options, network):
    train, test = data_of(network, options)
    model = trained(network, train, options)
    further = trained_on(model, train, options) if options.train else []
    if further:
        score = accuracy(lambda rows: np.asarray(further[1](rows)), test)
        table.add(network=network, format="keras", file="float32, trained", accuracy=score)
    with tempfile.TemporaryDirectory() as name:
        for format, files in files_of(model, further, train[0][:CALIBRATION], pathlib.Path(name), options).items():
            runs = {label: runner(path, options.threads) for label, path in files.items()}
            rivals = {label: timed(lambda run=run: run(test[0][:1]), 10) for label, run in runs.items()}
            turns = take_turns(rivals, options.rounds)
            whole = accuracy(runs["float32"], test)
            for label, path in files.items():
                score = accuracy(runs[label], test)
                figures = {"accuracy": score, "lost": round(whole - score, 2), "bytes": path.stat().st_size}
                times = {"milliseconds": milliseconds(turns[label])}
                times["of_float"] = ratio(turns[label], turns["float32"])["ratio"]
                table.add(network=network, format=format, file=label, **figures, **times)


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--digits-dir", type=pathlib.Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(OF_IMAGES))
    parser.add_argument("--ranges", nargs="+", choices=RANGES, default=list(RANGES))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    wanted = {"data_dir": set(OF_IMAGES), "digits_dir": set(OF_SOUNDS)}
    for option, networks in wanted.items():
        if not options.tiny and networks.intersection(options.networks) and getattr(options, option) is None:
            parser.error(f"--{option.replace('_', '-')} is required")
    table = Table("integers throughout", versions("tensorflow", "onnxruntime", "ai-edge-litert"))
    for network in options.networks:
        measure(table, options, network)
    table.finish(options.json)


if __name__ == "__main__":
    main()
