"""The mapping of tensors of a checkpoint to weights of a model."""

from __future__ import annotations

from typing import NamedTuple

from keras_transformer.checkpoints.layouts import Flat, Fused, Layout, Matrix

SAME = Layout()


class Entry(NamedTuple):
    """An entry of a mapping: tensors of a checkpoint, and weights of a model.

    Attributes:
        theirs: tuple of names of tensors.
        ours: tuple of paths of weights, such as "encoder_block_0/self_attention/query/kernel".
        layout: `Layout` between them.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    layout: Layout = SAME

    def prefixed(self, prefix: str) -> Entry:
        """Returns the entry with a prefix of the names of the tensors."""
        return self._replace(theirs=tuple(prefix + name for name in self.theirs))


def same(theirs: str, ours: str) -> Entry:
    """Returns the entry of a tensor with the layout of its weight."""
    return Entry((theirs,), (ours,))


def embedding(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of an embedding."""
    return [same(f"{theirs}.weight", f"{ours}/embeddings")]


def norm(theirs: str, ours: str, bias: bool = True) -> list[Entry]:
    """Returns the mapping of a layer normalization."""
    entries = [same(f"{theirs}.weight", f"{ours}/gamma")]
    return [*entries, same(f"{theirs}.bias", f"{ours}/beta")] if bias else entries


def batch_norm(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of a batch normalization with its statistics."""
    return [
        *norm(theirs, ours),
        same(f"{theirs}.running_mean", f"{ours}/moving_mean"),
        same(f"{theirs}.running_var", f"{ours}/moving_variance"),
    ]


def rms_norm(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of an RMS normalization."""
    return [same(f"{theirs}.weight", f"{ours}/scale")]


def linear(theirs: str, ours: str, *, inputs: int = 1, bias: bool = True, transposed: bool = True) -> list[Entry]:
    """Returns the mapping of a dense layer; see `layouts.Matrix` for `inputs` and `transposed`."""
    entries = [Entry((f"{theirs}.weight",), (f"{ours}/kernel",), Matrix(inputs, transposed))]
    return [*entries, Entry((f"{theirs}.bias",), (f"{ours}/bias",), Flat())] if bias else entries


def fused_linear(theirs: str, ours: list[str], *, bias: bool = True, transposed: bool = True) -> list[Entry]:
    """Returns the mapping of one matrix to several dense layers; `ours` is a list of paths."""
    kernels, biases = (tuple(f"{path}/{name}" for path in ours) for name in ("kernel", "bias"))
    layout = Fused(Matrix(1, transposed), axis=0 if transposed else 1)
    entries = [Entry((f"{theirs}.weight",), kernels, layout)]
    return [*entries, Entry((f"{theirs}.bias",), biases, Fused(Flat()))] if bias else entries


def attention(
    ours: str,
    *,
    query: str,
    key: str,
    value: str,
    output: str,
    bias: bool = True,
    key_bias: bool | None = None,
    output_bias: bool | None = None,
) -> list[Entry]:
    """Returns the mapping of the projections of a `MultiHeadAttention`, each from the torch `Linear` of that name."""
    return [
        *linear(query, f"{ours}/query", bias=bias),
        *linear(key, f"{ours}/key", bias=bias if key_bias is None else key_bias),
        *linear(value, f"{ours}/value", bias=bias),
        *linear(output, f"{ours}/attention_output", inputs=2, bias=bias if output_bias is None else output_bias),
    ]
