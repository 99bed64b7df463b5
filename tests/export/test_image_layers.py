"""Layers of images whose sizes are dynamic, in the form in which a signature is traced."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
RANDOM = np.random.default_rng(4)


def traced_layer(layer, images):
    """What a layer computes where only the channels of its images are known while it is traced."""
    import tensorflow as tf

    from keras_transformer.export.graph.replaced_layers import replaced
    from keras_transformer.export.operations.layers import EVERYWHERE

    shape = [None] * 4
    channels = 1 if layer.data_format == "channels_first" else 3
    shape[channels] = images.shape[channels]

    @tf.function(input_signature=[tf.TensorSpec(shape)], autograph=False)
    def call(images):
        with replaced([layer], EVERYWHERE):
            return layer(images, training=False) if isinstance(layer, keras.layers.CenterCrop) else layer(images)

    return call(images).numpy()


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("size", [(12, 10), (6, 9), (12, 4), (3, 3)])
def test_a_center_crop_resizes_the_images_that_are_too_small(size, data_format):
    images = RANDOM.normal(size=(2, *size, 3) if data_format == "channels_last" else (2, 3, *size)).astype("float32")
    layer = keras.layers.CenterCrop(8, 5, data_format=data_format)
    expected = np.asarray(layer(images))
    np.testing.assert_allclose(traced_layer(layer, images), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos3"])
def test_upsampling_of_dynamic_sizes_interpolates(interpolation, data_format):
    images = RANDOM.normal(size=(2, 4, 6, 4)).astype("float32")
    layer = keras.layers.UpSampling2D((3, 2), interpolation=interpolation, data_format=data_format)
    expected = np.asarray(layer(images))
    np.testing.assert_allclose(traced_layer(layer, images), expected, rtol=1e-6, atol=1e-6)


def test_a_convolution_reads_a_center_crop_of_dynamic_sizes_in_tflite(tmp_path):
    from keras_transformer.export import export, load

    images = keras.Input((None, None, 3), name="images")
    outputs = keras.layers.Conv2D(2, 3, padding="same")(keras.layers.CenterCrop(4, 5)(images))
    model = keras.Model(images, outputs)
    export(model, tmp_path / "model", ["tflite"], progress=False)
    for size in ((9, 8), (3, 7)):
        given = RANDOM.normal(size=(2, *size, 3)).astype("float32")
        (found,) = load(tmp_path / "model", "tflite")({"images": given}).values()
        np.testing.assert_allclose(found, np.asarray(model(given)), rtol=1e-5, atol=1e-6)
