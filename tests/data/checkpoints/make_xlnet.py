"""Makes the folders xlnet-*: python tests/data/checkpoints/make_xlnet.py (transformers 5.23, torch 2.13)."""

import numpy as np
import torch
import transformers
from encoders import LOGITS, SPAN, TOKENS
from writing import HERE, build, run, write

CONFIG = {
    "vocab_size": 60,
    "d_model": 16,
    "n_layer": 2,
    "n_head": 2,
    "d_inner": 24,
    "ff_activation": "silu",
    "summary_activation": "relu",
    "pad_token_id": 3,
    "use_mems_eval": False,
    "summary_last_dropout": 0.2,
}
OUTPUTS = {
    "Model": TOKENS,
    "ForSequenceClassification": LOGITS,
    "ForMultipleChoice": LOGITS,
    "ForTokenClassification": LOGITS,
    "ForQuestionAnsweringSimple": SPAN,
}
NAMES = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
LENGTHS = (11, 7, 3)


def texts(seed=0):
    """Rows padded on the left, of segments 0, 1 and, at their ends, 2; 3 is padding."""
    generator = np.random.default_rng(seed)
    length = max(LENGTHS)
    mask = np.arange(length) >= length - np.array(LENGTHS)[:, None]
    tokens = np.where(mask, generator.integers(5, CONFIG["vocab_size"], mask.shape), CONFIG["pad_token_id"])
    segments = np.where(mask, np.arange(length) > 8, 3)
    segments[:, -1] = 2
    return {"token_ids": tokens.astype("int32"), "padding_mask": mask, "segment_ids": segments.astype("int32")}


def targets(mask, causal=False, seed=1):
    """Orders of factorisation, and of each row the two places that see most; of the third row one."""
    order = np.argsort(np.random.default_rng(seed).random(mask.shape), axis=1)
    order = np.where(mask, order + 1, 0)
    sees = order[:, :, None] > order[:, None]
    counts = ((np.tril(sees) if causal else sees) & mask[:, None]).sum(axis=2) * mask
    mapping = np.eye(mask.shape[1], dtype=bool)[np.argsort(counts, axis=1)[:, :-3:-1]]
    mapping[2, 1] = False
    return {"permutation_mask": sees, "targets": mapping}


def reference(inputs):
    """The same for transformers, whose permutation says what is hidden."""
    found = {NAMES[key]: array.astype("int64") for key, array in inputs.items() if key in NAMES}
    if "permutation_mask" in inputs:
        found["perm_mask"] = (~inputs["permutation_mask"]).astype("float32")
        found["target_mapping"] = inputs["targets"].astype("float32")
    return found


def make(name, cls, inputs, outputs, labels=3, **config):
    """Writes one folder."""
    config = transformers.XLNetConfig(**{**CONFIG, **config})
    config.num_labels = labels
    model = build(getattr(transformers, cls), config)
    found = run(model, **reference(inputs))
    write(name, model, inputs, {our: found[their] for our, their in outputs.items()})


def add_memory():
    """Three segments of one text with what each leaves to the next, for the weights of xlnet-Model."""
    config = transformers.XLNetConfig(**CONFIG | {"use_mems_eval": True, "mem_len": 7, "reuse_len": 3})
    config.num_labels = 3
    model, generator = build(transformers.XLNetModel, config), np.random.default_rng(4)
    memory, arrays = {}, {}
    for index, length in enumerate((5, 4, 6)):
        token_ids = generator.integers(5, CONFIG["vocab_size"], (2, length))
        segments = np.broadcast_to(np.arange(length) > 2, (2, length)).astype("int64")
        mask = np.ones((2, length), "int64")
        mask[0, :2] = index < 2  # Padding on the left of the last segment.
        with torch.no_grad():
            found = model(
                *(torch.tensor(array) for array in (token_ids, mask)), token_type_ids=torch.tensor(segments), **memory
            )
        memory = {"mems": found.mems}
        arrays |= {f"token_ids_{index}": token_ids.astype("int32"), f"padding_mask_{index}": mask.astype(bool)}
        arrays |= {f"segment_ids_{index}": segments.astype("int32"), f"tokens_{index}": found[0].numpy()}
        arrays[f"memory_{index}"] = torch.stack(found.mems).permute(2, 0, 1, 3).numpy()
    np.savez_compressed(HERE / "xlnet-Model" / "memory.npz", **arrays)


def add_texts():
    """Greedy texts of the weights of xlnet-LMHeadModel: each prompt by itself, and each token behind the whole text."""
    config = transformers.XLNetConfig(**CONFIG)
    config.num_labels = 3
    model = build(transformers.XLNetLMHeadModel, config)
    prompts, texts, logits = ((7, 40, 12, 33, 9), (5, 58, 31), (17,)), [], []
    for prompt in prompts:
        text = list(prompt)
        for _ in range(6):
            given = model.prepare_inputs_for_generation(torch.tensor([text]), use_mems=False)
            with torch.no_grad():
                logits.append(model(**given).logits[0, 0])
            text.append(int(logits[-1].argmax()))
        texts.append(text[len(prompt) :])
    padded = np.array([[*prompt, *[-1] * (5 - len(prompt))] for prompt in prompts], "int32")
    arrays = {"prompt": padded, "generated": np.array(texts, "int32"), "logits": torch.stack(logits).numpy()}
    np.savez_compressed(HERE / "xlnet-LMHeadModel" / "texts.npz", **arrays)


def main():
    inputs = texts()
    for ending, outputs in OUTPUTS.items():
        labels = 2 if "Question" in ending else 3
        given = inputs
        if ending == "ForMultipleChoice":
            given = {key: np.stack([array, array[::-1]], axis=1) for key, array in inputs.items()}
        make(f"xlnet-{ending.removeprefix('For')}", f"XLNet{ending}", given, outputs, labels)
    permuted = {**inputs, **targets(inputs["padding_mask"])}
    make("xlnet-LMHeadModel", "XLNetLMHeadModel", permuted, LOGITS)
    add_memory()
    add_texts()
    # transformers reads no batches of causal ones.
    row = {key: array[:1] for key, array in (inputs | targets(inputs["padding_mask"], causal=True)).items()}
    make("xlnet_causal-LMHeadModel", "XLNetLMHeadModel", row, LOGITS, attn_type="uni")


if __name__ == "__main__":
    main()
