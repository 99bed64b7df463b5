"""The inputs of the command `run`: texts, images, and arrays from files, by the names of a signature."""

from __future__ import annotations

import json
import pathlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.bundle.metadata import INPUTS
from keras_transformer.export.commands.console import print_status
from keras_transformer.export.commands.quantize_arguments import LABELS
from keras_transformer.export.errors import ExportError, InputError, MissingLibraryError, UnknownInputError
from keras_transformer.export.runtime.inputs import own_name
from keras_transformer.utils.choice import nearest_path
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import ArrayLike, JsonObject

if TYPE_CHECKING:
    from PIL.Image import Image

    from keras_transformer.export.data.array_spec import ArraySpec

_ARRAYS = (".npz", ".npy", ".json")
_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
KINDS = f"{', '.join(_ARRAYS)}, or an image ({', '.join(each[1:] for each in _IMAGES)})"


def split_files(words: Iterable[str]) -> list[tuple[str | None, str]]:
    """The pairs of an input's name, or None, and a file, from words such as `x.npy` and `image=photo.jpg`.

    Raises:
        ExportError: a file does not exist, or is of a kind that is not read.
    """
    pairs: list[tuple[str | None, str]] = []
    for word in words:
        name, equals, path = word.partition("=")
        pair = (name, path) if equals and not pathlib.Path(word).exists() else (None, word)
        if pathlib.Path(pair[1]).suffix.lower() not in (*_ARRAYS, *_IMAGES):
            raise ExportError(f"cannot read '{pair[1]}': the name must end in {KINDS}")
        if not pathlib.Path(pair[1]).is_file():
            raise ExportError(f"no such file: '{pair[1]}'{nearest_path(pair[1])}")
        pairs.append(pair)
    return pairs


def read_inputs(
    pairs: Iterable[tuple[str | None, str]], inputs: Sequence[ArraySpec], metadata: JsonObject
) -> dict[str, ArrayLike]:
    """Dict of input name to array.

    Args:
        pairs: as `split_files` returns them.
        inputs: tuple of `ArraySpec`.
        metadata: that of the bundle, which says the range of an image's values.

    Raises:
        ExportError: a file cannot be read, or one without a name is not that of the only input.
    """
    found: dict[str, ArrayLike] = {}
    names = [spec.name for spec in inputs]
    for name, path in pairs:
        spec = None if name is None else _named(name, inputs)
        if pathlib.Path(path).suffix.lower() in _IMAGES:
            spec = spec or _only(path, inputs)
            found[spec.name] = read_image(path, spec, metadata)
            continue
        loaded = _load(path)
        if isinstance(loaded, Mapping) and spec is None:
            # The file of an evaluation has labels too.
            found |= {key: each for key, each in loaded.items() if key != LABELS or key in names}
        elif isinstance(loaded, Mapping):
            raise ExportError(f"'{path}' names its arrays itself: pass it without '{name}='")
        else:
            found[(spec or _only(path, inputs)).name] = loaded
    return found


def read_image(path: str, spec: ArraySpec, metadata: JsonObject) -> np.ndarray:
    """An image as the only row of an input.

    It gets the size of the input, where that is fixed, and values from 0 to 255; or what the metadata says of the input:
    their range, and the mean and the standard deviation of each channel.

    Args:
        path: str.
        spec: `ArraySpec` of an input `(batch, height, width, channels)`.
        metadata: that of the bundle.

    Returns:
        Array `(1, height, width, channels)`, float32 or of the dtype of the input.

    Raises:
        InputError: the input takes no images.
        ExportError: the file is no image, or Pillow is not installed.
    """
    if len(spec.shape) != 4 or spec.shape[-1] not in (1, 3):
        raise InputError(spec.name, spec.describe(), f"the image '{path}'")
    height, width, channels = spec.shape[1:]
    image = _opened(path, "L" if channels == 1 else "RGB")
    before = f"{image.width} x {image.height}"
    image = image.resize((width or image.width, height or image.height))
    values = _scaled(np.asarray(image, "float32"), metadata.get(INPUTS, {}).get(spec.name, {}))
    print_status(f"{path}: {before} pixels as {image.width} x {image.height}, {values.min():g} to {values.max():g}")
    dtype = spec.dtype if spec.dtype in ("uint8", "int32", "int64") else "float32"
    return values.reshape(1, image.height, image.width, channels).astype(dtype)


def _opened(path: str, mode: str) -> Image:
    """The image as its EXIF data turn it. Read without `keras_transformer.vision`, which needs Keras."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise MissingLibraryError("an image", "pillow") from error
    try:
        with PIL.Image.open(path) as image:
            return PIL.ImageOps.exif_transpose(image).convert(mode)
    except (OSError, SyntaxError, ValueError, EOFError, PIL.Image.DecompressionBombError) as error:
        raise ExportError(f"'{path}' is not an image that Pillow can read: {one_line(error)}") from error


def _scaled(values: np.ndarray, record: JsonObject) -> np.ndarray:
    if "range" in record:
        least, most = record["range"]
        values = least + values / 255.0 * (most - least)
    return (values - np.asarray(record.get("mean", 0.0))) / np.asarray(record.get("std", 1.0))


def _named(name: str, inputs: Sequence[ArraySpec]) -> ArraySpec:
    names = [spec.name for spec in inputs]
    own = own_name(name, names)
    if own not in names:
        raise UnknownInputError(name, names)
    return inputs[names.index(own)]


def _only(path: str, inputs: Sequence[ArraySpec]) -> ArraySpec:
    """The only input, to which what a file contains belongs."""
    if len(inputs) != 1:
        names = ", ".join(spec.name for spec in inputs)
        raise InputError("(unnamed)", f"a file that names {names}, or --input {inputs[0].name}={path}", "one array")
    return inputs[0]


def _load(path: str) -> ArrayLike:
    suffix = pathlib.Path(path).suffix.lower()
    try:
        if suffix == ".json":
            return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded) if suffix == ".npz" else loaded
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError) as error:
        raise ExportError(f"'{path}' is not a readable {suffix} file: {one_line(error)}") from error
