"""Embedding of chunks by the mean of encoder outputs."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.backend.compilation.compiling import compiled
from keras_transformer.retrieval.n_grams import normalize
from keras_transformer.utils.types import ArrayLike, Tensor


class MeanEmbedding:
    """Mean-pooled encoder embedding of chunks, scaled to unit length: the keys of RETRO.

    Args:
        encoder: `keras.Model` from "token_ids" and "padding_mask" to `(B, T, D)`, such as `models.Encoder` or the backbone
            of a checkpoint; or to `(B, D)`, such as `tasks.SentenceEmbedder`. It uses the tokenizer of the database.
        batch_size: int >= 1. Number of chunks that are encoded at a time.

    Call arguments:
        token_ids: int `(n, m)`.

    Returns:
        float32 `(n, D)`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> embed = MeanEmbedding(models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> vectors = embed(np.array([[3, 1, 4], [1, 5, 9]]))
    >>> vectors.shape, np.linalg.norm(vectors, axis=1).round(4).tolist()
    ((2, 8), [1.0, 1.0])

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, section 2.3. The paper uses BERT and Euclidean distances, which have
    the same order as inner products for vectors of equal length.
    """

    def __init__(self, encoder: keras.Model, batch_size: int = 64) -> None:
        self.encoder, self.batch_size = encoder, batch_size
        self._encode = compiled(self._mean, encoder, jit_compile=False)

    def _mean(self, token_ids: Tensor) -> Tensor:
        mask = ops.ones_like(token_ids, dtype="bool")
        hidden = ops.cast(self.encoder({"token_ids": token_ids, "padding_mask": mask}, training=False), "float32")
        return ops.mean(hidden, axis=1) if len(hidden.shape) == 3 else hidden

    def __call__(self, token_ids: ArrayLike) -> np.ndarray:
        token_ids, size = np.asarray(token_ids, "int32"), self.batch_size
        parts = []
        for start in range(0, len(token_ids), size):
            part = token_ids[start : start + size]
            # All batches have the same shape, so one graph is traced.
            padded = np.pad(part, ((0, size - len(part)), (0, 0)))
            parts.append(ops.convert_to_numpy(self._encode(padded))[: len(part)])
        return normalize(np.concatenate(parts))
