"""Which tensors of a checkpoint are which weights of a model."""

from typing import NamedTuple

from keras_transformer.checkpoints.layouts import Flat, Fused, Layout, Matrix

SAME = Layout()


class Entry(NamedTuple):
    """One line of a mapping.

    Attributes:
        theirs: tuple of names of tensors.
        ours: tuple of paths of weights, such as "encoder_block_0/self_attention/query/kernel".
        layout: `Layout` between them.
    """

    theirs: tuple
    ours: tuple
    layout: Layout = SAME

    def prefixed(self, prefix):
        """The same, with `prefix` before the names of the tensors."""
        return self._replace(theirs=tuple(prefix + name for name in self.theirs))


def same(theirs, ours):
    """A tensor that is a weight as it stands."""
    return Entry((theirs,), (ours,))


def embedding(theirs, ours):
    """A table of vectors."""
    return [same(f"{theirs}.weight", f"{ours}/embeddings")]


def norm(theirs, ours, bias=True):
    """A layer norm."""
    entries = [same(f"{theirs}.weight", f"{ours}/gamma")]
    return [*entries, same(f"{theirs}.bias", f"{ours}/beta")] if bias else entries


def rms_norm(theirs, ours):
    """An RMS norm."""
    return [same(f"{theirs}.weight", f"{ours}/scale")]


def linear(theirs, ours, *, inputs=1, bias=True, transposed=True):
    """A dense layer; see `layouts.Matrix` for `inputs` and `transposed`."""
    entries = [Entry((f"{theirs}.weight",), (f"{ours}/kernel",), Matrix(inputs, transposed))]
    return [*entries, Entry((f"{theirs}.bias",), (f"{ours}/bias",), Flat())] if bias else entries


def fused_linear(theirs, ours, *, bias=True, transposed=True):
    """One matrix for several dense layers; `ours` is a list of paths."""
    kernels, biases = (tuple(f"{path}/{name}" for path in ours) for name in ("kernel", "bias"))
    layout = Fused(Matrix(1, transposed), axis=0 if transposed else 1)
    entries = [Entry((f"{theirs}.weight",), kernels, layout)]
    return [*entries, Entry((f"{theirs}.bias",), biases, Fused(Flat()))] if bias else entries


def attention(ours, *, query, key, value, output, bias=True, key_bias=None, output_bias=None):
    """The four projections of a `MultiHeadAttention`; each argument names the torch `Linear`."""
    return [
        *linear(query, f"{ours}/query", bias=bias),
        *linear(key, f"{ours}/key", bias=bias if key_bias is None else key_bias),
        *linear(value, f"{ours}/value", bias=bias),
        *linear(output, f"{ours}/attention_output", inputs=2, bias=bias if output_bias is None else output_bias),
    ]
