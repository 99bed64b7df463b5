"""Multimodal rotary positions; those of Qwen2.5-VL are compared with transformers in tests/checkpoints."""

import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.positions import DynamicNTKScaling, MultimodalRotary, Rotary, YaRNScaling


def rotated(position, x, positions):
    return np.asarray(position.rotate(x, x, positions, positions)[0])


def test_a_text_is_rotated_as_by_rotary():
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 12)).astype("float32")
    positions = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 9]])
    expected = rotated(Rotary(50.0, "halves"), x, positions)
    position = MultimodalRotary((1, 3, 2), 50.0)
    np.testing.assert_allclose(rotated(position, x, positions), expected, atol=1e-6)
    np.testing.assert_allclose(rotated(position, x, np.repeat(positions[..., None], 3, -1)), expected, atol=1e-6)


@pytest.mark.parametrize(
    "restarts, rates", [(False, [1, 9 ** (-1 / 3), 9 ** (-2 / 3)]), (True, [1, 1, 9**-0.5])], ids=["shared", "own"]
)
def test_each_section_turns_by_its_axis(restarts, rates):
    # Pairs (1, 0) become the cosine and the sine of their angles.
    x = np.array([1.0, 1, 1, 0, 0, 0]).reshape(1, 1, 1, 6)
    position = MultimodalRotary((1, 2), 9.0, restarts_rates=restarts)
    angles = np.array([5, 2, 2]) * rates
    expected = np.concatenate([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(rotated(position, x, np.array([[[5, 2]]])).ravel(), expected, atol=1e-6)


def test_scaled_angles():
    """YaRN on a text, as by `Rotary`; and on several axes, by hand: the first pair is kept, the second interpolated."""
    scaling = YaRNScaling(4.0, original_max_sequence_length=32)
    x = np.random.default_rng(0).normal(size=(1, 5, 2, 4)).astype("float32")
    expected = rotated(Rotary(10000.0, "halves", scaling=scaling), x, np.arange(5))
    position = MultimodalRotary((1, 1), scaling=scaling)
    np.testing.assert_allclose(rotated(position, x, np.arange(5)), expected, atol=1e-6)
    again = MultimodalRotary.from_config(position.get_config())
    pair = np.array([1.0, 1, 0, 0]).reshape(1, 1, 1, 4)
    angles = np.array([3 * 1.0, 700 * 0.01 / 4])
    magnitude = 0.1 * np.log(4.0) + 1.0
    expected = magnitude * np.concatenate([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(rotated(again, pair, np.array([[[3, 700]]])).ravel(), expected, atol=1e-5)


def test_attention_depends_on_distances_along_each_axis():
    layer = MultiHeadAttention(2, 8, position=MultimodalRotary((1, 2, 1)))
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1, 4, 6)).astype("float32")
    positions = generator.integers(0, 9, (1, 4, 3))
    before = np.asarray(layer(x, x, positions=positions))
    np.testing.assert_allclose(np.asarray(layer(x, x, positions=positions + [[[4, 7, 1]]])), before, atol=1e-5)
    positions[0, 2, 1] += 3
    assert np.abs(np.asarray(layer(x, x, positions=positions)) - before).max() > 1e-3


def test_refusals():
    with pytest.raises(ValueError, match="at least 1"):
        MultimodalRotary((1, 0))
    with pytest.raises(ValueError, match="must not depend on the length"):
        MultimodalRotary((1, 2), scaling=DynamicNTKScaling(2.0, original_max_sequence_length=8))
    with pytest.raises(ValueError, match="half of the 10 features"):
        MultiHeadAttention(1, 10, position=MultimodalRotary((1, 2))).build((None, 3, 4), (None, 3, 4))
    with pytest.raises(ValueError, match=r"need positions \(B, T, 2\)"):
        rotated(MultimodalRotary((1, 2)), np.ones((1, 1, 1, 6)), np.zeros((1, 1, 3), "int32"))
