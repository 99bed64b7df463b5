"""Models that draw: autoencoders, codes, diffusion, flows."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, uniform


class Sampling(layers.Layer):
    """A draw from a normal distribution, by its mean and the logarithm of its variance."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        self.add_loss(-0.5 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance)))
        return mean + ops.exp(0.5 * log_variance) * noise


def variational_autoencoder():
    """A convolutional variational autoencoder, with its sampling."""
    images = keras.Input((12, 12, 1), name="images")
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(images)
    x = layers.Dense(8, "relu")(layers.Flatten()(x))
    mean, log_variance = layers.Dense(2, name="mean")(x), layers.Dense(2)(x)
    z = Sampling()([mean, log_variance])
    x = layers.Reshape((6, 6, 8))(layers.Dense(6 * 6 * 8, "relu")(z))
    drawn = layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid", name="drawn")(x)
    pictures = uniform(ROWS, 12, 12, 1)
    loss = {"drawn": "binary_crossentropy", "mean": None}
    return trained(keras.Model(images, {"drawn": drawn, "mean": mean}), pictures, {"drawn": pictures}, loss)


class Codebook(layers.Layer):
    """Each vector becomes the nearest of a book; gradients go past it."""

    def __init__(self, number, **options):
        super().__init__(**options)
        self.number = number

    def build(self, shape):
        self.book = self.add_weight(shape=(shape[-1], self.number), initializer="random_uniform", name="book")

    def call(self, x):
        flat = tf.reshape(x, (-1, tf.shape(x)[-1]))
        distances = (
            tf.reduce_sum(flat**2, axis=1, keepdims=True)
            + tf.reduce_sum(self.book**2, axis=0)
            - 2 * tf.matmul(flat, self.book)
        )
        codes = tf.argmin(distances, axis=1)
        nearest = tf.reshape(tf.matmul(tf.one_hot(codes, self.number), self.book, transpose_b=True), tf.shape(x))
        self.add_loss(tf.reduce_mean((tf.stop_gradient(nearest) - x) ** 2))
        return x + tf.stop_gradient(nearest - x)


def vector_quantized():
    """VQ-VAE: pictures through a book of codes."""
    images = keras.Input((12, 12, 1), name="images")
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(images)
    x = Codebook(16)(layers.Conv2D(4, 1)(x))
    x = layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="relu")(x)
    pictures = uniform(ROWS, 12, 12, 1)
    return trained(keras.Model(images, layers.Conv2D(1, 1)(x)), pictures, pictures, "mse")


class TimeEmbedding(layers.Layer):
    """Sines and cosines of a time."""

    def __init__(self, width, **options):
        super().__init__(**options)
        self.rates = tf.exp(tf.range(width // 2, dtype=tf.float32) * -(np.log(10000.0) / (width // 2 - 1)))

    def call(self, times):
        angles = tf.cast(times, tf.float32)[:, None] * self.rates[None]
        return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


def _residual(x, time, width):
    skip = x if x.shape[-1] == width else layers.Conv2D(width, 1)(x)
    x = layers.Conv2D(width, 3, padding="same")(layers.Activation("swish")(layers.GroupNormalization(2)(x)))
    x = x + layers.Dense(width)(time)[:, None, None, :]
    x = layers.Conv2D(width, 3, padding="same")(layers.Activation("swish")(layers.GroupNormalization(2)(x)))
    return x + skip


def diffusion():
    """The network of a diffusion model: noisy pictures and the times, with attention in the middle."""
    images, times = keras.Input((8, 8, 4), name="images"), keras.Input((), dtype="int64", name="times")
    time = layers.Dense(8, "swish")(TimeEmbedding(8)(times))
    first = _residual(layers.Conv2D(6, 3, padding="same")(images), time, 6)
    x = _residual(layers.AveragePooling2D(2)(first), time, 8)
    tokens = layers.Reshape((16, 8))(x)
    x = x + layers.Reshape((4, 4, 8))(layers.MultiHeadAttention(1, 8)(tokens, tokens))
    x = layers.Concatenate()([layers.UpSampling2D(2, interpolation="nearest")(x), first])
    model = keras.Model([images, times], layers.Conv2D(4, 3, padding="same")(_residual(x, time, 6)))
    noise = normal(ROWS, 8, 8, 4)
    return trained(model, [noise, integers(1000, ROWS, dtype="int64")], noise, "mse")


class Flow(keras.Model):
    """Real NVP: couplings that scale and shift one half by the other, and the logarithm of the determinant."""

    def __init__(self, couplings=3, width=4):
        super().__init__()
        rows = np.arange(width) % 2
        self.masks = tf.constant(np.stack([(rows + number) % 2 for number in range(couplings)]), tf.float32)
        self.scales = [
            keras.Sequential([layers.Dense(8, "relu"), layers.Dense(width, "tanh")]) for _ in range(couplings)
        ]
        self.shifts = [keras.Sequential([layers.Dense(8, "relu"), layers.Dense(width)]) for _ in range(couplings)]

    def call(self, x):
        total = 0.0
        for number, (scales, shifts) in enumerate(zip(self.scales, self.shifts, strict=True)):
            kept = x * self.masks[number]
            free = 1 - self.masks[number]
            scale, shift = scales(kept) * free, shifts(kept) * free
            x = kept + free * (x * tf.exp(scale) + shift)
            total += tf.reduce_sum(scale, axis=[1])
        return {"latent": x, "log_determinant": total}


def normalizing_flow():
    """Real NVP, a subclassed model with two outputs."""
    loss = {"latent": "mse", "log_determinant": None}
    return trained(Flow(), normal(ROWS, 4), {"latent": normal(ROWS, 4)}, loss)


def conditional_generator():
    """The generator of a conditional GAN: noise and a class to a picture."""
    noise, labels = keras.Input((8,), name="noise"), keras.Input((1,), dtype="int32", name="labels")
    x = layers.Concatenate()([noise, layers.Flatten()(layers.Embedding(5, 4)(labels))])
    x = layers.Reshape((4, 4, 8))(layers.LeakyReLU(0.2)(layers.Dense(128, use_bias=False)(x)))
    for width in (8, 6):
        x = layers.Conv2DTranspose(width, 4, strides=2, padding="same", use_bias=False)(x)
        x = layers.LeakyReLU(0.2)(layers.BatchNormalization(momentum=0.8)(x))
    model = keras.Model([noise, labels], layers.Conv2D(1, 7, padding="same", activation="tanh")(x))
    return trained(model, [normal(ROWS, 8), integers(5, ROWS, 1)], uniform(ROWS, 16, 16, 1), "mse")


EXAMPLES = (variational_autoencoder, vector_quantized, diffusion, normalizing_flow, conditional_generator)
