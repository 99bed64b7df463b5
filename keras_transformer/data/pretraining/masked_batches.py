"""Batches with masked tokens, with different masks in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.pretraining.token_masking import TokenMasking
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


class RandomTransform(Protocol):
    """A seeded transformation of token ids and their padding mask into a fixed number of arrays."""

    @property
    def num_arrays(self) -> int: ...

    def __call__(
        self, token_ids: ArrayLike, padding_mask: ArrayLike, seed: int | Sequence[int] | np.ndarray
    ) -> tuple: ...


def mask_tokens(
    batches: BatchStream | tf.data.Dataset, tokenizer: Tokenizer, *, seed: int = 0, **options: Any
) -> BatchStream | tf.data.Dataset:
    """Turns batches of token ids into batches for `tasks.MaskedLanguageModel`, with new masks in every epoch.

    Equal arguments produce equal batches in every epoch. Those of a `BatchStream` are functions of their step, so that a
    `TrainingCheckpoint` resumes with the same ones.

    Args:
        batches: `BatchStream` or `tf.data.Dataset` of dicts with "token_ids", int32 `(B, T)`, "padding_mask", boolean
            `(B, T)`, and further inputs of the model.
        tokenizer: a tokenizer with a mask token.
        seed: int >= 0.
        **options: of `TokenMasking`: `rate`, `mask_share`, `random_share`, `whole_words`, `selected_positions`.

    Returns:
        A `BatchStream` or `tf.data.Dataset`, as `batches`, of pairs of inputs (the dict, with masked "token_ids", and with
        "masked_positions" if `selected_positions`) and labels, -100 for tokens that are not predicted.

    Raises:
        ValueError: as in `TokenMasking`; batches that are not such dicts.
        ValueError: as `TokenMasking`; the batches are no such dicts.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> from keras_transformer.data import bucket_batches
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> stream = mask_tokens(bucket_batches({"token_ids": [[2, 5, 6, 7]]}), tokenizer, selected_positions=True)
    >>> inputs, labels = stream[0]
    >>> int(labels[0, 0]) - 4 == int(inputs["masked_positions"][0, 0])
    True

    Reference: Liu et al., RoBERTa, arXiv 1907.11692, section 4.1 (dynamic masking).
    """
    masking = TokenMasking(tokenizer, **options)

    def mask(batch, transform):
        check_inputs("mask_tokens", batch)
        masked, *positions, labels = transform(batch["token_ids"], batch["padding_mask"])
        selected = {"masked_positions": positions[0]} if positions else {}
        return {**batch, "token_ids": masked, **selected}, labels

    return with_seeds(batches, masking, mask, seed, f"mask_tokens {tokenizer.fingerprint} {sorted(options.items())}")


def hide_tokens(
    batches: BatchStream | tf.data.Dataset,
    tokenizer: Tokenizer,
    rate: float = 0.1,
    *,
    whole_words: bool = False,
    seed: int = 0,
) -> BatchStream | tf.data.Dataset:
    """Replaces random input tokens of labeled batches by the mask token: word dropout, for any task.

    Args:
        batches: `BatchStream` or `tf.data.Dataset` of pairs of inputs, a dict with "token_ids", int32 `(B, T)`, and
            "padding_mask", boolean `(B, T)`, and labels.
        tokenizer: a tokenizer with a mask token.
        rate: float in (0, 1). The fraction of each row's tokens, special ones not counted; at least one. Default 0.1.
        whole_words: bool. As in `TokenMasking`. Default False.
        seed: int >= 0.

    Returns:
        A `BatchStream` or `tf.data.Dataset`, as `batches`, with the same labels.

    Raises:
        ValueError: as in `TokenMasking`; inputs that are not such dicts.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> from keras_transformer.data import bucket_batches
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> stream = hide_tokens(bucket_batches({"token_ids": [[2, 5, 6, 7]]}, [1]), tokenizer, rate=0.3)
    >>> inputs, labels = stream[0]
    >>> int((inputs["token_ids"] == tokenizer.mask_id).sum()), int(labels[0])
    (1, 1)

    Reference: Iyyer et al., Deep Unordered Composition Rivals Syntactic Methods, ACL 2015, section 3.1. The paper removes
    tokens instead, and their number is random.
    """
    masking = TokenMasking(tokenizer, rate=rate, mask_share=1.0, random_share=0.0, whole_words=whole_words)

    def hide(batch, transform):
        inputs, labels = batch
        check_inputs("hide_tokens", inputs)
        hidden, _ = transform(inputs["token_ids"], inputs["padding_mask"])
        return {**inputs, "token_ids": hidden}, labels

    return with_seeds(batches, masking, hide, seed, f"hide_tokens {tokenizer.fingerprint} {rate} {whole_words}")


def check_inputs(function: str, inputs: object) -> None:
    """Raises `ValueError` for inputs that are not a dict with token ids and their padding mask."""
    if not isinstance(inputs, dict) or not {"token_ids", "padding_mask"} <= set(inputs):
        raise ValueError(f"{function} takes inputs with token_ids and padding_mask. Received: {inputs}")


def with_seeds(
    batches: BatchStream | tf.data.Dataset,
    transform: RandomTransform,
    function: Callable[[Any, Callable], Any],
    seed: int,
    name: str,
) -> BatchStream | tf.data.Dataset:
    """Calls `function` with every batch and with `transform` seeded for that batch."""
    if not isinstance(batches, BatchStream):
        return _in_dataset(batches, transform, function, seed)

    def make(epoch, step):
        step += epoch * len(batches)
        return function(batches[step], lambda *arrays: transform(*arrays, seed=(seed, step)))

    fingerprint = f"{batches.fingerprint} {name} {seed}"
    return BatchStream(make, len(batches), fingerprint=fingerprint, fixed_shapes=batches.fixed_shapes)


def _in_dataset(batches, transform, function, seed):
    import tensorflow as tf

    dtypes = [tf.int32] * transform.num_arrays

    def mapped(batch, seeds):
        def seeded(*tensors):
            first, *others = tf.numpy_function(transform, [*tensors, seeds], dtypes)
            first.set_shape(tensors[0].shape)
            for tensor in others:
                tensor.set_shape((tensors[0].shape[0], None))
            return first, *others

        return function(batch, seeded)

    seeds = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).batch(2)
    return tf.data.Dataset.zip((batches, seeds)).map(mapped)
