"""Recurrent layers in ONNX: the file with an operator of ONNX against that of Keras's own exporter, which has a loop.

    python benchmarks/recurrent_operators.py
    python benchmarks/recurrent_operators.py --lengths 1000 --batch 8

Both files hold the same weights and run in ONNX Runtime in turns; the outputs of both are those of Keras, or it ends.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import tempfile

import keras
import numpy as np
import onnxruntime
from keras import layers
from measure import Table, arguments, milliseconds, ratio, ratio_note, take_turns, timed, versions

from keras_transformer.export import export

# As a share of the scale of the outputs.
TOLERANCE = 1e-4
NETWORKS = {
    "LSTM": lambda units: [layers.LSTM(units, return_sequences=True)],
    "GRU": lambda units: [layers.GRU(units, return_sequences=True)],
    "SimpleRNN": lambda units: [layers.SimpleRNN(units, return_sequences=True)],
    "2 x Bidirectional LSTM": lambda units: [
        layers.Bidirectional(layers.LSTM(units, return_sequences=True)) for _ in range(2)
    ],
}


def _session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _files(model, folder):
    """The path of each rival's file."""
    export(model, folder / "bundle", ["onnx"], progress=False)
    model.export(str(folder / "keras.onnx"), format="onnx", verbose=False)
    return {"ours": str(folder / "bundle" / "model.onnx"), "Keras's exporter": str(folder / "keras.onnx")}


def _run(path, array, expected, threads):
    """A function that runs a file once; raises where it does not compute the outputs."""
    session = _session(path, threads)
    inputs = {session.get_inputs()[0].name: array}
    found = session.run(None, inputs)[0]
    if found.shape != expected.shape or np.abs(found - expected).max() > TOLERANCE * np.abs(expected).max():
        raise ValueError("its outputs are not those of Keras")
    return lambda: session.run(None, inputs)


def _rows(table, options, name, folder):
    keras.utils.set_random_seed(0)
    units, width = (8, 4) if options.tiny else (options.units, options.units)
    inputs = outputs = keras.Input((None, width))
    for each in NETWORKS[name](units):
        outputs = each(outputs)
    model = keras.Model(inputs, outputs)
    paths = _files(model, folder)
    for length in [20] if options.tiny else options.lengths:
        array = np.random.default_rng(0).normal(size=(options.batch, length, width)).astype("float32")
        expected = np.asarray(model(array))
        case = {"layers": name, "units": units, "batch": options.batch, "length": length}
        rivals = {key: timed(_run(path, array, expected, options.threads)) for key, path in paths.items()}
        turns = take_turns(rivals, options.rounds)
        ours, peer = turns.values()
        table.add(**case, ours_ms=milliseconds(ours), peer_ms=milliseconds(peer), **ratio(ours, peer))


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    packages = versions("keras-transformer", "keras", "tensorflow", "tf2onnx", "onnxruntime")
    table = Table(f"Recurrent layers in ONNX Runtime, {options.threads} threads; peer: Keras's exporter", packages)
    for name in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            _rows(table, options, name, pathlib.Path(folder))
    table.note(ratio_note(options.rounds))
    table.finish(options.json)


if __name__ == "__main__":
    main()
