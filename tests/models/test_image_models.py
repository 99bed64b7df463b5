"""Published sizes of the models of images, and of images with texts; images of other sizes."""

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import load_model, models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.checkpoints import ARCHITECTURES, Config
from keras_transformer.models.multimodal import clip, siglip
from keras_transformer.models.vision import convnext, deit, dinov2, dinov3, resnet, sam, segformer, swin
from keras_transformer.models.vision.detectors import d_fine, detr, rt_detr
from keras_transformer.training import ContrastiveLoss, SigmoidContrastiveLoss
from keras_transformer.vision import PatchCoordinates

# As published with the weights: classifiers of 1,000 classes; DINOv2 without a head, and with its mask token.
SWIN_PARAMETERS = {"T": 28_288_354, "S": 49_606_258, "B": 87_768_224, "L": 196_532_476}
DEIT_PARAMETERS = {"Ti": 5_910_800, "S": 22_436_432, "B": 87_338_192}
DINOV2_PARAMETERS = {"S": 22_056_576, "B": 86_580_480, "L": 304_368_640, "g": 1_136_480_768}
# Of transformers' models of the published configs, which have a mask token.
DINOV3_PARAMETERS = {
    "S": 21_596_544,
    "S+": 28_692_864,
    "B": 85_660_416,
    "L": 303_129_600,
    "H+": 840_592_640,
    "7B": 6_716_035_072,
}
CONVNEXT_PARAMETERS = {"T": 27_820_128, "S": 49_454_688, "B": 87_566_464, "L": 196_230_336}
# Of transformers' models of the published configs: segmenters of 150 classes, classifiers of 1,000 with the statistics of
# their batch norms, and detectors of 91 classes with theirs.
SEGFORMER_PARAMETERS = {
    "B0": 3_752_694,
    "B1": 13_715_798,
    "B2": 27_461_974,
    "B3": 47_337_814,
    "B4": 64_108_374,
    "B5": 84_708_694,
}
RESNET_PARAMETERS = {
    "18": 11_689_512 + 9_600,
    "34": 21_797_672 + 17_024,
    "50": 25_557_032 + 53_120,
    "101": 44_549_160 + 105_344,
    "152": 60_192_808 + 151_424,
}
# As published, and 256 frequencies, which are not counted there.
SAM_PARAMETERS = {"B": 93_735_472 + 256, "L": 312_342_832 + 256, "H": 641_090_608 + 256}
DETR_PARAMETERS = {"R50": 41_524_768 + 106_240, "R101": 60_464_672 + 210_688}
# Of transformers' models of the published configs, without what only training uses, with the statistics of batch norms.
RT_DETR_PARAMETERS = {"R18": 20_147_824, "R34": 31_391_892, "R50": 42_895_836, "R101": 76_675_164}
D_FINE_PARAMETERS = {"S": 10_288_165, "M": 19_559_432, "L": 31_241_192, "X": 62_731_176}
CLIP_PARAMETERS = {"B/32": 151_277_313, "B/16": 149_620_737, "L/14": 427_616_513}
# Of the published configs for 224, 256 and 384 pixels, counted by hand.
SIGLIP_PARAMETERS = {"B/16": 203_155_970, "L/16": 652_150_786, "So400m/14": 877_960_498}


@pytest.mark.parametrize(
    "counts, sizes",
    [
        (SWIN_PARAMETERS, swin.SIZES),
        (DEIT_PARAMETERS, deit.SIZES),
        (DINOV2_PARAMETERS, dinov2.SIZES),
        (DINOV3_PARAMETERS, dinov3.SIZES),
        (CONVNEXT_PARAMETERS, convnext.SIZES),
        (SEGFORMER_PARAMETERS, segformer.SIZES),
        (RESNET_PARAMETERS, resnet.SIZES),
        (SAM_PARAMETERS, sam.SIZES),
        (DETR_PARAMETERS, detr.SIZES),
        (RT_DETR_PARAMETERS, rt_detr.SIZES),
        (D_FINE_PARAMETERS, d_fine.SIZES),
        (CLIP_PARAMETERS, clip.SIZES),
        (SIGLIP_PARAMETERS, siglip.SIZES),
    ],
)
def test_every_size_is_pinned(counts, sizes):
    assert set(counts) == set(sizes)


@pytest.mark.parametrize("size", exhaustive_but(["T", "B"], "T"))
def test_swin_parameters(size):
    with unallocated():
        model = tasks.ImageClassifier(models.Swin(size), 1000, pooling="mean")
    assert model.count_params() == SWIN_PARAMETERS[size]


@pytest.mark.parametrize("size", exhaustive_but(DEIT_PARAMETERS, "S"))
def test_deit_parameters(size):
    with unallocated():
        model = tasks.DistilledImageClassifier(models.DeiT(size), 1000)
    assert model.count_params() == DEIT_PARAMETERS[size]


@pytest.mark.parametrize("size", exhaustive_but(["S", "g"], "S"))
def test_dinov2_parameters(size):
    with unallocated():
        model = models.DINOv2(size)
    assert model.count_params() == DINOV2_PARAMETERS[size]


@pytest.mark.parametrize("size", exhaustive_but(["S", "S+", "7B"], "S+"))
def test_dinov3_parameters(size):
    with unallocated():
        model = models.DINOv3(size)
    assert model.count_params() == DINOV3_PARAMETERS[size]


def test_convnext_parameters():
    with unallocated():
        model = models.ConvNeXt("L")
    assert model.count_params() == CONVNEXT_PARAMETERS["L"]


@pytest.mark.parametrize("size, hidden_dim", exhaustive_but([("B0", 256), ("B2", 768)], ("B0", 256)))
def test_segformer_parameters(size, hidden_dim):
    with unallocated():
        model = tasks.SemanticSegmenter(models.SegFormer(size), 150, hidden_dim=hidden_dim)
    statistics = 2 * hidden_dim  # transformers does not count them as parameters.
    assert model.count_params() == SEGFORMER_PARAMETERS[size] + statistics


@pytest.mark.parametrize("size", exhaustive_but(["34", "50"], "50"))
def test_resnet_parameters(size):
    with unallocated():
        model = tasks.ImageClassifier(models.ResNet(size), 1000, pooling="mean")
    assert model.count_params() == RESNET_PARAMETERS[size]


def test_sam_parameters():
    with unallocated():
        model = tasks.PromptedSegmenter(models.SAM("B"))
    assert model.count_params() == SAM_PARAMETERS["B"]


def test_detr_parameters():
    with unallocated():
        model = tasks.ObjectDetector(models.DETR("R50"), 91, num_class_layers=1)
    assert model.count_params() == DETR_PARAMETERS["R50"]


@pytest.mark.parametrize(
    "build, size, count", [(models.RTDETR, "R18", RT_DETR_PARAMETERS), (models.DFINE, "X", D_FINE_PARAMETERS)]
)
def test_parameters_of_detectors_that_refine_boxes(build, size, count):
    with unallocated():
        model = tasks.ObjectDetector(build(size), 80, num_class_layers=1)
    assert model.count_params() == count[size]


@pytest.mark.parametrize("size", exhaustive_but(["B/32", "L/14"], "B/32"))
def test_clip_parameters(size):
    with unallocated():
        model = models.CLIP(size)
    assert model.count_params() == CLIP_PARAMETERS[size]


@pytest.mark.parametrize(
    "size, image_size", exhaustive_but([("B/16", 224), ("L/16", 256), ("So400m/14", 384)], ("B/16", 224))
)
def test_siglip_parameters(size, image_size):
    with unallocated():
        text = models.SigLIPText("B" if size == "B/16" else siglip.SIZES[size][0])
        model = models.SigLIP(size, image_size // siglip.SIZES[size][1] * siglip.SIZES[size][1], text=text)
    assert model.count_params() == SIGLIP_PARAMETERS[size]


def test_class_token_and_mean_stand_behind_one_another():
    backbone = models.DeiT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    model = tasks.ImageClassifier(backbone, 3, pooling="class_token_and_mean", activation=None)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    tokens = np.asarray(backbone(x))
    kernel, bias = (np.asarray(weight) for weight in model.get_layer("logits").weights)
    expected = np.concatenate([tokens[:, 0], tokens[:, 2:].mean(axis=1)], axis=1) @ kernel + bias
    np.testing.assert_allclose(np.asarray(model(x)), expected, atol=1e-5)


def test_two_heads_read_two_tokens_and_their_mean_decides():
    backbone = models.DeiT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    model = tasks.DistilledImageClassifier(backbone, 3)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    tokens, found = np.asarray(backbone(x)), model(x)
    for index, name in enumerate(("class_logits", "distillation_logits")):
        kernel, bias = (np.asarray(weight) for weight in model.get_layer(name).weights)
        np.testing.assert_allclose(np.asarray(found[name]), tokens[:, index] @ kernel + bias, atol=1e-5)
    mean = (np.asarray(found["class_logits"]) + np.asarray(found["distillation_logits"])) / 2
    np.testing.assert_allclose(np.asarray(found["logits"]), mean, atol=1e-6)


def test_a_backbone_without_a_distillation_token_is_refused():
    with pytest.raises(ValueError, match="no distillation token"):
        tasks.DistilledImageClassifier(models.ViT(models.Size(1, 8, 2, 16), 4, 8), 3)


def test_clip_logits_are_scaled_cosines():
    tower = models.Size(1, 8, 2, 16)
    model = models.CLIP(
        vision=models.CLIPVision(tower, 4, 8, projection_dim=6),
        text=models.CLIPText(tower, vocabulary_size=20, end_id=19, projection_dim=6),
        initial_temperature=0.25,
    )
    random = np.random.default_rng(0)
    inputs = {
        "images": random.normal(size=(3, 8, 8, 3)).astype("float32"),
        "token_ids": np.array([[3, 4, 19, 0], [5, 19, 0, 0], [6, 7, 8, 19]], "int32"),
        "padding_mask": np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]], bool),
    }
    found = {name: np.asarray(value) for name, value in model(inputs).items()}
    np.testing.assert_allclose(np.linalg.norm(found["image_embedding"], axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found["logits"], 4 * found["image_embedding"] @ found["text_embedding"].T, atol=1e-5)
    # What stands behind the end token has no influence.
    changed = {**inputs, "token_ids": np.where(inputs["padding_mask"], inputs["token_ids"], 9)}
    np.testing.assert_allclose(np.asarray(model(changed)["logits"]), found["logits"], atol=1e-5)


def test_the_scale_of_clip_is_held_below_its_limit():
    layer = clip.ContrastiveLogits()
    layer.build((None, 2), (None, 2))
    assert float(layer.logit_scale) == pytest.approx(2.6593, abs=1e-4)
    assert float(layer.logit_scale.constraint(np.float32(9.0))) == pytest.approx(np.log(100))
    assert float(layer.logit_scale.constraint(np.float32(1.0))) == 1.0


def test_the_highest_id_ends_a_text_where_no_end_is_known():
    pooling = clip.EndTokenPooling()
    x = np.arange(8.0).reshape(2, 4, 1)
    assert np.asarray(pooling(x, np.array([[1, 7, 3, 7], [9, 2, 2, 2]]))).ravel().tolist() == [1.0, 4.0]


def test_swin_pads_an_image_that_does_not_divide():
    model = models.Swin(models.SwinSize(8, (1, 1), (2, 2)), patch_size=4, image_size=(10, 7), window_size=2)
    x = np.random.default_rng(0).normal(size=(2, 10, 7, 3)).astype("float32")
    padded = models.Swin(models.SwinSize(8, (1, 1), (2, 2)), patch_size=4, image_size=(12, 8), window_size=2)
    padded.set_weights(model.get_weights())
    wider = np.pad(x, [(0, 0), (0, 2), (0, 1), (0, 0)])
    assert model.output_shape == (None, 2, 16)
    np.testing.assert_allclose(np.asarray(model(x)), np.asarray(padded(wider)), atol=1e-6)


def test_stochastic_depth_grows_along_the_stack():
    model = models.Swin(models.SwinSize(8, (1, 2), (2, 2)), patch_size=4, image_size=8, window_size=2)
    rates = [layer.residual.stochastic_depth for layer in model.layers if hasattr(layer, "residual")]
    np.testing.assert_allclose(rates, [0.0, 0.05, 0.1])


def test_another_image_size_takes_the_same_weights(tmp_path):
    model = models.DeiT(models.Size(1, 8, 2, 16), patch_size=4, image_size=(8, 12))
    classifier = tasks.DistilledImageClassifier(model, 3)
    larger = models.with_image_size(classifier, (12, 16))
    other = models.DeiT(models.Size(1, 8, 2, 16), patch_size=4, image_size=(12, 16), grid_size=(2, 3))
    expected = tasks.DistilledImageClassifier(other, 3)
    expected.set_weights(classifier.get_weights())
    x = np.random.default_rng(0).normal(size=(2, 12, 16, 3)).astype("float32")
    wanted = np.asarray(expected(x)["logits"])
    np.testing.assert_allclose(np.asarray(larger(x)["logits"]), wanted, atol=1e-6)
    assert larger.weights[0] is classifier.weights[0]
    larger.save(tmp_path / "larger.keras")
    np.testing.assert_allclose(np.asarray(load_model(tmp_path / "larger.keras")(x)["logits"]), wanted, atol=1e-6)


@pytest.mark.parametrize("kind", exhaustive_but(["dinov3", "convnext", "segformer", "resnet"], "segformer"))
def test_a_model_without_a_table_takes_images_of_any_size(kind, tmp_path):
    if kind == "dinov3":
        fixed = tasks.ImageClassifier(models.DINOv3(models.Size(1, 8, 2, 16), patch_size=4, image_size=(8, 12)), 3)
    elif kind == "segformer":
        size = models.SegFormerSize((8, 12), (1, 1), (2, 3), (3, 3), (2, 2), (2, 1), (2, 1))
        fixed = tasks.SemanticSegmenter(models.SegFormer(size, image_size=(8, 12)), 3, hidden_dim=8)
    elif kind == "resnet":
        backbone = models.ResNet(models.ResNetSize((8, 12), (1, 1), stem_dim=4), image_size=(8, 12))
        fixed = tasks.ObjectDetector(models.DETR(models.DETRSize(8, (1, 1), (2, 2), (8, 8)), backbone=backbone), 3)
    else:
        fixed = models.ConvNeXt(models.ConvNeXtSize((4, 8), (1, 1)), image_size=(8, 16), layer_scale=0.5)
    open_size = models.with_image_size(fixed, None)
    assert open_size.input_shape == (None, None, None, 3)
    open_size.save(tmp_path / "any.keras")
    loaded = load_model(tmp_path / "any.keras")
    for size in ((8, 12), (24, 8)):
        x = np.random.default_rng(0).normal(size=(2, *size, 3)).astype("float32")
        wanted, found, again = (
            np.asarray(keras.tree.flatten(each(x))[-1])
            for each in (models.with_image_size(fixed, size), open_size, loaded)
        )
        np.testing.assert_allclose(found, wanted, atol=2e-6)
        np.testing.assert_array_equal(again, found)
    with pytest.raises(ValueError, match="must be static"):
        models.with_image_size(models.ViT(models.Size(1, 8, 2, 16), 4, 8), None)


def test_coordinates_are_rescaled_in_training_alone():
    model = models.DINOv3(models.Size(1, 8, 2, 16), patch_size=4, image_size=8, layer_scale=1.0)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    first, second = (np.asarray(model(x, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-4
    np.testing.assert_array_equal(model(x), model(x))
    off = PatchCoordinates()
    model = models.DINOv3(models.Size(1, 8, 2, 16), patch_size=4, image_size=8, layer_scale=1.0, coordinates=off)
    np.testing.assert_allclose(model(x, training=True), model(x), atol=1e-5)  # Norms are rounded otherwise in training.


def test_a_model_without_patches_cannot_be_resized():
    model = models.Swin(models.SwinSize(8, (1,), (2,)), patch_size=4, image_size=8, window_size=2)
    with pytest.raises(ValueError, match="PatchEmbedding"):
        models.with_image_size(model, 16)


# Files leave out what is transformers' default. DINOv2 has its mask token put aside, and a table for 224 pixels.
DEFAULTS = {
    "vit": 86_567_656 - 769_000,
    "deit": 87_338_192 - 2 * 769_000,
    "dinov2": 86_580_480 - 768 - (37**2 - 16**2) * 768,
    "dinov3_vit": 21_596_544 - 384 - 4 * 384,
    "dinov3_convnext": 27_820_128,
    "swin": 28_288_354 - 769_000,
    "segformer": 3_319_392,
    "detr": 41_524_768 + 106_240 - 156_256,
    "clip": 151_277_313,
    "siglip": 203_155_970,
    # A linear map of patches, and 256 positions instead of 196.
    "siglip2": 203_155_970 + 60 * 768,
}


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_defaults_of_configs(model_type):
    with unallocated():
        model = ARCHITECTURES[model_type]().backbone(Config({"model_type": model_type}))
    assert model.count_params() == DEFAULTS[model_type]


@pytest.mark.exhaustive
def test_clip_learns_which_text_is_of_which_image():
    keras.utils.set_random_seed(0)
    tower = models.Size(1, 8, 2, 16)
    model = models.CLIP(
        vision=models.CLIPVision(tower, 4, 8, projection_dim=6),
        text=models.CLIPText(tower, vocabulary_size=20, end_id=19, projection_dim=6),
    )
    x = {
        "images": np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32"),
        "token_ids": np.array([[3, 19], [4, 19], [5, 19], [6, 19]], "int32"),
        "padding_mask": np.ones((4, 2), bool),
    }
    model.compile(keras.optimizers.Adam(3e-3), loss={"logits": ContrastiveLoss()})
    before = np.asarray(model.get_layer("logits").logit_scale)
    history = model.fit(x, {"logits": np.arange(4)}, batch_size=4, epochs=250, verbose=0).history["loss"]
    assert history[-1] < 0.3 < history[0]
    assert np.asarray(model(x)["logits"]).argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert np.asarray(model.get_layer("logits").logit_scale) != before


@pytest.mark.exhaustive
def test_siglip_learns_with_the_sigmoid_loss_which_text_is_of_which_image():
    keras.utils.set_random_seed(0)
    tower = models.Size(1, 16, 2, 32)
    model = models.SigLIP(
        vision=models.SigLIPVision(tower, 4, 8), text=models.SigLIPText(tower, vocabulary_size=20), initial_bias=-1.0
    )
    x = {
        "images": np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32"),
        "token_ids": np.array([[3, 1], [4, 1], [5, 1], [6, 1]], "int32"),
        "padding_mask": np.ones((4, 2), bool),
    }
    model.compile(keras.optimizers.Adam(3e-3), loss={"logits": SigmoidContrastiveLoss()})
    layer = model.get_layer("logits")
    before = [np.asarray(weight) for weight in layer.weights]
    history = model.fit(x, {"logits": np.arange(4)}, batch_size=4, epochs=80, verbose=0).history["loss"]
    assert history[-1] < 0.3 < history[0]
    probabilities = 1 / (1 + np.exp(-np.asarray(model(x)["logits"])))
    np.testing.assert_allclose(probabilities, np.eye(4), atol=0.3)
    assert all(np.asarray(weight) != old for weight, old in zip(layer.weights, before, strict=True))


@pytest.mark.exhaustive
def test_two_heads_learn_from_labels_and_from_a_teacher():
    model = tasks.DistilledImageClassifier(models.DeiT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8), 3)
    x = np.random.default_rng(0).normal(size=(6, 8, 8, 3)).astype("float32")
    labels, answers = np.array([0, 1, 2, 0, 1, 2]), np.array([1, 1, 2, 0, 0, 2])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss={"class_logits": loss, "distillation_logits": loss})
    model.fit(x, {"class_logits": labels, "distillation_logits": answers}, batch_size=6, epochs=60, verbose=0)
    found = {name: np.asarray(value).argmax(axis=1) for name, value in model(x).items()}
    np.testing.assert_array_equal(found["class_logits"], labels)
    np.testing.assert_array_equal(found["distillation_logits"], answers)
