"""Every class of `keras.layers` with its options, exported, run and compared in each format.

    python benchmarks/every_layer.py
    python benchmarks/every_layer.py --only Conv2D Resizing --formats onnx
    python benchmarks/every_layer.py --applications --json applications.json

What is tried is in `layer_cases.py`. The cases of a layer are outputs of one model for each shape of inputs; where that
fails, each is a model of its own. A cell says how many cases are proven, and why others are refused. The command fails if a
file computes something else than Keras, or an export ends in an error that is none of the package's own. Without `--only`,
it writes docs/keras_layers.md.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from measure import Table, versions

FORMATS = {"saved_model": "SavedModel", "tflite": "TFLite", "onnx": "ONNX"}
FILE = pathlib.Path(__file__).parents[1] / "docs" / "keras_layers.md"
PROVEN, WRONG, ERROR = "proven", "WRONG", "error"
HEAD = """# Every layer of Keras

Each class of `keras.layers` with its options, of fixed and of dynamic sizes, exported, run in the runtime of each format and
compared with Keras, by `python benchmarks/every_layer.py`. A cell says how many cases are proven, and why others are not.

"""


def _model(cases):
    """A model that has the results of some cases as outputs, and its inputs by name."""
    import keras
    import tensorflow as tf

    first = cases[0]
    names = [f"input_{number}" for number in range(len(first.arrays))]
    inputs = [
        keras.Input(shape, dtype="string" if array.dtype == object else array.dtype.name, name=name)
        for name, shape, array in zip(names, first.shapes, first.arrays, strict=True)
    ]
    results = [each.call(each.build(), inputs) for each in cases]
    outputs = {f"output_{number}": each for number, each in enumerate(tf.nest.flatten(results))}
    return keras.Model(inputs, outputs), dict(zip(names, first.arrays, strict=True))


def _compared(model, arrays, format):
    """`"proven"`, or what is otherwise, of a model in one format."""
    import numpy as np
    import tensorflow as tf

    from keras_transformer.export import ExportError, export, load

    tensors = {name: tf.constant(each) for name, each in arrays.items()}
    try:
        # Augmentations train by default.
        outputs = model(list(tensors.values()), training=False)
        expected = {name: np.asarray(each) for name, each in outputs.items()}
        with tempfile.TemporaryDirectory() as folder:
            export(model, f"{folder}/bundle", [format], progress=False)
            found = load(f"{folder}/bundle", backend=format)(arrays)
    except ExportError as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception as error:
        return f"{ERROR}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    found = {name: np.asarray(found[name]) for name in expected}
    return PROVEN if all(_is_equal(found[name], each) for name, each in expected.items()) else WRONG


def _is_equal(found, expected):
    import numpy as np

    if found.shape != expected.shape:
        return False
    if expected.dtype.kind in "OSU":
        return bool((found == expected).all())
    scale = float(np.abs(np.nan_to_num(expected.astype("float64"))).max(initial=0))
    return np.allclose(found, expected, rtol=1e-4, atol=1e-5 * max(scale, 1e-3), equal_nan=True)


def try_layer(name, formats):
    """The result of each case of a layer: format -> options -> result."""
    import keras
    from layer_cases import CASES

    groups = {}
    for each in CASES[name]:
        groups.setdefault((tuple(map(id, each.arrays)), each.shapes), []).append(each)
    found = {format: {} for format in formats}
    for cases in groups.values():
        for format in formats:
            keras.backend.clear_session()
            together = _tried(cases, format) if len(cases) > 1 else None
            for each in cases:
                found[format][each.options] = together if together == PROVEN else _tried([each], format)
    return found


def _tried(cases, format):
    try:
        model, arrays = _model(cases)
    except Exception as error:
        return f"{ERROR}: Keras: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return _compared(model, arrays, format)


def try_application(name, formats):
    """The result of a kind of `keras.applications` with random weights: format -> options -> result."""
    import keras
    import numpy as np
    from layer_cases import APPLICATIONS

    side = APPLICATIONS[name]
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=10)
    model = keras.Model(model.inputs, {"output_0": model.output})
    images = np.random.default_rng(0).uniform(0, 255, (2, side, side, 3)).astype("float32")
    return {format: {"": _compared(model, {model.inputs[0].name: images}, format)} for format in formats}


def _work(names, options):
    """Prints the results of each name as a line of JSON."""
    attempt = try_application if options.applications else try_layer
    for name in names:
        print(json.dumps({"name": name, "found": attempt(name, options.formats)}), flush=True)


def _results(names, options):
    """Yields the results by name, from processes that are started again where one ends."""
    left = list(names)
    while left:
        command = [sys.executable, __file__, "--worker", "--formats", *options.formats, "--only", *left]
        command += ["--applications"] if options.applications else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            for line in process.stdout:
                if line.startswith('{"name"'):
                    record = json.loads(line)
                    left.remove(record["name"])
                    yield record["name"], record["found"]
        if left:
            ended = f"{ERROR}: the process ended with {process.returncode}"
            yield left.pop(0), {format: {"": ended} for format in options.formats}


def cell(found):
    """What is said of the cases of a layer in one format."""
    proven = sum(each == PROVEN for each in found.values())
    if proven == len(found):
        return PROVEN
    reasons = {}
    for options, each in found.items():
        if each != PROVEN:
            reasons.setdefault(each.split(":")[0] if each.startswith(WRONG) else each, []).append(options)
    parts = [f"{' / '.join(filter(None, options))}: {reason[:160]}" for reason, options in reasons.items()]
    return f"{proven} of {len(found)}; " + "; ".join(parts).replace("|", "/").replace("<", "&lt;")


def page(rows):
    """The text of docs/keras_layers.md, of the results by the name of a layer."""
    from layer_cases import EXCLUDED

    lines = [f"| layer | cases | {' | '.join(FORMATS.values())} |", "|---" * (2 + len(FORMATS)) + "|"]
    for name, found in sorted(rows.items()):
        cells = [cell(found[format]) for format in FORMATS]
        lines.append(f"| {name} | {len(found['onnx'])} | {' | '.join(cells)} |")
    left_out = "; ".join(f"{name} ({reason})" for name, reason in EXCLUDED.items())
    whole = sum(all(cell(each) == PROVEN for each in found.values()) for found in rows.values())
    count = f"{whole} of {len(rows)} layers are proven with all cases in all three formats.\n\n"
    return f"{HEAD}{count}" + "\n".join(lines) + f"\n\nWithout a case: {left_out}.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these classes")
    parser.add_argument("--applications", action="store_true", help="the kinds of keras.applications")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(options.only, options)
    from layer_cases import APPLICATIONS, CASES

    table = Table("Every layer of Keras", versions("tensorflow", "keras", "onnxruntime", "ai-edge-litert"))
    rows = {}
    for name, found in _results(options.only or (APPLICATIONS if options.applications else sorted(CASES)), options):
        rows[name] = found
        table.add(layer=name, **{format: cell(each) for format, each in found.items()})
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    print(table)
    if not options.only and not options.applications and len(options.formats) == len(FORMATS):
        FILE.write_text(page(rows))
    results = [each for found in rows.values() for cases in found.values() for each in cases.values()]
    return 1 if any(each.startswith((WRONG, ERROR)) for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
