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
        lambda x, sizes=sizes, of=options: RAW.Conv2DBackpropInput(
            input_sizes=tf.stack([tf.shape(x)[0], *sizes, 4]), filter=KERNEL.swapaxes(2, 3), out_backprop=x, **of
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
case("TensorListReserve", lambda x: tf.map_fn(lambda row: row * 2, x), ROWS, shapes=((3, 5),))
