"""The blocks of quantized tensors in GGUF files as integers, scales and minima.

`container.read` gives their values; here nothing is multiplied, so that another file can have the same integers and scales.

Reference: the layouts of these types in ggml.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from keras_transformer.quantization.blocks import Blocks


def decoded(blocks: np.ndarray, kind: str) -> Blocks:
    """The blocks of a tensor.

    Args:
        blocks: uint8 array `(N, bytes of a row)`, as `Container.blocks` returns it for a matrix.
        kind: one of `DECODED`: ggml's name of the type.

    Example:

    >>> row = np.array([[0, 60, *range(32)]], "uint8")  # 0x3c00 is 1 in half precision.
    >>> decoded(row, "Q8_0").values[0, :3].tolist()
    [0.0, 1.0, 2.0]
    """
    size, decode = _KINDS[kind]
    return decode(np.asarray(blocks).reshape(len(blocks), -1, size))


def _halves(blocks: np.ndarray, start: int) -> np.ndarray:
    return np.ascontiguousarray(blocks[..., start : start + 2]).view("float16")[..., 0]


def _pairs(packed: np.ndarray) -> np.ndarray:
    """Codes of 4 bits: those in the low halves of the bytes, then those in the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """The fifth bits of a block of 32 codes, of 4 bytes, where 4 bits have the value 16."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << 4


def _q4_0(blocks: np.ndarray) -> Blocks:
    return Blocks(_pairs(blocks[..., 2:]), _halves(blocks, 0), None, 8, 4)


def _q4_1(blocks: np.ndarray) -> Blocks:
    return Blocks(_pairs(blocks[..., 4:]), _halves(blocks, 0), _halves(blocks, 2), 0, 4)


def _q5_0(blocks: np.ndarray) -> Blocks:
    return Blocks(_pairs(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6]), _halves(blocks, 0), None, 16, 8)


def _q5_1(blocks: np.ndarray) -> Blocks:
    codes = _pairs(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8])
    return Blocks(codes, _halves(blocks, 0), _halves(blocks, 2), 0, 8)


def _q8_0(blocks: np.ndarray) -> Blocks:
    return Blocks(blocks[..., 2:] ^ 128, _halves(blocks, 0), None, 128, 8)


def _q4_k(blocks: np.ndarray) -> Blocks:
    return _with_minima(blocks, _sub_blocks(blocks[..., 16:]), 4)


def _q5_k(blocks: np.ndarray) -> Blocks:
    bits = blocks[..., None, 16:48] >> np.arange(8, dtype="uint8")[:, None] & 1
    return _with_minima(blocks, _sub_blocks(blocks[..., 48:]) | bits << 4, 8)


def _sub_blocks(packed: np.ndarray) -> np.ndarray:
    """Codes `(..., 8, 32)` of 4 bits: two sub-blocks share 32 bytes."""
    packed = packed.reshape(*packed.shape[:-1], 4, 1, 32)
    return (packed >> np.array([[0], [4]], "uint8") & 15).reshape(*packed.shape[:-3], 8, 32)


def _with_minima(blocks: np.ndarray, codes: np.ndarray, bits: int) -> Blocks:
    """Sub-blocks of 32 whose scales and minima are integers of 6 bits."""
    first, second, third = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    lows = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    scale = _halves(blocks, 0)[..., None].astype("float32") * scales
    minimum = -(_halves(blocks, 2)[..., None].astype("float32") * lows)
    return Blocks(*_flat(codes, scale, minimum), 0, bits)


def _q6_k(blocks: np.ndarray) -> Blocks:
    low = blocks[..., :128].reshape(*blocks.shape[:-1], 2, 1, 2, 32)
    high = blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32)
    codes = (low >> np.array([0, 4], "uint8")[:, None, None] & 15).reshape(*blocks.shape[:-1], 2, 4, 32)
    codes = codes | (high >> np.arange(0, 8, 2, dtype="uint8")[:, None] & 3) << 4
    scales = np.ascontiguousarray(blocks[..., 192:208]).view("int8").astype("float32")
    scale = _halves(blocks, 208)[..., None].astype("float32") * scales
    codes, scale, _ = _flat(codes.reshape(*scale.shape, 16), scale, scale)
    return Blocks(codes, scale, None, 32, 8)


def _flat(codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sub-blocks of all super-blocks of a row side by side."""
    count = len(codes)
    return codes.reshape(count, -1, codes.shape[-1]), scale.reshape(count, -1), minimum.reshape(count, -1)


# Bytes of a block, or of a super-block.
_KINDS: dict[str, tuple[int, Callable[[np.ndarray], Blocks]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q5_0": (22, _q5_0),
    "Q5_1": (24, _q5_1),
    "Q8_0": (34, _q8_0),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
}
DECODED = tuple(_KINDS)
