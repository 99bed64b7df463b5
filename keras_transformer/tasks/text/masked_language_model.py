"""Masked language modeling."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.tasks.heads import check_tied, check_tokens, token_table
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Shape, Tensor


def MaskedLanguageModel(
    backbone: keras.Model,
    *,
    tie_embeddings: bool = True,
    selected_positions: bool = False,
    transform: bool = True,
    use_bias: bool = True,
    activation: Activation = "gelu",
    layer_norm_epsilon: float = 1e-12,
    name: str = "masked_language_model",
) -> keras.Model:
    """Masked language model: a backbone with BERT's head over the vocabulary: `logits = norm(gelu(W h + c)) E^T + b`.

    W projects to the width of the embeddings, which differs from that of the tokens in ALBERT and ELECTRA.

    `data.mask_tokens` prepares its batches. The layers of the backbone are used, not copied: after training, use the
    backbone in another task.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)`, such as `models.Encoder`.
        tie_embeddings: bool. True: E is the token embedding; False: a separate kernel.
        selected_positions: bool. True: an additional input "masked_positions", int32 `(B, P)`, and logits of these tokens
            only. It saves the head, most of the computation of a small model, on about 85 % of the tokens.
        transform: bool. False: no transform, `h E^T + b`.
        use_bias: bool. Whether the logits have the bias b.
        activation: activation of the transform.
        layer_norm_epsilon: float > 0. Of the norm of the transform.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "logits", float32 `(B, T, V)`, under every dtype policy; `(B, P, V)` with
        "masked_positions".

    Raises:
        ValueError: a backbone without token embeddings, or whose output is not `(B, T, D)`; a tied embedding that is not
            reversible or, without a transform, has another width than the tokens.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    >>> MaskedLanguageModel(backbone).output_shape
    (None, None, 50)

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 3.1; transform, norm and output bias as in its published code.
    """
    check_tokens(backbone)
    inputs, x = backbone.input, backbone.output
    embedding = token_table(backbone, "token_embedding")
    if tie_embeddings:  # The transform projects to the width of the embedding.
        check_tied(backbone, embedding, embedding.output_dim if transform else x.shape[-1])
    if selected_positions:
        positions = keras.Input((None,), dtype="int32", name="masked_positions")
        inputs = {**inputs, "masked_positions": positions}
        x = ops.take_along_axis(x, ops.expand_dims(positions, -1), axis=1)
    if transform:
        width = embedding.output_dim if tie_embeddings else x.shape[-1]
        x = keras.layers.Dense(width, activation=get_activation(activation), name="transform")(x)
        x = LayerNormalization(epsilon=layer_norm_epsilon, name="transform_norm")(x)
    if not tie_embeddings:
        x = keras.layers.Dense(embedding.input_dim, use_bias=use_bias, dtype="float32", name="logits")(x)
    elif use_bias:
        x = OutputBias(dtype="float32", name="logits")(embedding(x, reverse=True))
    else:
        x = keras.layers.Activation("linear", dtype="float32", name="logits")(embedding(x, reverse=True))
    return TaskModel(inputs, x, name=name)


@serializable
class OutputBias(keras.layers.Layer):
    """Adds a learned bias to the logits: `y = x + b`.

    Call arguments:
        inputs: float `(..., V)`.

    Returns:
        `(..., V)`, in the dtype of the layer.
    """

    def build(self, input_shape: Shape) -> None:
        self.bias = self.add_weight(name="bias", shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs: Tensor) -> Tensor:
        return inputs + self.bias
