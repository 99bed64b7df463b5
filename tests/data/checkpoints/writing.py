"""Small checkpoints by transformers, with what they compute: shared by the `make_*.py` beside this file.

Each folder holds what `save_pretrained` writes, and `expected.npz`: under "input/NAME" what our model is called with, under
"output/NAME" what transformers gives for it, and for a generative model "prompt", int `(B, T)`, and "generated", int
`(B, new)`: the greedy continuation of each prompt.
"""

import pathlib
import re
import shutil

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent


def write(name, model, inputs, outputs, **more):
    """Writes one folder; `inputs` and `outputs` are dicts of arrays."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    arrays = {f"input/{key}": np.asarray(value) for key, value in inputs.items()}
    arrays |= {f"output/{key}": np.asarray(value) for key, value in outputs.items()}
    np.savez_compressed(folder / "expected.npz", **arrays, **{key: np.asarray(value) for key, value in more.items()})
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size <= 300_000, f"{name}: {size} bytes"
    print(f"{name}: {size // 1000} kB")


# The first value of a dropout in a config; each further one is larger by 0.01, so that none stands for another.
_DROPOUT = 0.37
_EPSILON = 3e-3
# Read by transformers alone: it skips whole layers in training.
_KEPT = re.compile(r"layerdrop")
# Settings that transformers refuses, of these kinds.
_REFUSED = {("diffllama", "attention_dropout")}
# Settings that have to stay as they are, because no other value is supported here.
_REFUSED |= {("parakeet_encoder", "dropout_positions")}


def set_odd_values(config):
    """Sets every epsilon and dropout of a config, and of its sections, to a value that is nobody's default."""
    dropouts = 0
    for name, value in sorted(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig):
            set_odd_values(value)
        elif (
            _KEPT.search(name)
            or (config.model_type, name) in _REFUSED
            or isinstance(value, (bool, str, dict, list, tuple))
        ):
            continue
        elif "drop" in name:
            setattr(config, name, round(_DROPOUT + dropouts / 100, 2))
            dropouts += 1
        elif re.search(r"(^|_)eps(ilon)?$", name):
            setattr(config, name, _EPSILON)
    return config


def build(cls, config, seed=0):
    """A model with random weights that are larger than the usual ones, so that errors show."""
    torch.manual_seed(seed)
    set_odd_values(config)
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("correction_bias"):  # Of a router; zeros at first.
                buffer.add_(0.3 * torch.randn_like(buffer))
    return model


def ragged_tokens(vocabulary_size, lengths=(11, 7, 1), seed=0):
    """`(token_ids, padding_mask)`, padded on the right with 0; no real token is below 5."""
    generator = np.random.default_rng(seed)
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    tokens = generator.integers(5, vocabulary_size, mask.shape)
    return np.where(mask, tokens, 0).astype("int32"), mask


def run(model, **inputs):
    """What a model gives, without gradients; numpy arrays go in."""
    with torch.no_grad():
        return model(**{name: torch.tensor(value) for name, value in inputs.items()})


def gradients(model, names, inputs, mask=None, output="logits"):
    """Of `sum(logits * direction)`: what `write` takes to store them, and the direction.

    Args:
        model: a model of transformers.
        names: names of parameters; or a dict from the name in the file to that in memory.
        inputs: dict of numpy arrays that the model is called with.
        mask: bool array that broadcasts to the logits, which count where it is True; None for all.
        output: str. transformers' name of the logits, or of another output instead.
    """
    logits = model(**{name: torch.tensor(value) for name, value in inputs.items()})[output]
    direction = np.random.default_rng(1).normal(size=tuple(logits.shape)).astype("float32")
    direction = direction.astype(logits.detach().numpy().dtype)
    direction = direction if mask is None else direction * mask
    (logits * torch.tensor(direction)).sum().backward()
    parameters = dict(model.named_parameters())
    names = names if isinstance(names, dict) else dict(zip(names, names, strict=True))
    found = {f"gradient/{ours}": parameters[theirs].grad.numpy() for ours, theirs in names.items()}
    model.zero_grad()
    return {"direction": direction, **found}
