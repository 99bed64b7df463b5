"""Functions that build small models, for the worker script and for tests that import its classes."""

import keras
from keras import layers, ops


def talking_model(template, spread=0.8):
    """A language model of random weights, whose tokenizer has a chat template."""
    import numpy as np

    from keras_transformer import models, tasks
    from keras_transformer.text import BytePair, HuggingFaceTokenizer

    source = BytePair.train(["the cat sat on the mat and the dog sat on the cat"], 290)
    content = source._files()["tokenizer.json"].decode()
    tokenizer = HuggingFaceTokenizer(content, source.special_tokens, chat_template=template)
    size = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=24)
    backbone = models.Decoder(size, tokenizer.vocabulary_size, position="rotary")
    model, random = (
        tasks.LanguageModel(backbone, tokenizer=tokenizer, end_id=tokenizer.end_id),
        np.random.default_rng(0),
    )
    for weight in model.weights:
        weight.assign(random.normal(0, spread, weight.shape))
    return model


@keras.saving.register_keras_serializable(package="export_tests")
class Eigenvalues(layers.Layer):
    def call(self, inputs):
        return ops.real(ops.eig(inputs)[0])


class Doubled(layers.Layer):
    def call(self, inputs):
        return ops.map(lambda row: 2 * row, inputs)


class Noise(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        return inputs + keras.random.truncated_normal((4,), seed=self.seed_generator)


class CacheUpdate(layers.Layer):
    """Writes `new` (B, T, H) into `cache` (B, S, H) at each row's own index."""

    def call(self, cache, new, index):
        shape = ops.shape(new)
        rows = ops.broadcast_to(ops.expand_dims(ops.arange(shape[0], dtype="int32"), 1), shape[:2])
        columns = ops.expand_dims(index, 1) + ops.expand_dims(ops.arange(shape[1], dtype="int32"), 0)
        places = ops.reshape(ops.stack([rows, columns], -1), (-1, 2))
        return ops.scatter_update(cache, places, ops.reshape(new, (-1, new.shape[-1])))


class SliceUpdate(layers.Layer):
    def call(self, cache, new, start):
        return ops.slice_update(cache, (0, start[0], 0), new)


def mlp():
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(16, "relu"), layers.Dense(3, "softmax", name="probabilities")]
    )


def keras_int8():
    """Dense and einsum layers quantized by Keras: 8-bit products and activation scales."""
    x = keras.Input((None, 8), name="x")
    h = layers.EinsumDense("bte,enh->btnh", (None, 2, 4), name="heads")(x)
    h = layers.EinsumDense("btnh,nhe->bte", (None, 8), name="joined")(h)
    model = keras.Model(x, layers.Dense(3, name="output")(h))
    model.quantize("int8")
    return model


def encoder(vocabulary_size=50, width=32, heads=4):
    """Two pre-norm encoder layers with exact GELU, a padding mask, and two outputs in a dict."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    x = layers.Embedding(vocabulary_size, width)(token_ids)
    mask = ops.expand_dims(padding_mask, 1)
    for index in range(2):
        h = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(heads, width // heads, name=f"attention_{index}")(h, h, attention_mask=mask)
        h = layers.LayerNormalization()(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(h))
    pooled = layers.Dense(7, name="head")(x[:, 0])
    return keras.Model({"token_ids": token_ids, "padding_mask": padding_mask}, {"sequence": x, "pooled": pooled})


def two_lengths():
    source = keras.Input((None, 16), name="source_values")
    target = keras.Input((None, 16), name="target_values")
    mask = keras.Input((None,), dtype="bool", name="source_mask")
    x = layers.MultiHeadAttention(2, 8)(target, source, attention_mask=ops.expand_dims(mask, 1))
    return keras.Model([source, target, mask], layers.Dense(3)(x))


def cache_scatter():
    cache = keras.Input((32, 8), name="cache")
    new = keras.Input((None, 8), name="new")
    index = keras.Input((), dtype="int32", name="cache_index")
    updated = CacheUpdate()(cache, new, index)
    return keras.Model([cache, new, index], {"cache": updated, "total": ops.sum(updated, axis=(1, 2))})


def cache_slice():
    cache = keras.Input((32, 8), name="cache")
    new = keras.Input((None, 8), name="new")
    start = keras.Input((), batch_size=1, dtype="int32", name="start")
    return keras.Model([cache, new, start], SliceUpdate(name="write")(cache, new, start))


def any_image():
    images = keras.Input((None, None, 3), name="images")
    x = layers.MaxPool2D()(layers.Conv2D(8, 3, padding="same", activation="gelu")(images))
    x = layers.Conv2D(4, 3, strides=2, padding="same")(x)
    return keras.Model(images, [x, layers.GlobalAveragePooling2D()(x)])


def same_tensor():
    x = keras.Input((4,), name="x")
    return keras.Model(x, {"same": x, "again": x, "twice": x * 2})


def whole_numbers():
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    scores = layers.Dense(11)(layers.Embedding(1000, 16)(token_ids))
    values, indices = ops.top_k(scores, 3)
    return keras.Model(token_ids, {"values": values, "indices": indices, "positive": ops.greater(scores, 0)})


def masked_embedding():
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    x = layers.Embedding(30, 16, mask_zero=True)(token_ids)
    return keras.Model(token_ids, layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(2, 8)(x, x)))


def image_transformer():
    import keras_hub

    return keras_hub.models.ViTBackbone(
        image_shape=(32, 32, 3), patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64
    )


class NewAxes(layers.Layer):
    """Indexing with None at every axis, on a mask of dynamic shape, and signs of integers."""

    def call(self, mask, values):
        weights = ops.cast(mask[:, None, :], "float32") * ops.cast(mask[..., None], "float32")
        steps = ops.arange(ops.shape(values)[1])
        distances = steps[None, :] - steps[:, None]
        long = ops.cast(distances, "int64")
        bias = ops.cast(ops.abs(distances) * 3 + ops.sign(distances), "float32")
        bias = bias + ops.cast(ops.abs(long) * 5 + ops.sign(long), "float32")
        return weights * bias[None], values[:, 0, None, ..., None], values[None, :, -1]


def rolled():
    """Rolls in both directions, over one and two axes; TFLite has no such operation."""
    x = keras.Input((None, 4, 3), name="x")
    both = ops.roll(ops.roll(x, 1, axis=1), -2, axis=2)
    return keras.Model(x, {"both": both, "last": ops.roll(x, 2, axis=3)})


def indexing():
    mask = keras.Input((None,), dtype="bool", name="mask")
    values = keras.Input((None, 4), name="values")
    return keras.Model([mask, values], NewAxes()(mask, values))


def _positive(x):
    """Positive definite matrices."""
    return ops.matmul(x, ops.transpose(x, (0, 2, 1))) + 8 * ops.eye(8)


def with_eigenvalues():
    x = keras.Input((8, 8), name="x")
    return keras.Model(x, Eigenvalues(name="my_values")(_positive(layers.Dense(8)(x))))


def with_functional_eigenvalues():
    x = keras.Input((8, 8), name="x")
    return keras.Model(x, ops.real(ops.eig(_positive(layers.Dense(8)(x)))[0]))


def with_map():
    x = keras.Input((None, 8), name="x")
    return keras.Model(x, Doubled(name="rows")(x))


def with_noise():
    x = keras.Input((4,), name="x")
    return keras.Model(x, Noise()(x))
