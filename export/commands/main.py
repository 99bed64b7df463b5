"""The command line `keras-transformer`. Only the command that is named is imported."""

import argparse
import importlib
import os
import sys

from keras_transformer.utils import interrupts

# Each is a file in `commands`; what it is for begins its own help, too.
COMMANDS = {
    "demo": "train a Vision Transformer on real images, export it, and compare all three runtimes",
    "export": "write a model as a bundle and prove every file in it",
    "convert": "turn a checkpoint of Hugging Face into a .keras file, or back",
    "verify": "prove a bundle again, from the probes kept in it, without Keras or the model",
    "run": "run a bundle on arrays from a file",
    "generate": "continue or translate a text with the bundle of a language model",
    "inspect": "show what a bundle holds",
    "bench": "measure latency, throughput, memory and size in each runtime",
    "sensitivity": "show which weights cost most accuracy when they are quantized",
    "serving": "write a bundle as one version of a model for TensorFlow Serving, or for Triton Inference Server",
    "engine": "write a language model as onnxruntime-genai or LiteRT-LM loads it",
    "serve-text": "serve a language model over HTTP in the manner of OpenAI, many requests in one batch",
    "catalog": "list every architecture, mechanism and other part, and what each supports",
    "plan": "say how much memory and time a model takes, on one device or many, without running it",
}

_EXAMPLES = """examples:
  keras-transformer demo
  keras-transformer export model.keras --out bundle
  keras-transformer export model.keras --out bundle --formats tflite onnx
  keras-transformer export CHECKPOINT --out bundle
  keras-transformer convert CHECKPOINT model.keras
  keras-transformer verify bundle
  keras-transformer run bundle --input images.npy --backend tflite
  keras-transformer generate bundle "Once upon a time" --sampler random --top-p 0.9
  keras-transformer inspect bundle
  keras-transformer bench bundle --batch 8
  keras-transformer sensitivity bundle --evaluate test.npz
  keras-transformer serving bundle --out served --version 1
  keras-transformer serve-text model.keras --port 8000
  keras-transformer catalog mechanisms
  keras-transformer plan llama:3-8B --device h100 --devices 8
"""


def main(arguments=None):
    """Runs one command.

    Args:
        arguments: list of command line words; those of the process when None.

    Returns:
        The exit status: 0, 1 after an error (one line of it on stderr), 2 for wrong usage, 130 when interrupted.
    """
    # Quiet by default; whoever set these keeps what they set.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    words = sys.argv[1:] if arguments is None else arguments
    try:
        parsed = build_parser(next((word for word in words if not word.startswith("-")), None)).parse_args(words)
        parsed.check(parsed)
    except SystemExit as stop:
        return stop.code or 0
    try:
        with interrupts.ends_cleanly():
            return parsed.run(parsed) or 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if parsed.debug:
            raise
        return _fail(_explain(error), 1)


def _fail(message, status):
    print(f"keras-transformer: error: {message}", file=sys.stderr)
    return status


def _explain(error):
    """One line for any error; those that are not ours are named by their class too."""
    from keras_transformer.export.errors import ExportError, one_line
    from keras_transformer.generation.errors import GenerationError
    from keras_transformer.planning.errors import PlanningError
    from keras_transformer.text.errors import TextError

    if isinstance(error, (ExportError, GenerationError, PlanningError, TextError, *_checkpoint_errors())):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    return f"{type(error).__name__}: {one_line(error)} (--debug shows where)"


def _checkpoint_errors():
    """The base of a checkpoint's errors, where one can have been raised: the room is heavy to import."""
    module = sys.modules.get("keras_transformer.checkpoints.errors")
    return () if module is None else (module.CheckpointError,)


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    """Prints the version without importing more than that."""

    def __call__(self, parser, namespace, values, option=None):
        from keras_transformer import __version__

        print(f"keras-transformer {__version__}")
        parser.exit()


def build_parser(name=None):
    """The parser of the command line, with the options of one command.

    Args:
        name: str or None: the command whose options are read. Of the others, only what they are for is known.

    Returns:
        `argparse.ArgumentParser`.
    """
    parser = _Parser(
        prog="keras-transformer",
        description="Export Keras models as SavedModel, TFLite and ONNX, proven to compute what Keras computes.",
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
            _complete(options, each, help)
    return parser


def _complete(parser, name, help):
    """Gives the parser of a command its options, and a `--help` that ends in examples."""
    command = importlib.import_module(f"keras_transformer.export.commands.{name.replace('-', '_')}")
    parser.description = f"{help[0].upper()}{help[1:]}."
    parser.epilog = "examples:\n" + "".join(f"  keras-transformer {name} {each}\n" for each in command.EXAMPLES)
    parser.set_defaults(run=command.run)
    command.add_arguments(parser)


if __name__ == "__main__":
    sys.exit(main())
