"""One small case per layer variant. To add a variant, add its case here; all contract tests then run on it.

A case defines the construction of the layer, its inputs and a non-default value for each constructor argument.
"""

import dataclasses
import math
from collections.abc import Callable

import keras
import numpy as np

from keras_transformer import attention, audio, blocks, feedforward, positions, recurrence, vision
from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.layers.learnable_affine import LearnableAffine
from keras_transformer.layers.norms import ZeroCenteredRMSNormalization
from keras_transformer.utils.serialization import serialize

WIDTH = 12
LENGTH = 7


@dataclasses.dataclass(frozen=True)
class Growth:
    """Upper bounds of the growth of the cost of attention with the length n, as exponents of n.

    Attributes:
        memory: of the largest tensor.
        flops: of the operations.
        arguments: function of n to the constructor arguments for length n, in addition to the required ones.
    """

    memory: float = 1.0
    flops: float = 1.0
    arguments: Callable = lambda length: {}


LINEAR, QUADRATIC = Growth(), Growth(memory=2.0, flops=2.0)


@dataclasses.dataclass(frozen=True)
class Case:
    """Construction and inputs of a layer.

    Attributes:
        cls: the class under test.
        required: function that returns the required constructor arguments.
        arguments: every other constructor argument, with a value other than its default.
        inputs: function that returns the inputs of the layer.
        wrap: function that wraps the object under test in a layer that accepts the inputs.
        with_arguments: dict of an argument that acts only together with others to the others.
        neutral: arguments that do not change the outputs, only the cost.
        growth: documented growth of the cost of a mechanism or mixer; see `test_cost.py`.
    """

    cls: type
    required: Callable = dict
    arguments: dict = dataclasses.field(default_factory=dict)
    inputs: Callable = lambda: (tokens(),)
    wrap: Callable = lambda layer: layer
    with_arguments: dict = dataclasses.field(default_factory=dict)
    neutral: frozenset = frozenset()
    growth: Growth = LINEAR

    def make(self, **arguments):
        return self.wrap(self.cls(**{**self.required(), **arguments}))


def tokens(batch_size=2, length=LENGTH, width=WIDTH, seed=0):
    return np.random.default_rng(seed).normal(size=(batch_size, length, width)).astype("float32")


def twice():
    return (tokens(), tokens())


def images():
    return (np.random.default_rng(0).uniform(size=(2, 8, 12, 3)).astype("float32"),)


def attend(key_dim=6, **options):
    """Returns an attention layer with a mechanism, scoring or position under test."""
    return MultiHeadAttention(num_heads=4, key_dim=key_dim, **options)


def feed_forward():
    return feedforward.DenseFeedForward(16, activation="gelu")


# Dropout is reproducible only with a seed, and a seed has no effect without dropout.
_DROPOUT = {"seed": {"dropout": 0.5}, "dropout": {"seed": 7}}

# All regularizers, constraints and initializers.
_PROJECTION = {
    "kernel_initializer": "ones",
    "bias_initializer": "ones",
    "kernel_regularizer": "l2",
    "bias_regularizer": "l1",
    "activity_regularizer": "l2",
    "kernel_constraint": "non_neg",
    "bias_constraint": "non_neg",
}

_ATTENTION = {
    "value_dim": 3,
    "dropout": 0.5,
    "use_bias": False,
    "output_shape": 5,
    "attention_axes": (1,),
    "sliding_window": 2,
    "flash_attention": True,
    **_PROJECTION,
    "use_gate": True,
    "seed": 7,
    "num_key_value_heads": 2,
    "mechanism": keras.saving.serialize_keras_object(SoftmaxAttention(scoring="dot")),
    "position": "rotary",
    "use_key_bias": False,
    "use_value_bias": False,
    "use_output_bias": False,
    "query_key_norm": "rms_norm",
    "context_norm": "layer_norm",
}


def _mechanism(cls, arguments, neutral=(), with_arguments=None, growth=LINEAR, **required):
    """Returns the case of a mechanism in `MultiHeadAttention`; `required` are the arguments of a small one."""
    return Case(
        cls,
        required=lambda: required,
        arguments=arguments,
        neutral=frozenset(neutral),
        with_arguments={**_DROPOUT, **(with_arguments or {})},
        growth=growth,
        inputs=twice,
        wrap=lambda mechanism: attend(mechanism=mechanism),
    )


def shared(seed=0, length=LENGTH):
    """Returns keys or values in the shape of the outputs of `SharedKeyValue`."""
    return np.random.default_rng(seed).normal(size=(2, 2, length, 6)).astype("float32")


@keras.saving.register_keras_serializable(package="cases")
class SharedKeyValueReader(keras.layers.Layer):
    """`SharedKeyValue` with one output tensor: its values, weighted by its keys."""

    def __init__(self, shared, **kwargs):
        super().__init__(**kwargs)
        self.shared = keras.saving.deserialize_keras_object(shared) if isinstance(shared, dict) else shared

    def build(self, inputs_shape):
        self.shared.build(inputs_shape)

    def call(self, inputs):
        key, value = self.shared(inputs)
        weighed = keras.ops.matmul(keras.ops.matmul(key, keras.ops.transpose(key, (0, 1, 3, 2))), value)
        return keras.ops.sum(weighed, axis=1)

    def get_config(self):
        return {**super().get_config(), "shared": serialize(self.shared)}


@keras.saving.register_keras_serializable(package="cases")
class StreamReader(keras.layers.Layer):
    """`TwoStreamAttention` over segments of three tokens, or `QueryStream` with two targets."""

    def __init__(self, part, **kwargs):
        super().__init__(**kwargs)
        self.part = keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part

    def build(self, inputs_shape):
        self.part.build(inputs_shape)

    def call(self, inputs, training=None):
        batch, length = keras.ops.shape(inputs)[:2]
        positions = keras.ops.arange(length, dtype="int32")
        if isinstance(self.part, attention.TwoStreamAttention):
            segments = keras.ops.broadcast_to(keras.ops.expand_dims(positions // 3, 0), (batch, length))
            options = {"segment_ids": segments} if self.part.use_segments else {}
            return self.part(inputs, inputs, training=training, **options)
        visible = keras.ops.broadcast_to(positions[:, None] > positions[None], (batch, length, length))
        mapping = keras.ops.broadcast_to(keras.ops.equal(positions, np.array([[4], [1]])), (batch, 2, length))
        streams = self.part(inputs, inputs[:, :, 0] < 1e9, visible, mapping)
        weights = keras.ops.sum(keras.ops.cast(streams["attention_mask"], inputs.dtype), axis=2, keepdims=True)
        return (streams["inputs"] * weights)[:, :length] + keras.ops.sum(streams["inputs"], axis=1, keepdims=True)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), "part": serialize(self.part)}


@keras.saving.register_keras_serializable(package="cases")
class FirstOutput(keras.layers.Layer):
    """The first output of a `NeighborEncoder`."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = keras.saving.deserialize_keras_object(layer) if isinstance(layer, dict) else layer

    def build(self, inputs_shape, token_ids_shape, neighbor_mask_shape):
        self.layer.build(inputs_shape, token_ids_shape, neighbor_mask_shape)

    def call(self, inputs, token_ids, neighbor_mask, training=None):
        return self.layer(inputs, token_ids, neighbor_mask, training=training)[0]

    def get_config(self):
        return {**super().get_config(), "layer": serialize(self.layer)}


@keras.saving.register_keras_serializable(package="cases")
class BothOutputs(keras.layers.Layer):
    """Tokens and image of a `TwoWayBlock`, one behind the other."""

    def __init__(self, block, **kwargs):
        super().__init__(**kwargs)
        self.block = keras.saving.deserialize_keras_object(block) if isinstance(block, dict) else block

    def build(self, inputs_shape, image_shape, positions_shape, image_positions_shape):
        self.block.build(inputs_shape, image_shape, positions_shape, image_positions_shape)

    def call(self, inputs, image, positions, image_positions, training=None):
        return keras.ops.concatenate(self.block(inputs, image, positions, image_positions, training=training), axis=1)

    def get_config(self):
        return {**super().get_config(), "block": serialize(self.block)}


def neighbors(width=None):
    """Returns two neighbors of four tokens for each of two chunks, as ids or vectors, and their mask."""
    rng = np.random.default_rng(2)
    values = rng.integers(0, 9, (2, 2, 2, 4)).astype("int32") if width is None else rng.normal(size=(2, 2, 8, width))
    return (values if width is None else values.astype("float32")), rng.random((2, 2, 2, 4)) > 0.3


def neighbor_block(**options):
    return blocks.NeighborBlock(attend(), feed_forward(), attend(), **options)


def banded(count):
    """Returns a block layout with a window of blocks and one global block."""
    blocks = np.arange(count)
    return (np.abs(blocks[:, None] - blocks) <= 1) | (blocks == 0)


MECHANISMS = {
    "softmax": Case(
        SoftmaxAttention,
        arguments={"scoring": "dot", "dropout": 0.5, "flash_attention": True, "seed": 7, "use_sinks": True},
        with_arguments=_DROPOUT,
        growth=QUADRATIC,
        inputs=twice,
        wrap=lambda mechanism: attend(mechanism=mechanism),
    ),
    "local": _mechanism(
        attention.LocalAttention,
        arguments={"window": 2, "block_size": 4, "scoring": "dot", "dropout": 0.5, "seed": 7, "use_sinks": True},
        neutral={"block_size"},
        window=3,
    ),
    "streaming": _mechanism(
        attention.StreamingAttention,
        arguments={"window": 2, "num_sinks": 3, "scoring": "dot", "dropout": 0.5, "seed": 7},
        window=3,
        num_sinks=1,
    ),
    "differential": _mechanism(
        attention.DifferentialAttention,
        arguments={
            "lambda_init": 0.3,
            "epsilon": 0.1,
            "scoring": "dot",
            "dropout": 0.5,
            "seed": 7,
            "vector_initializer": "ones",
        },
        growth=QUADRATIC,
    ),
    "chunked": _mechanism(
        attention.ChunkedAttention,
        arguments={
            "chunk_length": 2,
            "chunks_before": 0,
            "chunks_after": 1,
            "scoring": "dot",
            "dropout": 0.5,
            "seed": 7,
            "reads_whole_chunks": True,
        },
        neutral={"reads_whole_chunks"},  # It changes only what a cache does: see test_chunkwise.py.
        chunk_length=3,
    ),
    "longnet": _mechanism(
        attention.LongNetAttention,
        arguments={
            "segment_lengths": [2, 6],
            "dilation_rates": [1, 3],
            "scoring": "dot",
            "mixing_gradient": True,
            "dropout": 0.5,
            "seed": 7,
        },
        neutral={"mixing_gradient"},  # It changes only the gradient.
        segment_lengths=[3, 6],
        dilation_rates=[1, 2],
    ),
    "lsh": _mechanism(
        attention.LSHAttention,
        arguments={
            "num_buckets": 4,
            "chunk_length": 1,
            "num_rounds": 1,
            "attend_across_buckets": True,
            "dropout": 0.5,
            "seed": 7,
            "chunks_before": 2,
            "chunks_after": 1,
        },
        num_buckets=2,
        chunk_length=2,
        num_rounds=2,
    ),
    "clustered": _mechanism(
        attention.ClusteredAttention,
        arguments={"num_clusters": 3, "bits": 3, "iterations": 0, "dropout": 0.5, "seed": 7},
        num_clusters=2,
        bits=6,
        iterations=3,
    ),
    "improved_clustered": _mechanism(
        attention.ImprovedClusteredAttention,
        arguments={
            "num_clusters": 3,
            "bits": 3,
            "iterations": 0,
            "top_k": 1,
            "block_size": 4,
            "dropout": 0.5,
            "seed": 7,
        },
        neutral={"block_size"},
        num_clusters=2,
        bits=6,
        iterations=3,
        top_k=2,
    ),
    "linear": _mechanism(
        attention.LinearAttention,
        arguments={"feature_map": "taylor", "epsilon": 0.1, "chunk_size": 2, "dropout": 0.5, "seed": 7},
        neutral={"chunk_size"},
        chunk_size=3,
    ),
    "performer": _mechanism(
        attention.PerformerAttention,
        arguments={"num_features": 5, "kernel": "relu", "chunk_size": 2, "dropout": 0.5, "seed": 7},
        neutral={"chunk_size"},
        num_features=8,
        chunk_size=3,
    ),
    "linformer": _mechanism(
        attention.LinformerAttention,
        arguments={
            "max_sequence_length": 12,
            "projected_length": 2,
            "sharing": "none",
            "kernel_initializer": "ones",
            "scoring": "dot",
            "dropout": 0.5,
            "seed": 7,
        },
        growth=Growth(arguments=lambda length: {"max_sequence_length": length}),
        max_sequence_length=16,
        projected_length=3,
    ),
    "blockwise": _mechanism(
        attention.BlockwiseAttention,
        arguments={"query_block_size": 3, "block_size": 4, "scale": 0.3, "dropout": 0.5, "seed": 7},
        neutral={"query_block_size", "block_size"},
        growth=Growth(flops=2.0, arguments=lambda length: {"query_block_size": 256, "block_size": 256}),
        query_block_size=2,
        block_size=3,
    ),
    "retrieval": _mechanism(
        attention.RetrievalAttention,
        arguments={"top_k": 2, "block_size": 3, "dropout": 0.5, "seed": 7},
        neutral={"block_size"},
        # The search is exact: every query is scored against every key.
        growth=Growth(flops=2.0, arguments=lambda length: {"block_size": 256}),
        top_k=3,
        block_size=4,
    ),
    "subspace": _mechanism(
        attention.SubspaceAttention,
        arguments={"scoring": "dot", "dropout": 0.5, "seed": 7},
        growth=QUADRATIC,
    ),
    "dilated": _mechanism(
        attention.DilatedAttention,
        arguments={"window": 3, "dilation": 3, "block_size": 4, "scoring": "dot", "dropout": 0.5, "seed": 7},
        neutral={"block_size"},
        window=2,
    ),
    "sparse_strided": _mechanism(
        attention.StridedSparseAttention,
        arguments={"stride": 2, "separate_heads": True, "scoring": "dot", "dropout": 0.5, "seed": 7},
        growth=Growth(1.5, 1.5, lambda length: {"stride": math.isqrt(length) | 1}),
        stride=3,
    ),
    "sparse_fixed": _mechanism(
        attention.FixedSparseAttention,
        arguments={
            "block_size": 4,
            "summary_size": 2,
            "summary_groups": 2,
            "scoring": "dot",
            "dropout": 0.5,
            "seed": 7,
        },
        growth=Growth(1.5, 1.5, lambda length: {"block_size": math.isqrt(length) | 1}),
        block_size=3,
        summary_size=1,
    ),
    "block_sparse": _mechanism(
        attention.BlockSparseAttention,
        arguments={"block_size": 3, "scoring": "dot", "dropout": 0.5, "seed": 7},
        growth=Growth(arguments=lambda length: {"layout": banded(length // 64), "block_size": 64}),
        layout=[[i == j or j == 0 or (i + j) % 3 == 1 for j in range(24)] for i in range(24)],
        block_size=2,
    ),
    "bigbird": _mechanism(
        attention.BigBirdAttention,
        arguments={
            "block_size": 2,
            "num_window_blocks": 5,
            "num_random_blocks": 2,
            "num_first_blocks": 0,
            "num_last_blocks": 0,
            "scoring": "dot",
            "dropout": 0.5,
            "seed": 7,
            "random_seed": 1,
            "as_transformers": True,
        },
        block_size=1,
        num_window_blocks=1,
        num_random_blocks=1,
    ),
    "infini": _mechanism(
        attention.InfiniAttention,
        arguments={
            "segment_length": 2,
            "update": "delta",
            "gate_initializer": "ones",
            "scoring": "dot",
            "dropout": 0.5,
            "seed": 7,
        },
        growth=Growth(arguments=lambda length: {"segment_length": 32}),
        segment_length=3,
    ),
}


def _scoring(cls, **arguments):
    return Case(
        cls,
        arguments=arguments,
        inputs=twice,
        wrap=lambda scoring: attend(mechanism=SoftmaxAttention(scoring=scoring), num_key_value_heads=2),
    )


SCORINGS = {
    "dot": _scoring(attention.Dot),
    "scaled_dot": _scoring(attention.ScaledDot, scale=0.3),
    "soft_capped_dot": _scoring(attention.SoftCappedDot, cap=0.5, scale=0.3),
    "cosine": _scoring(attention.Cosine, temperature=0.5, epsilon=10.0),
    "gaussian": _scoring(attention.Gaussian, width=0.7),
    "bilinear": _scoring(attention.Bilinear, kernel_initializer="ones"),
    "additive": _scoring(attention.Additive, units=5, kernel_initializer="ones"),
    "location": _scoring(attention.Location, max_sequence_length=9, kernel_initializer="ones"),
}


def _position(cls, with_arguments=None, neutral=(), key_dim=6, **arguments):
    return Case(
        cls,
        arguments=arguments,
        neutral=frozenset(neutral),
        with_arguments=with_arguments or {},
        inputs=twice,
        wrap=lambda position: attend(key_dim, position=position, num_key_value_heads=2),
    )


ATTENTION_POSITIONS = {
    "rotary": _position(
        positions.Rotary,
        neutral=["max_sequence_length"],
        max_wavelength=50.0,
        layout="halves",
        rotary_dim=4,
        scaling="linear",
        max_sequence_length=20,
        rotate_values=True,
    ),
    "xpos": _position(positions.XPos, max_wavelength=50.0, scale_base=9.0, center=3, layout="halves"),
    "alibi": _position(positions.ALiBi, symmetric=False, scale=0.5),
    "relative_bias": _position(
        positions.RelativeBias,
        # With many buckets, `max_distance` has no effect on short sequences.
        with_arguments={"max_distance": {"num_buckets": 8}},
        num_buckets=8,
        max_distance=10,
        bidirectional=False,
        initializer="ones",
    ),
    "axial_rotary": _position(positions.AxialRotary, key_dim=8, grid_size=(2, 3), max_wavelength=5.0),
    "grid_rotary": _position(positions.GridRotary, key_dim=10, num_columns=2, features=(4, 2), max_wavelength=5.0),
    "multimodal_rotary": _position(
        positions.MultimodalRotary,
        # Positions that are the same on all axes: sections count only where each has rates of its own.
        with_arguments={"sections": {"restarts_rates": True}},
        sections=(1, 2),
        max_wavelength=5.0,
        restarts_rates=True,
        scaling="linear",
    ),
    "gated_relative_bias": _position(
        positions.GatedRelativeBias,
        key_dim=3,  # The gates read tokens as wide as all queries.
        relative_bias=serialize(positions.RelativeBias(8, 10, initializer="ones")),
    ),
    "relative_grid_bias": _position(positions.RelativeGridBias, grid_size=(2, 3), initializer="ones"),
    "shaw": _position(
        positions.ShawRelative,
        max_distance=2,
        use_values=False,
        scale=0.3,
        initializer="ones",
        clips=False,
        with_arguments={"clips": {"max_distance": 2}},
    ),
    "transformer_xl": _position(
        positions.TransformerXLRelative,
        width=10,
        max_wavelength=50.0,
        scale=0.3,
        kernel_initializer="ones",
        bias_initializer="ones",
    ),
}

EMBEDDING_POSITIONS = {
    "sinusoidal": Case(
        positions.Sinusoidal, arguments={"max_wavelength": 50.0, "layout": "halves", "endpoint": True, "offset": 2}
    ),
    "axial": Case(positions.Axial, arguments={"shape": (3, 5), "widths": (4, 8), "initializer": "ones"}),
    "axial_sinusoidal": Case(positions.AxialSinusoidal, arguments={"num_columns": 3, "max_wavelength": 50.0}),
    "learned": Case(positions.Learned, lambda: {"max_sequence_length": 10}, {"initializer": "ones", "offset": 2}),
}

_FEEDFORWARD = {
    "activation": "gelu_tanh",
    "dropout": 0.5,
    "kernel_initializer": "ones",
    "seed": 7,
}

FEEDFORWARDS = {
    "dense": Case(
        feedforward.DenseFeedForward,
        lambda: {"intermediate_dim": 16},
        arguments={**_FEEDFORWARD, "use_bias": False, "hidden_norm": "rms_norm", "use_output_bias": False},
        with_arguments=_DROPOUT,
    ),
    "gated": Case(
        feedforward.GatedFeedForward,
        lambda: {"intermediate_dim": 16},
        arguments={**_FEEDFORWARD, "use_bias": True, "hidden_norm": "layer_norm", "use_output_bias": True},
        with_arguments=_DROPOUT,
    ),
    "mixture_of_experts": Case(
        feedforward.MixtureOfExperts,
        lambda: {"intermediate_dim": 16},
        arguments={**_FEEDFORWARD, "router": 3, "gated": False, "use_bias": True},
        with_arguments=_DROPOUT,
    ),
}


def _residual(cls, arguments=None, neutral=(), **required):
    return Case(
        cls,
        required=lambda: required,
        arguments={"norm": "rms_norm", "stochastic_depth": 0.5, "seed": 7, **(arguments or {})},
        with_arguments={"seed": {"stochastic_depth": 0.5}, "stochastic_depth": {"seed": 7}},
        neutral=frozenset(neutral),
        wrap=lambda residual: blocks.EncoderBlock(attend(), feed_forward(), residual=residual),
    )


@keras.saving.register_keras_serializable(package="cases")
class Conditioned(keras.layers.Layer):
    """Calls an encoder block with the first features of its first token as the condition."""

    def __init__(self, block, **kwargs):
        super().__init__(**kwargs)
        self.block = block if isinstance(block, keras.layers.Layer) else keras.saving.deserialize_keras_object(block)

    def build(self, input_shape):
        self.block.build(input_shape)

    def call(self, inputs, training=None):
        width = self.block.mixer_residual.condition_dim
        return self.block(inputs, condition=inputs[:, 0, :width], training=training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "block": serialize(self.block)}


RESIDUALS = {
    "pre": _residual(blocks.PreNormResidual),
    "post": _residual(blocks.PostNormResidual),
    "normalized_skip": _residual(blocks.NormalizedSkipResidual, {"alpha": 1.5, "beta": 0.5}),
    "sandwich": _residual(blocks.SandwichNormResidual),
    "sublayer": _residual(blocks.SublayerNormResidual),
    "deepnorm": _residual(blocks.DeepNormResidual, alpha=1.5, beta=0.6),
    "rezero": _residual(blocks.ReZeroResidual, neutral={"norm"}),
    "residual": _residual(blocks.ResiDualResidual),
    "scaled": _residual(blocks.ScaledResidual, {"scale": 0.5}),
    "layer_scale": _residual(blocks.LayerScaleResidual, {"initial_value": 0.5}),
    "gated": _residual(blocks.GatedResidual),
    "ada_ln_zero": dataclasses.replace(
        _residual(blocks.AdaLNZeroResidual, {"condition_dim": 5}),
        wrap=lambda residual: Conditioned(blocks.EncoderBlock(attend(), feed_forward(), residual=residual)),
    ),
    "none": Case(
        blocks.NoResidual,
        arguments={"norm": "rms_norm"},
        wrap=lambda residual: blocks.EncoderBlock(attend(), feed_forward(), residual=residual),
    ),
}


def _mixer(cls, arguments, growth=LINEAR, **required):
    """Returns the case of a mixer with projections; `required` are the arguments of a small one."""
    return Case(
        cls,
        lambda: {name: value() if callable(value) else value for name, value in required.items()},
        arguments=arguments,
        with_arguments=_DROPOUT,
        inputs=twice,
        growth=growth,
    )


_GATED = {
    "intermediate_dim": 10,
    "key_dim": 4,
    "position": "rotary",
    "dropout": 0.5,
    "kernel_initializer": "ones",
    "seed": 7,
}
_CONVOLUTION = {"kernel_size": 4, "gated": False, "dropout": 0.5, "kernel_initializer": "ones", "seed": 7}


def _usual_sparse_blocks(length):
    """Returns sizes of native sparse attention that are not tiny, so that the blocks cost little beside their tokens."""
    sizes = {"compression_length": 32, "compression_stride": 16, "block_size": 32, "window": 64}
    return sizes | {"num_blocks": 4, "num_local_blocks": 2}


MIXER_LAYERS = {
    "gated_attention_unit": _mixer(
        attention.GatedAttentionUnit,
        {**_GATED, "attention_function": "laplace"},
        growth=QUADRATIC,
        key_dim=6,
        position="relative_bias",
    ),
    "mixed_chunk": _mixer(
        attention.MixedChunkAttention,
        {**_GATED, "group_size": 2},
        key_dim=6,
        group_size=3,
        position="relative_bias",
    ),
    "lightweight_convolution": _mixer(attention.LightweightConvolution, _CONVOLUTION, num_heads=4, kernel_size=3),
    "dynamic_convolution": _mixer(
        attention.DynamicConvolution, {**_CONVOLUTION, "use_filter_bias": True}, num_heads=4, kernel_size=3
    ),
    "long_short_range": _mixer(
        attention.LongShortRangeAttention,
        {"attention_dim": 4},
        attention=lambda: MultiHeadAttention(num_heads=2, key_dim=3, mechanism="linear"),
        convolution=lambda: attention.LightweightConvolution(num_heads=2, kernel_size=3),
    ),
    "branched_convolution": _mixer(
        attention.BranchedConvolution,
        {"norm": "rms_norm", "dropout": 0.5, "seed": 7},
        wide=lambda: keras.layers.SeparableConv1D(10, 4, activation="relu"),
        narrow=lambda: keras.layers.Conv1D(6, 3),
        output=lambda: keras.layers.SeparableConv1D(8, 3),
    ),
    "segment_recurrent": _mixer(
        attention.SegmentRecurrentAttention,
        {
            "same_length": True,
            "position": "rotary",
            "dropout": 0.5,
            "use_bias": False,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        num_heads=4,
        key_dim=6,
        segment_length=3,
        memory_length=2,
    ),
    "disentangled": Case(
        attention.DisentangledAttention,
        lambda: {"num_heads": 4, "key_dim": 6, "relative_embedding": positions.RelativeEmbedding(5, num_buckets=4)},
        arguments={
            "relative_embedding": keras.saving.serialize_keras_object(
                positions.RelativeEmbedding(3, norm="layer_norm", initializer="ones")
            ),
            "terms": ["p2c"],
            "share_projections": True,
            "dropout": 0.5,
            "position_dropout": 0.5,
            "use_bias": False,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        with_arguments={**_DROPOUT, "position_dropout": {"seed": 7}},
        growth=QUADRATIC,
        inputs=twice,
    ),
    "longformer": Case(
        attention.LongformerAttention,
        lambda: {"num_heads": 4, "key_dim": 6, "attention_window": 4, "num_global_tokens": 1},
        arguments={
            "attention_window": 2,
            "dilation": [1, 2, 1, 2],
            "num_global_tokens": 2,
            "max_global_tokens": 3,
            "position": "rotary",
            "dropout": 0.5,
            "use_bias": False,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        with_arguments=_DROPOUT,
        inputs=twice,
        neutral=frozenset({"max_global_tokens"}),  # Only the capacity for a mask argument.
    ),
    "multi_head_latent": Case(
        attention.MultiHeadLatentAttention,
        lambda: {"num_heads": 4, "latent_dim": 5, "key_dim": 6, "rotary_dim": 2},
        arguments={
            "value_dim": 3,
            "query_latent_dim": 7,
            "scale": 0.3,
            "mechanism": keras.saving.serialize_keras_object(SoftmaxAttention(use_sinks=True)),
            "position": "xpos",
            "use_bias": True,
            "kernel_initializer": "ones",
        },
        growth=QUADRATIC,
        inputs=twice,
    ),
    "native_sparse": Case(
        attention.NativeSparseAttention,
        lambda: {
            "num_heads": 4,
            "key_dim": 6,
            "num_key_value_heads": 2,
            "compression_length": 2,
            "compression_stride": 1,
            "block_size": 2,
            "num_blocks": 3,
            "num_local_blocks": 1,
            "window": 2,
        },
        arguments={
            "value_dim": 3,
            "num_key_value_heads": 1,
            "compression_length": 3,
            "compression_stride": 2,
            "block_size": 4,
            "num_blocks": 2,
            "num_local_blocks": 3,
            "window": 3,
            "position": "xpos",
            "kernel_initializer": "ones",
        },
        with_arguments={"num_local_blocks": {"num_blocks": 4}},
        growth=Growth(memory=1, flops=2, arguments=_usual_sparse_blocks),
        inputs=twice,
    ),
    "multi_head": Case(
        MultiHeadAttention,
        lambda: {"num_heads": 4, "key_dim": 6},
        arguments=_ATTENTION,
        with_arguments=_DROPOUT,
        growth=QUADRATIC,
        inputs=twice,
    ),
}


# Chunks of a usual size, so that the state between chunks costs little.
_IN_CHUNKS = Growth(arguments=lambda length: {"chunk_size": 32})


def _state_space(cls, **arguments):
    return Case(
        cls,
        lambda: {"state_dim": 4, "chunk_size": 3},
        arguments={
            "state_dim": 6,
            "min_step": 0.02,
            "max_step": 0.5,
            "chunk_size": 2,
            "activation": "gelu_tanh",
            "kernel_initializer": "ones",
            "seed": 7,
            "channels": 2,
            **arguments,
        },
        # Cost, and random initial weights; test_s4.py tests the initialization.
        neutral=frozenset({"chunk_size", "min_step", "max_step", "seed"}),
        growth=_IN_CHUNKS,
        inputs=twice,
    )


# The index of the layer determines the initial weights; test_time_mixing.py tests them.
_DEPTH = {"layer_index": {"num_layers": 3}}
_STARTS = frozenset({"chunk_size", "layer_index", "num_layers"})


@keras.saving.register_keras_serializable()
class _WithFirstValue(keras.layers.Layer):
    """Calls a layer of RWKV-7 with the tokens as the value of the first layer."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = keras.saving.deserialize_keras_object(layer) if isinstance(layer, dict) else layer

    def get_config(self):
        return {**super().get_config(), "layer": keras.saving.serialize_keras_object(self.layer)}

    def call(self, query, value):
        return self.layer(query, value, first_value=query)


RECURRENCES = {
    "retention": Case(
        recurrence.MultiScaleRetention,
        lambda: {"num_heads": 2, "key_dim": 4, "chunk_size": 3},
        arguments={
            "value_dim": 3,
            "chunk_size": 2,
            "activation": "gelu_tanh",
            "max_wavelength": 50.0,
            "epsilon": 0.5,
            "use_bias": True,
            "kernel_initializer": "ones",
        },
        neutral=frozenset({"chunk_size"}),
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "gated_retention": Case(
        recurrence.GatedRetention,
        lambda: {"num_heads": 2, "key_dim": 4, "chunk_size": 3},
        arguments={
            "value_dim": 3,
            "chunk_size": 2,
            "activation": "gelu_tanh",
            "max_wavelength": 50.0,
            "epsilon": 0.5,
            "use_bias": True,
            "kernel_initializer": "ones",
            "temperature": 2.0,
        },
        neutral=frozenset({"chunk_size"}),
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "gated_delta_net": Case(
        recurrence.GatedDeltaNet,
        lambda: {"num_heads": 2, "key_dim": 4, "chunk_size": 3},
        arguments={
            "value_dim": 3,
            "num_key_heads": 1,
            "kernel_size": 2,
            "chunk_size": 2,
            "use_decay": False,
            "use_gate": False,
            "activation": "gelu_tanh",
            "epsilon": 0.5,
            "kernel_initializer": "ones",
        },
        neutral=frozenset({"chunk_size"}),
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "lightning_attention": Case(
        recurrence.LightningAttention,
        lambda: {"num_heads": 2, "key_dim": 4, "chunk_size": 3},
        arguments={
            "value_dim": 3,
            "layer_index": 1,
            "num_layers": 3,
            "chunk_size": 2,
            "activation": "gelu_tanh",
            "epsilon": 0.5,
            "kernel_initializer": "ones",
        },
        with_arguments={**_DEPTH, "num_layers": {"layer_index": 1}},
        neutral=frozenset({"chunk_size"}),
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "kimi_delta_attention": Case(
        recurrence.KimiDeltaAttention,
        lambda: {"num_heads": 2, "key_dim": 4, "chunk_size": 3},
        arguments={
            "value_dim": 3,
            "gate_rank": 5,
            "kernel_size": 2,
            "chunk_size": 2,
            "activation": "gelu_tanh",
            "epsilon": 0.5,
            "kernel_initializer": "ones",
        },
        neutral=frozenset({"chunk_size"}),
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "rwkv7_time_mixing": Case(
        recurrence.RWKV7TimeMixing,
        lambda: {"num_heads": 2, "chunk_size": 3},
        arguments={
            "decay_rank": 3,
            "rate_rank": 4,
            "gate_rank": 5,
            "value_rank": 2,
            "layer_index": 1,
            "num_layers": 3,
            "chunk_size": 2,
            "epsilon": 0.5,
            "kernel_initializer": "ones",
        },
        with_arguments=_DEPTH,
        wrap=lambda layer: layer if layer.value_rank is None else _WithFirstValue(layer),
        neutral=_STARTS,
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "mamba2": Case(
        recurrence.Mamba2,
        lambda: {"num_heads": 2, "head_dim": 4, "chunk_size": 3},
        arguments={
            "state_dim": 5,
            "num_groups": 2,
            "kernel_size": 2,
            "chunk_size": 2,
            "use_bias": True,
            "use_convolution_bias": False,
            "activation": "gelu_tanh",
            "epsilon": 0.5,
            "kernel_initializer": "ones",
        },
        neutral=frozenset({"chunk_size"}),
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "time_mixing": Case(
        recurrence.TimeMixing,
        lambda: {"chunk_size": 3},
        arguments={
            "channels": 5,
            "layer_index": 1,
            "num_layers": 3,
            "chunk_size": 2,
            "kernel_initializer": "ones",
        },
        with_arguments=_DEPTH,
        neutral=_STARTS,
        growth=_IN_CHUNKS,
        inputs=twice,
    ),
    "channel_mixing": Case(
        recurrence.ChannelMixing,
        lambda: {"intermediate_dim": 16},
        arguments={"layer_index": 1, "num_layers": 3, "kernel_initializer": "ones", "use_receptance": False},
        with_arguments=_DEPTH,
        neutral=_STARTS,
        inputs=twice,
    ),
    "s4d": _state_space(recurrence.S4D, discretization="bilinear"),
    "s4": _state_space(recurrence.S4),
}

_BLOCK = {"residual": "sandwich", "norm": "rms_norm", "dropout": 0.5, "seed": 7}

LAYERS = {
    "encoder_block": Case(
        blocks.EncoderBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward()},
        arguments={**_BLOCK, "mixer_residual": "post", "recompute": True},
        neutral=frozenset({"recompute"}),
        with_arguments=_DROPOUT,
    ),
    "streaming_encoder_block": Case(
        blocks.StreamingEncoderBlock,
        lambda: {
            "mixer": attend(mechanism=attention.ChunkedAttention(2, reads_whole_chunks=True)),
            "feedforward": feed_forward(),
        },
        arguments={**_BLOCK, "mixer_residual": "post", "recompute": True},
        neutral=frozenset({"recompute"}),
        with_arguments=_DROPOUT,
    ),
    "conformer_block": Case(
        blocks.ConformerBlock,
        lambda: {
            "mixer": attend(),
            "convolution": audio.ConformerConvolution(3),
            "first_feedforward": feed_forward(),
            "feedforward": feed_forward(),
        },
        arguments={"norm": "rms_norm", "dropout": 0.5, "seed": 7, "recompute": True},
        neutral=frozenset({"recompute"}),
        with_arguments=_DROPOUT,
    ),
    "conformer_convolution": Case(
        audio.ConformerConvolution,
        arguments={"kernel_size": 3, "activation": "relu", "use_bias": False},
        neutral=frozenset({"use_bias"}),  # Zeros at first.
    ),
    "depth_separable_convolutions": Case(
        audio.DepthSeparableConvolutions,
        arguments={"num_layers": 2, "kernel_size": 5, "dropout": 0.5, "seed": 7},
        with_arguments=_DROPOUT,
    ),
    "affine_flow": Case(audio.AffineFlow),
    "convolution_flow": Case(
        audio.ConvolutionFlow,
        lambda: {"convolutions": audio.DepthSeparableConvolutions(1), "num_bins": 3},
        arguments={"bound": 1.5},
        inputs=lambda: (tokens(width=2), tokens(seed=1)),
    ),
    "duration_predictor": Case(
        audio.DurationPredictor,
        lambda: {"hidden_dim": 6},
        arguments={"kernel_size": 5, "dropout": 0.5, "layer_norm_epsilon": 0.1, "seed": 7},
        with_arguments=_DROPOUT,
    ),
    "stochastic_duration_predictor": Case(
        audio.StochasticDurationPredictor,
        lambda: {"flow": audio.ConvolutionFlow(audio.DepthSeparableConvolutions(1), num_bins=3, bound=2.0)},
        arguments={"num_flows": 1, "noise_scale": 0.5, "dropout": 0.5, "seed": 7},
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), tokens(width=2, seed=1)),
    ),
    "wave_net": Case(
        audio.WaveNet,
        lambda: {"num_layers": 2},
        arguments={"kernel_size": 3, "dilation_rate": 2, "dropout": 0.5, "seed": 7},
        with_arguments=_DROPOUT,
    ),
    "coupling_flow": Case(
        audio.CouplingFlow,
        lambda: {"wave_net": audio.WaveNet(2, 3)},
        arguments={"hidden_dim": 6},
    ),
    "hifi_gan": Case(
        audio.HiFiGAN,
        # Of few channels: with many, large weights drive the samples to the ends of tanh.
        lambda: {"hidden_dim": 4, "strides": (3,), "kernel_sizes": (5,), "block_kernel_sizes": (3, 1)},
        arguments={"block_dilation_rates": ((1,), (2,)), "negative_slope": 0.3},
    ),
    "decoder_block": Case(
        blocks.DecoderBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward()},
        arguments={**_BLOCK, "recompute": True},
        neutral=frozenset({"recompute"}),
        with_arguments=_DROPOUT,
    ),
    "decoder_block_with_cross_attention": Case(
        blocks.DecoderBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward(), "cross_attention": attend()},
        arguments={**_BLOCK, "recompute": True},
        neutral=frozenset({"recompute"}),
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), tokens(length=5, seed=1)),
    ),
    "parallel_decoder_block": Case(
        blocks.ParallelDecoderBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward()},
        arguments={"shared_norm": True, "norm": "rms_norm", "dropout": 0.5, "seed": 7, "recompute": True},
        neutral=frozenset({"recompute"}),
        with_arguments=_DROPOUT,
    ),
    "shared_expert_mixture": Case(
        feedforward.SharedExpertMixture,
        lambda: {"experts": feedforward.MixtureOfExperts(16, router=3), "shared": 12},
        arguments={"use_gate": False},
    ),
    "group_limited_router": Case(
        feedforward.GroupLimitedRouter,
        lambda: {"num_experts": 8},
        arguments={
            "top_k": 3,
            "num_groups": 4,
            "top_groups": 2,
            "activation": "softmax",
            "scale": 1.5,
            "normalize": False,
            "bias_update_rate": 0.1,
            "load_balancing_weight": 0.5,
            "kernel_initializer": "ones",
        },
        with_arguments={"top_groups": {"num_groups": 4}},
        neutral=frozenset({"bias_update_rate"}),  # It acts on the next call: see test_group_limited_router.py.
        wrap=lambda router: feedforward.MixtureOfExperts(16, router=router),
    ),
    "top_k_router": Case(
        feedforward.TopKRouter,
        lambda: {"num_experts": 4},
        arguments={
            "top_k": 1,
            "capacity_factor": 0.5,
            "jitter": 0.3,
            "load_balancing_weight": 0.5,
            "z_weight": 0.1,
            "kernel_initializer": "ones",
            "seed": 7,
            "normalize": False,
            "use_bias": True,
        },
        with_arguments={"seed": {"jitter": 0.3}, "jitter": {"seed": 7}},
        wrap=lambda router: feedforward.MixtureOfExperts(16, router=router),
    ),
    "bit_dense": Case(
        feedforward.BitDense,
        lambda: {"units": WIDTH},
        arguments={"activation": "gelu", "use_bias": True, "kernel_initializer": "ones"},
    ),
    "shared_key_value": Case(
        attention.SharedKeyValue,
        lambda: {"num_heads": 2, "key_dim": 4},
        arguments={
            "value_dim": 3,
            "position": "rotary",
            "use_bias": False,
            "kernel_initializer": "ones",
            "key_norm": "rms_norm",
            "value_norm_epsilon": 0.01,
        },
        wrap=SharedKeyValueReader,
    ),
    "cross_decoder_attention": Case(
        attention.CrossDecoderAttention,
        lambda: {"num_heads": 4, "key_dim": 6},
        arguments={
            "position": "rotary",
            "dropout": 0.5,
            "use_bias": False,
            "kernel_initializer": "ones",
            "seed": 7,
            "window": 2,
            "scoring": "dot",
            "query_norm": "rms_norm",
        },
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), shared(), shared(1)),
    ),
    "cross_decoder_block": Case(
        blocks.CrossDecoderBlock,
        lambda: {"attention": attention.CrossDecoderAttention(4, 6), "feedforward": feed_forward()},
        arguments={**_BLOCK, "recompute": True},
        neutral=frozenset({"recompute"}),
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), shared(), shared(1)),
    ),
    "chunked_cross_attention": Case(
        attention.ChunkedCrossAttention,
        lambda: {"attention": attend(), "chunk_size": 3},
        arguments={"chunk_size": 2},
        inputs=lambda: (tokens(), *neighbors(width=5)),
    ),
    "chunked_cross_block": Case(
        blocks.ChunkedCrossBlock,
        lambda: {"attention": attention.ChunkedCrossAttention(attend(), 3), "feedforward": feed_forward()},
        arguments={**_BLOCK, "recompute": True},
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), *neighbors(width=5)),
        neutral=frozenset({"recompute"}),
    ),
    "neighbor_block": Case(
        blocks.NeighborBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward(), "cross_attention": attend()},
        arguments={**_BLOCK, "recompute": True},
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(length=8), tokens(length=3, seed=1), neighbors()[1][0]),
        neutral=frozenset({"recompute"}),
    ),
    "neighbor_encoder": Case(
        blocks.NeighborEncoder,
        lambda: {"vocabulary_size": 9, "hidden_dim": 10, "blocks": [neighbor_block()], "chunk_size": 3},
        arguments={
            "chunk_size": 2,
            "norm": keras.saving.serialize_keras_object(keras.layers.RMSNormalization()),
            "dropout": 0.5,
            "seed": 7,
        },
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), *neighbors()),
        wrap=FirstOutput,
    ),
    "memory_stack": Case(
        blocks.MemoryStack,
        lambda: {
            # Not scaled dot scores: the fused kernel of JAX does not support float16 inside a loop on CPUs.
            "blocks": [blocks.DecoderBlock(attend(mechanism=SoftmaxAttention(scoring="dot")), feed_forward())],
            "num_memory_tokens": 2,
            "segment_length": 3,
        },
        arguments={
            "gradient_segments": 1,
            "norm": keras.saving.serialize_keras_object(keras.layers.RMSNormalization()),
            "learned_positions": False,
            "dropout": 0.5,
            "initializer": "ones",
            "seed": 7,
        },
        with_arguments=_DROPOUT,
        neutral=frozenset({"gradient_segments"}),  # It changes only the gradient.
    ),
    "kernel_pooling": Case(
        attention.KernelPooling,
        arguments={
            "kernel": "triangular",
            "width": 3.0,
            "learn_width": True,
            "per_feature": True,
            "leave_one_out": True,
        },
        with_arguments={"per_feature": {"learn_width": True}},
        inputs=lambda: (tokens(), tokens(length=5, seed=1), tokens(length=5, width=4, seed=2)),
    ),
    "shifted_window_attention": Case(
        attention.ShiftedWindowAttention,
        lambda: {"num_heads": 2, "key_dim": 4, "grid_size": (5, 4), "window_size": 3},
        arguments={
            "window_size": 2,
            "shifted": True,
            "dropout": 0.5,
            "use_bias": False,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(length=20), tokens(length=20)),
    ),
    "window_attention": Case(
        attention.WindowAttention,
        lambda: {"num_heads": 2, "key_dim": 4, "grid_size": (5, 4)},
        arguments={
            "window_size": 3,
            "use_positions": False,
            "dropout": 0.5,
            "use_bias": False,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(length=20), tokens(length=20)),
    ),
    "two_way_block": Case(
        blocks.TwoWayBlock,
        lambda: {
            "self_attention": attend(),
            "cross_attention": attend(key_dim=2),
            "feedforward": feed_forward(),
            "image_attention": attend(key_dim=3),
        },
        arguments={"norm": "rms_norm", "is_first": True},
        wrap=BothOutputs,
        inputs=lambda: (tokens(), tokens(length=5, seed=1), tokens(seed=2), tokens(length=5, seed=3)),
    ),
    "random_fourier_positions": Case(
        vision.RandomFourierPositions,
        lambda: {"hidden_dim": 8},
        arguments={"initializer": "ones"},
        inputs=lambda: (tokens(width=2),),
    ),
    "output_tokens": Case(vision.OutputTokens, lambda: {"num_tokens": 3}),
    "point_embedding": Case(
        vision.PointEmbedding,
        inputs=lambda: (tokens(), np.array([[0, 1, 2, 3, -1, -10, 1], [3, 2, 1, 0, -1, -1, 4]], "int32")),
    ),
    "mask_embedding": Case(
        vision.MaskEmbedding,
        lambda: {},
        arguments={"channels": 8, "activation": "relu", "layer_norm_epsilon": 0.5},
        inputs=lambda: (
            tokens(length=30, width=4).reshape(2, 3, 5, 8),
            tokens(length=3, width=240).reshape(2, 3, 12, 20),
            np.array([[True, False, True], [False, True, True]]),
        ),
    ),
    "spatial_reduction_attention": Case(
        attention.SpatialReductionAttention,
        lambda: {"num_heads": 2, "key_dim": 4},
        arguments={
            "reduction_ratio": 2,
            "dropout": 0.5,
            "use_bias": False,
            "layer_norm_epsilon": 0.5,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        with_arguments={**_DROPOUT, "layer_norm_epsilon": {"reduction_ratio": 2}},
        inputs=lambda: images() * 2,
    ),
    "positioned_attention": Case(
        attention.PositionedAttention,
        lambda: {"num_heads": 2, "key_dim": 4},
        arguments={"dropout": 0.5, "use_bias": False, "kernel_initializer": "ones", "seed": 7},
        with_arguments=_DROPOUT,
        inputs=twice,
    ),
    "query_decoder_block": Case(
        blocks.QueryDecoderBlock,
        lambda: {"mixer": attend(), "cross_attention": attend(), "feedforward": feed_forward()},
        arguments={**_BLOCK, "recompute": True, "residual": "pre", "cross_residual": "sandwich"},
        with_arguments=_DROPOUT,
        neutral=frozenset({"recompute"}),
        inputs=lambda: (tokens(), tokens(length=5, seed=1)),
    ),
    "object_queries": Case(vision.ObjectQueries, arguments={"num_queries": 3}),
    "sine_positions": Case(
        vision.SinePositions, lambda: {"hidden_dim": 8}, arguments={"max_wavelength": 50.0}, inputs=images
    ),
    "sinusoidal_grid": Case(
        vision.SinusoidalGrid, lambda: {"hidden_dim": 8}, arguments={"max_wavelength": 50.0}, inputs=images
    ),
    "upsample_like": Case(vision.UpsampleLike, inputs=lambda: (images()[0], np.zeros((2, 15, 23, 5), "float32"))),
    "to_grid": Case(vision.ToGrid, inputs=lambda: (tokens(length=6), np.zeros((2, 2, 3, 5), "float32"))),
    "box_refinement": Case(vision.BoxRefinement, inputs=lambda: (tokens(), np.full((2, LENGTH, 4), 0.3, "float32"))),
    "learnable_affine": Case(LearnableAffine),
    "convolutional_feed_forward": Case(
        feedforward.ConvolutionalFeedForward,
        lambda: {"intermediate_dim": 6},
        arguments={"kernel_size": 4, "activation": "gelu", "dropout": 0.5, "seed": 7},
        with_arguments=_DROPOUT,
    ),
    "mix_feed_forward": Case(
        feedforward.MixFeedForward,
        lambda: {"intermediate_dim": 6},
        arguments={"kernel_size": 5, "activation": "relu", "dropout": 0.5, "kernel_initializer": "ones", "seed": 7},
        with_arguments=_DROPOUT,
        inputs=images,
    ),
    "resize_like": Case(vision.ResizeLike, inputs=lambda: (*images(), tokens(length=5))),
    "gated_linear_unit": Case(feedforward.GatedLinearUnit, arguments={"use_bias": False, "kernel_initializer": "ones"}),
    "branched_encoder_block": Case(
        blocks.BranchedEncoderBlock,
        lambda: {"gate": feed_forward(), "convolution": attend()},
        arguments={**_BLOCK, "recompute": True},
        with_arguments=_DROPOUT,
        neutral=frozenset({"recompute"}),
    ),
    "branched_decoder_block": Case(
        blocks.BranchedDecoderBlock,
        lambda: {"mixer": attend(), "cross_attention": attend(), "convolution": attend()},
        arguments={**_BLOCK, "recompute": True},
        with_arguments=_DROPOUT,
        neutral=frozenset({"recompute"}),
        inputs=lambda: (tokens(), tokens(length=5, seed=1)),
    ),
    "relative_embedding": Case(
        positions.RelativeEmbedding,
        arguments={"max_distance": 5, "num_buckets": 4, "norm": "rms_norm", "initializer": "ones"},
        with_arguments={"num_buckets": {"max_distance": 5}},
        inputs=twice,
        wrap=lambda embedding: attention.DisentangledAttention(4, 6, embedding),
    ),
    "ngram_induced_encoding": Case(
        blocks.NGramInducedEncoding,
        arguments={
            "kernel_size": 5,
            "groups": 3,
            "activation": "gelu_tanh",
            "norm": "rms_norm",
            "dropout": 0.5,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), tokens(seed=1)),
    ),
    "involution": Case(
        vision.Involution,
        lambda: {"group_channels": 4, "reduction_ratio": 2},
        arguments={
            "kernel_size": 3,
            "strides": 2,
            "group_channels": 2,
            "reduction_ratio": 1,
            "epsilon": 0.5,
            "momentum": 0.5,
            "kernel_initializer": "ones",
        },
        neutral=frozenset({"momentum"}),  # Of statistics used by later calls.
        inputs=lambda: (images()[0] @ np.ones((3, 12), "float32") * np.linspace(0.5, 1, 12, dtype="float32"),),
    ),
    "ista": Case(
        feedforward.ISTA,
        arguments={"step_size": 0.5, "sparsity_weight": 0.3, "kernel_initializer": "ones"},
    ),
    "two_stream_attention": Case(
        attention.TwoStreamAttention,
        lambda: {"num_heads": 2, "key_dim": 6},
        arguments={
            "causal": True,
            "use_segments": False,
            "position": "rotary",
            "dropout": 0.5,
            "use_bias": True,
            "kernel_initializer": "ones",
            "seed": 7,
        },
        with_arguments=_DROPOUT,
        wrap=StreamReader,
    ),
    "query_stream": Case(blocks.QueryStream, arguments={"initializer": "ones"}, wrap=StreamReader),
    "reversible_block": Case(
        blocks.ReversibleBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward()},
        arguments={"causal": True, "norm": "rms_norm", "dropout": 0.5, "seed": 7},
        with_arguments=_DROPOUT,
        wrap=lambda block: blocks.ReversibleStack([block]),
    ),
    "reversible_stack": Case(
        blocks.ReversibleStack,
        lambda: {"blocks": [blocks.ReversibleBlock(attend(), feed_forward()) for _ in range(2)]},
        arguments={"reversible": False},
        neutral=frozenset({"reversible"}),
    ),
    "zero_centered_rms_norm": Case(ZeroCenteredRMSNormalization, arguments={"epsilon": 0.5}),
    "patch_merging": Case(
        vision.PatchMerging,
        lambda: {"grid_size": (5, 4)},
        arguments={"epsilon": 0.5},
        inputs=lambda: (tokens(length=20),),
    ),
    "convnext_block": Case(
        vision.ConvNeXtBlock,
        arguments={
            "kernel_size": 3,
            "expansion": 2,
            "activation": "relu",
            "layer_scale": 0.5,
            "stochastic_depth": 0.5,
            "layer_norm_epsilon": 0.5,
            "seed": 7,
        },
        with_arguments={"seed": {"stochastic_depth": 0.5}, "stochastic_depth": {"seed": 7}},
        inputs=images,
    ),
    "patch_embedding": Case(
        vision.PatchEmbedding,
        lambda: {"hidden_dim": WIDTH, "patch_size": 4},
        arguments={
            "patch_size": 2,
            "grid_size": (4, 2),
            "class_token": False,
            "dropout": 0.5,
            "interpolation": "bicubic",
            "seed": 7,
            "distillation_token": True,
            "num_register_tokens": 2,
            "mask_token": True,
            "use_bias": False,
            "norm": "rms_norm",
        },
        with_arguments={
            **_DROPOUT,
            "interpolation": {"grid_size": (5, 5)},
        },
        inputs=images,
    ),
}

ALL = {
    **{f"mechanism-{name}": case for name, case in MECHANISMS.items()},
    **{f"scoring-{name}": case for name, case in SCORINGS.items()},
    **{f"attention-position-{name}": case for name, case in ATTENTION_POSITIONS.items()},
    **{f"embedding-position-{name}": case for name, case in EMBEDDING_POSITIONS.items()},
    **{f"feedforward-{name}": case for name, case in FEEDFORWARDS.items()},
    **{f"residual-{name}": case for name, case in RESIDUALS.items()},
    **{f"mixer-{name}": case for name, case in MIXER_LAYERS.items()},
    **{f"recurrence-{name}": case for name, case in RECURRENCES.items()},
    **{f"layer-{name}": case for name, case in LAYERS.items()},
}

# Token mixers: the tests of masks and caches run on each.
MIXERS = {
    name: ALL[name]
    for name in ALL
    if name.startswith(("mechanism-", "mixer-", "scoring-", "attention-position-", "recurrence-"))
}


def _groups(size=6):
    """Returns groups of mixers exported in one graph, each with a cache. Recurrences have graphs of their own."""
    kinds = {}
    for name in MIXERS:
        kind = name if name.startswith("recurrence-") else name.split("-")[0]
        kinds.setdefault(kind, []).append(name)
    parts = [names[i : i + size] for names in kinds.values() for i in range(0, len(names), size)]
    return [{name: MIXERS[name] for name in part} for part in parts]


GROUPS = _groups()
