"""The quantizers of other packages for `full_int8.py`, each in a process of its own: `integer_peers.py PEER FOLDER`.

FOLDER has `model.keras`, `float/model.tflite` and `float/model.onnx`, and `calibration.npz`, examples by input name. The
file that the peer writes is `FOLDER/PEER.tflite` or `.onnx`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import functools
import pathlib
import sys

import numpy as np


def converter_of(folder):
    """TensorFlow's converter of a saved model with a batch of one, with which it takes more layers of Keras 3."""
    import keras
    import tensorflow as tf

    from keras_transformer import load_model

    model = load_model(folder / "model.keras")
    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    signature = keras.tree.map_structure(
        lambda each: keras.InputSpec(shape=(1, *each.shape[1:]), dtype=each.dtype, name=each.name), inputs
    )
    model.export(folder / "saved", verbose=False, input_signature=[signature])
    return tf.lite.TFLiteConverter.from_saved_model(str(folder / "saved"))


def tensorflow(folder, examples):
    """The file of TensorFlow's own converter, with floats at both ends."""
    import tensorflow as tf

    converter = converter_of(folder)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: iter(examples)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS]
    (folder / "TensorFlow.tflite").write_bytes(converter.convert())


def ai_edge_quantizer(folder, examples):
    """The file of ai-edge-quantizer, made of the float file of TensorFlow's converter."""
    from ai_edge_quantizer import quantizer, recipe

    path = folder / "TensorFlow_float.tflite"
    path.write_bytes(converter_of(folder).convert())
    model = quantizer.Quantizer(str(path), recipe.static_wi8_ai8())
    statistics = model.calibrate({"serving_default": examples}, num_threads=2)
    model.quantize(statistics).export_model(str(folder / "ai-edge-quantizer.tflite"), overwrite=True)


def onnxruntime(folder, examples, form="QDQ"):
    """The file of onnxruntime.quantization, after its own preprocessing of our float file."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        rows = iter(examples)

        def get_next(self):
            return next(self.rows, None)

    prepared = folder / f"prepared_{form}.onnx"
    quant_pre_process(str(folder / "float/model.onnx"), str(prepared), skip_symbolic_shape=True)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "quant_format": QuantFormat[form]}
    name = "onnxruntime" if form == "QDQ" else f"onnxruntime, {form}"
    quantize_static(str(prepared), str(folder / f"{name}.onnx"), Reader(), per_channel=True, **types)


PEERS = {
    "TensorFlow": tensorflow,
    "ai-edge-quantizer": ai_edge_quantizer,
    "onnxruntime": onnxruntime,
    "onnxruntime, QOperator": functools.partial(onnxruntime, form="QOperator"),
}


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    with np.load(folder / "calibration.npz") as arrays:
        calibration = dict(arrays)
    count = len(next(iter(calibration.values())))
    rows = [{key: array[index : index + 1] for key, array in calibration.items()} for index in range(count)]
    PEERS[name](folder, rows)


if __name__ == "__main__":
    main()
