"""Integers throughout: accuracy, size and time of small networks, beside the files of other quantizers.

    python benchmarks/full_int8.py --data-dir DIR     # DIR/cifar10_jpeg_subset, DIR/fsdd, DIR/sentence_cls
    python benchmarks/full_int8.py --data-dir DIR --networks LSTM GRU --directory KEPT    # keeps what was trained
    python benchmarks/full_int8.py --data-dir DIR --networks "depthwise CNN" --train
    python benchmarks/full_int8.py --tiny             # smoke test: random data, one step of training

The networks are trained here for some minutes on CIFAR-10, drawn shapes, the Free Spoken Digit Dataset and the questions of
TREC. All files are calibrated on the same examples, those of the peers in a process each: TensorFlow's converter,
ai-edge-quantizer and onnxruntime.quantization. Accuracy is in percent over the test examples, of images with classes of
pixels over the pixels; time is that of one example, the least of `--rounds`, since these are short times of busy machines.
With `--train`, "trained" is the model after further epochs with its integers, and "float32, trained" after as many without.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import functools
import pathlib
import subprocess
import sys

import numpy as np
from integer_networks import IGNORED, NETWORKS, trained, trained_on
from measure import Table, arguments, take_turns, timed, versions, working_folder

from keras_transformer.export import ExportError, FullInt8, export

CALIBRATION = 128
RANGES = ("mse", "minmax", "percentile", "entropy", "moving_average")
FORMATS = {"tflite": ("TensorFlow", "ai-edge-quantizer"), "onnx": ("onnxruntime", "onnxruntime, QOperator")}


def runner(path, threads):
    """A function from inputs by name to logits, of a file; and the rows that it takes at once, or None for any number."""
    if path.suffix == ".tflite":
        return tflite_runner(path, threads)
    from keras_transformer.export.onnx.runtime import onnx_session

    session = onnx_session(str(path), threads)
    return lambda arrays: session.run(None, arrays)[0], None


def tflite_runner(path, threads):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads, experimental_disable_delegate_clustering=True)
    signature = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
    details = signature.get_input_details()

    def run(arrays):
        given = {name: in_codes(arrays[name], each) for name, each in details.items()}
        return next(iter(signature(**given).values()))

    return run, 1 if {int(each["shape_signature"][0]) for each in details.values()} == {1} else None


def in_codes(array, detail):
    """An input as the integers that a file of ai-edge-quantizer takes."""
    if array.dtype == detail["dtype"] or detail["dtype"] != np.int8:
        return array
    scale, zero = detail["quantization"]
    return np.clip(np.round(array / scale) + zero, -128, 127).astype("int8")


def rows_of(arrays, start, count):
    return {name: array[start : start + count] for name, array in arrays.items()}


def accuracy(run, rows, data):
    """Accuracy in percent."""
    step = rows or 100
    found = [run(rows_of(data.test, start, step)).argmax(-1) for start in range(0, len(data.truth), step)]
    counted = data.truth != IGNORED
    return round(100 * float(np.mean((np.concatenate(found) == data.truth)[counted])), 2)


def our_files(model, further, calibration, folder, options):
    """The float files, and those of integers: by format and label."""
    modes = {method: (model, FullInt8(calibration, ranges=method, tolerance=10.0)) for method in options.ranges}
    if options.wide:
        modes["16 bits"] = model, FullInt8(calibration, activation_bits=16, tolerance=10.0)
    if further:
        modes["trained"] = further[0], FullInt8(calibration, tolerance=10.0)
    found = {format: {"float32": folder / "float" / f"model.{format}"} for format in options.formats}
    export(model, folder / "float", options.formats, progress=False)
    for label, (exported, mode) in modes.items():
        for format, files in found.items():
            path = folder / label / format
            try:
                report = export(exported, path, [format], quantize=mode, progress=False)
            except ExportError as error:
                print(f"{format}, {label}: {error}", flush=True)
            else:
                print(f"{format}, {label}: {report[format].integers}", flush=True)
                files[f"ours, {label}"] = path / f"model.{format}"
    return found


def add_peers(files, folder):
    """Adds the files of the peers, each made in a process of its own."""
    for format, found in files.items():
        for peer in FORMATS[format]:
            command = [sys.executable, pathlib.Path(__file__).with_name("integer_peers.py"), peer, folder]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                reason = next(
                    (line for line in run.stderr.splitlines()[::-1] if "Error" in line), f"exit {run.returncode}"
                )
                print(f"{format}, {peer}: {reason}", flush=True)
            else:
                found[peer] = folder / f"{peer}.{format}"


def measure(table, options, name):
    data = NETWORKS[name].data(options)
    calibration = rows_of(data.train, 0, CALIBRATION)
    with working_folder(options.directory, name) as folder:
        model = trained(name, data, folder / "model.keras", options)
        np.savez(folder / "calibration.npz", **calibration)
        further = trained_on(model, name, data, options) if options.train else []
        if further:
            score = accuracy(lambda arrays: np.asarray(further[1](arrays)), None, data)
            table.add(network=name, format="keras", file="float32, trained", accuracy=score)
        every = our_files(model, further, calibration, folder, options)
        add_peers(every, folder)
        for format, files in every.items():
            opened = {label: runner(path, options.threads) for label, path in files.items()}
            example = rows_of(data.test, 0, 1)
            rivals = {label: timed(functools.partial(run, example), 10) for label, (run, _) in opened.items()}
            turns = take_turns(rivals, options.rounds)
            scores = {label: accuracy(*each, data) for label, each in opened.items()}
            for label, path in files.items():
                figures = {"accuracy": scores[label], "lost": round(scores["float32"] - scores[label], 2)}
                least = {key: min(turn.wall for turn in turns[key]) for key in (label, "float32")}
                times = {
                    "milliseconds": round(1e3 * least[label], 3),
                    "of_float": round(least[label] / least["float32"], 3),
                }
                size = path.stat().st_size
                table.add(network=name, format=format, file=label, **figures, bytes=size, **times)


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=pathlib.Path)
    parser.add_argument("--directory", type=pathlib.Path, help="keeps the networks and the files in it")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--ranges", nargs="+", choices=RANGES, default=["mse"])
    parser.add_argument("--train", action="store_true", help="files of a model that trained with its integers, too")
    parser.add_argument("--wide", action="store_true", help="files with activations of 16 bits, too")
    parser.add_argument("--test-examples", type=int, default=2000, help="images to test on")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not options.tiny and options.data_dir is None:
        parser.error("--data-dir is required")
    packages = ("tensorflow", "onnxruntime", "ai-edge-litert", "ai-edge-quantizer")
    table = Table("integers throughout", versions(*packages))
    for name in options.networks:
        measure(table, options, name)
    table.finish(options.json)


if __name__ == "__main__":
    main()
