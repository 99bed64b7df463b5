"""Runs the files of a bundle on the simulator of an accelerator: `python -m keras_transformer.export.targets.worker JOB`.

A process of its own, since drivers and compilers of accelerators crash, and load libraries that TensorFlow does not bear.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np

from keras_transformer.export.errors import ExportError
from keras_transformer.export.targets import TARGETS
from keras_transformer.export.targets.target import Measured, NoAcceleratorError, RefusedNodeError, Target
from keras_transformer.utils.errors import library_exceptions, one_line

# What the result says of a signature.
_RESULTS = ("nodes", "taken", "refused", "left", "figures")


def main(job: str) -> int:
    """Runs a job: a JSON file with "target", its "options", "precision", and "signatures", a dict of name to path of the
    file and number of cases; inputs are in `inputs.npz` beside it. Writes `outputs.npz` and `result.json`."""
    folder = pathlib.Path(job).parent
    task = json.loads(pathlib.Path(job).read_text(encoding="utf-8"))
    target = TARGETS[task["target"]](**task["options"])
    outputs: dict[str, Any] = {}
    found: dict[str, Any] = {}
    try:
        with np.load(folder / "inputs.npz") as arrays:
            for name, (path, count) in task["signatures"].items():
                cases = [_part(arrays, f"{name}/{number}/") for number in range(count)]
                measured = target.run(pathlib.Path(path), name, cases, task["precision"])
                found[name] = {key: getattr(measured, key) for key in _RESULTS}
                is_taken = measured.taken == measured.nodes or not target.runs_compiled
                if is_taken and target.compiled_suffix:
                    given = (pathlib.Path(path), name, cases, task["precision"])
                    found[name]["compiled"] = _compiled(target, given, measured, folder)
                for number, each in enumerate(measured.outputs):
                    outputs |= {f"{name}/{number}/{key}": value for key, value in each.items()}
        result: dict[str, Any] = {"signatures": found}
    except (NoAcceleratorError, ImportError) as error:
        result = {"missing": one_line(error)}
    except RefusedNodeError as error:
        result = {"node": error.node}
    except library_exceptions(ExportError) as error:
        result = {"error": f"{type(error).__name__}: {one_line(error)}"}
    np.savez(folder / "outputs.npz", **outputs)
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return 0


def _compiled(
    target: Target,
    given: tuple[pathlib.Path, str, list[dict[str, np.ndarray]], str | None],
    measured: Measured,
    folder: pathlib.Path,
) -> str | None:
    """Name of the compiled file in the folder, or None where there is none, or it computes something else."""
    path, signature, cases, precision = given
    compiled = folder / f"{path.stem}{target.compiled_suffix}"
    if not target.compile(path, signature, compiled, precision):
        return None
    if not target.runs_compiled:
        return compiled.name
    again = target.run(compiled, signature, cases, precision).outputs
    equal = [
        np.array_equal(one[key], other[key]) for one, other in zip(measured.outputs, again, strict=True) for key in one
    ]
    return compiled.name if all(equal) else None


def _part(arrays: np.lib.npyio.NpzFile, prefix: str) -> dict[str, np.ndarray]:
    return {key.removeprefix(prefix): arrays[key] for key in arrays.files if key.startswith(prefix)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
