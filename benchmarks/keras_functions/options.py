"""Options of functions, beyond those of their cases in the other modules."""

import numpy as np
from keras import ops

from .case import ANY, BOOLS, FLOATS, OTHERS, WHOLE, case, normal, whole
from .core import SEQUENCE, STATE, _step
from .linear_algebra import POSITIVE, M
from .networks import IMAGES, SERIES, VOLUMES
from .reductions import NAN

ROWS, CUBES = normal(4, 6), normal(3, 4, 5)
CAUSAL, GROUPED = normal(2, 3, 4), normal(3, 3, 2, 8)
SPOILED = np.where(FLOATS > 1, NAN, FLOATS)


def option(name, label, function, *arrays, **options):
    case(name, function, *arrays, label=label, **options)


# Loops.
option("scan", "reverse", lambda s, x: ops.scan(_step, s, x, reverse=True), STATE, SEQUENCE, shapes=((3,), (None, 3)))
option("scan", "length", lambda s: ops.scan(lambda c, _: (c * 0.5 + 1, c), s, length=5), STATE, shapes=((None,),))
option(
    "associative_scan", "reverse", lambda x: ops.associative_scan(lambda a, b: a + b, x, reverse=True, axis=1), OTHERS
)
option(
    "while_loop",
    "maximum",
    lambda x: ops.while_loop(lambda y: ops.sum(y) < 99.0, lambda y: (1.5 * y + 1,), (x,), maximum_iterations=2)[0],
    OTHERS,
)
# Reductions.
for name in ("all", "any", "logsumexp", "median"):
    array = BOOLS if name in ("all", "any") else OTHERS
    option(name, "keepdims", lambda x, of=name: getattr(ops, of)(x, axis=-1, keepdims=True), array, shapes=ANY)
    option(name, "all axes", lambda x, of=name: getattr(ops, of)(x), array, shapes=ANY)
for name in ("max", "min"):
    option(name, "initial", lambda x, of=name: getattr(ops, of)(x, axis=-1, initial=0.25), OTHERS, shapes=ANY)
for name in ("mean", "max", "std", "sum", "var"):
    option(name, "two axes", lambda x, of=name: getattr(ops, of)(x, axis=(0, 2), keepdims=True), CUBES)
for name in ("nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nanstd", "nansum", "nanvar"):
    option(name, "all axes", lambda x, of=name: getattr(ops, of)(ops.where(x > 1, NAN, x), keepdims=True), FLOATS)
for name, share in (("nanquantile", 0.3), ("nanpercentile", 30.0)):
    for method in ("lower", "higher", "nearest", "midpoint"):
        option(
            name,
            method,
            lambda x, of=name, q=share, m=method: getattr(ops, of)(ops.where(x > 1, NAN, x), q, axis=-1, method=m),
            FLOATS,
        )
option("quantile", "keepdims", lambda x: ops.quantile(x, 0.4, axis=(0, 2), keepdims=True), CUBES)
option("moments", "keepdims", lambda x: ops.moments(x, axes=[0, 2], keepdims=True), CUBES)
for order in (0, 1, 3, -1, np.inf, -np.inf):
    option("norm", f"vector {order}", lambda x, o=order: ops.norm(x, o, axis=-1, keepdims=True), OTHERS)
option("norm", "all axes", ops.norm, OTHERS)
for order in (1, 3):
    option("normalize", f"order {order}", lambda x, o=order: ops.normalize(x, axis=-1, order=o), ROWS)
option("average", "all axes", ops.average, OTHERS)
option("trapezoid", "steps", lambda x: ops.trapezoid(x, x=np.array([0, 1, 3, 3.5, 7], "float32"), axis=-1), OTHERS)
option("diff", "ends", lambda x: ops.diff(x, axis=-1), CUBES)
option("top_k", "unsorted", lambda x: ops.sum(ops.top_k(x, 3, sorted=False)[0], -1), OTHERS)
option("isin", "invert", lambda x: ops.isin(x, np.array([1, 3, -4], "int32"), invert=True), WHOLE, shapes=ANY)
for name in ("allclose", "isclose"):
    option(
        name, "NaN", lambda x, of=name: getattr(ops, of)(x + SPOILED, SPOILED, equal_nan=True), 0 * FLOATS, shapes=()
    )
option("nan_to_num", "values", lambda x: ops.nan_to_num(1 / ops.relu(x), nan=2.0, posinf=5.0, neginf=-3.0), FLOATS)
for name in ("segment_max", "segment_min", "segment_prod", "segment_sum"):
    ids = np.array([2, 0, 2, 1], "int32")
    option(name, "unsorted", lambda x, i, of=name: getattr(ops, of)(x, i, num_segments=4), CUBES[[0, 1, 2, 0]], ids)
for options in (
    {"return_counts": True},
    {"return_inverse": True},
    {"return_index": True},
    {"size": 4, "fill_value": 0},
):
    option("unique", " ".join(options), lambda x, o=options: ops.unique(x, **o), whole(0, 5, 9))
# Tensors that are made, moved and padded.
for name, low in (("linspace", 0.0), ("logspace", 0.0), ("geomspace", 1.0)):
    option(
        name,
        "endpoint",
        lambda x, of=name, a=low: getattr(ops, of)(x + a, x + a + 1, 4, endpoint=False, axis=-1),
        np.abs(OTHERS[:, 0]),
    )
option("linspace", "step", lambda x: ops.linspace(x, x + 1, 4, retstep=True), OTHERS[:, 0])
option("vander", "increasing", lambda x: ops.vander(x, 3, increasing=True), normal(4))
option("meshgrid", "ij", lambda x, y: ops.meshgrid(x, y, indexing="ij"), normal(4), normal(3), shapes=((None,), (3,)))
option("transpose", "axes", lambda x: ops.transpose(x, (2, 0, 1)), CUBES)
option("pad", "value", lambda x: ops.pad(x, ((0, 0), (1, 2), (1, 0)), constant_values=-2.5), CUBES)
option("rot90", "thrice", lambda x: ops.rot90(x, 3, (1, 2)), CUBES)
option("flip", "axes", lambda x: ops.flip(x, (0, 2)), CUBES)
option("roll", "axes", lambda x: ops.roll(x, (1, -2), axis=(0, 2)), CUBES)
option("where", "places", lambda x: ops.stack(ops.where(x > 0)), OTHERS, shapes=ANY)
option("unstack", "number", lambda x: ops.unstack(x, 5, axis=-1), CUBES)
option("searchsorted", "right", lambda x: ops.searchsorted(np.float32([-1, 0, 1.5]), x, side="right"), OTHERS[:, 0])
for depth in ("depth_to_space", "space_to_depth"):
    option(depth, "channels first", lambda x, of=depth: getattr(ops, of)(x, 2, "channels_first"), normal(2, 8, 4, 6))
# Networks.
FIRST = {1: SERIES.swapaxes(1, 2), 2: IMAGES.transpose(0, 3, 1, 2), 3: VOLUMES.transpose(0, 4, 1, 2, 3)}
for rank, array in FIRST.items():
    channels, sizes, label = array.shape[1], (3,) * rank, f"{rank}D channels first"
    for name in ("average_pool", "max_pool"):
        option(name, label, lambda x, of=name: getattr(ops, of)(x, 2, 1, "same", "channels_first"), array)
        option(name, f"{rank}D window", lambda x, of=name: getattr(ops, of)(x, 3), np.moveaxis(array, 1, -1))
    kernel, turned = normal(*sizes, channels, 4), normal(*sizes, 4, channels)
    option("conv", label, lambda x, k=kernel: ops.conv(x, k, 1, "same", "channels_first", 2), array)
    option(
        "conv_transpose", label, lambda x, k=turned: ops.conv_transpose(x, k, 2, "same", None, "channels_first"), array
    )
    last = np.moveaxis(array, 1, -1)
    option("conv_transpose", f"{rank}D output", lambda x, k=turned: ops.conv_transpose(x, k, 2, "same", 1), last)
    option("conv_transpose", f"{rank}D dilated", lambda x, k=turned: ops.conv_transpose(x, k, 1, dilation_rate=2), last)
    if rank < 3:
        depthwise, pointwise = normal(*sizes, channels, 2), normal(*(1,) * rank, 2 * channels, 4)
        option(
            "depthwise_conv",
            f"{label}, dilated",
            lambda x, d=depthwise: ops.depthwise_conv(x, d, 1, "valid", "channels_first", 2),
            array,
        )
        option(
            "separable_conv",
            label,
            lambda x, d=depthwise, p=pointwise: ops.separable_conv(x, d, p, 2, "valid", "channels_first"),
            array,
        )
option("conv", "causal pair", lambda x: ops.conv(x, CAUSAL, 1, "valid", dilation_rate=3), SERIES)
option("conv", "groups", lambda x: ops.conv(x, GROUPED, 1, "same"), normal(2, 7, 6, 4))
for name in ("adaptive_average_pool", "adaptive_max_pool"):
    option(name, "channels first", lambda x, of=name: getattr(ops, of)(x, (3, 4), "channels_first"), FIRST[2])
SCALE = np.array([1, 2, 3], "float32")
option("batch_normalization", "plain", lambda x: ops.batch_normalization(x, SCALE, SCALE, -1, epsilon=0.1), IMAGES)
option("batch_normalization", "first axis", lambda x: ops.batch_normalization(x, SCALE, SCALE, 1, SCALE), FIRST[2])
option("layer_normalization", "axes", lambda x: ops.layer_normalization(x, axis=(1, 2), epsilon=0.1), IMAGES)
option("rms_normalization", "axis", lambda x: ops.rms_normalization(x, axis=1, epsilon=0.1), IMAGES)
QKV = [normal(2, 5, 4, 8), normal(2, 6, 2, 8), normal(2, 6, 2, 8)]
SEEN = whole(0, 2, 2, 1, 5, 6, dtype="bool") | np.eye(5, 6, dtype=bool)
option("dot_product_attention", "mask", lambda q, k, v: ops.dot_product_attention(q, k, v, mask=SEEN), *QKV, shapes=())
option(
    "dot_product_attention",
    "bias",
    lambda q, k, v: ops.dot_product_attention(q, k, v, bias=np.float32(SEEN), scale=0.3),
    *QKV,
    shapes=(),
)
SAME = [normal(2, 5, 4, 8) for _ in range(3)]
option("dot_product_attention", "causal", lambda q, k, v: ops.dot_product_attention(q, k, v, is_causal=True), *SAME)
option("multi_hot", "axis", lambda x: ops.multi_hot(x, 5, axis=1), whole(0, 5, 4, 3))
option("one_hot", "axis", lambda x: ops.one_hot(x, 5, axis=1, dtype="int32"), whole(0, 5, 4, 3))
option(
    "sparse_categorical_crossentropy",
    "logits",
    lambda t, p: ops.sparse_categorical_crossentropy(t, p, from_logits=True),
    whole(0, 6, 4),
    ROWS,
)
option(
    "ctc_decode",
    "repeated",
    lambda x, n: ops.ctc_decode(x, n, "greedy", merge_repeated=False)[0][0],
    *(normal(2, 9, 5), np.array([9, 8], "int32")),
)
for name, value in (("elu", 0.4), ("celu", 0.4), ("leaky_relu", 0.4), ("hard_shrink", 0.9), ("soft_shrink", 0.9)):
    option(name, "number", lambda x, of=name, v=value: getattr(ops, of)(x, v), ROWS)
for name in ("glu", "log_softmax", "softmax", "sparsemax"):
    option(name, "axis", lambda x, of=name: getattr(ops, of)(x, axis=1), normal(2, 4, 3))
# Linear algebra and signals.
option("cholesky_inverse", "upper", lambda x: ops.cholesky_inverse(x, upper=True), np.triu(M))
option("matrix_rank", "tolerance", lambda x: ops.matrix_rank(x, 0.5), POSITIVE)
option("pinv", "cutoff", lambda x: ops.pinv(x, 0.2), M)
option("lstsq", "cutoff", lambda a, b: ops.lstsq(a, b, rcond=0.1), normal(6, 4), normal(6, 2), shapes=())
option("irfft", "length", lambda x, y: ops.irfft((x, y), 12), normal(3, 9), normal(3, 9))
for window in ("hamming", None):
    option("stft", str(window), lambda x, w=window: ops.stft(x, 12, 4, 16, w, False), normal(2, 64))
    option("istft", str(window), lambda x, y, w=window: ops.istft((x, y), 12, 4, 16, 60, w), *(normal(2, 14, 9),) * 2)
