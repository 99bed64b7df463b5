"""Pictures and text, prepared as transformers prepares them for Kosmos-2."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformer import checkpoints, text
from keras_transformer.vision import ImageError, ImageProcessor, ImagesInText

DATA = pathlib.Path(__file__).parents[1] / "data"
FOLDER = DATA / "processors" / "kosmos2"
PICTURE = np.full((15, 20, 3), 255, "uint8")


@pytest.fixture(scope="module")
def expected():
    content = json.loads((FOLDER / "expected.json").read_text())
    return {name: np.array(value) if name != "texts" else value for name, value in content.items()}


@pytest.fixture(scope="module")
def prepare(expected):
    tokenizer = text.from_huggingface(FOLDER)
    begin = tokenizer.token_to_id("<image>")
    return ImagesInText(ImageProcessor.from_huggingface(FOLDER), tokenizer, begin, int(expected["num_image_tokens"]))


def test_texts_are_those_of_transformers_but_for_the_ids_of_places(prepare, expected):
    found = prepare([PICTURE] * 3, expected["texts"], padding="longest")
    is_text = expected["places"] == 0
    np.testing.assert_array_equal(found["padding_mask"], expected["padding_mask"] == 1)
    np.testing.assert_array_equal(found["token_ids"][is_text], expected["token_ids"][is_text])
    begins = found["token_ids"] == prepare.begin_id
    assert begins.sum() == 3
    assert not (begins & ~is_text).any()


def test_pictures_stand_where_the_text_has_them(prepare):
    black = np.zeros_like(PICTURE)
    found = prepare([[PICTURE, black], black], ["a<image></image> b<image></image>", "c"])
    token = prepare.tokenizer.token_to_id
    begin, end, place = token("<image>"), token("</image>"), [token("</image>")] * 3
    letters = prepare.tokenizer.encode
    first = [0, *letters("a"), begin, *place, end, *letters(" b"), begin, *place, end]
    assert found["token_ids"] == [first, [0, begin, *place, end, *letters("c")]]
    white, dark = (prepare.processor([each])[0] for each in (PICTURE, black))
    # What a text has fewer of is zeros, which no place takes.
    np.testing.assert_array_equal(found["images"], [[white, dark], [dark, np.zeros_like(dark)]])


def test_one_text_may_be_given_by_itself(prepare):
    one, listed = prepare(PICTURE, "the king."), prepare([PICTURE], ["the king."])
    assert one["token_ids"] == listed["token_ids"]
    np.testing.assert_array_equal(one["images"], listed["images"])


def test_what_does_not_match_is_named(prepare):
    with pytest.raises(ImageError, match="images for 1 texts, but 2"):
        prepare([PICTURE], ["a", "b"])
    with pytest.raises(ImageError, match="Text 1 has marks for 1 images. Received: 2"):
        prepare([PICTURE, [PICTURE, PICTURE]], ["a", "<image></image>b"])
    with pytest.raises(ValueError, match="frame must contain '<image>' once"):
        ImagesInText(prepare.processor, prepare.tokenizer, prepare.begin_id, 3, frame="<object>")
    with pytest.raises(ValueError, match="begin_id must be in"):
        ImagesInText(prepare.processor, prepare.tokenizer, 10_000, 3)


def test_a_checkpoint_brings_it_along(prepare, tmp_path):
    folder = tmp_path / "kosmos2"
    shutil.copytree(DATA / "checkpoints" / "kosmos2-ConditionalGeneration", folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "processor_config.json"):
        shutil.copy(FOLDER / name, folder)
    config = json.loads((folder / "config.json").read_text()) | {"boi_token_index": prepare.begin_id}
    config["vision_config"]["num_channels"] = 3  # The checkpoint is of two.
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    (name,) = (each for each in tensors if each.endswith("patch_embedding.weight"))
    tensors[name] = np.concatenate([tensors[name], tensors[name][:, :1]], axis=1)
    save_file(tensors, folder / "model.safetensors")
    model = checkpoints.from_huggingface(folder, verbose=0)
    inputs = model.processor([PICTURE, PICTURE], ["the king.", "an image of"])
    answers = model.generate(inputs, max_new_tokens=3)
    # One by one, from what the fixture prepares: rows of a batch say what they say alone.
    alone = [model.generate(prepare(PICTURE, each), max_new_tokens=3)[0] for each in ("the king.", "an image of")]
    assert [list(each) for each in answers] == [list(each) for each in alone]
    assert all(len(each) == 3 for each in answers)
