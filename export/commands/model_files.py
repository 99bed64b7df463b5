"""The models that commands work on: `.keras` files, and checkpoints of Hugging Face."""

import os
import pathlib
import sys
import zipfile

from keras_transformer.export.errors import InvalidModelError, one_line


def check_model(path):
    """Refuses, from its first bytes, a path that is neither a `.keras` (or old `.h5`) file nor a checkpoint's folder.

    Args:
        path: str or path.

    Returns:
        `pathlib.Path`.

    Raises:
        InvalidModelError: it is neither.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise InvalidModelError(f"no such file: '{path}'")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InvalidModelError(
                f"'{path}' is a directory, and no checkpoint of Hugging Face: it holds no config.json"
            )
        return path
    with open(path, "rb") as file:
        start = file.read(8)
    if start == b"\x89HDF\r\n\x1a\n" and path.suffix in (".h5", ".hdf5"):
        return path
    if not zipfile.is_zipfile(path) or "config.json" not in zipfile.ZipFile(path).namelist():
        raise InvalidModelError(f"'{path}' is not a Keras file: save one with model.save('model.keras')")
    if path.suffix != ".keras":
        raise InvalidModelError(f"'{path}' must be named .keras to be loaded")
    return path


def load_model(path, dtype=None):
    """The model of a file or a folder, on the TensorFlow backend, without what converters and drivers print.

    Args:
        path: `pathlib.Path` that `check_model` has let pass, or the name of a repository of Hugging Face.
        dtype: of the weights of a checkpoint, or None for float32.

    Returns:
        `keras.Model`.

    Raises:
        InvalidModelError: the file cannot be loaded.
        CheckpointError: the checkpoint cannot.
    """
    from keras_transformer.utils.captured_stderr import quiet

    os.environ["KERAS_BACKEND"] = "tensorflow"  # a model is the same for every backend
    print(f"loading {path}", file=sys.stderr, flush=True)
    with quiet():
        return _load_file(path) if pathlib.Path(path).is_file() else _load_checkpoint(path, dtype)


def _load_file(path):
    import keras

    from keras_transformer.utils.serialization import register_all

    register_all()
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        raise InvalidModelError(f"'{path}' cannot be loaded: {one_line(error)}") from error


def _load_checkpoint(path, dtype):
    from keras_transformer.checkpoints import from_huggingface

    return from_huggingface(path, dtype=dtype, verbose=0)
