"""For each class of `keras.layers` what `every_layer.py` tries: its options, and arrays that it takes."""

import dataclasses
import tempfile
from collections.abc import Callable

import keras
import numpy as np
from keras import layers

# Classes without a case, and why.
EXCLUDED = {
    "FlaxLayer": "requires Flax",
    "InputLayer": "every model here has one",
    "Layer": "abstract",
    "TorchModuleWrapper": "computes in PyTorch alone",
    "Wrapper": "abstract",
}


def _call(layer, inputs):
    return layer(inputs[0] if len(inputs) == 1 else inputs)


def _separately(layer, inputs):
    return layer(*inputs)


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer with some options.

    Args:
        options: what is said of them.
        build: makes the layer.
        arrays: its inputs, with a batch.
        shapes: of the model's inputs, without the batch.
        call: gives the layer its inputs.
    """

    options: str
    build: Callable
    arrays: tuple
    shapes: tuple
    call: Callable = _call


CASES: dict[str, list[Case]] = {}
_RANDOM = np.random.default_rng(11)


def _normal(*shape):
    return _RANDOM.normal(size=shape).astype("float32")


VECTORS, SEQUENCES, IMAGES, VOLUMES = _normal(3, 6), _normal(3, 9, 4), _normal(2, 11, 9, 4), _normal(2, 6, 7, 5, 2)
PIXELS = _RANDOM.uniform(0, 255, (2, 12, 10, 3)).astype("float32")
TOKENS = _RANDOM.integers(0, 8, (3, 7)).astype("int32")
FRAMES = {1: _normal(2, 4, 6, 2), 2: _normal(2, 4, 6, 5, 2), 3: _normal(2, 3, 4, 5, 4, 2)}
BY_RANK = {1: SEQUENCES, 2: IMAGES, 3: VOLUMES}
FIRST = {"data_format": "channels_first"}


def case(name, arrays, *options, dynamic=True, call=_call, build=None):
    """Adds cases of a layer: each with its options, of fixed sizes and, where it takes them, of dynamic ones.

    Args:
        name: of the class.
        arrays: an array or a tuple of arrays.
        options: dicts of arguments; none is a layer without any.
        dynamic: whether all axes but the channels may be dynamic.
        call: gives the layer its inputs.
        build: makes the layer of its arguments, in place of the class.
    """
    arrays = arrays if isinstance(arrays, tuple) else (arrays,)
    for each in options or ({},):
        given = tuple(np.moveaxis(x, -1, 1) for x in arrays) if each.get("data_format") == "channels_first" else arrays
        for is_dynamic in (False, True) if dynamic else (False,):
            shapes = tuple(_dynamic(x.shape[1:], each) if is_dynamic else x.shape[1:] for x in given)
            if is_dynamic and shapes == tuple(x.shape[1:] for x in given):
                continue
            said = [f"{key}={_said(value)}" for key, value in each.items()] + (["dynamic sizes"] if is_dynamic else [])
            make = build or getattr(layers, name)
            CASES.setdefault(name, []).append(
                Case(", ".join(said), lambda make=make, each=each: make(**each), given, shapes, call)
            )


def _dynamic(shape, options):
    is_first = options.get("data_format") == "channels_first"
    return (shape[0], *[None] * (len(shape) - 1)) if is_first else (*[None] * (len(shape) - 1), *shape[-1:])


def _said(value):
    return type(value).__name__ if isinstance(value, (keras.layers.Layer, list)) or callable(value) else repr(value)


def _spatial():
    """Convolutions, poolings, paddings and the like of one to three axes."""
    for rank, x in BY_RANK.items():
        strided = {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same"}
        plain = {"filters": 3, "kernel_size": 2}
        case(
            f"Conv{rank}D",
            x,
            plain,
            strided,
            {"filters": 3, "kernel_size": 3, "dilation_rate": 2, "padding": "same"},
            {"filters": 3, "kernel_size": 2, "strides": 4, "padding": "same"},
            # TensorFlow has no convolution of volumes by groups on a CPU.
            {"filters": 4, "kernel_size": 2, "groups": 1 if rank == 3 else 2, "activation": "relu"},
            {**plain, **FIRST},
        )
        case(
            f"Conv{rank}DTranspose",
            x,
            plain,
            strided,
            {"filters": 3, "kernel_size": 2, "strides": 3},
            {"filters": 3, "kernel_size": 3, "strides": 2, "output_padding": 1, "padding": "same"},
            {"filters": 3, "kernel_size": 3, "dilation_rate": 2},
            {**plain, **FIRST},
        )
        for kind in ("Average", "Max"):
            pool = {"pool_size": 2}
            same = {"pool_size": 3, "strides": 2, "padding": "same"}
            wide = {"pool_size": 2, "strides": 3, "padding": "same"}
            case(f"{kind}Pooling{rank}D", x, pool, same, wide, {**pool, **FIRST})
            case(f"Adaptive{kind}Pooling{rank}D", x, {"output_size": 3}, {"output_size": 3, **FIRST}, dynamic=False)
            case(f"Global{kind}Pooling{rank}D", x, {}, {"keepdims": True}, FIRST)
        first = FIRST if rank > 1 else {}
        case(f"ZeroPadding{rank}D", x, {"padding": 2}, {"padding": 1, **first})
        case(f"Cropping{rank}D", x, {"cropping": 1}, {"cropping": 1, **first})
        case(f"UpSampling{rank}D", x, {"size": 2}, {"size": 3, **first})
        case(f"SpatialDropout{rank}D", x, {"rate": 0.3})
        if rank < 3:
            depthwise = {"kernel_size": 3, "depth_multiplier": 2}
            variants = (
                depthwise,
                {"kernel_size": 3, "strides": 2, "padding": "same"},
                {"kernel_size": 2, "dilation_rate": 2},
                {**depthwise, **FIRST},
            )
            case(f"DepthwiseConv{rank}D", x, *variants)
            case(f"SeparableConv{rank}D", x, *({"filters": 3, **each} for each in variants))
        lstm = {"filters": 2, "kernel_size": 2}
        case(
            f"ConvLSTM{rank}D",
            FRAMES[rank],
            lstm,
            {**lstm, "return_sequences": True, "padding": "same"},
            {**lstm, "go_backwards": True, "return_state": True},
            dynamic=False,
        )
    case("UpSampling2D", IMAGES, *({"size": 2, "interpolation": each} for each in ("bilinear", "bicubic", "lanczos3")))


def _recurrent():
    for name in ("LSTM", "GRU", "SimpleRNN"):
        case(
            name,
            SEQUENCES,
            {"units": 3},
            {"units": 3, "return_sequences": True, "go_backwards": True},
            {"units": 3, "return_state": True, "activation": "relu"},
        )
        case(name, SEQUENCES, {"units": 3, "unroll": True}, dynamic=False)
        masked = lambda units, layer=name: keras.Sequential([layers.Masking(), getattr(layers, layer)(units)])  # noqa: E731
        case(name, SEQUENCES, {"units": 3}, build=masked)
        cell = lambda units, layer=name: layers.RNN(getattr(layers, f"{layer}Cell")(units), return_sequences=True)  # noqa: E731
        case(f"{name}Cell", SEQUENCES, {"units": 3}, build=cell)
    case("RNN", SEQUENCES, {}, build=lambda: layers.RNN(layers.GRUCell(3), go_backwards=True))
    stacked = lambda: layers.RNN(layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)]))  # noqa: E731
    case("StackedRNNCells", SEQUENCES, {}, build=stacked)
    for mode in ("concat", "sum", "ave", "mul"):
        build = lambda merge_mode: layers.Bidirectional(  # noqa: E731
            layers.LSTM(3, return_sequences=True), merge_mode=merge_mode
        )
        case("Bidirectional", SEQUENCES, {"merge_mode": mode}, build=build)
    case("TimeDistributed", SEQUENCES, {}, build=lambda: layers.TimeDistributed(layers.Dense(3)))


def _attention():
    pair = (SEQUENCES, _normal(3, 5, 4))
    head = {"num_heads": 2, "key_dim": 3}
    case("MultiHeadAttention", pair, head, {**head, "use_bias": False}, {**head, "value_dim": 5}, call=_separately)
    group = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}
    case("GroupQueryAttention", pair, group, {**group, "use_gate": True}, call=_separately)
    case("Attention", pair, {}, {"use_scale": True}, {"score_mode": "concat"})
    case("AdditiveAttention", pair, {}, {"use_scale": False})


def _elementwise():
    for name in ("Add", "Average", "Maximum", "Minimum", "Multiply", "Subtract", "Concatenate"):
        case(name, (SEQUENCES, _normal(*SEQUENCES.shape)), {})
    case("Concatenate", (SEQUENCES, _normal(3, 9, 4)), {"axis": 1})
    case("Dot", (VECTORS, _normal(3, 6)), {"axes": 1}, {"axes": 1, "normalize": True})
    case("Dot", (SEQUENCES, _normal(3, 5, 4)), {"axes": 2})
    for name in ("ELU", "LeakyReLU", "PReLU", "ReLU", "Softmax", "Identity", "ActivityRegularization", "Masking"):
        case(name, VECTORS, {})
    case("ReLU", IMAGES, {"max_value": 6.0}, {"negative_slope": 0.1, "threshold": 0.2})
    case("PReLU", IMAGES, {"shared_axes": [1, 2]})
    case("Softmax", IMAGES, {"axis": 1}, {"axis": [1, 2]})
    for name in ("relu", "gelu", "silu", "softplus", "tanh", "hard_sigmoid", "mish", "selu", "log_softmax"):
        case("Activation", VECTORS, {"activation": name})
    for name in ("Dropout", "AlphaDropout", "GaussianDropout"):
        case(name, VECTORS, {"rate": 0.3})
    case("GaussianNoise", VECTORS, {"stddev": 0.3})
    case("Lambda", VECTORS, {"function": lambda x: x * 2 + 1})
    case("Pipeline", PIXELS, {}, build=lambda: layers.Pipeline([layers.Rescaling(1 / 255), layers.CenterCrop(6, 6)]))
    case("Rescaling", PIXELS, {"scale": 1 / 127.5, "offset": -1}, {"scale": [0.1, 0.2, 0.3]})


def _shapes():
    case("Flatten", IMAGES, {}, FIRST, dynamic=False)
    case("Permute", IMAGES, {"dims": (3, 1, 2)})
    case("RepeatVector", VECTORS, {"n": 3})
    case("Reshape", IMAGES, {"target_shape": (-1, 4)}, {"target_shape": (4, -1)})


def _weighted():
    case("Dense", SEQUENCES, {"units": 3}, {"units": 3, "use_bias": False, "activation": "gelu"})
    case("EinsumDense", SEQUENCES, {"equation": "abc,cd->abd", "output_shape": (None, 3), "bias_axes": "d"})
    case("Embedding", TOKENS, {"input_dim": 8, "output_dim": 3}, {"input_dim": 8, "output_dim": 3, "mask_zero": True})
    case("ReversibleEmbedding", TOKENS, {"input_dim": 8, "output_dim": 3})
    case("SpectralNormalization", SEQUENCES, {}, build=lambda: layers.SpectralNormalization(layers.Dense(3)))
    for name in ("BatchNormalization", "LayerNormalization", "RMSNormalization", "UnitNormalization"):
        case(name, IMAGES, {})
    case("BatchNormalization", IMAGES, {"axis": 1}, {"scale": False, "center": False}, dynamic=False)
    case("LayerNormalization", IMAGES, {"axis": [1, 2]}, dynamic=False)
    case("GroupNormalization", IMAGES, {"groups": 2}, {"groups": -1})


def _preprocessing():
    mean = {"mean": [1.0, 2.0, 3.0], "variance": [4.0, 5.0, 6.0]}
    case("Normalization", PIXELS, mean, {**mean, "invert": True})
    boundaries = {"bin_boundaries": [-1.0, 0.0, 0.5]}
    case("Discretization", VECTORS, *({**boundaries, "output_mode": each} for each in ("int", "multi_hot", "count")))
    case("Discretization", VECTORS[:, :1], {**boundaries, "output_mode": "one_hot"})
    case("CategoryEncoding", TOKENS, *({"num_tokens": 8, "output_mode": each} for each in ("multi_hot", "count")))
    case("CategoryEncoding", TOKENS[:, :1], {"num_tokens": 8, "output_mode": "one_hot"})
    case("CenterCrop", PIXELS, {"height": 6, "width": 5}, {"height": 20, "width": 5})
    size = {"height": 15, "width": 7}
    for interpolation in ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "area"):
        case("Resizing", PIXELS, {**size, "interpolation": interpolation})
    case(
        "Resizing",
        PIXELS,
        {**size, "antialias": True},
        {**size, "crop_to_aspect_ratio": True},
        {**size, "pad_to_aspect_ratio": True},
        {**size, **FIRST},
    )
    waves = _normal(2, 400)
    mel = {"fft_length": 64, "sequence_stride": 32, "num_mel_bins": 8}
    case("MelSpectrogram", waves, mel, {**mel, "power_to_db": False})
    for mode in ("log", "magnitude", "psd", "real", "imag", "angle", "stft"):
        case("STFTSpectrogram", waves[..., None], {"mode": mode, "frame_length": 32})
    case("STFTSpectrogram", waves[..., None], {"frame_length": 32, "expand_dims": True}, dynamic=False)


def _augmentations():
    """Layers that are the identity at inference, and those of whole images that are not."""
    factor = (
        *("RandomBrightness", "RandomColorDegeneration", "RandomContrast", "RandomErasing", "RandomHue"),
        *("RandomPosterization", "RandomRotation", "RandomSaturation", "RandomSharpness", "RandomGrayscale"),
    )
    values = {"RandomHue": 0.2, "RandomPosterization": 4, "RandomSaturation": 0.2}
    for name in factor:
        case(name, PIXELS, {"factor": values.get(name, 0.2)}, dynamic=False)
    case("RandomTranslation", PIXELS, {"height_factor": 0.1, "width_factor": 0.1}, dynamic=False)
    case("RandomZoom", PIXELS, {"height_factor": 0.1}, dynamic=False)
    case("RandomCrop", PIXELS, {"height": 6, "width": 5}, dynamic=False)
    for name in (
        *("AugMix", "AutoContrast", "ContrastLimitedAdaptiveHistogramEqualization", "CutMix", "MixUp"),
        *(
            "RandAugment",
            "RandomColorJitter",
            "RandomFlip",
            "RandomElasticTransform",
            "RandomGaussianBlur",
            "RandomInvert",
            "RandomPerspective",
        ),
        *("RandomShear", "Solarization"),
    ):
        case(name, PIXELS, {}, dynamic=False)
    # Alone it returns its own input in a functional model.
    case("Equalization", PIXELS, {}, dynamic=False, build=lambda: layers.Pipeline([layers.Equalization()]))
    boxes = (PIXELS, _RANDOM.uniform(0, 9, (2, 5, 4)).astype("float32"), np.ones((2, 5), "float32"))
    most = {"bounding_box_format": "xyxy"}
    case(
        "MaxNumBoundingBoxes",
        boxes,
        {"max_number": 3, **most},
        {"max_number": 7, **most},
        dynamic=False,
        call=_of_boxes,
    )


def _of_boxes(layer, inputs):
    images, boxes, labels = inputs
    return layer({"images": images, "bounding_boxes": {"boxes": boxes, "labels": labels}})["bounding_boxes"]


def _words():
    words = np.array([["red", "blue"], ["green", ""]], object)
    case("StringLookup", words, {"vocabulary": ["red", "green"]}, dynamic=False)
    case("TextVectorization", words[:, :1], {"vocabulary": ["red", "green"]}, dynamic=False)
    case("Hashing", words, {"num_bins": 5}, dynamic=False)
    case("HashedCrossing", (words[:, :1], words[:, 1:]), {"num_bins": 5}, dynamic=False)
    case("IntegerLookup", TOKENS, {"vocabulary": [3, 5]}, {"vocabulary": [3, 5], "output_mode": "multi_hot"})


def _foreign():
    """Layers that hold what other libraries compute."""

    def saved():
        folder = tempfile.mkdtemp()
        keras.Sequential([keras.Input((6,)), layers.Dense(3)]).export(folder, verbose=False)
        return layers.TFSMLayer(folder, call_endpoint="serve")

    def product():
        return layers.JaxLayer(lambda params, inputs: inputs @ params["kernel"], params={"kernel": _normal(6, 3)})

    case("TFSMLayer", VECTORS, {}, build=saved)
    case("JaxLayer", VECTORS, {}, build=product)


for add in (
    *(_spatial, _recurrent, _attention, _elementwise, _shapes, _weighted),
    *(_preprocessing, _augmentations, _words, _foreign),
):
    add()

# A class of each kind of `keras.applications`, and the side of its images.
APPLICATIONS = {
    "ConvNeXtTiny": 64,
    "DenseNet121": 64,
    "EfficientNetB0": 64,
    "EfficientNetV2B0": 64,
    "InceptionResNetV2": 80,
    "InceptionV3": 80,
    "MobileNet": 64,
    "MobileNetV2": 64,
    "MobileNetV3Small": 64,
    "NASNetMobile": 64,
    "ResNet50": 64,
    "ResNet50V2": 64,
    "VGG16": 32,
    "VGG19": 32,
    "Xception": 80,
}


def classes():
    """The name of each class of `keras.layers`, without aliases."""
    found = {}
    for name in sorted(vars(layers)):
        each = getattr(layers, name)
        if isinstance(each, type) and issubclass(each, layers.Layer):
            found.setdefault(each, []).append(name)
    return sorted(each.__name__ if each.__name__ in names else names[0] for each, names in found.items())
