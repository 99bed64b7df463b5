"""The tokenizer of a bundle: writing, reading, and encoding texts."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import TokenizerRecord
from keras_transformer.export.errors import InputError, InvalidBundleError, InvalidModelError, MissingLibraryError
from keras_transformer.utils.errors import library_exceptions, one_line

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

FOLDER = "tokenizer"
# Inputs of signatures that take texts as bytes.
BYTES, LENGTHS = "bytes", "lengths"
_OPTIONS = {"start": bool, "end": bool, "max_length": int}


def check_options(options: Mapping[str, object] | None) -> None:
    """Refuses options that `Tokenizer.encode` does not have.

    Raises:
        InvalidModelError: names the option.
    """
    for name, value in (options or {}).items():
        if name not in _OPTIONS or not isinstance(value, _OPTIONS[name]):
            raise InvalidModelError(f"tokenizer_options takes {', '.join(_OPTIONS)}. Received: {name}={value!r}")


def write_tokenizer(
    directory: pathlib.Path, tokenizer: Tokenizer, options: Mapping[str, object] | None = None
) -> TokenizerRecord:
    """Adds a tokenizer to a bundle that is being written.

    Args:
        directory: `pathlib.Path` of the bundle.
        tokenizer: a tokenizer of `keras_transformer.text`.
        options: dict of how texts are encoded: "start", "end", "max_length".

    Returns:
        Its `TokenizerRecord`, for the manifest.
    """
    tokenizer.save(directory / FOLDER)
    return TokenizerRecord(FOLDER, tokenizer.fingerprint, dict(options or {}))


def read_tokenizer(directory: pathlib.Path, manifest: Manifest) -> Tokenizer | None:
    """The tokenizer of a bundle, or None.

    Raises:
        InvalidBundleError: it cannot be read, or is not the one that the bundle was exported with.
        MissingLibraryError: a library that it needs is not installed.
    """
    record = manifest.tokenizer
    if record is None:
        return None
    from keras_transformer.text import load_tokenizer

    try:
        check_options(record.options)
        tokenizer = load_tokenizer(pathlib.Path(directory, record.path))
    except ImportError as error:
        name = (getattr(error.__cause__, "name", None) or "").split(".")[0]
        if name not in ("tokenizers", "sentencepiece"):
            raise
        raise MissingLibraryError("the bundle's tokenizer", name) from error
    except library_exceptions() as error:
        raise InvalidBundleError(f"the bundle's tokenizer cannot be read: {one_line(error)}") from error
    if tokenizer.fingerprint != record.fingerprint:
        raise InvalidBundleError(f"'{record.path}' is not the tokenizer that the bundle was exported with")
    return tokenizer


def text_rows(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Texts as the inputs of a signature that takes their bytes.

    Args:
        texts: list of str.

    Returns:
        Dict of "bytes", uint8 `(B, N)`: the UTF-8 of each text from the start of its row; and "lengths", int32 `(B,)`.

    Example:

    >>> text_rows(["né", "a"])["bytes"].tolist()
    [[110, 195, 169], [97, 0, 0]]
    """
    content = [text.encode("utf-8") for text in texts]
    lengths = np.array([len(each) for each in content], "int32")
    rows = np.zeros((len(content), int(lengths.max(initial=1))), "uint8")  # LiteRT takes no empty arrays.
    for row, each in zip(rows, content, strict=True):
        row[: len(each)] = np.frombuffer(each, "uint8")
    return {BYTES: rows, LENGTHS: lengths}


def encode_texts(
    texts: str | Sequence[str], tokenizer: Any, options: Mapping[str, object], inputs: Sequence[ArraySpec]
) -> dict[str, np.ndarray]:
    """Texts as the input arrays of a signature.

    Args:
        texts: str or list of str.
        tokenizer: the tokenizer, or None.
        options: dict of how texts are encoded.
        inputs: tuple of `ArraySpec`.

    Returns:
        Dict of input name to array.

    Raises:
        InputError: there is no tokenizer, an element is not text, or a text has no tokens: it is empty, and the template
            adds none.
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    if tokenizer is None:
        raise InputError("(text)", ", ".join(spec.name for spec in inputs), "text; the bundle has no tokenizer")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError("(text)", "text", f"{text!r} as number {number}")
    names = [spec.name for spec in inputs]
    if names == [BYTES, LENGTHS]:
        return text_rows(texts)
    # Rows of packed documents have segments of another kind, which their positions tell.
    segments = {"return_segment_ids": True} if "segment_ids" in names and "positions" not in names else {}
    arrays = tokenizer(texts, **options, **segments)
    for number, mask in enumerate(arrays["padding_mask"]):
        if not mask.any():
            raise InputError("(text)", "text that has tokens", f"{texts[number]!r} as number {number}")
    return {name: arrays[name] for name in names if name in arrays}
