"""Functions shared by tokenizers based on the `tokenizers` library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from keras_transformer.text.errors import TokenizerLibraryError

if TYPE_CHECKING:
    import tokenizers


def library() -> ModuleType:
    """Imports and returns the `tokenizers` package.

    Raises:
        ImportError: the package is not installed; the message has the install command.
    """
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ImportError("This tokenizer needs the tokenizers library: pip install tokenizers") from error
    return tokenizers


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of a library in Rust, whose class derives from `BaseException` and cannot be imported."""
    return type(error).__name__ == "PanicException"


@contextlib.contextmanager
def library_calls() -> Iterator[None]:
    """Context manager in which a failure of the library is a `TokenizerLibraryError`.

    The library raises plain `Exception`s, and panics.
    """
    try:
        yield
    except BaseException as error:  # The base of panics; the library has no class of its own for what it raises.
        if type(error) is not Exception and not is_panic(error):
            raise
        raise TokenizerLibraryError(f"The tokenizers library failed: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The message of an error of the library, which may have several lines, in one; without a message its class."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def encode_batch(tokenizer: tokenizers.Tokenizer, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
    """Returns the ids of each text and, with `offsets`, the offsets of each token, without adding special tokens."""
    with library_calls():
        if not offsets:
            # For one text this is faster, because a batch starts threads.
            if len(texts) == 1:
                return [tokenizer.encode(texts[0], add_special_tokens=False).ids], []
            return [each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)], []
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [each.ids for each in encodings], [each.offsets for each in encodings]
