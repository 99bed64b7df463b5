"""Exports every variant in a separate process, because converters leak and crash: `export_worker.py DIRECTORY [NAME ...]`.

Variants share a graph where possible, with one output each, because starting a converter costs more than the layers.
"""

import json
import sys
import warnings
from functools import partial
from pathlib import Path

import keras
import numpy as np

import cases
from keras_transformer import models, tasks
from keras_transformer.export import ExportOptions, export, load
from keras_transformer.utils.serialization import build_once
from laws import randomize

SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=4, intermediate_dim=32)
MAX_LENGTH = 16


def mixers(group):
    """Returns a model of mechanisms, scorings and positions: padded and causal self-attention."""
    x, mask = keras.Input((None, cases.WIDTH), name="x"), keras.Input((None,), dtype="bool", name="padding_mask")
    outputs = {}
    for name, case in group.items():
        layer = case.make()
        supports = layer.supports
        if "bidirectional" in supports:
            outputs[f"{name}-padded"] = layer(x, x, query_mask=mask, value_mask=mask)
        if "causal" in supports:
            outputs[f"{name}-causal"] = layer(x, x, use_causal_mask=True, query_mask=mask)
    return keras.Model({"x": x, "padding_mask": mask}, _plain_names(outputs))


def cached_mixers(group):
    """Returns a model of one decoding step of each mixer, with the cache as inputs and outputs and an index per row."""
    x, index = keras.Input((None, cases.WIDTH), name="x"), keras.Input((), dtype="int32", name="cache_index")
    inputs, outputs = {"x": x, "cache_index": index}, {}
    for name, case in group.items():
        layer = case.make()
        if "cache" not in layer.supports:
            continue
        build_once(layer, x.shape, x.shape)  # The width of a state may be that of the tokens.
        empty = layer.init_cache(1, MAX_LENGTH)
        cache = {}
        for slab, tensor in empty.items():
            label = f"{name}-{slab}".replace("-", "_")
            dtype = keras.backend.standardize_dtype(tensor.dtype)
            cache[slab] = inputs[label] = keras.Input(tensor.shape[1:], dtype=dtype, name=label)
        output, following = layer(x, x, cache=cache, cache_index=index)
        outputs[name] = output
        outputs |= {f"next-{name}-{slab}": tensor for slab, tensor in following.items()}
    return keras.Model(inputs, _plain_names(outputs))


def sequence_layers():
    """Returns a model of all other layers that map tokens to tokens."""
    x = keras.Input((None, cases.WIDTH), name="x")
    kinds = ("embedding-position-", "feedforward-", "residual-", "layer-decoder_block")
    outputs = {}
    for name, case in cases.ALL.items():
        if name.startswith(kinds):
            arguments = {"max_sequence_length": 64} if "learned" in name else {}
            outputs[name] = case.make(**arguments)(*[x] * len(case.inputs()))
    return keras.Model(x, _plain_names(outputs))


def resized_vit():
    backbone = models.ViT(SIZE, patch_size=4, image_size=(16, 8), grid_size=(2, 3))
    return tasks.ImageClassifier(backbone, num_classes=5)


def resized_dinov2():
    backbone = models.with_image_size(models.DINOv2(SIZE, patch_size=4, image_size=12, gated=True), (8, 16))
    return tasks.ImageClassifier(backbone, num_classes=5, pooling="class_token_and_mean")


def dinov3_of_any_size():
    return models.DINOv3(SIZE, patch_size=4, image_size=None, gated=True, mask_token=False, layer_scale=0.3)


def detector_of_any_size():
    """Positions are resized in the graph."""
    backbone = models.YOLOS(SIZE, 4, grid_size=(2, 3), num_detection_tokens=5, positions_in_blocks=True)
    return tasks.ObjectDetector(backbone, num_classes=3)


def detections():
    """For images of a fixed size, without the classes, which are 0 for random weights."""
    model = tasks.with_detections(models.with_image_size(detector_of_any_size(), (16, 8)))
    return keras.Model(model.input, {name: model.output[name] for name in ("boxes", "scores")})


def detr_of_any_size():
    """Sine positions of a dynamic size, and a mask of pixels."""
    backbone = models.ResNet(models.ResNetSize((8, 16), (1, 1), stem_dim=8), num_channels=2, frozen_norm=True)
    size = models.DETRSize(16, (1, 2), (2, 4), (24, 20))
    model = models.DETR(size, backbone=backbone, num_queries=5, pixel_mask=True)
    return tasks.ObjectDetector(model, num_classes=3, num_class_layers=1)


def segmenter_of_any_size():
    """Grids, and the sizes that the head resizes between, are known only when the graph runs."""
    size = models.SegFormerSize((8, 12, 10), (1, 1, 1), (2, 3, 1), (5, 3, 3), (3, 2, 2), (3, 2, 1), (2, 1, 2))
    return tasks.SemanticSegmenter(models.SegFormer(size, stochastic_depth=0.0), num_classes=5, hidden_dim=8)


def masks():
    size = models.SegFormerSize((8, 12), (1, 2), (2, 3), (5, 3), (3, 2), (2, 1), (2, 1))
    segmenter = tasks.SemanticSegmenter(models.SegFormer(size, image_size=(17, 26)), num_classes=5, hidden_dim=8)
    logits = segmenter.output
    return keras.Model(segmenter.input, {**tasks.with_masks(segmenter).output, "logits": logits})


def swin():
    """Returns a model of image layers, with windows and patches that do not divide the image, and shifts."""
    size = models.SwinSize(hidden_dim=8, num_layers=(2, 2), num_heads=(2, 4))
    backbone = models.Swin(size, patch_size=2, image_size=(19, 14), window_size=3)
    return tasks.ImageClassifier(backbone, num_classes=5, pooling="mean")


def clip():
    vision = models.CLIPVision(SIZE, patch_size=4, image_size=8, projection_dim=6)
    return models.CLIP(vision=vision, text=models.CLIPText(SIZE, vocabulary_size=20, end_id=19, projection_dim=6))


def mixed_precision_vit():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return tasks.ImageClassifier(models.ViT(SIZE, 4, 8, class_token=False), num_classes=5, pooling="mean")
    finally:
        keras.config.set_dtype_policy("float32")


MODELS = {
    **{f"mixers_{index}": partial(mixers, group) for index, group in enumerate(cases.GROUPS)},
    **{f"cached_mixers_{index}": partial(cached_mixers, group) for index, group in enumerate(cases.GROUPS)},
    "sequence_layers": sequence_layers,
    "vit": lambda: tasks.ImageClassifier(models.ViT(SIZE, patch_size=4, image_size=8), num_classes=5),
    "vit_resized": resized_vit,
    "vit_mixed_precision": mixed_precision_vit,
    "deit": lambda: tasks.DistilledImageClassifier(models.DeiT(SIZE, patch_size=4, image_size=8), num_classes=5),
    "dinov2_resized": resized_dinov2,
    "dinov3_of_any_size": dinov3_of_any_size,
    "detector_of_any_size": detector_of_any_size,
    "detections": detections,
    "detr_of_any_size": detr_of_any_size,
    "segmenter_of_any_size": segmenter_of_any_size,
    "masks": masks,
    "swin": swin,
    "clip": clip,
    "encoder": lambda: models.Encoder(SIZE, vocabulary_size=50, max_sequence_length=64),
    "encoder_batch_norm": lambda: models.Encoder(SIZE, 50, position="sinusoidal", residual="post", norm="batch_norm"),
    "decoder": lambda: tasks.LanguageModel(models.Decoder(SIZE, 50, max_sequence_length=64)),
    "decoder_rotary": lambda: tasks.LanguageModel(
        models.Decoder(SIZE, 50, position="rotary", norm="rms_norm", feedforward="gated", activation="silu")
    ),
    "transformer": lambda: tasks.LanguageModel(models.Transformer(SIZE, 50)),
}


# Models that keep their initial weights.
INITIAL = {"detr_of_any_size"}


def probes_of_cache(model):
    """Returns probes of several lengths and cache indices, in batches of 1, 2 and 5."""
    rng, probes = np.random.default_rng(0), []
    for batch_size, length, index in ((1, 1, [3]), (2, 4, [0, 9]), (5, 3, [0, 1, 2, 5, 13])):
        probe = {"x": rng.normal(size=(batch_size, length, cases.WIDTH)), "cache_index": np.array(index, "int32")}
        for name, tensor in model.input.items():
            if name not in probe:
                size = (batch_size, *tensor.shape[1:])
                probe[name] = rng.integers(0, 2, size) if "int" in tensor.dtype else rng.normal(size=size)
                if name.endswith("state"):  # Includes sums of positive features, by which outputs are divided.
                    probe[name] = np.abs(probe[name])
        probes.append({name: np.asarray(value, model.input[name].dtype) for name, value in probe.items()})
    return probes


def _plain_names(outputs):
    return {name.replace("-", "_"): tensor for name, tensor in outputs.items()}


def difference_of_a_second_call(bundle):
    """Returns the largest difference of an output between two calls of one TFLite runtime on each probe."""
    model, probes, worst = load(bundle, "tflite"), np.load(bundle / "probes.npz"), 0.0
    for number in sorted({key.split("/")[1] for key in probes if key.startswith("serve/")}):
        inputs = {key.split("/")[-1]: probes[key] for key in probes if key.startswith(f"serve/{number}/inputs/")}
        once, again = (model(inputs) for _ in range(2))
        worst = max(worst, *(float(np.abs(once[name] - again[name]).max()) for name in once))
    return worst


def main(directory, *names):
    results = {}
    warnings.filterwarnings("error", message="onnx: the graph is not optimized")
    for name in names or MODELS:
        keras.utils.set_random_seed(0)
        # Random statistics in the batch norms of a convolutional network would overflow float32.
        model = MODELS[name]() if name in INITIAL else randomize(MODELS[name](), scale=0.1)
        probes = probes_of_cache(model) if name.startswith("cached_mixers") else None
        try:
            # tests/export/test_language.py tests the generation of exported language models.
            results[name] = export(
                model, directory / name, probes=probes, options=ExportOptions(generation=False)
            ).to_dict()
            results[name]["difference_of_a_second_call"] = difference_of_a_second_call(directory / name)
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {error}"}
        (directory / "results.json").write_text(json.dumps(results))
        keras.backend.clear_session()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
