"""What denoisers share: the embedding of times and of pooled text, and the head that predicts patches."""

from __future__ import annotations

import keras

from keras_transformer.diffusion import TimestepEmbedding
from keras_transformer.layers.modulation import Modulation
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.vision import Unpatchify


def text_inputs(text_dim: int, pooled_text_dim: int) -> dict[str, keras.KerasTensor]:
    """Symbolic inputs of a denoiser that reads text: times, encoded and pooled text."""
    return {
        "times": keras.Input((), name="times"),
        "text": keras.Input((None, text_dim), name="text"),
        "pooled_text": keras.Input((pooled_text_dim,), name="pooled_text"),
    }


def text_condition(inputs: dict[str, keras.KerasTensor], hidden_dim: int) -> keras.KerasTensor:
    """The condition `(B, D)`: the sum of the embeddings of time, pooled text and, if it is an input, guidance."""
    pooled = keras.layers.Dense(hidden_dim, activation="silu", name="pooled_text_hidden")(inputs["pooled_text"])
    pooled = keras.layers.Dense(hidden_dim, name="pooled_text_embedding")(pooled)
    parts = [TimestepEmbedding(hidden_dim, name="timestep_embedding")(inputs["times"]), pooled]
    if "guidance" in inputs:
        parts.append(TimestepEmbedding(hidden_dim, name="guidance_embedding")(inputs["guidance"]))
    return keras.layers.Add(name="condition")(parts)


def norm_of_tokens(epsilon: float) -> LayerNormalization:
    """The norm before a modulation: without scale and offset of its own."""
    return LayerNormalization(epsilon=epsilon, center=False, scale=False, name="final_norm")


def predict_image(
    tokens: keras.KerasTensor,
    condition: keras.KerasTensor,
    norm: keras.layers.Layer,
    patch_size: tuple[int, ...],
    grid: tuple[int, ...],
    num_channels: int,
) -> keras.KerasTensor:
    """The prediction, float32 `(B, height, width, channels)`, from tokens `(B, T, D)`; initially zero."""
    x = Modulation(name="final_modulation")(norm(tokens), condition)
    width = patch_size[0] * patch_size[1] * num_channels
    head = keras.layers.Dense(width, kernel_initializer="zeros", dtype="float32", name="patches")
    return Unpatchify(patch_size, grid, dtype="float32", name="prediction")(head(x))
