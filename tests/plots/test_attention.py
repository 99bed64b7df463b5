import numpy as np
import pytest

from keras_transformer import attention, models, plots


def scores(layers=2, heads=3, queries=5, keys=5, batch=2):
    """Rows that sum to one, each different."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(layers, batch, heads, queries, keys))
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return {f"vit/encoder_block_{index}/self_attention": each.astype("float32") for index, each in enumerate(weights)}


def drawn(axes):
    return np.asarray(axes.get_images()[-1].get_array())


def test_tables_show_every_layer_and_head():
    maps = scores()
    figure = plots.attention(maps, example=1)
    *panels, scale = figure.axes
    assert len(panels) == 2 * 3
    expected = [head for batch in maps.values() for head in batch[1]]
    for axes, table in zip(panels, expected, strict=True):
        np.testing.assert_array_equal(drawn(axes), table)
        # One scale for all.
        assert axes.get_images()[0].get_clim() == pytest.approx((0, np.max(expected)))
    assert scale.get_ylabel() == "attention of query to key"
    # Both counted from 0.
    assert [axes.get_title() for axes in panels[:3]] == ["head 0", "head 1", "head 2"]
    assert [axes.get_ylabel() for axes in panels[::3]] == ["encoder block 0", "encoder block 1"]
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("keys", "queries")


def test_labels_of_an_encoder_and_a_decoder_do_not_overlap():
    parts = ("encoder_block_0/self_attention", "decoder_block_0/self_attention", "decoder_block_0/cross_attention")
    figure = plots.attention(dict.fromkeys(parts, np.ones((1, 1, 4, 4), "float32")))
    labels = [axes.yaxis.label for axes in figure.axes[:-1]]
    assert [each.get_text() for each in labels] == [
        "encoder block 0\nself attention",
        "decoder block 0\nself attention",
        "decoder block 0\ncross attention",
    ]
    figure.draw_without_rendering()
    boxes = [each.get_window_extent() for each in labels]
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_a_single_layer_keeps_its_block():
    figure = plots.attention({"decoder/decoder_block_1/cross_attention": np.ones((1, 1, 4, 4), "float32")})
    assert figure.axes[0].get_ylabel() == "decoder block 1\ncross attention"


def test_tables_name_queries_and_keys():
    panels = plots.attention(scores(1, 2, 3, 2), tokens=["a", "b"], query_tokens=["x", "y", "z"]).axes
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["a", "b"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["x", "y", "z"]
    assert [label.get_text() for label in panels[1].get_xticklabels()] == ["a", "b"]
    assert len(panels[1].get_yticks()) == 0


def test_there_is_room_for_every_name():
    """By the side that it stands on: of 40 queries and 3 keys, and the other way round."""
    few, many = list("abc"), [str(index) for index in range(40)]
    tall = plots.attention(scores(1, 1, 40, 3), tokens=few, query_tokens=many).get_size_inches()
    wide = plots.attention(scores(1, 1, 3, 40), tokens=many, query_tokens=few).get_size_inches()
    np.testing.assert_allclose(tall, [1.6 + 1.9, 0.5 + 4.8])
    np.testing.assert_allclose(wide, [1.6 + 4.8, 0.5 + 1.9])


def test_class_token_over_an_image():
    maps = scores(2, 2, 7, 7)
    image = np.random.default_rng(0).integers(0, 256, (4, 6, 3)).astype("uint8")
    *panels, scale = plots.attention(maps, image=image).axes
    assert len(panels) == 4
    assert scale.get_ylabel() == "attention of the class token\nto each patch"
    assert [label.get_text() for label in scale.get_yticklabels()] == ["0", "largest\nof the map"]
    for axes, heads in zip(panels, [head for batch in maps.values() for head in batch[0]], strict=True):
        np.testing.assert_array_equal(drawn(axes), heads[0, 1:].reshape(2, 3))
        picture, heat = axes.get_images()
        assert picture.get_array().shape == (4, 6)
        assert list(heat.get_extent()) == [-0.5, 5.5, 3.5, -0.5]  # upsampled over the whole picture
        assert heat.get_clim() == pytest.approx((0, heads[0, 1:].max()))


def test_without_class_token_the_mean_query_is_drawn():
    maps = scores(1, 1, 4, 4)
    axes, scale = plots.attention(maps, image=np.zeros((8, 8, 1))).axes
    assert scale.get_ylabel() == "attention of all patches\nto each patch"
    np.testing.assert_allclose(
        drawn(axes), maps["vit/encoder_block_0/self_attention"][0, 0].mean(0).reshape(2, 2), rtol=1e-6
    )


def test_given_grid_wins():
    maps = scores(1, 1, 8, 8)
    axes, _ = plots.attention(maps, image=np.zeros((8, 8, 1)), grid=(4, 2)).axes
    assert drawn(axes).shape == (4, 2)


def test_maps_of_a_model():
    vit = models.ViT(models.Size(2, 8, 2, 16), patch_size=4, image_size=(8, 16), num_channels=1)
    images = np.random.default_rng(0).uniform(0, 255, (3, 8, 16, 1)).astype("float32")
    maps = attention.attention_maps(vit)(images)
    panels = plots.attention(maps, image=images[2], example=2).axes
    expected = np.asarray(maps["encoder_block_1/self_attention"])[2, 1, 0, 1:].reshape(2, 4)
    np.testing.assert_array_equal(drawn(panels[3]), expected)


def test_draws(tmp_path):
    plots.attention(scores(1, 1, 4, 4), image=np.full((8, 8, 3), 0.5)).savefig(tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "maps, arguments, message",
    [
        ({}, {}, "no attention maps"),
        ({"a": np.zeros((2, 3, 3))}, {}, "Expected scores"),
        (scores(batch=2), {"example": 2}, "2 examples"),
        (scores(), {"tokens": ["a", "b"]}, "5 queries and 5 keys"),
        (scores(), {"query_tokens": list("abcde")}, "need tokens"),
        (scores(keys=7, queries=7), {"image": np.zeros((8, 8, 1))}, "7 tokens do not match"),
        (scores(), {"image": np.zeros((8, 8, 1)), "grid": (2, 3)}, "do not match grid=\\(2, 3\\)"),
        (scores(), {"image": np.zeros((8, 8))}, "Expected an image"),
    ],
)
def test_refuses(maps, arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.attention(maps, **arguments)
