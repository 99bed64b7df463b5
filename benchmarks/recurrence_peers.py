"""The recurrent mixers in torch, as modules from `(B, T, D)` to `(B, T, D)` with the weights of our layers."""

import math

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


CHUNK_SIZE = 512
# Our layer -> its peers by name.
PEERS = {
    "retention": {
        "parallel": Retention,
        f"chunks of {CHUNK_SIZE}": lambda layer: Retention(layer, CHUNK_SIZE),
    },
    "time_mixing": {"Hugging Face": TimeMixing},
    "s4d": {"Fourier transform": S4D},
}
# Beyond this length the gradient of a form with all pairs of tokens needs too much memory.
LONGEST = {"parallel": 4096}


def step(module, x, train):
    """Returns a function that runs the module once, optionally with gradients of weights and input."""
    x = torch.tensor(x, requires_grad=train)

    def forward():
        with torch.inference_mode():
            return module(x)

    def forward_and_backward():
        module.zero_grad(set_to_none=True)
        x.grad = None
        module(x).square().sum().backward()

    return forward_and_backward if train else forward


def largest_difference(module, x, expected):
    """Returns the largest difference relative to the largest value of `expected`."""
    with torch.inference_mode():
        difference = (module(torch.tensor(x)) - torch.tensor(expected)).abs().max().item()
    return difference / max(abs(expected).max(), math.ulp(1.0))
