"""The command `run`: runs a bundle on arrays from a file."""

from __future__ import annotations

import argparse
import json
import pathlib
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.commands.console import BACKEND_HELP
from keras_transformer.export.errors import ExportError, InputError
from keras_transformer.utils.errors import one_line

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.data.array_spec import ArraySpec

EXAMPLES = ["bundle --input images.npy", "bundle --input batch.npz --backend tflite --output results.npz"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer run`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    help = ".npz or .json with an array for each input, or .npy for a model with one input"
    parser.add_argument("--input", required=True, metavar="FILE", help=help)
    parser.add_argument("--backend", help=BACKEND_HELP)
    parser.add_argument("--signature", default="serve", help="name of the signature (default: serve)")
    parser.add_argument("--output", metavar="FILE", help="write the outputs as .npz or .json instead of printing them")


def run(arguments: argparse.Namespace) -> int:
    """Prints or writes the outputs; returns the exit status."""
    from keras_transformer.export.loading.load import load
    from keras_transformer.export.runtime.runtime_model import RuntimeModel

    if arguments.output and pathlib.Path(arguments.output).suffix not in (".npz", ".json"):
        raise ExportError(f"cannot write '{arguments.output}': the name must end in .npz or .json")
    model = load(arguments.bundle, arguments.backend, arguments.signature)
    if not isinstance(model, RuntimeModel):
        raise ExportError(f"'{arguments.bundle}' is the bundle of a language model: use the command generate")
    outputs = model(_read_arrays(arguments.input, model.inputs))
    if arguments.output:
        _write_arrays(arguments.output, outputs)
    else:
        for name, array in outputs.items():
            print(f"{name} {array.dtype} {array.shape}\n{array}")
    return 0


def _read_arrays(path: str, inputs: Sequence[ArraySpec]) -> dict[str, np.ndarray]:
    """Dict of input name to array, from an .npz, .npy or .json file. A single unnamed array belongs to the only input."""
    import numpy as np

    suffix = pathlib.Path(path).suffix
    if suffix not in (".npz", ".npy", ".json"):
        raise ExportError(f"cannot read '{path}': the name must end in .npz, .npy or .json")
    loaded: Any
    try:
        if suffix == ".json":
            loaded = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        else:
            loaded = np.load(path, allow_pickle=False)
            loaded = dict(loaded) if suffix == ".npz" else loaded
    except FileNotFoundError:
        raise ExportError(f"no such file: '{path}'") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ExportError(f"'{path}' is not a readable {suffix} file: {one_line(error)}") from error
    if isinstance(loaded, dict):
        return loaded
    if len(inputs) != 1:
        raise InputError("(unnamed)", f"a file that names {', '.join(spec.name for spec in inputs)}", "one array")
    return {inputs[0].name: loaded}


def _write_arrays(name: str, outputs: dict[str, Any]) -> None:
    import numpy as np

    path = pathlib.Path(name)
    if path.suffix == ".npz":
        np.savez(path, **outputs)
    else:
        path.write_text(json.dumps({name: array.tolist() for name, array in outputs.items()}) + "\n")
