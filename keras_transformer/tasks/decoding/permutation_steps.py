"""Decoding steps of a permutation language model, which has no cache: each token reads the whole text again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from keras_transformer.backend.keras_private import nodes_in_order
from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.generation.generation_spec import GenerationSpec
from keras_transformer.generation.generator import Generator
from keras_transformer.utils.types import ArrayLike, Cache

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import Source
    from keras_transformer.text import Tokenizer

# Texts are padded to multiples of this, to limit the number of compiled shapes.
_BLOCK = 32


def permutation_generator(
    model: keras.Model, tokenizer: Tokenizer | None = None, *, end_id: int | tuple[int, ...] | None = None
) -> Generator:
    """The `generation.Generator` of a `PermutationLanguageModel`: texts by an `XLNet`, with every sampler.

    The next token is the target behind the text, and all tokens of the text see each other. Each new token therefore reads
    the whole text again, in time that grows with the square of its length.

    Args:
        model: `PermutationLanguageModel`.
        tokenizer: a tokenizer of `keras_transformer.text`, or None for token ids.
        end_id: int, or tuple of ints. Tokens that end a text; None for none.

    Returns:
        `generation.Generator`.

    Raises:
        ValueError: the model has other inputs.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.PermutationLanguageModel(models.XLNet(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> len(permutation_generator(model).generate([3, 4, 5], max_new_tokens=2))
    2

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.3; transformers' `XLNetLMHeadModel.generate(use_mems=False)`.
    """
    return Generator(PermutationSteps(model, end_id), tokenizer)


class PermutationSteps:
    """The decoding steps of a `PermutationLanguageModel`. Implements `generation.protocols.DecodingSteps`.

    The cache is the text itself: "token_ids", int32 `(B, L)`.

    Args:
        model: `PermutationLanguageModel`.
        end_id: int, tuple of ints, or None.

    Raises:
        ValueError: the model has other inputs.
    """

    def __init__(self, model: keras.Model, end_id: int | tuple[int, ...] | None = None) -> None:
        names = set(model.input) if isinstance(model.input, dict) else set()
        if not {"token_ids", "permutation_mask", "targets"} <= names:
            raise ValueError(f"{model.name!r} is no PermutationLanguageModel: it has no permutations as inputs.")
        hidden = _input_of(model, _input_of(model, model.output))  # Before the bias, and the product with the table.
        self._model = keras.Model(model.input, {"logits": model.output, "hidden_states": hidden})
        self._has_segments = "segment_ids" in names
        self.spec = GenerationSpec(model.output.shape[-1], end_id=end_id)

    def init_cache(self, batch_size: int, length: int, source: Source | None = None) -> Cache:
        """Returns an empty text of at least `length` tokens."""
        slots = -(-(length + 1) // _BLOCK) * _BLOCK  # With one for the target behind the last token.
        return {"token_ids": np.zeros((batch_size, slots), "int32")}

    def prefill(self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        """Reads prompts `(B, T)`, padded on the right."""
        token_ids, lengths = np.asarray(token_ids), np.asarray(lengths)
        text = np.array(cache["token_ids"])
        text[:, : token_ids.shape[1]] = token_ids
        return self._predict(text, lengths), {"token_ids": text}

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[ModelOutput, Cache]:
        """Reads tokens `(R, T)` after the `cache_index` `(R,)` tokens of each row."""
        token_ids, text = np.asarray(token_ids), np.array(cache["token_ids"])
        lengths, rows = np.asarray(cache_index), np.arange(len(text))
        outputs = []
        for column in token_ids.T:
            text[rows, lengths] = column
            lengths = lengths + 1
            outputs.append(self._predict(text, lengths))
        joined = (np.concatenate(parts, axis=1) for parts in zip(*outputs, strict=True))
        return ModelOutput(*joined), {"token_ids": text}

    def take_rows(self, cache: Cache, rows: ArrayLike) -> Cache:
        """Returns the texts of the given rows `(R,)`."""
        return {name: array[np.asarray(rows)] for name, array in cache.items()}

    def _predict(self, text, lengths):
        """Returns the output for the target behind the first `lengths` `(B,)` tokens of each row."""
        slots, lengths = np.arange(text.shape[1]), np.asarray(lengths)[:, None]
        inputs = {
            "token_ids": text,
            "padding_mask": slots <= lengths,
            "permutation_mask": np.broadcast_to((slots < lengths)[:, None], (*text.shape, text.shape[1])),
            "targets": (slots == lengths)[:, None],
        }
        if self._has_segments:
            inputs["segment_ids"] = np.zeros_like(text)
        outputs = self._model.predict_on_batch(inputs)
        return ModelOutput(*(ops.convert_to_numpy(outputs[name]) for name in ("logits", "hidden_states")))


def _input_of(model, tensor):
    """Returns the first input of the operation that makes a tensor of a model."""
    return next(node for node in nodes_in_order(model) if any(each is tensor for each in node.outputs)).input_tensors[0]
