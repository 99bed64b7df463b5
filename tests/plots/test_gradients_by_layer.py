from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer import plots


def record(**changes):
    norms = {
        "steps": [0, 10, 20],
        "gradients": {"first": [1.0, 0.5, 0.1], "last": [2.0, 1.0, 0.0]},
        "weights": {"first": [10.0, 10.0, 10.0], "last": [0.0, 2.0, 2.0]},
        "updates": {"first": [0.1, 0.1, 0.01], "last": [0.1, 0.2, 0.4]},
    }
    return SimpleNamespace(**(norms | changes))


def test_layers_are_rows_and_steps_columns():
    gradients, ratios = plots.gradients_by_layer(record()).axes[:2]
    values = gradients.collections[0].get_array()
    np.testing.assert_allclose(values.filled(-1), [[1.0, 0.5, 0.1], [2.0, 1.0, -1]])
    values = ratios.collections[0].get_array()
    np.testing.assert_allclose(values.filled(-1), [[0.01, 0.01, 0.001], [-1, 0.1, 0.2]])
    assert [label.get_text() for label in gradients.get_yticklabels()] == ["first", "last"]
    assert gradients.yaxis_inverted()


def test_refuses_an_empty_record():
    with pytest.raises(ValueError, match="No step"):
        plots.gradients_by_layer(record(steps=[]))
