"""The recurrent mixers in torch, as modules from `(B, T, D)` to `(B, T, D)` with the weights of our layers."""

import math
from unittest import mock

import numpy as np
import torch
from torch import nn


def _linear(kernel, bias=None):
    layer = nn.Linear(*kernel.shape, bias=bias is not None)
    layer.weight.data = torch.tensor(kernel.T.copy())
    if bias is not None:
        layer.bias.data = torch.tensor(bias)
    return layer


class Retention(nn.Module):
    """Sun et al., arXiv 2307.08621: equation 5 (`chunk_size` None) or, chunk by chunk, equation 7."""

    def __init__(self, layer, chunk_size=None):
        super().__init__()
        self.heads, self.key_dim, self.chunk_size = layer.num_heads, layer.key_dim, chunk_size
        names = ("query", "key", "value", "gate", "output")
        for name, kernel in zip(names, layer.get_weights(), strict=True):
            setattr(self, name, _linear(kernel))
        self.decay = torch.log1p(-(2.0 ** (-5.0 - torch.arange(self.heads, dtype=torch.float64)))).float()
        self.rates = 10000.0 ** -torch.linspace(0, 1, self.key_dim // 2, dtype=torch.float64)

    def forward(self, x):
        query, key = self._turned(self.query(x)), self._turned(self.key(x)) * self.key_dim**-0.5
        value = self._split(self.value(x))
        read = self._parallel if self.chunk_size is None else self._chunkwise
        y = read(query, key, value)
        y = (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).transpose(1, 2).flatten(2)
        return self.output(nn.functional.silu(self.gate(x)) * y)

    def _parallel(self, query, key, value):
        return query @ key.transpose(2, 3) * self._weights(query.shape[2]) @ value

    def _chunkwise(self, query, key, value):
        size, outputs = self.chunk_size, []
        state = torch.zeros(query.shape[0], self.heads, self.key_dim, value.shape[3])
        weights, positions = self._weights(size), torch.arange(1, size + 1)
        inner = torch.exp(self.decay[:, None] * positions)[:, :, None]
        left = torch.exp(self.decay[:, None] * (size - positions))[:, :, None]
        whole = torch.exp(self.decay * size)[:, None, None]
        for q, k, v in zip(*(each.split(size, dim=2) for each in (query, key, value)), strict=True):
            outputs.append(q @ k.transpose(2, 3) * weights @ v + q @ state * inner)
            state = state * whole + k.transpose(2, 3) @ (v * left)
        return torch.cat(outputs, dim=2)

    def _weights(self, size):
        order = torch.arange(size)
        distance = (order[:, None] - order).clamp(min=0)
        return torch.exp(self.decay[:, None, None] * distance).tril()

    def _turned(self, x):
        x = self._split(x)
        angles = torch.arange(x.shape[2])[:, None] * self.rates
        cos, sin = angles.cos().float(), angles.sin().float()
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(3)

    def _split(self, x):
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class S4D(nn.Module):
    """Gu et al., arXiv 2206.11893: the kernel from powers of the transition, and a convolution by Fourier transforms."""

    def __init__(self, layer):
        super().__init__()
        names = ("log_step", "log_decay", "frequency", "output_real", "output_imaginary", "skip")
        arrays = layer.get_weights()
        for name, array in zip(names, arrays[:6], strict=True):
            self.register_parameter(name, nn.Parameter(torch.tensor(array)))
        self.output, self.gate = _linear(*arrays[6:8]), _linear(*arrays[8:])

    def forward(self, x):
        u, length = x.transpose(1, 2), x.shape[1]
        rate = torch.complex(-self.log_decay.exp(), self.frequency)
        power = rate * self.log_step.exp()[:, None]
        numerators = torch.complex(self.output_real, self.output_imaginary) * (power.exp() - 1) / rate
        powers = torch.exp(power[:, :, None] * torch.arange(length))
        kernel = 2 * torch.einsum("dn,dnl->dl", numerators, powers).real
        spectrum = torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        y = torch.fft.irfft(spectrum, n=2 * length)[..., :length] + self.skip[:, None] * u
        y = nn.functional.gelu(y).transpose(1, 2)
        return self.output(y) * torch.sigmoid(self.gate(y))


class TimeMixing(nn.Module):
    """RWKV-4 of Hugging Face, which is sequential on the CPU."""

    def __init__(self, layer):
        super().__init__()
        from transformers import RwkvConfig
        from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

        arrays = layer.get_weights()
        width = len(arrays[0])
        config = RwkvConfig(hidden_size=width, attention_hidden_size=width, context_length=1 << 16)
        self.attention = RwkvSelfAttention(config, 0)
        names = ("time_decay", "time_first", "time_mix_key", "time_mix_value", "time_mix_receptance")
        for name, array in zip(names, arrays[:5], strict=True):
            getattr(self.attention, name).data.copy_(torch.tensor(array))
        for name, kernel in zip(("receptance", "key", "value", "output"), arrays[5:], strict=True):
            setattr(self.attention, name, _linear(kernel))

    def forward(self, x):
        return self.attention(x)[0]


class GatedDeltaNet(nn.Module):
    """That of Qwen3-Next in transformers: in chunks of 64 tokens, or as a loop over tokens."""

    def __init__(self, layer, by_token=False):
        super().__init__()
        from transformers import Qwen3NextConfig
        from transformers.models.qwen3_next import modeling_qwen3_next as code

        from keras_transformer.checkpoints.layouts import HeadByHead

        config = Qwen3NextConfig(
            hidden_size=layer.output_dense.kernel.shape[-1],
            num_hidden_layers=1,
            layer_types=["linear_attention"],
            linear_num_key_heads=layer.num_key_heads,
            linear_num_value_heads=layer.num_heads,
            linear_key_head_dim=layer.key_dim,
            linear_value_head_dim=layer.value_dim,
            linear_conv_kernel_dim=layer.kernel_size,
            rms_norm_eps=layer.epsilon,
        )
        self.code, self.by_token, self.mixer = code, by_token, code.Qwen3NextGatedDeltaNet(config, 0)
        by_head = HeadByHead(layer.num_key_heads).write
        kernels = {name: np.asarray(getattr(layer, f"{name}_dense").kernel) for name in _DELTA_PARTS}
        arrays = {
            "in_proj_qkvz.weight": by_head([kernels[name] for name in ("query", "key", "value", "gate")])[0],
            "in_proj_ba.weight": by_head([kernels[name] for name in ("rate", "step")])[0],
            "conv1d.weight": np.asarray(layer.convolution.kernel).transpose(1, 2, 0),
            "A_log": np.asarray(layer.decay.log_speed),
            "dt_bias": np.asarray(layer.decay.step_bias),
            "norm.weight": np.asarray(layer.norm_scale),
            "out_proj.weight": np.asarray(layer.output_dense.kernel).T,
        }
        self.mixer.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})

    def forward(self, x):
        if not self.by_token:
            return self.mixer(x)
        tokens = self.code.torch_recurrent_gated_delta_rule
        with mock.patch.object(self.code, "torch_chunk_gated_delta_rule", tokens):
            return self.mixer(x)


_DELTA_PARTS = ("query", "key", "value", "gate", "rate", "step")


class Mamba2(nn.Module):
    """Mamba-2 of transformers without its kernels for GPUs, in chunks of 64 tokens: 256 need four times the memory."""

    def __init__(self, layer):
        super().__init__()
        from transformers import Mamba2Config
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

        width = layer.output_dense.kernel.shape[-1]
        config = Mamba2Config(
            hidden_size=width,
            expand=layer.num_heads * layer.head_dim // width,
            num_hidden_layers=1,
            num_heads=layer.num_heads,
            head_dim=layer.head_dim,
            state_size=layer.state_dim,
            n_groups=layer.num_groups,
            conv_kernel=layer.kernel_size,
            layer_norm_epsilon=layer.epsilon,
            chunk_size=64,
        )
        self.mixer = Mamba2Mixer(config, 0)
        parts = [np.asarray(getattr(layer, f"{name}_dense").kernel).T for name in _MAMBA_PARTS]
        arrays = {
            "in_proj.weight": np.concatenate(parts),
            "conv1d.weight": np.asarray(layer.convolution.kernel).transpose(1, 2, 0),
            "conv1d.bias": np.asarray(layer.convolution.bias),
            "A_log": np.asarray(layer.decay.log_speed),
            "dt_bias": np.asarray(layer.decay.step_bias),
            "D": np.asarray(layer.skip),
            "norm.weight": np.asarray(layer.norm_scale),
            "out_proj.weight": np.asarray(layer.output_dense.kernel).T,
        }
        self.mixer.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})

    def forward(self, x):
        return self.mixer(x)


_MAMBA_PARTS = ("gate", "value", "key", "query", "step")


class KimiDeltaAttention(nn.Module):
    """That of Kimi Linear in transformers, in chunks of 64 tokens."""

    def __init__(self, layer):
        super().__init__()
        from transformers import KimiLinearConfig
        from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention

        config = KimiLinearConfig(
            hidden_size=layer.output_dense.kernel.shape[-1],
            num_hidden_layers=1,
            linear_num_heads=layer.num_heads,
            linear_head_dim=layer.key_dim,
            linear_conv_kernel_dim=layer.kernel_size,
            layer_types=["linear_attention"],
            rms_norm_eps=layer.epsilon,
        )
        self.mixer = KimiLinearDeltaAttention(config, 0)
        names = {
            "q_proj": "query",
            "k_proj": "key",
            "v_proj": "value",
            "b_proj": "rate",
            "forget_gate.f_a_proj": "step_input",
            "forget_gate.f_b_proj": "step",
            "g_a_proj": "gate_input",
            "g_b_proj": "gate",
            "o_proj": "output",
        }
        arrays = {
            f"{their}.weight": np.asarray(getattr(layer, f"{our}_dense").kernel).T for their, our in names.items()
        }
        arrays |= {
            "conv1d.weight": np.asarray(layer.convolution.kernel).transpose(1, 2, 0),
            "forget_gate.A_log": np.asarray(layer.decay.log_speed).reshape(1, 1, -1, 1),
            "forget_gate.dt_bias": np.asarray(layer.decay.step_bias),
            "o_norm.weight": np.asarray(layer.norm_scale),
        }
        self.mixer.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})

    def forward(self, x):
        return self.mixer(x)


class LightningAttention(nn.Module):
    """That of MiniMax in transformers, in blocks of 256 tokens."""

    def __init__(self, layer):
        super().__init__()
        from transformers import MiniMaxConfig
        from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

        width = layer.output_dense.kernel.shape[-1]
        config = MiniMaxConfig(
            hidden_size=width,
            num_hidden_layers=1,
            num_attention_heads=layer.num_heads,
            head_dim=layer.key_dim,
            layer_types=["linear_attention"],
        )
        self.mixer = MiniMaxLightningAttention(config, 0)
        parts = [np.asarray(getattr(layer, f"{name}_dense").kernel) for name in ("query", "key", "value")]
        by_head = np.stack([part.reshape(width, layer.num_heads, -1) for part in parts], axis=2)
        self.mixer.qkv_proj = _linear(by_head.reshape(width, -1))
        self.mixer.output_gate = _linear(np.asarray(layer.gate_dense.kernel))
        self.mixer.out_proj = _linear(np.asarray(layer.output_dense.kernel))

    def forward(self, x):
        return self.mixer(x, None, None)[0]


class RWKV7(nn.Module):
    """Peng et al., arXiv 2503.14456, section 4.1, token by token."""

    def __init__(self, layer):
        super().__init__()
        self.heads, self.epsilon = layer.num_heads, layer.epsilon
        for weight in layer.weights:
            name = weight.path.split("/", 1)[-1].replace("/", "_")
            self.register_parameter(name, nn.Parameter(torch.tensor(np.asarray(weight))))

    def forward(self, x):
        change = nn.functional.pad(x, (0, 0, 1, -1)) - x
        names = ("receptance", "decay", "key", "value", "rate", "gate")
        mixed = {name: x + change * getattr(self, f"token_shift_mix_{name}") for name in names}
        receptance, key, value = (mixed[name] @ getattr(self, f"{name}_kernel") for name in names[:1] + names[2:4])
        decay = torch.exp(-math.exp(-0.5) * torch.sigmoid(self.decay_bias + self._pair("decay", mixed, torch.tanh)))
        rate = torch.sigmoid(self.rate_bias + self._pair("rate", mixed))
        gate = self._pair("gate", mixed, torch.sigmoid)
        removed = nn.functional.normalize((key * self.removal_scale).unflatten(2, (self.heads, -1)), dim=-1)
        key = key * (1 + (rate - 1) * self.rate_scale)
        parts = (receptance, key, value, decay, rate)
        receptance, key, value, decay, rate = (part.unflatten(2, (self.heads, -1)) for part in parts)
        y = self._read(receptance, key, value, decay, removed, removed * rate).flatten(2)
        y = nn.functional.group_norm(y.flatten(0, 1), self.heads, self.norm_scale, self.norm_offset, self.epsilon)
        bonus = (receptance * key * self.bonus).sum(-1, keepdim=True) * value
        return (y.view(x.shape) + bonus.flatten(2)) * gate @ self.output_kernel

    def _pair(self, name, mixed, activation=lambda hidden: hidden):
        hidden = activation(mixed[name] @ getattr(self, f"{name}_input_kernel"))
        return hidden @ getattr(self, f"{name}_kernel")

    def _read(self, receptance, key, value, decay, removed, replaced):
        state, outputs = torch.zeros(*key[:, 0].shape, value.shape[3]), []
        for r, k, v, w, c, a in zip(
            *(x.unbind(1) for x in (receptance, key, value, decay, removed, replaced)), strict=True
        ):
            taken = c[:, :, None] @ state
            state = state * w[..., None] - a[..., None] * taken + k[..., None] * v[:, :, None]
            outputs.append((r[:, :, None] @ state)[:, :, 0])
        return torch.stack(outputs, dim=1)


CHUNK_SIZE = 512
# Our layer -> its peers by name.
PEERS = {
    "retention": {
        "parallel": Retention,
        f"chunks of {CHUNK_SIZE}": lambda layer: Retention(layer, CHUNK_SIZE),
    },
    "time_mixing": {"Hugging Face": TimeMixing},
    "s4d": {"Fourier transform": S4D},
    "gated_delta_net": {
        "transformers": GatedDeltaNet,
        "transformers, token by token": lambda layer: GatedDeltaNet(layer, by_token=True),
    },
    "kimi_delta_attention": {"transformers": KimiDeltaAttention},
    "rwkv7_time_mixing": {"token by token": RWKV7},
    "lightning_attention": {"transformers": LightningAttention},
    "mamba2": {"transformers": Mamba2},
}
# Beyond this length the gradient of a form with all pairs of tokens needs too much memory.
LONGEST = {"parallel": 4096}


def largest_difference(module, x, expected):
    """Returns the largest difference relative to the largest value of `expected`."""
    with torch.inference_mode():
        difference = (module(torch.tensor(x)) - torch.tensor(expected)).abs().max().item()
    return difference / max(abs(expected).max(), math.ulp(1.0))
