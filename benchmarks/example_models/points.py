"""Models of points and rays."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, uniform


class Orthogonal(keras.regularizers.Regularizer):
    """How far a square matrix is from a rotation."""

    def __init__(self, size, factor=0.001):
        self.size, self.factor = size, factor

    def __call__(self, x):
        x = ops.reshape(x, (-1, self.size, self.size))
        product = ops.tensordot(x, x, axes=(2, 2))
        return ops.sum(self.factor * ops.square(product - ops.reshape(ops.eye(self.size), (1, 3, 1, 3))))

    def get_config(self):
        return {"size": self.size, "factor": self.factor}


def _dense(x, width):
    return layers.ReLU()(layers.BatchNormalization(momentum=0.0)(layers.Dense(width)(x)))


def point_net():
    """PointNet: points turned by a small network, features of each, and their maximum; any number of points."""
    points = keras.Input((None, 3), name="points")
    start = keras.initializers.Constant(np.eye(3).ravel())
    x = layers.GlobalMaxPooling1D()(_dense(_dense(points, 8), 12))
    turn = layers.Dense(9, kernel_initializer="zeros", bias_initializer=start, activity_regularizer=Orthogonal(3))(x)
    x = layers.Dot(axes=(2, 1))([points, layers.Reshape((3, 3))(turn)])
    x = layers.GlobalMaxPooling1D()(_dense(_dense(x, 8), 16))
    model = keras.Model(points, layers.Dense(4, "softmax")(layers.Dropout(0.3)(_dense(x, 8))))
    return trained(model, normal(ROWS, 32, 3), integers(4, ROWS), "sparse_categorical_crossentropy")


class EdgeConvolution(layers.Layer):
    """Features of each point and of its nearest ones."""

    def __init__(self, width, neighbors=4, **options):
        super().__init__(**options)
        self.dense, self.neighbors = layers.Dense(width, "relu"), neighbors

    def call(self, points):
        square = tf.reduce_sum(points**2, axis=-1, keepdims=True)
        distances = square - 2 * tf.matmul(points, points, transpose_b=True) + tf.transpose(square, (0, 2, 1))
        _, nearest = tf.math.top_k(-distances, self.neighbors)
        around = tf.gather(points, nearest, batch_dims=1)
        center = tf.tile(points[:, :, None], (1, 1, self.neighbors, 1))
        return tf.reduce_max(self.dense(tf.concat([center, around - center], axis=-1)), axis=2)


def dynamic_graph():
    """DGCNN: convolutions over the nearest points, found again in each layer."""
    points = keras.Input((16, 3), name="points")
    first = EdgeConvolution(8)(points)
    second = EdgeConvolution(8)(first)
    x = layers.Concatenate()([first, second])
    model = keras.Model(points, layers.Dense(3, "softmax")(layers.GlobalMaxPooling1D()(x)))
    return trained(model, normal(ROWS, 16, 3), integers(3, ROWS), "sparse_categorical_crossentropy")


class VolumeRendering(layers.Layer):
    """Color and depth along rays, by what light passes each sample."""

    def call(self, inputs):
        values, depths = inputs
        color, density = tf.sigmoid(values[..., :3]), tf.nn.relu(values[..., 3])
        steps = tf.concat([depths[..., 1:] - depths[..., :-1], tf.fill(tf.shape(depths[..., :1]), 1e10)], axis=-1)
        alpha = 1.0 - tf.exp(-density * steps)
        passed = tf.math.cumprod(1.0 - alpha + 1e-10, axis=-1, exclusive=True)
        weights = alpha * passed
        return {
            "color": tf.reduce_sum(weights[..., None] * color, axis=-2),
            "depth": tf.reduce_sum(weights * depths, axis=-1),
        }


def _encoded(places):
    waves = [places]
    for power in range(3):
        waves += [tf.sin(2.0**power * places), tf.cos(2.0**power * places)]
    return tf.concat(waves, axis=-1)


def radiance_field():
    """NeRF: colors of rays, of encoded places through a network with a skip, rendered in the model."""
    places, depths = keras.Input((8, 3), name="places"), keras.Input((8,), name="depths")
    encoded = x = layers.Lambda(_encoded)(places)
    for number in range(3):
        x = layers.Dense(12, "relu")(x)
        x = layers.Concatenate()([x, encoded]) if number == 1 else x
    outputs = VolumeRendering()([layers.Dense(4)(x), depths])
    inputs = [normal(ROWS, 8, 3), np.sort(uniform(ROWS, 8, low=2, high=6), axis=-1)]
    return trained(
        keras.Model([places, depths], outputs), inputs, {"color": uniform(ROWS, 3)}, {"color": "mse", "depth": None}
    )


EXAMPLES = (point_net, dynamic_graph, radiance_field)
