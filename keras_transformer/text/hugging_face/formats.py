"""Functions shared by tokenizers based on the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def library() -> Any:
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


def encode_batch(tokenizer: Any, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
    """Returns the ids of each text and, with `offsets`, the offsets of each token, without adding special tokens."""
    if not offsets:
        # For one text this is faster, because a batch starts threads.
        if len(texts) == 1:
            return [tokenizer.encode(texts[0], add_special_tokens=False).ids], []
        return [each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)], []
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [each.ids for each in encodings], [each.offsets for each in encodings]
