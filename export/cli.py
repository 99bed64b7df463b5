"""The command line `keras-transformer`. Each command imports what it needs when it runs."""

import argparse
import importlib
import os
import sys

from keras_transformer.export import interrupts

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
  keras-transformer catalogue mechanisms
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
    try:
        parsed = _parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
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
    from keras_transformer.text.errors import TextError

    if isinstance(error, (ExportError, GenerationError, TextError, *_checkpoint_errors())):
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


def _parser(words):
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
    for add in (
        _add_demo,
        _add_export,
        _add_convert,
        _add_verify,
        _add_run,
        _add_generate,
        _add_inspect,
        _add_bench,
        _add_sensitivity,
        _add_serving,
        _add_engine,
        _add_serve_text,
        _add_catalogue,
        _add_plan,
    ):
        add(commands, words)
    return parser


def _later(module, function="run"):
    """What a command does; its module is imported when it is called."""
    return lambda arguments: getattr(importlib.import_module(f"keras_transformer.export.{module}"), function)(arguments)


def _command(commands, name, help, examples):
    """A subcommand whose `--help` ends in examples."""
    return commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog="examples:\n" + "".join(f"  keras-transformer {name} {each}\n" for each in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_demo(commands, words):
    help = "train a Vision Transformer on real images, export it, and compare all three runtimes"
    parser = _command(commands, "demo", help, ["", "--dataset cifar10"])
    parser.set_defaults(run=_later("demo"))
    if "demo" in words:
        from keras_transformer.export import demo

        demo.add_arguments(parser)


def _add_export(commands, words):
    from keras_transformer.export import quantize_arguments

    examples = [
        "model.keras --out bundle",
        "model.keras --out bundle --formats tflite onnx --tolerance 1e-6",
        "model.keras --out bundle --quantize int8 --evaluate test.npz --max-loss 0.005",
        "CHECKPOINT --out bundle",
    ]
    parser = _command(commands, "export", "write a model as a bundle and prove every file in it", examples)
    parser.add_argument(
        "model", metavar="MODEL", help="a .keras file of model.save, or the folder of a checkpoint of Hugging Face"
    )
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="directory of the bundle; an old bundle is replaced"
    )
    parser.add_argument("--formats", nargs="+", metavar="FORMAT", help="saved_model, tflite, onnx (default: all)")
    parser.add_argument("--tolerance", type=float, help="largest difference, as a share of the scale (default: 1e-5)")
    help = "sizes such as batch=1,length=128 for which TFLite has a signature of fixed shapes; repeatable"
    parser.add_argument("--static", action="append", metavar="SIZES", help=help)
    quantize_arguments.add_arguments(parser)
    parser.set_defaults(run=_later("commands", "export_file"))


def _add_convert(commands, words):
    from keras_transformer.export import convert_command

    help = "turn a checkpoint of Hugging Face into a .keras file, or back"
    parser = _command(commands, "convert", help, convert_command.EXAMPLES)
    convert_command.add_arguments(parser)
    parser.set_defaults(run=_later("convert_command"))


def _add_verify(commands, words):
    help = "prove a bundle again, from the probes kept in it, without Keras or the model"
    parser = _command(commands, "verify", help, ["bundle", "bundle --backend onnx"])
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--backend", action="append", help="only this runtime; may be given more than once")
    parser.set_defaults(run=_later("commands", "verify"))


def _add_run(commands, words):
    examples = ["bundle --input images.npy", "bundle --input batch.npz --backend tflite --output results.npz"]
    parser = _command(commands, "run", "run a bundle on arrays from a file", examples)
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    help = ".npz or .json with an array for each input, or .npy for a model with one input"
    parser.add_argument("--input", required=True, metavar="FILE", help=help)
    parser.add_argument("--backend", default="onnx", help="onnx (default), tflite or saved_model")
    parser.add_argument("--signature", default="serve", help="name of the signature (default: serve)")
    parser.add_argument("--output", metavar="FILE", help="write the outputs as .npz or .json instead of printing them")
    parser.set_defaults(run=_later("commands"))


def _add_generate(commands, words):
    from keras_transformer.export import generate_command

    help = "continue or translate a text with the bundle of a language model"
    parser = _command(commands, "generate", help, generate_command.EXAMPLES)
    generate_command.add_arguments(parser)
    parser.set_defaults(run=_later("generate_command"))


def _add_inspect(commands, words):
    parser = _command(commands, "inspect", "show what a bundle holds", ["bundle"])
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.set_defaults(run=_later("commands", "inspect"))


def _add_bench(commands, words):
    from keras_transformer.export import bench_command

    help = "measure latency, throughput, memory and size in each runtime"
    parser = _command(commands, "bench", help, bench_command.EXAMPLES)
    bench_command.add_arguments(parser)
    parser.set_defaults(run=_later("bench_command"))


def _add_sensitivity(commands, words):
    from keras_transformer.export import sensitivity_command

    help = "show which weights cost most accuracy when they are quantised"
    parser = _command(commands, "sensitivity", help, sensitivity_command.EXAMPLES)
    sensitivity_command.add_arguments(parser)
    parser.set_defaults(run=_later("sensitivity_command"))


def _add_serving(commands, words):
    help = "write a bundle as one version of a model for TensorFlow Serving, or for Triton Inference Server"
    examples = ["bundle --out served", "bundle --out served --version 2", "bundle --for triton --out repository"]
    parser = _command(commands, "serving", help, examples)
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--out", required=True, metavar="DIR", help="directory of the model, its versions in it")
    parser.add_argument("--version", dest="number", type=int, default=1, metavar="N", help="default: 1")
    help = "the signature that serving_default stands for (default: the bundle's first)"
    parser.add_argument("--default", metavar="NAME", help=help)
    if "serving" in words:
        from keras_transformer.export import serving_arguments

        serving_arguments.add_arguments(parser)
    parser.set_defaults(run=_later("commands", "serving"))


def _add_engine(commands, words):
    from keras_transformer.export import engine_command

    help = "write a language model as onnxruntime-genai or LiteRT-LM loads it"
    parser = _command(commands, "engine", help, engine_command.EXAMPLES)
    engine_command.add_arguments(parser)
    parser.set_defaults(run=_later("engine_command"))


def _add_serve_text(commands, words):
    from keras_transformer.export import serve_text_command

    help = "serve a language model over HTTP in the manner of OpenAI, many requests in one batch"
    parser = _command(commands, "serve-text", help, serve_text_command.EXAMPLES)
    serve_text_command.add_arguments(parser)
    parser.set_defaults(run=_later("serve_text_command"))


def _add_catalogue(commands, words):
    from keras_transformer.export import catalogue_command

    help = "list every architecture, mechanism and other part, and what each supports"
    parser = _command(commands, "catalogue", help, catalogue_command.EXAMPLES)
    catalogue_command.add_arguments(parser)
    parser.set_defaults(run=_later("catalogue_command"))


def _add_plan(commands, words):
    from keras_transformer.export import plan_command

    help = "say how much memory and time a model takes, on one device or many, without running it"
    parser = _command(commands, "plan", help, plan_command.EXAMPLES)
    plan_command.add_arguments(parser)
    parser.set_defaults(run=_later("plan_command"))


if __name__ == "__main__":
    sys.exit(main())
