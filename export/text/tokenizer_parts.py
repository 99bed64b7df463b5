"""Parts of a `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformer.export.errors import InvalidModelError

_NESTED = ("pretokenizers", "normalizers", "decoders")


def unsupported(what: str) -> InvalidModelError:
    """The error of a tokenizer with a part that cannot be in a file."""
    return InvalidModelError(f"{what} cannot be part of a tokenizer's file; WordPiece, BPE, Unigram and bytes can")


def type_of(part: Mapping[str, object] | None) -> str:
    """The name of the type of a part."""
    return "None" if part is None else str(part.get("type"))


def parts_of(part: Mapping[str, Any] | None) -> list[Any]:
    """The normalizers, pre-tokenizers or decoders of a `tokenizer.json`, one after another; none for None."""
    if part is None:
        return []
    nested = next((part[key] for key in _NESTED if key in part), None)
    return [part] if nested is None else [each for inner in nested for each in parts_of(inner)]


def pair_of(merge: str | Sequence[str]) -> Sequence[str]:
    """The two tokens that a merge joins."""
    return merge.split(" ") if isinstance(merge, str) else merge
