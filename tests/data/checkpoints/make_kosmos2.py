"""Makes the folders kosmos2-*: python tests/data/checkpoints/make_kosmos2.py (transformers 5.23, torch 2.13)."""

import json

import numpy as np
import torch
import transformers
from writing import HERE, build, run, write

BEGIN, END = 58, 59
NUM_IMAGE_TOKENS = 3
NEW_TOKENS = 8
TEXT = {
    "vocab_size": 60,
    "embed_dim": 16,
    "layers": 2,
    "ffn_dim": 24,
    "attention_heads": 2,
    "activation_function": "silu",
    "scale_embedding": False,
}
VISION = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "image_size": 12,
    "patch_size": 4,
    "num_channels": 2,
    "hidden_act": "relu",
}
# Text, with as many images as there are brackets in each row.
ROWS = ("aa[]aaa[]a", "[]aaaa", "a[]")


def main():
    config = transformers.Kosmos2Config(text_config=TEXT, vision_config=VISION, latent_query_num=NUM_IMAGE_TOKENS)
    inputs = make_inputs(np.random.default_rng(0))
    model = build(transformers.Kosmos2Model, config)
    found = run(model, **theirs(inputs))
    save("Model", model, inputs, {"tokens": found["last_hidden_state"]})
    model, answers = build_speaking(config, inputs)
    found = run(model, **theirs(inputs))
    prompt = np.where(inputs["padding_mask"], inputs["token_ids"], -1)
    save("ConditionalGeneration", model, inputs, {"logits": found["logits"]}, prompt=prompt, generated=answers)


def save(head, model, inputs, outputs, **more):
    write(f"kosmos2-{head}", model, inputs, outputs, **more)
    # Theirs does not say by which token an image begins: the processor knows it.
    path = HERE / f"kosmos2-{head}" / "config.json"
    values = {**json.loads(path.read_text()), "boi_token_index": BEGIN}
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def make_inputs(generator):
    """Rows of unequal length, padded with 1 on the right, of which the first has two images."""
    rows = []
    for row in ROWS:
        tokens = [0]
        for letter in row:
            text = [int(generator.integers(8, BEGIN))]
            tokens += {"[": [BEGIN, *range(4, 4 + NUM_IMAGE_TOKENS)], "]": [END]}.get(letter, text)
        rows.append(tokens)
    longest = max(map(len, rows))
    token_ids = np.array([row + [1] * (longest - len(row)) for row in rows], "int32")
    images = generator.normal(size=(len(rows), 2, 12, 12, VISION["num_channels"])).astype("float32")
    mask = np.arange(longest) < np.array([[len(row)] for row in rows])
    return {"images": images, "token_ids": token_ids, "padding_mask": mask}


def theirs(inputs):
    """The same under transformers' names: the images that stand in a text one behind another, and a mask of their places."""
    tokens = inputs["token_ids"]
    chosen = [row[: (ids == BEGIN).sum()] for row, ids in zip(inputs["images"], tokens, strict=True)]
    places = np.zeros(tokens.shape, "int64")
    for row, column in np.argwhere(tokens == BEGIN):
        places[row, column + 1 : column + 1 + NUM_IMAGE_TOKENS] = 1
    return {
        "pixel_values": np.concatenate(chosen).transpose(0, 3, 1, 2),
        "input_ids": tokens.astype("int64"),
        "attention_mask": inputs["padding_mask"].astype("int64"),
        "image_embeds_position_mask": places,
    }


def build_speaking(config, inputs):
    """A model whose greedy answers vary and do not end, and these."""
    for seed in range(60):
        model = build(transformers.Kosmos2ForConditionalGeneration, config, seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "embed_tokens" in name:
                    parameter.mul_(0.4 / parameter.std())
                elif parameter.ndim == 2:
                    parameter.add_(0.2 * (1 + seed % 3) * torch.randn_like(parameter))
        answers = np.stack([answer(model, inputs, row) for row in range(len(ROWS))])
        if not np.isin(answers, [1, 2, BEGIN]).any() and min(len(set(row.tolist())) for row in answers) >= 3:
            return model, answers
    raise AssertionError("No weights let it speak.")


def answer(model, inputs, row):
    """The greedy continuation of one row by itself, as transformers generates it."""
    length = inputs["padding_mask"][row].sum()
    alone = {name: array[row : row + 1] for name, array in inputs.items()}
    alone |= {name: alone[name][:, :length] for name in ("token_ids", "padding_mask")}
    given = {name: torch.tensor(array) for name, array in theirs(alone).items()}
    with torch.no_grad():
        tokens = model.generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False, num_beams=1)
    new = tokens[0, length:].numpy()
    return np.pad(new, (0, NEW_TOKENS - len(new)), constant_values=2)


if __name__ == "__main__":
    main()
