"""Batches for a permutation language model, with other orders in every epoch."""

import numpy as np

from keras_transformer.data.pretraining.masked_batches import check_inputs, with_seeds
from keras_transformer.data.pretraining.token_permutation import TokenPermutation


def permute_tokens(batches, tokenizer, *, seed=0, **options):
    """Batches of token ids turned into batches for `tasks.PermutationLanguageModel`, in new orders in every epoch.

    The same arguments give the same batches, epoch after epoch; from a `BatchStream`, each is a function of its step alone,
    so that a `TrainingCheckpoint` goes on with the very same ones.

    Args:
        batches: `BatchStream`, or `tf.data.Dataset`, of dicts with "token_ids", int32 `(B, T)`, "padding_mask", boolean
            `(B, T)`, and whatever else the model takes.
        tokenizer: a tokenizer of `keras_transformer.text`.
        seed: int >= 0.
        **options: of `TokenPermutation`: `rate`, `max_span_length`.

    Returns:
        As `batches`, a `BatchStream` or a `tf.data.Dataset`, of pairs of inputs (the dict, with "permutation_mask", boolean
        `(B, T, T)`, True = the first token may see the second; and "targets", boolean `(B, P, T)`, True at the place
        of each target) and labels, int32 `(B, P)`, the tokens there, -100 where a row has fewer targets.

    Raises:
        ValueError: as `TokenPermutation`; the batches are no such dicts.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> from keras_transformer.training import bucket_batches
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> stream = permute_tokens(bucket_batches({"token_ids": [[2, 5, 6, 7]]}), tokenizer)
    >>> inputs, labels = stream[0]
    >>> bool(inputs["token_ids"][0][inputs["targets"][0, 0]] == labels[0, 0])
    True

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.2.
    """
    permutation = TokenPermutation(tokenizer, **options)

    def permute(batch, apply):
        check_inputs("permute_tokens", batch)
        ranks, positions, labels = apply(batch["token_ids"], batch["padding_mask"])
        queries, keys = ranks[:, :, np.newaxis], ranks[:, np.newaxis, :]
        places = np.arange(ranks.shape[1]) if isinstance(ranks, np.ndarray) else _range(ranks)
        permuted = {
            "permutation_mask": (keys < queries) | (keys == 0),
            "targets": positions[:, :, np.newaxis] == places,
        }
        return {**batch, **permuted}, labels

    return with_seeds(batches, permutation, permute, seed, f"permute_tokens {tokenizer.fingerprint} {options}")


def _range(x):
    import tensorflow as tf

    return tf.range(tf.shape(x)[1])
