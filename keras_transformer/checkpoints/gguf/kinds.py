"""The types of the tensors in a GGUF file that is written: which type each has, and its bytes.

Reference: the choices of `llama-quantize` of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from keras_transformer.checkpoints.gguf import k_quants
from keras_transformer.checkpoints.gguf.library import library

# Types of blocks, and ggml's numbers of files that mostly consist of them.
TYPES = {"F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7, "Q5_1": 9, "Q5_0": 8, "Q4_1": 3, "Q4_0": 2}
K_TYPES = {"Q4_K": 14, "Q5_K": 16, "Q6_K": 18}
# Mixtures: most matrices are of the first type, the more sensitive ones of Q6_K.
_MIXTURES = {"Q4_K_M": "Q4_K", "Q5_K_M": "Q5_K"}
_MIXTURE_FILES = {"Q4_K_M": 15, "Q5_K_M": 17}
KINDS = (*TYPES, *K_TYPES, *_MIXTURES)
_BLOCK = 32
# The type of rows that are not whole super-blocks.
_OF_BLOCKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
# Tables that ggml looks up in float32, and those that are too sensitive for less than 8 bits.
_TABLES = re.compile(r"^(position_embd|token_types)\.|_rel_b\.")
_OUTER = re.compile(r"^(token_embd|output)\.")
_SENSITIVE = re.compile(r"^blk\.(\d+)\.(?:attn_v|ffn_down)\.weight$")
_FUSED = re.compile(r"^blk\.\d+\.attn_qkv\.weight$")


class Kinds:
    """The types of the tensors of a file.

    Args:
        kind: one of `KINDS`.
        names: names of all tensors of the file.

    Example:

    >>> Kinds("Q4_K_M", ["token_embd.weight", "blk.0.attn_v.weight"]).of("blk.0.attn_v.weight", (256, 256))
    'Q6_K'
    """

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        names = list(names)
        self._kind, self._is_tied = kind, "output.weight" not in names
        self._count = 1 + max(
            (int(found[1]) for each in names if (found := re.match(r"blk\.(\d+)\.", each))), default=0
        )

    def of(self, name: str, shape: tuple[int, ...]) -> str:
        """The type of a tensor by its name and shape."""
        if is_float32(name, shape):
            return "F32"
        if not self._kind.startswith("Q"):
            return self._kind
        kind = self._wanted(name)
        if shape[-1] % k_quants.SUPER_BLOCK:
            kind = _OF_BLOCKS.get(kind, kind)
        return "F16" if shape[-1] % _BLOCK else kind

    def _wanted(self, name: str) -> str:
        """The type of a tensor whose rows are whole blocks of it."""
        is_outer = _OUTER.search(name) is not None
        if self._kind in TYPES:
            return "Q8_0" if is_outer and self._kind.startswith(("Q4", "Q5")) else self._kind
        kind = _MIXTURES.get(self._kind, self._kind)
        if self._kind == kind:
            return "Q6_K" if is_outer else kind
        if is_outer:
            return "Q6_K" if self._is_tied or name.startswith("output.") else kind
        if _FUSED.match(name):
            return {"Q4_K": "Q5_K", "Q5_K": "Q6_K"}[kind]
        found = _SENSITIVE.match(name)
        return "Q6_K" if found and _is_exact(int(found[1]), self._count) else kind

    def file_type(self, kinds: Iterable[str]) -> int:
        """ggml's number of a file with matrices of these types."""
        kinds = list(kinds)
        most = max(dict.fromkeys(kinds), key=kinds.count)
        if _MIXTURES.get(self._kind) == most:
            return _MIXTURE_FILES[self._kind]
        return (TYPES | K_TYPES)[most]


def is_float32(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is float32 in every file."""
    return len(shape) == 1 or _TABLES.search(name) is not None


def _is_exact(block: int, count: int) -> bool:
    """Whether a block of the model is one of those whose sensitive matrices have more bits: both ends, and a third."""
    eighth = count // 8
    return block < eighth or block >= 7 * count // 8 or (block - eighth) % 3 == 2


def encoded(values: np.ndarray, kind: str) -> np.ndarray:
    """Float rows `(..., K)` as the bytes of a type.

    Example:

    >>> encoded(np.ones((2, 32), "float32"), "Q8_0").shape
    (2, 34)
    """
    values = np.ascontiguousarray(values)
    if kind in K_TYPES:
        return k_quants.quantize(values, kind)
    return library().quants.quantize(values, library().GGMLQuantizationType[kind])
