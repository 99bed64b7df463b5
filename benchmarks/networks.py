"""The same two networks in three implementations: this library, `keras.layers` and KerasHub.

Every builder takes a `Measures` and returns a backbone; `same_weights` asserts that the architectures are equal.
"""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer import models

NORM_EPSILON = 1e-3


class Measures(NamedTuple):
    """Size of a network. `image_size` and `patch_size` are for the ViT, `length` and `vocabulary_size` for the encoder."""

    num_layers: int = 6
    hidden_dim: int = 384
    num_heads: int = 6
    intermediate_dim: int = 1536
    dropout: float = 0.0
    image_size: int = 128
    patch_size: int = 16
    length: int = 128
    vocabulary_size: int = 8192

    @property
    def size(self):
        return models.Size(self.num_layers, self.hidden_dim, self.num_heads, self.intermediate_dim)


VIT = Measures()
ENCODER = Measures(num_heads=12, dropout=0.1)
TINY = {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "intermediate_dim": 32, "image_size": 32, "length": 8}


def same_weights(*networks):
    """Asserts that networks have weights of the same shapes; returns their parameter count."""
    shapes = {network.name: sorted(tuple(weight.shape) for weight in network.weights) for network in networks}
    first = next(iter(shapes.values()))
    unlike = [name for name, found in shapes.items() if found != first]
    if unlike:
        raise AssertionError(f"Not the same network: {networks[0].name} and {unlike}")
    return networks[0].count_params()


def trained_looking(network):
    """Changes every weight from its initial value, because exporters drop biases of zero and scales of one."""
    random = np.random.default_rng(0)
    for weight in network.weights:
        if keras.backend.is_float_dtype(weight.dtype):
            weight.assign_add(random.normal(0.0, 0.02, weight.shape))
    return network


def our_vit(measures):
    return models.ViT(
        measures.size,
        patch_size=measures.patch_size,
        image_size=measures.image_size,
        dropout=measures.dropout,
        attention_dropout=measures.dropout,
        name="ours",
    )


def our_encoder(measures):
    return models.Encoder(
        measures.size,
        measures.vocabulary_size,
        max_sequence_length=measures.length,
        dropout=measures.dropout,
        name="ours",
    )


def hub_vit(measures):
    import keras_hub

    return keras_hub.models.ViTBackbone(
        (measures.image_size, measures.image_size, 3),
        measures.patch_size,
        *measures.size[:1],
        num_heads=measures.num_heads,
        hidden_dim=measures.hidden_dim,
        mlp_dim=measures.intermediate_dim,
        dropout_rate=measures.dropout,
        attention_dropout=measures.dropout,
        name="keras_hub",
    )


def hub_encoder(measures, activation="gelu"):
    from keras_hub.layers import TokenAndPositionEmbedding, TransformerEncoder

    token_ids, padding_mask = _text_inputs()
    x = TokenAndPositionEmbedding(measures.vocabulary_size, measures.length, measures.hidden_dim)(token_ids)
    x = keras.layers.Dropout(measures.dropout)(x)
    for _ in range(measures.num_layers):
        block = TransformerEncoder(
            measures.intermediate_dim,
            measures.num_heads,
            dropout=measures.dropout,
            activation=activation,
            layer_norm_epsilon=NORM_EPSILON,
            normalize_first=True,
        )
        x = block(x, padding_mask=padding_mask)
    x = keras.layers.LayerNormalization(epsilon=NORM_EPSILON)(x)
    return keras.Model({"token_ids": token_ids, "padding_mask": padding_mask}, x, name="keras_hub")


def plain_vit(measures):
    images = keras.Input((measures.image_size, measures.image_size, 3), name="images")
    x = keras.layers.Conv2D(measures.hidden_dim, measures.patch_size, strides=measures.patch_size)(images)
    x = keras.layers.Reshape((-1, measures.hidden_dim))(x)
    x = PositionTable(x.shape[1] + 1)(ClassToken()(x))
    for _ in range(measures.num_layers):
        x = _plain_block(x, measures, epsilon=1e-6)
    return keras.Model(images, keras.layers.LayerNormalization(epsilon=1e-6)(x), name="keras_layers")


def plain_encoder(measures):
    token_ids, padding_mask = _text_inputs()
    x = keras.layers.Embedding(measures.vocabulary_size, measures.hidden_dim)(token_ids)
    x = keras.layers.Dropout(measures.dropout)(PositionTable(measures.length)(x))
    attention_mask = ops.expand_dims(padding_mask, 1)
    for _ in range(measures.num_layers):
        x = _plain_block(x, measures, NORM_EPSILON, attention_mask)
    x = keras.layers.LayerNormalization(epsilon=NORM_EPSILON)(x)
    return keras.Model({"token_ids": token_ids, "padding_mask": padding_mask}, x, name="keras_layers")


def plain_decoder(measures):
    token_ids = keras.Input((measures.length,), dtype="int32", name="token_ids")
    embedding = keras.layers.ReversibleEmbedding(measures.vocabulary_size, measures.hidden_dim)
    x = PositionTable(measures.length)(embedding(token_ids))
    for _ in range(measures.num_layers):
        x = _plain_block(x, measures, epsilon=1e-5, causal=True)
    logits = embedding(keras.layers.LayerNormalization(epsilon=1e-5)(x), reverse=True)
    return keras.Model(token_ids, logits, name="keras_layers")


def _gelu_tanh(x):
    return keras.activations.gelu(x, approximate=True)


def _plain_block(x, measures, epsilon, attention_mask=None, causal=False):
    y = keras.layers.LayerNormalization(epsilon=epsilon)(x)
    key_dim = measures.hidden_dim // measures.num_heads
    attention = keras.layers.MultiHeadAttention(measures.num_heads, key_dim, dropout=measures.dropout)
    x = x + keras.layers.Dropout(measures.dropout)(
        attention(y, y, attention_mask=attention_mask, use_causal_mask=causal)
    )
    y = keras.layers.LayerNormalization(epsilon=epsilon)(x)
    y = keras.layers.Dense(measures.intermediate_dim, activation=_gelu_tanh if causal else "gelu")(y)
    y = keras.layers.Dense(measures.hidden_dim)(y)
    return x + keras.layers.Dropout(measures.dropout)(y)


def _text_inputs():
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    return token_ids, keras.Input((None,), dtype="bool", name="padding_mask")


class PositionTable(keras.layers.Layer):
    """Learned position embedding; `keras.layers` has none."""

    def __init__(self, length, **kwargs):
        super().__init__(**kwargs)
        self.length = length

    def build(self, input_shape):
        self.table = self.add_weight(shape=(self.length, input_shape[-1]), initializer="random_normal")

    def call(self, x):
        return x + ops.cast(ops.expand_dims(ops.convert_to_tensor(self.table)[: ops.shape(x)[1]], 0), x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


class ClassToken(keras.layers.Layer):
    """Learned class token; `keras.layers` has none."""

    def build(self, input_shape):
        self.token = self.add_weight(shape=(1, 1, input_shape[-1]), initializer="zeros")

    def call(self, x):
        token = ops.broadcast_to(ops.cast(self.token, x.dtype), (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[1] + 1, input_shape[2])


VITS = {"ours": our_vit, "keras_layers": plain_vit, "keras_hub": hub_vit}
ENCODERS = {"ours": our_encoder, "keras_layers": plain_encoder, "keras_hub": hub_encoder}
