"""Functions of images."""

import numpy as np
from keras import ops

from .case import case, normal, uniform

IMAGES = uniform(0, 1, 2, 9, 8, 3)
SHIFTS = np.array([[1, 0.1, -1, 0.2, 0.9, 0.5, 0.001, -0.002]], "float32").repeat(2, 0)
CORNERS = np.array([[[0, 0], [0, 7], [7, 0], [7, 7]]] * 2, "float32")
MOVED = CORNERS + np.array([[[0.5, 0], [0, -1], [1, 0], [-1, -1]]], "float32")


def _of(name, label="", *arrays, images=IMAGES, shapes=None, **options):
    function = getattr(ops.image, name)
    case(f"image.{name}", lambda *x: function(*x, **options), images, *arrays, label=label, shapes=shapes)


# With TensorFlow Keras has no "mirror".
for fill in ("constant", "nearest", "reflect", "wrap"):
    _of("affine_transform", f"bilinear {fill}", SHIFTS, fill_mode=fill)
_of("affine_transform", "nearest", SHIFTS, interpolation="nearest")
_of("perspective_transform", "", CORNERS, MOVED)
_of("perspective_transform", "nearest", CORNERS, MOVED, interpolation="nearest")
_of("crop_images", top_cropping=1, left_cropping=2, target_height=5, target_width=4)
_of("pad_images", top_padding=1, left_padding=2, target_height=12, target_width=11)
_of("extract_patches", size=3, strides=2)
_of("extract_patches", "same", size=(3, 2), padding="same")
_of("extract_patches_3d", images=normal(2, 4, 6, 6, 2), size=(2, 3, 3))
_of("gaussian_blur")
_of("elastic_transform", seed=3, shapes=())
_of("hsv_to_rgb")
_of("rgb_to_hsv")
_of("rgb_to_grayscale")
_of("sobel_edges")
for method in ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"):
    for label, size in (("down", (5, 4)), ("up", (13, 15))):
        _of("resize", f"{method} {label}", size=size, interpolation=method)
_of("resize", "antialias", size=(5, 4), interpolation="bilinear", antialias=True)
_of("resize", "crop", size=(5, 5), crop_to_aspect_ratio=True)
_of("resize", "pad", size=(5, 5), pad_to_aspect_ratio=True)
case(
    "image.map_coordinates",
    lambda x, c: ops.image.map_coordinates(x, c, 1, "constant"),
    *(normal(9, 8), uniform(0, 7, 2, 5)),
    label="linear",
    shapes=(),
)
case(
    "image.map_coordinates",
    lambda x, c: ops.image.map_coordinates(x, c, 0, "nearest"),
    *(normal(9, 8), uniform(0, 7, 2, 5)),
    label="nearest",
    shapes=(),
)
for method in ("linear", "cubic", "lanczos3"):
    case(
        "image.scale_and_translate",
        lambda x, m=method: ops.image.scale_and_translate(
            x, (2, 6, 7, 3), np.array([0.7, 0.9], "float32"), np.array([0.5, -0.2], "float32"), (1, 2), m
        ),
        IMAGES,
        label=method,
        shapes=(),
    )
case("image.ssim", lambda x, y: ops.image.ssim(x, y, 1.0, filter_size=5), IMAGES, uniform(0, 1, 2, 9, 8, 3))
