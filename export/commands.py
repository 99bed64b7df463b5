"""What the commands of the command line do. Each takes the parsed arguments and returns the exit status."""

import json
import pathlib
import sys
import zipfile

from keras_transformer.export.errors import ExportError, InputError, one_line


def export_file(arguments):
    """`keras-transformer export`: checks everything that can be checked before TensorFlow starts."""
    from keras_transformer.export.bundle import check_target
    from keras_transformer.export.formats import FORMATS, check_formats
    from keras_transformer.export.model_files import check_model, load_model
    from keras_transformer.export.quantize_arguments import read_arguments
    from keras_transformer.export.spec import DEFAULT_TOLERANCE

    words = arguments.formats if arguments.formats is not None else list(FORMATS)
    formats = check_formats([name for word in words for name in word.split(",") if name])
    path = check_model(arguments.model)
    check_target(arguments.out)
    options = {**read_arguments(arguments), "static": _sizes(arguments.static)}
    model = load_model(path)
    from keras_transformer.export.api import export

    tolerance = DEFAULT_TOLERANCE if arguments.tolerance is None else arguments.tolerance
    print(export(model, arguments.out, formats, tolerance=tolerance, progress=_progress, **options))
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


def verify(arguments):
    """`keras-transformer verify`."""
    from keras_transformer.export.verify import verify_bundle

    print(verify_bundle(arguments.bundle, arguments.backend))
    return 0


def run(arguments):
    """`keras-transformer run`."""
    from keras_transformer.export import runtime

    if arguments.output and pathlib.Path(arguments.output).suffix not in (".npz", ".json"):
        raise ExportError(f"cannot write '{arguments.output}': the name must end in .npz or .json")
    model = runtime.load(arguments.bundle, arguments.backend, arguments.signature)
    outputs = model(read_arrays(arguments.input, model.inputs))
    if arguments.output:
        _write_arrays(arguments.output, outputs)
    else:
        for name, array in outputs.items():
            print(f"{name} {array.dtype} {array.shape}\n{array}")
    return 0


def inspect(arguments):
    """`keras-transformer inspect`."""
    from keras_transformer.export.inspection import inspect_bundle

    print(inspect_bundle(arguments.bundle))
    return 0


def serving(arguments):
    """`keras-transformer serving`."""
    from keras_transformer.export.serving_arguments import read_batching

    batching = read_batching(arguments)
    if arguments.server == "triton":
        from keras_transformer.export.triton import write_triton

        options = {"name": arguments.name, "max_length": arguments.max_length, "batching": batching}
        for path in write_triton(arguments.bundle, arguments.out, version=arguments.number, **options):
            print(path)
        return 0
    from keras_transformer.export.serving import write_serving

    print(write_serving(arguments.bundle, arguments.out, arguments.number, arguments.default, batching))
    return 0


def read_arrays(path, inputs):
    """Arrays by input name from a .npz, .npy or .json file.

    Args:
        path: the file.
        inputs: tuple of `ArraySpec`; with one input, a file with a single unnamed array is taken for it.

    Returns:
        Dict of name to array (nested lists from .json).

    Raises:
        ExportError: the file cannot be read.
        InputError: an unnamed array, but several inputs.
    """
    import numpy as np

    suffix = pathlib.Path(path).suffix
    if suffix not in (".npz", ".npy", ".json"):
        raise ExportError(f"cannot read '{path}': the name must end in .npz, .npy or .json")
    try:
        if suffix == ".json":
            loaded = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        else:
            loaded = np.load(path, allow_pickle=False)
            loaded = dict(loaded) if suffix == ".npz" else loaded
    except FileNotFoundError:
        raise ExportError(f"no such file: '{path}'") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ExportError(f"'{path}' is not a readable {suffix} file: {one_line(error)}") from error
    if isinstance(loaded, dict):
        return loaded
    if len(inputs) != 1:
        raise InputError("(unnamed)", f"a file that names {', '.join(spec.name for spec in inputs)}", "one array")
    return {inputs[0].name: loaded}


def _write_arrays(path, outputs):
    import numpy as np

    path = pathlib.Path(path)
    if path.suffix == ".npz":
        np.savez(path, **outputs)
    else:
        path.write_text(json.dumps({name: array.tolist() for name, array in outputs.items()}) + "\n")


def _progress(line):
    print(line, file=sys.stderr, flush=True)
