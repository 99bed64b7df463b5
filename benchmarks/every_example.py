"""Models of other fields, as users of Keras write them: exported by one call, run and compared in each format.

    python benchmarks/every_example.py --json examples.json
    python benchmarks/every_example.py --only dlrm u_net
    python benchmarks/every_example.py --keras --json examples.json

The models are in `benchmarks/example_models`, a file for each field; each is fitted for a few steps first, and exported in a
process of its own, whose time and memory are measured. With `--keras`, Keras's own exporter writes the same models, which
are run on the same numbers. `--json` keeps the results: what a run does not try stays as it was. The command fails if a file
computes something else than Keras, or an export ends in an error that is none of the package's own. Once each model has a
result, docs/example_models.md is written.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import functools
import json
import pathlib
import resource
import sys
import tempfile
import time

from keras_cells import ERROR, FORMATS, PROVEN, WRONG, in_cell, in_one_line, is_equal, is_fault, kept_results
from keras_exporter import COLUMNS, RIGHT, of_keras
from measure import listed, versions

OURS = "ours"
FILE = pathlib.Path(__file__).parents[1] / "docs" / "example_models.md"
HEAD = """# Models of other fields

Small models of many fields, in the manner of the examples on keras.io: functional and subclassed, with layers of their own,
`Lambda`, `tf` and `keras.ops`. Each is fitted for a few steps, exported in all formats by one call of
`export(model, directory)` without options, run in the runtime of each format and compared with Keras once more, by
`python benchmarks/every_example.py`. *Proven*: the file computes what Keras computes. Outputs that Keras itself draws by
random numbers are compared by the export alone, which feeds the same numbers to both.
"""
BESIDE = """
Beside them are the files of Keras's own exporter, `model.export(path, format)`, of the same models, run on the same inputs.
"""


@functools.lru_cache(maxsize=1)
def built(name):
    """A model, its inputs as tensors, its outputs as arrays, and which of them are the same in each call."""
    import keras
    import numpy as np
    import tensorflow as tf
    from example_models import EXAMPLES

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model, inputs = EXAMPLES[name]()
    inputs = keras.tree.map_structure(tf.constant, inputs)
    first, second = (model.predict(inputs, verbose=0) for _ in range(2))
    outputs = {key: np.asarray(each) for key, each in first.items()} if isinstance(first, dict) else None
    flat = [np.asarray(each) for each in (first.values() if outputs else tf.nest.flatten(first))]
    again = [np.asarray(each) for each in (second.values() if outputs else tf.nest.flatten(second))]
    is_same = [np.array_equal(one, other) for one, other in zip(flat, again, strict=True)]
    return model, inputs, flat, is_same


def exported(name):
    """The result of a model in each format, and the time and memory of the call."""
    from keras_transformer.export import ExportError, export

    model, *_ = built(name)
    with tempfile.TemporaryDirectory() as folder:
        before, start = _peak(), time.perf_counter()
        try:
            export(model, f"{folder}/bundle", progress=False)
        except ExportError:
            return {format: _in_one_format(name, format) for format in FORMATS}
        except Exception as error:  # A row of the table names it.
            return dict.fromkeys(FORMATS, f"{ERROR}: {type(error).__name__}: {in_one_line(error)[:300]}")
        cost = {"seconds": round(time.perf_counter() - start, 1), "megabytes": round(_peak() - before)}
        return {format: _compared(name, f"{folder}/bundle", format) for format in FORMATS} | cost


def _in_one_format(name, format):
    from keras_transformer.export import ExportError, export

    with tempfile.TemporaryDirectory() as folder:
        try:
            export(built(name)[0], f"{folder}/bundle", [format], progress=False)
        except ExportError as error:
            return f"{type(error).__name__}: {in_one_line(error)}"
        return _compared(name, f"{folder}/bundle", format)


def _compared(name, path, format):
    import keras
    import numpy as np

    from keras_transformer.export import load

    _, inputs, expected, is_same = built(name)
    arrays = keras.tree.map_structure(np.asarray, inputs)
    try:
        found = list(load(path, backend=format)(arrays).values())
    except Exception as error:  # A row of the table names it.
        return f"{ERROR}: {type(error).__name__}: {in_one_line(error)[:300]}"
    if len(found) != len(expected):
        return f"{WRONG}: {len(found)} outputs in place of {len(expected)}"
    pairs = zip(found, expected, is_same, strict=True)
    return (
        PROVEN
        if all(is_equal(one, other) if same else one.shape == other.shape for one, other, same in pairs)
        else WRONG
    )


def _peak():
    """The largest memory so far of this process, and of one that it started, in MB."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024


def _work(keys):
    """Prints the result of each model and column as a line of JSON."""
    for key in keys:
        name, column = key.split()
        if column == OURS:
            found = exported(name)
        else:
            model, inputs, expected, _ = built(name)
            found = {column: of_keras(model, inputs, expected, column)}
        print(json.dumps({"name": key, "found": found}), flush=True)


def page(found):
    """The text of docs/example_models.md, of the results by model and column."""
    from example_models import EXAMPLES, FIELD

    beside = COLUMNS if any(set(COLUMNS) & set(row) for row in found.values()) else {}
    columns = {**FORMATS, **beside}
    heads = ["model", "what it is", *columns.values(), "seconds", "MB"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in sorted(EXAMPLES, key=lambda name: (FIELD[name], name)):
        text = in_one_line(EXAMPLES[name].__doc__).split(": ")[0].rstrip(".")
        cells = [in_cell(found[name].get(column, "not tried")[:300]) for column in columns]
        cost = [str(found[name].get(key, "")) for key in ("seconds", "megabytes")]
        lines.append(f"| {name.replace('_', ' ')} | {FIELD[name]}: {text} | {' | '.join([*cells, *cost])} |")
    whole = sum(all(found[name][format] == PROVEN for format in FORMATS) for name in EXAMPLES)
    tried = {title: [row[column] for row in found.values() if column in row] for column, title in beside.items()}
    counts = [f"{cells.count(RIGHT)} of {len(cells)} ({title})" for title, cells in tried.items()]
    said = f"{whole} of {len(EXAMPLES)} models are proven in all three formats at the first call."
    said += f" Files of Keras's own exporter that are right: {', '.join(counts)}." if beside else ""
    installed = listed(versions("keras", "tensorflow", "onnxruntime"))
    return f"{HEAD}{BESIDE if beside else ''}\n{said} ({installed})\n\n" + "\n".join(lines) + "\n"


def _entries(column, result):
    """What a worker finds of a model by column: one text for all formats where its process ended."""
    return dict.fromkeys(FORMATS if column == OURS else [column], result) if isinstance(result, str) else result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="keeps the results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument("--keras", action="store_true", help="Keras's own exporter, in place of this one")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(options.worker)
    from example_models import EXAMPLES

    columns = COLUMNS if options.keras else [OURS]
    keys = [f"{name} {column}" for name in options.only or EXAMPLES for column in columns]
    found = kept_results(options.json, keys, _entries, batch=60 if options.keras else 1)
    if all(set(FORMATS) <= set(found.get(name, {})) for name in EXAMPLES):
        FILE.write_text(page(found))
    return 1 if any(is_fault(row.get(format, "")) for row in found.values() for format in FORMATS) else 0


if __name__ == "__main__":
    sys.exit(main())
