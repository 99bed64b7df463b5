"""Models that read and write words: text in images, captions, strings, tags."""

import keras
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained, uniform, words


def _ctc(labels, probabilities):
    lengths = [ops.full((ops.shape(each)[0],), ops.shape(each)[1], dtype="int32") for each in (labels, probabilities)]
    return ops.ctc_loss(labels, ops.log(probabilities + 1e-7), *lengths, mask_index=0)


class BestPath(layers.Layer):
    """The letters of the best path, without repetitions and blanks, padded by -1."""

    def call(self, probabilities):
        lengths = ops.full((ops.shape(probabilities)[0],), ops.shape(probabilities)[1], dtype="int32")
        letters, _ = ops.ctc_decode(probabilities, lengths, strategy="greedy", mask_index=0)
        return letters[0]


def captcha():
    """CRNN: columns of an image, two-sided LSTMs, CTC, and the best path in the model."""
    images = keras.Input((32, 16, 1), name="images")
    x = images
    for width in (8, 12):
        x = layers.MaxPooling2D(2)(layers.Conv2D(width, 3, padding="same", activation="relu")(x))
    x = layers.Dense(16, "relu")(layers.Reshape((8, -1))(x))
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(layers.Dropout(0.2)(x))
    letters = layers.Dense(11, "softmax")(x)
    training = keras.Model(images, letters)
    _, three = trained(training, uniform(ROWS, 32, 16, 1), integers(10, ROWS, 3) + 1, _ctc)
    return keras.Model(images, {"probabilities": letters, "letters": BestPath()(letters)}), three


class SpatialTransformer(layers.Layer):
    """Images as an affine map sees them, by bilinear interpolation of gathered pixels."""

    def call(self, inputs):
        images, parameters = inputs
        batch, (height, width) = tf.shape(images)[0], images.shape[1:3]
        columns, rows = tf.meshgrid(tf.linspace(-1.0, 1.0, width), tf.linspace(-1.0, 1.0, height))
        grid = tf.stack([tf.reshape(each, (-1,)) for each in (columns, rows, tf.ones_like(rows))])
        places = tf.matmul(tf.reshape(parameters, (-1, 2, 3)), tf.tile(grid[None], (batch, 1, 1)))
        x, y = ((places[:, axis] + 1) * (size - 1) / 2 for axis, size in ((0, width), (1, height)))
        left, top = tf.floor(x), tf.floor(y)

        def pixels(row, column):
            row = tf.clip_by_value(tf.cast(row, tf.int32), 0, height - 1)
            column = tf.clip_by_value(tf.cast(column, tf.int32), 0, width - 1)
            rows = tf.tile(tf.range(batch)[:, None], (1, height * width))
            return tf.gather_nd(images, tf.stack([rows, row, column], axis=-1))

        right, below = (x - left)[..., None], (y - top)[..., None]
        above = pixels(top, left) * (1 - right) + pixels(top, left + 1) * right
        under = pixels(top + 1, left) * (1 - right) + pixels(top + 1, left + 1) * right
        return tf.reshape(above * (1 - below) + under * below, (batch, height, width, images.shape[-1]))


def rectified_digits():
    """A spatial transformer in front of a classifier: grid sampling by gathers."""
    images = keras.Input((14, 14, 1), name="images")
    x = layers.Flatten()(layers.MaxPooling2D(2)(layers.Conv2D(4, 3, activation="relu")(images)))
    start = keras.initializers.Constant([1.0, 0.1, 0.05, -0.1, 0.9, 0.0])
    parameters = layers.Dense(6, kernel_initializer="zeros", bias_initializer=start)(layers.Dense(8, "tanh")(x))
    x = SpatialTransformer()([images, parameters])
    model = keras.Model(images, layers.Dense(10, "softmax")(layers.Flatten()(layers.Conv2D(4, 3)(x))))
    return trained(model, uniform(ROWS, 14, 14, 1), integers(10, ROWS), "sparse_categorical_crossentropy")


def captions():
    """Captions of images: a decoder that attends to the past words and to feature maps; any number of words."""
    images, ids = keras.Input((32, 32, 3), name="images"), keras.Input((None,), dtype="int32", name="words")
    x = layers.Conv2D(16, 8, strides=8, activation="relu")(images)
    features = layers.LayerNormalization()(layers.Reshape((-1, 16))(x))
    table = layers.Embedding(40, 16, mask_zero=True)
    x = table(ids)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, features))
    model = keras.Model([images, ids], layers.Dense(40)(layers.Dropout(0.3)(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return trained(model, [uniform(ROWS, 32, 32, 3), integers(39, ROWS, 7) + 1], integers(40, ROWS, 7), loss)


def sentiment():
    """Strings to a score: TextVectorization, convolutions over words of several widths."""
    texts = keras.Input((1,), dtype="string", name="texts")
    lines = words(["A good film!", "Not good at all.", "I was bored; so was he", ""], ROWS, 1)
    vectorize = layers.TextVectorization(max_tokens=30, output_sequence_length=8)
    vectorize.adapt(lines)
    x = layers.Embedding(30, 8)(vectorize(texts))
    pools = [layers.GlobalMaxPooling1D()(layers.Conv1D(4, size, activation="relu")(x)) for size in (2, 3)]
    model = keras.Model(texts, layers.Dense(1, "sigmoid")(layers.Concatenate()(pools)))
    return trained(model, lines, integers(2, ROWS, 1, dtype="float32"), "binary_crossentropy")


class Viterbi(layers.Layer):
    """The best sequence of tags, by the scores of tags and of their transitions."""

    def build(self, shape):
        self.transitions = self.add_weight(
            shape=(shape[-1], shape[-1]), initializer="random_normal", name="transitions"
        )

    def call(self, scores):
        best, pointers = scores[:, 0], []
        for step in range(1, scores.shape[1]):
            candidates = best[:, :, None] + self.transitions
            pointers.append(ops.argmax(candidates, axis=1))
            best = ops.max(candidates, axis=1) + scores[:, step]
        tags = [ops.argmax(best, axis=-1)]
        for pointer in reversed(pointers):
            tags.insert(0, ops.take_along_axis(pointer, tags[0][:, None], axis=1)[:, 0])
        return ops.stack(tags, axis=1)


def named_entities():
    """Tags of words: a two-sided LSTM and the best path of a conditional random field."""
    ids = keras.Input((10,), dtype="int32", name="words")
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(layers.Embedding(50, 12)(ids))
    scores = layers.Dense(5)(x)
    sentences = integers(50, ROWS, 10)
    _, three = trained(keras.Model(ids, scores), sentences, normal(ROWS, 10, 5), "mse")
    return keras.Model(ids, {"scores": scores, "tags": Viterbi()(scores)}), three


EXAMPLES = (captcha, rectified_digits, captions, sentiment, named_entities)
