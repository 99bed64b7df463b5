"""Detectors: anchors, centers, grids, queries."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, uniform


def _backbone(images, strides=(2, 2)):
    """Feature maps of growing stride."""
    x, maps = layers.Rescaling(1 / 255)(images), []
    for number, stride in enumerate(strides):
        x = layers.Conv2D(8 * (number + 1), 3, strides=stride, padding="same", use_bias=False)(x)
        x = layers.Activation("swish")(layers.BatchNormalization()(x))
        maps.append(x)
    return maps


class DecodeBoxes(layers.Layer):
    """Boxes of anchors and their offsets, without those that overlap a better one."""

    def __init__(self, side, strides, **options):
        super().__init__(**options)
        self.side, self.strides = side, strides

    def anchors(self):
        found = []
        for stride in self.strides:
            centers = (tf.range(self.side // stride, dtype=tf.float32) + 0.5) * stride
            grid = tf.stack(tf.meshgrid(centers, centers), axis=-1)
            sizes = tf.fill(tf.shape(grid), 4.0 * stride)
            found.append(tf.reshape(tf.concat([grid, sizes], axis=-1), (-1, 4)))
        return tf.concat(found, axis=0)

    def call(self, predictions):
        anchors = self.anchors()
        centers = predictions[..., :2] * 0.1 * anchors[:, 2:] + anchors[:, :2]
        sizes = tf.exp(predictions[..., 2:4] * 0.2) * anchors[:, 2:]
        boxes = tf.concat([centers - sizes / 2, centers + sizes / 2], axis=-1)
        found = tf.image.combined_non_max_suppression(
            boxes[:, :, None], tf.sigmoid(predictions[..., 4:]), 5, 8, 0.5, 0.05, clip_boxes=False
        )
        return {"boxes": found.nmsed_boxes, "scores": found.nmsed_scores, "count": found.valid_detections}


def retina_net():
    """RetinaNet: a feature pyramid, shared heads, anchors, and non-maximum suppression in the model."""
    images = keras.Input((32, 32, 3), name="images")
    _, fine, coarse = _backbone(images, (2, 2, 2))
    coarse = layers.Conv2D(8, 1)(coarse)
    fine = layers.Add()([layers.Conv2D(8, 1)(fine), layers.UpSampling2D(2)(coarse)])
    head = keras.Sequential(
        [
            keras.Input((None, None, 8)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.Conv2D(7, 3, padding="same"),
        ]
    )
    found = layers.Concatenate(axis=1)([layers.Reshape((-1, 7))(head(each)) for each in (fine, coarse)])
    training = keras.Model(images, found)
    pixels = uniform(ROWS, 32, 32, 3, high=255)
    _, three = trained(training, pixels, normal(ROWS, 80, 7), "huber")
    return keras.Model(images, DecodeBoxes(32, (4, 8))(found)), three


class Peaks(layers.Layer):
    """The best peaks of a heat map of classes, with their sizes."""

    def call(self, inputs):
        heat, sizes = inputs
        is_peak = ops.equal(ops.max_pool(heat, 3, strides=1, padding="same"), heat)
        height, width, classes = heat.shape[1:]
        scores, places = ops.top_k(ops.reshape(heat * ops.cast(is_peak, heat.dtype), (-1, height * width * classes)), 6)
        cells = places // classes
        sizes = ops.take_along_axis(ops.reshape(sizes, (-1, height * width, 2)), cells[..., None], axis=1)
        centers = ops.stack([cells % width, cells // width], axis=-1)
        return {"scores": scores, "classes": places % classes, "centers": centers, "sizes": sizes}


def center_net():
    """CenterNet: objects are peaks of a heat map."""
    images = keras.Input((32, 32, 3), name="images")
    x = layers.Conv2DTranspose(8, 4, strides=2, padding="same", activation="relu")(_backbone(images)[-1])
    heat = layers.Conv2D(3, 1, activation="sigmoid", name="heat")(x)
    sizes = layers.Conv2D(2, 1, activation="softplus", name="size")(x)
    pixels = uniform(ROWS, 32, 32, 3, high=255)
    targets = {"heat": uniform(ROWS, 16, 16, 3), "size": uniform(ROWS, 16, 16, 2)}
    _, three = trained(keras.Model(images, {"heat": heat, "size": sizes}), pixels, targets, "mse")
    return keras.Model(images, Peaks()([heat, sizes])), three


def _grid_boxes(x):
    """Boxes in an image from 0 to 1, of what a grid says; `tf` in a Lambda."""
    height, width = tf.shape(x)[1], tf.shape(x)[2]
    x = tf.reshape(x, (-1, height, width, 2, 7))
    columns, rows = tf.meshgrid(tf.range(width), tf.range(height))
    cells = tf.cast(tf.stack([columns, rows], -1), x.dtype)[None, :, :, None]
    anchors = tf.constant([[0.2, 0.3], [0.6, 0.5]], x.dtype)
    centers = (tf.sigmoid(x[..., :2]) + cells) / tf.cast(tf.stack([width, height]), x.dtype)
    return tf.concat([centers, tf.exp(x[..., 2:4]) * anchors, tf.sigmoid(x[..., 4:])], axis=-1)


def yolo():
    """YOLO on images of any size: space to depth, spatial pyramid pooling, a grid of boxes."""
    images = keras.Input((None, None, 3), name="images")
    x = layers.Lambda(lambda each: tf.nn.space_to_depth(each, 2))(images)
    x = layers.Conv2D(8, 3, padding="same")(_backbone(x)[-1])
    x = layers.LeakyReLU(negative_slope=0.1)(layers.BatchNormalization()(x))
    pools = [layers.MaxPooling2D(size, strides=1, padding="same")(x) for size in (3, 5)]
    x = layers.Conv2D(14, 1)(layers.Concatenate()([x, *pools]))
    pixels = uniform(ROWS, 32, 32, 3, high=255)
    return trained(keras.Model(images, layers.Lambda(_grid_boxes)(x)), pixels, uniform(ROWS, 4, 4, 2, 7), "mse")


class Queries(layers.Layer):
    """Learned queries, the same for each image."""

    def __init__(self, number, width, **options):
        super().__init__(**options)
        self.shape = (number, width)

    def build(self, shape):
        self.queries = self.add_weight(shape=self.shape, initializer="random_normal", name="queries")

    def call(self, x):
        return ops.broadcast_to(self.queries, (ops.shape(x)[0], *self.shape))


def detr():
    """DETR: an encoder of feature maps with sinusoidal positions, and queries that read it."""
    images = keras.Input((32, 32, 3), name="images")
    x = layers.Reshape((-1, 16))(_backbone(images, (2, 4))[-1])
    angles = np.arange(16)[:, None] / 100 ** (np.arange(8) / 8)
    positions = np.concatenate([np.sin(angles), np.cos(angles)], -1).astype("float32")
    keys = layers.Lambda(lambda each: each + positions)(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(keys, x, keys))
    queries = Queries(5, 16)(x)
    queries = layers.LayerNormalization()(queries + layers.MultiHeadAttention(2, 8)(queries, queries))
    queries = layers.LayerNormalization()(queries + layers.MultiHeadAttention(2, 8)(queries, x))
    outputs = {
        "classes": layers.Dense(4, "softmax", name="classes")(queries),
        "boxes": layers.Dense(4, "sigmoid", name="boxes")(layers.Dense(16, "relu")(queries)),
    }
    targets = {"classes": integers(4, ROWS, 5), "boxes": uniform(ROWS, 5, 4)}
    loss = {"classes": "sparse_categorical_crossentropy", "boxes": "mae"}
    return trained(keras.Model(images, outputs), uniform(ROWS, 32, 32, 3, high=255), targets, loss)


EXAMPLES = (retina_net, center_net, yolo, detr)
