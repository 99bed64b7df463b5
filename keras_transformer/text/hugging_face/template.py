"""The template of a `tokenizer.json`: the special tokens around a text."""

from __future__ import annotations

from typing import Any

from keras_transformer.text.errors import InvalidTokenizerError

# Every vocabulary has a token for at least one of these texts.
_PROBES = ("a", "0", "the", "\u4e00", ".")


def template_tokens(tokenizer: Any, processor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that the template adds before and after a single text.

    Args:
        tokenizer: `tokenizers.Tokenizer` without a post-processor.
        processor: its post-processor.

    Raises:
        InvalidTokenizerError: the template does not contain the text exactly once.
    """
    for probe in _PROBES:
        encoding = tokenizer.encode(probe, add_special_tokens=False)
        if not encoding.ids:
            continue
        processed = processor.process(encoding, None, True)
        inside = [index for index, number in enumerate(processed.sequence_ids) if number == 0]
        if len(inside) == len(encoding.ids) and inside[-1] - inside[0] + 1 == len(inside):
            return tuple(processed.ids[: inside[0]]), tuple(processed.ids[inside[-1] + 1 :])
    raise InvalidTokenizerError("The template of this tokenizer.json does not contain the text exactly once.")
