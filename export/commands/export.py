"""The command `export`: a model as a bundle, every file in it proven."""

from keras_transformer.export.commands import quantize_arguments
from keras_transformer.export.commands.words import say
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import FORMATS, check_formats

EXAMPLES = [
    "model.keras --out bundle",
    "model.keras --out bundle --formats tflite onnx --tolerance 1e-6",
    "model.keras --out bundle --quantize int8 --evaluate test.npz --max-loss 0.005",
    "CHECKPOINT --out bundle",
]


def add_arguments(parser):
    """Adds the options of `keras-transformer export`."""
    help = "a .keras file of model.save, or the folder of a checkpoint of Hugging Face"
    parser.add_argument("model", metavar="MODEL", help=help)
    help = "directory of the bundle; an old bundle is replaced"
    parser.add_argument("--out", required=True, metavar="DIR", help=help)
    parser.add_argument("--formats", nargs="+", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: all)")
    parser.add_argument("--tolerance", type=float, help="largest difference, as a share of the scale (default: 1e-5)")
    help = "sizes such as batch=1,length=128 for which TFLite has a signature of fixed shapes; repeatable"
    parser.add_argument("--static", action="append", metavar="SIZES", help=help)
    quantize_arguments.add_arguments(parser)


def run(arguments):
    """Checks everything that can be checked before TensorFlow starts, then exports; returns the exit status."""
    from keras_transformer.export.bundle.writing import check_target
    from keras_transformer.export.commands.model_files import check_model, load_model
    from keras_transformer.export.spec.export_spec import DEFAULT_TOLERANCE

    words = arguments.formats if arguments.formats is not None else list(FORMATS)
    formats = check_formats([name for word in words for name in word.split(",") if name])
    path = check_model(arguments.model)
    check_target(arguments.out)
    options = {**quantize_arguments.read_arguments(arguments), "static": _sizes(arguments.static)}
    model = load_model(path)
    from keras_transformer.export.api import export

    tolerance = DEFAULT_TOLERANCE if arguments.tolerance is None else arguments.tolerance
    print(export(model, arguments.out, formats, tolerance=tolerance, progress=say, **options))
    return 0


def _sizes(texts):
    """`batch=1,length=128` as a dict, for each text; None without any."""
    found = []
    for text in texts or ():
        try:
            found.append({name.strip(): int(size) for name, size in (part.split("=") for part in text.split(","))})
        except ValueError:
            raise ExportError(f"--static takes sizes such as batch=1,length=128, not '{text}'") from None
    return found or None
