"""The norms by name: Keras's own layers."""

import keras

NORMS = {
    "layer_norm": keras.layers.LayerNormalization,
    "rms_norm": keras.layers.RMSNormalization,
    "batch_norm": keras.layers.BatchNormalization,
}
