"""Decoding as in transformers, which post-processes the text of the `tokenizers` library."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from keras_transformer.text.hugging_face.formats import library_calls
from keras_transformer.text.hugging_face.json import added_tokens
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import tokenizers

# Timestamp tokens of Whisper, which decoding removes.
_TIMESTAMP = re.compile(r"<\|\d+\.\d+\|>")
# Replacements of `clean_up_tokenization_spaces`, in this order.
_CLEANING = [(" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m")]
_CLEANING += [(" 's", "'s"), (" 've", "'ve"), (" 're", "'re")]


class Decoder:
    """Decodes a list of ids to text.

    Args:
        content: dict. The content of the `tokenizer.json`.
        tokenizer: `tokenizers.Tokenizer`.
        clean_up_spaces: bool. Whether to remove the spaces before punctuation.

    Call arguments:
        ids: list of int.
        skip_special_tokens: bool. Whether special tokens are left out.

    Returns:
        str.

    Attributes:
        byte_ids: set of the ids of byte fallback tokens.
        clean_up_spaces: as the argument.
    """

    def __init__(self, content: JsonObject, tokenizer: tokenizers.Tokenizer, clean_up_spaces: bool) -> None:
        self.clean_up_spaces = clean_up_spaces
        self._tokenizer = tokenizer
        decoder, suffix = content.get("decoder") or {}, content["model"].get("end_of_word_suffix")
        # The byte-level decoder does not remove the end-of-word suffix of CLIP.
        self._word_end = suffix if suffix and decoder.get("type") == "ByteLevel" else None
        names = [f"<0x{value:02X}>" for value in range(256)] if "ByteFallback" in json.dumps(decoder) else []
        self.byte_ids = {tokenizer.token_to_id(token) for token in names} - {None}
        self._prompt_id = tokenizer.token_to_id("<|startofprev|>")
        self._has_timestamps = any(_TIMESTAMP.fullmatch(each["content"]) for each in added_tokens(content))

    def __call__(self, ids: list[int], skip_special_tokens: bool) -> str:
        if skip_special_tokens and ids and ids[0] == self._prompt_id:
            # The prompt of Whisper is not part of the transcript.
            start = self._tokenizer.token_to_id("<|startoftranscript|>")
            ids = ids[ids.index(start) :] if start in ids else []
        with library_calls():
            text = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        if self._word_end is not None:
            text = text.replace(self._word_end, " ").strip()
        if self.clean_up_spaces:
            for spaced, closed in _CLEANING:
                text = text.replace(spaced, closed)
        return _TIMESTAMP.sub("", text) if self._has_timestamps else text
