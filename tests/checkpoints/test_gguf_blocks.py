"""The integers, scales and minima of blocks in GGUF files."""

import numpy as np
import pytest

from keras_transformer.checkpoints.gguf.blocks import DECODED, decoded

gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize("kind", DECODED)
def test_values_are_those_of_the_gguf_package_bit_for_bit(kind):
    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    blocks = np.random.default_rng(0).integers(0, 256, (5, 3 * size), "uint8")
    for start in {"Q6_K": (208,)}.get(kind, (0, 2)):  # Halves that are finite.
        blocks[:, start + 1 :: size] &= 0b10111111
    found = decoded(blocks, kind)
    assert found.codes.shape == (5, found.scale.shape[1], 3 * block // found.scale.shape[1])
    assert found.codes.max() < (1 << found.bits)
    np.testing.assert_array_equal(found.values, gguf.quants.dequantize(blocks, number))
    some = np.array([4, 0])
    np.testing.assert_array_equal(found.rows(some).values, found.values[some])


def test_a_block_of_q4_1_by_hand():
    # Scale 0.5, minimum -2; bytes 0x21, 0x22, ...: 1, 2, ... in the low halves, then 2 in the high ones.
    halves = np.array([0.5, -2.0], "float16").view("uint8")
    found = decoded(np.concatenate([halves, 0x20 + np.arange(16, dtype="uint8")])[None], "Q4_1")
    assert found.codes[0, 0].tolist() == [*range(16), *[2] * 16]
    assert (found.scale.tolist(), found.minimum.tolist(), found.zero, found.bits) == ([[0.5]], [[-2.0]], 0, 4)
    assert found.values[0, :5].tolist() == [-2.0, -1.5, -1.0, -0.5, 0.0]


def test_scales_are_those_of_the_file():
    halves = np.array([0.1], "float16").view("uint8")
    found = decoded(np.concatenate([halves, np.array([129, 127, 255] * 16, "uint8")[:32]])[None], "Q8_0")
    assert found.scale.dtype == np.float16
    assert found.scale.view("uint8").tolist() == [halves.tolist()]
    assert (found.codes[0, 0, :3].astype(int) - found.zero).tolist() == [-127, 127, -1]
