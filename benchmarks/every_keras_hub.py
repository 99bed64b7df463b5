"""Every backbone of KerasHub, and its tasks for classes, boxes, masks and depth, in each format.

    python benchmarks/every_keras_hub.py --json keras_hub.json
    python benchmarks/every_keras_hub.py --only BertBackbone SAMImageSegmenter --formats onnx
    python benchmarks/every_keras_hub.py --keras --json keras_hub.json

Each class of the installed KerasHub is built small and with random weights (`keras_hub_cases.py`), exported, run in the
runtime of the format and compared with Keras. With `--keras`, Keras's own exporter writes ONNX and LiteRT files of the same
models, which are run on the same numbers. `--json` keeps the results: what a run does not try stays as it was. The command
fails if a file computes something else than Keras, or an export ends in an error that is none of the package's own. Once the
file holds a result of each class, docs/keras_hub.md is written.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import collections
import json
import pathlib
import sys

from engines import in_words
from keras_cells import ERROR, FORMATS, PROVEN, cell, compared, in_one_line, is_fault, kept_results
from keras_exporter import COLUMNS, RIGHT, of_keras
from measure import listed, versions

KERAS = {name: COLUMNS[name] for name in ("keras_onnx", "keras_litert")}
FILE = pathlib.Path(__file__).parents[1] / "docs" / "keras_hub.md"
HEAD = """# KerasHub

Each backbone of KerasHub, and its classifiers, detectors, segmenters and depth estimators, built small with random weights,
exported, run in the runtime of each format and compared with Keras, by `python benchmarks/every_keras_hub.py`. *Proven*: the
file computes what Keras computes. Other cells say how many of the family's classes are, and why others are not.

Classes in italics are exported with `probes`, one example of inputs that fit each other; those with a length have inputs of
that length, since their layers count in Python over the positions or transform them (Fourier).
"""
BESIDE = """
Beside them are the files of Keras's own exporter, `model.export(path, format)`, of the same models, run on the same numbers.
"""


def try_cell(name):
    """The result of a class in a column: `"BertBackbone onnx"`."""
    import keras
    import numpy as np
    import tensorflow as tf
    from keras_hub_arguments import AXES, FITTING
    from keras_hub_cases import arrays, build

    name, column = name.split()
    keras.backend.clear_session()
    try:
        model = build(name)
    except Exception as error:
        return f"{ERROR}: Keras: {type(error).__name__}: {in_one_line(error)[:200]}"
    given = arrays(name, model)
    if column in FORMATS:
        from keras_transformer.export import ExportOptions

        probes = [given] if name in FITTING else None
        return compared(model, given, column, probes=probes, options=ExportOptions(dynamic_axes=AXES.get(name)))
    inputs = keras.tree.map_structure(lambda tensor: tf.constant(given[tensor.name]), model.input)
    expected = [np.asarray(each) for each in tf.nest.flatten(model(inputs, training=False))]
    return in_words(of_keras(model, inputs, expected, column))


def _work(names):
    """Prints the result of each cell as a line of JSON."""
    for name in names:
        print(json.dumps({"name": name, "found": try_cell(name)}), flush=True)


def by_family(found):
    """Family -> column -> class -> result, of class -> column -> result."""
    from keras_hub_cases import family

    rows = collections.defaultdict(lambda: collections.defaultdict(dict))
    for name in sorted(found):
        for column, result in found[name].items():
            rows[family(name)][column][name] = result
    return rows


def _in_words(name):
    from keras_hub_arguments import FITTING, LENGTH

    if name in LENGTH:
        return f"{name} (length {LENGTH[name]})"
    return f"*{name}*" if name in FITTING else name


def _right(column):
    """The result in a column that needs no words."""
    return PROVEN if column in FORMATS else RIGHT


def _count(results, column):
    """How many of the results in a column are right, of how many."""
    return f"{sum(each == _right(column) for each in results)} of {len(results)}"


def page(found):
    """The text of docs/keras_hub.md, of the results by class and column."""
    rows = by_family(found)
    columns = {**FORMATS, **KERAS} if any(set(KERAS) & set(row) for row in rows.values()) else FORMATS
    lines = [f"| family | classes | {' | '.join(columns.values())} |", "|---" * (2 + len(columns)) + "|"]
    for name, row in sorted(rows.items()):
        cells = [cell(row[column], _right(column)) if row[column] else "–" for column in columns]
        lines.append(f"| {name} | {', '.join(map(_in_words, row['onnx']))} | {' | '.join(cells)} |")
    tried = {column: [row[column] for row in found.values() if column in row] for column in columns}
    counts = "; ".join(f"{title}: {_count(tried[column], column)}" for column, title in columns.items())
    installed = listed(versions("keras", "keras-hub", "tensorflow"))
    beside = BESIDE if columns is not FORMATS else ""
    return (
        f"{HEAD}{beside}\nClasses that are right, {len(rows)} families ({installed}): {counts}.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="keeps the results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these classes")
    parser.add_argument("--keras", action="store_true", help="Keras's own exporter, in place of this one")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(options.worker)
    from keras_hub_cases import classes

    columns = KERAS if options.keras else options.formats
    tried = [f"{name} {column}" for name in options.only or sorted(classes()) for column in columns]
    found = kept_results(options.json, tried, lambda column, result: {column: result})
    if all(set(FORMATS) <= set(found.get(name, {})) for name in classes()):
        FILE.write_text(page(found))
    return 1 if any(is_fault(row.get(column, "")) for row in found.values() for column in FORMATS) else 0


if __name__ == "__main__":
    sys.exit(main())
