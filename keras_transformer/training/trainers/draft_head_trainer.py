"""Training of a draft head: what a language model will choose next, from its own hidden states."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_transformer.blocks.traced_once import TracedOnce
from keras_transformer.generation.search.draft_head import EPSILON, DraftHead, weight_shapes
from keras_transformer.tasks import LanguageModel
from keras_transformer.utils.types import ArrayLike, Shape, Tensor, Tensors


def draft_examples(
    language_model: LanguageModel, token_ids: ArrayLike, batch_size: int = 8, verbose: object = "auto"
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns what a `DraftHeadTrainer` learns from: the hidden states of a language model on texts, and its choices.

    Any texts will do, since the labels are the model's own choices; best are texts that the model has generated after
    prompts like those to come.

    Args:
        language_model: `tasks.LanguageModel` of a decoder.
        token_ids: int `(rows, T)`: texts without padding.
        batch_size: int >= 1. Rows in a batch. Default 8.
        verbose: as for `keras.Model.predict`.

    Returns:
        `(inputs, choices)`: a dict of "hidden_states", float16 `(rows, T, D)`, and "token_ids", int32 `(rows, T)`; and the
        most likely token after each, int32 `(rows, T)`.

    Raises:
        ValueError: an encoder-decoder, or rows of other shapes.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.LanguageModel(models.Llama(models.Size(1, 8, 2, 16), vocabulary_size=10))
    >>> inputs, choices = draft_examples(model, [[1, 2, 3, 4]], verbose=0)
    >>> inputs["hidden_states"].shape, choices.shape
    ((1, 4, 8), (1, 4))
    """
    if language_model.is_encoder_decoder:
        raise ValueError(f"{language_model.name!r} has an encoder; a draft head reads the states of a decoder alone.")
    rows = np.asarray(token_ids, "int32")
    if rows.ndim != 2:
        raise ValueError(f"token_ids must be rows of one length, (rows, T). Received: {rows.shape}")
    backbone = language_model.backbone
    known = {"token_ids": rows, "padding_mask": np.ones(rows.shape, bool)}
    inputs = {name: array for name, array in known.items() if name in backbone.input}
    reader = keras.Model(backbone.input, [backbone.output, ops.argmax(language_model.output, axis=-1)])
    states, choices = reader.predict(inputs, batch_size=batch_size, verbose=verbose)
    return {"hidden_states": states.astype("float16"), "token_ids": rows}, choices.astype("int32")


class DraftHeadTrainer(TracedOnce, keras.Model):
    """Trains a `generation.DraftHead` with `fit`.

    The loss is the mean cross-entropy of the target model's choices that the head knows, over `num_steps` tokens after each
    position; the tokens between are those of the text.

    Args:
        tokens: int `(M,)`: tokens that the head knows and proposes, such as the most frequent choices.
        hidden_dim: int. Width of the hidden states.
        width: int. Width of the head's own state. Default 256.
        num_steps: int >= 1. Tokens that it learns to predict one after another. Default 4.
        name: str.

    Call arguments:
        inputs: dict of "hidden_states", float `(B, T, D)`, and "token_ids", int32 `(B, T)`: see `draft_examples`.

    Returns:
        Logits `(B, num_steps, T - num_steps, M)`.

    Raises:
        ValueError: there are no tokens, or `width` or `num_steps` is below 1.

    Compile it with an optimizer and without a loss. `fit` and `evaluate` report "loss" and "accepted", the number of tokens
    in a row that are predicted as the target chooses them.

    Example:

    >>> import numpy as np
    >>> trainer = DraftHeadTrainer([2, 5, 7], hidden_dim=8, width=4, num_steps=2)
    >>> trainer.compile("adam")
    >>> inputs = {"hidden_states": np.ones((1, 6, 8)), "token_ids": np.full((1, 6), 5)}
    >>> history = trainer.fit(inputs, np.full((1, 6), 5), verbose=0)
    >>> trainer.draft_head().num_tokens
    3

    Reference: see `generation.DraftHead`.
    """

    def __init__(
        self,
        tokens: Sequence[int] | np.ndarray,
        hidden_dim: int,
        width: int = 256,
        num_steps: int = 4,
        name: str = "draft_head_trainer",
    ) -> None:
        super().__init__(name=name)
        self.tokens = np.unique(np.asarray(tokens, "int32"))
        if not len(self.tokens) or width < 1 or num_steps < 1:
            raise ValueError(
                "A draft head needs tokens, and a width and num_steps of at least 1. "
                f"Received: {len(self.tokens)} tokens, width={width}, num_steps={num_steps}"
            )
        self.num_steps = num_steps
        shapes = weight_shapes(len(self.tokens), hidden_dim, width, inner_dim=2 * width)
        starts = {"scale": "ones", "bias": "zeros"}
        self._parts = {
            key: self.add_weight(name=key, shape=shape, initializer=starts.get(key, "glorot_uniform"))
            for key, shape in shapes.items()
        }
        self._accepted = keras.metrics.Mean(name="accepted")

    def build(self, input_shape: Shape) -> None:
        """Does nothing: all weights are there."""

    def call(self, inputs: dict[str, Tensor]) -> Tensor:
        parts, steps = self._parts, self.num_steps
        rows = self._rows(inputs["token_ids"])
        length = ops.shape(rows)[1] - steps
        state = ops.matmul(_rms_norm(inputs["hidden_states"][:, :length]), parts["input_projection"])
        logits = []
        for step in range(1, steps + 1):
            read = ops.take(parts["embeddings"], rows[:, step : length + step], axis=0)
            z = _rms_norm(ops.matmul(state, parts["recurrent"]) + read) * parts["scale"]
            hidden = keras.activations.gelu(ops.matmul(z, parts["expansion"]), approximate=True)
            state = z + ops.matmul(hidden, parts["contraction"])
            logits.append(ops.matmul(state, parts["output_projection"]) + parts["bias"])
        return ops.stack(logits, axis=1)

    def compute_loss(
        self,
        x: Tensors | None = None,
        y: Tensor | None = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the mean cross-entropy of the choices that the head knows."""
        del x, sample_weight, training
        rows = self._rows(y)
        length = ops.shape(rows)[1] - self.num_steps
        labels = ops.stack([rows[:, step : length + step] for step in range(1, self.num_steps + 1)], axis=1) - 1
        known = labels >= 0
        right = known & (ops.cast(ops.argmax(y_pred, axis=-1), labels.dtype) == labels)
        self._accepted.update_state(ops.sum(ops.cumprod(ops.cast(right, "float32"), axis=1), axis=1))
        losses = ops.sparse_categorical_crossentropy(ops.maximum(labels, 0), y_pred, from_logits=True)
        weights = ops.cast(known, losses.dtype)
        return ops.sum(losses * weights) / ops.maximum(ops.sum(weights), 1.0)

    def draft_head(self) -> DraftHead:
        """Returns the head with the weights as they are."""
        arrays = {key: ops.convert_to_numpy(weight) for key, weight in self._parts.items()}
        return DraftHead(**{each.name: arrays.get(each.name, self.tokens) for each in dataclasses.fields(DraftHead)})

    def _rows(self, token_ids: Tensor | None) -> Tensor:
        """Rows of the embeddings: one more than the position in `tokens`, or 0."""
        tokens = ops.convert_to_tensor(self.tokens)
        token_ids = ops.cast(token_ids, "int32")
        found = ops.minimum(
            ops.cast(ops.searchsorted(tokens, ops.reshape(token_ids, (-1,))), "int32"), len(self.tokens) - 1
        )
        found = ops.reshape(found, ops.shape(token_ids))
        return ops.where(ops.take(tokens, found) == token_ids, found + 1, 0)


def _rms_norm(x: Tensor) -> Tensor:
    x = ops.cast(x, "float32")
    return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + EPSILON)
