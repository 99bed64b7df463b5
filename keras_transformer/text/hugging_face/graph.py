"""Conversion of BERT tokenizers to `WordPiece`, which can run in a TensorFlow graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_transformer.text.errors import SpecialTokenError
from keras_transformer.text.hugging_face.json import added_tokens
from keras_transformer.text.tokenizers.tokenizer_files import MAX_CHARACTERS_PER_WORD, PREFIX
from keras_transformer.text.tokenizers.wordpiece import WordPiece
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.text.hugging_face.tokenizer import HuggingFaceTokenizer


def as_wordpiece(content: JsonObject, tokenizer: HuggingFaceTokenizer) -> WordPiece | None:
    """Returns a `WordPiece` with the same ids, or None if the tokenizer is not a BERT tokenizer.

    Args:
        content: dict. The content of the `tokenizer.json`.
        tokenizer: the `HuggingFaceTokenizer` of this content.
    """
    model = content["model"]
    if not _is_bert(content) or (tokenizer.padding_side, tokenizer.truncation_side) != ("right", "right"):
        return None
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    ids = model["vocab"]
    contiguous = [ids[token] for token in tokens] == list(range(len(tokens)))
    special = all(each["special"] and ids.get(each["content"]) == each["id"] for each in added_tokens(content))
    if not contiguous or not special or tokenizer.special_tokens.get("unknown") != model.get("unk_token"):
        return None
    try:
        wordpiece = WordPiece(tokens, content["normalizer"]["lowercase"], tokenizer.special_tokens)
        template = ((wordpiece.opening_id(),), (wordpiece.closing_id(),))
    except SpecialTokenError:
        return None
    return wordpiece if (tokenizer._template.before, tokenizer._template.after) == template else None


def _is_bert(content: JsonObject) -> bool:
    """Whether normalization and splitting are those of the published code of BERT."""
    model, normalizer = content["model"], content.get("normalizer") or {}
    wanted = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    return (
        model.get("continuing_subword_prefix") == PREFIX
        and model.get("max_input_chars_per_word") == MAX_CHARACTERS_PER_WORD
        and (content.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
        and {key: normalizer.get(key) for key in wanted} == wanted
        and normalizer.get("strip_accents") in (None, normalizer.get("lowercase"))
    )
