"""Models of images: segmentation, super-resolution, style, light, classes."""

import keras
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, uniform


def u_net():
    """U-Net on images of any size: transposed convolutions and skips."""
    images = keras.Input((None, None, 3), name="images")
    x, skips = images, []
    for width in (6, 8):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        skips.append(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D(2)(skips[-1])
    x = layers.Conv2D(12, 3, padding="same", activation="relu")(x)
    for width, skip in ((8, skips[1]), (6, skips[0])):
        x = layers.Concatenate()([layers.Conv2DTranspose(width, 3, strides=2, padding="same")(x), skip])
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    model = keras.Model(images, layers.Conv2D(3, 1, activation="softmax")(x))
    return trained(model, uniform(ROWS, 16, 16, 3), integers(3, ROWS, 16, 16), "sparse_categorical_crossentropy")


def super_resolution():
    """Images of any size three times as large: sub-pixel convolution by `tf.nn.depth_to_space`."""
    images = keras.Input((None, None, 1), name="images")
    x = layers.Conv2D(8, 5, padding="same", activation="tanh", kernel_initializer="orthogonal")(images)
    x = layers.Conv2D(9, 3, padding="same", kernel_initializer="orthogonal")(x)
    x = layers.Lambda(lambda each: tf.nn.depth_to_space(each, 3))(x)
    wide = layers.UpSampling2D(3, interpolation="bilinear")(images)
    model = keras.Model(images, layers.Lambda(lambda each: tf.clip_by_value(each, 0.0, 1.0))(x + wide))
    return trained(model, uniform(ROWS, 8, 8, 1), uniform(ROWS, 24, 24, 1), "mse")


class ReflectionPadding(layers.Layer):
    def call(self, images):
        return tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="REFLECT")


class AdaptiveNorm(layers.Layer):
    """The content with the mean and deviation that the style has in each channel."""

    def call(self, inputs):
        content, style = inputs
        mean, variance = tf.nn.moments(content, axes=[1, 2], keepdims=True)
        style_mean, style_variance = tf.nn.moments(style, axes=[1, 2], keepdims=True)
        return (content - mean) / tf.sqrt(variance + 1e-5) * tf.sqrt(style_variance + 1e-5) + style_mean


def style_transfer():
    """AdaIN: a picture in the style of another one, with reflected borders and resized features."""
    content, style = keras.Input((24, 24, 3), name="content"), keras.Input((24, 24, 3), name="style")
    encoder = keras.Sequential(
        [ReflectionPadding(), layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(2), layers.Conv2D(8, 1)]
    )
    x = AdaptiveNorm()([encoder(content), encoder(style)])
    x = layers.Lambda(lambda each: tf.image.resize(each, (24, 24), method="nearest"))(x)
    x = layers.Conv2D(3, 3, activation="sigmoid")(ReflectionPadding()(layers.GroupNormalization(-1)(x)))
    images = uniform(ROWS, 24, 24, 3)
    return trained(keras.Model([content, style], x), [images, images[::-1].copy()], images, "mae")


class EnhanceLight(layers.Layer):
    """The curve of Zero-DCE, applied again and again with other parameters."""

    def call(self, inputs):
        image, parameters = inputs
        for curve in tf.split(parameters, 4, axis=-1):
            image = image + curve * (tf.square(image) - image)
        return image


def low_light():
    """Zero-DCE: dark pictures of any size brightened by learned curves."""
    images = keras.Input((None, None, 3), name="images")
    first = layers.Conv2D(8, 3, padding="same", activation="relu")(images)
    second = layers.DepthwiseConv2D(3, padding="same", activation="relu")(first)
    curves = layers.Conv2D(12, 3, padding="same", activation="tanh")(layers.Concatenate()([first, second]))
    pictures = uniform(ROWS, 16, 16, 3, high=0.3)
    return trained(keras.Model(images, EnhanceLight()([images, curves])), pictures, pictures * 2, "mse")


def mlp_mixer():
    """MLP-Mixer of bytes: resized, augmented in training, cut into patches, mixed."""
    images = keras.Input((20, 24, 3), dtype="uint8", name="images")
    x = layers.Rescaling(1 / 127.5, offset=-1)(layers.Resizing(16, 16)(images))
    x = layers.RandomRotation(0.02)(layers.RandomFlip("horizontal")(x))
    x = layers.Lambda(lambda each: ops.image.extract_patches(each, 4))(x)
    x = layers.Dense(12)(layers.Reshape((16, 48))(x))
    for _ in range(2):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dense(16)(layers.Dense(24, "gelu")(y))
        x = x + layers.Permute((2, 1))(y)
        x = x + layers.Dense(12)(layers.Dense(24, "gelu")(layers.LayerNormalization()(x)))
    model = keras.Model(images, layers.Dense(5, "softmax")(layers.GlobalAveragePooling1D()(x)))
    pixels = integers(256, ROWS, 20, 24, 3, dtype="uint8")
    return trained(model, pixels, integers(5, ROWS), "sparse_categorical_crossentropy")


class Latents(layers.Layer):
    """Learned latent vectors that read a long input by cross-attention."""

    def build(self, shape):
        self.latents = self.add_weight(shape=(6, 12), initializer="random_normal", name="latents")
        self.attention, self.norm = layers.MultiHeadAttention(2, 6), layers.LayerNormalization()

    def call(self, x):
        latents = ops.repeat(self.latents[None], ops.shape(x)[0], axis=0)
        return self.norm(latents + self.attention(latents, x))


def perceiver():
    """Perceiver: a few latent vectors read all pixels with their Fourier features."""
    images = keras.Input((12, 12, 3), name="images")

    def with_places(each):
        places = ops.stack(ops.meshgrid(ops.linspace(-1.0, 1.0, 12), ops.linspace(-1.0, 1.0, 12)), axis=-1)
        angles = ops.reshape(places[..., None] * (2.0 ** ops.arange(3, dtype="float32")) * 3.14159265, (12, 12, 6))
        waves = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.concatenate([each, ops.broadcast_to(waves, (ops.shape(each)[0], 12, 12, 12))], axis=-1)

    x = Latents()(layers.Reshape((144, 15))(layers.Lambda(with_places)(images)))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 6)(x, x))
    model = keras.Model(images, layers.Dense(4, "softmax")(layers.GlobalAveragePooling1D()(x)))
    return trained(model, uniform(ROWS, 12, 12, 3), integers(4, ROWS), "sparse_categorical_crossentropy")


class Capsules(layers.Layer):
    """Capsules with dynamic routing: agreements decide what goes where."""

    def __init__(self, number, width, **options):
        super().__init__(**options)
        self.number, self.width = number, width

    def build(self, shape):
        self.kernel = self.add_weight(shape=(1, shape[1], self.number, self.width, shape[2]), name="kernel")

    def call(self, inputs):
        votes = tf.squeeze(tf.matmul(self.kernel, inputs[:, :, None, :, None]), -1)
        logits = tf.zeros_like(votes[..., 0])
        for step in range(3):
            found = _squash(tf.reduce_sum(tf.nn.softmax(logits, axis=2)[..., None] * votes, axis=1))
            if step < 2:
                logits += tf.reduce_sum(votes * found[:, None], axis=-1)
        return tf.norm(found, axis=-1)


def _squash(x):
    square = tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)
    return square / (1 + square) * x / tf.sqrt(square + 1e-7)


def capsules():
    """A capsule network with three rounds of routing."""
    images = keras.Input((14, 14, 1), name="images")
    x = layers.Conv2D(16, 5, strides=3, activation="relu")(images)
    x = layers.Lambda(_squash)(layers.Reshape((-1, 4))(x))
    return trained(keras.Model(images, Capsules(5, 6)(x)), uniform(ROWS, 14, 14, 1), uniform(ROWS, 5), "mse")


def siamese():
    """Two signatures, one network, and their distance; trained to tell same from other."""
    left, right = keras.Input((16, 16, 1), name="left"), keras.Input((16, 16, 1), name="right")
    network = keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            layers.Conv2D(6, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.BatchNormalization(),
            layers.Dense(8, "tanh"),
        ]
    )

    def distance(pair):
        return tf.sqrt(tf.maximum(tf.reduce_sum(tf.square(pair[0] - pair[1]), 1, keepdims=True), 1e-7))

    x = layers.BatchNormalization()(layers.Lambda(distance)([network(left), network(right)]))
    model = keras.Model([left, right], layers.Dense(1, "sigmoid")(x))
    inputs = [normal(ROWS, 16, 16, 1), normal(ROWS, 16, 16, 1)]
    return trained(model, inputs, integers(2, ROWS, 1, dtype="float32"), "binary_crossentropy")


EXAMPLES = (u_net, super_resolution, style_transfer, low_light, mlp_mixer, perceiver, capsules, siamese)
