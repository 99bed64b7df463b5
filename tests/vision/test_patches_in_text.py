"""Images at dynamic resolution, as windows of patches, and texts with them, against transformers."""

import json
import pathlib
import shutil

import numpy as np
import PIL
import pytest

from keras_transformer import text
from keras_transformer.vision import (
    DynamicResolutionProcessor,
    ImageError,
    ImageProcessorError,
    PatchesInText,
    WindowCoordinates,
)
from keras_transformer.vision.processing.dynamic_resolution_processor import dynamic_size

DATA = pathlib.Path(__file__).parents[1] / "data" / "processors"
FOLDER = DATA / "qwen2_5_vl"
WINDOW = 3
IMAGE = "<|image_pad|>"


@pytest.fixture(scope="module")
def prepare():
    tokenizer = text.from_huggingface(FOLDER)
    processor = DynamicResolutionProcessor.from_huggingface(FOLDER, WINDOW)
    return PatchesInText(processor, tokenizer, tokenizer.token_to_id(IMAGE))


def in_rows(patches, grid, merge_size=2):
    """Patches of one image in the order of transformers, group by group, as `(rows, columns, F)`."""
    rows, columns = (side // merge_size for side in grid)
    grouped = patches.reshape(rows, columns, merge_size, merge_size, -1).transpose(0, 2, 1, 3, 4)
    return grouped.reshape(*grid, -1)


@pytest.mark.skipif(
    int(PIL.__version__.split(".")[0]) < 13, reason="Pillow resamples in another order since version 13"
)
def test_patches_are_those_of_transformers(prepare):
    expected = np.load(FOLDER / "patches.npz")
    found = prepare.processor([DATA / "pictures" / name for name in expected["names"]])
    np.testing.assert_array_equal(found["patch_grid"], expected["grid"])
    assert len({tuple(grid) for grid in expected["grid"].tolist()}) > 1
    positions, mask = map(np.asarray, WindowCoordinates(WINDOW)(found["patches"], found["patch_grid"]))
    ends = np.cumsum(expected["grid"].prod(axis=1))
    for number, theirs in enumerate(np.split(expected["patches"], ends[:-1])):
        ours = np.full((*expected["grid"][number], theirs.shape[-1]), np.nan, "float32")
        where = positions[number][mask[number]]
        ours[where[:, 0], where[:, 1]] = found["patches"][number].reshape(-1, theirs.shape[-1])[mask[number]]
        np.testing.assert_allclose(ours, in_rows(theirs, expected["grid"][number]), atol=2e-6)
    # Padding within and behind windows is zero.
    assert not found["patches"].reshape(*mask.shape, -1)[~mask].any()


def test_texts_of_a_chat_have_the_tokens_of_transformers(prepare):
    expected = json.loads((FOLDER / "expected.json").read_text())
    template = prepare.tokenizer.chat_template
    from keras_transformer.generation import ChatTemplate

    texts = [ChatTemplate(template).render(each) for each in expected["messages"]]
    images = [[DATA / "pictures" / name for name in prepare.images_of(each)] for each in expected["messages"]]
    found = prepare(images, texts)
    assert found["token_ids"] == expected["token_ids"]
    assert found["patch_grid"][1, 1].tolist() == [0, 0]
    padded = prepare(images, texts, padding="longest")
    assert padded["padding_mask"].sum(axis=1).tolist() == [len(row) for row in expected["token_ids"]]


def test_a_text_without_marks_has_its_images_before_it_and_one_without_images_none(prepare):
    picture = np.zeros((8, 40, 3), "uint8")
    found = prepare([picture, []], ["a king", "the king"])
    image = prepare.tokenizer.token_to_id(IMAGE)
    count = found["patch_grid"][0, 0].prod() // 4
    assert [row.count(image) for row in found["token_ids"]] == [count, 0]
    framed = prepare.tokenizer.encode(f"<|vision_start|>{IMAGE * count}<|vision_end|>a king", allow_special_tokens=True)
    assert found["token_ids"][0] == framed
    alone = prepare([[]], ["the king"])
    assert alone["token_ids"] == found["token_ids"][1:]
    assert alone["patches"].shape == (1, 1, 1, 36, 96)
    assert not alone["patch_grid"].any()


@pytest.mark.parametrize(
    "height, width, expected",
    [
        (100, 151, (112, 140)),
        (10, 1000, (28, 560)),  # A side is one token at least.
        (42, 70, (56, 56)),  # Halves go to even multiples: 1.5 to 2, 2.5 to 2.
        (3, 5, (56, 84)),  # Larger, to 56 · 56 pixels at least.
        (2000, 1500, (1148, 840)),  # Smaller, to 28 · 28 · 1280 at most.
    ],
)
def test_sizes(height, width, expected):
    assert dynamic_size(height, width, 28, 56 * 56, 28 * 28 * 1280) == expected


def test_the_settings_of_older_files(tmp_path):
    settings = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 64, "max_pixels": 500, "patch_size": 3}
    settings |= {"merge_size": 1, "temporal_patch_size": 3, "do_resize": False, "do_normalize": False}
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps(settings))
    found = DynamicResolutionProcessor.from_huggingface(tmp_path, 2)
    assert (found.min_pixels, found.max_pixels, found.window_shape) == (64, 500, (4, 81))
    picture = np.random.default_rng(0).integers(0, 256, (6, 9, 3), "uint8")
    windows = found([picture])["patches"][0]
    # The second window: its first patch is that of the first row and the third column, each frame the same.
    patch = windows[1, 0].reshape(3, 3, 3, 3)
    np.testing.assert_allclose(
        patch, np.repeat(picture[:3, 6:].transpose(2, 0, 1)[:, None] / 255, 3, axis=1), atol=1e-6
    )
    assert not windows[1, 1].any()
    with pytest.raises(ImageError, match="Image 0 has 6 x 10 pixels, not multiples of 3"):
        found([np.zeros((6, 10, 3), "uint8")])
    file.write_text(json.dumps({**settings, "image_processor_type": "ViTImageProcessor"}))
    with pytest.raises(ImageProcessorError, match="ViTImageProcessor"):
        DynamicResolutionProcessor.from_huggingface(tmp_path)
    file.write_text(json.dumps({**settings, "size": {"height": 5, "width": 5}}))
    with pytest.raises(ImageProcessorError, match="shortest_edge"):
        DynamicResolutionProcessor.from_huggingface(tmp_path)


def test_refusals(prepare):
    picture = np.zeros((8, 8, 3), "uint8")
    with pytest.raises(ImageProcessorError, match="max_pixels"):
        DynamicResolutionProcessor(max_pixels=9)
    with pytest.raises(ImageError, match="Image 1 has 1 x 201 pixels; one side may be 200 times"):
        prepare.processor([picture, np.zeros((1, 201, 3), "uint8")])
    with pytest.raises(ImageError, match="Text 0 has marks for 1 images. Received: 2"):
        prepare([[picture, picture]], [IMAGE])
    with pytest.raises(ImageError, match="Text 0 has a video"):
        prepare([[]], ["<|video_pad|>"])
    with pytest.raises(ImageError, match="have a video"):
        prepare.images_of([{"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}])
    with pytest.raises(ImageError, match="must be paths"):
        prepare.images_of([{"role": "user", "content": [{"type": "image", "image": "https://a.b/c.png"}]}])
    with pytest.raises(ValueError, match="once"):
        PatchesInText(prepare.processor, prepare.tokenizer, prepare.image_id, frame="<|vision_start|>")


@pytest.mark.exhaustive
def test_a_folder_with_these_files_chats_about_images(tmp_path):
    from keras_transformer import checkpoints

    source = DATA.parent / "checkpoints" / "qwen2_5_vl-ConditionalGeneration"
    shutil.copytree(source, tmp_path / "folder")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(FOLDER / name, tmp_path / "folder")
    config = json.loads((source / "config.json").read_text())
    # The tokenizer of the other folder has a mark of its own; patches of two channels are no pictures.
    config["image_token_id"] = text.from_huggingface(FOLDER).token_to_id(IMAGE)
    (tmp_path / "folder" / "config.json").write_text(json.dumps(config))
    settings = json.loads((FOLDER / "preprocessor_config.json").read_text())
    settings |= {"patch_size": 2, "merge_size": 3, "temporal_patch_size": 2}
    (tmp_path / "folder" / "preprocessor_config.json").write_text(json.dumps(settings))
    model = checkpoints.from_huggingface(tmp_path / "folder", verbose=0)
    assert model.processor.processor.window_size == 2
    picture = {"type": "image", "image": DATA / "pictures" / "tall.png"}
    messages = [{"role": "user", "content": [picture, {"type": "text", "text": "a king"}]}]
    answer = model.chat(messages, max_new_tokens=6)
    from keras_transformer.generation import ChatTemplate

    prompt = ChatTemplate.of(model.tokenizer).render(messages)
    tokens = model.generate(model.processor([[picture["image"]]], [prompt]), max_new_tokens=6)[0]
    assert answer == model.tokenizer.decode(tokens)
    assert "".join(model.stream_chat(messages, max_new_tokens=6)) == answer
