"""The command `run`: runs a bundle on arrays, images or texts."""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformer.export.commands.console import BACKEND_HELP
from keras_transformer.export.errors import ExportError

if TYPE_CHECKING:
    import numpy as np

EXAMPLES = [
    "bundle --input images.npy",
    "bundle --input image=photo.jpg --json",
    'bundle --text "A sentence." --text "Another one."',
    "bundle --input batch.npz --backend tflite --output results.npz",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer run`."""
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    given = parser.add_mutually_exclusive_group(required=True)
    help = (
        ".npz or .json with an array for each input; or .npy or an image for one of them, which needs a name only where"
    )
    help += " there are several; repeatable"
    given.add_argument("--input", action="append", metavar="[NAME=]FILE", help=help)
    help = "a text, for a bundle with a tokenizer or an input of strings; repeatable"
    given.add_argument("--text", action="append", metavar="TEXT", help=help)
    parser.add_argument("--backend", help=BACKEND_HELP)
    parser.add_argument("--signature", default="serve", help="name of the signature (default: serve)")
    parser.add_argument("--output", metavar="FILE", help="write the outputs as .npz or .json instead of printing them")
    parser.add_argument("--json", action="store_true", help="print the outputs as JSON: lists by name")


def run(arguments: argparse.Namespace) -> int:
    """Prints or writes the outputs; returns the exit status."""
    from keras_transformer.export.bundle.manifest import read_manifest
    from keras_transformer.export.commands.running.run_inputs import read_inputs, split_files
    from keras_transformer.export.formats import get_format
    from keras_transformer.export.loading.load import load

    if arguments.backend is not None:
        get_format(arguments.backend)
    if arguments.output and pathlib.Path(arguments.output).suffix not in (".npz", ".json"):
        raise ExportError(f"cannot write '{arguments.output}': the name must end in .npz or .json")
    files = split_files(arguments.input or ())
    if read_manifest(arguments.bundle).generation is not None and arguments.signature == "serve":
        raise ExportError(
            f"'{arguments.bundle}' is the bundle of a language model: use generate or chat, or --signature"
        )
    model = load(arguments.bundle, arguments.backend, arguments.signature)
    if arguments.text and model.tokenizer is None and all(each.dtype != "string" for each in model.inputs):
        inputs = ", ".join(f"{each.name}: {each.describe()}" for each in model.inputs)
        raise ExportError(f"'{arguments.bundle}' has no tokenizer and takes no text: pass --input FILE of {inputs}")
    outputs = model(arguments.text if arguments.text else read_inputs(files, model.inputs, model.metadata))
    if arguments.output:
        _write_arrays(arguments.output, outputs)
    elif arguments.json:
        print(_as_json(outputs))
    else:
        for name, array in outputs.items():
            print(f"{name} {array.dtype} {array.shape}\n{array}")
    return 0


def _as_json(outputs: dict[str, np.ndarray]) -> str:
    return json.dumps({name: array.tolist() for name, array in outputs.items()})


def _write_arrays(name: str, outputs: dict[str, Any]) -> None:
    import numpy as np

    path = pathlib.Path(name)
    if path.suffix == ".npz":
        np.savez(path, **outputs)
    else:
        path.write_text(_as_json(outputs) + "\n")
