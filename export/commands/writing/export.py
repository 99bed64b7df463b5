"""The command `export`: writes a model as a bundle and verifies every file in it."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from keras_transformer.export.commands import quantize_arguments
from keras_transformer.export.commands.console import add_json, show_report
from keras_transformer.export.commands.user_modules import add_import_option
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import DEFAULT_FORMATS, FORMATS, check_formats
from keras_transformer.export.targets import TARGETS, get_target
from keras_transformer.export.targets.fixed_shapes import target_formats

if TYPE_CHECKING:
    from keras_transformer.export.options import ExportOptions

EXAMPLES = [
    "model.keras --out bundle",
    "model.keras --out bundle --formats tflite onnx --tolerance 1e-6",
    "model.keras --out bundle --quantize int8 --evaluate test.npz --max-loss 0.005",
    "model.keras --out bundles --quantize float32,int8,weight_int4",
    "model.keras --out bundle --quantize learned --weights weights.safetensors",
    "model.keras --out phone --target litert-gpu --static batch=1,length=128",
    "model.keras --out bundle --quantize int8 --dry-run",
    "model.keras --out bundle --config export.toml",
    "CHECKPOINT --out bundle",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer export`."""
    help = "a .keras file of model.save, or the folder of a Hugging Face checkpoint"
    parser.add_argument("model", metavar="MODEL", help=help)
    add_import_option(parser)
    help = "directory of the bundle; an old bundle is replaced"
    parser.add_argument("--out", required=True, metavar="DIR", help=help)
    parser.add_argument(
        "--formats", nargs="+", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: {', '.join(DEFAULT_FORMATS)})"
    )
    parser.add_argument(
        "--tolerance", type=float, help="largest difference, as a share of the scale (default: by rounding)"
    )
    help = "a TOML file with options of ExportOptions, such as metadata; those of the command line stand in their place"
    parser.add_argument("--config", metavar="FILE", help=help)
    help = "sizes such as batch=1,length=128, for a TFLite signature of fixed shapes; repeatable"
    parser.add_argument("--static", action="append", metavar="SIZES", help=help)
    help = f"write one file for an accelerator, and run it there or on its simulator: {', '.join(TARGETS)}"
    parser.add_argument("--target", metavar="NAME", help=help)
    help = "say in seconds what would be written and what refused, and write nothing"
    parser.add_argument("--dry-run", action="store_true", help=help)
    add_json(parser)
    quantize_arguments.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Checks the arguments before TensorFlow starts, then exports; returns the exit status."""
    from keras_transformer.export.bundle.writing import check_target
    from keras_transformer.export.commands.model_files import check_model, load_model

    given = arguments.formats if arguments.formats is not None else list(DEFAULT_FORMATS)
    formats = check_formats([name for each in given for name in each.split(",") if name])
    quantize, options = quantize_arguments.read_quantize(arguments), _options(arguments)
    if options.target is not None:
        formats = target_formats(get_target(options.target), formats)
    path = check_model(arguments.model, arguments.imports)
    check_target(arguments.out)
    model = load_model(path, imports=arguments.imports)
    from keras_transformer.export.api import export, preview_export

    if arguments.dry_run:
        found = preview_export(model, arguments.out, formats, quantize=quantize, options=options)
        show_report(found, arguments.json)
        return 0 if found.verdict().is_good else 1
    report = export(model, arguments.out, formats, quantize=quantize, options=options)
    show_report(report, arguments.json)
    return 0


def _options(arguments: argparse.Namespace) -> ExportOptions:
    """The options of `--config`, and in their place what the command line says."""
    from keras_transformer.export.options import ExportOptions

    options = ExportOptions() if arguments.config is None else ExportOptions.from_file(arguments.config)
    given = {
        "tolerance": arguments.tolerance,
        "static": _sizes(arguments.static),
        "target": arguments.target,
        "evaluation": quantize_arguments.read_evaluation(arguments),
    }
    return dataclasses.replace(options, **{name: value for name, value in given.items() if value is not None})


def _sizes(texts: list[str] | None) -> list[dict[str, int]] | None:
    """A dict for each text such as `batch=1,length=128`; None without any."""
    found = []
    for text in texts or ():
        try:
            found.append({name.strip(): int(size) for name, size in (part.split("=") for part in text.split(","))})
        except ValueError:
            raise ExportError(f"--static takes sizes such as batch=1,length=128, not '{text}'") from None
    return found or None
