"""Policies and values of reinforcement learning."""

import keras
import tensorflow as tf
from keras import layers, ops

from example_models.trained import ROWS, integers, normal, trained


def dueling_q_network():
    """Values of actions from four frames of bytes: the value of the state and the advantages, and the best action."""
    frames = keras.Input((36, 36, 4), dtype="uint8", name="frames")
    x = layers.Lambda(lambda each: tf.cast(each, tf.float32) / 255.0)(frames)
    x = layers.Conv2D(8, 8, strides=4, activation="relu")(x)
    x = layers.Flatten()(layers.Conv2D(8, 3, strides=2, activation="relu")(x))
    value, advantage = layers.Dense(1)(x), layers.Dense(4)(x)
    values = layers.Lambda(
        lambda pair: pair[0] + pair[1] - tf.reduce_mean(pair[1], axis=1, keepdims=True), name="values"
    )([value, advantage])
    action = layers.Lambda(lambda each: tf.argmax(each, axis=-1), name="action")(values)
    model = keras.Model(frames, {"values": values, "action": action})
    pixels = integers(256, ROWS, 36, 36, 4, dtype="uint8")
    return trained(model, pixels, {"values": normal(ROWS, 4)}, {"values": "huber", "action": None})


class GaussianAction(layers.Layer):
    """An action of a squashed normal distribution, with the logarithm of its probability."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed = keras.random.SeedGenerator(7)

    def call(self, inputs):
        mean, deviation = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed)
        action = ops.tanh(mean + deviation * noise)
        log = -0.5 * ops.square(noise) - ops.log(deviation) - ops.log(1 - ops.square(action) + 1e-6)
        return {"action": action, "log_probability": ops.sum(log, axis=-1), "mean": mean}


def soft_actor():
    """The actor of SAC: a sampled action and the logarithm of its probability."""
    states = keras.Input((6,), name="states")
    x = layers.Dense(16, "relu")(layers.Dense(16, "relu")(states))
    deviation = layers.Lambda(lambda each: ops.exp(ops.clip(each, -5, 2)))(layers.Dense(2)(x))
    outputs = GaussianAction()([layers.Dense(2, name="mean")(x), deviation])
    loss = {"action": "mse", "log_probability": None, "mean": None}
    return trained(keras.Model(states, outputs), normal(ROWS, 6), {"action": normal(ROWS, 2)}, loss)


def recurrent_policy():
    """PPO with a memory: the states of an LSTM are inputs and outputs; illegal actions have no probability."""
    states, legal = keras.Input((1, 6), name="states"), keras.Input((4,), dtype="bool", name="legal")
    hidden, cell = keras.Input((8,), name="hidden"), keras.Input((8,), name="cell")
    x, next_hidden, next_cell = layers.LSTM(8, return_state=True)(states, initial_state=[hidden, cell])
    logits = layers.Dense(4)(x)
    logits = layers.Lambda(lambda pair: tf.where(pair[1], pair[0], -1e9), output_shape=(4,))([logits, legal])
    policy = layers.Softmax(name="policy")(logits)
    value = layers.Dense(1, name="value")(x)
    inputs = {"states": states, "legal": legal, "hidden": hidden, "cell": cell}
    outputs = {"policy": policy, "value": value, "next_hidden": next_hidden, "next_cell": next_cell}
    legal_actions = integers(2, ROWS, 4).astype(bool)
    legal_actions[:, 0] = True
    data = {"states": normal(ROWS, 1, 6), "legal": legal_actions, "hidden": normal(ROWS, 8), "cell": normal(ROWS, 8)}
    loss = {"policy": "sparse_categorical_crossentropy", "value": "mse", "next_hidden": None, "next_cell": None}
    targets = {"policy": integers(1, ROWS), "value": normal(ROWS, 1)}
    return trained(keras.Model(inputs, outputs), data, targets, loss)


class Quantiles(keras.Model):
    """Implicit quantile network: cosines of levels times the features of a state."""

    def __init__(self, actions=3, levels=8):
        super().__init__()
        self.features, self.cosines = layers.Dense(16, "relu"), layers.Dense(16, "relu")
        self.values = layers.Dense(actions)
        self.levels = tf.constant([(number + 0.5) / levels for number in range(levels)])

    def call(self, states):
        angles = self.levels[:, None] * tf.constant(3.14159265) * tf.range(1, 9, dtype=tf.float32)
        features = self.features(states)[:, None] * self.cosines(tf.cos(angles))[None]
        return self.values(features)

    def act(self, states):
        return tf.argmax(tf.reduce_mean(self(states), axis=1), axis=-1)


def quantile_q_network():
    """IQN: a distribution of values for each action."""
    return trained(Quantiles(), normal(ROWS, 5), normal(ROWS, 8, 3), "mae")


EXAMPLES = (dueling_q_network, soft_actor, recurrent_policy, quantile_q_network)
