"""The command line `keras-transformer`. It imports only the command that runs."""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol

from keras_transformer.utils import interrupts

# Each is a file in this package, or in one of its folders. The text is the help of the command.
COMMANDS: dict[str, str] = {
    "demo": "train a Vision Transformer on real images, export it, and compare all three runtimes",
    "export": "write a model as a bundle and verify every file in it",
    "convert": "convert a Hugging Face checkpoint to a .keras file, or back",
    "compress": "try several quantizations, and write the best bundle within a budget",
    "quantize": "write a quantized copy of a float bundle, without Keras or the model",
    "verify": "verify a bundle again with its stored probes, without Keras or the model",
    "run": "run a bundle on arrays from a file",
    "generate": "continue or translate a text with the bundle of a language model",
    "chat": "talk with the bundle of a language model that has a chat template",
    "inspect": "show the contents of a bundle",
    "view": "show in the browser what the weights of a bundle cost by layer, and attention over an input",
    "bench": "measure latency, throughput, memory and size in each runtime",
    "sensitivity": "show which weights lose most accuracy when they are quantized",
    "serving": "write a bundle as one version of a model for TensorFlow Serving, or for Triton Inference Server",
    "engine": "write a model for onnxruntime-genai, LiteRT-LM, MediaPipe Tasks or transformers.js",
    "serve": "serve bundles over HTTP and gRPC from one process: arrays, and texts in OpenAI's API",
    "serve-text": "serve a language model over an OpenAI-compatible HTTP API, with continuous batching",
    "explain": "print what an error means, and what to do about it",
    "completion": "print the script that completes commands and options in bash, zsh or fish",
    "catalog": "list architectures, mechanisms and other parts, and what each supports",
    "plan": "estimate the memory and time of a model on one or many devices, without running it",
}

# The folders of this package, by the names of the commands that are in them.
_FOLDERS = {
    **dict.fromkeys(("demo", "export", "convert", "compress", "quantize", "serving", "engine"), "writing"),
    **dict.fromkeys(("verify", "inspect", "view", "bench", "sensitivity"), "measuring"),
    **dict.fromkeys(("run", "generate", "chat", "serve", "serve-text"), "running"),
}

# The names under which pip installs modules, where they differ.
_DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "tensorflow_text": "tensorflow-text"}

_EXAMPLES = """examples:
  keras-transformer demo
  keras-transformer export model.keras --out bundle
  keras-transformer export model.keras --out bundle --formats tflite onnx
  keras-transformer export CHECKPOINT --out bundle
  keras-transformer convert CHECKPOINT model.keras
  keras-transformer compress model.keras --out small --data train.npz --budget 20MB
  keras-transformer quantize bundle --out bundle_int8 --quantize int8
  keras-transformer verify bundle
  keras-transformer run bundle --input images.npy --backend tflite
  keras-transformer run bundle --input image=photo.jpg
  keras-transformer generate bundle "Once upon a time" --sampler random --top-p 0.9
  keras-transformer chat bundle --system "Answer in one sentence."
  keras-transformer inspect bundle
  keras-transformer inspect model.tflite
  keras-transformer view bundle
  keras-transformer bench bundle --batch 8
  keras-transformer sensitivity bundle --evaluate test.npz
  keras-transformer serving bundle --out served --version 1
  keras-transformer serve bundle --port 8000
  keras-transformer serve-text model.keras --port 8000
  keras-transformer explain ParityError
  keras-transformer catalog mechanisms
  keras-transformer plan llama:3-8B --device h100 --devices 8

exit status:
  0  done
  1  an error: one line on stderr, and nothing half-written
  2  wrong usage: an unknown command, option or value
  130  interrupted; 141  nobody reads the output
"""


class Command(Protocol):
    """A module of a command."""

    # Arguments, without the name of the command, for the end of its help.
    EXAMPLES: Sequence[str]

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Adds the options of the command."""

    def run(self, arguments: argparse.Namespace, /) -> int:
        """Runs the command; returns the exit status."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: list of command line arguments. None for those of the process.

    Returns:
        The exit status: 0, 1 after an error (one line of it on stderr), 2 for wrong usage, 130 when interrupted.
    """
    # Quiet by default; values that are set already are kept.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        build_parser().print_help()
        return 0
    name = next((each for each in given if not each.startswith("-")), None)
    try:
        parsed = build_parser(name).parse_args(given)
        parsed.check(parsed)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    try:
        with interrupts.ends_cleanly():
            return parsed.run(parsed) or 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # The boundary of the program: one line for whatever it is.
        if parsed.debug:
            raise
        print(f"keras-transformer: error: {_explain(error, str(name))}", file=sys.stderr)
        return 1


def _explain(error: Exception, command: str) -> str:
    """One line for any error. Errors that this package does not raise on purpose are named by their class too."""
    from keras_transformer.export.errors import ExportError, MissingLibraryError
    from keras_transformer.generation.errors import GenerationError
    from keras_transformer.planning.errors import PlanningError
    from keras_transformer.quantization.errors import WeightQuantizationError
    from keras_transformer.text.errors import TextError
    from keras_transformer.utils.errors import one_line

    if isinstance(
        error, (ExportError, GenerationError, PlanningError, TextError, WeightQuantizationError, *_checkpoint_errors())
    ):
        return str(error)
    missing = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing and missing != "keras_transformer":
        return str(MissingLibraryError(f"the command '{command}'", _DISTRIBUTIONS.get(missing, missing)))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    return f"{type(error).__name__}: {one_line(error)} (--debug shows where)"


def _checkpoint_errors() -> tuple[type[Exception], ...]:
    """The base of checkpoint errors, if its module is loaded: the package is heavy to import."""
    module = sys.modules.get("keras_transformer.checkpoints.errors")
    return () if module is None else (module.CheckpointError,)


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line, with the nearest valid name."""

    options: Sequence[str] = ()  # Of the command that is parsed.

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = ", ".join(map(str, action.choices))
            message = f"invalid choice: {value!r}{_suggestion(value, action.choices)} (choose from {known})"
            raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            message += _suggestion(unknown.group(1), self.options)
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _suggestion(name: str, valid: Iterable[str]) -> str:
    from keras_transformer.utils.choice import suggestion

    return suggestion(name, valid)


class _Version(argparse.Action):
    """Prints the version, and imports nothing else."""

    def __call__(self, parser: argparse.ArgumentParser, *arguments: object) -> None:
        from keras_transformer import __version__

        print(f"keras-transformer {__version__}")
        parser.exit()


def build_parser(name: str | None = None) -> argparse.ArgumentParser:
    """Builds the parser of the command line, with the options of one command.

    Args:
        name: str or None: the command whose options are added. The other commands have their help line only.

    Returns:
        `argparse.ArgumentParser`.
    """
    parser = _Parser(
        prog="keras-transformer",
        description="Export Keras models to SavedModel, TFLite and ONNX, each file verified against Keras.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(check=lambda arguments: None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for each, help in COMMANDS.items():
        options = commands.add_parser(each, help=help, formatter_class=argparse.RawDescriptionHelpFormatter)
        if each == name:
            _add_command(options, each, help)
            parser.options = list(options._option_string_actions)
    return parser


def options_of(name: str) -> list[str]:
    """The long options of a command, for completion.

    Args:
        name: str: the command.

    Example:

    >>> options_of("verify")
    ['--help', '--backend', '--tolerance', '--json']
    """
    parser = _Parser()
    _add_command(parser, name, COMMANDS[name])
    return [each for each in parser._option_string_actions if each.startswith("--")]


def _module(name: str) -> Command:
    folder = f".{_FOLDERS[name]}" if name in _FOLDERS else ""
    module: Any = importlib.import_module(f"keras_transformer.export.commands{folder}.{name.replace('-', '_')}")
    return module


def _add_command(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """Adds the options of a command, and the examples at the end of its help."""
    command = _module(name)
    parser.description = f"{help[0].upper()}{help[1:]}."
    parser.epilog = "examples:\n" + "".join(f"  keras-transformer {name} {each}\n" for each in command.EXAMPLES)
    parser.set_defaults(run=command.run)
    command.add_arguments(parser)


if __name__ == "__main__":
    sys.exit(main())
