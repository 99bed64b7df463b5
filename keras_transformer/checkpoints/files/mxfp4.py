"""MXFP4: blocks of 32 values of 4 bits (a sign, two bits of exponent, one of mantissa) with a power of two as scale.

Reference: Open Compute Project, OCP Microscaling Formats (MX) Specification 1.0, sections 5.2 to 5.4 and 6.3.
"""

from __future__ import annotations

import functools
import json

import numpy as np

from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.errors import CheckpointError, CorruptFileError
from keras_transformer.checkpoints.layouts import Layout
from keras_transformer.checkpoints.mapping import Entry

BLOCK = 32
_BYTES = BLOCK // 2
_BIAS = 127
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_NO_CODE = 255
# The code of each multiple of 0.5 up to 6, and of more.
_CODES = np.full(14, _NO_CODE, "uint8")
_CODES[[int(2 * magnitude) for magnitude in _MAGNITUDES]] = np.arange(8)
# No code of a smaller scale is beyond the range of bfloat16.
_LARGEST_SAFE_SCALE = 252


class NotMXFP4Error(CheckpointError):
    """Values are not those of MXFP4 with any scale."""


class MXFP4(Layout):
    """Matrices `(E, inputs, outputs)` in MXFP4: uint8 blocks `(E, outputs, G, 16)` and scales `(E, outputs, G)`.

    There are `G = inputs / 32` blocks in a row. A block has 32 consecutive inputs, two in a byte, the first in its lower
    half. Weights are read as bfloat16, which has every value of MXFP4. The scales that were read are kept, because the same
    values may have several. With them, weights are written byte for byte as they were read; weights that need others get
    the smallest possible, if they are values of MXFP4.

    Args:
        name: str. The name of the matrices in errors.
        layout: `Layout` of the matrices.
    """

    dtypes = ("U8",)

    def __init__(self, name: str, layout: Layout) -> None:
        self.name = name
        self.layout = layout
        self._scales: np.ndarray | None = None

    def shapes(self, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        count, inputs, outputs = self.layout.shapes(shapes)[0]
        scales = (count, outputs, inputs // BLOCK)
        return [(*scales, _BYTES), scales]

    def read(self, tensors: list[np.ndarray], shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
        import ml_dtypes

        blocks, scales = tensors
        self._scales = scales
        weights = [np.empty(shape, ml_dtypes.bfloat16) for shape in shapes]
        for index in range(len(blocks)):  # By experts, so that nothing else of their size is in memory.
            matrix = decode(blocks[index], scales[index])
            if scales[index].max() > _LARGEST_SAFE_SCALE and not np.isfinite(matrix).all():
                raise CorruptFileError(f"{self.name!r} has a block with a scale that is NaN or beyond bfloat16.")
            one = self.layout.read([matrix.T[None]], [(1, *shape[1:]) for shape in shapes])
            for weight, part in zip(weights, one, strict=True):
                weight[index] = part[0]
        return weights

    def write(self, weights: list[np.ndarray]) -> list[np.ndarray]:
        blocks_shape, scales_shape = self.shapes([weight.shape for weight in weights])
        blocks, scales = np.empty(blocks_shape, "uint8"), np.empty(scales_shape, "uint8")
        for index in range(len(blocks)):
            matrix = self.layout.write([weight[index : index + 1] for weight in weights])[0][0].T
            try:
                blocks[index], scales[index] = encode(matrix, None if self._scales is None else self._scales[index])
            except NotMXFP4Error as error:
                raise NotMXFP4Error(f"{self.name!r} has values that MXFP4 does not have.") from error
        return [blocks, scales]


def decode(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Returns the values of blocks.

    Args:
        blocks: uint8 `(rows, G, 16)`.
        scales: uint8 `(rows, G)`: `s` for the factor `2^(s - 127)`; 255 for NaN.

    Returns:
        bfloat16 `(rows, 32 · G)`; infinite beyond its range.

    Example: the codes 2 (1.0) and 15 (-6.0), times 2.

    >>> decode(np.full((1, 1, 16), 15 * 16 + 2, "uint8"), np.full((1, 1), 128, "uint8"))[0, :3].tolist()
    [2.0, -12.0, 2.0]
    """
    import ml_dtypes

    pairs = _pairs()[scales.astype("uint16")[..., None] * np.uint16(256) + blocks]
    return pairs.view(ml_dtypes.bfloat16).reshape(len(blocks), -1)


@functools.cache
def _pairs() -> np.ndarray:
    """Returns the two values, as one uint32, of each scale and byte: `(256 · 256,)`."""
    import ml_dtypes

    values = np.array([*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES)])
    factors = np.ldexp(1.0, np.arange(256) - _BIAS)
    factors[255] = np.nan
    with np.errstate(over="ignore"):
        table = (factors[:, None] * values).astype(ml_dtypes.bfloat16)
    codes = np.arange(256)
    return np.stack([table[:, codes & 15], table[:, codes >> 4]], axis=-1).view("uint32").reshape(-1)


def encode(matrix: np.ndarray, scales: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the blocks of values without rounding, and their scales: the inverse of `decode`.

    Args:
        matrix: float `(rows, 32 · G)`.
        scales: uint8 `(rows, G)` to use where possible; None for the smallest that is possible.

    Raises:
        NotMXFP4Error: a block has values that no scale gives.

    Example:

    >>> blocks, scales = encode(np.full((1, 32), 3.0))
    >>> hex(blocks[0, 0, 0]), scales.tolist()
    ('0x77', [[126]])
    """
    values = matrix.astype("float32").reshape(len(matrix), -1, BLOCK)
    codes, fits = (None, np.array(False)) if scales is None else _encoded(values, scales)
    if codes is None or not fits.all():
        smallest = _smallest_scales(values)
        scales = smallest if scales is None else np.where(fits, scales, smallest)
        codes, fits = _encoded(values, scales)
        if not fits.all():
            raise NotMXFP4Error("Values that MXFP4 does not have.")
    assert scales is not None
    return codes[..., ::2] | codes[..., 1::2] << 4, scales


def _encoded(values: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the codes of values `(rows, G, 32)`, and for each block whether all of them are exact."""
    with np.errstate(over="ignore", invalid="ignore"):
        halves = np.minimum(np.ldexp(np.abs(values), _BIAS + 1 - scales[..., None].astype("int32")), 13)
        whole = np.nan_to_num(halves, nan=13).astype("uint8")
    codes = _CODES[whole]
    fits = np.all((whole == halves) & (codes != _NO_CODE), axis=-1)
    return codes | np.signbit(values).astype("uint8") << 3, fits


def _smallest_scales(values: np.ndarray) -> np.ndarray:
    """Returns for each block the scale with which its largest value is from 4 to 6, the largest that MXFP4 has."""
    _, exponents = np.frexp(np.abs(values).max(axis=-1))
    return np.clip(exponents - 3 + _BIAS, 0, 254).astype("uint8")


def without_mxfp4(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the record of the same checkpoint with matrices in bfloat16 in place of MXFP4, and a config that says so."""
    entries, dtypes = [], dict(checkpoint.dtypes)
    for entry in checkpoint.entries:
        if isinstance(entry.layout, MXFP4):
            name = entry.theirs[0].removesuffix("_blocks")
            entry = Entry((name,), entry.ours, entry.layout.layout)
            dtypes[name] = "BF16"
        entries.append(entry)
    config = json.loads(checkpoint.files["config.json"])
    config.pop("quantization_config", None)
    files = checkpoint.files | {"config.json": (json.dumps(config, indent=2) + "\n").encode()}
    names, unused = checkpoint.names, checkpoint.unused
    return Checkpoint(checkpoint.architecture, checkpoint.config, entries, dtypes, names, files, unused)
