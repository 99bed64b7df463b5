"""Tasks of KerasHub that generate text, and what they say of texts."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.replaced_layers import methods_set
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    import keras

    from keras_transformer.text import Tokenizer

_PROMPT, _LENGTH = "a", 16


@dataclasses.dataclass(frozen=True)
class HubTexts:
    """The tokenizer of a task, and the tokens that begin and end its texts.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`, or None.
        start_id: int, or None for no token.
        end_id: int, a tuple of some, or None.
    """

    tokenizer: Tokenizer | None = None
    start_id: int | None = None
    end_id: int | tuple[int, ...] | None = None


def is_causal_lm(model: object) -> bool:
    """Whether a model is a `CausalLM` of KerasHub. It is not imported for that: where there is one, it has been.

    A `Seq2SeqLM` is one by its class, but has an encoder.
    """
    hub = sys.modules.get("keras_hub")
    if hub is None or isinstance(model, hub.models.Seq2SeqLM):
        return False
    return isinstance(model, hub.models.CausalLM)


def texts_of(task: keras.Model, tokenizer: Tokenizer | None = None) -> HubTexts:
    """The tokenizer and the tokens of a task, as its own `generate` uses them.

    Args:
        task: `CausalLM` of KerasHub.
        tokenizer: takes the place of that of the task, if given.

    Raises:
        InvalidModelError: its tokenizer is none that this package has, or its texts begin otherwise than with one token.
    """
    own = getattr(getattr(task, "preprocessor", None), "tokenizer", None)
    if own is None:
        return HubTexts(tokenizer)
    first, ends = _request(task)
    begin = first[: len(first) - len(own(_PROMPT))]
    if len(begin) > 1:
        raise InvalidModelError(f"the prompts of '{task.name}' ({type(task).__name__}) begin with the tokens {begin}")
    end_id = ends[0] if len(ends) == 1 else ends or None
    return HubTexts(tokenizer or tokenizer_of(task), begin[0] if begin else None, end_id)


def tokenizer_of(task: keras.Model) -> Tokenizer | None:
    """The tokenizer of a task as one of this package; None where it has none.

    Raises:
        InvalidModelError: it is none that this package has.
    """
    from keras_transformer.text import TextError, from_keras_hub

    own = getattr(getattr(task, "preprocessor", None), "tokenizer", None)
    if own is None:
        return None
    try:
        return from_keras_hub(own)
    except TextError as error:
        raise InvalidModelError(
            f"the tokenizer of '{task.name}' cannot be exported: {error}", Remedy.FOREIGN
        ) from error


class _Captured(Exception):
    """Ends a call of `generate` when its arguments are known."""


def _request(task: keras.Model) -> tuple[list[int], tuple[int, ...]]:
    """The tokens of a short prompt as a task gives it to its decoding loop, and those at which that ends."""
    found: list[tuple[Mapping[str, ArrayLike], Sequence[int | None] | None]] = []

    def captured(inputs: Mapping[str, ArrayLike], stop_token_ids: Sequence[int | None] | None = None) -> None:
        found.append((inputs, stop_token_ids))
        raise _Captured

    try:
        with methods_set([(task, "make_generate_function", lambda: captured)]):
            task.generate([_PROMPT], max_length=_LENGTH)
    except _Captured:
        pass
    except library_exceptions() as error:
        raise InvalidModelError(
            f"'{task.name}' ({type(task).__name__}) takes no prompt of text alone: {one_line(error)}", Remedy.UNCACHED
        ) from error
    if not found:
        raise InvalidModelError(
            f"'{task.name}' ({type(task).__name__}) has a decoding loop of another form", Remedy.UNCACHED
        )
    inputs, ends = found[0]
    tokens, mask = (np.asarray(inputs[name])[0] for name in ("token_ids", "padding_mask"))
    return tokens[mask.astype(bool)].tolist(), tuple(
        dict.fromkeys(int(token) for token in ends or () if token is not None)
    )
