"""Functions of networks, and activations."""

import keras
import numpy as np
from keras import ops

from .case import case, each, normal, uniform, whole

_ACTIVATIONS = (
    "celu elu gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu log_sigmoid log_softmax relu "
    "relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus swish "
    "tanh_shrink threshold"
)
ROWS = normal(4, 6)
for module, prefix in ((ops, ""), (keras.activations, "activations.")):
    for name in _ACTIVATIONS.split():
        options = (0.3, 0.1) if name == "threshold" else ()
        case(prefix + name, lambda x, m=module, n=name, o=options: getattr(m, n)(x, *o), ROWS)
each("exponential linear mish tanh", ROWS, module=keras.activations, prefix="activations.")
case("activations.get", lambda x: keras.activations.get("relu")(x), ROWS)
case("activations.serialize", lambda x: getattr(ops, keras.activations.serialize(keras.activations.relu))(x), ROWS)
case("activations.deserialize", lambda x: keras.activations.deserialize("relu")(x), ROWS)
case("gelu", lambda x: ops.gelu(x, approximate=False), ROWS, label="exact")
IMAGES, SERIES, VOLUMES = normal(2, 9, 8, 3), normal(2, 10, 3), normal(2, 6, 5, 4, 2)
for name in ("average_pool", "max_pool"):
    function = getattr(ops, name)
    for label, array in (("1D", SERIES), ("2D", IMAGES), ("3D", VOLUMES)):
        for padding in ("valid", "same"):
            case(name, lambda x, of=function, p=padding: of(x, 2, 2, p), array, label=f"{label} {padding}")
for name in ("adaptive_average_pool", "adaptive_max_pool"):
    case(name, lambda x, of=name: getattr(ops, of)(x, (3, 4)), IMAGES)
for rank, array in ((1, SERIES), (2, IMAGES), (3, VOLUMES)):
    sizes, channels = (3,) * rank, array.shape[-1]
    kernel = normal(*sizes, channels, 4)
    for padding in ("valid", "same"):
        label = f"{rank}D {padding}"
        case("conv", lambda x, k=kernel, p=padding: ops.conv(x, k, 2, p), array, label=label)
        turned = kernel.swapaxes(-1, -2)
        case("conv_transpose", lambda x, k=turned, p=padding: ops.conv_transpose(x, k, 2, p), array, label=label)
    if rank < 3:
        depthwise, pointwise = normal(*sizes, channels, 2), normal(*(1,) * rank, 2 * channels, 4)
        case("depthwise_conv", lambda x, k=depthwise: ops.depthwise_conv(x, k, 1, "same"), array, label=f"{rank}D")
        case(
            "separable_conv",
            lambda x, d=depthwise, p=pointwise: ops.separable_conv(x, d, p, 1, "same"),
            array,
            label=f"{rank}D",
        )
KERNEL = normal(3, 3, 3, 4)
case("conv", lambda x: ops.conv(x, KERNEL, 1, "same", dilation_rate=2), IMAGES, label="dilated")
SCALE = np.array([1, 2, 3], "float32")
case("batch_normalization", lambda x: ops.batch_normalization(x, SCALE, SCALE, -1, SCALE, SCALE), IMAGES)
case("layer_normalization", lambda x: ops.layer_normalization(x, SCALE, SCALE), IMAGES)
case("rms_normalization", lambda x: ops.rms_normalization(x, SCALE), IMAGES)
case("normalize", lambda x: ops.normalize(x, axis=-1), ROWS)
case("dot_product_attention", ops.dot_product_attention, *(normal(2, 5, 3, 4) for _ in range(3)))
case("one_hot", lambda x: ops.one_hot(x, 5), whole(-1, 6, 4, 3))
case("multi_hot", lambda x: ops.multi_hot(x, 5), whole(0, 5, 4, 3))
SHARES = uniform(0.05, 0.95, 4, 6)
for name in ("binary_crossentropy", "categorical_crossentropy"):
    case(name, getattr(ops, name), np.eye(6, dtype="float32")[[1, 0, 5, 2]], SHARES)
    case(
        name,
        lambda t, p, of=name: getattr(ops, of)(t, p, from_logits=True),
        np.eye(6, dtype="float32")[:4],
        ROWS,
        label="logits",
    )
case("sparse_categorical_crossentropy", ops.sparse_categorical_crossentropy, whole(0, 6, 4), SHARES)
case("ctc_loss", ops.ctc_loss, whole(1, 5, 2, 3), normal(2, 9, 5), *(np.array(n, "int32") for n in ([3, 2], [9, 8])))
for strategy in ("greedy", "beam_search"):
    case(
        "ctc_decode",
        lambda x, n, s=strategy: ops.ctc_decode(x, n, s)[0][0],
        *(normal(2, 9, 5), np.array([9, 8], "int32")),
        label=strategy,
    )
case("psnr", lambda x, y: ops.psnr(x, y, 2.0), ROWS, normal(4, 6))
case("unfold", lambda x: ops.unfold(x, 2, stride=2), IMAGES.transpose(0, 3, 1, 2))
case("fold", lambda x: ops.fold(x, (8, 6), 2, stride=2), normal(2, 12, 12))
