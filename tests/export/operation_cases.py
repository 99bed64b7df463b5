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
# Near its ends erfinv amplifies the rounding of its argument, by 85 at 0.999.
_unary("Erfinv", 0.999 * SMALL, bound=85 * 2**-23)
case("Ndtri", lambda x: RAW.Ndtri(x=x), 0.5 + 0.49 * SMALL)
case("Acosh", lambda x: RAW.Acosh(x=x), POSITIVE + 1)
_unary("Softplus Softsign Elu Selu Relu Relu6", ANY, "features")
_unary("Softmax LogSoftmax", ROWS, "logits")
case("LeakyRelu", lambda x: RAW.LeakyRelu(features=x, alpha=0.3), ANY)
for dtype in ("int32", "int64"):
    case("Abs", lambda x: RAW.Abs(x=x), WHOLE.astype(dtype), name=dtype)
    case("Sign", lambda x: RAW.Sign(x=x), WHOLE.astype(dtype), name=dtype)
    no_int64 = ("tflite",) if dtype == "int64" else ()
    _binary(
        "FloorDiv TruncateDiv Mod TruncateMod", WHOLE.astype(dtype), DIVISORS.astype(dtype), dtype, refused=no_int64
    )
    _binary("FloorMod", WHOLE.astype(dtype), DIVISORS.astype(dtype), dtype)
    _binary("BitwiseAnd BitwiseOr BitwiseXor", BITS.astype(dtype), BITS[::-1].astype(dtype), dtype, refused=no_int64)
    case("Invert", lambda x: RAW.Invert(x=x), BITS.astype(dtype), name=dtype)
shifts = np.array([[0, 1, 31, 5, 30], [1, 2, 3, 1, 31]], "int32")
_binary("LeftShift RightShift", BITS, shifts)
case(
    "LeftShift",
    lambda x, y: tf.bitwise.left_shift(x, y),
    BITS.astype("int64"),
    shifts.astype("int64"),
    name="int64",
    refused=("tflite",),
)
case(
    "RightShift",
    lambda x, y: tf.bitwise.right_shift(x, y),
    BITS.astype("int64"),
    shifts.astype("int64"),
    name="int64",
    refused=("tflite",),
)
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
for name in ("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin"):
    function = getattr(RAW, name)
    case(name, lambda x, y, op=function: op(data=x, segment_ids=y), ROWS - 3, np.array([0, 0, 2], "int32"))
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
case("MatrixSetDiagV3", lambda x, y: tf.linalg.set_diag(x, y), MATRICES, ROWS[:2, :4])
case("Cross", lambda x, y: tf.linalg.cross(x, y), ROWS[:, :3], OTHERS[:, :3], shapes=((None, 3), (None, 3)))
case("GatherV2", lambda x, i: tf.gather(x, i), ROWS, SEGMENTS)
case("Identity", lambda x: tf.identity(x) + 1, ROWS)
case("Reshape", lambda x: tf.reshape(x, [-1, 3]), MATRICES)
case("Transpose", lambda x: tf.transpose(x, [2, 0, 1]), MATRICES)
case("MatMul", lambda x: tf.matmul(x, np.ones((5, 2), "float32") / 3), ROWS, shapes=((None, 5),))
case("BatchMatMul", lambda x: RAW.BatchMatMul(x=x, y=x, adj_y=True), MATRICES)
case("BatchMatMulV2", lambda x: tf.matmul(x, x, transpose_a=True), MATRICES)
case("BatchMatMulV3", lambda x: RAW.BatchMatMulV3(x=x, y=x, adj_y=True, Tout=tf.int32), BYTES)
case("Einsum", lambda x: tf.einsum("bij,bkj->bik", x, x), MATRICES)
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

# Matrices of sizes that are known, in batches of any.
SQUARES = _RANDOM.normal(size=(2, 3, 5, 5)).astype("float32")
DOMINANT = SQUARES + 4 * np.eye(5, dtype="float32")
SYMMETRIC = (DOMINANT @ DOMINANT.swapaxes(-1, -2)).astype("float32")
RIGHT = _RANDOM.normal(size=(2, 3, 5, 2)).astype("float32")
case("Cholesky", lambda x: tf.linalg.cholesky(x), SYMMETRIC, bound=4e-6)
case(
    "Cholesky",
    lambda x: tf.where(tf.math.is_nan(RAW.Cholesky(input=x)), 9.0, RAW.Cholesky(input=x)),
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
