import glob

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import plots, training
from keras_transformer.feedforward import MixtureOfExperts, TopKRouter


def images(log_dir):
    """(name, step) to the picture, read from the files as TensorBoard reads them."""
    found = {}
    for path in glob.glob(f"{log_dir}/events*"):
        for record in tf.data.TFRecordDataset(path):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "images"
                width, height, png = value.tensor.string_val
                picture = tf.io.decode_png(png).numpy()
                assert picture.shape[:2] == (int(height), int(width))
                found[value.tag, event.step] = picture
    return found


def small_model():
    tokens = keras.Input((3, 4))
    model = keras.Model(tokens, MixtureOfExperts(8, router=TopKRouter(2, top_k=1))(tokens))
    model.compile("sgd", "mse")
    return model


def test_figures_are_those_of_the_epochs(tmp_path):
    seen = []

    def weights(model):
        kernel = keras.ops.convert_to_numpy(model.layers[-1].hidden_kernel)
        seen.append(kernel)
        figure = plots.figure.new_figure(2, 1)
        figure.add_subplot().imshow(kernel[0])
        return figure

    model, x = small_model(), np.random.default_rng(0).normal(size=(8, 3, 4)).astype("float32")
    figures = training.TensorBoardFigures(tmp_path, {"weights": weights}, every_epochs=2)
    model.fit(x, 2 * x, epochs=3, callbacks=[figures], verbose=0)
    found = images(tmp_path)
    names = {"training_curve", "expert_load", "weights"}
    assert set(found) == {(name, step) for name in names for step in (1, 2)}
    assert figures.drawn == names
    assert np.ptp(found["weights", 1][..., :3]) > 100
    assert not np.array_equal(found["training_curve", 1], found["training_curve", 2])
    # The weights are those of the epoch that has just ended.
    assert not np.array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[1], keras.ops.convert_to_numpy(model.layers[-1].hidden_kernel))


@pytest.mark.parametrize(
    "options, message", [({"every_epochs": 0}, "every_epochs"), ({"figures": {"a": 3}}, "'a' must be a function")]
)
def test_refuses(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        training.TensorBoardFigures(tmp_path, **options)
