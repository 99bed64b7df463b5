"""What becomes of the models of a table in each format: exported, run and compared by worker processes, said in cells."""

import json
import pathlib
import subprocess
import sys
import tempfile

FORMATS = {"saved_model": "SavedModel", "tflite": "TFLite", "onnx": "ONNX"}
PROVEN, WRONG, ERROR = "proven", "WRONG", "error"
# What Keras itself does not build or compute is no case.
NO_CASE = "Keras"


def compared(model, arrays, format, **given):
    """Exports a model in one format, runs the file and compares it with the model.

    Args:
        model: Keras model.
        arrays: dict of the name of an input to its values.
        format: name of the format.
        given: further arguments of `export`.

    Returns:
        `PROVEN`, `WRONG`, the type and text of the package's error, "Keras: ..." where the model itself fails, or
        "error: ...", which should not be.
    """
    return compared_in(model, arrays, [format], **given)[format]


def compared_in(model, arrays, formats=tuple(FORMATS), **given):
    """Exports a model in several formats by one call, or by one each where one of them is refused; see `compared`.

    Args:
        model: Keras model.
        arrays: dict of the name of an input to its values.
        formats: list of names of formats.
        given: further arguments of `export`.

    Returns:
        dict of the name of a format to what `compared` returns.
    """
    import keras
    import tensorflow as tf

    from keras_transformer.export import ExportError, export
    from keras_transformer.export.spec.names import outputs_in_order
    from keras_transformer.utils.errors import one_line

    inputs = keras.tree.map_structure(lambda tensor: arrays[tensor.name], model.input)
    try:
        tensors = keras.tree.map_structure(tf.constant, inputs)
        outputs = model(tensors, training=False)  # Augmentations train by default.
    except Exception as error:  # A row of the table names it.
        return dict.fromkeys(formats, f"{NO_CASE}: {type(error).__name__}: {one_line(error, 200)}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            export(model, f"{folder}/bundle", list(formats), progress=False, **given)
            expected = [each for _, each in outputs_in_order(outputs)]
            return {each: _judged(f"{folder}/bundle", each, inputs, expected) for each in formats}
    except Exception as error:  # A row of the table names it.
        if len(formats) > 1:
            return {each: compared(model, arrays, each, **given) for each in formats}
        name = type(error).__name__
        is_own = isinstance(error, ExportError)
        return {
            formats[0]: f"{name}: {in_one_line(error)}" if is_own else f"{ERROR}: {name}: {in_one_line(error)[:300]}"
        }


def _judged(path, format, inputs, expected):
    """Whether the file of a bundle computes what is expected."""
    from keras_transformer.export import load

    found = load(path, backend=format)(inputs)
    return PROVEN if all(map(is_equal, found.values(), expected)) and len(found) == len(expected) else WRONG


def is_equal(found, expected):
    """Whether the values of a file are those of Keras, but for rounding."""
    import numpy as np

    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return False
    if expected.dtype.kind in "OSU":
        return bool((found == expected).all())
    scale = float(np.abs(np.nan_to_num(expected.astype("float64"))).max(initial=0))
    return np.allclose(found, expected, rtol=1e-4, atol=1e-5 * max(scale, 1e-3), equal_nan=True)


def in_one_line(error):
    """The text of an error."""
    return " ".join(str(error).split())


def results(command, names, batch=60):
    """Yields names with what workers find of them: another worker follows where one ends, or has tried enough.

    Args:
        command: of a worker, which is given names and prints `{"name": ..., "found": ...}` for each as a line.
        names: list of str.
        batch: int. Names for a worker.

    Yields:
        A name and what was found of it; an "error: ..." where the worker ended with that name.
    """
    left = list(names)
    while left:
        given = left[:batch]
        with subprocess.Popen(
            [*command, *given], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            for line in process.stdout:
                if line.startswith('{"name"'):
                    record = json.loads(line)
                    given.remove(record["name"])
                    left.remove(record["name"])
                    yield record["name"], record["found"]
        if given:
            left.remove(given[0])
            yield given[0], f"{ERROR}: the process ended with {process.returncode}"


def kept_results(path, keys, entries, batch=60):
    """The results by name and column: those that a file keeps, with those that workers of this script find.

    Args:
        path: of the file, which is written after each result; None for no file.
        keys: list of `"name column"`.
        entries: function of a column and its result, which returns what goes to the name: a dict of column to result.
        batch: as of `results`.
    """
    path = pathlib.Path(path) if path else None
    found = json.loads(path.read_text()) if path and path.exists() else {}
    for key, result in results([sys.executable, sys.argv[0], "--worker"], keys, batch):
        name, column = key.split()
        found.setdefault(name, {}).update(entries(column, result))
        print(f"{key}: {result}", flush=True)
        if path:
            path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def in_cell(text):
    """A text as Markdown has it in a cell."""
    return text.replace("|", "/").replace("<", "&lt;")


def cell(found, right=PROVEN):
    """What is said of the cases of a row in one column.

    Args:
        found: dict of a case to its result.
        right: the result that needs no words.
    """
    if not found:
        return "Keras itself fails"
    count = sum(each == right for each in found.values())
    if count == len(found):
        return right
    reasons = {}
    for options, each in found.items():
        if each != right:
            reasons.setdefault(each.split(":")[0] if each.startswith(WRONG) else each, []).append(options)
    parts = [f"{' / '.join(filter(None, options))}: {reason[:160]}" for reason, options in reasons.items()]
    return f"{count} of {len(found)}; {in_cell('; '.join(parts))}"


def is_fault(result):
    """Whether a result is none that a table may hold: a wrong file, or an error that is not the package's own."""
    return result.startswith((WRONG, ERROR))
