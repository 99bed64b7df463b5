"""The softplus of TFLite files has its digits where it is small."""

import numpy as np
import tensorflow as tf
from function_graphs import rewritten

from keras_transformer.export.tflite.softplus import with_exact_softplus


def test_softplus_of_any_size_is_right_to_the_last_digits():
    x = np.concatenate([np.linspace(-40, 40, 2001), [0.0, -80.0, 80.0]]).astype("float32")

    (found, double), count = rewritten(lambda x: (tf.nn.softplus(x), 2.0 * tf.nn.softplus(x)), with_exact_softplus, x)

    expected = np.log1p(np.exp(x.astype("float64")))
    assert count == 2
    np.testing.assert_allclose(found, expected, rtol=4e-7)
    np.testing.assert_allclose(double, 2 * expected, rtol=4e-7)


def test_other_types_are_left_to_the_converter():
    x = np.ones(3, "float64")
    assert rewritten(lambda x: tf.nn.softplus(x), with_exact_softplus, x)[1] == 0
