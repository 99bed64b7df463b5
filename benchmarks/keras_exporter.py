"""Keras's own exporter on a model: the file is run on the same numbers, and compared."""

import pathlib
import tempfile

import numpy as np
from keras_cells import in_one_line

COLUMNS = {"keras_saved_model": "Keras's SavedModel", "keras_onnx": "Keras's ONNX", "keras_litert": "Keras's LiteRT"}
RIGHT = "right"


def of_keras(model, inputs, expected, column):
    """`RIGHT`, or what is otherwise, of a file that `model.export` writes.

    Args:
        model: Keras model.
        inputs: tensors, in the structure that the model takes.
        expected: list of the model's outputs, as arrays.
        column: key of `COLUMNS`.
    """
    export_and_run = {"keras_saved_model": _saved_model, "keras_onnx": _onnx, "keras_litert": _litert}[column]
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = export_and_run(model, inputs, pathlib.Path(folder))
        except Exception as error:  # Any error of the peer is a result.
            return f"refused: {type(error).__name__}: {in_one_line(error)[:120]}"
        try:
            found = run()
        except Exception as error:
            return f"does not load or run: {in_one_line(error)[:120]}"
    return difference([np.asarray(each) for each in found], expected)


def _saved_model(model, inputs, folder):
    import tensorflow as tf

    model.export(folder / "model", format="tf_saved_model", verbose=False)

    def run():
        loaded = tf.saved_model.load(folder / "model")  # Its functions need the variables that it owns.
        return tf.nest.flatten(loaded.serve(inputs))

    return run


def _onnx(model, inputs, folder):
    model.export(folder / "model.onnx", format="onnx", verbose=False)

    def run():
        import onnxruntime

        session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        return session.run(None, _by_name([each.name for each in session.get_inputs()], inputs))

    return run


def _litert(model, inputs, folder):
    model.export(folder / "model.tflite", format="litert", verbose=False)

    def run():
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=str(folder / "model.tflite"))
        runner = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
        return list(runner(**_by_name(sorted(runner.get_input_details()), inputs)).values())

    return run


def _by_name(names, inputs):
    """The arrays of inputs by the names of a file: by the keys of a dict, else in order."""
    import keras

    if isinstance(inputs, dict) and set(inputs) == set(names):
        return {name: np.asarray(inputs[name]) for name in names}
    return dict(zip(names, map(np.asarray, keras.tree.flatten(inputs)), strict=True))


def difference(found, expected):
    """`RIGHT`, or by how much of the scale the outputs of a file differ, in the order that suits it best.

    Args:
        found: list of arrays, the outputs of the file.
        expected: list of arrays, those of the model.
    """
    worst, left = 0.0, list(found)
    for each in expected:
        same = [other for other in left if other.shape == each.shape]
        if not same:
            return f"wrong: no output of shape {each.shape}"
        scale = np.abs(each.astype("float64")).max(initial=1e-6)
        errors = [float(np.abs(other.astype("float64") - each).max(initial=0) / scale) for other in same]
        best = int(np.argmin(errors))
        left = [other for other in left if other is not same[best]]
        worst = max(worst, errors[best])
    return RIGHT if worst <= 1e-3 else f"wrong by {worst:.0e} of the scale"
