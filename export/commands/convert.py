"""The command `convert`: a checkpoint of Hugging Face as a `.keras` file, and back."""

import pathlib

from keras_transformer.export.commands.words import say
from keras_transformer.export.errors import ExportError, InvalidModelError
from keras_transformer.utils.atomic_write import replacing_file

EXAMPLES = [
    "bert-folder bert.keras",
    "bert-folder bert.keras --dtype bfloat16",
    "tuned.keras tuned-folder --like bert-folder",
]


def add_arguments(parser):
    """Adds the options of `keras-transformer convert`."""
    help = "a folder with config.json and safetensors, the name of a repository, or a .keras file"
    parser.add_argument("source", metavar="SOURCE", help=help)
    parser.add_argument("target", metavar="TARGET", help="the .keras file to write; from a .keras file, the folder")
    parser.add_argument("--dtype", metavar="DTYPE", help="of the weights in the .keras file (default: float32)")
    help = "from a .keras file: the checkpoint that it came from, whose config is taken"
    parser.add_argument("--like", metavar="FOLDER", help=help)


def run(arguments):
    """Reads one and writes the other; returns the exit status."""
    source, target = pathlib.Path(arguments.source), pathlib.Path(arguments.target)
    if source.suffix == ".keras":
        return _to_folder(arguments, target)
    if target.suffix != ".keras":
        raise ExportError(f"'{target}': the file to write must be named .keras")
    if arguments.like is not None:
        raise ExportError("--like is for writing a folder: the source is one already")
    if source.exists() and not (source / "config.json").is_file():
        raise InvalidModelError(f"'{source}' is no checkpoint of Hugging Face: it holds no config.json")
    from keras_transformer.export.commands.model_files import load_model

    model = load_model(arguments.source, arguments.dtype)
    with replacing_file(target) as partial:
        model.save(partial)
    say(f"wrote {target}: {type(model).__name__} {model.name!r}, {model.count_params():,} parameters")
    return 0


def _to_folder(arguments, target):
    from keras_transformer.export.commands.model_files import check_model, load_model

    if arguments.like is None:
        raise ExportError("a .keras file does not hold the config of a checkpoint: name one with --like FOLDER")
    if arguments.dtype is not None:
        raise ExportError("--dtype is for reading: a folder is written in the dtypes of --like")
    model = load_model(check_model(arguments.source))
    from keras_transformer.checkpoints import to_huggingface

    to_huggingface(model, target, like=arguments.like, verbose=0)
    say(f"wrote {target}")
    return 0
