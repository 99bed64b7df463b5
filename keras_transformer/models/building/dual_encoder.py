"""The graph of a dual encoder of images and texts."""

from __future__ import annotations

import keras

from keras_transformer.models.building.clip_layers import ContrastiveLogits, UnitLength


def dual_encoder(
    vision: keras.Model, text: keras.Model, logits: ContrastiveLogits, vector: str, name: str
) -> keras.Model:
    """Two towers, and the similarity of every image to every text.

    Args:
        vision, text: models whose outputs are dicts.
        logits: `ContrastiveLogits`.
        vector: str. The output of a tower that is compared, `(B, E)`.
        name: str.

    Returns:
        `keras.Model`: the inputs of both to {"logits": float32 `(B, B)`, images in rows and texts in columns,
        "image_embedding" and "text_embedding": float32 `(B, E)` of length 1}.
    """
    images = vision.input if isinstance(vision.input, dict) else {"images": vision.input}
    unit = {
        f"{kind}_embedding": UnitLength(name=f"{kind}_embedding", dtype="float32")(tower.output[vector])
        for kind, tower in (("image", vision), ("text", text))
    }
    return keras.Model({**images, **text.input}, {"logits": logits(*unit.values()), **unit}, name=name)
