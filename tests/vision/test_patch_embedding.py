import numpy as np
import pytest

from keras_transformer.vision import PatchEmbedding


def built(images, **options):
    layer = PatchEmbedding(5, patch_size=(2, 4), **options)
    layer.build(images.shape)
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


def images(height=4, width=8):
    return np.random.default_rng(0).normal(size=(2, height, width, 3)).astype("float32")


def test_formula():
    """Each patch, flattened, times the kernel; row by row; the class token first; then positions."""
    x = images()
    layer = built(x)
    kernel, bias = (np.asarray(weight, "float64") for weight in layer._projection.weights)
    patches = np.stack([x[:, i : i + 2, j : j + 4].reshape(2, -1) for i in (0, 2) for j in (0, 4)], axis=1)
    tokens = patches @ kernel.reshape(-1, 5) + bias
    first = np.broadcast_to(np.asarray(layer.class_embedding), (2, 1, 5))
    expected = np.concatenate([first, tokens], axis=1) + np.asarray(layer.position_embeddings)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_table_of_another_grid_is_resized_and_the_class_position_kept():
    x = images(8, 8)
    layer = built(x, grid_size=(2, 2))
    output = np.asarray(layer(x))
    table = np.asarray(layer.position_embeddings, "float64")
    # Bilinear from 2 to 4 rows, half-pixel centres: rows at 0, 0.25, 0.75 and 1 of the way.
    grid, rows = table[1:].reshape(2, 2, 5), np.array([0, 0.25, 0.75, 1])[:, None, None]
    resized = (grid[0] * (1 - rows) + grid[1] * rows).reshape(1, 8, 5)
    embedded = layer._projection(x)
    expected = np.asarray(embedded).reshape(2, 8, 5) + resized
    np.testing.assert_allclose(output[:, 1:], expected, atol=1e-5)
    np.testing.assert_allclose(output[0, 0], np.asarray(layer.class_embedding)[0, 0] + table[0], atol=1e-6)


def test_same_weights_serve_another_image_size():
    small, large = built(images(4, 8)), PatchEmbedding(5, patch_size=(2, 4), grid_size=(2, 2))
    large.build((None, 8, 16, 3))
    large.set_weights(small.get_weights())
    assert large(images(8, 16)).shape == (2, 17, 5)


def test_without_class_token():
    x = images()
    assert built(x, class_token=False)(x).shape == (2, 4, 5)


def test_refuses_images_that_do_not_divide():
    with pytest.raises(ValueError, match="5 x 8"):
        PatchEmbedding(5, patch_size=(2, 4))(images(5, 8))


def test_refuses_unknown_image_sizes():
    with pytest.raises(ValueError, match="must be known"):
        PatchEmbedding(5).compute_output_shape((None, None, 8, 3))
    with pytest.raises(ValueError, match="interpolation"):
        PatchEmbedding(5, interpolation="nearest")
