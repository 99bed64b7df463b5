"""ImageProcessor against transformers' (fixtures by tests/data/processors/make_images.py), and by hand."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from keras_transformer.vision import ImageError, ImageProcessor, ImageProcessorError

DATA = Path(__file__).parents[1] / "data" / "processors"
PICTURES = DATA / "pictures"
EXPECTED = np.load(DATA / "images.npz")
# Pillow resamples in another order since version 13: the noise of these pictures moves by ten levels, at most.
LEVELS = 0 if int(PIL.__version__.split(".")[0]) >= 13 else 12
KINDS = sorted({name.split("/")[0] for name in EXPECTED.files})


def opened(name):
    """A picture as transformers was given it."""
    path = PICTURES / name
    return Image.open(path) if name == "clear.png" else path


@pytest.mark.parametrize("kind", KINDS)
def test_equals_transformers(kind):
    processor = ImageProcessor.from_huggingface(DATA / kind)
    names = [name.split("/")[1] for name in EXPECTED.files if name.startswith(f"{kind}/")]
    assert len(names) >= 5
    for name in names:
        expected = EXPECTED[f"{kind}/{name}"]
        pixels = processor(opened(name))
        assert pixels.dtype == np.float32
        scale = (processor.rescale or 1.0) / np.min(processor.std or 1.0)
        np.testing.assert_allclose(pixels[0], expected, atol=1e-5 + LEVELS * scale, err_msg=name)
        assert processor.output_size == expected.shape[:2]
        # Steps left out by mistake would show: the pictures differ from what they become.
        assert expected.std() > 0.1


def test_images_of_different_sizes_are_padded_to_multiples():
    processor = ImageProcessor.from_huggingface(DATA / "yolos")
    names, arrays = ("wide.png", "tall.png"), np.load(DATA / "yolos" / "images.npz")
    expected = [arrays[f"yolos/{name}"] for name in names]
    both = processor([PICTURES / name for name in names])
    assert processor.output_size is None
    assert both.shape == (2, *np.max([each.shape for each in expected], axis=0))
    for padded, alone in zip(both, expected, strict=True):
        height, width, _ = alone.shape
        assert (height % 16, width % 16) == (0, 0)
        np.testing.assert_allclose(padded[:height, :width], alone, atol=1e-5 + LEVELS / 50)
        assert not padded[height:].any()
        assert not padded[:, width:].any()


def from_settings(folder, **settings):
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return ImageProcessor.from_huggingface(folder)


def test_sizes_of_detr_are_no_multiples(tmp_path):
    """The sizes are those of transformers' DetrImageProcessor; all else is as for YOLOS."""
    edges = {"shortest_edge": 37, "longest_edge": 51}
    processor = from_settings(tmp_path, image_processor_type="DetrImageProcessor", size=edges)
    shapes = [processor(PICTURES / name)[0].shape for name in ("wide.png", "tall.png")]
    assert shapes == [(36, 51, 3), (51, 28, 3)]
    assert processor([PICTURES / "wide.png", PICTURES / "tall.png"]).shape == (2, 51, 51, 3)
    processor.to_huggingface(tmp_path / "again")
    assert ImageProcessor.from_huggingface(tmp_path / "again") == processor
    assert "Detr" in (tmp_path / "again" / "preprocessor_config.json").read_text()


def test_labels_of_segformer_do_not_change_images(tmp_path):
    kind, size = "SegformerImageProcessor", {"height": 16, "width": 16}
    processor = from_settings(tmp_path, image_processor_type=kind, size=size, resample=3, do_reduce_labels=True)
    assert processor == ImageProcessor.from_huggingface(DATA / "swin")
    assert from_settings(tmp_path, image_processor_type=kind).output_size == (512, 512)


def test_nested_file_of_transformers_5():
    assert ImageProcessor.from_huggingface(DATA / "nested") == ImageProcessor.from_huggingface(DATA / "clip")


def test_forms_of_a_picture_are_one():
    processor = ImageProcessor.from_huggingface(DATA / "bit")
    path = PICTURES / "wide.png"
    image = Image.open(path)
    array = np.asarray(image)
    expected = EXPECTED["bit/wide.png"]
    for pictures in (path, str(path), image, array, array[None], [array]):
        np.testing.assert_allclose(processor(pictures), expected[None], atol=1e-5)
    several = processor([path, PICTURES / "tall.png", array])
    np.testing.assert_allclose(several[[0, 2]], np.stack([expected] * 2), atol=1e-5)
    np.testing.assert_allclose(several[1], EXPECTED["bit/tall.png"], atol=1e-5)
    gray = np.asarray(Image.open(PICTURES / "grey.png"))
    for pictures in (gray, gray[..., None], gray[None, ..., None], np.repeat(gray[..., None], 3, axis=-1)):
        np.testing.assert_allclose(processor(pictures)[0], EXPECTED["bit/grey.png"], atol=1e-5)


def test_by_hand():
    levels = np.arange(4 * 6 * 3, dtype="uint8").reshape(4, 6, 3)
    plain = ImageProcessor(rescale=None)(levels)
    assert plain.dtype == np.float32
    assert plain[0].tolist() == levels.tolist()
    normalized = ImageProcessor(crop_size=(2, 3), rescale=0.5, mean=[1, 2, 3], std=[1, 2, 4])(levels)
    middle = levels[1:3, 1:4].astype("float64")
    np.testing.assert_allclose(normalized[0], (middle * 0.5 - [1, 2, 3]) / [1, 2, 4], atol=1e-6)
    blue_first = ImageProcessor(crop_size=(2, 3), rescale=0.5, mean=[1, 2, 3], std=[1, 2, 4], channel_order="bgr")(
        levels
    )
    np.testing.assert_array_equal(blue_first, normalized[..., ::-1])
    # Larger than the picture: zeros around it, the odd one in front, normalized as well.
    padded = ImageProcessor(crop_size=(5, 6), rescale=1.0, mean=10.0)(levels)
    np.testing.assert_array_equal(padded[0, 0], -10)
    np.testing.assert_array_equal(padded[0, 1:], levels - 10.0)
    # Rec. 601: 0.299, 0.587, 0.114.
    gray = ImageProcessor(rescale=None, channel_order="gray")(
        np.array([[[100, 0, 0], [0, 100, 0], [0, 0, 100]]], "uint8")
    )
    assert gray[..., 0].tolist() == [[[30, 59, 11]]]
    # What is transparent is white.
    clear = np.array([[[10, 20, 30, 0], [10, 20, 30, 255]]], "uint8")
    assert ImageProcessor(rescale=None)(clear)[0].tolist() == [[[255, 255, 255], [10, 20, 30]]]
    # Halving: antialiased bilinear weights 1/8, 3/8, 3/8, 1/8 inside; 3/7, 3/7, 1/7 at the border.
    line = np.array([[0, 70, 140, 210]], "uint8")
    halved = ImageProcessor(size=(1, 2), rescale=None, channel_order="gray")(line)[0, 0, :, 0]
    np.testing.assert_allclose(halved, [(3 * 70 + 140) / 7, (70 + 3 * 140 + 3 * 210) / 7], atol=0.5)


@pytest.mark.parametrize(
    "size, expected",
    [
        ((20, 30), (20, 30)),
        ({"shortest_edge": 20}, (20, 28)),
        ({"shortest_edge": 20, "longest_edge": 24}, (17, 24)),
        ({"shortest_edge": 20, "longest_edge": 40}, (20, 28)),
        ({"max_height": 10, "max_width": 1000}, (10, 14)),
        ({"max_height": 1000, "max_width": 106}, (74, 106)),
    ],
)
def test_sizes(size, expected):
    processor = ImageProcessor(size=size)
    assert processor(PICTURES / "wide.png").shape[1:3] == expected
    turned = np.asarray(Image.open(PICTURES / "wide.png")).transpose(1, 0, 2)
    if not isinstance(size, tuple) and "shortest_edge" in size:
        assert processor(turned).shape[1:3] == expected[::-1]
    assert processor.output_size == (expected if isinstance(size, tuple) else None)


def test_resampling_is_what_is_asked_for():
    results = [
        ImageProcessor(size=(9, 9), resample=name, rescale=None)(PICTURES / "tall.png")[0]
        for name in ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
    ]
    assert all(np.abs(one - two).max() > 1 for number, one in enumerate(results) for two in results[:number])
    picture = Image.open(PICTURES / "tall.png").resize((9, 9), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(results[3], np.asarray(picture))


def test_saved_and_loaded(tmp_path):
    more = {"multiple_of": 3, "pad": True}
    processor = ImageProcessor((5, 7), (3, 4), "lanczos", 0.25, [1, 2, 3], 2.0, "bgr", False, **more)
    processor.save(tmp_path / "a" / "b")
    assert ImageProcessor.load(tmp_path / "a" / "b") == processor
    config = processor.get_config()
    assert ImageProcessor.from_config(config) == processor
    defaults = ImageProcessor().get_config()
    assert all(config[name] != defaults[name] for name in config)
    path = tmp_path / "a" / "b" / "image_processor.json"
    path.write_text(json.dumps({**config, "color": 1}))
    with pytest.raises(ImageProcessorError, match="Invalid settings of an image processor: .*color"):
        ImageProcessor.load(tmp_path / "a" / "b")
    path.write_text(path.read_text()[:20])
    with pytest.raises(ImageProcessorError, match=r"image_processor.json' is not JSON"):
        ImageProcessor.load(tmp_path / "a" / "b")
    with pytest.raises(ImageProcessorError, match="cannot be read: No such file"):
        ImageProcessor.load(tmp_path)


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_written_for_transformers(kind, tmp_path):
    processor = ImageProcessor.from_huggingface(DATA / kind)
    processor.to_huggingface(tmp_path)
    assert ImageProcessor.from_huggingface(tmp_path) == processor
    with pytest.raises(ImageProcessorError, match="padding to a size as of SAM"):
        ImageProcessor(pad=(4, 4)).to_huggingface(tmp_path)
    with pytest.raises(ImageProcessorError, match="channel order 'bgr'"):
        ImageProcessor(channel_order="bgr").to_huggingface(tmp_path)


def test_dataset():
    processor = ImageProcessor((4, 4))
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 6, 3), "uint8")
    expected = processor(images)
    batches = processor.dataset(images, batch_size=2)
    np.testing.assert_array_equal(np.concatenate([batches[index] for index in range(len(batches))]), expected)
    batches = processor.dataset(list(images), range(5), batch_size=2, shuffle=True, seed=1)
    seen = []
    for _ in range(2):
        pairs = [batches[index] for index in range(3)]
        labels = np.concatenate([labels for _, labels in pairs])
        np.testing.assert_array_equal(np.concatenate([pixels for pixels, _ in pairs]), expected[labels])
        assert sorted(labels) == list(range(5))
        seen.append(labels.tolist())
        batches.on_epoch_end()
    assert seen[0] != seen[1]
    with pytest.raises(ImageError, match="5 images but 4 labels"):
        processor.dataset(images, range(4))
    with pytest.raises(ImageError, match="batch_size"):
        processor.dataset(images, batch_size=0)


def test_unfit_pictures(tmp_path):
    processor = ImageProcessor((4, 4))
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "cut.png").write_bytes((PICTURES / "tall.png").read_bytes()[:900])
    Image.fromarray(np.zeros((3, 3), "uint16")).save(tmp_path / "deep.png")
    ones = np.ones((5, 5, 3), "uint8")
    for images, match in (
        (tmp_path / "nowhere.png", r"nowhere.png' does not exist"),
        ([ones, tmp_path / "text.png"], r"text.png' is not an image that Pillow can read"),
        (tmp_path / "cut.png", r"cut.png' cannot be read: .*truncated"),
        (tmp_path / "deep.png", r"deep.png' has the mode 'I(;16)?', more than 8 bits"),
        ([ones, ones.astype("float32")], "Image 1 must be of dtype uint8, not float32"),
        ([ones, ones[None]], r"Image 1 must be \(height, width\) or .*not \(1, 5, 5, 3\)"),
        (np.zeros((3, 5, 5), "uint8"), r"not \(3, 5, 5\)"),
        (np.zeros(5, "uint8"), r"not \(5,\)"),
        (np.zeros((0, 5, 3), "uint8"), "Image 0 has no pixels: 0 x 5"),
        ([], "No image was given"),
        (None, "must be of dtype uint8"),
    ):
        with pytest.raises(ImageError, match=match):
            processor(images)
    with pytest.raises(ImageError, match="Images 0 and 1 have 4 x 5 and 4 x 4 pixels"):
        ImageProcessor({"shortest_edge": 4})([np.ones((4, 5, 3), "uint8"), ones])
    with pytest.raises(ImageError, match=r"Image 0 has 5 x 5 pixels; it is padded to \(5, 4\)"):
        ImageProcessor(pad=(5, 4))(ones)
    with pytest.raises(ImageError, match=r"cannot be resized to 0 x 4"):
        ImageProcessor({"max_height": 4, "max_width": 4})(np.ones((1, 9), "uint8"))
    with pytest.raises(ImageError, match=r"1 x 1000 pixels cannot be resized to 16384 x 16384000"):
        ImageProcessor({"shortest_edge": 2**14})(np.ones((1, 1000), "uint8"))


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"size": 224}, r"size must be \(height, width\) or a dict of"),
        ({"size": {"longest_edge": 0}}, "'longest_edge' of size must be an int from 1"),
        ({"pad": (0, 3)}, "'height' of pad must be an int from 1"),
        ({"pad": "yes"}, "pad must be"),
        ({"size": (0, 3)}, "'height' of size must be an int from 1"),
        ({"size": (3, 10**9)}, "'width' of size must be an int from 1 to 16384"),
        ({"size": {"shortest_edge": 9, "longest_edge": 8}}, "longest edge of size is shorter"),
        ({"crop_size": {"shortest_edge": 9}}, r"crop_size must be \(height, width\)"),
        ({"resample": "cubic"}, "resample must be one of nearest, bilinear"),
        ({"channel_order": "gbr"}, "channel_order must be one of rgb, bgr, gray"),
        ({"rescale": "1"}, "rescale must be a number"),
        ({"mean": [1, 2]}, "mean must be a number, or a list of 3"),
        ({"mean": [1, 2, float("nan")]}, "mean must be"),
        ({"std": [1, 0, 1]}, "std must not be 0"),
        ({"mean": [1, 2, 3], "channel_order": "gray"}, "list of 1 numbers"),
    ],
)
def test_arguments_out_of_range(arguments, match):
    with pytest.raises(ImageProcessorError, match=match):
        ImageProcessor(**arguments)


@pytest.mark.parametrize(
    "change, match",
    [
        (
            {"image_processor_type": "ConvNextImageProcessor"},
            "type 'ConvNextImageProcessor'. Supported: Bit, CLIP, DINOv3ViT, DeiT",
        ),
        ({"image_processor_type": None}, "does not specify the type"),
        ({"do_pad": True}, "do_pad is not supported"),
        ({"resample": 9}, "resample must be an int from 0 to 5"),
        ({"size": {"width": 3}}, "size must be"),
        ({"size": {"height": 10**9, "width": 3}}, "'height' of size must be an int from 1 to 16384"),
        ({"crop_size": {"height": -3, "width": 3}}, "'height' of crop_size"),
        ({"image_mean": "half"}, "mean must be a number"),
        ({"image_std": [0, 1, 1]}, "std must not be 0"),
        ({"do_resize": "yes"}, "do_resize must be true or false"),
        ({"rescale_factor": [1]}, "rescale_factor must be a number"),
    ],
)
def test_unfit_files(change, match, tmp_path):
    config = json.loads((DATA / "bit" / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ImageProcessorError, match=match):
        ImageProcessor.from_huggingface(tmp_path)


def test_unfit_folders(tmp_path):
    with pytest.raises(ImageProcessorError, match="is not a folder"):
        ImageProcessor.from_huggingface(tmp_path / "nowhere")
    with pytest.raises(ImageProcessorError, match="has no preprocessor_config.json, and no processor_config.json with"):
        ImageProcessor.from_huggingface(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    for content, match in ((b"{", "is not JSON"), (b"[]", "is not a JSON object"), (b"\xff{}", "is not JSON")):
        path.write_bytes(content)
        with pytest.raises(ImageProcessorError, match=match):
            ImageProcessor.from_huggingface(tmp_path)
    path.write_text("[" * 100_000)
    with pytest.raises(ImageProcessorError, match="is not JSON"):
        ImageProcessor.from_huggingface(tmp_path)
    # The kind is that of the model where the file does not name it.
    shutil.copy(DATA / "bit" / "preprocessor_config.json", path)
    config = json.loads(path.read_text())
    del config["image_processor_type"]
    path.write_text(json.dumps(config))
    (tmp_path / "config.json").write_text('{"model_type": "dinov2"}')
    assert ImageProcessor.from_huggingface(tmp_path) == ImageProcessor.from_huggingface(DATA / "bit")


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    processor = ImageProcessor((4, 4))
    with pytest.raises(ImportError, match=r"needs Pillow: pip install '.*\[vision\]'"):
        processor(np.ones((5, 5, 3), "uint8"))


@pytest.mark.parametrize("config", [{"image_processor_type": "RTDetrImageProcessor"}, {}], ids=["named", "by_model"])
def test_rt_detr_neither_pads_nor_normalizes(config, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config | {"size": {"height": 6, "width": 4}}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "d_fine"}))
    processor = ImageProcessor.from_huggingface(tmp_path)
    assert processor == ImageProcessor(size=(6, 4))
    processor.to_huggingface(tmp_path / "again")
    assert ImageProcessor.from_huggingface(tmp_path / "again") == processor
