"""Makes a gpt-oss with experts in MXFP4, as OpenAI ships it: python make_gpt_oss.py (transformers 5.23, torch 2.13).

The blocks and scales are random; transformers decodes them.
"""

import json
import shutil

import numpy as np
import torch
import transformers
from make_decoders import END, GPT_OSS, ROPES, TIED, VOCABULARY, continuations
from safetensors.torch import load_file, save_file
from writing import HERE, build, ragged_tokens, run, write

NAME = "gpt_oss_mxfp4-CausalLM"
SETTINGS = {
    **GPT_OSS,
    **TIED,
    "rope_parameters": {**ROPES["gpt_oss"], "truncate": True},
    "attention_bias": False,
    "hidden_size": 64,
    "intermediate_size": 32,
}
KEPT = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def main():
    model = build(transformers.GptOssForCausalLM, transformers.GptOssConfig(**SETTINGS)).to(torch.bfloat16)
    token_ids, mask = ragged_tokens(VOCABULARY)
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    for seed in range(20):
        write(NAME, model, inputs, {})
        pack(HERE / NAME, seed)
        options = {"dtype": torch.float32, "quantization_config": transformers.Mxfp4Config(dequantize=True)}
        decoded = transformers.GptOssForCausalLM.from_pretrained(HERE / NAME, **options).eval()
        texts = continuations(decoded)
        if END not in texts["generated"]:
            break
    outputs = {"logits": run(decoded, input_ids=token_ids, attention_mask=mask).logits.numpy()}
    arrays = {f"input/{key}": value for key, value in inputs.items()} | {"output/logits": outputs["logits"], **texts}
    np.savez_compressed(HERE / NAME / "expected.npz", **arrays)
    shutil.rmtree(HERE / NAME / "__pycache__", ignore_errors=True)


def pack(folder, seed):
    """Replaces the matrices of the experts by random blocks and scales, and says so in the config."""
    generator = np.random.default_rng(seed)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        count, inputs, outputs = tensors.pop(name).shape
        shape = (count, outputs, inputs // 32)
        # Factors from 1/64 to 1/4.
        scales = generator.integers(121, 126, shape)
        blocks = generator.integers(0, 256, (*shape, 16))
        for end, array in (("scales", scales), ("blocks", blocks)):
            tensors[f"{name}_{end}"] = torch.tensor(array, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"modules_to_not_convert": KEPT, "quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
