"""Makes kimi_delta_attention.npz and lightning_attention.npz: python tests/data/make_recurrences.py.

With transformers 5.23.0 and torch 2.13.0, in float32, to which the first casts its inputs. Padding is on the left.
"""

import pathlib

import numpy as np
import torch
from transformers import KimiLinearConfig, MiniMaxConfig
from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

HERE = pathlib.Path(__file__).parent
WIDTH, LENGTH = 10, 40


def kimi_delta_attention():
    config = KimiLinearConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        linear_head_dim=6,
        linear_num_heads=3,
        linear_conv_kernel_dim=3,
        hidden_act="gelu",
        rms_norm_eps=0.003,
        layer_types=["linear_attention"] * 2,
    )
    save(
        "kimi_delta_attention",
        KimiLinearDeltaAttention(config, 1),
        lambda module, x, mask: module(x, attention_mask=mask),
    )


def lightning_attention():
    config = MiniMaxConfig(
        hidden_size=WIDTH,
        num_hidden_layers=4,
        num_attention_heads=3,
        head_dim=6,
        hidden_act="gelu",
        block_size=16,
        layer_types=["linear_attention"] * 4,
    )
    save("lightning_attention", MiniMaxLightningAttention(config, 2), lambda module, x, mask: module(x, None, mask)[0])


def save(name, module, run):
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.5
    x = torch.randn(2, LENGTH, WIDTH, generator=generator)
    mask = torch.arange(LENGTH)[None] >= torch.tensor([[0], [9]])
    module = module.eval()
    with torch.no_grad():
        arrays = {"output": run(module, x, None), "masked_output": run(module, x, mask), "x": x, "mask": mask}
    arrays |= {f"params/{key}": parameter.detach() for key, parameter in module.named_parameters()}
    np.savez_compressed(HERE / f"{name}.npz", **{key: array.numpy() for key, array in arrays.items()})


if __name__ == "__main__":
    kimi_delta_attention()
    lightning_attention()
