"""Coding rate and sparsity of the blocks of CRATE."""

from __future__ import annotations

import keras
import numpy as np

from keras_transformer.attention import SubspaceAttention
from keras_transformer.attention.capture import capture
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.feedforward import ISTA
from keras_transformer.utils.types import Logs, Tensor


class CodingRate(keras.callbacks.Callback):
    """Callback that logs the coding rate and the sparsity of each block of a CRATE model after every epoch.

    The logs, and the history that `fit` returns, get "coding_rate_0", "sparsity_0", "coding_rate_1", ...: see
    `coding_rates`. `plots.coding_rate` plots them.

    Args:
        inputs: inputs of the model, a small batch: 64 images are enough for a curve.
        precision: float > 0. See `coding_rates`. Default 0.01.

    Raises:
        ValueError: at the start of training, the model has no `SubspaceAttention` or `ISTA`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models, tasks
    >>> backbone = models.CRATE(models.Size(1, 8, 2, 8), patch_size=4, image_size=8)
    >>> model = tasks.ImageClassifier(backbone, num_classes=3)
    >>> model.compile("sgd", "sparse_categorical_crossentropy")
    >>> x, y = np.ones((4, 8, 8, 3), "float32"), np.array([0, 1, 2, 0])
    >>> history = model.fit(x, y, callbacks=[CodingRate(x)], verbose=0).history
    >>> sorted(name for name in history if name != "loss")
    ['coding_rate_0', 'sparsity_0']

    Reference: Yu et al., White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, section 3.1.
    """

    def __init__(self, inputs: Tensor, precision: float = 0.01) -> None:
        super().__init__()
        self.inputs = inputs
        self.precision = _positive(precision)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        _parts(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if hasattr(self.model, "jax_state_sync"):  # JAX keeps the weights outside the model during training.
            self.model.jax_state_sync()
        logs = {} if logs is None else logs
        logs.update(coding_rates(self.model, self.inputs, self.precision))


def coding_rates(model: keras.Model, inputs: Tensor, precision: float = 0.01) -> dict[str, float]:
    """Computes the coding rate and the sparsity of each block of a CRATE model.

    Args:
        model: `keras.Model` with `SubspaceAttention` and `ISTA`, such as `models.CRATE`, with or without a head.
        inputs: inputs of the model, one batch.
        precision: float > 0. ε² of the coding rate. Default 0.01, as in the authors' code.

    Returns:
        dict of float, means over the batch, in the order of computation: "coding_rate_i" of block i, in nats,
        `½ Σ_k log det(I + H / (T ε²) W_k W_kᵀ)`, where W_k `(H, T)` are the tokens in its k-th subspace, normalized to
        length 1; and "sparsity_i", the fraction of nonzero entries after its ISTA step. Training lowers both along the
        blocks.

    Raises:
        ValueError: the model has no such layers; `precision` not above 0.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> model = models.CRATE(models.Size(1, 8, 2, 8), patch_size=4, image_size=8)
    >>> rates = coding_rates(model, np.random.default_rng(0).normal(size=(2, 8, 8, 3)))
    >>> list(rates), 0 < rates["sparsity_0"] < 1
    (['coding_rate_0', 'sparsity_0'], True)

    Reference: Yu et al., arXiv 2306.01129, sections 2.1 and 3.1. As in the authors' code, the rate is that of the inputs of
    a block's attention, projected to its subspaces.
    """
    _positive(precision)
    subspaces, steps = _parts(model)
    with capture([*subspaces, *steps]) as captured:
        model(inputs, training=False)
    rates = {}
    for index, (subspace, step) in enumerate(zip(subspaces, steps, strict=True)):
        projections, code = (keras.ops.convert_to_numpy(captured[id(layer)]) for layer in (subspace, step))
        rates[f"coding_rate_{index}"] = float(np.mean(_coding_rate(projections, precision)))
        rates[f"sparsity_{index}"] = float(np.mean(code != 0))
    return rates


def _coding_rate(projections, precision):
    """Returns the coding rate of each example, `(B,)`, for tokens `(B, T, N, H)`."""
    tokens = np.asarray(projections, "float64").transpose(0, 2, 3, 1)  # (B, N, H, T)
    _, _, width, length = tokens.shape
    tokens = tokens / np.maximum(np.linalg.norm(tokens, axis=2, keepdims=True), 1e-12)
    # H x H, with the same determinant as the paper's usually larger T x T matrix.
    gram = np.matmul(tokens, np.swapaxes(tokens, 2, 3))
    return np.linalg.slogdet(np.eye(width) + width / (length * precision) * gram)[1].sum(axis=1) / 2


def _parts(model):
    """Returns the attention and the sparse coding layers of all blocks, in order."""
    layers = layers_in_order(model)
    subspaces = [layer for layer in layers if isinstance(layer, SubspaceAttention)]
    steps = [layer for layer in layers if isinstance(layer, ISTA)]
    if not subspaces or len(subspaces) != len(steps):
        raise ValueError(
            f"Coding rates need blocks with SubspaceAttention and ISTA. {model.name!r} has {len(subspaces)} and "
            f"{len(steps)} of these."
        )
    return subspaces, steps


def _positive(precision):
    if precision <= 0:
        raise ValueError(f"precision must be above 0. Received: {precision}")
    return precision
