"""The command `convert`: converts a Hugging Face checkpoint to a `.keras` file, and back."""

import argparse
import pathlib

from keras_transformer.export.commands.console import print_status
from keras_transformer.export.commands.user_modules import add_import_option
from keras_transformer.export.errors import ExportError, InvalidModelError
from keras_transformer.utils.atomic_write import replacing_file
from keras_transformer.utils.choice import nearest_path

EXAMPLES = [
    "bert-folder bert.keras",
    "bert-folder bert.keras --dtype bfloat16",
    "tuned.keras tuned-folder --like bert-folder",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer convert`."""
    help = "a folder with config.json and safetensors, the name of a repository, or a .keras file"
    parser.add_argument("source", metavar="SOURCE", help=help)
    add_import_option(parser)
    parser.add_argument("target", metavar="TARGET", help="the .keras file to write; from a .keras file, the folder")
    parser.add_argument("--dtype", metavar="DTYPE", help="dtype of the weights in the .keras file (default: float32)")
    help = "from a .keras file: the checkpoint that it was converted from, for its config"
    parser.add_argument("--like", metavar="FOLDER", help=help)


def run(arguments: argparse.Namespace) -> int:
    """Writes the converted file or folder; returns the exit status."""
    source, target = pathlib.Path(arguments.source), pathlib.Path(arguments.target)
    if source.suffix == ".keras":
        return _to_folder(arguments, target)
    if target.suffix != ".keras":
        raise ExportError(f"'{target}': the file to write must be named .keras")
    if arguments.like is not None:
        raise ExportError("--like is for writing a folder, and the source is not a .keras file")
    from keras_transformer.export.commands.model_files import is_repository, load_model

    if source.exists() and not (source / "config.json").is_file():
        raise InvalidModelError(f"'{source}' is not a Hugging Face checkpoint: it contains no config.json")
    if not source.exists() and not is_repository(source):
        hint = nearest_path(source) or "; a repository of Hugging Face is named owner/name"
        raise InvalidModelError(f"no such folder: '{source}'{hint}")

    model = load_model(arguments.source, arguments.dtype)
    with replacing_file(target) as partial:
        model.save(partial)
    print_status(f"wrote {target}: {type(model).__name__} {model.name!r}, {model.count_params():,} parameters")
    return 0


def _to_folder(arguments: argparse.Namespace, target: pathlib.Path) -> int:
    from keras_transformer.export.commands.model_files import check_model, is_repository, load_model

    if arguments.like is None:
        raise ExportError("a .keras file does not contain the config of a checkpoint: pass one with --like FOLDER")
    if arguments.dtype is not None:
        raise ExportError("--dtype is for reading a checkpoint: a folder is written in the dtypes of --like")
    path, like = check_model(arguments.source, arguments.imports), pathlib.Path(arguments.like)
    if not is_repository(like) and not (like / "config.json").is_file():
        raise ExportError(
            f"--like '{like}' is no folder of a checkpoint: it contains no config.json{nearest_path(like)}"
        )
    model = load_model(path, imports=arguments.imports)
    from keras_transformer.checkpoints import to_huggingface

    to_huggingface(model, target, like=arguments.like, verbose=0)
    print_status(f"wrote {target}")
    return 0
