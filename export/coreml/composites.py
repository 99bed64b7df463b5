"""Operators of ONNX that Core ML has not, of several that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.coreml.builder import Builder, Var, kind_of

_HIDDEN = -3e4  # Within the range of float16; its exponential is 0.


def attention(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> Var:
    """`Attention` of opset 23 without a past: `softmax(scale q k^T + mask) v`, with fewer key than query heads if so.

    Raises:
        NotImplementedError: a past, a second output or a soft cap of the scores.
    """
    query, key, value, *rest = inputs
    if any(each is not None for each in rest[1:]) or options.get("qk_matmul_output_mode"):
        raise NotImplementedError("Attention with a past")
    heads, kept = options.get("q_num_heads", 0), options.get("kv_num_heads", 0)
    is_flat = len(query.shape) == 3
    if is_flat:
        query, key, value = _by_head(build, query, heads), _by_head(build, key, kept), _by_head(build, value, kept)
    batch, heads, length, width = query.shape
    kept, slots = key.shape[1:3]
    scale = options.get("scale") or width**-0.5
    grouped = build.reshape(build.mul(x=query, y=np.float32(scale)), (batch, kept, heads // kept * length, width))
    scores = build.matmul(x=grouped, y=key, transpose_y=True)
    scores = build.reshape(scores, (batch, heads, length, slots))
    if options.get("softcap"):
        cap = np.float32(options["softcap"])
        scores = build.mul(x=build.tanh(x=build.mul(x=scores, y=np.float32(1 / cap))), y=cap)
    if options.get("is_causal"):
        later = np.triu(np.full((length, slots), _HIDDEN, "float32"), 1)
        scores = build.add(x=scores, y=build.constant(later))
    if rest and rest[0] is not None:
        scores = _masked(build, scores, rest[0])
    weights = build.reshape(build.softmax(x=scores, axis=-1), (batch, kept, heads // kept * length, slots))
    context = build.reshape(build.matmul(x=weights, y=value), (batch, heads, length, value.shape[-1]))
    if not is_flat:
        return context
    return build.reshape(build.transpose(context, (0, 2, 1, 3)), (batch, length, heads * value.shape[-1]))


def _by_head(build: Builder, x: Var, heads: int) -> Var:
    batch, length, width = x.shape
    return build.transpose(build.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _masked(build: Builder, scores: Var, mask: Var) -> Var:
    if kind_of(mask) == "bool":
        hidden = build.cast(build.logical_not(x=mask), "fp32")
        mask = build.mul(x=hidden, y=np.float32(_HIDDEN))
    return build.add(x=scores, y=mask)


def rotary(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> Var:
    """`RotaryEmbedding` of opset 23: pairs of features turned by angles whose cosines and sines are given."""
    x, cosine, sine, *rest = inputs
    shape, is_flat = x.shape, len(x.shape) == 3
    if is_flat:
        heads = options["num_heads"]
        x = build.reshape(x, (*shape[:2], heads, shape[2] // heads))
    else:
        x = build.transpose(x, (0, 2, 1, 3))
    if rest and rest[0] is not None:
        cosine, sine = (build.gather(x=each, indices=rest[0], axis=0) for each in (cosine, sine))
    cosine, sine = (build.expand_dims(x=each, axes=[2]) for each in (cosine, sine))
    size = options.get("rotary_embedding_dim") or x.shape[-1]
    turned, kept = _part(build, x, 0, size), _part(build, x, size, x.shape[-1])
    if options.get("interleaved"):
        pairs = build.reshape(turned, (*turned.shape[:-1], size // 2, 2))
        first, second = (build.squeeze(x=_part(build, pairs, each, each + 1), axes=[-1]) for each in (0, 1))
    else:
        first, second = _part(build, turned, 0, size // 2), _part(build, turned, size // 2, size)
    real = build.sub(x=build.mul(x=first, y=cosine), y=build.mul(x=second, y=sine))
    other = build.add(x=build.mul(x=first, y=sine), y=build.mul(x=second, y=cosine))
    if options.get("interleaved"):
        turned = build.reshape(build.stack(values=[real, other], axis=-1), turned.shape)
    else:
        turned = build.concat(values=[real, other], axis=-1)
    result = turned if kept is None else build.concat(values=[turned, kept], axis=-1)
    return build.reshape(result, shape) if is_flat else build.transpose(result, (0, 2, 1, 3))


def _part(build: Builder, x: Var, first: int, last: int) -> Any:
    """Features of the last axis; None for none of them."""
    if first == last:
        return None
    rank = len(x.shape)
    begin, end = [0] * rank, list(x.shape)
    begin[-1], end[-1] = first, last
    return build.slice_by_index(x=x, begin=begin, end=end)


def rms_norm(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> Var:
    """`RMSNormalization`: `x / sqrt(mean(x^2) + epsilon) scale`."""
    x, scale = inputs
    axes = list(range(options.get("axis", -1) % len(x.shape), len(x.shape)))
    mean = build.reduce_mean(x=build.square(x=x), axes=axes, keep_dims=True)
    factor = build.rsqrt(x=build.add(x=mean, y=np.float32(options.get("epsilon", 1e-5))), epsilon=np.float32(1e-12))
    return build.mul(x=build.mul(x=x, y=factor), y=scale)


def layer_norm(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> Var:
    """`LayerNormalization` with a scale, and an offset if there is one."""
    x, scale, *rest = inputs
    axes = list(range(options.get("axis", -1) % len(x.shape), len(x.shape)))
    epsilon = np.float32(options.get("epsilon", 1e-5))
    normal = build.layer_norm(x=x, axes=axes, epsilon=epsilon)
    scaled = build.mul(x=normal, y=scale)
    return build.add(x=scaled, y=rest[0]) if rest and rest[0] is not None else scaled


def gemm(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> Var:
    """`Gemm`: `alpha a b + beta c`, each of `a` and `b` transposed if so."""
    first, second, *rest = inputs
    turned = {"transpose_x": bool(options.get("transA", 0)), "transpose_y": bool(options.get("transB", 0))}
    found = build.matmul(x=first, y=second, **turned)
    if options.get("alpha", 1.0) != 1.0:
        found = build.mul(x=found, y=np.float32(options["alpha"]))
    if rest and rest[0] is not None:
        added = rest[0] if options.get("beta", 1.0) == 1.0 else build.mul(x=rest[0], y=np.float32(options["beta"]))
        found = build.add(x=found, y=added)
    return found
