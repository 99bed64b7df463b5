"""Greedy decoding of written files, compared with the model. A file is run by a generator of logits that takes tokens."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.export_spec import STEPWISE_TOLERANCE
from keras_transformer.export.errors import ParityError
from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.generation.stop import as_end_ids

if TYPE_CHECKING:
    import keras

_PROMPT_LENGTHS, _NEW_TOKENS = (5, 3), 8

Steps = Generator[np.ndarray, Sequence[int], None]


def greedy_tokens(steps: Steps, max_new_tokens: int, end_id: int | Sequence[int] | None = None) -> list[int]:
    """The new tokens of one text, up to and including the end token.

    Args:
        steps: generator that yields the logits `(1, V)` after each pass; `send` takes the next token, a list of one int.
        max_new_tokens: int.
        end_id: int, ints, or None.
    """
    tokens: list[int] = []
    logits = next(steps)
    while True:
        tokens.append(int(logits[0].argmax()))
        if len(tokens) == max_new_tokens or tokens[-1] in as_end_ids(end_id):
            return tokens
        logits = steps.send([tokens[-1]])


def check_greedy(steps: Steps, expected: Sequence[Sequence[int]], tolerance: float | None) -> None:
    """Checks that a file chooses the tokens of the model, except for ties within the tolerance.

    Args:
        steps: as of `greedy_tokens`, for a batch of texts.
        expected: the new tokens of each text, as the model generates them.
        tolerance: as a share of the largest logit; None for the default.

    Raises:
        ParityError: a token that the model chose is worse, by more than the tolerance, than the one that the file chooses.
    """
    tolerance = tolerance or STEPWISE_TOLERANCE
    logits = next(steps)
    for step in range(max(map(len, expected))):
        # Rows continue after their end, as in the engine; their further logits are ignored.
        tokens = [row[step] if step < len(row) else 0 for row in expected]
        open_rows = [row for row, tokens_of_row in enumerate(expected) if step < len(tokens_of_row)]
        regular = np.where(logits > np.finfo("float32").min, logits, 0.0)
        scale = np.abs(regular).max()
        gap = (logits.max(axis=1) - logits[np.arange(len(tokens)), tokens])[open_rows].max()
        if not gap <= tolerance * scale:
            raise ParityError(ONNX, "logits", f"greedy decoding, token {step + 1}", gap, scale, tolerance)
        try:
            logits = steps.send(tokens)
        except StopIteration:
            return


def examples(model: keras.Model, length: int | None = None) -> tuple[list[list[int]], int]:
    """Prompts of different lengths, and a number of new tokens.

    Args:
        model: `LanguageModel`.
        length: int or None: number of tokens that prompt and new tokens do not exceed.
    """
    most: int = length or model.max_length or _PROMPT_LENGTHS[0] + _NEW_TOKENS
    new = min(_NEW_TOKENS, most - 1)
    random = np.random.default_rng(0)
    sizes = [max(min(size, most - new), 1) for size in _PROMPT_LENGTHS]
    return [random.integers(0, model.vocabulary_size, size).tolist() for size in sizes], new
