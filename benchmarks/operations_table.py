"""What becomes of each operation of TensorFlow in each format, for the documentation.

    python benchmarks/operations_table.py

Writes docs/operations.md from the table of operations, `export/operations/`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import inspect
import pathlib

from keras_transformer.export.operations.operation import ONNX, SAVED_MODEL, TFLITE, Decomposed, Refused
from keras_transformer.export.operations.table import OPERATIONS

FILE = pathlib.Path(__file__).parents[1] / "docs" / "operations.md"
KEPT = "kept"
TITLES = {TFLITE: "TFLite", ONNX: "ONNX"}
HEAD = """# What becomes of each operation

A file differs from Keras only through the operations in it. This table is printed from `export/operations/`, where each
operation of TensorFlow has an entry: *kept* is what the converter of the format takes as it is; a name is the function that
takes its place, of operations that the format has; *refused* has a reason and a remedy. Each row is tested alone, in the
runtime of each format, with dynamic and with fixed shapes. Operations that are not listed are left to the converters; those
that a converter does not take end in an `UnsupportedOpError` that names the operation and its layer. *Differs* names
operands of which a runtime computes another result, as [measured](conformance.md); the report of an export says so where
they reach the operation and the model tells them from numbers. A SavedModel contains the operations of the model, but for
those that TensorFlow does not compute on every processor: {replaced}.

With a function of your own a format takes an operation that it does not have:

```python
import tensorflow as tf
from keras_transformer.export import register_lowering

register_lowering("Xdivy", "onnx", lambda x, y: tf.math.divide_no_nan(x, y))
```

The file is compared with your model as every other one: a wrong function is found. What becomes of the functions of Keras
is on [a page of its own](keras_functions.md).

"""


def condition(lowering):
    """To which nodes it applies, in words; "" for all of them."""
    name = lowering.when.__name__.strip("_")
    words = name.removeprefix("is_").removeprefix("has_").replace("_", " ")
    return "" if name == "always" else f" ({words})"


def cell(lowerings):
    """What becomes of an operation in one format."""
    parts = []
    for each in lowerings:
        if isinstance(each, Refused):
            parts.append(f"refused{condition(each)}: {each.reason}; {each.remedy}")
        elif isinstance(each, Decomposed):
            module = inspect.getmodule(each.function).__name__.rpartition(".")[2]
            parts.append(f"`{module}.{each.function.__name__}`{condition(each)}")
        else:
            parts.append(f"the format's own: `{each.build.__name__}`")
    is_total = any(not hasattr(each, "when") or not condition(each) for each in lowerings)
    return "; ".join(parts if is_total else [*parts, f"else {KEPT}" if parts else KEPT])


def page():
    """The text of docs/operations.md."""
    lines = ["| operation | TFLite | ONNX | rounds | differs |", "|---|---|---|---|---|"]
    for name, each in sorted(OPERATIONS.items()):
        cells = [cell(each.lowerings_in(format)) for format in (TFLITE, ONNX)]
        differs = ", ".join(
            f"{region.name} in {TITLES[format]}{condition(region)}"
            for format, regions in each.differs.items()
            for region in regions
        )
        rounds = "yes" if each.rounds or each.rounds_coordinates else ""
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {rounds} | {differs} |")
    own = {name: each.lowerings_in(SAVED_MODEL) for name, each in sorted(OPERATIONS.items())}
    replaced = ", ".join(f"{name} becomes {cell(found)}" for name, found in own.items() if found)
    return HEAD.replace("{replaced}", replaced) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(page())
