"""The files of one function, and what they compute: operations alone, without a model around them."""

import pathlib
import tempfile

import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.formats import FORMATS
from keras_transformer.export.graph.traced import TracedModule


def computed(function, arrays, format, shapes=None):
    """What the file of a function computes.

    Args:
        function: of tensors; returns one, or a list.
        arrays: its arguments.
        format: `"tflite"` or `"onnx"`.
        shapes: for each argument the shape for which the file is written; every axis is dynamic by default.

    Returns:
        List of arrays.

    Raises:
        ExportError: the file cannot be written.
    """
    names = [f"input_{number}" for number in range(len(arrays))]
    shapes = shapes or [(None,) * array.ndim for array in arrays]

    def called(tensors):
        results = function(*(tensors[name] for name in names))
        results = results if isinstance(results, (list, tuple)) else [results]
        return {f"output_{number}": each for number, each in enumerate(results)}

    inputs = tuple(
        ArraySpec(
            name,
            array.dtype.name,
            tuple(shape),
            tuple(None if size else f"{name}_{axis}" for axis, size in enumerate(shape)),
        )
        for name, array, shape in zip(names, arrays, shapes, strict=True)
    )
    given = dict(zip(names, arrays, strict=True))
    outputs = {
        key: each.numpy() for key, each in called({name: tf.constant(each) for name, each in given.items()}).items()
    }
    spec = ExportSpec({"serve": Signature(called, inputs, [Probe(given, "given", outputs)])})
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = FORMATS[format].write(TracedModule(spec), spec, folder)
        found = _RUN[format](folder / files["serve"], given)
    return [found[key] for key in outputs]


def _run_tflite(path, arrays):
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(str(path)).get_signature_runner("serve")(**arrays)


def _run_onnx(path, arrays):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, arrays), strict=True))


_RUN = {"tflite": _run_tflite, "onnx": _run_onnx}
