"""What `operator_conformance.py` compares: numbers of all regions, and functions of one operation each."""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

# Numbers by what is unusual about them, the usual ones first.
FLOATS = {
    "ordinary": [0.3, 0.5, 1, 2.5, 3],
    "negative": [-0.3, -0.5, -1, -2.5, -3],
    "zero": [0.0],
    "-0": [-0.0],
    "tiny": [1e-30, -1e-30],
    "large": [16777217.0, 3e9, -3e9, 1e30, -1e30],
    "end of the type": [np.finfo("float32").max, np.finfo("float32").min],
    "infinity": [np.inf, -np.inf],
    "NaN": [np.nan],
    "denormal": [1e-40, -1e-40],
}
TYPES = ("float32", "int32", "int64", "uint8", "int8", "int16", "bool")


def regions(dtype):
    """Dict of region to its numbers of a type."""
    if dtype == "float32":
        return FLOATS
    if dtype == "bool":
        return {"ordinary": [False, True]}
    ends = np.iinfo(dtype)
    signed, wide = ends.min < 0, ends.bits > 16
    return {
        "ordinary": [1, 2, 3, 7, 100],
        "negative": [-1, -2, -3, -7, -100] if signed else [],
        "zero": [0],
        "large": [16777217, -16777217, 10**9, *([2**40 + 1, 2**53 + 1, -(2**53) - 1] if ends.bits > 32 else [])]
        if wide
        else [],
        "end of the type": [ends.max, ends.max - 1, *([ends.min, ends.min + 1] if signed else [])],
    }


def numbers(dtype):
    """All numbers of a type, and the region of each."""
    pairs = [(name, each) for name, values in regions(dtype).items() for each in values]
    return np.array([each for _, each in pairs], dtype), [name for name, _ in pairs]


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of vectors whose graph contains an operation.

    Args:
        operation: name of the operation in TensorFlow.
        function: of `count` vectors.
        count: 1 or 2; for two it meets all pairs of numbers.
        name: what is said besides the operation.
        is_defined: of the arrays, where TensorFlow's result is defined; everywhere by default.
        bound: what is rounding, as a share of each result.
        absolute: what is rounding near 0.
        types: those that are compared, as far as TensorFlow has the operation of them.
        region: what is unusual, where that is not the numbers.
    """

    operation: str
    function: Callable
    count: int = 1
    name: str = ""
    is_defined: Callable | None = None
    bound: float = 2e-5
    absolute: float = 2e-38
    types: tuple[str, ...] = TYPES
    region: str = ""


FUNCTIONS: list[Function] = []


def add(operation, function, *arguments, **options):
    FUNCTIONS.append(Function(operation, function, *arguments, **options))


def _raw(name, *others):
    """A function of an operation's operands by position; those behind the arrays are the same always."""
    operation = getattr(tf.raw_ops, name)
    names = list(inspect.signature(operation).parameters)
    names = names[: len(op_def_registry.get(name).input_arg)]
    return lambda *operands: operation(**dict(zip(names, (*operands, *map(tf.constant, others)), strict=True)))


def _add_raw(names, count=1, **options):
    for each in names.split():
        add(each, _raw(each), count, **options)


def _is_divisible(x, y):
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            size = np.abs(x / y)
        return ~((size > 0) & (size < np.finfo("float32").smallest_normal))  # Which TensorFlow takes for 0 or not.
    overflows = (y == -1) & (x == np.iinfo(x.dtype).min) if x.dtype.kind == "i" else np.zeros(x.shape, bool)
    return (y != 0) & ~overflows


def _is_shift(x, y):
    return (y >= 0) & (y < 8 * x.dtype.itemsize)


def _is_power(x, y):
    """Whether a power of integers is defined, and its exponent small."""
    return np.ones(x.shape, bool) if x.dtype.kind == "f" else (y >= 0) & (y < 70)


_SMALL = {"absolute": 2e-7}
_add_raw("Abs Neg Sign Square Floor Ceil Rint IsInf IsNan IsFinite Relu Relu6 Invert OnesLike ZerosLike Identity")
_add_raw(
    "Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Softplus Softsign Elu Selu Asin Acos Asinh Acosh Atanh Sinh Cosh"
)
_add_raw("Sin Cos Tan Tanh Atan Erf Erfinv Ndtri Sigmoid Erfc BesselI0 BesselI0e LogicalNot", **_SMALL)
_add_raw("AddV2 Sub Mul MulNoNan DivNoNan SquaredDifference Maximum Minimum Xlogy Xdivy Xlog1py NextAfter Atan2", 2)
_add_raw("Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr", 2)
_add_raw("BitwiseAnd BitwiseOr BitwiseXor", 2)
_add_raw("RealDiv FloorDiv FloorMod TruncateDiv Mod TruncateMod", 2, is_defined=_is_divisible)
_add_raw("LeftShift RightShift", 2, is_defined=_is_shift)
_add_raw("Pow", 2, is_defined=_is_power)
add("Round", _raw("Round"), types=("float32",))
add("LeakyRelu", lambda x: tf.nn.leaky_relu(x, 0.3))
for _divisor in (3, -3, 2, 8):
    add("FloorDiv", lambda x, y=_divisor: x // y, name=f"by {_divisor}", types=TYPES[:6] if _divisor > 0 else TYPES[:3])
    add("FloorMod", lambda x, y=_divisor: x % y, name=f"by {_divisor}", types=TYPES[:6] if _divisor > 0 else TYPES[:3])
for _type in TYPES:
    add("Cast", lambda x, y=_type: tf.cast(x, y), name=f"to {_type}")
add("Equal", lambda x: tf.equal(x, x), name="x == x")
for _number in (np.inf, -np.inf):
    for _operation, _function in (("Equal", tf.equal), ("Less", tf.less), ("GreaterEqual", tf.greater_equal)):
        add(_operation, lambda x, f=_function, y=_number: f(x, y), name=str(_number), types=("float32",))
    add("Maximum", lambda x, y=_number: tf.maximum(x, y), name=str(_number), types=("float32",))
    add("AddV2", lambda x, y=_number: x + y, name=str(_number), types=("float32",))
    add("SelectV2", lambda x, y=_number: tf.where(x > 1, x, y), name=str(_number), types=("float32",))


def _hidden(x):
    """The numbers themselves, which no converter knows to be an input's."""
    return tf.reverse(tf.reverse(x, [0]), [0])


add("SelectV2", lambda x, y: tf.where(x > tf.cast(1, x.dtype), x, y), 2)
add("SelectV2", lambda x, y: tf.where(_hidden(x) > tf.cast(1, x.dtype), _hidden(x), _hidden(y)), 2, name="computed")
add("SelectV2", lambda x: tf.where(tf.math.is_finite(x), x, 0.0), name="of finite ones")
add("SelectV2", lambda x: tf.where(_hidden(x) > 0, _hidden(x), 0.0), name="or 0")
add("SelectV2", lambda x: keras.ops.nan_to_num(x), name="nan_to_num", types=("float32",))
add("SelectV2", lambda x: keras.ops.nan_to_num(_hidden(x), 1, 2, 3), name="nan_to_num of numbers", types=("float32",))
add("Minimum", lambda x: keras.ops.clip(x, -2, 2), name="clip", types=TYPES[:3])
add("Minimum", lambda x: keras.ops.clip(x, 0, np.inf), name="clip to infinity", types=("float32",))
add("ClipByValue", lambda x: tf.clip_by_value(x, tf.cast(1, x.dtype), tf.cast(2, x.dtype)))
for _depth in (1, 5):
    add("OneHot", lambda x, d=_depth: tf.one_hot(x, d), name=str(_depth), types=TYPES[1:4])
add("OneHot", lambda x: keras.ops.one_hot(x, 5, axis=0), name="of Keras", types=TYPES[1:4])
add("Bucketize", lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 2.5]))
for _function in ("sign", "isinf", "isposinf", "isneginf", "signbit", "reciprocal", "exp2", "log2", "log10", "cbrt"):
    add(f"ops.{_function}", getattr(keras.ops, _function, tf.identity), types=TYPES[:2])
for _function in ("logaddexp", "arctan2", "hypot", "heaviside", "copysign", "floor_divide", "mod"):
    if hasattr(keras.ops, _function):
        add(f"ops.{_function}", getattr(keras.ops, _function), 2, is_defined=_is_divisible, types=TYPES[:2])


def _of_empty(operation):
    """Reduces rows of no number."""
    reduce = _raw(operation, [1])
    return lambda x: reduce(x[:, :0])


def _of_pairs(name, function, operation, **options):
    """A function of rows of two numbers."""
    add(operation, lambda x, y: function(tf.stack([x, y], 1)), 2, name=name, **options)


for _name in ("Sum", "Prod", "Max", "Min", "Mean", "EuclideanNorm"):
    _of_pairs("", _raw(_name, [1]), _name)
    _of_pairs("", _of_empty(_name), _name, types=TYPES[:3], region="empty axis")
for _name in ("All", "Any"):
    _of_pairs("", _of_empty(_name), _name, types=("bool",), region="empty axis")
    _of_pairs("", _raw(_name, [1]), _name, types=("bool",))
for _name in ("ArgMax", "ArgMin"):
    _of_pairs("", _raw(_name, 1), _name)
    _of_pairs("of Keras", functools.partial(getattr(keras.ops, _name.lower()), axis=1), _name, types=TYPES[:3])
for _name in ("Softmax", "LogSoftmax"):
    _of_pairs("", _raw(_name), _name, absolute=2e-7)
_of_pairs("", lambda x: tf.cumsum(x, 1), "Cumsum")
_of_pairs("", lambda x: tf.math.cumprod(x, 1), "Cumprod")
_of_pairs("", lambda x: tf.math.top_k(x, 2).values, "TopKV2")
_of_pairs("indices", lambda x: tf.math.top_k(x, 2).indices, "TopKV2")
_of_pairs("sort", keras.ops.sort, "TopKV2")
_of_pairs("argsort", keras.ops.argsort, "TopKV2")
_of_pairs("mean", lambda x: keras.ops.mean(x, 1), "ops.mean")
_of_pairs("", lambda x: keras.ops.logsumexp(x, 1), "ops.logsumexp", types=("float32",))
_of_pairs("", lambda x: keras.ops.std(x, 1), "ops.std", types=("float32",))
_of_pairs("", lambda x: keras.ops.median(x, 1), "ops.median", types=("float32",))
for _order in (1, 2, 3):
    _of_pairs(
        "", lambda x, o=_order: keras.ops.normalize(x, 1, o), f"ops.normalize(order={_order})", types=("float32",)
    )
_of_pairs("", lambda x: keras.layers.UnitNormalization()(x), "UnitNormalization", types=("float32",))
_of_pairs("", lambda x: tf.math.l2_normalize(x, 1), "l2_normalize", types=("float32",))
_of_pairs("", lambda x: keras.ops.layer_normalization(x), "ops.layer_normalization", types=("float32",))
_of_pairs("", lambda x: keras.ops.rms_normalization(x), "ops.rms_normalization", types=("float32",))
_of_pairs("", lambda x: tf.nn.relu(tf.matmul(x, tf.constant([[1.0], [0.0]]))), "MatMul", types=("float32",))
_of_pairs(
    "masked",
    lambda x: keras.layers.Softmax()(x, mask=x > -2),
    "Softmax",
    types=("float32",),
    absolute=2e-7,
)
for _name in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"):
    _segments = _raw(_name, [1, 1], 3)
    _of_pairs("", lambda x, op=_segments: op(tf.transpose(x)), _name, types=TYPES[:3])
    _segments = _raw(_name, [-1, 1], 3)
    _of_pairs("of segments below 0", lambda x, op=_segments: op(tf.transpose(x)), _name, types=TYPES[:3])
_of_pairs("of indices below 0", lambda x: keras.ops.take(x, [-1, -2, 0], axis=1), "ops.take", types=TYPES[:3])
_of_pairs("", lambda x: x[:, :0] + 1, "StridedSlice", types=TYPES[:3], region="empty axis")
_of_pairs("", lambda x: tf.searchsorted(tf.sort(x, 1), x), "LowerBound", types=("int32", "int64"))
_of_pairs("", lambda x: tf.searchsorted(tf.sort(x, 1), x, "right"), "UpperBound", types=("int32", "int64"))
add("GatherV2", lambda x: tf.gather(tf.constant([3, 1, 4]), tf.cast(x, tf.int32) % 3), types=TYPES[1:6])
add("LogicalNot", lambda x: tf.logical_not(x > 1), name="of a comparison", types=TYPES[:3])
for _name, _pool in (("MaxPool", tf.nn.max_pool1d), ("AvgPool", tf.nn.avg_pool1d)):
    _of_pairs("", lambda x, op=_pool: op(x[..., None], 2, 2, "VALID")[..., 0], _name, types=("float32",))
_of_pairs("global", lambda x: keras.layers.GlobalMaxPooling1D()(x[..., None]), "Max", types=("float32",))
ACTIVATIONS = "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_tanh leaky_relu log_sigmoid mish relu6 selu"
ACTIVATIONS += (
    " sigmoid silu soft_shrink softplus softsign sparse_plus sparse_sigmoid squareplus tanh tanh_shrink threshold"
)
for _name in ACTIVATIONS.split():
    _found = getattr(keras.activations, _name, None)
    if _found is not None and _name != "glu":
        if _name == "threshold":
            _found = functools.partial(_found, threshold=1.0, default_value=2.0)
        add(f"activations.{_name}", _found, types=("float32",), absolute=2e-7)
