"""What the files compute of unusual numbers, operation by operation, beside TensorFlow.

    python benchmarks/operator_conformance.py
    python benchmarks/operator_conformance.py --types int32 int64 --operations FloorDiv Cast --json results.json

A function of `conformance_cases` meets numbers of all regions, or all pairs of them, in TensorFlow and in the files that are
made of it, with a dynamic length and with a fixed one, each in its own runtime. Without `--operations` and `--types` it
writes docs/conformance.md.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
FILE = ROOT / "docs" / "conformance.md"
sys.path.append(str(ROOT / "tests" / "export"))
FORMATS, KINDS = ("tflite", "onnx"), ("dynamic", "fixed")
_TOGETHER = 12  # Functions in one file.
_DENORMAL = "denormal"
HEAD = """# What files compute of unusual numbers

`python benchmarks/operator_conformance.py` gives each operation numbers of all regions, or all pairs of them: negative
ones, zeros of both signs, tiny and large ones, the ends of the type, infinities, NaN, and the indices and shifts that it
takes. The results of TensorFlow are compared with those of the TFLite file in LiteRT and of the ONNX file in ONNX Runtime,
with dynamic and with fixed shapes. {functions} functions of one type are compared; the table has those that differ. All
others compute what TensorFlow computes, of every number: what runtimes compute otherwise is
[mended in the file](operations.md) where that costs little.

- *report*: the report of an export says it, with the layer, where NaN of an input reaches the operation and the model tells
  NaN from numbers. Elsewhere the result of Keras is NaN as well.
- *left*: no activation of a working network is infinite, or larger than 1e7; ONNX Runtime multiplies the integers of an axis
  in floats of 64 bits, which have those below 2⁵³, and do not overflow as integers do; the mean of nothing is 0 there.

What a mask of attention hides is multiplied by 0 in ONNX, which is faster than a choice: an infinite score there is NaN.

TensorFlow takes denormal numbers, those below 1.2e-38, for 0 on a CPU. The runtimes compute with them, so that results
differ by as little, or by more where a function jumps at 0: {denormal}.

Rounding is no difference: results may be 2e-5 of their size away, and 2e-7 where a function is near 1.

"""


def operands(function, dtype):
    """The arrays that a function meets, and the region of each element."""
    from conformance_cases import numbers, regions

    x, names = numbers(dtype)
    if function.count == 1:
        arrays, found = (x,), names
    else:
        order = list(regions(dtype))
        arrays = tuple(each.reshape(-1) for each in np.meshgrid(x, x, indexing="ij"))
        found = [max(pair, key=order.index) for pair in ((a, b) for a in names for b in names)]
    found = [function.region or each for each in found]
    return _defined(function, arrays, found)


def _defined(function, arrays, found):
    if function.is_defined is None:
        return arrays, found
    kept = function.is_defined(*arrays)
    return tuple(each[kept] for each in arrays), [each for each, is_kept in zip(found, kept, strict=True) if is_kept]


def expected_of(function, dtype):
    """TensorFlow's result; None where it has no such operation of the type."""
    import tensorflow as tf

    if dtype not in function.types:
        return None
    arrays, _ = operands(function, dtype)
    try:
        return function.function(*map(tf.constant, arrays)).numpy()
    except (tf.errors.OpError, TypeError, ValueError, AttributeError):
        return None


def found_of(functions, dtype, format, kind):
    """What files compute: for each function an array, or the text of an error. A file that fails is taken apart."""
    from operation_files import computed

    arrays = {}
    places = []
    for each in functions:
        given, _ = operands(each, dtype)
        key = (each.count, each.is_defined)
        arrays.setdefault(key, given)
        places.append(key)
    starts = {key: sum(other[0] for other in list(arrays)[:number]) for number, key in enumerate(arrays)}

    def called(*tensors):
        return [
            each.function(*tensors[starts[key] : starts[key] + each.count])
            for each, key in zip(functions, places, strict=True)
        ]

    flat = [array for given in arrays.values() for array in given]
    try:
        return computed(called, flat, format, None if kind == "dynamic" else [each.shape for each in flat])
    except Exception as error:  # Of a converter or a runtime, whatever it is.
        if len(functions) == 1:
            return [f"{type(error).__name__}: {error}".splitlines()[0][:200]]
    middle = len(functions) // 2
    return [
        result for part in (functions[:middle], functions[middle:]) for result in found_of(part, dtype, format, kind)
    ]


def is_equal(function, found, expected):
    """Where two results are the same number, but for rounding."""
    if expected.dtype.kind != "f":
        return found == expected
    with np.errstate(all="ignore"):
        near = np.abs(found.astype("float64") - expected) <= function.bound * np.abs(expected) + function.absolute
    return near | (found == expected) | (np.isnan(found) & np.isnan(expected))


def differences(function, dtype, found, expected):
    """A dict for each region in which a result is not TensorFlow's: how many of its elements, and one of them."""
    arrays, names = operands(function, dtype)
    if found.shape != expected.shape:
        shapes = {"expected": f"shape {expected.shape}", "found": f"shape {found.shape}", "share": 1.0}
        return [{"region": function.region or "all"} | shapes]
    wrong = ~is_equal(function, found, expected)
    if len(wrong) != len(names):  # Rows of classes, or of segments.
        found, expected, wrong = found.T, expected.T, wrong.T
    wrong = wrong.reshape(len(names), -1).any(1)
    results = []
    for region in dict.fromkeys(names):
        own = np.array([each == region for each in names])
        places = np.flatnonzero(wrong & own)
        if len(places):
            first = places[0]
            results.append(
                {
                    "region": region,
                    "operands": [_text(each[first]) for each in arrays],
                    "expected": _text(expected[first]),
                    "found": _text(found[first]),
                    "share": len(places) / int(own.sum()),
                }
            )
    return results


def _text(value):
    """A number, or a row of them, with six digits."""
    numbers = np.asarray(value).reshape(-1)
    parts = [f"{each:.6g}" if numbers.dtype.kind == "f" else str(each) for each in numbers.tolist()]
    return f"[{', '.join(parts)}]" if np.ndim(value) else parts[0]


def work(dtype, count, operations, out):
    """Compares the functions of so many operands of one type, and writes the results."""
    from conformance_cases import FUNCTIONS

    results = []
    chosen = [each for each in FUNCTIONS if each.count == count and (not operations or each.operation in operations)]
    pairs = [(each, expected_of(each, dtype)) for each in chosen]
    pairs = [(each, expected) for each, expected in pairs if expected is not None]
    for start in range(0, len(pairs), _TOGETHER):
        part = pairs[start : start + _TOGETHER]
        for format in FORMATS:
            for kind in KINDS:
                found = found_of([each for each, _ in part], dtype, format, kind)
                for (each, expected), result in zip(part, found, strict=True):
                    key = {
                        "operation": each.operation,
                        "name": each.name,
                        "format": format,
                        "kind": kind,
                        "dtype": dtype,
                    }
                    if isinstance(result, str):
                        results.append(key | {"refused": result})
                    else:
                        results.append(key | {"differences": differences(each, dtype, result, expected)})
                pathlib.Path(out).write_text(json.dumps(results))


def measured(types, operations):
    """The results of all types, each in a process of its own: converters keep memory."""
    results = []
    for dtype in types:
        for count in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder, "results.json")
                command = [sys.executable, __file__, "--work", dtype, str(count), str(out), "--operations", *operations]
                done = subprocess.run(command, capture_output=True, text=True)
                results += json.loads(out.read_text()) if out.exists() else []
                if done.returncode:
                    print(f"{dtype}, {count} operands: {done.stderr[-1500:]}", file=sys.stderr)
    return results


def rows(results):
    """Dict of operation, format and region to the types and functions in which they differ, and one example."""
    found = {}
    for each in results:
        for difference in each.get("differences", ()):
            row = found.setdefault((each["operation"], each["format"], difference["region"]), {"example": difference})
            row.setdefault("types", {})[each["dtype"]] = None
            row.setdefault("names", {})[each["name"]] = None
    return dict(sorted(found.items(), key=lambda pair: (pair[0][0].lower(), pair[0][1:])))


def consequence(operation, format, region):
    """What is done about a difference."""
    from keras_transformer.export.operations.operation import NAN
    from keras_transformer.export.operations.table import OPERATIONS

    if region == NAN and operation not in OPERATIONS:
        return "report"  # It is a function of Keras, of operations that differ.
    regions = OPERATIONS[operation].differs.get(format, ()) if operation in OPERATIONS else ()
    return "report" if region in [each.name for each in regions] else "left"


def page(results):
    """The text of docs/conformance.md."""
    found = rows(results)
    denormal = sorted({operation for operation, _, region in found if region == _DENORMAL}, key=str.lower)
    lines = [
        "| operation | format | types | numbers | for example | TensorFlow | file | what is done |",
        "|" + "---|" * 8,
    ]
    for (operation, format, region), row in found.items():
        if region == _DENORMAL:
            continue
        names = [name for name in row["names"] if name]
        example = row["example"]
        cells = (
            operation + (f" ({', '.join(names)})" if names and "" not in row["names"] else ""),
            "TFLite" if format == "tflite" else "ONNX",
            ", ".join(row["types"]),
            region,
            ", ".join(example.get("operands", ())),
            example.get("expected", ""),
            example["found"],
            consequence(operation, format, region),
        )
        lines.append("| " + " | ".join(cells) + " |")
    compared = {(each["operation"], each["name"], each["dtype"]) for each in results if "differences" in each}
    head = HEAD.format(functions=len(compared), denormal=", ".join(denormal))
    return head + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", default=[])
    parser.add_argument("--operations", nargs="*", default=[])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path, help="prints the page of results that --json wrote")
    parser.add_argument("--work", nargs=3, metavar=("TYPE", "COUNT", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], int(options.work[1]), options.operations, options.work[2])
        return
    from conformance_cases import TYPES

    results = (
        json.loads(options.page.read_text()) if options.page else measured(options.types or TYPES, options.operations)
    )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    text = page(results)
    if not options.types and not options.operations:
        FILE.write_text(text)
    print(text)
    for each in results:
        if "refused" in each and each["kind"] == "fixed":
            print("refused:", *(each[name] for name in ("operation", "name", "format", "dtype", "refused")))


if __name__ == "__main__":
    main()
