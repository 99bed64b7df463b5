"""Positions in two tables, against their definition."""

import numpy as np
import pytest

from keras_transformer.positions import Axial


def made(**options):
    layer = Axial((3, 4), **options)
    layer.build((None, None, 6))
    for seed, variable in enumerate(layer.weights):
        variable.assign(np.random.default_rng(seed).normal(size=variable.shape))
    return layer, *(np.asarray(variable) for variable in (layer.row_embeddings, layer.column_embeddings))


def test_row_and_column_of_each_place():
    layer, rows, columns = made(widths=(2, 4))
    assert (rows.shape, columns.shape) == ((3, 2), (4, 4))
    expected = np.array([[*rows[place // 4], *columns[place % 4]] for place in range(12)])
    x = np.random.default_rng(5).normal(size=(2, 12, 6)).astype("float32")
    np.testing.assert_allclose(layer(x), x + expected, atol=1e-6)
    np.testing.assert_allclose(layer(x[:, :5]), x[:, :5] + expected[:5], atol=1e-6)
    places = np.array([[11, 0, 7], [3, 4, 4]])
    np.testing.assert_allclose(layer(x[:, :3], positions=places), x[:, :3] + expected[places], atol=1e-6)
    np.testing.assert_allclose(layer(x[:, :3], positions=places[0]), x[:, :3] + expected[places[0]], atol=1e-6)


def test_without_widths_each_table_has_half():
    _, rows, columns = made()
    assert (rows.shape, columns.shape) == ((3, 3), (4, 3))


def test_what_is_refused():
    with pytest.raises(ValueError, match="12 positions"):
        made()[0](np.zeros((1, 13, 6), "float32"))
    with pytest.raises(ValueError, match="widths"):
        made(widths=(2, 3))
    with pytest.raises(ValueError, match="shape"):
        Axial((3, 0))
