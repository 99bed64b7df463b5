"""Makes the adapters beside it: python tests/data/adapters/make_peft.py (peft 0.21.2, transformers 5.24, torch 2.13).

Each is an adapter of random numbers for a checkpoint of `tests/data/checkpoints`, as PEFT saves it, with the logits of the
model with this adapter.
"""

import pathlib

import numpy as np
import peft
import torch
import transformers

HERE = pathlib.Path(__file__).parent
TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "llama": ("llama-CausalLM", {"r": 2, "lora_alpha": 6, "target_modules": ALL}),
    "llama-patterns": (
        "llama-CausalLM",
        {
            "r": 2,
            "lora_alpha": 6,
            "target_modules": r".*layers\.1.*(q|o|down)_proj",
            "rank_pattern": {"self_attn.q_proj": 3},
            "alpha_pattern": {"o_proj": 5},
            "use_rslora": True,
        },
    ),
    "gpt2": (
        "gpt2-LMHeadModel",
        {"r": 2, "lora_alpha": 4, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True},
    ),
    "gpt_neox": ("gpt_neox-CausalLM", {"r": 3, "lora_alpha": 4, "target_modules": ["query_key_value", "dense"]}),
    "dora": ("llama-CausalLM", {"r": 2, "lora_alpha": 6, "target_modules": ["q_proj"], "use_dora": True}),
}


def main():
    for name, (base, settings) in ADAPTERS.items():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            HERE.parent / "checkpoints" / base, dtype=torch.float32
        )
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
        for key, parameter in model.named_parameters():
            if ".lora_A." in key or ".lora_B." in key:
                torch.nn.init.normal_(parameter, std=0.3)
        with torch.no_grad():
            logits = model(torch.tensor(TOKENS)).logits.numpy()
        model.save_pretrained(HERE / name)
        (HERE / name / "README.md").unlink()
        np.savez(HERE / name / "expected.npz", token_ids=TOKENS, logits=logits)


if __name__ == "__main__":
    main()
