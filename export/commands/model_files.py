"""The models of commands: `.keras` files and Hugging Face checkpoints."""

from __future__ import annotations

import pathlib
import re
import sys
import zipfile
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.commands.console import print_status
from keras_transformer.export.commands.importing import quick_imports
from keras_transformer.export.commands.user_modules import check_imports, custom_objects
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.libraries import require_keras
from keras_transformer.utils.choice import nearest_path
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    import keras


# Parts of what Keras says where a class is missing, and where a file contains Python; and how its own advice begins.
_REMEDIES = {"Could not locate": Remedy.IMPORT, "`safe_mode=False`": Remedy.LAMBDA}
# The first bytes of a zip archive, as a `.keras` file is one; and the name of a repository.
_ZIP, _REPOSITORY = b"PK\x03\x04", re.compile(r"[\w.-]+/[\w.-]+")
_ADVICE = re.compile(r"\. (Make sure|If you trust).*", re.DOTALL)


def check_model(path: Path, imports: Sequence[str] = ()) -> pathlib.Path:
    """Checks, from its first bytes, that a path is a `.keras` (or `.h5`) file or the folder of a checkpoint.

    Args:
        path: str or path.
        imports: Python files and modules that define its classes; files must exist.

    Returns:
        `pathlib.Path`.

    Raises:
        InvalidModelError: it is none of these, or does not exist.
    """
    check_imports(imports)
    path = pathlib.Path(path)
    if not path.exists():
        raise InvalidModelError(f"no such file: '{path}'{nearest_path(path) or _of_repository(path)}")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InvalidModelError(
                f"'{path}' is a directory, but no Hugging Face checkpoint: it contains no config.json"
            )
        return path
    with open(path, "rb") as file:
        start = file.read(8)
    if start == b"\x89HDF\r\n\x1a\n" and path.suffix in (".h5", ".hdf5"):
        return path
    if start.startswith(_ZIP) and not zipfile.is_zipfile(path):
        raise InvalidModelError(_damaged(path, "its end is missing"))
    if not zipfile.is_zipfile(path) or "config.json" not in zipfile.ZipFile(path).namelist():
        raise InvalidModelError(f"'{path}' is not a Keras file: save one with model.save('model.keras')")
    if path.suffix != ".keras":
        raise InvalidModelError(f"'{path}' must be named .keras to be loaded")
    return path


def load_model(path: Path, dtype: str | None = None, imports: Sequence[str] = ()) -> keras.Model:
    """Loads the model of a file or a folder on the TensorFlow backend, without the output of converters and drivers.

    Args:
        path: path that `check_model` accepts, or the name of a Hugging Face repository.
        dtype: dtype of the weights of a checkpoint, or None for float32.
        imports: Python files and modules that define classes and functions of a file.

    Returns:
        `keras.Model`.

    Raises:
        InvalidModelError: the file cannot be loaded, or a module cannot be imported.
        CheckpointError: the checkpoint cannot be loaded.
    """
    from keras_transformer.utils.captured_stderr import captured

    print(f"loading {path}", file=sys.stderr, flush=True)
    with captured():
        with quick_imports():  # On TensorFlow: saved models load on every backend.
            require_keras("a Keras model")
        return _load_file(path, imports) if pathlib.Path(path).is_file() else _load_checkpoint(path, dtype)


def _load_file(path: Path, imports: Sequence[str]) -> keras.Model:
    import keras

    objects = custom_objects(imports)
    try:
        model: keras.Model = keras.models.load_model(path, custom_objects=objects, compile=False)
        return model
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InvalidModelError(_damaged(path, one_line(error))) from error
    except library_exceptions(ImportError) as error:
        remedy = next((remedy for words, remedy in _REMEDIES.items() if words in str(error)), None)
        reason = one_line(error) if remedy is None else _ADVICE.sub("", one_line(error))
        raise InvalidModelError(f"'{path}' cannot be loaded: {reason}", remedy) from error


def _damaged(path: Path, reason: str) -> str:
    """The message of a Keras file that was not copied or written to its end."""
    size = pathlib.Path(path).stat().st_size
    return f"'{path}' is damaged ({size:,} bytes; {reason}): copy it again, or save it again with model.save"


def is_repository(path: pathlib.Path) -> bool:
    """Whether a path that does not exist may be the name of a repository, such as `owner/name`."""
    is_file = path.suffix in (".keras", ".h5", ".txt", ".gguf")
    return bool(_REPOSITORY.fullmatch(str(path))) and not is_file and not path.parent.exists()


def _of_repository(path: pathlib.Path) -> str:
    """What to do where a path is the name of a repository of Hugging Face, such as `owner/name`; or ""."""
    if not is_repository(path):
        return ""
    file = f"{path.name}.keras"
    return f"; if it is a repository of Hugging Face: keras-transformer convert {path} {file}, and then export {file}"


def _load_checkpoint(path: Path, dtype: str | None) -> keras.Model:
    from keras_transformer.checkpoints import from_huggingface
    from keras_transformer.export.spec.names import input_names

    model: keras.Model = from_huggingface(path, dtype=dtype, verbose=0)
    if "token_ids" in input_names(model) and getattr(model, "tokenizer", None) is None:
        print_status(f"'{path}' has no tokenizer that can be read: what is made of it takes token ids, and no texts")
    return model
