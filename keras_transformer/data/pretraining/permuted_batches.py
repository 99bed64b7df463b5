"""Batches for permutation language modeling, with new factorization orders in every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.pretraining.masked_batches import check_inputs, with_seeds
from keras_transformer.data.pretraining.token_permutation import TokenPermutation

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


def permute_tokens(
    batches: BatchStream | tf.data.Dataset, tokenizer: Tokenizer, *, seed: int = 0, **options: Any
) -> BatchStream | tf.data.Dataset:
    """Turns batches of token ids into batches for `tasks.PermutationLanguageModel`, with new orders in every epoch.

    Equal arguments produce equal batches in every epoch. Those of a `BatchStream` are functions of their step, so that a
    `TrainingCheckpoint` resumes with the same ones.

    Args:
        batches: `BatchStream` or `tf.data.Dataset` of dicts with "token_ids", int32 `(B, T)`, "padding_mask", boolean
            `(B, T)`, and further inputs of the model.
        tokenizer: a tokenizer of `keras_transformer.text`.
        seed: int >= 0.
        **options: of `TokenPermutation`: `rate`, `max_span_length`.

    Returns:
        A `BatchStream` or `tf.data.Dataset`, as `batches`, of pairs of inputs (the dict, with "permutation_mask", boolean
        `(B, T, T)`, True = the first token may attend to the second, and "targets", boolean `(B, P, T)`, the one-hot
        positions of the targets) and labels, int32 `(B, P)`: the targets' tokens, -100 if a row has fewer targets.

    Raises:
        ValueError: as in `TokenPermutation`; batches that are not such dicts.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> from keras_transformer.data import bucket_batches
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> stream = permute_tokens(bucket_batches({"token_ids": [[2, 5, 6, 7]]}), tokenizer)
    >>> inputs, labels = stream[0]
    >>> bool(inputs["token_ids"][0][inputs["targets"][0, 0]] == labels[0, 0])
    True

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.2.
    """
    permutation = TokenPermutation(tokenizer, **options)

    def permute(batch, transform):
        check_inputs("permute_tokens", batch)
        ranks, positions, labels = transform(batch["token_ids"], batch["padding_mask"])
        queries, keys = ranks[:, :, np.newaxis], ranks[:, np.newaxis, :]
        indices = np.arange(ranks.shape[1]) if isinstance(ranks, np.ndarray) else _range(ranks)
        permuted = {
            "permutation_mask": (keys < queries) | (keys == 0),
            "targets": positions[:, :, np.newaxis] == indices,
        }
        return {**batch, **permuted}, labels

    return with_seeds(batches, permutation, permute, seed, f"permute_tokens {tokenizer.fingerprint} {options}")


def _range(x):
    import tensorflow as tf

    return tf.range(tf.shape(x)[1])
