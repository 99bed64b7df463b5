"""Exported files as functions of arrays, in the bare runtimes, for our files and those of peers."""

import re

import numpy as np


def onnx(path, threads):
    """Returns a function that runs `model.onnx` in ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda arrays: session.run(None, arrays)[0]


def tflite(path, threads):
    """Returns a function that runs `model.tflite` in LiteRT, without a delegate for TensorFlow ops."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=threads)
    runner = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
    return lambda arrays: next(iter(runner(**arrays).values()))


def saved_model(path, threads):
    """Returns a function that runs a SavedModel in TensorFlow with the threads of the process."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    function = loaded.signatures["serving_default"]

    def run(arrays):
        tensors = {name: tf.convert_to_tensor(array) for name, array in arrays.items()}
        return next(iter(function(**tensors).values())).numpy()

    run.keeps_alive = loaded
    return run


ENGINES = {"saved_model": saved_model, "tflite": tflite, "onnx": onnx}


def proven(run, arrays, expected, tolerance=1e-3):
    """Runs a file once and compares it with its own Keras model.

    Returns:
        None, or a short description of the error.
    """
    try:
        found = run(arrays)
    except Exception as error:  # Any error of a runtime is a result.
        return f"does not run: {in_words(error)}"
    difference = np.max(np.abs(found - expected)) / np.max(np.abs(expected))
    return None if difference <= tolerance else f"wrong by {difference:.1e}"


def in_words(error):
    """Returns an error on one line, without the path of the file."""
    words = re.sub(r"(Load model from )?/\S+( failed:)?", "", " ".join(str(error).split()))
    return words if len(words) < 160 else f"{words[:60]} ... {words[-90:]}"
