import keras
import numpy as np
import pytest

from keras_transformer.vision import PatchEmbedding
from keras_transformer.vision.resizing.interpolation import resize_matrix


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
    # Bilinear from 2 to 4 rows, half-pixel centers: rows at 0, 0.25, 0.75 and 1 of the way.
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
    with pytest.raises(ValueError, match="must be static"):
        PatchEmbedding(5).compute_output_shape((None, None, 8, 3))
    with pytest.raises(ValueError, match="interpolation"):
        PatchEmbedding(5, interpolation="nearest")


def test_without_a_table_any_size():
    small, large = images(), images(6, 12)
    layer = built(small, interpolation=None, num_register_tokens=2)
    assert sorted(tuple(weight.shape) for weight in layer.weights) == [(1, 1, 5), (2, 4, 3, 5), (2, 5), (5,)]
    model_input = keras.Input((None, None, 3))
    output = layer(model_input)
    assert output.shape == (None, None, 5)
    model = keras.Model(model_input, output)
    for x, count in ((small, 4), (large, 9)):
        expected = np.asarray(layer._projection(x)).reshape(2, count, 5)
        found = np.asarray(model(x))
        np.testing.assert_allclose(found[:, 3:], expected, atol=1e-6)
        first = np.concatenate([np.asarray(layer.class_embedding)[0], np.asarray(layer.register_embeddings)])
        np.testing.assert_array_equal(found[:, :3], np.broadcast_to(first, (2, 3, 5)))
    assert PatchEmbedding.from_config(layer.get_config()).interpolation is None
    with pytest.raises(ValueError, match="grid_size"):
        PatchEmbedding(5, interpolation=None, grid_size=3)


# What torch.nn.functional.interpolate gives, with align_corners=False and without smoothing.
OF_TORCH = {
    ("bicubic", 3, 5): [
        [1.096, -0.096, 0],
        [0.612, 0.46, -0.072],
        [0, 1, 0],
        [-0.072, 0.46, 0.612],
        [0, -0.096, 1.096],
    ],
    ("bicubic", 5, 3): [[0.685185, 0.37037, -0.055555, 0, 0], [0, 0, 1, 0, 0], [0, 0, -0.055556, 0.370371, 0.685185]],
    ("bilinear", 4, 6): [
        [1, 0, 0, 0],
        [0.5, 0.5, 0, 0],
        [0, 0.833333, 0.166667, 0],
        [0, 0.166667, 0.833333, 0],
        [0, 0, 0.5, 0.5],
        [0, 0, 0, 1],
    ],
}


@pytest.mark.parametrize("interpolation, old, new", OF_TORCH)
def test_interpolation_is_that_of_torch(interpolation, old, new):
    matrix = resize_matrix(old, new, interpolation)
    np.testing.assert_allclose(matrix, OF_TORCH[interpolation, old, new], atol=2e-6)


def test_bicubic_table_is_resized_down_and_across():
    x = images(10, 12)
    layer = built(x, grid_size=(3, 5), interpolation="bicubic", class_token=False)
    table = np.asarray(layer.position_embeddings, "float64").reshape(3, 5, 5)
    rows, columns = OF_TORCH["bicubic", 3, 5], OF_TORCH["bicubic", 5, 3]
    expected = np.einsum("ij,kl,jld->ikd", rows, columns, table).reshape(1, 15, 5)
    found = np.asarray(layer(x)) - np.asarray(layer._projection(x)).reshape(2, 15, 5)
    np.testing.assert_allclose(found, np.broadcast_to(expected, (2, 15, 5)), atol=1e-5)


def test_distillation_token_comes_second():
    x = images()
    layer = built(x, distillation_token=True)
    output, table = np.asarray(layer(x)), np.asarray(layer.position_embeddings)
    assert layer.num_prefix_tokens == 2
    assert output.shape == (2, 6, 5)
    np.testing.assert_allclose(output[1, 0], np.asarray(layer.class_embedding)[0, 0] + table[0], atol=1e-6)
    np.testing.assert_allclose(output[1, 1], np.asarray(layer.distillation_embedding)[0, 0] + table[1], atol=1e-6)


def test_mask_token_takes_the_place_of_patches():
    x, mask = images(), np.array([[True, False, False, True], [False, False, True, False]])
    layer = built(x, mask_token=True)
    plain, hidden = np.asarray(layer(x))[:, 1:], np.asarray(layer(x, patch_mask=mask))[:, 1:]
    np.testing.assert_array_equal(hidden[~mask], plain[~mask])
    positions = np.broadcast_to(np.asarray(layer.position_embeddings)[1:], (2, 4, 5))
    np.testing.assert_allclose(hidden[mask], (np.asarray(layer.mask_embedding) + positions)[mask], atol=1e-6)
    with pytest.raises(ValueError, match="mask_token=True"):
        built(x)(x, patch_mask=mask)
