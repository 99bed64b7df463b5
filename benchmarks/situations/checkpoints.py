"""Where the weights come from."""

import keras
import numpy as np
from example_models.trained import ROWS, integers, normal, uniform
from keras import layers

from situations.attempt import check, fitted


def _network():
    x = keras.Input((6,), name="x")
    hidden = layers.BatchNormalization()(layers.Dense(12, "relu", name="hidden")(x))
    return keras.Model(x, layers.Dense(3, name="head")(hidden))


def weights_only_checkpoint(attempt):
    """`save_weights` of a training, loaded into a model that the code builds again."""
    trained = fitted(_network(), normal(ROWS, 6), normal(ROWS, 3))
    path = str(attempt.folder / "best.weights.h5")
    trained.save_weights(path)
    again = _network()
    again.load_weights(path)
    rows = normal(4, 6)
    check(attempt.export(again)(rows), trained(rows))


class Scale(layers.Layer):
    """A layer of one's own, without a decorator."""

    def build(self, shape):
        self.factor = self.add_weight(shape=(shape[-1],), initializer="random_normal", name="factor")

    def call(self, x):
        return x * self.factor


def keras_file_with_a_layer_of_my_own(attempt):
    """A `.keras` file, read with `custom_objects`."""
    x = keras.Input((6,), name="x")
    model = fitted(keras.Model(x, layers.Dense(2)(Scale()(x))), normal(ROWS, 6), normal(ROWS, 2))
    path = str(attempt.folder / "model.keras")
    model.save(path)
    attempt.proven(keras.models.load_model(path, custom_objects={"Scale": Scale}), normal(3, 6))


def old_h5_file(attempt):
    """A model that was saved as `.h5`."""
    model = fitted(_network(), normal(ROWS, 6), normal(ROWS, 3))
    path = str(attempt.folder / "model.h5")
    model.save(path)
    attempt.proven(keras.models.load_model(path, compile=False), normal(3, 6))


def saved_model_of_someone_else(attempt):
    """A SavedModel folder as a layer of a larger model."""
    path = str(attempt.folder / "saved")
    fitted(_network(), normal(ROWS, 6), normal(ROWS, 3)).export(path, verbose=False)
    x = keras.Input((6,), name="x")
    inner = keras.layers.TFSMLayer(path, call_endpoint="serve")
    attempt.proven(keras.Model(x, layers.Softmax()(inner(x))), normal(3, 6))


def lora_adapter_merged(attempt):
    """Adapters of low rank, trained on a frozen model, become part of its weights."""
    model = _network()
    model.get_layer("hidden").enable_lora(2)
    model = fitted(model, normal(ROWS, 6), normal(ROWS, 3))
    assert np.abs(np.asarray(model.get_layer("hidden").lora_kernel_b)).max() > 0
    attempt.proven(model, normal(4, 6))


def averaged_weights(attempt):
    """The average of weights over training, by the optimizer, in place of the last ones."""
    model = _network()
    model.compile(keras.optimizers.Adam(1e-2, use_ema=True, ema_momentum=0.9), "mse")
    model.fit(normal(ROWS, 6), normal(ROWS, 3), epochs=2, verbose=0)
    model.optimizer.finalize_variable_values(model.trainable_variables)
    attempt.proven(model, normal(4, 6))


def quantized_by_keras(attempt):
    """A model that `model.quantize("int8")` has quantized."""
    model = fitted(_network(), normal(ROWS, 6), normal(ROWS, 3))
    model.quantize("int8")
    attempt.proven(model, normal(4, 6), limit=1e-2)


def transfer_from_a_published_network(attempt):
    """A frozen network of keras.applications with a head, its preprocessing in a Lambda, and augmentation."""
    base = keras.applications.MobileNetV2(weights=None, include_top=False, input_shape=(32, 32, 3), alpha=0.35)
    base.trainable = False
    images = keras.Input((32, 32, 3), name="images")
    x = layers.RandomContrast(0.1)(layers.RandomFlip("horizontal")(images))
    x = layers.Lambda(keras.applications.mobilenet_v2.preprocess_input)(x)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(base(x, training=False)))
    model = keras.Model(images, layers.Dense(3, "softmax")(x))
    pixels = uniform(ROWS, 32, 32, 3, high=255)
    attempt.proven(fitted(model, pixels, integers(3, ROWS), "sparse_categorical_crossentropy"), pixels[:2])


def ensemble_in_one_file(attempt):
    """Three trainings of one architecture, averaged in one file."""
    members = [fitted(_network(), normal(ROWS, 6), normal(ROWS, 3)) for _ in range(3)]
    x = keras.Input((6,), name="x")
    attempt.proven(keras.Model(x, layers.Average()([each(x) for each in members])), normal(4, 6))


def wrapped_weights(attempt):
    """Spectral normalization around a convolution, and a two-sided wrapper."""
    images = keras.Input((8, 8, 2), name="images")
    x = layers.SpectralNormalization(layers.Conv2D(4, 3, padding="same"))(images)
    x = layers.Bidirectional(layers.GRU(3))(layers.Reshape((8, 32))(x))
    model = fitted(keras.Model(images, x), uniform(ROWS, 8, 8, 2), normal(ROWS, 6))
    attempt.proven(model, uniform(3, 8, 8, 2))


SITUATIONS = (
    weights_only_checkpoint,
    keras_file_with_a_layer_of_my_own,
    old_h5_file,
    saved_model_of_someone_else,
    lora_adapter_merged,
    averaged_weights,
    quantized_by_keras,
    transfer_from_a_published_network,
    ensemble_in_one_file,
    wrapped_weights,
)
