import numpy as np
import pytest

from keras_transformer import plots, positions
from keras_transformer.plots.position_encoding import added, by_distance, scores

N = 16


def test_what_is_added_is_that_of_the_paper():
    table = added(positions.Sinusoidal(), N, 8)
    places, i = np.arange(N)[:, None], np.arange(4)
    angles = places / 10000 ** (2 * i / 8)
    np.testing.assert_allclose(table[:, 0::2], np.sin(angles), atol=1e-6)
    np.testing.assert_allclose(table[:, 1::2], np.cos(angles), atol=1e-6)
    heat, curve, scale = plots.position_encoding(positions.Sinusoidal(), N, width=8).axes
    assert scale.get_ylabel() == "value added to the token"
    np.testing.assert_allclose(heat.get_images()[0].get_array(), table)
    # sin a sin b + cos a cos b = cos(a - b): sinusoids know the distance alone.
    expected = np.cos(np.arange(N)[:, None] / 10000 ** (2 * i / 8)).mean(axis=1)
    np.testing.assert_allclose(curve.get_lines()[0].get_ydata(), expected, atol=1e-6)


def test_a_position_with_weights_is_drawn_with_them():
    learned = positions.Learned(max_sequence_length=N, initializer="random_normal")
    learned.build((1, N, 8))
    np.testing.assert_allclose(added(learned, N, 8), np.asarray(learned.weights[0]), atol=1e-6)


def test_alibi_falls_with_the_distance_and_by_head():
    table = scores(positions.ALiBi(), N, num_heads=4, key_dim=8)
    distance = np.abs(np.arange(N)[:, None] - np.arange(N))
    slopes = np.array([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])
    np.testing.assert_allclose(table, 8**0.5 - slopes[:, None, None] * distance, rtol=1e-5)
    heat, drawn, scale = plots.position_encoding(positions.ALiBi(), N, width=32).axes
    assert (heat.get_title(), scale.get_ylabel()) == ("scores, head 0", "score before the softmax")
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == ["head 0", "head 1", "head 2", "head 3"]
    curves = drawn.get_lines()
    np.testing.assert_allclose(curves[1].get_xdata(), np.arange(1 - N, N))
    np.testing.assert_allclose(curves[1].get_ydata(), 8**0.5 - slopes[1] * np.abs(np.arange(1 - N, N)), rtol=1e-5)


def test_rotary_knows_the_distance_alone():
    table = scores(positions.Rotary(), N, num_heads=1, key_dim=8)[0]
    distances = np.arange(1 - N, N)
    expected = 2 * np.cos(distances[:, None] / 10000 ** (np.arange(4) / 4)).sum(axis=1) / 8**0.5
    np.testing.assert_allclose(by_distance(table, distances), expected, rtol=1e-4, atol=1e-5)
    assert all(np.ptp(np.diagonal(table, distance)) < 1e-5 for distance in distances)


def test_a_position_that_reads_tokens_reads_those_of_equal_vectors():
    """With gate weights of zeros a gate is sigmoid(0) (sigmoid(0) - 1) + 2 = 1.75 for each token."""
    gated = positions.GatedRelativeBias()
    gated.build((1, N, 4, 8), (1, N, 4, 8))
    gated.gate_kernel.assign(np.zeros(gated.gate_kernel.shape))
    table = scores(gated, N, num_heads=4, key_dim=8)
    plain = scores(gated.relative_bias, N, num_heads=4, key_dim=8)
    np.testing.assert_allclose(table - 8**0.5, 1.75 * (plain - 8**0.5), rtol=1e-4, atol=1e-5)


def test_the_given_position_is_left_alone():
    position = positions.RelativeBias()
    figure = plots.position_encoding(position, N, width=32)
    assert not position.built
    assert len(figure.axes) == 3


def test_written_as_svg_and_png(tmp_path):
    figure = plots.position_encoding(positions.Rotary(), N, width=32)
    for form, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        figure.savefig(tmp_path / f"rotary.{form}")
        assert (tmp_path / f"rotary.{form}").read_bytes().startswith(start)


@pytest.mark.parametrize("options", [{"n": 1}, {"width": 10, "num_heads": 4}])
def test_refuses(options):
    with pytest.raises(ValueError, match="Expected n >= 2"):
        plots.position_encoding(positions.Rotary(), **options)
