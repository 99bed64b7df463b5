"""Ids to text as transformers does it, on top of what the `tokenizers` library does."""

from __future__ import annotations

import json
import re
from typing import Any

from keras_transformer.text.hugging_face.json import added_tokens

# What Whisper's tokenizer spells moments with; its text leaves them out.
_TIMESTAMP = re.compile(r"<\|\d+\.\d+\|>")
# Spaces that decoding takes away where the files ask for it, in this order.
_CLEANING = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'")),
    *((f" {ending}", ending) for ending in ("n't", "'m", "'s", "'ve", "'re")),
)


class Decoding:
    """A function of a list of ids, and whether special tokens are left out, that gives the text.

    Args:
        content: dict. That of the `tokenizer.json`.
        tokenizer: the library's tokenizer.
        clean_up_spaces: bool. Whether the spaces before punctuation are taken away.

    Attributes:
        byte_ids: set of the ids of bytes that make characters together.
        clean_up_spaces: see above.
    """

    def __init__(self, content: dict[str, Any], tokenizer: Any, clean_up_spaces: bool) -> None:
        self.clean_up_spaces = clean_up_spaces
        self._tokenizer = tokenizer
        decoder, suffix = content.get("decoder") or {}, content["model"].get("end_of_word_suffix")
        # The decoder for bytes leaves the ends of words standing, in CLIP's vocabulary.
        self._word_end = suffix if suffix and decoder.get("type") == "ByteLevel" else None
        names = [f"<0x{value:02X}>" for value in range(256)] if "ByteFallback" in json.dumps(decoder) else []
        self.byte_ids = {tokenizer.token_to_id(token) for token in names} - {None}
        self._prompt_id = tokenizer.token_to_id("<|startofprev|>")
        self._has_moments = any(_TIMESTAMP.fullmatch(each["content"]) for each in added_tokens(content))

    def __call__(self, ids: Any, skip_special_tokens: bool):
        if skip_special_tokens and ids and ids[0] == self._prompt_id:
            # Whisper's prompt is no part of what was heard.
            start = self._tokenizer.token_to_id("<|startoftranscript|>")
            ids = ids[ids.index(start) :] if start in ids else []
        text = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        if self._word_end is not None:
            text = text.replace(self._word_end, " ").strip()
        if self.clean_up_spaces:
            for spaced, closed in _CLEANING:
                text = text.replace(spaced, closed)
        return _TIMESTAMP.sub("", text) if self._has_moments else text
