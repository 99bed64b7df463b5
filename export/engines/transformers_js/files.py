"""The files beside the graph: `config.json`, the tokenizer's, and `preprocessor_config.json`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_transformer.export.engines.transformers_js.tasks import ENGINE, Task
from keras_transformer.export.errors import InvalidModelError

_ROLES = {"pad": "pad_token", "unknown": "unk_token", "mask": "mask_token"}
_MATCHING = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def config_json(task: Task, class_names: Sequence[str]) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    labels = {str(index): name for index, name in enumerate(class_names)}
    named = {"id2label": labels, "label2id": {name: int(index) for index, name in labels.items()}} if labels else {}
    return {"model_type": task.model_type, "architectures": [task.architecture], **named}


def tokenizer_json(tokenizer: Any) -> dict[str, Any]:
    """Returns the content of `tokenizer.json`.

    Args:
        tokenizer: a `WordPiece`, or a `HuggingFaceTokenizer`.

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
    if tokenizer.kind != "wordpiece":
        raise InvalidModelError(
            f"{ENGINE} gets tokenizers of the kinds wordpiece and hugging_face, not {tokenizer.kind}"
        )
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


def tokenizer_config(tokenizer: Any, max_length: int | None) -> dict[str, Any]:
    """Returns the content of `tokenizer_config.json`."""
    special, (start, end) = tokenizer.special_tokens, _frame(tokenizer)
    roles = {label: special[role] for role, label in _ROLES.items() if special.get(role)}
    roles |= {label: name for label, name in (("cls_token", start), ("sep_token", end)) if name}
    return {"tokenizer_class": "BertTokenizer", "model_max_length": max_length or 512, **roles}


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _frame(tokenizer: Any) -> tuple[str | None, str | None]:
    """The tokens in front of a text and behind it."""
    special = tokenizer.special_tokens
    return special.get("start") or special.get("classification"), special.get("end") or special.get("separator")


def _template(start: str | None, end: str | None, marks: dict[str, int]) -> dict[str, Any]:
    def mark(name: str | None, kind: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": name, "type_id": kind}}] if name else []

    def text(name: str, kind: int) -> list[dict[str, Any]]:
        return [{"Sequence": {"id": name, "type_id": kind}}]

    single = mark(start, 0) + text("A", 0) + mark(end, 0)
    special = {name: {"id": name, "ids": [index], "tokens": [name]} for name, index in marks.items()}
    pair = single + text("B", 1) + mark(end, 1)
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
