"""Makes the folders moonshine-*: python tests/data/checkpoints/make_moonshine.py (transformers 5.23, torch 2.13)."""

import numpy as np
import torch
import transformers
from writing import build, gradients, ragged_tokens, run, write

START, END, NEW_TOKENS = 4, 3, 7
CONFIG = {
    "vocab_size": 40,
    "hidden_size": 12,
    "intermediate_size": 10,
    "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 1,
    "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2,
    "pad_head_dim_to_multiple_of": 5,
    "encoder_hidden_act": "relu",
    "decoder_hidden_act": "gelu",
    "attention_bias": True,
    "max_position_embeddings": 32,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.76},
    "decoder_start_token_id": START,
    "bos_token_id": START,
    "eos_token_id": END,
    "pad_token_id": 0,
}
# Four frames, and samples that are left over.
NUM_SAMPLES = 895 + 3 * 384 + 100
GRADIENTS = (
    "model.encoder.conv1.weight",
    "model.encoder.groupnorm.weight",
    "model.encoder.layers.0.self_attn.k_proj.weight",
    "model.decoder.layers.0.encoder_attn.v_proj.weight",
    "model.decoder.layers.0.mlp.fc1.weight",
    "model.decoder.layers.0.final_layernorm.weight",
)


def given():
    token_ids, mask = ragged_tokens(CONFIG["vocab_size"], (6, 4, 1))
    # Few levels, which make small files.
    samples = np.random.default_rng(0).integers(-4, 5, (3, NUM_SAMPLES)).astype("float32") / 4
    return {"samples": samples, "target_token_ids": token_ids, "target_padding_mask": mask}


def theirs(inputs):
    return {
        "input_values": inputs["samples"],
        "decoder_input_ids": inputs["target_token_ids"].astype("int64"),
        "decoder_attention_mask": inputs["target_padding_mask"].astype("int64"),
    }


def speaking(config, inputs):
    """A model whose greedy texts vary and do not end, and these."""
    for seed in range(60):
        model = build(transformers.MoonshineForConditionalGeneration, config, seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.add_(0.1 * (1 + seed % 3) * torch.randn_like(parameter))
        samples = torch.tensor(inputs["samples"])
        options = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "eos_token_id": None, "pad_token_id": 0}
        texts = model.generate(input_values=samples, **options)[:, 1:].numpy()
        if END not in texts and min(len(set(row.tolist())) for row in texts) >= 3:
            return model, texts
    raise AssertionError("No weights let it speak.")


def main():
    inputs = given()
    model = build(transformers.MoonshineModel, transformers.MoonshineConfig(**CONFIG))
    write("moonshine-Model", model, inputs, {"tokens": run(model, **theirs(inputs)).last_hidden_state})
    for name, options in (
        ("moonshine-ConditionalGeneration", {}),
        ("moonshine_untied-ConditionalGeneration", {"tie_word_embeddings": False, "attention_bias": False}),
    ):
        model, texts = speaking(transformers.MoonshineConfig(**CONFIG | options), inputs)
        found = run(model, **theirs(inputs))
        more = {} if options else gradients(model, GRADIENTS, theirs(inputs), inputs["target_padding_mask"][..., None])
        write(name, model, inputs, {"logits": found.logits}, prompt=inputs["samples"], generated=texts, **more)


if __name__ == "__main__":
    main()
