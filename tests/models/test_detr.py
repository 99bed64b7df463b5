"""DETR: padded batches, its positions, its blocks, and files with the names of timm."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformer import checkpoints, models, tasks, vision
from keras_transformer.attention import MultiHeadAttention, PositionedAttention
from keras_transformer.blocks import QueryDecoderBlock
from keras_transformer.checkpoints.families.vision.detectors import detr
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.training import DetectionLoss
from laws import randomize

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "detr-ObjectDetection"
RESNET = models.ResNetSize((8, 12), (1, 2), stem_dim=4)
SIZE = models.DETRSize(12, (1, 2), (2, 3), (10, 14))


def test_padding_is_hidden_as_in_transformers():
    loaded, expected = checkpoints.from_huggingface(FOLDER, verbose=0), np.load(FOLDER / "expected.npz")
    options = {"activation": "silu", "downsample_in_bottleneck": True, "frozen_norm": True}
    backbone = models.DETR(
        SIZE,
        backbone=models.ResNet(RESNET, num_channels=2, **options),
        num_queries=5,
        pixel_mask=True,
        activation="silu",
    )
    model = tasks.ObjectDetector(backbone, 4, num_class_layers=1)
    values = {weight.path: weight for weight in loaded.weights}
    for weight in model.weights:
        weight.assign(values[weight.path])
    images, mask = expected["input/images"], expected["pixel_mask"]
    found = model({"images": images, "pixel_mask": mask})
    for name in ("logits", "boxes"):
        theirs = expected[f"padded_{name}"]
        np.testing.assert_allclose(np.asarray(found[name]), theirs, atol=2e-6 * max(1, np.abs(theirs).max()))
    assert np.abs(expected["padded_logits"] - expected["output/logits"])[:2].max() > 1e-3
    # What is behind the mask changes nothing once the feature map is made of it: only whole cells are hidden.
    whole = model({"images": images, "pixel_mask": np.ones_like(mask)})
    np.testing.assert_allclose(np.asarray(whole["logits"]), expected["output/logits"], atol=2e-5)


def test_positions_are_those_of_the_paper():
    layer, mask = vision.SinePositions(8, max_wavelength=50.0), np.ones((2, 3, 4), bool)
    mask[1, 2], mask[1, :, 3] = False, False
    found = np.asarray(layer(np.zeros((2, 3, 4, 5)), mask))
    for row, column in ((0, 0), (1, 2)):
        for image, (height, width) in enumerate(((3, 4), (2, 3))):
            expected = []
            for place, last in ((row + 1, height), (column + 1, width)):
                angle = 2 * np.pi * place / (last + 1e-6)
                for pair in range(2):
                    expected += [np.sin(angle / 50 ** (pair / 2)), np.cos(angle / 50 ** (pair / 2))]
            np.testing.assert_allclose(found[image, row * 4 + column], expected, atol=1e-6)
    np.testing.assert_allclose(np.asarray(layer(np.zeros((2, 3, 4, 5))))[0], found[0], atol=1e-6)


def test_positions_are_added_to_queries_and_keys_alone():
    rng = np.random.default_rng(0)
    x, memory, placed, places = (rng.normal(size=(2, length, 8)).astype("float32") for length in (3, 5, 3, 5))
    block = QueryDecoderBlock(PositionedAttention(2, 4), MultiHeadAttention(2, 4), DenseFeedForward(6))
    mask = np.array([[True] * 5, [True, True, True, False, False]])
    options = {"positions": placed, "memory_positions": places, "memory_mask": mask}
    block(x, memory, **options)
    randomize(block)
    # The same by the parts: post-norm around each sublayer.
    query = x + placed
    y = block.mixer_residual.norms["norm"](x + block.mixer.attention(query, x, query))
    attended = block.cross_attention(y + placed, memory, memory + places, value_mask=mask)
    y = block.cross_attention_residual.norms["norm"](y + attended)
    y = block.feedforward_residual.norms["norm"](y + block.feedforward(y))
    np.testing.assert_allclose(np.asarray(block(x, memory, **options)), np.asarray(y), atol=1e-6)
    changed = np.where(mask[..., None], memory, 7.0).astype("float32")
    np.testing.assert_allclose(np.asarray(block(x, changed, **options)), np.asarray(y), atol=1e-6)


# Names of timm, from those of transformers.
TIMM = (
    ("embedder.embedder.convolution", "conv1"),
    ("embedder.embedder.normalization", "bn1"),
    ("shortcut.convolution", "downsample.0"),
    ("shortcut.normalization", "downsample.1"),
    *((f"layer.{index}.convolution", f"conv{index + 1}") for index in range(3)),
    *((f"layer.{index}.normalization", f"bn{index + 1}") for index in range(3)),
    *((f"encoder.stages.{index}.layers.", f"layer{index + 1}.") for index in range(2)),
)


def test_files_with_the_names_of_timm_are_read(tmp_path, monkeypatch):
    """The published files have them. Here a small ResNet takes the place of the one that they name."""
    monkeypatch.setitem(detr.SIZES, "50", RESNET)
    folder = pathlib.Path(shutil.copytree(FOLDER, tmp_path / "timm"))
    config = json.loads((folder / "config.json").read_text())
    first = config["backbone_config"] | {"hidden_act": "relu", "downsample_in_bottleneck": False}
    (folder / "config.json").write_text(json.dumps(config | {"backbone_config": first}))
    plain = checkpoints.from_huggingface(folder, verbose=0)
    tensors = load_file(folder / "model.safetensors")
    for theirs, ours in TIMM:
        tensors = {
            name.replace(theirs, ours) if "conv_encoder" in name else name: each for name, each in tensors.items()
        }
    tensors["model.backbone.conv_encoder.model.bn1.num_batches_tracked"] = np.array(3)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    images = np.load(FOLDER / "expected.npz")["input/images"]
    for section in (None, {"model_type": "timm_backbone", "backbone": "resnet50"}):
        changed = config | {"backbone_config": section, "backbone": "resnet50", "use_timm_backbone": True}
        (folder / "config.json").write_text(json.dumps(changed))
        model = checkpoints.from_huggingface(folder, verbose=0)
        np.testing.assert_array_equal(np.asarray(model(images)["logits"]), np.asarray(plain(images)["logits"]))


@pytest.mark.exhaustive
def test_frozen_norms_do_not_learn():
    keras.utils.set_random_seed(0)
    backbone = models.DETR(SIZE, backbone=models.ResNet(RESNET, 32, frozen_norm=True), num_queries=4, dropout=0.0)
    model = tasks.ObjectDetector(backbone, 2, num_class_layers=1, auxiliary=True)
    assert model.output["auxiliary_logits"].shape == (None, 1, 4, 3)
    model.compile(keras.optimizers.Adam(1e-2), loss=DetectionLoss(), jit_compile=False)
    images = np.random.default_rng(0).normal(size=(4, 32, 32, 3)).astype("float32")
    targets = vision.box_targets([[[4, 4, 20, 20]]] * 4, [[1]] * 4, (32, 32))
    before = {weight.path: np.asarray(weight) for weight in model.weights}
    history = model.fit(images, targets, epochs=8, batch_size=4, verbose=0).history["loss"]
    assert history[-1] < 0.8 * history[0]
    same = {weight.path for weight in model.weights if np.array_equal(np.asarray(weight), before[weight.path])}
    frozen = {path for path in before if path.startswith(("stem", "stage")) and "_norm/" in path}
    assert len(frozen) == 4 * 12
    assert frozen <= same
    # The first queries are zeros: what they are multiplied by does not learn. Biases of keys change nothing.
    assert all(path.startswith("decoder_block_0/self_attention") or "key/bias" in path for path in same - frozen)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="no feature maps"):
        models.DETR(SIZE, backbone=models.ViT(models.Size(1, 8, 2, 16), 4, 8))
    with pytest.raises(ValueError, match="image_size"):
        models.DETR(SIZE, 32, backbone=models.ResNet(RESNET))
    with pytest.raises(ValueError, match="multiple of 4"):
        vision.SinePositions(6)
    with pytest.raises(ValueError, match="one length"):
        models.ResNet(models.ResNetSize((8,), (1, 2)))
