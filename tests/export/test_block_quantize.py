"""Block-wise weight quantization: 4-bit scales are searched, 8-bit scales do not clip."""

import numpy as np
import pytest

from keras_transformer.export.quantization.block_quantize import by_block, by_channel, by_offset_block, pack_nibbles

# Heavy tails: a scale that clips the largest value of a block lowers the error of the others.
ROWS = np.random.default_rng(0).standard_t(3, size=(64, 96)).astype("float32")
SHARES = np.linspace(0.7, 1.0, 13)


def errors(blocks, scale):
    """Returns the squared error of each block in 4 bits with a scale, and the dequantized values."""
    codes = np.clip(np.round(blocks / scale[..., None]), -8, 7)
    return np.square(codes * scale[..., None] - blocks).sum(-1)


def test_4_bit_scales_are_the_best_of_those_tried():
    codes, scale = by_block(ROWS, 4, 32)
    blocks = ROWS.reshape(64, 3, 32)
    found = np.square((codes - 8.0) * scale[..., None] - blocks).sum(-1)
    peak = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
    tried = np.stack([errors(blocks, -peak / 8 * share) for share in SHARES])
    np.testing.assert_allclose(found, tried.min(axis=0), rtol=1e-4)
    # The search has an effect: most blocks have a smaller scale, and the error decreases.
    assert np.mean(tried.argmin(axis=0) < len(SHARES) - 1) > 0.5
    assert found.sum() < 0.95 * tried[-1].sum()


def test_the_largest_number_of_a_4_bit_block_takes_the_lowest_code():
    codes, scale = by_block(np.array([[4.0, -2.0, 1.0, 0.5], [-4.0, 2.0, -1.0, -0.5]]), 4, 4)
    np.testing.assert_array_equal(codes[:, 0], [[0, 12, 6, 7], [0, 12, 6, 7]])
    np.testing.assert_array_equal(scale, [[-0.5], [0.5]])


@pytest.mark.parametrize(("bits", "block_size", "step"), [(4, 32, 8), (8, 32, 127), (8, 40, 127)])
def test_blocks_are_restored_within_half_a_step(bits, block_size, step):
    rows = np.random.default_rng(1).uniform(-1, 1, size=(8, 96)).astype("float32")
    codes, scale = by_block(rows, bits, block_size)
    restored = ((codes - 2.0 ** (bits - 1)) * scale[..., None]).reshape(8, -1)
    np.testing.assert_array_equal(restored[:, 96:], 0)
    limit = np.repeat(np.abs(scale), block_size, axis=1)[:, :96]
    clipped = np.abs(rows) > (step - 1) * limit
    assert np.all(np.abs(restored[:, :96] - rows)[~clipped] <= 0.5001 * limit[~clipped])


def test_channels_have_a_scale_each_and_zeros_stay():
    codes, scale = by_channel(np.array([[1.0, 0.0, -200.0], [0.25, 0.0, 50.0]]))
    np.testing.assert_array_equal(codes, [[127, 0, -127], [32, 0, 32]])
    np.testing.assert_allclose(scale, [1 / 127, 1, 200 / 127])


def test_nibbles_are_packed_low_first():
    np.testing.assert_array_equal(pack_nibbles(np.array([[3, 10, 0, 15]], "uint8")), [[3 + 16 * 10, 240]])


def test_numbers_on_a_lattice_with_an_offset_are_kept():
    """Q4_1 of GGUF: sixteen values from a minimum on, by a step, both in float16."""
    random = np.random.default_rng(0)
    least, step = random.normal(size=(2, 3, 4, 1)).astype("float16").astype("float32")
    codes = random.integers(0, 16, (3, 4, 32))
    codes[..., 0], codes[..., 1] = 0, 15
    rows = (least + np.abs(step) * codes).reshape(3, 128)
    found, scale, offset = (each.astype("float32") for each in by_offset_block(rows, 32))
    values = (found - 8) * scale[..., None] + offset[..., None]
    # The offset is rounded to float16.
    np.testing.assert_allclose(values.reshape(3, 128), rows, atol=2e-3 * np.abs(rows).max())
    np.testing.assert_array_equal(found, codes)


def test_an_offset_halves_the_error_of_a_skewed_block():
    rows = np.random.default_rng(1).normal(1.0, 0.3, (50, 64)).astype("float32")
    codes, scale, offset = (each.astype("float32") for each in by_offset_block(rows, 32))
    fitted = ((codes - 8) * scale[..., None] + offset[..., None]).reshape(rows.shape)
    codes, scale = by_block(rows, 4, 32)
    plain = ((codes - 8.0) * scale[..., None]).reshape(rows.shape)
    assert np.square(fitted - rows).mean() < 0.25 * np.square(plain - rows).mean()
    assert np.square(fitted - rows).mean() < np.square(rows - rows.mean()).mean() / 100
    zeros, constant = (np.full((1, 32), each, "float32") for each in (0.0, 2.5))
    for each in (zeros, constant):
        codes, scale, offset = by_offset_block(each, 32)
        np.testing.assert_allclose((codes - 8.0) * scale[..., None] + offset[..., None], each[None], atol=1e-3)
