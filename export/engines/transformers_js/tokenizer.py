"""The files of the tokenizer: `tokenizer.json` and `tokenizer_config.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_transformer.export.engines import hugging_face_tokenizer as byte_level
from keras_transformer.export.engines.transformers_js.tasks import DECODER, ENGINE, TRANSCRIBER, Task
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.generation.prompts import frame_of
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import keras

    from keras_transformer.text import Tokenizer

_ROLES = {"pad": "pad_token", "unknown": "unk_token", "mask": "mask_token"}
_MATCHING = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
_KINDS = ("wordpiece", "hugging_face", *byte_level.KINDS)


def tokenizer_json(tokenizer: Any) -> JsonObject:
    """Returns the content of `tokenizer.json`.

    Args:
        tokenizer: a `WordPiece`, a `BytePair`, a `Bytes`, or a `HuggingFaceTokenizer`.

    Raises:
        InvalidModelError: another tokenizer, or none.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> content = tokenizer_json(WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat"]))
    >>> content["model"]["vocab"]["cat"], content["post_processor"]["special_tokens"]["[CLS]"]["ids"]
    (4, [2])
    """
    if tokenizer is None:
        raise InvalidModelError(f"{ENGINE} takes text: a text task needs a tokenizer")
    if tokenizer.kind == "hugging_face":
        return tokenizer.content
    if tokenizer.kind not in _KINDS:
        raise InvalidModelError(f"{ENGINE} gets tokenizers of the kinds {', '.join(_KINDS)}, not {tokenizer.kind}")
    if tokenizer.kind in byte_level.KINDS:
        return byte_level.tokenizer_json(tokenizer, ENGINE)
    words, special = tokenizer.vocabulary, tokenizer.special_tokens
    start, end = _frame(tokenizer)
    marks = {name: words.index(name) for name in (start, end) if name}
    added = [
        {"id": words.index(name), "content": name, **_MATCHING, "special": True}
        for name in special.values()
        if isinstance(name, str)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda each: each["id"]),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": tokenizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template(start, end, marks),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": special["unknown"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: index for index, word in enumerate(words)},
        },
    }


def tokenizer_config(tokenizer: Tokenizer, max_length: int | None) -> JsonObject:
    """Returns the content of `tokenizer_config.json`."""
    special, (start, end) = tokenizer.special_tokens, _frame(tokenizer)
    roles = {label: special[role] for role, label in _ROLES.items() if special.get(role)}
    roles |= {label: name for label, name in (("cls_token", start), ("sep_token", end)) if name}
    return {"tokenizer_class": "BertTokenizer", "model_max_length": max_length or 512, **roles}


def generation_files(
    tokenizer: Tokenizer, model: keras.Model, task: Task, max_length: int | None
) -> dict[str, JsonObject]:
    """The files of the tokenizer of a language model, which adds the tokens that `generate` adds to a text.

    Args:
        tokenizer: the tokenizer of the model.
        model: `LanguageModel`.
        task: `Task`.
        max_length: int or None: number of tokens to which the pipeline truncates a text.

    Returns:
        Dict of file name to content.

    Raises:
        InvalidModelError: see `tokenizer_json`.
    """
    content = tokenizer_json(tokenizer)
    before, after = _around_text(tokenizer, model, task)
    config = {
        "tokenizer_class": "WhisperTokenizer" if task.kind == TRANSCRIBER else "PreTrainedTokenizer",
        "model_max_length": max_length or 1_000_000,
        "clean_up_tokenization_spaces": bool(getattr(tokenizer, "clean_up_spaces", False)),
        "add_bos_token": bool(before) and task.kind == DECODER,
        **byte_level.special_tokens(tokenizer),
    }
    template = getattr(tokenizer, "chat_template", None)
    config |= {"chat_template": template} if template else {}
    content = {**content, "truncation": None, "padding": None, "post_processor": _added(tokenizer, before, after)}
    return {byte_level.FILE: content, byte_level.CONFIG: config}


def generation_tokens(tokenizer: Tokenizer, model: keras.Model, task: Task, text: str) -> list[int]:
    """The tokens of a text as `generate` of the model encodes it; see `generation_files`."""
    before, after = _around_text(tokenizer, model, task)
    return [*before, *tokenizer.encode(text), *after]


def _around_text(tokenizer: Tokenizer, model: keras.Model, task: Task) -> tuple[list[int], list[int]]:
    """The tokens before and after a text."""
    is_source = task.kind != DECODER
    if not is_source and model.start_id is not None:
        return [model.start_id], []
    frame = frame_of(tokenizer, model.start_id, is_source)
    before, after = (tokenizer.encode("", **{side: True}) if frame.get(side) else [] for side in ("start", "end"))
    return before, after


def _added(tokenizer: Tokenizer, before: list[int], after: list[int]) -> JsonObject:
    """A template of special tokens around a text."""
    names = {index: tokenizer.id_to_token(index) for index in (*before, *after)}
    special = {name: {"id": name, "ids": [index], "tokens": [name]} for index, name in names.items()}

    def marks(ids: list[int]) -> list[JsonObject]:
        return [{"SpecialToken": {"id": names[index], "type_id": 0}} for index in ids]

    single = [*marks(before), {"Sequence": {"id": "A", "type_id": 0}}, *marks(after)]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _frame(tokenizer: Tokenizer) -> tuple[str | None, str | None]:
    """The tokens in front of a text and behind it."""
    special = tokenizer.special_tokens
    return special.get("start") or special.get("classification"), special.get("end") or special.get("separator")


def _template(start: str | None, end: str | None, marks: dict[str, int]) -> JsonObject:
    def mark(name: str | None, kind: int) -> list[JsonObject]:
        return [{"SpecialToken": {"id": name, "type_id": kind}}] if name else []

    def text(name: str, kind: int) -> list[JsonObject]:
        return [{"Sequence": {"id": name, "type_id": kind}}]

    single = mark(start, 0) + text("A", 0) + mark(end, 0)
    special = {name: {"id": name, "ids": [index], "tokens": [name]} for name, index in marks.items()}
    pair = single + text("B", 1) + mark(end, 1)
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
