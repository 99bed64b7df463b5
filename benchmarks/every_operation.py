"""What each public function of Keras becomes in each format: proven equal, or refused with the reason.

    python benchmarks/every_operation.py --ops
    python benchmarks/every_operation.py --ops --only fft qr
    python benchmarks/every_operation.py --layers        # as every_layer.py; also --applications, --keras-hub

Every function of `keras.ops`, its modules and `keras.activations` has cases in `benchmarks/keras_functions`, of the dtypes
that it takes. Each is the only layer of a functional model, with fixed and with dynamic sizes, which is exported in each
format; the file is then run on the case's own numbers, and compared with the function once more. Many share a process, which
another one replaces where a converter ends it. `--json` keeps the cells: what a run does not try stays as it was. Writes
docs/keras_functions.md.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import collections
import json
import pathlib
import subprocess
import sys

from keras_cells import FORMATS, NO_CASE, PROVEN, compared_in, in_cell, results

KINDS = ("fixed", "dynamic")
# What else is tried in this manner: the command of each.
OTHERS = {
    "layers": ["every_layer.py"],
    "applications": ["every_layer.py", "--applications"],
    "keras-hub": ["every_keras_hub.py"],
    "keras-hub-texts": ["keras_hub_texts.py"],
}
# Between the parts of what a worker is given: the name, the label and the kind of a case.
BETWEEN = "|"
# What Keras itself does not compute in a graph is no matter of the formats.
NOTHING = "–"
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "keras_functions.md"
HEAD = """# What becomes of each function of Keras

Every public function of `keras.ops`, of its modules and of `keras.activations`, exported as a model of its own with fixed
and with dynamic sizes, in the dtypes that it takes. *Proven*: the file computes what Keras computes, in its own runtime.
Otherwise the export refuses the model with a typed error, whose reason is given; nothing is handed over. Printed by
`python benchmarks/every_operation.py --ops`. See [operations](operations.md) for what takes the place of what. The last
column tells what Keras does not compute in a graph of TensorFlow, in which `fit` and `predict` run too.

"""


def _called(function):
    """A layer that calls a function."""
    import keras

    class Call(keras.layers.Layer):
        def call(self, *tensors):
            return function(*tensors)

    return Call(name="call")


def _model(case, kind):
    import keras

    inputs = [
        keras.Input(batch_shape=shape, dtype=array.dtype.name, name=f"input_{number}")
        for number, (shape, array) in enumerate(zip(case.inputs(kind), case.arrays, strict=True))
    ]
    return keras.Model(inputs, _called(case.function)(*inputs))


def _cells(key):
    """What becomes of a case in each format, as `compared_in` says it."""
    import keras
    from keras_functions import CASES

    from keras_transformer.utils.errors import one_line

    name, label, kind = key.split(BETWEEN)
    keras.backend.clear_session()
    case = CASES[name, label]
    given = {f"input_{number}": array for number, array in enumerate(case.arrays)}
    try:
        model = _model(case, kind)
    except Exception as error:  # Of any library that Keras uses.
        return dict.fromkeys(FORMATS, f"{NO_CASE}: {type(error).__name__}: {one_line(error, 200)}")
    return compared_in(model, given, probes=[given])


def work(keys):
    """Prints a line of JSON for each case."""
    for key in keys:
        print(json.dumps({"name": key, "found": _cells(key)}), flush=True)


def cells(keys, path=None):
    """The cells of cases, by name, label, kind and format.

    Args:
        keys: list of the name and the label of a case.
        path: of a file that keeps the cells; those of other cases stay as they were. None for no file.
    """
    from keras_functions import CASES

    kinds = [(*key, kind) for key in keys for kind in KINDS if CASES[key].inputs(kind) is not None]
    found = json.loads(path.read_text()) if path and path.exists() else {}
    for number, (name, of_formats) in enumerate(
        results([sys.executable, __file__, "--worker"], map(BETWEEN.join, kinds), 100), 1
    ):
        found[name] = of_formats if isinstance(of_formats, dict) else dict.fromkeys(FORMATS, of_formats)
        if path:
            path.write_text(json.dumps(found, indent=1) + "\n")
        if number % 100 == 0:
            print(f"{len(kinds) - number} cases left", file=sys.stderr, flush=True)
    return {(*name.split(BETWEEN), format): cell for name, row in found.items() for format, cell in row.items()}


def rows(found):
    """For each function and format `PROVEN`, or what its cases say that are not; and what Keras does not compute."""
    table = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for (name, label, kind, format), cell in found.items():
        table[name][format][cell].append(" ".join(filter(None, (label, kind))))
    return {name: _row(table[name]) for name in sorted(table)}


def _row(cells):
    row = {}
    for format in FORMATS:
        own = {cell: kinds for cell, kinds in cells[format].items() if not cell.startswith(f"{NO_CASE}: ")}
        row[format] = (_joined(own) or PROVEN) if own else NOTHING
    refused = {
        cell: kinds for each in cells.values() for cell, kinds in each.items() if cell.startswith(f"{NO_CASE}: ")
    }
    row[NO_CASE] = _joined(refused).replace(f"{NO_CASE}: ", "")
    return row


def _joined(cells):
    return "; ".join(f"{', '.join(kinds)}: {in_cell(cell)[:300]}" for cell, kinds in cells.items() if cell != PROVEN)


def counts(table):
    """How many functions are proven in all formats, of those that Keras computes in a graph."""
    computed = [[row[format] for format in FORMATS] for row in table.values() if row["onnx"] != NOTHING]
    return sum(set(row) == {PROVEN} for row in computed), len(computed)


def page(table):
    """The text of docs/keras_functions.md."""
    proven, computed = counts(table)
    lines = [f"{proven} of {computed} functions are proven in all three formats.", ""]
    lines += [f"| function | {' | '.join(FORMATS.values())} | not in Keras |", "|---" * (2 + len(FORMATS)) + "|"]
    lines += [f"| `{name}` | {' | '.join(row[each] for each in (*FORMATS, NO_CASE))} |" for name, row in table.items()]
    return HEAD + "\n".join(lines).replace("](", "] (") + "\n"  # Such a text is no link.


def _other(options):
    """Runs the command of another kind of names."""
    script, *arguments = OTHERS[options.other]
    arguments += ["--only", *options.only] if options.only else []
    arguments += ["--json", options.json] if options.json else []
    return subprocess.call([sys.executable, pathlib.Path(__file__).with_name(script), *arguments])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--ops", action="store_true", help="the functions of keras.ops and keras.activations")
    for name, (script, *_) in OTHERS.items():
        kinds.add_argument(f"--{name}", action="store_const", const=name, dest="other", help=f"as {script}")
    parser.add_argument("--only", nargs="+", help="these names; the page is not written")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="keeps the cells")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker)
    if options.other:
        return _other(options)
    from keras_functions import CASES

    table = rows(cells([key for key in CASES if not options.only or key[0] in options.only], options.json))
    if not options.only:
        PAGE.write_text(page(table))
    for name, row in table.items():
        for format in FORMATS:
            if row[format] not in (PROVEN, NOTHING):
                print(f"{name} {format}: {row[format]}")
    print("{} of {} in all three formats".format(*counts(table)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
