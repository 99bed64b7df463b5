"""What the kinds that run on the `tokenizers` library share."""

from __future__ import annotations

from typing import Any


def library() -> Any:
    """The `tokenizers` package, imported on first use.

    Raises:
        ImportError: it is not installed; says how to.
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


def encode_batch(tokenizer: Any, texts: Any, offsets: Any) -> tuple[list, Any]:
    """Ids of each text, and with `offsets` the characters of each token, without any special token added."""
    if not offsets:
        # One text is quicker without the threads that a batch starts.
        if len(texts) == 1:
            return [tokenizer.encode(texts[0], add_special_tokens=False).ids], None
        return [each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)], None
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [each.ids for each in encodings], [each.offsets for each in encodings]
