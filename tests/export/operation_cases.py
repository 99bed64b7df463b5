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
CUBES = np.random.default_rng(4).normal(size=(4, 4, 4)).astype("float32")
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
for name, turned in {
    "of a transposed matrix": lambda x: tf.transpose(x, [0, 2, 1]),
    "of functions of it": lambda x: tf.nn.relu(tf.transpose(x, [0, 2, 1]) * 2.0) + 1.0,
    "of an Einsum": lambda x: tf.einsum("bij->bji", x),
}.items():
    case("Sub", lambda x, f=turned: 3.0 - f(x), MATRICES, name=name)
    case("Sub", lambda x, f=turned: 3.0 - (2.0 - f(x)), MATRICES, name=f"twice, {name}")
    case("RealDiv", lambda x, f=turned: 3.0 / f(x), MATRICES, name=name)
case("Sub", lambda x: 3 - tf.transpose(x), WHOLE, name="of transposed integers")
for steps in ([1, 3, 3, 1], [1, 3, 2, 1]):
    case(
        "BiasAdd",
        lambda x, s=steps: tf.nn.bias_add(
            tf.nn.conv2d_transpose(x, np.ones((2, 2, 2, 2), "float32"), tf.shape(x) * s, s, "VALID"), [1.0, -2.0]
        ),
        np.repeat(MATRICES[..., None], 2, -1),
        name=f"behind gaps of {steps}",
        shapes=((None, None, None, 2),),
    )
case("NextAfter", lambda x, y: tf.math.nextafter(x, y), ENDS[:8], ENDS[:8][::-1])
POLES = np.array(
    [1.5707964, 1.5707963, -1.5707964, 4.712389, 1.57, 3.1415927, 0.7853982, -0.0, 89.5354, 1000.5], "float32"
)
case("Tan", lambda x: tf.tan(x), POLES, name="near poles")
case("Tan", lambda x: tf.tan(x), np.array([8191.5, -8193.5, 99999.0, 1e6], "float32"), name="of many turns", bound=2e-5)
# A root, or a logarithm, of a negative number is NaN, and so is what follows from it.
for name, function in (("Cosh", tf.cosh), ("Exp", tf.exp), ("Expm1", tf.math.expm1), ("Selu", tf.nn.selu)):
    case(name, lambda x, of=function: of(tf.sqrt(x) * 0.5), ROWS, name="of a root")
    case(name, lambda x, of=function: of(tf.reduce_sum(tf.math.log(x), -1)), ROWS, name="of logarithms")
case("Sigmoid", lambda x: tf.math.log(tf.sigmoid(x)), -40 * POSITIVE / POSITIVE.max(), name="logarithm")
case("Sigmoid", lambda x, y: y / tf.sigmoid(x), 80 * SMALL, SMALL, name="divisor")
for mode in ("reflect", "symmetric"):
    case("MirrorPad", lambda x, of=mode: tf.pad(x, [[1, 1], [2, 0]], of), ROWS > 0, name=f"booleans, {mode}")
case("NextAfter", lambda x, y: tf.math.nextafter(x, y), ROWS, OTHERS, name="normal")
case("NextAfter", lambda x, y: keras.ops.nextafter(x, y), ROWS, OTHERS, name="in float64")
case("Less", lambda x: tf.cast(x > 0, tf.float32) < 0.0, ROWS, name="boolean")
for dtype in ("int32", "int64", "uint32"):
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    numbers = np.array([[least, most - 1, most, 16777216, 16777217, least + 1, 3, 0]], dtype)
    _binary("Less Greater", numbers, numbers.T, f"of large {dtype}")
case(
    "Less",
    lambda x: tf.while_loop(lambda i, y: i < tf.shape(y)[0], lambda i, y: (i + 1, y * 0.5), (0, x))[1],
    ROWS,
    name="of a counter",
)
large = _RANDOM.integers(-(2**31), 2**31, (3, 4, 40))
for dtype, numbers in {"int32": large, "int64": large << 31}.items():
    for axes in ([1], [0, 2], [0, 1, 2]):
        case(
            "Sum",
            lambda x, axes=axes: tf.reduce_sum(x, axes, keepdims=len(axes) == 2),
            numbers.astype(dtype),
            name=f"of large {dtype} over {axes}",
        )
        case(
            "Prod",
            lambda x, axes=axes: tf.reduce_prod(x, axes, keepdims=len(axes) == 2),
            numbers.astype(dtype) | 1,
            name=f"of large {dtype} over {axes}",
        )
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
beyond = np.array([[32, -1, 33, 40, -(2**31)], [64, 31, 2**31 - 1, -3, 0]], "int32")
_binary("LeftShift RightShift", BITS, beyond, "beyond the bits")
_binary("LeftShift RightShift", BITS.astype("int64"), 2 * beyond.astype("int64"), "int64 beyond the bits")
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
    _binary("LeftShift RightShift", pair[0], np.array([[7, 8, 9, 15], [16, 31, 32, 100]], dtype), f"{dtype}, all bits")
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
ZEROS = np.array([[0.0, 1.0, -1.0, 0.0, 7.5], [-0.0, 3.0, np.inf, -2.0, 4.0]], "float32")
_binary("FloorDiv", ZEROS, np.array([[0.0, 0.0, 0.0, 2.0, -2.0], [3.0, -0.0, 2.0, np.inf, 0.0]], "float32"), "by zero")
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
UNSORTED = np.random.default_rng(1).integers(-3, 4, (40, 5))
for name, side in (("LowerBound", "left"), ("UpperBound", "right")):
    case(name, lambda x, y, side=side: tf.searchsorted(x, y, side), np.sort(np.round(ROWS), 1), np.round(OTHERS))
    case(name, lambda x, y, side=side: tf.searchsorted(x, y, side, tf.int64), np.sort(WHOLE, 1), DIVISORS, name="int64")
    for dtype, count in (("float32", 5), ("int64", 4), ("int32", 1)):
        rows, values = UNSORTED[:, :count].astype(dtype), UNSORTED[::-1, :4].astype(dtype)
        shapes = ((None, count), (None, None))
        search = functools.partial(tf.searchsorted, side=side)
        case(name, lambda x, y, of=search: of(x, y), rows, values, name=f"not sorted {dtype}", shapes=shapes)
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
case(
    "DynamicStitch",
    lambda i, x, y: tf.dynamic_stitch([i, tf.constant([1, 3])], [x, y]),
    np.array([4, 0, 2, 3], "int32"),
    ROWS[[0, 1, 0, 2]],
    ROWS[:2],
    shapes=((4,), (4, None), (2, None)),
)
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


def _gradient_of_slice(take):
    """The gradient of a slice of a tensor of any size."""

    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.square(take(x)))
        return tape.gradient(total, x)

    return function


for name, take in {
    "a row": lambda x: x[:, 1],
    "the last column": lambda x: x[..., -1],
    "all but some": lambda x: x[:, 1:-1, :2],
    "a new axis": lambda x: x[None, ..., None, 2:],
    "more than there are": lambda x: x[1:9, :99],
}.items():
    case("StridedSliceGrad", _gradient_of_slice(take), MATRICES, name=name)
case("Roll", lambda x: tf.roll(x, [1, -2], [0, 2]), MATRICES)
case("Tile", lambda x: 2 * tf.tile(x, [1, 3, 1]) + 1, MATRICES, name="product")
case("Tile", lambda x: tf.tile(x, [2, 1, 2]) + tf.concat([x, x], 2)[:1], MATRICES, name="sum of pairs")
case("Roll", lambda x: tf.roll(x, [5, -9, 13], [0, 1, 2]), MATRICES, name="by more than there are")
case("Roll", lambda x: tf.roll(x, [1, -4, 0], [-1, -2, 0]), MATRICES, name="along the last axes, and not at all")
case("Squeeze", lambda x: tf.squeeze(tf.transpose(x, [0, 2, 1]), [1]), MATRICES[..., :1])
for band in ((0, -1), (-1, 0), (1, 2)):
    case("MatrixBandPart", lambda x, b=band: 1 / tf.linalg.band_part(x, *b), MATRICES, name=f"{band}")
    case("MatrixBandPart", lambda x, b=band: tf.linalg.band_part(1 / x, *b), MATRICES * 0, name=f"{band} of infinities")
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
ENLARGED = np.ones((2, 1, 1, 1), "float32")
UNSURE = np.array([[np.inf, -np.inf, np.nan, 2, 0, -3]], "float32")
for name in ("IsFinite", "IsInf"):
    function = getattr(RAW, name)
    case(
        name,
        lambda x, op=function: op(x=tf.nn.conv2d_transpose(x[..., None, None], ENLARGED, (1, 14, 1, 1), (2, 1)) + 1.0),
        np.array([[1, np.inf, 0, -np.inf, 2, -3, 0]], "float32"),
        name="of an enlarged image",
    )
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
case("TopKV2", lambda x: tuple(tf.math.top_k(x, 2)), ROWS, shapes=((None, 5),))
case("GatherV2", lambda x, i: tf.gather(x, i), ROWS, SEGMENTS)
case("Identity", lambda x: tf.identity(x) + 1, ROWS)
case("Reshape", lambda x: tf.reshape(x, [-1, 3]), MATRICES)
case("Transpose", lambda x: tf.transpose(x, [2, 0, 1]), MATRICES)
case("MatMul", lambda x: tf.matmul(x, np.ones((5, 2), "float32") / 3), ROWS, shapes=((None, 5),))
case("BatchMatMul", lambda x: RAW.BatchMatMul(x=x, y=x, adj_y=True), MATRICES)
case("BatchMatMulV2", lambda x: tf.matmul(x, x, transpose_a=True), MATRICES)
case("BatchMatMulV3", lambda x: RAW.BatchMatMulV3(x=x, y=x, adj_y=True, Tout=tf.int32), BYTES)
case("Einsum", lambda x: tf.einsum("bij,bkj->bik", x, x), MATRICES)
case("Einsum", lambda x, y: tf.einsum("bi,j->bij", x, y), ROWS, OTHERS[0], name="outer")
case("Einsum", lambda x, y: tf.einsum("bij,kb->jkbi", x, y), MATRICES, OTHERS[:, :2], name="outer of axes in any order")
case("Einsum", lambda x: tf.einsum("bii->b", x[:, :, :4]), MATRICES, name="trace")
for _equation in ("bij,bij->bi", "bij,bji->b", "ijk,kij->ki"):
    case("Einsum", lambda x, y, e=_equation: tf.einsum(e, x, y), CUBES, CUBES[::-1], name=_equation)
case("Einsum", lambda x, y: tf.einsum("bii,bj->bij", x[:, :, :4], y), MATRICES, ROWS[:2], name="diagonal")


def _inner_choice(x):
    twice = 2 * x
    return tf.cond(tf.reduce_max(x) > 1, lambda: twice, lambda: twice + 1)


case("StatelessIf", lambda x: tf.cond(tf.reduce_sum(x) > -99, lambda: _inner_choice(x), lambda: -x), ROWS)


def _one_of_one(x):
    twice = 2 * x
    return tf.cond(tf.reduce_max(x) > 1, lambda: twice, lambda: twice)


case("StatelessIf", _one_of_one, ROWS, name="whose branches return one tensor")
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


case("ReverseV2", lambda x: tf.reverse(x, [0, -1]), MATRICES)


for _name in ("Tanh", "Sigmoid", "Sqrt", "Rsqrt", "Reciprocal", "Inv"):
    _function = getattr(RAW, f"{_name}Grad")
    case(f"{_name}Grad", lambda y, dy, op=_function: op(y=y, dy=dy), POSITIVE[1:], ANY[1:])
for _name in ("Relu", "Relu6", "Softplus", "Softsign"):
    _function = getattr(RAW, f"{_name}Grad")
    case(f"{_name}Grad", lambda dy, x, op=_function: op(gradients=dy, features=x), ANY[::-1], ANY)
for _name in ("Elu", "Selu"):
    _function = getattr(RAW, f"{_name}Grad")
    case(f"{_name}Grad", lambda dy, y, op=_function: op(gradients=dy, outputs=y), ANY[::-1], SMALL)
case("LeakyReluGrad", lambda dy, x: RAW.LeakyReluGrad(gradients=dy, features=x, alpha=0.3), ANY[::-1], ANY)


def _compiled(function):
    """XLA computes convolutions whose channels come first on every processor, TensorFlow itself where it uses oneDNN."""
    return tf.function(function, jit_compile=True, autograph=False)


for _rank in (1, 2, 3):
    _array = np.random.default_rng(9).normal(size=(2, 3, 7, 6, 8)[: _rank + 2]).astype("float32")
    _kernel = np.random.default_rng(_rank).normal(size=(3,) * _rank + (3, 4)).astype("float32")
    case(
        "BatchToSpaceND",
        _compiled(lambda x, k=_kernel: keras.ops.conv(x, k, 1, "same", "channels_first", 2)),
        _array,
        shapes=((None, *_array.shape[1:]),),
        name=f"channels first, {_rank}D",
        bound=1e-5,
    )


_SERIES, _TURNED = (np.random.default_rng(9).normal(size=size).astype("float32") for size in ((2, 3, 10), (3, 4, 3)))
case(
    "Conv2DBackpropInput",
    _compiled(lambda x: keras.ops.conv_transpose(x, _TURNED, 2, "same", None, "channels_first")),
    _SERIES,
    shapes=((None, 3, 10),),
    name="channels first, 1D",
    bound=1e-5,
)


for _dtype in (tf.int32, tf.int64):
    case(
        "UniqueWithCounts",
        lambda x, dtype=_dtype: list(tf.unique_with_counts(x, dtype)),
        WHOLE[0] % 4,
        name=_dtype.name,
    )


def _backward(s, x):
    return list(keras.ops.scan(_step, s, x, reverse=True))


case("StatelessWhile", lambda s, x: list(keras.ops.scan(_step, s, x)), ROWS[0], OTHERS, shapes=((5,), (None, 5)))
case("StatelessWhile", _backward, ROWS[0], OTHERS, shapes=((5,), (None, 5)), name="backward")
case(
    "StatelessWhile",
    lambda s, x: _backward(s, keras.ops.stack([_backward(s, x)[1], x], 1)[:, 0]),
    ROWS[0],
    OTHERS,
    shapes=((5,), (3, 5)),
    name="backward in turn",
)
KERNEL = _RANDOM.normal(size=(3, 3, 3, 4)).astype("float32")
PICTURES = ((None, None, None, 3),)
case("Conv2D", lambda x: tf.nn.conv2d(x, KERNEL, 2, "SAME"), IMAGES, shapes=PICTURES)
case(
    "DepthwiseConv2dNative", lambda x: tf.nn.depthwise_conv2d(x, KERNEL, [1, 1, 1, 1], "VALID"), IMAGES, shapes=PICTURES
)
# Keras's grouped convolution is a function that XLA compiles.
GROUPED = _RANDOM.normal(size=(3, 3, 1, 6)).astype("float32")
case("Conv2D", lambda x: keras.ops.conv(x, GROUPED, 2, "same"), IMAGES, name="groups", shapes=PICTURES)
# What a branch knows of a kernel are the shapes of its arguments.
case(
    "Conv2D",
    lambda x, kernel: tf.cond(
        tf.size(x) > 0, lambda: tf.nn.conv2d(x, kernel, 2, "VALID"), lambda: x[..., :1] * kernel[0, 0, 0]
    ),
    IMAGES,
    KERNEL,
    name="in a branch",
    shapes=(*PICTURES, KERNEL.shape),
)
case(
    "Conv2D",
    lambda x: tf.nn.conv2d(x, KERNEL, [5, 2], "SAME", dilations=[1, 1]),
    IMAGES,
    name="elements left out",
    shapes=PICTURES,
)
VOLUMES = _RANDOM.normal(size=(2, 6, 7, 5, 2)).astype("float32")
ROOM = ((None, None, None, None, 2),)
SOLID = _RANDOM.normal(size=(2, 3, 2, 2, 3)).astype("float32")
for sizes, steps, padding, rates in (
    ((12, 17), 2, "VALID", 1),
    ((9, 16), 2, "SAME", 1),
    ((10, 15), 2, "SAME", 1),
    ((21, 27), 4, "VALID", 1),
    ((20, 25), 4, "SAME", 1),
    ((11, 14), 1, "VALID", 3),
    ((5, 8), 1, "SAME", 2),
):
    options = {"strides": [1, steps, steps, 1], "padding": padding, "dilations": [1, rates, rates, 1]}
    case(
        "Conv2DBackpropInput",
        (_compiled if rates > 1 else (lambda function: function))(
            lambda x, sizes=sizes, of=options: RAW.Conv2DBackpropInput(
                input_sizes=tf.stack([tf.shape(x)[0], *sizes, 4]), filter=KERNEL.swapaxes(2, 3), out_backprop=x, **of
            )
        ),
        IMAGES[:, :5, :8] if steps != 4 else IMAGES[:, :5, :7],
        name=f"{sizes} {padding} {steps} {rates}",
        shapes=((None, 5, 8 if steps != 4 else 7, 3),),
        bound=1e-5,
    )
for sizes, steps, padding in (((6, 7, 5), 1, "SAME"), ((18, 21, 15), 3, "VALID"), ((12, 14, 10), 2, "SAME")):
    case(
        "Conv3DBackpropInputV2",
        lambda x, sizes=sizes, of=(steps, padding): tf.nn.conv3d_transpose(
            x, SOLID.swapaxes(3, 4), tf.stack([tf.shape(x)[0], *sizes, 3]), *of
        ),
        VOLUMES,
        name=f"{sizes} {padding} {steps}",
        shapes=((None, 6, 7, 5, 2),),
        bound=1e-5,
    )
for padding in ("SAME", "VALID"):
    case(
        "BatchToSpaceND",
        lambda x, padding=padding: tf.nn.convolution(x, SOLID, padding=padding, dilations=2),
        VOLUMES,
        name=padding,
        shapes=ROOM,
        bound=1e-5,
    )
for array in (MATRICES, IMAGES[:, :6], VOLUMES[:, :6]):
    case(
        "BiasAdd",
        lambda x: tf.nn.bias_add(x, [1.0, 2, 3, 4, 5, 6][: x.shape[1]], data_format="NCHW"),
        array.swapaxes(1, -1)[:, :3] if array.ndim < 4 else array.swapaxes(1, -1),
        name=f"second axis, {array.ndim}",
        shapes=((None, array.shape[-1] if array.ndim > 3 else 3, *[None] * (array.ndim - 2)),),
    )
case("Conv3D", lambda x: tf.nn.conv3d(x, KERNEL[None], [1] * 5, "VALID"), IMAGES[None], shapes=((None, 2, 9, 8, 3),))
case(
    "Conv3D",
    lambda x: keras.ops.conv(x, GROUPED[None], 1, "same"),
    IMAGES[None],
    name="groups",
    shapes=((None, 2, 9, 8, 3),),
)
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
for name, pool in (("AvgPool3D", tf.nn.avg_pool3d), ("MaxPool3D", tf.nn.max_pool3d)):
    for padding in ("SAME", "VALID"):
        for sizes, steps in (((2, 3, 2), (1, 2, 2)), ((2, 2, 2), (3, 2, 3))):
            case(
                name,
                lambda x, pool=pool, options=(sizes, steps, padding): pool(x, *options),
                VOLUMES,
                name=f"{padding} {sizes} {steps}",
                shapes=ROOM,
            )
for size in ([18, 16], [13, 15], [5, 4], [9, 20]):
    centered = {"size": size, "half_pixel_centers": True}
    sized = {"name": str(size), "shapes": PICTURES}
    # The place of a result is rounded, by as many units as there are elements.
    case("ResizeBilinear", lambda x, of=centered: RAW.ResizeBilinear(images=x, **of), IMAGES, bound=1e-5, **sized)
    case("ResizeNearestNeighbor", lambda x, of=centered: RAW.ResizeNearestNeighbor(images=x, **of), IMAGES, **sized)
    case("ResizeBicubic", lambda x, of=centered: RAW.ResizeBicubic(images=x, **of), IMAGES, bound=1e-5, **sized)
    case("ResizeArea", lambda x, of=size: RAW.ResizeArea(images=x, size=of), IMAGES, bound=1e-5, **sized)
for size in ([12, 5], [3, 20], [40, 32]):
    for kind, shapes in {"dynamic": ((None, None, None, 3),), "known": ((None, 9, 8, 3),)}.items():
        case(
            "ResizeNearestNeighbor",
            lambda x, of=size: tf.image.resize(x, of, "nearest"),
            IMAGES if kind == "known" else _RANDOM.normal(size=(2, 33, 40, 3)).astype("float32"),
            name=f"{kind} to {size}",
            shapes=shapes,
        )
for kernel in ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"):
    for antialias in (False, True):
        options = {"size": [5, 13], "scale": [0.55, 1.7], "translation": [0.25, -1.5], "kernel_type": kernel}
        case(
            "ScaleAndTranslate",
            lambda x, of=options, smooth=antialias: RAW.ScaleAndTranslate(images=x, antialias=smooth, **of),
            IMAGES,
            name=f"{kernel} {antialias}",
            shapes=PICTURES,
            bound=2e-5,
        )
case(
    "ScaleAndTranslate",
    lambda x: tf.image.resize(x, [5, 13], "lanczos3", antialias=True),
    IMAGES,
    name="resized",
    shapes=PICTURES,
    bound=2e-5,
)
TRANSFORMS = np.array([[1, 0.1, -1, 0.2, 0.9, 0.5, 0.001, -0.002], [-1.3, 0, 9, 0.1, 2.5, -7, 0, 0.01]], "float32")
for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
    for interpolation in ("BILINEAR", "NEAREST"):
        options = {"interpolation": interpolation, "fill_mode": mode, "fill_value": 0.5, "output_shape": [7, 11]}
        case(
            "ImageProjectiveTransformV3",
            lambda x, t, of=options: RAW.ImageProjectiveTransformV3(images=x, transforms=t, **of),
            *(IMAGES, TRANSFORMS),
            name=f"{mode} {interpolation}",
            shapes=((None, None, None, 3), (None, 8)),
            bound=2e-5,
        )
case(
    "ImageProjectiveTransformV3",
    lambda x, t: RAW.ImageProjectiveTransformV3(
        images=x, transforms=t, fill_value=0.5, output_shape=tf.shape(x)[1:3], interpolation="BILINEAR"
    ),
    *(IMAGES, np.array([[0.5, 0, 1, 0, 0.25, 2, -0.25, 0]], "float32")),
    name="of all, with one infinite column",
    shapes=((None, None, None, 3), (1, 8)),
)
# A thousandth of a column is a pixel there: sums round as TensorFlow's do, or another pixel is read.
case(
    "ImageProjectiveTransformV3",
    lambda x, t: RAW.ImageProjectiveTransformV3(
        images=x, transforms=t, fill_value=0.5, output_shape=[7, 11], interpolation="BILINEAR", fill_mode="REFLECT"
    ),
    *(IMAGES, np.array([[0.7, -0.3, 0.4, 1.1, 0.2, -0.6, 0.3337, -0.4443]], "float32")),
    name="near the horizon",
    shapes=((None, None, None, 3), (1, 8)),
)
BOXES = _RANDOM.uniform(0, 1, (2, 20, 1, 4)).astype("float32")
BOXES[..., 2:] = BOXES[..., :2] + 0.4 * BOXES[..., 2:] - 0.1
SCORES = _RANDOM.uniform(0, 1, (2, 20, 3)).astype("float32")
LIMITS = {"max_output_size": 8, "iou_threshold": 0.3, "score_threshold": 0.2}
for name in ("NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5"):
    function = functools.partial(getattr(RAW, name), **LIMITS | ({"soft_nms_sigma": 0.0} if name[-1] == "5" else {}))
    arrays = (BOXES[0, :, 0], SCORES[0, :, 0])
    for is_padded in (False, True) if name[-1] != "3" else (False,):
        padding = {"pad_to_max_output_size": True} if is_padded else {}
        case(
            name,
            lambda x, y, op=function, padding=padding: tuple(
                each + 0 for each in tf.nest.flatten(op(boxes=x, scores=y, **padding))
            ),
            *arrays,
            name=str(padding),
            shapes=((None, 4), (None,)),
        )
case(
    "NonMaxSuppressionV3",
    lambda x, y: tf.image.non_max_suppression(x, y, 50, 0.5) + 0,
    *(BOXES[0, :, 0], SCORES[0, :, 0]),
    name="all",
    shapes=((None, 4), (None,)),
)
for options in ({}, {"pad_per_class": True}, {"clip_boxes": False, "iou_threshold": 0.1}, {"score_threshold": 0.999}):
    given = {
        "max_output_size_per_class": 4,
        "max_total_size": 10,
        "iou_threshold": 0.3,
        "score_threshold": 0.2,
        **options,
    }
    for boxes in (1, 3):
        case(
            "CombinedNonMaxSuppression",
            lambda x, y, of=given: tuple(RAW.CombinedNonMaxSuppression(boxes=x, scores=y, **of)),
            *(np.concatenate([BOXES * scale for scale in (1, 2, 0.7)[:boxes]], 2), SCORES),
            name=f"{options} {boxes}",
            shapes=((None, None, boxes, 4), (None, None, 3)),
        )
for name, draw in (
    ("StatelessRandomNormalV2", tf.random.stateless_normal),
    ("StatelessRandomUniformV2", tf.random.stateless_uniform),
    ("StatelessTruncatedNormalV2", tf.random.stateless_truncated_normal),
):
    case(name, lambda x, draw=draw: x + draw([5], [3, 7]), ROWS, shapes=((None, 5),))
PARTS = np.array([[0.1, 0.2, 0.7, 1], [0.9, 0, 0.3, 0.5], [-0.2, 0.4, 0.8, 1.3]], "float32")
for method in ("bilinear", "nearest"):
    for size in ([4, 5], [1, 3]):
        case(
            "CropAndResize",
            lambda x, y, n, of=(size, method): tf.image.crop_and_resize(x, y, n, *of, extrapolation_value=-2.0),
            *(IMAGES, PARTS, np.array([1, 0, 1], "int32")),
            name=f"{method} {size}",
            shapes=((None, None, None, 3), (None, 4), (None,)),
            bound=1e-5,
        )
LOGITS = np.repeat(_RANDOM.normal(size=(6, 3, 4)), 2, axis=0).astype("float32")
case(
    "CTCBeamSearchDecoder",
    lambda x, n: tf.nn.ctc_beam_search_decoder(x, n, beam_width=3)[1],
    *(LOGITS, np.array([12, 5, 1], "int32")),
    refused=("tflite", "onnx"),
)
for merged in (False, True):
    for blank in (0, -1):
        case(
            "CTCGreedyDecoder",
            lambda x, n, of={"merge_repeated": merged, "blank_index": blank}: tuple(
                RAW.CTCGreedyDecoder(inputs=x, sequence_length=n, **of)
            ),
            *(LOGITS, np.array([12, 5, 0], "int32")),
            name=f"{merged} {blank}",
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
case("AdjustContrastv2", lambda x: tf.image.adjust_contrast(x, 1.7), COLORS, shapes=PICTURES)
for step in (-0.7, 0.1):
    case("AdjustHue", lambda x, y=step: tf.image.adjust_hue(x, y), COLORS, name=str(step), shapes=PICTURES, bound=4e-6)
for factor in (0.4, 3.0):
    case(
        "AdjustSaturation",
        lambda x, y=factor: tf.image.adjust_saturation(x, y),
        COLORS,
        name=str(factor),
        shapes=PICTURES,
        bound=4e-6,
    )
case("HSVToRGB", lambda x: tf.image.hsv_to_rgb(x), COLORS, shapes=PICTURES)


def _filled(x):
    columns = tf.TensorArray(x.dtype, size=3)
    for column in (2, 0, 1, 2):
        columns = columns.write(column, x[:, column] * (column + 1.0))
    return columns.stack()


case("TensorListStack", _filled, ROWS, name="in a loop of Python")
case("TensorListReserve", lambda x: tf.map_fn(lambda row: row * 2, x), ROWS, shapes=((3, 5),))

# Matrices of sizes that are known, in batches of any.
SQUARES = _RANDOM.normal(size=(2, 3, 5, 5)).astype("float32")
DOMINANT = SQUARES + 4 * np.eye(5, dtype="float32")
SYMMETRIC = (DOMINANT @ DOMINANT.swapaxes(-1, -2)).astype("float32")
RIGHT = _RANDOM.normal(size=(2, 3, 5, 2)).astype("float32")
case("Cholesky", lambda x: tf.linalg.cholesky(x), SYMMETRIC, bound=4e-6)


def _lower(x):
    """The factor, 9 where it is NaN: TensorFlow leaves what is above the diagonal unset where there is none."""
    factor = tf.linalg.band_part(RAW.Cholesky(input=x), -1, 0)
    return tf.where(tf.math.is_nan(factor), 9.0, factor)


case(
    "Cholesky",
    _lower,
    np.array([[[2, 1], [1, 3]], [[1, 2], [2, 1]]], "float32"),
    name="failed",
)
for adjoint in (False, True):
    name = f"adjoint={adjoint}"
    case("MatrixInverse", lambda x, a=adjoint: tf.linalg.inv(x, a), DOMINANT, name=name, bound=4e-6)
    case("MatrixSolve", lambda x, y, a=adjoint: tf.linalg.solve(x, y, a), DOMINANT, RIGHT, name=name, bound=4e-6)
    for lower in (False, True):
        case(
            "MatrixTriangularSolve",
            lambda x, y, o=(lower, adjoint): tf.linalg.triangular_solve(x, y, *o),
            DOMINANT,
            RIGHT,
            name=f"{lower} {adjoint}",
        )
case(
    "MatrixTriangularSolve",
    lambda x, y: tf.linalg.triangular_solve(x, y),
    DOMINANT[0],
    RIGHT[0, 0],
    name="broadcast",
    shapes=((None, 5, 5), (5, 2)),
)
case("MatrixDeterminant", lambda x: tf.linalg.det(x), SQUARES, bound=1e-5)
case("MatrixDeterminant", lambda x: tf.linalg.det(x), np.zeros((2, 3, 3), "float32"), name="singular")
case("LogMatrixDeterminant", lambda x: RAW.LogMatrixDeterminant(input=x), SQUARES)
case("Lu", lambda x: RAW.Lu(input=x), SQUARES, bound=1e-5)
case("Lu", lambda x: RAW.Lu(input=x, output_idx_type=tf.int64), SQUARES[0, 0], name="int64", bound=1e-5)
case("InvertPermutation", lambda x: tf.math.invert_permutation(x), np.array([2, 0, 3, 1], "int32"))
case("InvertPermutation", lambda x: tf.math.invert_permutation(x), np.array([2, 0, 3, 1], "int64"), name="int64")
TALL, WIDE = MATRICES.swapaxes(1, 2), MATRICES
DEPENDENT = np.concatenate([TALL, TALL[:, :, :1]], 2)


def _svd(x, full):
    """What does not depend on the signs of the vectors: the values, the matrix and the product of the bases."""
    s, u, v = tf.linalg.svd(x, full)
    count = min(x.shape[-2:])
    product = tf.matmul(u[..., :count] * s[..., None, :], v[..., :count], transpose_b=True)
    return s, product, tf.matmul(u, u, transpose_a=True), tf.matmul(v, v, transpose_a=True)


def _eigh(x):
    values, vectors = tf.linalg.eigh(x)
    product = tf.matmul(vectors * values[..., None, :], vectors, transpose_b=True)
    return values, product, tf.matmul(vectors, vectors, transpose_a=True)


for label, array in (("tall", TALL), ("wide", WIDE), ("one column", TALL[..., :1])):
    shapes = ((None, *array.shape[1:]),)
    for full in (False, True):
        case("Qr", lambda x, f=full: tf.linalg.qr(x, f), array, name=f"{label} {full}", shapes=shapes)
        case("Svd", lambda x, f=full: _svd(x, f), array, name=f"{label} {full}", shapes=shapes, bound=4e-6)
case("Qr", lambda x: tf.linalg.qr(x), np.triu(SYMMETRIC[0]), name="triangular", shapes=((None, 5, 5),), bound=4e-6)
for label, scale in (("tiny", np.float32(1e-25)), ("huge", np.float32(1e25))):
    for name, function, array in (
        ("Svd", lambda x, s=scale: tf.linalg.svd(x, compute_uv=False) / s, TALL),
        ("SelfAdjointEigV2", lambda x, s=scale: tf.linalg.eigvalsh(x) / s, SYMMETRIC),
    ):
        case(name, function, array * scale, name=label, shapes=((None, *array.shape[1:]),), bound=4e-6)
case("Svd", lambda x: tf.linalg.svd(x, compute_uv=False), TALL, name="values", shapes=((None, 6, 4),))
case("Svd", lambda x: _svd(x, True), DEPENDENT, name="dependent", shapes=((None, 6, 5),), bound=4e-6)
case("Svd", lambda x: tf.linalg.pinv(x), WIDE, name="pinv", shapes=((None, 4, 6),), bound=4e-6)
for count in (1, 4, 5):
    array = (SQUARES + SQUARES.swapaxes(2, 3))[..., :count, :count]
    shapes = ((None, 3, count, count),)
    case("SelfAdjointEigV2", lambda x: _eigh(x), array, name=str(count), shapes=shapes, bound=8e-6)
case(
    "SelfAdjointEigV2",
    lambda x: tf.linalg.eigvalsh(x),
    np.tril(SYMMETRIC / 16) + np.triu(SQUARES, 1),
    name="values",
    shapes=((None, 3, 5, 5),),
    bound=8e-6,
)
EQUAL = np.diag([3.0, -3, 3, 0]).astype("float32")[None]
case("SelfAdjointEigV2", lambda x: _eigh(x), EQUAL, name="equal", shapes=((None, 4, 4),))
case("MatrixSolve", lambda x: tf.linalg.expm(x), SQUARES[0], name="exponential", shapes=((None, 5, 5),), bound=4e-6)
case("Eig", lambda x: tf.math.real(tf.linalg.eigvals(x)), SYMMETRIC, refused=("tflite", "onnx"))


def doubled_by_jax(x):
    from jax.experimental import jax2tf

    return jax2tf.convert(lambda x: 2 * x, polymorphic_shapes=["(rows, 5)"], with_gradient=False)(x)


case("Empty", lambda x: RAW.Empty(shape=tf.shape(x), dtype=tf.float32, init=True) + x, ROWS)
case(
    "Empty",
    lambda x: keras.ops.ctc_loss(np.array([[1, 2, 2], [4, 3, 0]]), x, np.array([3, 2]), np.array([8, 7])),
    np.random.default_rng(7).normal(size=(2, 8, 5)).astype("float32"),
    name="loss of CTC",
    shapes=((2, None, 5),),
)
case("XlaCallModule", doubled_by_jax, ROWS, shapes=((None, 5),), refused=("onnx",))


def _pair(z):
    return tf.math.real(z), tf.math.imag(z)


for name, transform in (
    ("FFT", tf.signal.fft),
    ("IFFT", tf.signal.ifft),
    ("FFT2D", tf.signal.fft2d),
    ("IFFT2D", tf.signal.ifft2d),
):
    for sizes in ((3, 8), (5, 1), (4, 7), (2, 96), (2, 134)):
        pair = _RANDOM.normal(size=(2, 2, *sizes)).astype("float32")
        case(
            name,
            lambda x, y, of=transform: _pair(of(tf.complex(x, y))),
            *pair,
            name=str(sizes),
            shapes=((None, *sizes),) * 2,
            bound=1e-5,
        )
for length in (None, 8, 12, 7, 600):
    given = None if length is None else [length]
    case(
        "RFFT",
        lambda x, n=given: _pair(tf.signal.rfft(x, n)),
        _RANDOM.normal(size=(3, 16)).astype("float32"),
        name=str(length),
        shapes=((None, 16),),
        bound=4e-6,
    )
    case(
        "IRFFT",
        lambda x, y, n=given: tf.signal.irfft(tf.complex(x, y), n),
        *_RANDOM.normal(size=(2, 3, 9)).astype("float32"),
        name=str(length),
        shapes=((None, 9),) * 2,
    )
PLANE = _RANDOM.normal(size=(2, 3, 6, 8)).astype("float32")
for lengths in ([4, 8], [6, 12], [7, 5]):
    shapes = ((None, 6, 8),) * 2
    case(
        "RFFT2D",
        lambda x, n=lengths: _pair(tf.signal.rfft2d(x, n)),
        PLANE[0],
        name=str(lengths),
        shapes=shapes[:1],
        bound=1e-5,
    )
    case(
        "IRFFT2D",
        lambda x, y, n=lengths: tf.signal.irfft2d(tf.complex(x, y), n),
        *PLANE,
        name=str(lengths),
        shapes=shapes,
    )
PAIRED = (ROWS[0] + np.float32(2), OTHERS[0], ROWS[1], OTHERS[1])


def _complex_case(operation, function):
    """A function of two complex vectors, of the parts of each."""

    def of_parts(a, b, c, d):
        return _pair(function(tf.complex(a, b), tf.complex(c, d)))

    case(operation, of_parts, *PAIRED, name="complex")


for operation, function in {
    "AddV2": lambda x, y: x + y,
    "BatchMatMulV2": lambda x, y: tf.linalg.matmul(x[None, :, None], y[None, :, None], adjoint_a=True),
    "BroadcastTo": lambda x, y: tf.broadcast_to(x, [2, 5]),
    "Cast": lambda x, y: tf.cast(tf.math.real(x), tf.complex64) * y,
    "ConcatV2": lambda x, y: tf.concat([x, y], 0),
    "Conj": lambda x, y: tf.math.conj(x),
    "Const": lambda x, y: x * (2 - 1j),
    "Exp": lambda x, y: tf.exp(y),
    "ExpandDims": lambda x, y: tf.expand_dims(x, 1),
    "GatherV2": lambda x, y: tf.gather(x, [2, 0]),
    "Mean": lambda x, y: tf.reduce_mean(x * y),
    "Mul": lambda x, y: x * y,
    "Neg": lambda x, y: -x,
    "Pack": lambda x, y: tf.stack([x, y], 1),
    "Pad": lambda x, y: tf.pad(x, [[1, 2]]),
    "RealDiv": lambda x, y: y / x,
    "Reshape": lambda x, y: tf.reshape(x, [5, 1]),
    "ReverseV2": lambda x, y: tf.reverse(x, [0]),
    "Roll": lambda x, y: tf.roll(x, 2, 0),
    "SelectV2": lambda x, y: tf.where(tf.math.real(x) > 2, x, y),
    "Shape": lambda x, y: x * tf.cast(tf.shape(y)[0], tf.complex64),
    "Slice": lambda x, y: tf.slice(x, [1], [3]),
    "Square": lambda x, y: tf.square(x),
    "Squeeze": lambda x, y: tf.squeeze(x[None], 0),
    "StridedSlice": lambda x, y: x[::2] * y[0],
    "Sub": lambda x, y: x - y,
    "Sum": lambda x, y: tf.reduce_sum(x * y, keepdims=True),
    "Tile": lambda x, y: tf.tile(x, [2]),
    "Transpose": lambda x, y: tf.transpose(tf.stack([x, y])),
    "ZerosLike": lambda x, y: tf.zeros_like(x) + y,
    "Real": lambda x, y: tf.identity(x),
    "Imag": lambda x, y: x,
}.items():
    _complex_case(operation, function)
LENGTHS = np.array([3.0, -4, 0, 1e-30, 1e30, 0], "float32"), np.array([4.0, -3, 0, 2e-30, -1e30, -2], "float32")
case("ComplexAbs", lambda x, y: tf.abs(tf.complex(x, y)), *LENGTHS)
case("Angle", lambda x, y: tf.math.angle(tf.complex(x, y)), *LENGTHS)

# Numbers of all regions: what the files compute of them is on the page of conformance.
LARGEST = np.finfo("float32").max
UNUSUAL = np.array([0, -0.0, 1, -2.5, 0.5, 3e9, -3e9, LARGEST, -LARGEST, np.inf, -np.inf, np.nan], "float32")
# Quotients of these are no smaller than the normal numbers, which TensorFlow takes for 0 on a CPU.
MODERATE = UNUSUAL[np.abs(UNUSUAL) != LARGEST]
FIRST, SECOND = (each.reshape(-1) for each in np.meshgrid(MODERATE, MODERATE))
for operation, compare in {
    "Equal": tf.equal,
    "NotEqual": tf.not_equal,
    "Less": tf.less,
    "LessEqual": tf.less_equal,
    "Greater": tf.greater,
    "GreaterEqual": tf.greater_equal,
}.items():
    for limit in (np.inf, -np.inf):
        infinity = np.float32(limit)
        case(operation, lambda x, of=compare, y=infinity: of(x, y), UNUSUAL, name=f"with {limit}")
        case(operation, lambda x, of=compare, y=infinity: of(np.full([2, 1], y), x), UNUSUAL, name=f"of {limit}")
case("FloorDiv", lambda x, y: x // y, FIRST, SECOND, name="unusual")
case("Acosh", lambda x: tf.acosh(x), MODERATE, name="unusual")
case("Bucketize", lambda x: RAW.Bucketize(input=x, boundaries=[-1.0, 0.0, 2.5]), UNUSUAL, name="unusual")
case("Xlog1py", lambda x, y: tf.math.xlog1py(x, y), ROWS, 1e-6 * np.abs(OTHERS), name="near 0")
case("Xlog1py", lambda x, y: 1e6 * tf.math.xlog1py(x, y), ROWS, 1e-6 * np.abs(OTHERS), name="times a million")
case("NextAfter", lambda x, y: tf.math.nextafter(x, y), FIRST, SECOND, name="unusual")
case("Atan2", lambda y, x: tf.atan2(y, x), FIRST, SECOND, name="unusual")


def _hidden(x):
    """The numbers themselves, which no converter knows to be those of an input."""
    return tf.reverse(tf.reverse(x, [0]), [0])


case("SelectV2", lambda x, y: tf.where(_hidden(x) > 1, _hidden(x), _hidden(y)), FIRST, SECOND, name="unusual")
case("SelectV2", lambda x: tf.where(_hidden(x) > 0, _hidden(x), 0.0), UNUSUAL, name="unusual or 0")
case("SelectV2", lambda x: keras.ops.nan_to_num(_hidden(x), 1, 2, 3), UNUSUAL, name="nan_to_num")
for function in (keras.ops.isposinf, keras.ops.isneginf):
    case("Equal", lambda x, of=function: of(x), UNUSUAL, name=function.__name__)
case("IsInf", lambda x: tf.math.is_inf(x), UNUSUAL, name="unusual")
for operation, compare in {"Less": tf.less, "LessEqual": tf.less_equal, "Greater": tf.greater}.items():
    case(operation, lambda x, of=compare: tf.logical_not(of(x, 0.5)), UNUSUAL, name="not")
FINITE = np.array([[[0, 0], [3, 4]], [[1e-30, 0], [-5, 12]]], "float32")
case("Rsqrt", lambda x: keras.ops.normalize(x, axis=-1, order=2), FINITE, name="normalize")
case("Rsqrt", lambda x: keras.layers.UnitNormalization()(x), FINITE, name="unit", shapes=((None, None, 2),))
for dtype in ("int32", "int64"):
    ends = np.iinfo(dtype)
    extremes = np.array([ends.min, ends.min + 1, -1, 0, 1, 5, ends.max], dtype)
    first, second = (each.reshape(-1) for each in np.meshgrid(extremes, extremes[[0, 1, 4, 5, 6]]))
    case("FloorDiv", lambda x, y: x // y, first, second, name=f"ends of {dtype}")
    for divisor in (3, -3):
        case("FloorDiv", lambda x, y=divisor: x // y, extremes, name=f"ends of {dtype} by {divisor}")
        case("FloorMod", lambda x, y=divisor: x % y, extremes, name=f"ends of {dtype} by {divisor}")
    powers = np.array([100, -100, 46341, -3, 7, ends.max, 2], dtype), np.array([7, 7, 2, 3, 0, 1, 9], dtype)
    case("Pow", lambda x, y: x**y, *powers, name=f"large {dtype}")
    for exponent in (0, 1, 2, 5, 6):
        case("Pow", lambda x, y=exponent: x**y, powers[0], name=f"large {dtype}, {exponent}")
    unsorted = np.array([[2**24 + 1, 2**24, 2**24 + 3], [ends.min, ends.max, ends.min + 1]], dtype)
    case("TopKV2", lambda x: tuple(tf.math.top_k(x, 2)), unsorted, name=dtype)
    case("TopKV2", lambda x: keras.ops.sort(x), unsorted, name=f"sorted {dtype}")
    case("TopKV2", lambda x: keras.ops.argsort(x, 0), unsorted, name=f"places {dtype}")
    case(
        "UnsortedSegmentProd",
        lambda x, y: RAW.UnsortedSegmentProd(data=x, segment_ids=y, num_segments=4),
        WHOLE.astype(dtype),
        np.array([3, -1], dtype),
        name=dtype,
        refused=("tflite",) if dtype == "int64" else (),
    )
for dtype in ("int8", "uint8"):
    case("Mean", lambda x: tf.reduce_mean(x, 1), NARROW.astype(dtype), name=dtype)
    case(
        "TruncateDiv", lambda x, y: tf.truncatediv(x, y), NARROW.astype(dtype), NARROW_OTHERS.astype(dtype), name=dtype
    )
for dtype in ("int8", "uint8", "int32", "int64"):
    case("Relu", lambda x: tf.nn.relu(x), NARROW.astype(dtype), name=dtype)
    case("Relu6", lambda x: tf.nn.relu6(x), NARROW.astype(dtype), name=dtype)
case("Square", lambda x: tf.square(x), NARROW.astype("uint8"), name="uint8")
case("OneHot", lambda x: tf.one_hot(x, 5), np.array([2**40 + 1, -(2**63), -1, 4, 5], "int64"), name="wide")
case("OneHot", lambda x: tf.one_hot(x, 5, 2.0, axis=0), np.array([0, 4, 5, 255], "uint8"), name="uint8")
FLAGS = np.array([[False, True, True], [True, False, True]])
case("ArgMax", lambda x: tf.argmax(x, 1), FLAGS, name="bool")
case("ArgMin", lambda x: tf.argmin(x, 1), FLAGS, name="bool")
for dtype in ("int8", "uint8", "int16", "int32", "int64"):
    case("Cast", lambda x, to=dtype: tf.cast(x, to), UNUSUAL, name=f"to {dtype}")
    case("Cast", lambda x, to=dtype: tf.cast(tf.round(x), to), 100 * ROWS, name=f"rounded, to {dtype}")
case(
    "UnsortedSegmentProd",
    lambda x: RAW.UnsortedSegmentProd(data=x, segment_ids=[1, -1, 1], num_segments=3),
    ROWS,
    name="outside",
    shapes=((3, None),),
)
case("StridedSlice", lambda x: x[:, :0] + 1.0, ROWS, name="empty")
case("StridedSlice", lambda x: tf.concat([x[:, None, :0], x[:, None]], 2), ROWS, name="empty part")
case("StridedSlice", lambda x: tf.reduce_sum(x[:, :0], 1), ROWS, name="sum of none", shapes=((None, 5),))
case("StridedSlice", lambda x: x[1:] - x[:-1], ROWS[:1], name="of one")
# The first case of each operation.
FIRST = [*{key[0]: key for key in reversed(CASES)}.values()]
