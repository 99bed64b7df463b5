"""Learning rates that transfer from a narrow model to a wide one."""

from __future__ import annotations

import re

import keras

from keras_transformer.training.monitoring.names import path_in


def width_multipliers(model: keras.Model, base: keras.Model) -> dict[str, float]:
    """Returns the multipliers of learning rates with which the best rate of a narrow model is that of a wide one (muP).

    The rate of every matrix between two widths is divided by the growth of its input width. Those of embeddings, biases,
    norms and output heads, which have one axis that grows, or none, remain. The rest of the maximal update parametrization
    is in the model itself:

    - the output of the backbone is scaled by `base width / width` before the head: `head_scale` of `tasks.LanguageModel`;
    - heads keep their width, and their number grows, so that attention keeps its scale of `1 / √key_dim`;
    - initial weights have a variance of `1 / width`, as those of this package and of Keras's glorot and lecun have;
    - weight decay: `LayerwiseAdamW` multiplies it with the rate. For the same decay in each step divide by the multiplier.

    Args:
        model: a built `keras.Model`.
        base: the same model, narrower: with the same weights in the same order, but other sizes. Its best learning rate,
            found by a search, is then about that of `model`, and of every other width.

    Returns:
        dict of regular expression to float, for `LayerwiseAdamW`.

    Raises:
        ValueError: the weights of the models do not correspond.

    Example:

    >>> from keras_transformer import models, tasks, training
    >>> def build(width):
    ...     backbone = models.Decoder(models.Size(1, width, width // 16, 4 * width), vocabulary_size=65)
    ...     return tasks.LanguageModel(backbone, head_scale=64 / width)
    >>> multipliers = width_multipliers(build(256), base=build(64))
    >>> multipliers["(^|/)decoder_block_0/feedforward/hidden/kernel$"]
    0.25
    >>> "(^|/)token_embedding/embeddings$" in multipliers
    False
    >>> optimizer = training.LayerwiseAdamW(0.01, multipliers=multipliers)

    Reference: Yang et al., Tensor Programs V, arXiv 2203.03466, table 8 (Adam).
    """
    weights, narrow = model.trainable_variables, base.trainable_variables
    if len(weights) != len(narrow):
        raise ValueError(f"The model has {len(weights)} trainable weights, the base {len(narrow)}.")
    multipliers = {}
    for weight, other in zip(weights, narrow, strict=True):
        if weight.name != other.name or len(weight.shape) != len(other.shape):
            raise ValueError(
                f"'{weight.path}' {tuple(weight.shape)} of the model does not correspond to '{other.path}' "
                f"{tuple(other.shape)} of the base."
            )
        growths = [size / before for size, before in zip(weight.shape, other.shape, strict=True) if size != before]
        if len(growths) > 1:  # Input axes come first.
            multipliers[f"(^|/){re.escape(path_in(weight, model))}$"] = 1 / growths[0]
    return multipliers
