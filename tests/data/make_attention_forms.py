"""Makes gau_forms.npz and performer_causal.npz: python tests/data/make_attention_forms.py.

With FLASH-pytorch 0.1.9, performer-pytorch 1.1.4 and torch 2.13, in float64. The weights are those of gau.npz; queries,
keys, values and projections are those of performer_favor.npz.
"""

import pathlib
import sys
import types

import numpy as np
import torch

for name, attribute in (
    ("local_attention", "LocalAttention"),
    ("axial_positional_embedding", "AxialPositionalEmbedding"),
    ("rotary_embedding_torch", "RotaryEmbedding"),
):  # Imported, but not used here.
    sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[name], attribute, object)

from flash_pytorch import GAU  # noqa: E402
from performer_pytorch.performer_pytorch import FastAttention  # noqa: E402

HERE = pathlib.Path(__file__).parent


def gau_forms():
    golden = np.load(HERE / "gau.npz")
    params = {key.removeprefix("params/"): torch.tensor(golden[key]).double() for key in golden if "params/" in key}
    # Larger scores: those of the file hardly tell functions apart.
    params["offsetscale.gamma"] = params["offsetscale.gamma"] * 6
    x, lengths = torch.tensor(golden["inputs/x"]).double(), (14, 9)
    mask = torch.arange(14)[None] < torch.tensor(lengths)[:, None]
    arrays = {"mask": mask.numpy(), "gamma": params["offsetscale.gamma"].numpy()}
    for causal in (False, True):
        for function in ("squared_relu", "laplace"):
            unit = GAU(dim=16, query_key_dim=8, causal=causal, laplace_attn_fn=function == "laplace").double().eval()
            unit.load_state_dict(params)
            with torch.no_grad():
                arrays[f"{function}_{'causal' if causal else 'bidirectional'}"] = unit(x).numpy()
                arrays[f"{function}_{'causal' if causal else 'bidirectional'}_masked"] = unit(x, mask=mask).numpy()
    save("gau_forms", arrays)


def performer_causal():
    golden = np.load(HERE / "performer_favor.npz")
    query, key, value = (torch.tensor(golden[f"inputs/{name}"]).double() for name in "qkv")
    arrays = {}
    for kernel in ("softmax", "relu"):
        attention = FastAttention(8, 20, causal=True, generalized_attention=kernel == "relu").double()
        attention.projection_matrix.copy_(torch.tensor(golden["params/projection_matrix"]))
        arrays[kernel] = attention(query, key, value).numpy()
    save("performer_causal", arrays)


def save(name, arrays):
    arrays = {key: array if array.dtype == bool else array.astype("float32") for key, array in arrays.items()}
    np.savez_compressed(HERE / f"{name}.npz", **arrays)


if __name__ == "__main__":
    gau_forms()
    performer_causal()
