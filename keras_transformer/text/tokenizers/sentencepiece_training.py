"""Training of SentencePiece models by the `sentencepiece` library."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from keras_transformer.text.corpus import lines_of
from keras_transformer.text.errors import TextError
from keras_transformer.text.tokenizers.special_tokens import tokens_in

# Larger corpora are sampled to this number of lines, which bounds memory.
MAX_LINES = 5_000_000


def library() -> ModuleType:
    """Returns the `sentencepiece` module.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError("SentencePiece needs the sentencepiece library: pip install sentencepiece") from error
    return sentencepiece


def meta_pieces(roles: dict[str, Any]) -> dict[str, Any]:
    """Training options for special tokens with the ids 0, 1, ... in the order of `roles`."""
    tokens = tokens_in(roles)
    own = {"pad": "pad", "unknown": "unk", "start": "bos", "end": "eos"}
    options: dict[str, Any] = {}
    for role, name in own.items():
        options[f"{name}_id"] = tokens.index(roles[role]) if role in roles else -1
        if role in roles:
            options[f"{name}_piece"] = roles[role]
    others = [token for token in tokens if token not in [roles.get(role) for role in own]]
    return {**options, "control_symbols": others} if others else options


def train_model(texts: Iterable[str], options: Mapping[str, object]) -> bytes:
    """Returns a SentencePiece model of the lines of texts, trained with options of `SentencePieceTrainer`."""
    writer, lines = io.BytesIO(), _Lines(texts)
    try:
        library().SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=writer,
            hard_vocab_limit=False,
            input_sentence_size=MAX_LINES,
            shuffle_input_sentence=True,
            max_sentence_length=2**30,
            minloglevel=2,
            **options,
        )
    except (RuntimeError, OSError) as error:
        if lines.error is not None:
            raise lines.error from None
        raise TextError(f"SentencePiece training failed: {str(error).split('] ')[-1]}") from error
    return writer.getvalue()


class _Lines:
    """Iterator of the lines of texts. Stores its `TextError`, which the library replaces by an exception of its own."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self.error: TextError | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from lines_of(self._texts)
        except TextError as error:
            self.error = error
            raise
