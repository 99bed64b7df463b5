"""Makes the folders paligemma-*: python tests/data/checkpoints/make_paligemma.py (transformers 5.23, torch 2.13)."""

import numpy as np
import torch
import transformers
from writing import build, gradients, run, write

IMAGE, END, NEW_TOKENS = 57, 3, 8
TEXT = {
    "model_type": "gemma",
    "vocab_size": 60,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 10,
    "hidden_act": "silu",
    "attention_bias": True,
    "max_position_embeddings": 48,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    "pad_token_id": 0,
    "bos_token_id": 4,
    "eos_token_id": END,
}
VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 2,
    "hidden_act": "relu",
    "vision_use_head": False,
}
NUM_IMAGE_TOKENS = 4
# Images, tokens of the prompt behind them, and tokens of the answer, of each row.
ROWS = ((2, 3, 4), (1, 5, 2), (1, 1, 0))
# transformers has other names in memory than in the file.
GRADIENTS = {
    f"{file}.{name}": f"model.{memory}.{name}"
    for file, memory, name in (
        ("vision_tower", "vision_tower", "encoder.layers.0.self_attn.q_proj.weight"),
        ("multi_modal_projector", "multi_modal_projector", "linear.weight"),
        ("language_model.model", "language_model", "layers.0.self_attn.k_proj.weight"),
        ("language_model.model", "language_model", "layers.0.input_layernorm.weight"),
        ("language_model.model", "language_model", "layers.1.mlp.gate_proj.weight"),
    )
}


def make_inputs():
    """Rows of unequal length, padded on the right, of images, a prompt and an answer."""
    generator, rows = np.random.default_rng(0), []
    for images, prompt, answer in ROWS:
        rows.append([IMAGE] * images * NUM_IMAGE_TOKENS + generator.integers(5, IMAGE, prompt + answer).tolist())
    lengths = np.array([[len(row)] for row in rows])
    slots = np.arange(lengths.max())
    prefix = slots < np.array([[images * NUM_IMAGE_TOKENS + prompt] for images, prompt, _ in ROWS])
    size = VISION["image_size"]
    return {
        "images": generator.normal(size=(len(ROWS), 2, size, size, VISION["num_channels"])).astype("float32"),
        "token_ids": np.array([row + [0] * (lengths.max() - len(row)) for row in rows], "int32"),
        "padding_mask": slots < lengths,
        "prefix_mask": prefix,
    }


def theirs(inputs):
    chosen = [
        row[: (ids == IMAGE).sum() // NUM_IMAGE_TOKENS]
        for row, ids in zip(inputs["images"], inputs["token_ids"], strict=True)
    ]
    return {
        "pixel_values": np.concatenate(chosen).transpose(0, 3, 1, 2),
        "input_ids": inputs["token_ids"].astype("int64"),
        "attention_mask": inputs["padding_mask"].astype("int64"),
        "token_type_ids": (~inputs["prefix_mask"]).astype("int64"),
    }


def speaking(config, inputs):
    """A model whose greedy answers vary and do not end, and these."""
    for seed in range(60):
        model = build(transformers.PaliGemmaForConditionalGeneration, config, seed)
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
    length = inputs["prefix_mask"][row].sum()
    alone = {name: array[row : row + 1] for name, array in inputs.items()}
    alone |= {name: array[:, :length] for name, array in alone.items() if name != "images"}
    given = {name: torch.tensor(array) for name, array in theirs(alone).items()}
    with torch.no_grad():
        tokens = model.generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False)
    new = tokens[0, length:].numpy()
    return np.pad(new, (0, NEW_TOKENS - len(new)), constant_values=0)


def main():
    config = transformers.PaliGemmaConfig(
        text_config=TEXT,
        vision_config=VISION,
        image_token_index=IMAGE,
        projection_dim=TEXT["hidden_size"],
        hidden_size=TEXT["hidden_size"],
        vocab_size=TEXT["vocab_size"],
    )
    inputs = make_inputs()
    model = build(transformers.PaliGemmaModel, config)
    found = run(model, **theirs(inputs))
    write("paligemma-Model", model, inputs, {"tokens": found.last_hidden_state})
    model, answers = speaking(config, inputs)
    found = run(model, **theirs(inputs))
    prompt = np.where(inputs["prefix_mask"], inputs["token_ids"], -1)
    more = gradients(model, GRADIENTS, theirs(inputs), inputs["padding_mask"][..., None])
    write(
        "paligemma-ConditionalGeneration",
        model,
        inputs,
        {"logits": found.logits},
        prompt=prompt,
        generated=answers,
        **more,
    )


if __name__ == "__main__":
    main()
