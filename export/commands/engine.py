"""The command `engine`: writes a model for onnxruntime-genai, LiteRT-LM or MediaPipe Tasks."""

import argparse
from typing import Any

from keras_transformer.export.engines.mediapipe.tasks import TASKS
from keras_transformer.export.errors import ExportError

EXAMPLES = [
    "model.keras --for genai --out genai --quantize weight_int4",
    "model.keras --for litertlm --out model.litertlm",
    "model.keras --for mediapipe --task image_classifier --class-names cat,dog --out model.tflite",
]
_ENGINES = ("genai", "litertlm", "mediapipe")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer engine`."""
    help = "a model: a .keras file, or a Hugging Face checkpoint; for genai and litertlm a language model"
    parser.add_argument("model", metavar="MODEL", help=help)
    help = "genai: onnxruntime-genai's directory; litertlm: LiteRT-LM's file; mediapipe: a file for MediaPipe Tasks"
    parser.add_argument("--for", dest="engine", required=True, choices=_ENGINES, help=help)
    parser.add_argument("--out", required=True, metavar="PATH", help="the directory, or the file")
    parser.add_argument("--quantize", metavar="MODE", help="fp16, int8, weight_int8 or weight_int4 (default: float32)")
    help = "largest number of tokens, prompt included; mediapipe: the number of tokens of a text"
    parser.add_argument("--max-length", type=int, metavar="N", help=help)
    parser.add_argument("--no-tokenizer", action="store_true", help="genai: without the files of the tokenizer")
    parser.add_argument("--task", choices=tuple(TASKS), help="mediapipe: the task that runs the file")
    parser.add_argument("--class-names", metavar="NAME,...", help="mediapipe: the classes, in the order of the scores")


def run(arguments: argparse.Namespace) -> int:
    """Writes the model; returns the exit status."""
    from keras_transformer.export.commands.model_files import check_model, load_model
    from keras_transformer.export.quantization.options import Quantization

    _check(arguments)
    quantization = Quantization.of(arguments.quantize)
    path = check_model(arguments.model)
    model = load_model(path)
    options = {"max_length": arguments.max_length, "quantize": quantization}
    if arguments.engine == "genai":
        from keras_transformer.export.engines.genai.model_directory import write_genai

        print(write_genai(model, arguments.out, tokenizer=not arguments.no_tokenizer, **options))
    elif arguments.engine == "litertlm":
        from keras_transformer.export.engines.litertlm.model_file import write_litertlm

        print(write_litertlm(model, arguments.out, **options))
    else:
        from keras_transformer.export.engines.mediapipe.model_file import write_mediapipe

        print(write_mediapipe(model, arguments.out, arguments.task, metadata=_metadata(arguments), **options))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.no_tokenizer and arguments.engine != "genai":
        raise ExportError("--no-tokenizer is for genai: the other files always contain their tokenizer")
    if arguments.engine == "mediapipe" and arguments.task is None:
        raise ExportError(f"--for mediapipe needs --task: {', '.join(TASKS)}")
    if arguments.engine != "mediapipe" and (arguments.task or arguments.class_names):
        raise ExportError("--task and --class-names are for mediapipe")


def _metadata(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"class_names": arguments.class_names.split(",")} if arguments.class_names else {}
