"""Integers throughout: accuracy, size and time of convolutional networks, beside the files of TensorFlow and ONNX Runtime.

    python benchmarks/full_int8.py --data-dir cifar10
    python benchmarks/full_int8.py --tiny    # smoke test: random images, one step of training

The networks are trained here for some minutes on CIFAR-10. All files are calibrated on the same images. Accuracy is in
percent over the test images; time is that of one image, the median of `--rounds`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from measure import Table, arguments, milliseconds, ratio, take_turns, timed, versions

from keras_transformer.export import FullInt8, export

CALIBRATION, ROWS = 128, 200
RANGES = ("mse", "minmax", "percentile")


def small_cnn():
    def unit(width, strides=1):
        convolution = layers.Conv2D(width, 3, strides, padding="same", use_bias=False)
        return [convolution, layers.BatchNormalization(), layers.ReLU()]

    units = [*unit(32), *unit(32, 2), *unit(64), *unit(64, 2), *unit(128, 2)]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(64, "relu"), layers.Dense(10, name="logits")]
    return keras.Sequential([keras.Input((32, 32, 3), name="images"), layers.Rescaling(1 / 127.5, -1), *units, *head])


def mobilenet_v2():
    images = keras.Input((32, 32, 3), name="images")
    larger = layers.Rescaling(1 / 127.5, -1)(layers.UpSampling2D(2, interpolation="bilinear")(images))
    body = keras.applications.MobileNetV2((64, 64, 3), alpha=0.35, include_top=False, weights=None, pooling="avg")
    for layer in body.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9  # The default of 0.999 is for longer trainings.
    return keras.Model(images, layers.Dense(10, name="logits")(body(larger)))


NETWORKS = {"small CNN": (small_cnn, 4), "MobileNetV2 0.35": (mobilenet_v2, 3)}


def trained(make, epochs, data, options):
    keras.utils.set_random_seed(0)
    model, (images, labels) = make(), data
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"])
    count = 64 if options.tiny else len(images)
    model.fit(images[:count], labels[:count], batch_size=64, epochs=1 if options.tiny else epochs, verbose=0)
    return model


def data_of(options):
    if options.tiny:
        random = np.random.default_rng(0)
        return [
            (random.uniform(0, 255, (128, 32, 32, 3)).astype("float32"), random.integers(0, 10, 128)) for _ in range(2)
        ]
    from keras_transformer.data import load_images

    data = load_images(data_dir=options.data_dir)
    return [(images.astype("float32"), np.asarray(labels)) for images, labels in (data.train, data.test)]


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

    class Reader(CalibrationDataReader):
        rows = iter(calibration)

        def get_next(self):
            return next(({"images": row[None]} for row in self.rows), None)

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


def files_of(model, calibration, folder):
    """The float files, ours of every way to find ranges, and those of the peers, by format and label."""
    export(model, folder / "float", ["tflite", "onnx"], progress=False)
    found = {format: {"float32": folder / "float" / f"model.{format}"} for format in ("tflite", "onnx")}
    for method in RANGES:
        mode = FullInt8(calibration, ranges=method)
        export(model, folder / method, ["tflite", "onnx"], quantize=mode, progress=False)
        for format, files in found.items():
            files[f"ours, {method}"] = folder / method / f"model.{format}"
    found["tflite"]["TensorFlow"] = tensorflow_file(model, calibration, folder)
    found["onnx"]["onnxruntime"] = onnxruntime_file(found["onnx"]["float32"], calibration, folder)
    return found


def measure(table, options, network):
    make, epochs = NETWORKS[network]
    train, test = data_of(options)
    model = trained(make, epochs, train, options)
    with tempfile.TemporaryDirectory() as name:
        for format, files in files_of(model, train[0][:CALIBRATION], pathlib.Path(name)).items():
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
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not options.tiny and options.data_dir is None:
        parser.error("--data-dir is required")
    table = Table("integers throughout", versions("tensorflow", "onnxruntime", "ai-edge-litert"))
    for network in options.networks:
        measure(table, options, network)
    table.finish(options.json)


if __name__ == "__main__":
    main()
