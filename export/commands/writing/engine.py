"""The command `engine`: writes a model for onnxruntime-genai, LiteRT-LM, MediaPipe Tasks or transformers.js."""

from __future__ import annotations

import argparse
import functools
import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformer.export.commands.user_modules import add_import_option
from keras_transformer.export.engines.mediapipe.tasks import TASKS as MEDIAPIPE
from keras_transformer.export.engines.transformers_js.tasks import IMAGE, TRANSCRIBER
from keras_transformer.export.engines.transformers_js.tasks import TASKS as PIPELINES
from keras_transformer.export.errors import ExportError
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import keras

    from keras_transformer.audio import LogMel
    from keras_transformer.export.data.report import Report
    from keras_transformer.text import Tokenizer
    from keras_transformer.vision import ImageProcessor

EXAMPLES = [
    "model.keras --for genai --out genai --quantize weight_int4",
    "model.keras --for litertlm --out model.litertlm",
    "model.keras --for mediapipe --task image_classifier --class-names cat,dog --out model.tflite",
    "CHECKPOINT --for transformers_js --task fill-mask --out folder --node-modules node_modules",
    "model.keras --for transformers_js --task text-generation --out folder --quantize weight_int4",
]
_TASKS: dict[str, tuple[str, ...]] = {"mediapipe": tuple(MEDIAPIPE), "transformers_js": tuple(PIPELINES)}
_ENGINES = ("genai", "litertlm", *_TASKS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer engine`."""
    help = "a model: a .keras file, or a Hugging Face checkpoint; for genai and litertlm a language model"
    parser.add_argument("model", metavar="MODEL", help=help)
    add_import_option(parser)
    help = (
        "genai: onnxruntime-genai's directory; litertlm: LiteRT-LM's file; mediapipe: a file for MediaPipe Tasks;"
        " transformers_js: a folder for transformers.js"
    )
    parser.add_argument("--for", dest="engine", required=True, choices=_ENGINES, help=help)
    parser.add_argument("--out", required=True, metavar="PATH", help="the directory, or the file")
    parser.add_argument("--quantize", metavar="MODE", help="fp16, int8, weight_int8 or weight_int4 (default: float32)")
    help = "largest number of tokens, prompt included; mediapipe: the number of tokens of a text"
    parser.add_argument("--max-length", type=int, metavar="N", help=help)
    parser.add_argument("--no-tokenizer", action="store_true", help="genai: without the files of the tokenizer")
    help = "mediapipe and transformers_js: the task that runs the model"
    parser.add_argument("--task", choices=[*MEDIAPIPE, *PIPELINES], help=help)
    help = "mediapipe and transformers_js: the classes, in the order of the scores"
    parser.add_argument("--class-names", metavar="NAME,...", help=help)
    help = "transformers_js: npm packages with @huggingface/transformers, to run and compare what was written"
    parser.add_argument("--node-modules", metavar="PATH", help=help)


def run(arguments: argparse.Namespace) -> int:
    """Writes the model; returns the exit status."""
    from keras_transformer.export.commands.model_files import check_model, load_model
    from keras_transformer.export.quantization.precisions import parsed

    _check(arguments)
    quantization = parsed(arguments.quantize)
    path = check_model(arguments.model, arguments.imports)
    options = {"max_length": arguments.max_length, "quantize": quantization}
    loaded = functools.partial(load_model, path, imports=arguments.imports)
    if arguments.engine == "genai":
        from keras_transformer.export.engines.genai.model_directory import write_genai

        print(write_genai(loaded(), arguments.out, tokenizer=not arguments.no_tokenizer, **options))
    elif arguments.engine == "litertlm":
        from keras_transformer.export.engines.litertlm.model_file import write_litertlm

        print(write_litertlm(loaded(), arguments.out, **options))
    else:
        own = {"task": arguments.task, "tokenizer": _tokenizer(path), "metadata": _metadata(arguments)}
        print(_write_for_app(arguments, path, loaded(), {**own, **options}))
    return 0


def _write_for_app(
    arguments: argparse.Namespace, path: pathlib.Path, model: keras.Model, options: dict[str, Any]
) -> Report:
    if arguments.engine == "mediapipe":
        from keras_transformer.export.engines.mediapipe.model_file import write_mediapipe

        return write_mediapipe(model, arguments.out, **options)
    from keras_transformer.export.engines.transformers_js.model_folder import write_transformers_js

    kept = {name: options[name] for name in ("task", "tokenizer", "metadata", "quantize")}
    processor = _processor(path, PIPELINES[arguments.task].kind)
    return write_transformers_js(model, arguments.out, processor=processor, node_modules=arguments.node_modules, **kept)


def _tokenizer(path: pathlib.Path) -> Tokenizer | None:
    """The tokenizer of a checkpoint, or None."""
    from keras_transformer.text import from_huggingface

    has_tokenizer = path.is_dir() and any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    return from_huggingface(path) if has_tokenizer else None


def _processor(path: pathlib.Path, kind: str) -> ImageProcessor | LogMel | None:
    """The image processor or the feature extractor of a checkpoint, for a task that needs one; or None."""
    if not (path / "preprocessor_config.json").is_file():
        return None
    if kind == IMAGE:
        from keras_transformer.vision import ImageProcessor

        return ImageProcessor.from_huggingface(path)
    if kind == TRANSCRIBER:
        from keras_transformer.audio import LogMel

        return LogMel.from_huggingface(path)
    return None


def _check(arguments: argparse.Namespace) -> None:
    engine, tasks = arguments.engine, _TASKS.get(arguments.engine)
    if arguments.no_tokenizer and engine != "genai":
        raise ExportError("--no-tokenizer is for genai: the others always contain their tokenizer")
    if tasks is None and (arguments.task or arguments.class_names):
        raise ExportError("--task and --class-names are for mediapipe and transformers_js")
    if tasks is not None and arguments.task not in tasks:
        raise ExportError(f"--for {engine} needs --task: {', '.join(tasks)}")
    if engine != "transformers_js" and arguments.node_modules:
        raise ExportError("--node-modules is for transformers_js")
    if engine == "transformers_js" and arguments.max_length:
        raise ExportError("transformers_js takes no --max-length")


def _metadata(arguments: argparse.Namespace) -> JsonObject:
    return {"class_names": arguments.class_names.split(",")} if arguments.class_names else {}
