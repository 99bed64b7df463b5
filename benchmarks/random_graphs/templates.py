"""What graphs are drawn from: lines of Keras with holes, and the cases of every function and of every layer.

A line begins with the types of its tensors: f float32, i int32, l int64, u uint8, b bool, n float32 or int32, a any; then
the rank, or * for any. `=` is a tensor of the first one's type and shape, `~` of its type and of a shape that goes with it.
A hole such as `<k>` takes one of `CHOICES`. What Keras does not take is no node, so that no line says which options go
together.
"""

import dataclasses
import re

CHOICES = {
    "n": "1 2 3 4 6",
    # No head of one number: where there are as many steps as heads, Keras adds its bias to the steps.
    "h": "2 3 4 6",
    "k": "1 2 3 4 5 (2,) (3,)",
    "k2": "1 2 3 5 (1,3) (3,2) (4,1)",
    "s": "1 1 2 3",
    "s2": "1 1 2 3 (1,2) (2,1)",
    "d": "1 1 2 3",
    "g": "1 1 2",
    "p": '"valid" "same"',
    "pc": '"valid" "same" "causal"',
    "axis": "-1 -1 1 0 2 -2 None (0,1) (1,2)",
    "one": "-1 -1 1 2 0 -2",
    "keep": "True False",
    "c": "0.0 0.5 -1.5 2.0 3.0 -0.25 100.0",
    "w": "1 2 3 -1 -2 5 0",
    "m": "2 3 -3 5 7 -7",
    "act": '"relu" "tanh" "gelu" "sigmoid" "silu" "softplus" "elu" "hard_sigmoid" "relu6" "leaky_relu" None',
    "ract": '"tanh" "tanh" "relu" "sigmoid"',
    "bin": "add subtract multiply maximum minimum",
    "div": "floor_divide mod divide divide_no_nan fmod",
    "cmp": "equal not_equal less less_equal greater greater_equal",
    "red": "sum mean max min prod std var any all logsumexp count_nonzero nansum nanmax nanmean median",
    "arg": "argmax argmin",
    "run": "cumsum cumprod sort argsort flip",
    "to": '"float32" "int32" "bool" "int64" "uint8" "int8"',
    "inter": '"nearest" "bilinear" "bicubic" "lanczos3" "area"',
    "size": "(5,4) (12,9) (7,7) (16,3)",
    "merge": "Add Average Maximum Minimum Multiply Subtract Concatenate",
    "rnn": "LSTM GRU SimpleRNN",
    "pool": "Max Average",
    "fill": '"constant" "reflect" "symmetric"',
    "norm": "LayerNormalization RMSNormalization BatchNormalization UnitNormalization",
    "mix": '"sum" "concat" "ave" "mul"',
    "mode": '"linear" "nearest" "lower" "higher"',
}

LINES = {
    "numbers": """
n* ~       | ops.<bin>({0}, {1})
n* ~       | ops.<bin>({0}, {1})
n* ~       | ops.<div>({0}, {1})
n* ~       | ops.<cmp>({0}, {1})
a* =       | {0} == {1}
b* ~       | ops.logical_and({0}, {1})
b*         | ~{0}
f*         | {0} * <m> + <c>
f*         | ops.clip({0}, -1.5, <c>)
i*         | ops.clip({0}, -3, <m>)
n*         | {0} // <m>
n*         | {0} % <m>
n*         | <m> - {0}
f*         | <c> / {0}
f*         | {0} > <c>
i*         | {0} >= <w>
n*         | {0} ** 2
f*         | ops.maximum({0}, <c>)
f*         | ops.where({0} > <c>, {0}, -{0})
f*         | ops.where(ops.isfinite({0}), {0}, <c>)
f* ~       | ops.where({0} != 0, {1} / {0}, 0.0)
f* ~       | ops.arctan2({0}, {1})
b* f* ~    | ops.where({0}, {1}, {2})
i* =       | ops.where({0} > {1}, {0}, {1})
i*         | ops.cast({0}, <to>)
b*         | ops.cast({0}, <to>)
f*         | ops.cast(ops.clip({0}, 0, 255), "uint8")
f*         | ops.cast(ops.clip({0}, 0, 100), <to>)
f*         | ops.cast(ops.clip({0}, -128, 127), "int8")
a*         | ops.cast({0}, "float32")
f*         | ops.cast({0}, "int32")
l*         | {0} + 3
l*         | {0} // 2
u*         | {0} + 200
u*         | ops.cast({0}, "float32") / 255.0
i*         | ops.bitwise_and({0}, 6)
i*         | ops.right_shift({0}, 1)
f*         | ops.nan_to_num({0})
f*         | ops.round({0} * 4) / 4
f*         | ops.floor({0} * 0.37)
""",
    "reductions": """
f*         | ops.<red>({0}, axis=<axis>, keepdims=<keep>)
f*         | ops.<red>({0}, axis=<axis>, keepdims=<keep>)
i*         | ops.<red>({0}, axis=<axis>, keepdims=<keep>)
b*         | ops.<red>({0}, axis=<axis>, keepdims=<keep>)
n*         | ops.<arg>({0}, axis=<one>, keepdims=<keep>)
n*         | ops.<run>({0}, axis=<one>)
f*         | {0} - ops.mean({0}, axis=<axis>, keepdims=True)
f*         | {0} / (ops.sum(ops.abs({0}), axis=<one>, keepdims=True) + 0.1)
f*         | ops.softmax({0}, axis=<one>)
f*         | ops.log_softmax({0}, axis=<one>)
f*         | ops.normalize({0}, axis=<one>, order=2)
n*         | ops.top_k({0}, <m>)[0]
n*         | ops.top_k({0}, 2)[1]
f*         | ops.moments({0}, axes=[<w>])[1]
f*         | ops.quantile({0}, 0.3, axis=<one>, method=<mode>)
n*         | ops.diff({0}, axis=<one>)
f*         | ops.norm({0}, axis=<one>)
""",
    "shapes": """
a*         | ops.expand_dims({0}, <one>)
a*         | ops.squeeze({0}, <one>)
a2         | ops.transpose({0})
a3         | ops.transpose({0}, (0, 2, 1))
a3         | ops.transpose({0}, (1, 0, 2))
a4         | ops.transpose({0}, (0, 3, 1, 2))
a3         | ops.reshape({0}, (-1, ops.shape({0})[-1]))
f3         | layers.Reshape((-1,))({0})
f4         | layers.Reshape((-1, 3))({0})
a*         | ops.reshape({0}, (-1, 2))
a* =       | ops.concatenate([{0}, {1}], axis=<one>)
a* =       | ops.stack([{0}, {1}], axis=<one>)
a*         | ops.split({0}, 2, axis=<one>)[1]
a*         | ops.unstack({0}, axis=<one>)[0]
a*         | ops.flip({0}, axis=<one>)
a*         | ops.roll({0}, <w>, axis=<one>)
a*         | ops.repeat({0}, 2, axis=<one>)
a*         | ops.tile({0}, 2)
a2         | {0}[:, -1]
a2         | {0}[:, ::-1]
a3         | {0}[:, 1:]
a3         | {0}[:, ::2]
a3         | {0}[:, -1, :]
a3         | {0}[..., <w>]
a3         | ops.pad({0}, ((0, 0), (2, 1), (0, 0)), <fill>)
a4         | ops.pad({0}, ((0, 0), (1, 2), (0, 1), (0, 0)), <fill>)
a*         | ops.take({0}, [1, 0, 0], axis=<one>)
f3 i2      | ops.take_along_axis({0}, ops.expand_dims({1} % 3, -1), axis=1)
f2 i1      | ops.take({0}, {1} % 4, axis=1)
n2         | ops.tril({0}, <w>)
f3         | ops.triu({0}, <w>)
i*         | ops.one_hot({0}, <m>)
f*         | {0} + ops.arange(ops.shape({0})[-1], dtype="float32")
""",
    "products": """
f2         | ops.matmul({0}, ops.transpose({0}))
f3 ~       | ops.matmul({0}, ops.swapaxes({1}, 1, 2))
f3         | ops.einsum("bij,bkj->bik", {0}, {0})
f3         | ops.einsum("bij->bj", {0})
f2 =       | ops.sum({0} * {1}, axis=-1)
f3         | ops.matmul(ops.softmax(ops.matmul({0}, ops.swapaxes({0}, 1, 2))), {0})
f2         | ops.outer({0}[0], {0}[:, 0])
f3 =       | layers.Dot(axes=2)([{0}, {1}])
f2 =       | layers.Dot(axes=1, normalize=True)([{0}, {1}])
""",
    "control": """
f*         | layers.Lambda(lambda x: ops.cond(ops.sum(x) > <c>, lambda: x * 2, lambda: x - 1))({0})
f*         | layers.Lambda(lambda x: ops.cond(ops.any(x > <c>), lambda: ops.tanh(x), lambda: ops.exp(-ops.abs(x))))({0})
f* =       | layers.Lambda(lambda x: ops.cond(ops.max(x[0]) > ops.max(x[1]), lambda: x[0], lambda: x[1]))([{0}, {1}])
f*         | layers.Lambda(lambda x: ops.fori_loop(0, <m>, lambda i, y: ops.tanh(y) + 0.1 * ops.cast(i, "float32"), x))({0})
f*         | layers.Lambda(lambda x: ops.while_loop(lambda y, i: i < <m>, lambda y, i: (y * 0.5 + 1, i + 1), (x, 0))[0])({0})
f*         | layers.Lambda(lambda x: ops.while_loop(lambda y: ops.max(y) < 20.0, lambda y: (ops.abs(y) + 1,), (x,))[0])({0})
f3         | layers.Lambda(lambda x: ops.scan(lambda c, y: (0.5 * c + y, ops.tanh(c)), ops.zeros_like(x[0]), x)[1])({0})
f2         | layers.Lambda(lambda x: ops.scan(lambda c, y: (ops.maximum(c, y), c), x[0], x)[0])({0})
n*         | layers.Lambda(lambda x: ops.map(lambda y: y * 2 + y[..., :1], x))({0})
f2         | layers.Lambda(lambda x: ops.vectorized_map(lambda y: y - ops.max(y), x))({0})
f2         | layers.Lambda(lambda x: ops.associative_scan(lambda a, b: a * 0.5 + b, x, axis=1))({0})
i* f*      | layers.Lambda(lambda x: ops.switch(ops.sum(x[0]) % 3, [ops.abs, ops.sin, lambda y: y + 1], x[1]))([{0}, {1}])
""",
    "layers": """
f*         | layers.Dense(<n>, activation=<act>)({0})
f*         | layers.Activation(<act>)({0})
f*         | layers.PReLU()({0})
f*         | layers.ReLU(max_value=6.0, negative_slope=0.1, threshold=<c>)({0})
f*         | layers.Softmax(axis=<one>)({0})
f*         | layers.<norm>(axis=<one>)({0})
f4         | layers.GroupNormalization(<g>)({0})
f*         | layers.Rescaling(0.5, offset=<c>)({0})
f*         | layers.Dropout(0.4)({0})
f2         | layers.Discretization([-1.0, 0.0, 0.5])({0})
f* =       | layers.<merge>()([{0}, {1}])
f* ~       | layers.<merge>()([{0}, {1}])
f*         | layers.Flatten()({0})
f2         | layers.RepeatVector(<m>)({0})
i2         | layers.Embedding(11, <n>)(abs({0} % 11))
i2         | layers.CategoryEncoding(6, output_mode="multi_hot")({0} % 6)
f*         | layers.EinsumDense("...c,cd->...d", output_shape=3, bias_axes="d")({0})
""",
    "sequences": """
f3         | layers.Conv1D(<n>, <k>, strides=<s>, padding=<pc>, dilation_rate=<d>, activation=<act>)({0})
f3         | layers.SeparableConv1D(<n>, <k>, strides=<s>, padding=<p>)({0})
f3         | layers.DepthwiseConv1D(<k>, strides=<s>, padding=<p>)({0})
f3         | layers.Conv1DTranspose(<n>, <k>, strides=<s>, padding=<p>)({0})
f3         | layers.<pool>Pooling1D(<m>, strides=<s>, padding=<p>)({0})
f3         | layers.Global<pool>Pooling1D(keepdims=<keep>)({0})
f3         | layers.UpSampling1D(2)({0})
f3         | layers.ZeroPadding1D((2, 1))({0})
f3         | layers.Cropping1D((1, 2))({0})
f3         | layers.<rnn>(<n>, return_sequences=<keep>, go_backwards=<keep>, activation=<ract>)({0})
f3         | layers.<rnn>(<n>, return_sequences=<keep>)(layers.Masking(0.0)({0}))
f3         | layers.Bidirectional(layers.<rnn>(<n>, return_sequences=<keep>), merge_mode=<mix>)({0})
f3         | layers.RNN(layers.<rnn>Cell(<n>), return_sequences=<keep>)({0})
f3         | layers.<rnn>(<n>, return_sequences=True, return_state=True)({0})[<keep>]
i2         | layers.<rnn>(<n>, return_sequences=<keep>)(layers.Embedding(9, 4, mask_zero=True)(abs({0} % 9)))
i2         | layers.GlobalAveragePooling1D()(layers.Embedding(9, 4, mask_zero=True)(abs({0} % 9)))
f4         | layers.TimeDistributed(layers.Dense(<n>))({0})
f3         | layers.MultiHeadAttention(2, <h>)({0}, {0}, use_causal_mask=<keep>)
f3 ~       | layers.MultiHeadAttention(1, <n>)({0}, {1})
f3         | layers.Attention(use_scale=<keep>)([{0}, {0}], use_causal_mask=<keep>)
f3         | layers.AdditiveAttention()([{0}, {0}])
f3         | layers.GroupQueryAttention(2, 4, 2)({0}, {0})
f3         | attention.MultiHeadAttention(2, 4, position="rotary")({0}, {0}, use_causal_mask=<keep>)
f3         | attention.MultiHeadAttention(2, 4, num_key_value_heads=1, sliding_window=3)({0}, {0}, use_causal_mask=True)
f3         | blocks.EncoderBlock(attention.MultiHeadAttention(2, 4), feedforward.DenseFeedForward(8))({0})
f3         | feedforward.GatedFeedForward(6)({0})
f3         | recurrence.MultiScaleRetention(2, 4)({0})
f3         | recurrence.S4D(4)({0})
""",
    "images": """
f4         | layers.Conv2D(<n>, <k2>, strides=<s2>, padding=<p>, dilation_rate=<d>, groups=<g>, activation=<act>)({0})
f4         | layers.Conv2D(<n>, <k2>, strides=<s2>, padding=<p>)({0})
f4         | layers.DepthwiseConv2D(<k2>, strides=<s>, padding=<p>, dilation_rate=<d>, depth_multiplier=<g>)({0})
f4         | layers.SeparableConv2D(<n>, <k2>, strides=<s>, padding=<p>)({0})
f4         | layers.Conv2DTranspose(<n>, <k2>, strides=<s>, padding=<p>)({0})
f4         | layers.<pool>Pooling2D(<k2>, strides=<s2>, padding=<p>)({0})
f4         | layers.Global<pool>Pooling2D(keepdims=<keep>)({0})
f4         | layers.UpSampling2D(2, interpolation=<inter>)({0})
f4         | layers.Resizing(5, 12, interpolation=<inter>)({0})
f4         | ops.image.resize({0}, <size>, interpolation=<inter>, antialias=<keep>)
f4         | layers.ZeroPadding2D(((1, 2), (0, 1)))({0})
f4         | layers.Cropping2D(((1, 0), (0, 1)))({0})
f4         | layers.CenterCrop(4, 5)({0})
f4         | layers.BatchNormalization()({0})
f4         | ops.image.extract_patches({0}, <k2>, strides=<s>, padding=<p>)
f4         | layers.ConvLSTM1D(2, 2, padding=<p>)({0})
""",
}
# How often a group is drawn; "functions" and "classes" are the cases of `keras_functions` and of `layer_cases.py`.
WEIGHTS = {
    **{"numbers": 5, "reductions": 3, "shapes": 4, "products": 1, "control": 2, "layers": 2, "sequences": 3},
    **{"images": 2, "functions": 6, "classes": 1},
}
# Functions and classes that no graph has: they compute in eager Keras alone, multiply by zero, draw random numbers, or take
# seconds. A float out of the range of a narrow integer is cast to other values by each loop of TensorFlow itself.
_WITHOUT = {
    *(
        "convert_to_numpy",
        "empty",
        "empty_like",
        "zeros",
        "ones",
        "image.elastic_transform",
        "ctc_decode",
        "ctc_loss",
        "eig",
    ),
    *("JaxLayer", "TFSMLayer", "StringLookup", "TextVectorization", "Hashing", "HashedCrossing", "AugMix"),
}
_LETTERS = {"float32": "f", "int32": "i", "int64": "l", "uint8": "u", "bool": "b"}
TYPES = {letter: (dtype,) for dtype, letter in _LETTERS.items()} | {
    "n": ("float32", "float32", "int32"),
    "a": ("float32", "float32", "int32", "bool"),
}


@dataclasses.dataclass(frozen=True)
class Template:
    """A line with holes.

    Args:
        text: a Python expression with `{0}`, `{1}`, ... for tensors, and holes such as `<k>`.
        takes: the type and rank of each tensor, such as "f3", or "=" or "~".
        shapes: the shape of each tensor, where a new input is made for it; None for any of that rank.
    """

    text: str
    takes: tuple
    shapes: tuple | None = None

    def filled(self, random):
        """The text with its holes filled; random: `random.Random`."""
        return re.sub(r"<(\w+)>", lambda hole: random.choice(CHOICES[hole[1]].split()), self.text)


def templates():
    """The templates by group."""
    found = {name: [_of_line(line) for line in lines.strip().splitlines()] for name, lines in LINES.items()}
    return found | {"functions": list(_functions()), "classes": list(_classes())}


def _of_line(line):
    takes, _, text = line.partition("|")
    return Template(text.strip(), tuple(takes.split()))


def _functions():
    """A template of each case of a function; of most the text is the function itself."""
    from keras_functions import CASES, functions
    from keras_functions.case import ANY, PAIR

    public = functions()
    for (name, label), case in CASES.items():
        takes = [_LETTERS.get(array.dtype.name) for array in case.arrays]
        if name in _WITHOUT or None in takes:
            continue
        tensors = [f"{{{number}}}" for number in range(len(takes))]
        prefix = "keras." if name.startswith("activations.") else "ops."
        text = f"{prefix}{name}({', '.join(tensors)})"
        if case.function is not public[name]:
            given = f"[{', '.join(tensors)}]" if len(tensors) > 1 else tensors[0]
            text = f"layers.Lambda(function_case({name!r}, {label!r}))({given})"
        if case.shapes in (ANY, PAIR):
            yield Template(text, (f"{takes[0]}*", *["~"] * (len(takes) - 1)))
        else:
            ranks = [f"{letter}{array.ndim}" for letter, array in zip(takes, case.arrays, strict=True)]
            yield Template(text, tuple(ranks), tuple(case.inputs("dynamic") or case.inputs("fixed")))


def _classes():
    """A template of each case of a layer that takes one tensor or a list of them."""
    from layer_cases import CASES, _call

    for name, cases in CASES.items():
        for number, case in enumerate(cases):
            takes = [_LETTERS.get(array.dtype.name) for array in case.arrays]
            if name in _WITHOUT or name.startswith(("Random", "Rand")) or None in takes or case.call is not _call:
                continue
            if "Conv" in name and "channels_first" in case.options:  # Keras adds a bias to the axis that has its size.
                continue
            tensors = [f"{{{each}}}" for each in range(len(takes))]
            given = f"[{', '.join(tensors)}]" if len(tensors) > 1 else tensors[0]
            ranks = [f"{letter}{array.ndim}" for letter, array in zip(takes, case.arrays, strict=True)]
            shapes = tuple((None, *shape) for shape in case.shapes)
            yield Template(f"layer_case({name!r}, {number})({given})", tuple(ranks), shapes)
