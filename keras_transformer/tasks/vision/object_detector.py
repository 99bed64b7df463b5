"""Object detection."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.blocks.block import Block
from keras_transformer.models.vision.detectors.refinement import first_boxes, query_selection, refined_stages
from keras_transformer.tasks.heads import check_count, check_tokens
from keras_transformer.tasks.vision.detection_model import DetectionModel
from keras_transformer.utils.types import Tensor
from keras_transformer.vision.detection.query_selection import prior_logit


def ObjectDetector(
    backbone: keras.Model,
    num_classes: int,
    *,
    num_class_layers: int = 3,
    num_box_layers: int = 3,
    auxiliary: bool = False,
    name: str = "object_detector",
) -> DetectionModel:
    """Object detector: each detection token of a backbone gives a class, or none, and a box.

    Train it with `compile(loss=training.DetectionLoss())` and `fit`; `detect` finds objects in images.

    Args:
        backbone: `keras.Model` from images to tokens `(B, T, D)`. Those of its `vision.DetectionTokens`, at the end, are the
            detection tokens, as of `models.YOLOS`; all tokens, if it has no such layer. Or one that refines boxes block by
            block, as `models.RTDETR`: to {"tokens": `(B, Q, D)`, "boxes": `(B, Q, 4)`}.
        num_classes: int >= 1. C, without the class of no object.
        num_class_layers: int >= 1. Dense layers from a token to the logits; all but the last have ReLU.
        num_box_layers: int >= 1. Dense layers from a token to the box. Only 3 for a backbone that refines boxes.
        auxiliary: bool. Whether the model also has the outputs "auxiliary_logits" and "auxiliary_boxes": what the same
            heads say of the tokens of every block but the last, for `DetectionLoss`; of a backbone that refines boxes, what
            heads of every block say, and the selection of the queries. Before exporting, leave them out:
            `DetectionModel(trained.input, {name: trained.output[name] for name in ("logits", "boxes")})`.
        name: str.

    Returns:
        `DetectionModel`: the backbone's inputs to {"logits": `(B, Q, C + 1)`, "boxes": `(B, Q, 4)`}, float32 under every
        dtype policy. The last logit is that of no object; of a backbone that selects queries, there are C independent ones.
        Boxes are center, width and height, as shares of the image.

    Raises:
        ValueError: a number below 1, or a backbone whose output is not `(B, T, D)`; with `auxiliary`, other classes than
            those that queries are selected for.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.YOLOS(models.Size(1, 8, 2, 16), patch_size=4, image_size=16, num_detection_tokens=5)
    >>> model = ObjectDetector(backbone, num_classes=3)
    >>> model.output["logits"].shape, model.output["boxes"].shape
    ((None, 5, 4), (None, 5, 4))

    Reference: Carion et al., DETR, arXiv 2005.12872, section 3.2 (prediction feed-forward networks, auxiliary losses, with
    the shared norm); of the class, DETR and RT-DETR have one layer and YOLOS (Fang et al., arXiv 2106.00666) three.
    """
    stages = refined_stages(backbone) if isinstance(backbone, keras.Model) else []
    if not stages:
        check_tokens(backbone)
    for label, count in (
        ("num_classes", num_classes),
        ("num_class_layers", num_class_layers),
        ("num_box_layers", num_box_layers),
    ):
        check_count(label, count)
    if stages:
        outputs = _refined(backbone, stages, num_classes, num_class_layers, num_box_layers, auxiliary)
        return DetectionModel(backbone.input, outputs, name=name)
    width = backbone.output.shape[-1]
    class_head = _head("class", width, num_class_layers, num_classes + 1, None, "logits")
    box_head = _head("box", width, num_box_layers, 4, "sigmoid", "boxes")
    count = sum(getattr(layer, "num_detection_tokens", 0) for layer in backbone.layers)
    tokens = backbone.output[:, -count:]
    outputs = {"logits": _apply(class_head, tokens), "boxes": _apply(box_head, tokens)}
    if auxiliary:
        tokens = _auxiliary_tokens(backbone)[:, :, -count:]
        outputs |= {"auxiliary_logits": _apply(class_head, tokens), "auxiliary_boxes": _apply(box_head, tokens)}
    return DetectionModel(backbone.input, outputs, name=name)


def _refined(backbone, stages, num_classes, num_class_layers, num_box_layers, auxiliary):
    """The outputs of a backbone that refines boxes: each block has a head of its own, and the last one counts."""
    if num_box_layers != 3:
        raise ValueError(f"{backbone.name!r} has box heads of 3 layers. Received: num_box_layers={num_box_layers}")
    selection = query_selection(backbone)
    if selection is None:
        raise ValueError(f"{backbone.name!r} refines boxes, but selects no queries: it has no `QuerySelection`.")
    if auxiliary and selection.num_classes != num_classes:
        raise ValueError(
            f"{backbone.name!r} selects queries for {selection.num_classes} classes. Received: num_classes={num_classes}"
        )

    def logits(index):
        last = index == len(stages) - 1
        bias, suffix = keras.initializers.Constant(prior_logit(num_classes)), "" if last else f"_{index}"
        names = f"class{suffix}", f"logits{suffix}"
        head = _head(names[0], stages[index].tokens.shape[-1], num_class_layers, num_classes, None, names[1], bias)
        return _apply(head, stages[index].tokens)

    def judged(index, logits):
        return logits if stages[index].quality is None else logits + stages[index].quality

    last, first = len(stages) - 1, first_boxes(backbone)
    plain = [logits(index) for index in (range(len(stages)) if auxiliary else [last])]
    outputs = {"logits": judged(last, plain[-1]), "boxes": backbone.output["boxes"]}
    if not auxiliary:
        return outputs
    found = [(judged(index, plain[index]), stages[index].boxes) for index in range(last)]
    found += [] if first is None else [(plain[0], first)]
    _, boxes, scores = selection.output
    found.append((scores, boxes))
    names = "auxiliary_logits", "auxiliary_boxes"
    return outputs | {name: ops.stack(each, axis=1) for name, each in zip(names, zip(*found, strict=True), strict=True)}


def _head(label, width, num_layers, units, activation, name, bias="zeros"):
    """The layers of a head."""
    hidden = [
        keras.layers.Dense(width, activation="relu", name=f"{label}_hidden_{index}") for index in range(num_layers - 1)
    ]
    last = keras.layers.Dense(units, activation=activation, bias_initializer=bias, dtype="float32", name=name)
    return [*hidden, last]


def _apply(layers: list[keras.layers.Layer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _auxiliary_tokens(backbone):
    """The tokens after every block but the last, `(B, blocks, T, D)`; of the decoder, if there is one."""
    blocks = [layer for layer in backbone.layers if isinstance(layer, Block)]
    decoder = [layer for layer in blocks if layer.name.startswith("decoder")]
    tokens = [layer.output for layer in (decoder or blocks)[:-1]]
    if not tokens:
        raise ValueError(f"auxiliary=True needs at least two blocks; {backbone.name!r} has {len(decoder or blocks)}.")
    norm = next((layer for layer in backbone.layers if layer.name == "final_norm"), None)
    return ops.stack([each if norm is None else norm(each) for each in tokens], axis=1)
