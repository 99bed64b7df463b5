"""Patches of images of any size and shape; parity with torch's antialiased resize is in tests/checkpoints."""

import json
import pathlib

import numpy as np
import PIL
import pytest

from keras_transformer.vision import ImageError, ImageProcessorError, NaFlexEmbedding, NaFlexProcessor
from keras_transformer.vision.processing.naflex_processor import best_grid

DATA = pathlib.Path(__file__).parents[1] / "data" / "processors"


def embedded(grids, table_grid=(2, 3)):
    """The positions alone: patches of zeros, and a table of 0, 1, 2, ..."""
    layer = NaFlexEmbedding(1, table_grid)
    count = max(rows * columns for rows, columns in grids)
    layer.build((None, None, 4), (None, 2))
    layer.position_embeddings.assign(np.arange(table_grid[0] * table_grid[1]).reshape(-1, 1).astype("float32"))
    return np.asarray(layer(np.zeros((len(grids), count, 4), "float32"), np.array(grids, "int32")))[..., 0]


def test_the_grid_of_the_table_has_its_own_rows():
    np.testing.assert_allclose(embedded([(2, 3)])[0], [0, 1, 2, 3, 4, 5], atol=1e-6)


def test_a_larger_grid_is_interpolated_between_centers():
    # Of two rows, four have their centers at -1/4, 1/4, 3/4 and 5/4: the outer ones are at the edge.
    np.testing.assert_allclose(embedded([(4, 1)], (2, 1))[0], [0, 0.25, 0.75, 1], atol=1e-6)


def test_a_smaller_grid_is_averaged():
    # A triangle of width 4/2 around 1 and 3, cut at the edge: weights 3/4, 3/4, 1/4 of 0, 1, 2, and the same mirrored.
    weights = np.array([0.75, 0.75, 0.25]) / 1.75
    expected = [weights @ [0, 1, 2], weights @ [3, 2, 1]]
    np.testing.assert_allclose(embedded([(1, 2)], (1, 4))[0], expected, atol=1e-6)


def test_images_of_a_batch_have_grids_of_their_own():
    both = embedded([(2, 3), (1, 3)])
    np.testing.assert_allclose(both[0], embedded([(2, 3)])[0], atol=1e-6)
    np.testing.assert_allclose(both[1, :3], [1.5, 2.5, 3.5], atol=1e-6)
    # Padding has the position of the first patch.
    np.testing.assert_allclose(both[1, 3:], both[1, 0], atol=1e-6)


def test_a_grid_without_patches_has_the_position_of_one():
    np.testing.assert_array_equal(embedded([(0, 0), (1, 1), (2, 3)])[0], embedded([(1, 1), (2, 3)])[0])


@pytest.mark.skipif(
    int(PIL.__version__.split(".")[0]) < 13, reason="Pillow resamples in another order since version 13"
)
def test_patches_are_those_of_transformers():
    expected = np.load(DATA / "naflex" / "patches.npz")
    found = NaFlexProcessor.from_huggingface(DATA / "naflex")([DATA / "pictures" / name for name in expected["names"]])
    assert expected["patch_grid"].tolist() != expected["patch_grid"][:1].tolist() * 3
    np.testing.assert_array_equal(found["patch_grid"], expected["patch_grid"])
    np.testing.assert_array_equal(found["patch_mask"], expected["patch_mask"])
    np.testing.assert_allclose(found["patches"], expected["patches"], atol=1e-5)


def test_patches_are_cut_row_by_row():
    picture = np.arange(4 * 6 * 3, dtype="uint8").reshape(4, 6, 3)
    processor = NaFlexProcessor(patch_size=2, max_num_patches=7, rescale=None, mean=1.0, std=2.0, resize=False)
    found = processor([picture, picture[:2, :5]])
    assert found["patch_grid"].tolist() == [[2, 3], [1, 2]]
    assert found["patch_mask"].tolist() == [[True] * 6 + [False], [True] * 2 + [False] * 5]
    np.testing.assert_array_equal(found["patches"][0, 4], (picture[2:4, 2:4].reshape(-1) - 1.0) / 2)
    np.testing.assert_array_equal(found["patches"][1, 1], (picture[:2, 2:4].reshape(-1) - 1.0) / 2)
    assert not found["patches"][1, 2:].any()


@pytest.mark.parametrize("height, width, patch, most", [(20, 50, 4, 10), (480, 640, 16, 256), (7, 900, 16, 64)])
def test_the_grid_keeps_proportions_and_fills_the_patches(height, width, patch, most):
    rows, columns = best_grid(height, width, patch, most)
    assert rows * columns <= most
    # A scale at which one more row or column would be too many.
    assert min((rows + 1) * columns, rows * (columns + 1)) > most or rows == 1
    assert abs(columns / rows - width / height) / (width / height) < 0.35 or rows == 1


def test_the_files_of_transformers(tmp_path):
    settings = {"image_processor_type": "Siglip2ImageProcessorFast", "patch_size": 4, "max_num_patches": 12}
    settings |= {"resample": 3, "rescale_factor": 0.01, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(settings))
    found = NaFlexProcessor.from_huggingface(tmp_path)
    picture = np.random.default_rng(0).integers(0, 255, (30, 50, 3)).astype("uint8")
    again = NaFlexProcessor(4, 12, "bicubic", 0.01, [0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    for name, value in again([picture]).items():
        np.testing.assert_array_equal(found([picture])[name], value)
    file.write_text(json.dumps(settings | {"image_processor_type": "ViTImageProcessor"}))
    with pytest.raises(ImageProcessorError, match="ViTImageProcessor"):
        NaFlexProcessor.from_huggingface(tmp_path)


def test_refusals():
    with pytest.raises(ImageProcessorError, match="max_num_patches"):
        NaFlexProcessor(max_num_patches=0)
    with pytest.raises(ImageError, match="Image 1 has 2 x 2 patches"):
        NaFlexProcessor(4, 3, resize=False)([np.zeros((4, 4, 3), "uint8"), np.zeros((8, 8, 3), "uint8")])
