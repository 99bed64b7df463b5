import numpy as np
import pytest

from keras_transformer import plots

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3)).astype("uint8")
PROBABILITIES = np.array([[0.75, 0.25], [0.1, 0.9], [0.6, 0.4]])


def test_right_and_wrong():
    panels = plots.predictions(IMAGES, [0, 1, 1], PROBABILITIES, ["cat", "dog"], columns=2).axes
    assert [axes.get_title() for axes in panels] == ["cat\n75%", "dog\n90%", "cat\n60%"]
    assert [axes.get_xlabel().strip() for axes in panels] == ["", "", "is dog"]
    assert panels[0].title.get_color() == panels[1].title.get_color() != panels[2].title.get_color()
    np.testing.assert_allclose(panels[2].get_images()[0].get_array(), IMAGES[2] / 255, rtol=1e-6)


def test_long_names_do_not_collide():
    names = ["great white shark, white shark, man-eater", "Pneumonoultramicroscopic"]
    figure = plots.predictions(IMAGES, [1, 0, 1], PROBABILITIES, names)
    assert [axes.get_title() for axes in figure.axes] == [
        "great white\nshark, white…\n75%",
        "Pneumonoultram\nicroscopic\n90%",
        "great white\nshark, white…\n60%",
    ]
    figure.draw_without_rendering()
    texts = [text for axes in figure.axes for text in (axes.title, axes.xaxis.label) if text.get_text().strip()]
    boxes = [text.get_window_extent() for text in texts]
    assert len(boxes) == 6
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_grey_images_keep_their_values():
    image = np.array([0.0, 0.5, 1.0, 0.25]).reshape(1, 2, 2, 1)
    (axes,) = plots.predictions(image, [0], [[1.0]], ["it"]).axes
    shown = axes.get_images()[0]
    np.testing.assert_array_equal(shown.get_array(), image[0, ..., 0])
    assert shown.get_clim() == (0, 1)  # not stretched


@pytest.mark.parametrize(
    "labels, names, message", [([0, 1], ["cat", "dog"], "2 labels"), ([0, 1, 1], ["cat"], "1 class names")]
)
def test_refuses(labels, names, message):
    with pytest.raises(ValueError, match=message):
        plots.predictions(IMAGES, labels, PROBABILITIES, names)
