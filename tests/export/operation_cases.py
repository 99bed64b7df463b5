"""For each operation of the table one case or several: a function, its arguments, and the shapes of a file."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

_RANDOM = np.random.default_rng(3)
# A float of each size and sign, and what is at the ends.
ANY = (
    np.concatenate([_RANDOM.normal(0, 10.0**power, 9) for power in (-6, -3, -1, 0, 1)]).astype("float32").reshape(5, 9)
)
POSITIVE, SMALL = np.abs(ANY) + np.float32(1e-7), np.tanh(ANY)
ROWS = _RANDOM.normal(size=(3, 5)).astype("float32")
OTHERS = _RANDOM.normal(size=(3, 5)).astype("float32")
WHOLE = np.array([[-7, -1, 0, 3, 9], [2, -3, 5, -9, 1]], "int32")
DIVISORS = np.array([[2, 3, -4, -2, 5], [-3, 2, 3, 4, -1]], "int32")
BITS = np.array([[-(2**31), 2**31 - 1, -1, 0, 9], [2, -3, 5, -(2**30), 1]], "int32")
ENDS = np.array([0, -0.0, 1, -1.5, 3e38, 1e-38, -1e-42, 1e-45, np.inf, -np.inf, 2**-100, 16777217, 0.1], "float32")
MATRICES = _RANDOM.normal(size=(2, 4, 6)).astype("float32")
IMAGES = _RANDOM.normal(size=(2, 9, 8, 3)).astype("float32")
BYTES = _RANDOM.integers(-128, 128, (2, 3, 40)).astype("int8")
PLACES, VALUES = np.array([[0, 1], [2, 3], [0, 1]], "int32"), np.array([9.0, -8.0, 7.0], "float32")
RAW = tf.raw_ops


@dataclasses.dataclass(frozen=True)
class Case:
    """A function that contains an operation.

    Args:
        function: of tensors.
        arrays: its arguments.
        shapes: for each argument the shape for which the file is written; every axis is dynamic by default.
        refused: the formats that refuse it.
        bound: largest difference from TensorFlow, as a share of each value or of 1.
    """

    function: Callable
    arrays: tuple
    shapes: tuple | None = None
    refused: tuple[str, ...] = ()
    bound: float = 2e-6


CASES: dict[tuple[str, str], Case] = {}


def case(operation, function, *arrays, name="", **options):
    assert (operation, name) not in CASES
    CASES[operation, name] = Case(function, arrays, **options)


def _unary(names, array, argument="x", **options):
    for name in names.split():
        function = getattr(RAW, name)
        case(name, lambda x, op=function: op(**{argument: x}), array, **options)


def _binary(names, x, y, name="", **options):
    for each in names.split():
        function = getattr(RAW, each)
        function = (
            (lambda x, y, op=function: op(y=x, x=y)) if each == "Atan2" else (lambda x, y, op=function: op(x=x, y=y))
        )
        case(each, function, x, y, name=name, **options)


_unary("Abs Sign Sin Cos Tan Tanh Atan Asinh Erf Erfc Sigmoid Square IsInf", ANY)
_unary("Exp Expm1 Sinh Cosh", ANY, bound=4e-6)
_unary("Log Log1p Sqrt Rsqrt Reciprocal Inv", POSITIVE)
_unary("Acos Asin Atanh", SMALL)
_unary(
    "Erfinv", np.concatenate([SMALL, [[-1, 1, 0.99999994, -0.99999994, 0.7, 0, 0.73, -0.7293, 0.5]]]).astype("float32")
)
_unary("BesselI0 BesselI0e", ANY, bound=4e-6)
case("NextAfter", lambda x, y: tf.math.nextafter(x, y), ENDS[:8], ENDS[:8][::-1])
case("NextAfter", lambda x, y: tf.math.nextafter(x, y), ROWS, OTHERS, name="normal")
case("NextAfter", lambda x, y: keras.ops.nextafter(x, y), ROWS, OTHERS, name="in float64")
case("Less", lambda x: tf.cast(x > 0, tf.float32) < 0.0, ROWS, name="boolean")
case("Ndtri", lambda x: RAW.Ndtri(x=x), 0.5 + 0.49 * SMALL)
case("Acosh", lambda x: RAW.Acosh(x=x), POSITIVE + 1)
_unary("Softplus Softsign Elu Selu Relu Relu6", ANY, "features")
_unary("Softmax LogSoftmax", ROWS, "logits")
case("LeakyRelu", lambda x: RAW.LeakyRelu(features=x, alpha=0.3), ANY)
for dtype in ("int32", "int64"):
    case("Abs", lambda x: RAW.Abs(x=x), WHOLE.astype(dtype), name=dtype)
    case("Sign", lambda x: RAW.Sign(x=x), WHOLE.astype(dtype), name=dtype)
    _binary("FloorDiv FloorMod TruncateDiv Mod TruncateMod", WHOLE.astype(dtype), DIVISORS.astype(dtype), dtype)
    _binary("BitwiseAnd BitwiseOr BitwiseXor", BITS.astype(dtype), BITS[::-1].astype(dtype), dtype)
    case("Invert", lambda x: RAW.Invert(x=x), BITS.astype(dtype), name=dtype)
shifts = np.array([[0, 1, 31, 5, 30], [1, 2, 3, 1, 31]], "int32")
_binary("LeftShift RightShift", BITS, shifts)
_binary("LeftShift RightShift", BITS.astype("int64"), shifts.astype("int64"), "int64")
LONG = np.array([2**63 - 1, -(2**63) + 1, -(2**40), 10**17 + 1, -3, 8 * 10**15], "int64")
LONG_DIVISORS = np.array([3, -7, 2**33, 10**9, 10**12, -1], "int64")
_binary("FloorDiv FloorMod TruncateDiv Mod TruncateMod BitwiseAnd", LONG, LONG_DIVISORS, "large")
case("Bitcast", lambda x: tf.bitcast(x, tf.int32), ENDS)
case("Bitcast", lambda x: tf.bitcast(x, tf.float32), ENDS[np.isfinite(ENDS)].view("int32"), name="back")
case("Bitcast", lambda x: tf.bitcast(x, tf.int32), np.array([[1.0, -2.0]]), name="float64", refused=("onnx",))
NARROW = np.array([[-128, -1, 0, 127], [100, 7, -90, 3]], "int8")
NARROW_OTHERS = np.array([[1, -1, 5, 127], [-100, 7, 3, 2]], "int8")
for dtype in ("int8", "uint8", "int16", "uint16"):
    pair = NARROW.astype(dtype), NARROW_OTHERS.astype(dtype)
    comparisons = "Equal Greater GreaterEqual Less LessEqual NotEqual"
    _binary(f"AddV2 Sub Mul Maximum Minimum FloorDiv FloorMod {comparisons}", *pair, dtype)
    _binary("LeftShift RightShift", pair[0], np.array([[0, 1, 2, 3], [4, 5, 6, 7]], dtype), dtype)
    for name in ("Sum", "Prod", "Max", "Min"):
        function = getattr(RAW, name)
        case(name, lambda x, op=function: op(input=x, axis=[1]), pair[0], name=dtype)
    for name in ("Cumsum", "Cumprod"):
        function = getattr(RAW, name)
        case(name, lambda x, op=function: op(x=x, axis=1, reverse=True), pair[0], name=dtype)
    case("ReverseV2", lambda x: tf.reverse(x, [1]), pair[0], name=dtype)
    case("Pad", lambda x: tf.pad(x, [[1, 0], [0, 2]]), pair[0], name=dtype)
    case("PadV2", lambda x: tf.pad(x, [[1, 0], [0, 2]], constant_values=3), pair[0], name=dtype)
    for name in ("Sum", "Prod", "Max", "Min"):
        function = getattr(RAW, f"UnsortedSegment{name}")
        options = {"segment_ids": [1, 0], "num_segments": 2}
        case(f"UnsortedSegment{name}", lambda x, op=function, o=options: op(data=x, **o), pair[0], name=dtype)
for name in ("Sum", "Prod", "Max"):
    function = getattr(RAW, name)
    case(name, lambda x, op=function: op(input=tf.cast(x, tf.uint32), axis=[1]), NARROW.astype("uint8"), name="uint32")
_binary("Add", NARROW, NARROW_OTHERS, "int8")
case("Tile", lambda x: tf.tile(x, [2, 1]), NARROW)
case("SelectV2", lambda x: tf.where(x > 100, x, x + 1), NARROW.astype("uint8"), name="uint8")
case(
    "TensorScatterUpdate",
    lambda x: tf.tensor_scatter_nd_update(x, [[1]], x[:1]),
    NARROW.astype("uint8"),
    name="uint8",
    shapes=((None, 4),),
)
for name, function in (("ArgMax", tf.argmax), ("ArgMin", tf.argmin)):
    for axis in (0, -1):
        case(name, lambda x, of=function, axis=axis: of(x, axis), LONG[:6].reshape(2, 3), name=f"int64 {axis}")
case("UnsortedSegmentSum", lambda x: tf.math.unsorted_segment_sum(x, [2, 0, -1, 2, 2, 0], 4), LONG >> 2, name="int64")
case("Pow", lambda x: x**3, WHOLE.astype("int64"), name="int64")
case("Pow", lambda x, y: x**y, WHOLE.astype("int64"), np.abs(WHOLE).astype("int64"), name="int64 computed")
case("Neg", lambda x: -x, NARROW, name="int8")
case("Pow", lambda x: x**3, NARROW, name="int8")
case(
    "BitwiseAnd",
    lambda x: tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), tf.constant(-(2**31))),
    np.array([0.0, -0.0, 1, -1e-30, -np.inf, np.inf], "float32"),
    name="sign",
)
_binary(
    "Add AddV2 Sub Mul MulNoNan RealDiv Div DivNoNan SquaredDifference FloorDiv FloorMod TruncateDiv Atan2",
    ROWS,
    OTHERS,
)
_binary("FloorMod Mod TruncateMod", 1000 * ROWS, OTHERS, "float32")
_binary("Xlogy Xdivy Xlog1py Pow", np.abs(ROWS), np.abs(OTHERS))
case(
    "MulNoNan",
    lambda x, y: RAW.MulNoNan(x=x, y=y),
    np.array([1.0, 2, 3], "float32"),
    np.array([0.0, 1, -2], "float32"),
    name="zero",
)
case("AddN", lambda x: tf.add_n([x, x, -3 * x]), ROWS)
case("BiasAdd", lambda x: tf.nn.bias_add(x, [1.0, 2, 3]), IMAGES, shapes=((None, None, None, 3),))
case(
    "Mul",
    lambda x: x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-6) * np.array([1, 2, 3, 4, 5], "float32"),
    ROWS,
    name="norm",
)
for name in ("Sum", "Mean", "Prod", "EuclideanNorm"):
    function = getattr(RAW, name)
    for keep_dims in (False, True):
        case(
            name,
            lambda x, op=function, keep=keep_dims: op(input=x, axis=[1], keep_dims=keep),
            ROWS,
            name=f"keep_dims={keep_dims}",
        )
case("L2Loss", lambda x: RAW.L2Loss(t=x), ROWS)
for name in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
    for options in ({}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}):
        function = functools.partial(getattr(RAW, name), axis=1, **options)
        # What is before all numbers is -inf in TensorFlow, and the lowest finite number in LiteRT, which clamps sums.
        inner = slice(1, -1) if name == "CumulativeLogsumexp" else slice(None)
        case(name, lambda x, op=function, inner=inner: op(x=x)[:, inner], ROWS, name=str(options))
case("Cumprod", lambda x: RAW.Cumprod(x=x, axis=-2), np.array([[[2], [3], [-5]]], "int32"), name="int32")
case("Cumprod", lambda x: RAW.Cumprod(x=x, axis=0), ROWS[:1], name="of one")
case("Bucketize", lambda x: RAW.Bucketize(input=x, boundaries=[-1.0, 0.0, 0.5]), ROWS)
case("Bucketize", lambda x: RAW.Bucketize(input=x, boundaries=[-1.0, 0.0, 3.0]), WHOLE, name="int32")
COUNTED = np.array([[0, 2, 2, 9], [1, 2, 5, 0]], "int32")
case("OneHot", lambda x: tf.one_hot(x, 4), COUNTED - 1)
case("OneHot", lambda x: tf.one_hot(x, 4, 2, -1, axis=0, dtype=tf.int32), COUNTED[0] - 1, name="int32")
case("OneHot", lambda x: tf.one_hot(tf.argmax(x, -1), 5), ROWS, name="argmax")
case("DenseBincount", lambda x: tf.math.bincount(x, minlength=4, maxlength=4, axis=-1), COUNTED)
case(
    "DenseBincount",
    lambda x: RAW.DenseBincount(input=x, size=4, weights=tf.zeros([0], tf.float32)),
    COUNTED[0],
    name="vector",
)
case(
    "DenseBincount",
    lambda x, y: RAW.DenseBincount(input=x, size=4, weights=y),
    COUNTED,
    np.abs(ROWS[:2, :4]),
    name="weights",
    shapes=((None, None), (2, 4)),
)
case(
    "DenseBincount",
    lambda x: RAW.DenseBincount(input=x, size=4, weights=tf.zeros([0], tf.float32), binary_output=True),
    COUNTED,
    name="binary",
)
case("InTopKV2", lambda x, y: tf.math.in_top_k(y, x, 2), ROWS, np.array([1, 7, 3], "int32"))
for name, side in (("LowerBound", "left"), ("UpperBound", "right")):
    case(name, lambda x, y, side=side: tf.searchsorted(x, y, side), np.sort(np.round(ROWS), 1), np.round(OTHERS))
    case(name, lambda x, y, side=side: tf.searchsorted(x, y, side, tf.int64), np.sort(WHOLE, 1), DIVISORS, name="int64")
for reverse in (False, True):
    case(
        "NthElement",
        lambda x, reverse=reverse: RAW.NthElement(input=x, n=2, reverse=reverse),
        ROWS,
        name=f"reverse={reverse}",
    )
SEGMENTS = np.array([2, 0, 2], "int32")
for name in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin"):
    function = getattr(RAW, name)
    case(name, lambda x, y, op=function: op(data=x, segment_ids=y, num_segments=4), ROWS, SEGMENTS)
    case(
        name,
        lambda x, y, op=function: op(data=x, segment_ids=y, num_segments=4),
        ROWS[:, 0],
        np.array([3, -1, 3], "int32"),
        name="vector",
    )
for name in ("SegmentSum", "SegmentProd", "SegmentMean", "SegmentMax", "SegmentMin"):
    function = getattr(RAW, name)
    case(name, lambda x, y, op=function: op(data=x, segment_ids=y), ROWS - 3, np.array([0, 0, 2], "int32"))
case("ScatterNd", lambda i, u: tf.scatter_nd(i, u, [4, 5]), PLACES, VALUES, shapes=((None, 2), (None,)))
case("TensorScatterAdd", lambda x, i, u: tf.tensor_scatter_nd_add(x, i, u), ROWS, PLACES, VALUES)
case("TensorScatterUpdate", lambda x, i, u: tf.tensor_scatter_nd_update(x, i, u), ROWS, PLACES[:2], VALUES[:2])
CACHE = _RANDOM.integers(-9, 9, (2, 3, 5, 4)).astype("int8")
case(
    "TensorScatterUpdate",
    lambda x, u: tf.tensor_scatter_nd_update(x, [[0, 1, 2], [1, 0, 4]], u),
    CACHE,
    CACHE[0, 0, :2],
    name="int8",
    shapes=((None, 3, None, 4), (None, 4)),
)
depth = ((None, None), (None, 2), (None,))
case("TensorScatterMax", lambda x, i, u: tf.tensor_scatter_nd_max(x, i, u), ROWS, PLACES, VALUES, shapes=depth)
case("TensorScatterMin", lambda x, i, u: tf.tensor_scatter_nd_min(x, i, u), ROWS, PLACES, VALUES, shapes=depth)
case(
    "XlaDynamicUpdateSlice",
    lambda x, u, s: dynamic_update_slice(x, u, s),
    ROWS,
    3 * OTHERS[:2, :2],
    np.array([0, 2], "int32"),
    shapes=((None, 5), (None, 2), (2,)),
)
case(
    "XlaDynamicUpdateSlice",
    lambda x, u, s: dynamic_update_slice(x, u, s),
    ROWS,
    3 * OTHERS[:2, :2],
    np.array([2, 9], "int32"),
    name="clamped",
    shapes=((None, 5), (None, 2), (2,)),
)
case("StridedSlice", lambda x: x[:, None, ..., 1::2, None], MATRICES)
case("StridedSlice", lambda x: x[0, None, :, None, -1], MATRICES, name="shrunk")
case(
    "StridedSliceGrad",
    lambda y: RAW.StridedSliceGrad(shape=[4, 6], begin=[1, 2], end=[3, 0], strides=[1, 1], dy=y, end_mask=2),
    MATRICES[0, :2, :4],
    shapes=((2, 4),),
)
case("Roll", lambda x: tf.roll(x, [1, -2], [0, 2]), MATRICES)
case("Squeeze", lambda x: tf.squeeze(tf.transpose(x, [0, 2, 1]), [1]), MATRICES[..., :1])
case("MatrixDiagPartV3", lambda x: tf.linalg.diag_part(x), MATRICES)
case("MatrixDiagPartV3", lambda x: tf.linalg.diag_part(x), MATRICES.swapaxes(1, 2), name="high")
for offset in (-2, 0, 1):
    label = f"offset {offset}"
    if offset:
        case("MatrixDiagPartV3", lambda x, k=offset: tf.linalg.diag_part(x, k=k), MATRICES, name=label)
    case(
        "MatrixSetDiagV3",
        lambda x, y, k=offset: tf.linalg.set_diag(x, y[:, : 4 - max(-k, 0)], k=k),
        MATRICES,
        ROWS[:2],
        name=label,
    )
    # TensorFlow infers a wrong size where that of the diagonal is dynamic.
    case(
        "MatrixDiagV3",
        lambda x, k=offset: tf.linalg.diag(x, k=k, padding_value=2.0),
        ROWS,
        name=label,
        shapes=((None, 5 if offset else None),),
    )
case("MatrixDiagV3", lambda x: tf.linalg.diag(x, k=1, num_rows=7, num_cols=6), ROWS, name="sizes", shapes=((None, 5),))
case("MatrixSetDiagV3", lambda x, y: tf.linalg.set_diag(x, y), MATRICES, ROWS[:2, :4])
case("Cross", lambda x, y: tf.linalg.cross(x, y), ROWS[:, :3], OTHERS[:, :3], shapes=((None, 3), (None, 3)))
case("Unpack", lambda x: tf.unstack(x, axis=1), WHOLE.astype("int64"), shapes=((None, 5),))
case("BroadcastArgs", lambda x, y: tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(y)), ROWS, ROWS[:1])
case("BroadcastArgs", lambda x, y: tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(y)), ROWS, ROWS[0], name="ranks")


def _gradients(x, y):
    with tf.GradientTape() as tape:
        tape.watch((x, y))
        z = tf.square(x) * y
    return tape.gradient(z, (x, y))


case("Sum", _gradients, ROWS, OTHERS[:1], name="gradient")
case("Sum", lambda x: keras.ops.jvp(lambda y: tf.sin(y) * y, (x,), (x,))[1], ROWS, name="forward")
case("Sum", _gradients, ROWS[:, :1], OTHERS[0], name="gradient of ranks")
case("Select", lambda x, y: RAW.Select(condition=x > 0, x=1 / x, y=y), ROWS * np.float32([0, 1, 1, 1, 1]), OTHERS)
UNSURE = np.array([[np.inf, -np.inf, np.nan, 2, 0, -3]], "float32")
case("SelectV2", lambda x: tf.where(tf.math.is_finite(x), x, 0.0), UNSURE)
# The converter of TFLite makes constants finite.
case(
    "SelectV2",
    lambda x: tf.minimum(tf.where(x > 0, tf.where(x > 1, np.float32(np.inf), 2.0), x), 9.0),
    ROWS,
    name="constants",
)
case("SelectV2", lambda x: tf.where(x > 0, tf.math.log(x), -1.0), np.abs(ROWS) - 0.5, name="logarithm")
case(
    "SelectV2", lambda x: tf.where(tf.abs(x) > 0, tf.sin(x) / x, 1.0), ROWS * np.float32([0, 1, 1, 1, 1]), name="0 / 0"
)
case("SelectV2", lambda x: tf.where(x > 0, x @ tf.ones((5, 5)), x * 2), ROWS, name="product", shapes=((None, 5),))
case("Rsqrt", lambda x: tf.math.rsqrt(x) * 1.0, np.array([0, 1e-30, 0.3, 9e30], "float32"), name="zero", bound=3e-6)
SHARES = np.array([0, 0.1, 0.29, 0.5, 0.7, 1], "float32")


def _places(x):
    return (tf.cast(tf.shape(x)[0], tf.float64) - 1) * tf.cast(SHARES, tf.float64)


def _distances(x):
    return tf.cast(tf.cast(tf.shape(x)[0], tf.float64) - _places(x), tf.float32)


for count in (1, 2, 11, 101):
    rows = np.zeros((count, 1), "float32")
    for name, function in (("Ceil", tf.math.ceil), ("Floor", tf.math.floor), ("Round", tf.round)):
        case(name, lambda x, op=function: tf.cast(op(_places(x)), tf.int32), rows, name=f"float64 of {count}")
    case("Sub", _distances, rows, name=f"float64 of {count}")
case(
    "SparseSoftmaxCrossEntropyWithLogits",
    lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, 9 * x),
    ROWS,
    SEGMENTS,
)
case("GatherV2", lambda x, i: tf.gather(x, i), ROWS, SEGMENTS)
case("Identity", lambda x: tf.identity(x) + 1, ROWS)
case("Reshape", lambda x: tf.reshape(x, [-1, 3]), MATRICES)
case("Transpose", lambda x: tf.transpose(x, [2, 0, 1]), MATRICES)
case("MatMul", lambda x: tf.matmul(x, np.ones((5, 2), "float32") / 3), ROWS, shapes=((None, 5),))
case("BatchMatMul", lambda x: RAW.BatchMatMul(x=x, y=x, adj_y=True), MATRICES)
case("BatchMatMulV2", lambda x: tf.matmul(x, x, transpose_a=True), MATRICES)
case("BatchMatMulV3", lambda x: RAW.BatchMatMulV3(x=x, y=x, adj_y=True, Tout=tf.int32), BYTES)
case("Einsum", lambda x: tf.einsum("bij,bkj->bik", x, x), MATRICES)
case("Einsum", lambda x: tf.einsum("bii->b", x[:, :, :4]), MATRICES, name="trace")
case("Einsum", lambda x, y: tf.einsum("bii,bj->bij", x[:, :, :4], y), MATRICES, ROWS[:2], name="diagonal")


def _inner_choice(x):
    twice = 2 * x
    return tf.cond(tf.reduce_max(x) > 1, lambda: twice, lambda: twice + 1)


case("StatelessIf", lambda x: tf.cond(tf.reduce_sum(x) > -99, lambda: _inner_choice(x), lambda: -x), ROWS)
BRANCHES = [lambda x: x + 1, lambda x: 2 * x, lambda x: -x, lambda x: x * x]
for index in (-1, 0, 2, 3):
    case(
        "StatelessCase",
        lambda x, i: tf.switch_case(i, [lambda branch=branch: branch(x) for branch in BRANCHES]),
        ROWS,
        np.array(index, "int32"),
        name=f"of four, {index}",
    )
case(
    "StatelessCase",
    lambda x, i: tf.switch_case(i, [lambda: x, lambda: tf.switch_case(i, [lambda: x, lambda: 3 * x])]),
    ROWS,
    np.array(1, "int32"),
    name="in another",
)


def _step(carry, x):
    return carry / 2 + x, tf.tanh(carry)


case("StatelessWhile", lambda s, x: list(keras.ops.scan(_step, s, x)), ROWS[0], OTHERS, shapes=((5,), (None, 5)))
KERNEL = _RANDOM.normal(size=(3, 3, 3, 4)).astype("float32")
PICTURES = ((None, None, None, 3),)
case("Conv2D", lambda x: tf.nn.conv2d(x, KERNEL, 2, "SAME"), IMAGES, shapes=PICTURES)
case(
    "DepthwiseConv2dNative", lambda x: tf.nn.depthwise_conv2d(x, KERNEL, [1, 1, 1, 1], "VALID"), IMAGES, shapes=PICTURES
)
# Keras's grouped convolution is a function that XLA compiles.
GROUPED = _RANDOM.normal(size=(3, 3, 1, 6)).astype("float32")
case("Conv2D", lambda x: keras.ops.conv(x, GROUPED, 2, "same"), IMAGES, name="groups", shapes=PICTURES)
case(
    "Conv2DBackpropInput",
    lambda x: tf.nn.conv2d_transpose(x, KERNEL.swapaxes(2, 3), (2, 18, 16, 4), 2),
    IMAGES,
    shapes=((2, 9, 8, 3),),
)
case("Conv3D", lambda x: tf.nn.conv3d(x, KERNEL[None], [1] * 5, "VALID"), IMAGES[None], shapes=((None, 2, 9, 8, 3),))
case(
    "FusedBatchNormV3",
    lambda x: RAW.FusedBatchNormV3(
        x=x, scale=[1.0, 2, 3], offset=[0.0, 1, 2], mean=[0.1, 0.2, 0.3], variance=[1.0, 2, 3], is_training=False
    )[0],
    IMAGES,
    shapes=PICTURES,
)
case("AvgPool", lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), IMAGES, shapes=PICTURES)
for sizes, steps in ((2, 2), (3, 2), (2, 3), (1, 4)):
    case(
        "MaxPool",
        lambda x, options=(sizes, steps, "SAME"): tf.nn.max_pool2d(x, *options),
        IMAGES,
        name=f"{sizes} {steps}",
        shapes=PICTURES,
    )
VOLUMES = _RANDOM.normal(size=(2, 6, 7, 5, 2)).astype("float32")
for name, pool in (("AvgPool3D", tf.nn.avg_pool3d), ("MaxPool3D", tf.nn.max_pool3d)):
    for padding in ("SAME", "VALID"):
        for sizes, steps in (((2, 3, 2), (1, 2, 2)), ((2, 2, 2), (3, 2, 3))):
            case(
                name,
                lambda x, pool=pool, options=(sizes, steps, padding): pool(x, *options),
                VOLUMES,
                name=f"{padding} {sizes} {steps}",
                shapes=((None, None, None, None, 2),),
            )
case(
    "ResizeBilinear",
    lambda x: RAW.ResizeBilinear(images=x, size=[6, 13], half_pixel_centers=True),
    IMAGES,
    shapes=PICTURES,
)
case(
    "ResizeBicubic",
    lambda x: RAW.ResizeBicubic(images=x, size=[18, 16], half_pixel_centers=True),
    IMAGES,
    shapes=((None, 9, 8, 3),),
    refused=("tflite",),
)
for padding in ("SAME", "VALID"):
    for sizes, steps, rates in (
        ((3, 2), (2, 2), (1, 1)),
        ((3, 2), (1, 1), (2, 1)),
        ((4, 2), (4, 2), (1, 1)),
        ((1, 2), (3, 3), (1, 1)),
    ):
        options = {"sizes": [1, *sizes, 1], "strides": [1, *steps, 1], "rates": [1, *rates, 1], "padding": padding}
        case(
            "ExtractImagePatches",
            lambda x, options=options: tf.image.extract_patches(x, **options),
            IMAGES,
            name=f"{padding} {sizes} {steps} {rates}",
        )
COLORS = np.concatenate(
    [np.abs(np.tanh(IMAGES)), np.zeros((2, 1, 8, 3), "float32"), np.full((2, 1, 8, 3), 0.3, "float32")], 1
)
case("RGBToHSV", lambda x: tf.image.rgb_to_hsv(x), COLORS, shapes=PICTURES)
case("HSVToRGB", lambda x: tf.image.hsv_to_rgb(x), COLORS, shapes=PICTURES)
case("TensorListReserve", lambda x: tf.map_fn(lambda row: row * 2, x), ROWS, shapes=((3, 5),))
