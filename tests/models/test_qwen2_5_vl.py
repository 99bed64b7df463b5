"""Qwen2.5-VL: images of any size in text; parity is in tests/checkpoints."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.generation import GenerationError
from keras_transformer.positions import MultimodalRotary

IMAGE = 9
SIZE = models.Size(2, 8, 1, 12)


def tower(blocks=(), windows=2):
    return models.Qwen2_5VLVision(SIZE, 16, patch_dim=3, window_size=windows, full_attention_blocks=blocks)


@pytest.fixture(scope="module")
def backbone():
    keras.utils.set_random_seed(0)
    position = MultimodalRotary((1, 2, 1), 20.0)
    size = models.Size(1, 16, 2, 24)
    return models.Qwen2_5VL(size, 20, tower((1,)), image_id=IMAGE, num_key_value_heads=1, position=position)


def images(*grids, rows=1, seed=0):
    """Patches of images of these grids, the same number in each row."""
    patches = np.random.default_rng(seed).normal(size=(rows, len(grids) // rows, 4, 16, 3)).astype("float32")
    return {"patches": patches, "patch_grid": np.array(grids, "int32").reshape(rows, -1, 2)}


def moved(model, inputs, index):
    """Which tokens change with one patch of a window."""
    before = np.asarray(model(inputs))[0]
    patches = inputs["patches"].copy()
    patches[(0, *index)] += 1.0
    return np.abs(np.asarray(model({**inputs, "patches": patches}))[0] - before).max(axis=-1) > 1e-5


def test_blocks_attend_within_windows_and_full_ones_within_the_image():
    # Two windows of 2 x 2 tokens; half of the second is padding.
    inputs = {name: array[:, 0] for name, array in images((4, 6)).items()}
    assert moved(tower(), inputs, (1, 0)).tolist() == [False] * 4 + [True] * 4 + [False] * 8
    # A block before a full one attends in windows, and all tokens see the patch after it.
    everywhere = moved(tower((1,)), inputs, (1, 0))
    assert everywhere.tolist() == [True] * len(everywhere)


def test_padding_of_windows_changes_no_token():
    model, inputs = tower((0,)), {name: array[:, 0] for name, array in images((4, 6)).items()}
    before = np.asarray(model(inputs))[0].reshape(4, 2, 2, 16)
    patches = inputs["patches"].copy()
    patches.reshape(4, 2, 2, 4, 3)[1, :, 1] = 7.0  # Beyond the right edge.
    patches[0, 2:] = 7.0  # Windows behind the image.
    found = np.asarray(model({**inputs, "patches": patches}))[0].reshape(4, 2, 2, 16)
    np.testing.assert_allclose(found[0], before[0], atol=1e-6)
    np.testing.assert_allclose(found[1, :, 0], before[1, :, 0], atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="The graph of TensorFlow is counted.")
def test_operations_grow_with_the_number_of_windows():
    from graph_cost import traced_cost

    def cost(count):
        shapes = (1, count, 16, 3), (1, 2)
        return traced_cost(lambda *arrays: model(dict(zip(("patches", "patch_grid"), arrays, strict=True))), *shapes)

    for blocks, within in (((), (1.99, 2.0)), ((0,), (2.5, 4.0))):
        model = tower(blocks)
        growth = cost(64).flops / cost(32).flops
        assert within[0] <= growth <= within[1]


def prompts():
    """Rows of two images, one and none, and the arrays of a batch of them."""
    parts = images((4, 6), (2, 2), (2, 8), (0, 0), (0, 0), (0, 0), rows=3)
    rows = [[3, *[IMAGE] * 6, 4, IMAGE, 5], [*[IMAGE] * 4, 6], [7, 8]]
    return parts, rows


def test_rows_of_different_lengths_and_padding_on_either_side(backbone):
    parts, rows = prompts()
    whole = []
    for number, row in enumerate(rows):
        alone = {name: array[number : number + 1] for name, array in parts.items()}
        alone |= {"token_ids": np.array([row]), "padding_mask": np.ones((1, len(row)), bool)}
        whole.append(np.asarray(backbone(alone))[0])
    for side in (1, -1):
        padded = [[*row, *[0] * (10 - len(row))][::side] for row in ([row[::side] for row in rows])]
        mask = np.array([[True] * len(row) + [False] * (10 - len(row)) for row in rows])[:, ::side]
        found = np.asarray(backbone({**parts, "token_ids": np.array(padded), "padding_mask": mask}))
        for row, expected, is_real in zip(found, whole, mask, strict=True):
            np.testing.assert_allclose(row[is_real], expected, atol=2e-5)


def test_a_batch_generates_what_each_prompt_does_alone(backbone):
    model, (parts, rows) = tasks.LanguageModel(backbone), prompts()
    together = model.generate({**parts, "token_ids": rows}, max_new_tokens=5)
    alone = {name: array[1] for name, array in parts.items()}
    assert model.generate({**alone, "token_ids": rows[1]}, max_new_tokens=5) == together[1]
    assert len({tuple(text) for text in together}) > 1
    # Of different numbers of images and windows.
    ragged = {"patches": [parts["patches"][0], parts["patches"][1, :1, :2]]}
    ragged |= {"patch_grid": [parts["patch_grid"][0], parts["patch_grid"][1, :1]], "token_ids": rows[:2]}
    assert model.generate(ragged, max_new_tokens=5) == together[:2]


def test_prompts_without_fitting_grids_are_refused(backbone):
    model, (parts, rows) = tasks.LanguageModel(backbone), prompts()
    with pytest.raises(GenerationError, match="'patches', 'patch_grid' and 'token_ids'"):
        model.generate({"patches": parts["patches"], "token_ids": rows})
    with pytest.raises(GenerationError, match="'patch_grid': ..., 'token_ids'"):
        model.generate(rows)
    with pytest.raises(GenerationError, match="The grid of prompt 0 must be"):
        model.generate({**parts, "patch_grid": parts["patch_grid"][:, :1], "token_ids": rows})
    with pytest.raises(GenerationError, match="grids of 2 prompts"):
        model.generate({**parts, "patch_grid": parts["patch_grid"][:2], "token_ids": rows})


def test_towers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="tower of windows"):
        models.Qwen2_5VL(models.Size(1, 16, 2, 24), 20, image_id=IMAGE)
    with pytest.raises(ValueError, match="width 12"):
        models.Qwen2_5VL(models.Size(1, 12, 2, 24), 20, tower(), image_id=IMAGE)
    with pytest.raises(ValueError, match="full_attention_blocks"):
        tower((2,))


def test_the_published_sizes():
    with unallocated():
        model = tasks.LanguageModel(models.Qwen2_5VL("7B"), tie_embeddings=False)
    assert model.count_params() == 8_292_166_656  # Qwen/Qwen2.5-VL-7B-Instruct
