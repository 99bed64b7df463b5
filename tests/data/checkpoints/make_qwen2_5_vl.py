"""Makes the folders qwen2_5_vl-*: python tests/data/checkpoints/make_qwen2_5_vl.py (transformers 5.24, torch 2.13)."""

import numpy as np
import torch
import transformers
from writing import build, gradients, run, write

IMAGE, END, NEW_TOKENS = 57, 3, 8
TEXT = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "intermediate_size": 10,
    "hidden_act": "gelu",
    "max_position_embeddings": 48,
    "use_sliding_window": True,
    "sliding_window": 9,
    "max_window_layers": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [1, 2, 1]},
    "pad_token_id": 0,
    "bos_token_id": 4,
    "eos_token_id": END,
}
MERGE, WINDOW = 3, 2
VISION = {
    "depth": 3,
    "hidden_size": 16,
    "hidden_act": "relu",
    "intermediate_size": 10,
    "num_heads": 2,
    "in_channels": 2,
    "patch_size": 2,
    "temporal_patch_size": 3,
    "spatial_merge_size": MERGE,
    "window_size": WINDOW * MERGE * 2 + 1,
    "out_hidden_size": TEXT["hidden_size"],
    "fullatt_block_indexes": [1],
    "rope_parameters": {"rope_type": "axial", "rope_theta": 50.0},
}
FEATURES = 2 * 2 * 2 * 3
# Of each row: text, as a number of tokens, and images, as rows and columns of tokens, in order.
ROWS = ((2, (3, 2), 1, (1, 3), 2), ((2, 5), 3), (1,))
MOST_IMAGES, MOST_WINDOWS = 2, 3
GRADIENTS = {
    name: f"model.{name}" if name.startswith("visual") else name.replace("model.", "model.language_model.", 1)
    for name in (
        "visual.patch_embed.proj.weight",
        "visual.blocks.0.attn.qkv.weight",
        "visual.blocks.1.norm1.weight",
        "visual.merger.mlp.2.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.mlp.gate_proj.weight",
    )
}


def make_inputs():
    """Rows of unequal length, padded on the right, of text and images; patches are window by window."""
    generator, rows = np.random.default_rng(0), []
    grid = np.zeros((len(ROWS), MOST_IMAGES, 2), "int32")
    for number, parts in enumerate(ROWS):
        images = [part for part in parts if isinstance(part, tuple)]
        grid[number, : len(images)] = np.array(images or np.zeros((0, 2))) * MERGE
        rows.append([])
        for part in parts:
            is_image = isinstance(part, tuple)
            rows[-1] += [IMAGE] * (part[0] * part[1]) if is_image else generator.integers(5, IMAGE, part).tolist()
    lengths = np.array([[len(row)] for row in rows])
    shape = (len(ROWS), MOST_IMAGES, MOST_WINDOWS, (WINDOW * MERGE) ** 2, FEATURES)
    return {
        "patches": generator.normal(size=shape).astype("float32"),
        "patch_grid": grid,
        "token_ids": np.array([row + [0] * (lengths.max() - len(row)) for row in rows], "int32"),
        "padding_mask": np.arange(lengths.max()) < lengths,
    }


def in_their_order(windows, rows, columns):
    """The patches of an image in the order of transformers: groups row by row, and in each its patches."""
    across, side, found = -(-columns // (WINDOW * MERGE)), WINDOW * MERGE, []
    for group_row in range(rows // MERGE):
        for group_column in range(columns // MERGE):
            for row in range(MERGE):
                for column in range(MERGE):
                    y, x = group_row * MERGE + row, group_column * MERGE + column
                    window = windows[y // side * across + x // side]
                    group = (y % side // MERGE) * WINDOW + x % side // MERGE
                    found.append(window[group * MERGE**2 + row * MERGE + column])
    return found


def theirs(inputs):
    """What transformers is called with; rows without images have no pixels."""
    patches, grids = [], []
    for images, grid in zip(inputs["patches"], inputs["patch_grid"], strict=True):
        for windows, (rows, columns) in zip(images, grid, strict=True):
            if rows:
                patches += in_their_order(windows, rows, columns)
                grids.append([1, rows, columns])
    token_ids = inputs["token_ids"].astype("int64")
    found = {"input_ids": token_ids, "attention_mask": inputs["padding_mask"].astype("int64")}
    found["mm_token_type_ids"] = (token_ids == IMAGE).astype("int64")
    return found | ({"pixel_values": np.array(patches), "image_grid_thw": np.array(grids)} if grids else {})


def speaking(config, inputs):
    """A model whose greedy answers vary and do not end, and these."""
    for seed in range(60):
        model = build(transformers.Qwen2_5_VLForConditionalGeneration, config, seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.add_(0.14 * (1 + seed % 3) * torch.randn_like(parameter))
        answers = np.stack([answer(model, inputs, row) for row in range(len(ROWS))])
        if not np.isin(answers, [0, END, IMAGE]).any() and min(len(set(row.tolist())) for row in answers) >= 3:
            return model, answers
    raise AssertionError("No weights let it speak.")


def answer(model, inputs, row):
    """The greedy answer to one prompt by itself."""
    length = inputs["padding_mask"][row].sum()
    alone = {name: array[row : row + 1] for name, array in inputs.items()}
    alone |= {name: alone[name][:, :length] for name in ("token_ids", "padding_mask")}
    given = {name: torch.tensor(array) for name, array in theirs(alone).items()}
    with torch.no_grad():
        tokens = model.generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False)
    new = tokens[0, length:].numpy()
    return np.pad(new, (0, NEW_TOKENS - len(new)), constant_values=0)


def main():
    config = transformers.Qwen2_5_VLConfig(text_config=TEXT, vision_config=VISION, image_token_id=IMAGE)
    inputs = make_inputs()
    model = build(transformers.Qwen2_5_VLModel, config)
    found = run(model, **theirs(inputs))
    write("qwen2_5_vl-Model", model, inputs, {"tokens": found.last_hidden_state})
    model, answers = speaking(config, inputs)
    found = run(model, **theirs(inputs))
    more = gradients(model, GRADIENTS, theirs(inputs), inputs["padding_mask"][..., None])
    prompt = np.where(inputs["padding_mask"], inputs["token_ids"], -1)
    logits = {"logits": found.logits}
    write("qwen2_5_vl-ConditionalGeneration", model, inputs, logits, prompt=prompt, generated=answers, **more)


if __name__ == "__main__":
    main()
