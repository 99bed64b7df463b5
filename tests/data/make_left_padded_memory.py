"""Makes rmt_left_padded.npz: python tests/data/make_left_padded_memory.py (transformers 5.23, torch 2.13), in float64.

The model of rmt_gpt2.npz on rows that are padded on the left, one of them by more than a segment. A segment is read as in
the authors' `MemoryCell`: [memory, tokens, memory], all memory visible, positions from 0, and the last hidden states are the
next memory.
"""

import pathlib

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
SEGMENT, PADDING = 8, (3, 10)


def main():
    golden = np.load(HERE / "rmt_gpt2.npz")
    config = transformers.GPT2Config(vocab_size=19, n_positions=40, n_embd=16, n_layer=2, n_head=2)
    model = transformers.GPT2LMHeadModel(config).double().eval()
    params = {
        key.removeprefix("params/model."): torch.tensor(golden[key]).double()
        for key in golden
        if "params/model." in key
    }
    params["lm_head.weight"] = params["transformer.wte.weight"]
    model.load_state_dict(params)
    ids, memory = torch.tensor(golden["inputs/ids"]).long(), torch.tensor(golden["params/memory"]).double()
    whole = torch.ones(ids.shape, dtype=torch.long)
    found, _ = read(model, ids, whole, memory)
    assert np.abs(found - golden["outputs/logits"]).max() < 1e-6
    mask = (torch.arange(ids.shape[1]) >= torch.tensor(PADDING)[:, None]).long()
    logits, memories = read(model, ids, mask, memory)
    arrays = {
        "mask": mask.numpy().astype(bool),
        "logits": logits.astype("float32"),
        "memory": memories.astype("float32"),
    }
    np.savez_compressed(HERE / "rmt_left_padded.npz", **arrays)


def read(model, ids, mask, memory):
    """The logits of the tokens, and the memory after each segment."""
    count, state, logits, memories = len(memory), memory.expand(len(ids), -1, -1), [], []
    always = torch.ones((len(ids), count), dtype=torch.long)
    for start in range(0, ids.shape[1], SEGMENT):
        tokens = model.transformer.wte(ids[:, start : start + SEGMENT])
        seen = torch.cat([always, mask[:, start : start + SEGMENT], always], dim=1)
        inputs = torch.cat([state, tokens, state], dim=1)
        # Without position_ids, transformers counts from the mask; the authors' version counted from 0.
        positions = torch.arange(inputs.shape[1])[None].expand(len(ids), -1)
        with torch.no_grad():
            output = model(inputs_embeds=inputs, attention_mask=seen, position_ids=positions, output_hidden_states=True)
        logits.append(output.logits[:, count:-count].numpy())
        state = output.hidden_states[-1][:, -count:]
        memories.append(state.numpy())
    return np.concatenate(logits, axis=1), np.stack(memories, axis=1)


if __name__ == "__main__":
    main()
