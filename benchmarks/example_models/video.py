"""Models of video: the next frame, what is done in it."""

import keras
from keras import layers, ops

from example_models.trained import ROWS, integers, trained, uniform


def next_frames():
    """The next frame of each: stacked convolutional LSTMs and a convolution in space and time; any number of frames."""
    frames = keras.Input((None, 8, 8, 1), name="frames")
    x = layers.ConvLSTM2D(6, 5, padding="same", return_sequences=True, activation="relu")(frames)
    x = layers.ConvLSTM2D(6, 3, padding="same", return_sequences=True)(layers.BatchNormalization()(x))
    model = keras.Model(frames, layers.Conv3D(1, 3, padding="same", activation="sigmoid")(x))
    movies = uniform(ROWS, 4, 8, 8, 1)
    return trained(model, movies, movies, "binary_crossentropy")


def actions():
    """A network of images on each frame, and GRUs over as many frames as the mask says."""
    frames, mask = keras.Input((6, 16, 16, 3), name="frames"), keras.Input((6,), dtype="bool", name="mask")
    network = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Rescaling(2.0, offset=-1.0),
            layers.SeparableConv2D(8, 3, strides=2, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalMaxPooling2D(),
        ]
    )
    x = layers.TimeDistributed(network)(frames)
    x = layers.GRU(12, return_sequences=True)(x, mask=mask)
    model = keras.Model([frames, mask], layers.Dense(4, "softmax")(layers.GRU(8)(x)))
    lengths = integers(6, ROWS, 1) + 1
    inputs = [uniform(ROWS, 6, 16, 16, 3), keras.ops.convert_to_numpy(keras.ops.arange(6)[None]) < lengths]
    return trained(model, inputs, integers(4, ROWS), "sparse_categorical_crossentropy")


class Positions(layers.Layer):
    """A learned vector for each token."""

    def build(self, shape):
        self.table = layers.Embedding(shape[1], shape[2])
        self.places = ops.arange(shape[1])

    def call(self, tokens):
        return tokens + self.table(self.places)


def video_transformer():
    """ViViT: tubes of frames by a convolution, positions, and a transformer with normalization first."""
    frames = keras.Input((4, 16, 16, 1), name="frames")
    tubes = layers.Conv3D(16, (2, 8, 8), strides=(2, 8, 8))(frames)
    x = Positions()(layers.Reshape((-1, 16))(tubes))
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(2, 8, dropout=0.1)(y, y)
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + keras.Sequential([layers.Dense(32, "gelu"), layers.Dense(16, "gelu")])(y)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    model = keras.Model(frames, layers.Dense(3, "softmax")(x))
    return trained(model, uniform(ROWS, 4, 16, 16, 1), integers(3, ROWS), "sparse_categorical_crossentropy")


class ResizeFrames(layers.Layer):
    """Every frame in another size."""

    def __init__(self, height, width, **options):
        super().__init__(**options)
        self.height, self.width = height, width
        self.resize = layers.Resizing(height, width)

    def call(self, video):
        batch, frames, height, width, channels = ops.shape(video)
        images = self.resize(ops.reshape(video, (-1, height, width, channels)))
        return ops.reshape(images, (-1, frames, self.height, self.width, channels))


def factorized_convolutions():
    """(2+1)D convolutions: in space, then in time, with residual connections and smaller frames on the way."""
    video = x = keras.Input((6, 16, 16, 2), name="video")
    for width, side in ((6, 8), (8, 4)):
        y = layers.Conv3D(width, (1, 3, 3), padding="same")(x)
        y = layers.Conv3D(width, (3, 1, 1), padding="same")(y)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        x = ResizeFrames(side, side)(y + layers.LayerNormalization()(layers.Dense(width)(x)))
    x = layers.MaxPooling3D((2, 2, 2))(x)
    model = keras.Model(video, layers.Dense(3)(layers.GlobalAveragePooling3D()(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return trained(model, uniform(ROWS, 6, 16, 16, 2), integers(3, ROWS), loss)


EXAMPLES = (next_frames, actions, video_transformer, factorized_convolutions)
