"""Models of sound: waveforms, spectrograms, speech."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained


def wavenet():
    """WaveNet: gated causal convolutions of growing dilation, with skip connections; any length."""
    waves = keras.Input((None, 1), name="waves")
    x, skips = layers.Conv1D(8, 2, padding="causal")(waves), []
    for dilation in (1, 2, 4, 8):
        gate = layers.Conv1D(8, 2, padding="causal", dilation_rate=dilation, activation="sigmoid")(x)
        value = layers.Conv1D(8, 2, padding="causal", dilation_rate=dilation, activation="tanh")(x)
        gated = layers.Multiply()([gate, value])
        skips.append(layers.Conv1D(8, 1)(gated))
        x = layers.Add()([layers.Conv1D(8, 1)(gated), x])
    x = layers.Conv1D(16, 1, activation="relu")(layers.ReLU()(layers.Add()(skips)))
    model = keras.Model(waves, layers.Conv1D(32, 1, activation="softmax")(x))
    return trained(model, normal(ROWS, 40, 1), integers(32, ROWS, 40), "sparse_categorical_crossentropy")


def _log_mel(waves):
    spectrum = tf.abs(tf.signal.stft(waves, frame_length=64, frame_step=32, fft_length=64))
    mel = tf.signal.linear_to_mel_weight_matrix(12, spectrum.shape[-1], 8000, 80.0, 3800.0)
    return tf.math.log(tf.matmul(spectrum, mel) + 1e-6)


def keyword_spotting():
    """Words of a second of sound: the spectrogram by `tf.signal` in a Lambda, convolutions and a GRU."""
    waves = keras.Input((800,), name="waves")
    x = layers.Lambda(_log_mel)(waves)
    x = layers.Normalization(mean=0.0, variance=2.0)(x)
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(layers.Reshape((-1, 12, 1))(x))
    x = layers.MaxPooling2D((1, 2))(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.GRU(16)(layers.Reshape((-1, 48))(x))
    model = keras.Model(waves, layers.Dense(5, "softmax")(layers.Dropout(0.2)(x)))
    return trained(model, normal(ROWS, 800), integers(5, ROWS), "sparse_categorical_crossentropy")


def _ctc(labels, logits):
    frames = ops.full((ops.shape(logits)[0],), ops.shape(logits)[1], dtype="int32")
    lengths = ops.full((ops.shape(logits)[0],), ops.shape(labels)[1], dtype="int32")
    return ops.ctc_loss(labels, logits, lengths, frames, mask_index=0)


def deep_speech():
    """DeepSpeech 2: convolutions with strides, two-sided GRUs, and letters by CTC; any length."""
    spectrograms = keras.Input((None, 33), name="spectrograms")
    x = layers.Reshape((-1, 33, 1))(spectrograms)
    for size, strides in (((5, 7), (2, 2)), ((3, 5), (1, 2))):
        x = layers.Conv2D(8, size, strides, padding="same", use_bias=False)(x)
        x = layers.ReLU(max_value=20.0)(layers.BatchNormalization()(x))
    x = layers.Reshape((-1, x.shape[-2] * x.shape[-1]))(x)
    for _ in range(2):
        x = layers.Bidirectional(layers.GRU(12, return_sequences=True, reset_after=True))(x)
    model = keras.Model(spectrograms, layers.Dense(20)(layers.Dense(24, "relu")(x)))
    return trained(model, normal(ROWS, 40, 33), integers(19, ROWS, 6) + 1, _ctc)


class Separator(keras.Model):
    """Conv-TasNet: a learned transform of frames, a mask for each speaker, and the sum of overlapping frames."""

    def __init__(self, speakers=2, width=16, frame=16):
        super().__init__()
        self.speakers, self.width, self.frame = speakers, width, frame
        self.encoder = layers.Dense(width, "relu")
        self.norm = layers.LayerNormalization()
        self.blocks = [
            keras.Sequential(
                [layers.Conv1D(16, 1), layers.PReLU(shared_axes=[1]), layers.DepthwiseConv1D(3, padding="same")]
            )
            for _ in range(2)
        ]
        self.masks = layers.Dense(speakers * width, "sigmoid")
        self.decoder = layers.Dense(frame)

    def call(self, waves):
        frames = self.encoder(tf.signal.frame(waves, self.frame, self.frame // 2))
        x = self.norm(frames)
        for block in self.blocks:
            x = x + block(x)
        masks = tf.reshape(self.masks(x), (tf.shape(x)[0], tf.shape(x)[1], self.speakers, self.width))
        parts = self.decoder(tf.transpose(masks * frames[:, :, None], (0, 2, 1, 3)))
        return tf.signal.overlap_and_add(parts, self.frame // 2)


def speaker_separation():
    """Two speakers of one sound: frames and overlapping sums by `tf.signal` in a subclassed model."""
    return trained(Separator(), normal(ROWS, 160), normal(ROWS, 2, 160), "mse")


class AttentiveStatistics(layers.Layer):
    """The weighted mean and deviation over time."""

    def build(self, shape):
        self.score = layers.Dense(shape[-1], "tanh")

    def call(self, x):
        weights = ops.softmax(self.score(x), axis=1)
        mean = ops.sum(weights * x, axis=1)
        variance = ops.sum(weights * ops.square(x), axis=1) - ops.square(mean)
        return ops.concatenate([mean, ops.sqrt(ops.maximum(variance, 1e-6))], axis=-1)


def speaker_embedding():
    """A unit vector of a speaker: mel spectrogram layer, squeeze and excitation, attentive statistics."""
    waves = keras.Input((1600,), name="waves")
    x = layers.MelSpectrogram(num_mel_bins=16, fft_length=128, sequence_stride=64, sampling_rate=8000)(waves)
    x = layers.Conv1D(16, 5, padding="same", activation="relu")(layers.Permute((2, 1))(x))
    gate = layers.Dense(16, "sigmoid")(layers.Dense(4, "relu")(layers.GlobalAveragePooling1D(keepdims=True)(x)))
    x = AttentiveStatistics()(layers.BatchNormalization()(x * gate))
    model = keras.Model(waves, layers.UnitNormalization()(layers.Dense(8)(x)))
    targets = normal(ROWS, 8)
    return trained(
        model, normal(ROWS, 1600), targets / np.linalg.norm(targets, axis=-1, keepdims=True), "cosine_similarity"
    )


EXAMPLES = (wavenet, keyword_spotting, deep_speech, speaker_separation, speaker_embedding)
