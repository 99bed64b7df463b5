"""Makes the folders siglip*: python tests/data/checkpoints/make_siglip.py (transformers 5.23, torch 2.13)."""

import numpy as np
import transformers
from make_vision import LOGITS, POOLED, TOKENS, image_model, images, pixels, text_model, texts
from writing import build, gradients, run, write

VISION = {
    "hidden_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "patch_size": 4,
    "num_channels": 2,
    "hidden_act": "relu",
}
# The pictures of transformers' SigLIP are squares.
SQUARE = {**VISION, "image_size": 12}
TEXT = {
    "vocab_size": 60,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 13,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "projection_size": 6,
}
# Rows and columns of the pictures: larger and smaller than the table on either side, and padded. Not several rows of one
# column, which torch 2.13 resizes wrongly: all rows are as the first.
GRIDS = ((2, 5), (1, 4), (4, 2))
NAFLEX = {**VISION, "num_patches": 9}
PAIR_GRADIENTS = (
    "logit_scale",
    "logit_bias",
    "vision_model.head.probe",
    "vision_model.head.attention.in_proj_weight",
    "vision_model.head.mlp.fc1.bias",
    "text_model.head.weight",
    "text_model.encoder.layers.0.self_attn.k_proj.weight",
)


def patches(config):
    """What the image processor gives: patches row by row, padded with zeros; their grid, and which of them are real."""
    longest = max(rows * columns for rows, columns in GRIDS)
    width = config["patch_size"] ** 2 * config["num_channels"]
    mask = np.arange(longest) < np.array([[rows * columns] for rows, columns in GRIDS])
    values = np.random.default_rng(0).normal(size=(len(GRIDS), longest, width)).astype("float32")
    return {"patches": values * mask[..., None], "patch_grid": np.array(GRIDS, "int32"), "patch_mask": mask}


def as_theirs(inputs):
    names = {"patches": "pixel_values", "patch_grid": "spatial_shapes", "patch_mask": "pixel_attention_mask"}
    return {names[name]: value.astype("int64") if name == "patch_grid" else value for name, value in inputs.items()}


def pair_model(name, cls, config, inputs, theirs, names=()):
    """A folder of a model of images and texts."""
    model, (token_ids, mask) = build(cls, config), texts()
    theirs = {"input_ids": token_ids.astype("int64"), "attention_mask": mask, **theirs}
    found = run(model, **theirs)
    outputs = {
        "logits": found.logits_per_image,
        "image_embedding": found.image_embeds,
        "text_embedding": found.text_embeds,
    }
    more = gradients(model, names, theirs, output="logits_per_image") if names else {}
    write(name, model, {**inputs, "token_ids": token_ids, "padding_mask": mask}, outputs, **more)


def patch_model(name, cls, config, names):
    """A folder of a model of patches alone."""
    model, inputs = build(cls, config), patches(NAFLEX)
    found = run(model, **as_theirs(inputs))
    write(name, model, inputs, {our: found[their] for our, their in names.items()})


def main():
    pictures = images(SQUARE)
    deep = {"num_hidden_layers": 2}
    config = transformers.SiglipConfig(text_config=TEXT | deep, vision_config=SQUARE | deep, num_labels=5)
    taken = {"images": pictures}
    pair_model("siglip-Model", transformers.SiglipModel, config, taken, pixels(pictures), PAIR_GRADIENTS)
    image_model(
        "siglip-ImageClassification", transformers.SiglipForImageClassification, config, LOGITS, pictures=SQUARE
    )
    vision = transformers.SiglipVisionConfig(**SQUARE)
    image_model("siglip_vision_model-Model", transformers.SiglipVisionModel, vision, POOLED)
    vision = transformers.SiglipVisionConfig(**SQUARE, vision_use_head=False)
    image_model("siglip_vision_model_plain-Model", transformers.SiglipVisionModel, vision, TOKENS)
    text = transformers.SiglipTextConfig(**TEXT)
    text_model("siglip_text_model-Model", transformers.SiglipTextModel, text, POOLED)
    config = transformers.Siglip2Config(text_config=TEXT, vision_config=NAFLEX, num_labels=5)
    inputs = patches(NAFLEX)
    pair_model("siglip2-Model", transformers.Siglip2Model, config, inputs, as_theirs(inputs))
    patch_model("siglip2-ImageClassification", transformers.Siglip2ForImageClassification, config, LOGITS)
    vision = transformers.Siglip2VisionConfig(**NAFLEX)
    patch_model("siglip2_vision_model-Model", transformers.Siglip2VisionModel, vision, POOLED)
    text = transformers.Siglip2TextConfig(**TEXT)
    text_model("siglip2_text_model-Model", transformers.Siglip2TextModel, text, POOLED)


if __name__ == "__main__":
    main()
