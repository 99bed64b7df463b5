"""Every class of `keras.layers` with its options, exported, run and compared in each format.

    python benchmarks/every_layer.py
    python benchmarks/every_layer.py --only Conv2D Resizing --formats onnx
    python benchmarks/every_layer.py --applications --json applications.json

What is tried is in `layer_cases.py`. The cases of a layer are outputs of one model for each shape of inputs; where that
fails, each is a model of its own. A cell says how many cases are proven, and why others are refused. The command fails if a
file computes something else than Keras, or an export ends in an error that is none of the package's own. Without `--only`,
it writes docs/keras_layers.md, or docs/keras_applications.md.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import sys

from keras_cells import FORMATS, NO_CASE, PROVEN, cell, compared, in_one_line, is_fault, results
from measure import Table, versions

DOCS = pathlib.Path(__file__).parents[1] / "docs"
LAYERS = """# Every layer of Keras

Each class of `keras.layers` with its options, of fixed and of dynamic sizes, exported, run in the runtime of each format and
compared with Keras, by `python benchmarks/every_layer.py`. A cell says how many cases are proven, and why others are not.

"""
APPLICATIONS_OF_KERAS = """# Networks of keras.applications

A network of each kind of `keras.applications`, with random weights, of images of any number, exported, run in the runtime of
each format and compared with Keras, by `python benchmarks/every_layer.py --applications`.

"""
# Longer cells are cut off in the terminal.
WIDTH = 80


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
        return f"{NO_CASE}: {type(error).__name__}: {in_one_line(error)[:200]}"
    return compared(model, arrays, format)


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
    return {format: {"": compared(model, {model.inputs[0].name: images}, format)} for format in formats}


def _work(names, options):
    """Prints the results of each name as a line of JSON."""
    attempt = try_application if options.applications else try_layer
    for name in names:
        print(json.dumps({"name": name, "found": attempt(name, options.formats)}), flush=True)


def _results(names, options):
    """Yields the results by name."""
    command = [sys.executable, __file__, "--worker", "--formats", *options.formats]
    command += ["--applications"] if options.applications else []
    for name, found in results([*command, "--only"], names):
        yield name, {format: {"": found} for format in options.formats} if isinstance(found, str) else found


def page(rows, head, left_out):
    """The text of a page, of the results by name, and of the reason why a name has no case."""
    lines = [f"| name | cases | {' | '.join(FORMATS.values())} |", "|---" * (2 + len(FORMATS)) + "|"]
    for name, found in sorted(rows.items()):
        cells = [cell(found[format]) for format in FORMATS]
        lines.append(f"| {name} | {len(found['onnx'])} | {' | '.join(cells)} |")
    whole = sum(all(cell(each) == PROVEN for each in found.values()) for found in rows.values())
    count = f"{whole} of {len(rows)} are proven with all cases in all three formats.\n\n"
    others = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
    return f"{head}{count}" + "\n".join(lines) + (f"\n\nWithout a case: {others}.\n" if others else "\n")


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
    from layer_cases import APPLICATIONS, CASES, EXCLUDED

    table = Table("Every layer of Keras", versions("tensorflow", "keras", "onnxruntime", "ai-edge-litert"))
    rows = {}
    for name, found in _results(options.only or (APPLICATIONS if options.applications else sorted(CASES)), options):
        rows[name] = found
        table.add(layer=name, **{format: cell(each)[:WIDTH] for format, each in found.items()})
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    print(table)
    if not options.only and len(options.formats) == len(FORMATS):
        name, *said = (
            ("applications", APPLICATIONS_OF_KERAS, {}) if options.applications else ("layers", LAYERS, EXCLUDED)
        )
        (DOCS / f"keras_{name}.md").write_text(page(rows, *said))
    tried = [each for found in rows.values() for cases in found.values() for each in cases.values()]
    return 1 if any(map(is_fault, tried)) else 0


if __name__ == "__main__":
    sys.exit(main())
