"""Attention of a Keras model over an input, as what the page of `keras-transformer view` draws."""

from __future__ import annotations

import base64
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import ExportError
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import JsonObject, Path

if TYPE_CHECKING:
    import keras

    from keras_transformer.text import Tokenizer

_LEVELS = 255
_MOST_SCORES = 8_000_000  # A byte each, in the page.


def attention_record(model: Path, given: str, tokenizer: Tokenizer | None = None) -> JsonObject:
    """Computes the attention scores of a model.

    Args:
        model: path of a `.keras` file.
        given: a text, if there is a tokenizer; or the path of an .npy or .npz file, of which the first example is used.
        tokenizer: the tokenizer of the bundle, or None.

    Returns:
        dict: "queries" and "keys", the labels, where they are known; "grid" and "image" for images; and "maps", a list of
        dicts with "layer", "shape" `(N, T, S)` and "scores": bytes as base64, of which 255 is the "largest" score.

    Raises:
        ExportError: the file cannot be read, the input does not fit the model, or the model has no attention scores.
    """
    network = _load(model)
    names = [each.name for each in network.inputs]
    arrays = _arrays(given, names, tokenizer)
    maps = _scores(network, arrays)
    first = next(iter(maps.values()))
    record: JsonObject = {"maps": [_map(layer, scores) for layer, scores in maps.items()]}
    if tokenizer is not None and "token_ids" in arrays:
        record["tokens"] = [tokenizer.decode([int(each)]) or "·" for each in np.asarray(arrays["token_ids"])[0]]
    image = np.asarray(next(iter(arrays.values())))[0]
    if len(arrays) == 1 and image.ndim == 3 and image.shape[-1] in (1, 3):
        grid = patch_grid(first.shape[-1], image.shape[0] / image.shape[1])
        record |= {"grid": grid, "image": _image(image)} if grid else {}
    return record


def _load(path: Path) -> keras.Model:
    from keras_transformer import load_model
    from keras_transformer.utils.captured_stderr import captured

    if not pathlib.Path(path).is_file():
        raise ExportError(f"no such file: '{path}'")
    try:
        with captured():
            model = load_model(path)
    except library_exceptions(ImportError) as error:
        raise ExportError(f"'{path}' cannot be loaded: {one_line(error)}") from error
    return getattr(model, "backbone", model)


def _arrays(given: str, names: Sequence[str], tokenizer: Tokenizer | None) -> dict[str, np.ndarray]:
    """The inputs of one example, by name."""
    if given.endswith((".npy", ".npz")):
        return _from_file(given, names)
    if tokenizer is None:
        raise ExportError("the bundle has no tokenizer: --input takes the path of an .npy or .npz file")
    if unknown := set(names) - {"token_ids", "padding_mask", "segment_ids"}:
        raise ExportError(f"a text has no {', '.join(sorted(unknown))}: --input takes the path of an .npz file")
    ids = np.array([tokenizer.encode(given)], "int32")
    if not ids.size:
        raise ExportError("the text has no tokens")
    known = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool), "segment_ids": np.zeros_like(ids)}
    return {name: known[name] for name in names}


def _from_file(path: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays: dict[str, Any] = dict(loaded) if path.endswith(".npz") else dict.fromkeys(names[:1], loaded)
    except (OSError, ValueError) as error:
        raise ExportError(f"'{path}' is not a readable file of arrays: {one_line(error)}") from error
    if missing := set(names) - arrays.keys():
        raise ExportError(f"'{path}' has no {', '.join(sorted(missing))}: the model takes {', '.join(names)}")
    return {name: np.atleast_1d(arrays[name])[:1] for name in names}


def _scores(network: keras.Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    from keras_transformer.attention import attention_maps

    inputs = dict(arrays) if len(arrays) > 1 else next(iter(arrays.values()))
    try:
        maps = attention_maps(network)(inputs)
        found = {layer: np.asarray(scores, "float32")[0] for layer, scores in maps.items() if scores is not None}
    except library_exceptions() as error:
        raise ExportError(f"no attention scores: {one_line(error)}") from error
    found = {layer: scores for layer, scores in found.items() if scores.ndim == 3 and scores.size}
    if not found:
        raise ExportError("the attention layers of the model compute no scores of queries and keys")
    if sum(each.size for each in found.values()) > _MOST_SCORES:
        raise ExportError(f"the input is too long: its attention has more than {_MOST_SCORES:,} scores")
    return found


def _map(layer: str, scores: np.ndarray) -> JsonObject:
    largest = float(max(scores.max(), 1e-12))
    levels = np.rint(np.clip(scores, 0, None) / largest * _LEVELS).astype("uint8")
    return {"layer": layer, "shape": list(scores.shape), "largest": largest, "scores": _base64(levels)}


def _image(image: np.ndarray) -> JsonObject:
    """The gray or color pixels of an image of 0 .. 1 or 0 .. 255, or of any range."""
    low, high = float(image.min()), float(image.max())
    low, high = (0.0, 255.0 if high > 1 else 1.0) if low >= 0 and high <= 255 else (low, high)
    pixels = np.rint((image - low) / max(high - low, 1e-12) * 255).astype("uint8")
    return {"shape": list(image.shape), "pixels": _base64(pixels)}


def patch_grid(length: int, ratio: float) -> list[int] | None:
    """Rows and columns of patches in the ratio of an image, and the tokens before them; None if they do not fit.

    Example:

    >>> patch_grid(17, 1.0)
    [4, 4, 1]
    """
    for before in (0, 1):
        rows = round(((length - before) * ratio) ** 0.5)
        if rows and (length - before) % rows == 0:
            columns = (length - before) // rows
            if abs(rows / columns - ratio) < 1e-3 * ratio:
                return [rows, columns, before]
    return None


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
