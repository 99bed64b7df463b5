"""Batches with tokens hidden in them, others in every epoch."""

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.data.pretraining.token_masking import TokenMasking


def mask_tokens(batches, tokenizer, *, seed=0, **options):
    """Batches of token ids turned into batches for `tasks.MaskedLanguageModel`, masked anew in every epoch.

    The same arguments give the same batches, epoch after epoch; from a `BatchStream`, each is a function of its step alone,
    so that a `TrainingCheckpoint` goes on with the very same ones.

    Args:
        batches: `BatchStream`, or `tf.data.Dataset`, of dicts with "token_ids", int32 `(B, T)`, "padding_mask", boolean
            `(B, T)`, and whatever else the model takes.
        tokenizer: a tokenizer with a mask token.
        seed: int >= 0.
        **options: of `TokenMasking`: `rate`, `mask_share`, `random_share`, `whole_words`, `selected_positions`.

    Returns:
        As `batches`, a `BatchStream` or a `tf.data.Dataset`, of pairs of inputs (the dict, with masked "token_ids", and with
        "masked_positions" if `selected_positions`) and labels, -100 where nothing is to be predicted.

    Raises:
        ValueError: as `TokenMasking`; the batches are no such dicts.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> from keras_transformer.training import bucket_batches
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> stream = mask_tokens(bucket_batches({"token_ids": [[2, 5, 6, 7]]}), tokenizer, selected_positions=True)
    >>> inputs, labels = stream[0]
    >>> int(labels[0, 0]) - 4 == int(inputs["masked_positions"][0, 0])
    True

    Reference: Liu et al., RoBERTa, arXiv 1907.11692, section 4.1 (dynamic masking).
    """
    masking = TokenMasking(tokenizer, **options)

    def mask(batch, apply):
        check_inputs("mask_tokens", batch)
        masked, *positions, labels = apply(batch["token_ids"], batch["padding_mask"])
        selected = {"masked_positions": positions[0]} if positions else {}
        return {**batch, "token_ids": masked, **selected}, labels

    return with_seeds(batches, masking, mask, seed, f"mask_tokens {tokenizer.fingerprint} {sorted(options.items())}")


def hide_tokens(batches, tokenizer, rate=0.1, *, whole_words=False, seed=0):
    """Batches with labels, in whose inputs some tokens are hidden behind the mask token: word dropout, for any task.

    Args:
        batches: `BatchStream`, or `tf.data.Dataset`, of pairs of inputs, a dict with "token_ids", int32 `(B, T)`, and
            "padding_mask", boolean `(B, T)`, and labels.
        tokenizer: a tokenizer with a mask token.
        rate: float in (0, 1). The share of the tokens of each row, special ones not counted; one at least.
        whole_words: bool. As in `TokenMasking`.
        seed: int >= 0.

    Returns:
        As `batches`; the labels are as they were.

    Raises:
        ValueError: as `TokenMasking`; the inputs are no such dicts.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> from keras_transformer.training import bucket_batches
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> stream = hide_tokens(bucket_batches({"token_ids": [[2, 5, 6, 7]]}, [1]), tokenizer, rate=0.3)
    >>> inputs, labels = stream[0]
    >>> int((inputs["token_ids"] == tokenizer.mask_id).sum()), int(labels[0])
    (1, 1)

    Reference: Iyyer et al., Deep Unordered Composition Rivals Syntactic Methods, ACL 2015, section 3.1; there the tokens are
    taken out, and their number is random.
    """
    masking = TokenMasking(tokenizer, rate=rate, mask_share=1.0, random_share=0.0, whole_words=whole_words)

    def hide(batch, apply):
        inputs, labels = batch
        check_inputs("hide_tokens", inputs)
        hidden, _ = apply(inputs["token_ids"], inputs["padding_mask"])
        return {**inputs, "token_ids": hidden}, labels

    return with_seeds(batches, masking, hide, seed, f"hide_tokens {tokenizer.fingerprint} {rate} {whole_words}")


def check_inputs(function, inputs):
    """Refuses what is no dict of tokens with their padding."""
    if not isinstance(inputs, dict) or not {"token_ids", "padding_mask"} <= set(inputs):
        raise ValueError(f"{function} takes inputs with token_ids and padding_mask. Received: {inputs}")


def with_seeds(batches, masking, function, seed, name):
    """`function` of every batch, and of `masking` with a seed that is the batch's own."""
    if not isinstance(batches, BatchStream):
        return _in_dataset(batches, masking, function, seed)

    def make(epoch, step):
        step += epoch * len(batches)
        return function(batches[step], lambda *arrays: masking(*arrays, seed=(seed, step)))

    fingerprint = f"{batches.fingerprint} {name} {seed}"
    return BatchStream(make, len(batches), fingerprint=fingerprint, fixed_shapes=batches.fixed_shapes)


def _in_dataset(batches, masking, function, seed):
    import tensorflow as tf

    dtypes = [tf.int32] * masking.num_arrays

    def mapped(batch, seeds):
        def apply(*tensors):
            masked, *others = tf.numpy_function(masking, [*tensors, seeds], dtypes)
            masked.set_shape(tensors[0].shape)
            for tensor in others:
                tensor.set_shape((tensors[0].shape[0], None))
            return masked, *others

        return function(batch, apply)

    seeds = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).batch(2)
    return tf.data.Dataset.zip((batches, seeds)).map(mapped)
