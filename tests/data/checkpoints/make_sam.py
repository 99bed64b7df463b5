"""Makes the folder sam-Model.

    python tests/data/checkpoints/make_sam.py

With transformers 5.24 and torch 2.13.
"""

import numpy as np
import torch
import transformers
from writing import build, run, write

# A grid of 5 x 5 patches, in windows of 3, which do not divide it; the second block attends to all of it.
VISION = {
    "hidden_size": 12,
    "output_channels": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_channels": 2,
    "image_size": 20,
    "patch_size": 4,
    "hidden_act": "relu",
    "mlp_ratio": 1.5,
    "window_size": 3,
    "global_attn_indexes": [1],
    "num_pos_feats": 12,
}
PROMPT = {"hidden_size": 24, "image_size": 20, "patch_size": 4, "mask_input_channels": 8, "hidden_act": "silu"}
DECODER = {
    "hidden_size": 24,
    "hidden_act": "gelu",
    "mlp_dim": 10,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "attention_downsample_rate": 3,
    "num_multimask_outputs": 2,
    "iou_head_depth": 4,
    "iou_head_hidden_dim": 7,
}
GRADIENTS = (
    "vision_encoder.pos_embed",
    "vision_encoder.layers.0.attn.rel_pos_h",
    "vision_encoder.layers.1.attn.rel_pos_w",
    "vision_encoder.layers.2.attn.qkv.weight",
    "vision_encoder.neck.conv2.weight",
    "prompt_encoder.point_embed.0.weight",
    "prompt_encoder.point_embed.3.weight",
    "prompt_encoder.mask_embed.conv1.weight",
    "mask_decoder.mask_tokens.weight",
    "mask_decoder.transformer.layers.1.cross_attn_image_to_token.k_proj.weight",
    "mask_decoder.upscale_conv1.weight",
    "mask_decoder.output_hypernetworks_mlps.1.proj_in.weight",
)


def with_epsilons(config):
    """The model, with an epsilon of its own in each part."""
    for epsilon, part in ((3e-3, "vision"), (5e-3, "prompt_encoder"), (7e-3, "mask_decoder")):
        getattr(config, f"{part}_config").layer_norm_eps = epsilon
    return transformers.SamModel(config)


def sam():
    config = transformers.SamConfig(vision_config=VISION, prompt_encoder_config=PROMPT, mask_decoder_config=DECODER)
    model = build(with_epsilons, config)
    with torch.no_grad():
        # Frequencies such that the numbers of the reference are not rounded at large angles.
        model.shared_image_embedding.positional_embedding.normal_()
        model.vision_encoder.pos_embed.normal_()
        for name, parameter in (*model.prompt_encoder.named_parameters(), *model.mask_decoder.named_parameters()):
            if not name.startswith("shared") and parameter.ndim > 1:  # Such that the answer depends on the prompt.
                parameter.normal_(std=0.25)
    generator = np.random.default_rng(0)

    def numbers(*shape, scale=1.0):
        return (scale * generator.normal(size=shape)).astype("float32")

    images, masks = numbers(2, 20, 20, 2), numbers(2, 1, 20, 20, scale=3.0)
    points = generator.uniform(0, 20, (2, 2, 2, 2)).astype("float32")
    labels = generator.integers(0, 2, (2, 2, 2))
    boxes = np.sort(generator.uniform(0, 20, (2, 2, 2, 2)), axis=2).reshape(2, 2, 4).astype("float32")
    pixels = images.transpose(0, 3, 1, 2)
    # The points, boxes and masks of transformers, and the same as points with labels.
    no_points, none = np.zeros((2, 2, 1, 2), "float32"), np.full((2, 2, 1), -1)
    corners, of_corners = boxes.reshape(2, 2, 2, 2), np.tile([2, 3], (2, 2, 1))
    cases = {
        "points": ({"input_points": points, "input_labels": labels}, (points, no_points), (labels, none)),
        "boxes": ({"input_boxes": boxes}, (corners,), (of_corners,)),
        "both": (
            {"input_points": points, "input_labels": labels, "input_boxes": boxes, "input_masks": masks},
            (points, corners),
            (labels, of_corners),
        ),
    }
    more, inputs, outputs = {}, {}, {}
    for name, (theirs, places, names) in cases.items():
        found = {many: run(model, pixel_values=pixels, **theirs, multimask_output=many) for many in (False, True)}
        ours = {
            "prompt_points": np.concatenate(places, axis=2),
            "prompt_labels": np.concatenate(names, axis=2).astype("int32"),
            "prompt_masks": np.tile(masks, (1, 2, 1, 1)),
            "prompt_has_mask": np.full((2, 2), "input_masks" in theirs),
        }
        answers = {
            "masks": np.concatenate([found[many].pred_masks for many in (False, True)], axis=2),
            "scores": np.concatenate([found[many].iou_scores for many in (False, True)], axis=2),
        }
        if name == "both":
            inputs, outputs = {"images": images, **ours}, answers
        else:
            more |= {f"{name}/{key}": value for key, value in (ours | answers).items() if key != "prompt_masks"}
    with torch.no_grad():
        more["features"] = model.get_image_embeddings(torch.tensor(pixels)).permute(0, 2, 3, 1)
    # Of the case of the folder, and of all its masks.
    theirs = {"pixel_values": pixels, **cases["both"][0]}
    theirs = {name: torch.tensor(value) for name, value in theirs.items()}
    answer = torch.cat([model(**theirs, multimask_output=many).pred_masks for many in (False, True)], dim=2)
    direction = np.random.default_rng(1).normal(size=tuple(answer.shape)).astype("float32")
    (answer * torch.tensor(direction)).sum().backward()
    parameters = dict(model.named_parameters())
    more |= {f"gradient/{name}": parameters[name].grad.numpy() for name in GRADIENTS}
    model.zero_grad()
    write("sam-Model", model, inputs, outputs, direction=direction, **more)


if __name__ == "__main__":
    sam()
