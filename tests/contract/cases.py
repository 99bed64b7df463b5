"""One small case for each variant. To add a variant, add its line here; the contract tests do the rest.

A case says how to make the layer, what to call it with, and a non-default value for each constructor argument.
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

from keras_transformer import attention, blocks, feedforward, positions, vision
from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention

WIDTH = 12
LENGTH = 7


@dataclasses.dataclass(frozen=True)
class Case:
    """How to make a layer, and what to call it with.

    Attributes:
        cls: the class under test.
        required: gives the required constructor arguments.
        arguments: every other constructor argument, with a value that is not its default.
        inputs: the arrays that the layer is called with.
        wrap: puts the object under test into a layer that can be called with the inputs.
        with_arguments: for an argument that acts only together with others: the others.
        neutral: arguments that change the cost alone, not what is computed.
    """

    cls: type
    required: Callable = dict
    arguments: dict = dataclasses.field(default_factory=dict)
    inputs: Callable = lambda: (tokens(),)
    wrap: Callable = lambda layer: layer
    with_arguments: dict = dataclasses.field(default_factory=dict)
    neutral: frozenset = frozenset()

    def make(self, **arguments):
        return self.wrap(self.cls(**{**self.required(), **arguments}))


def tokens(batch_size=2, length=LENGTH, width=WIDTH, seed=0):
    return np.random.default_rng(seed).normal(size=(batch_size, length, width)).astype("float32")


def twice():
    return (tokens(), tokens())


def images():
    return (np.random.default_rng(0).uniform(size=(2, 8, 12, 3)).astype("float32"),)


def attend(**options):
    """Attention around a mechanism, scoring or position under test."""
    return MultiHeadAttention(num_heads=4, key_dim=6, **options)


def feed_forward():
    return feedforward.DenseFeedForward(16, activation="gelu")


# A dropout is drawn alike twice only from a seed, and a seed without a dropout does nothing.
_DROPOUT = {"seed": {"dropout": 0.5}, "dropout": {"seed": 7}}

# Every argument of a regulariser, constraint or initialiser kind.
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
}


def _mechanism(cls, arguments, neutral=(), with_arguments=None, **required):
    """A mechanism inside `MultiHeadAttention`; `required` are the arguments of a small one."""
    return Case(
        cls,
        required=lambda: required,
        arguments=arguments,
        neutral=frozenset(neutral),
        with_arguments={**_DROPOUT, **(with_arguments or {})},
        inputs=twice,
        wrap=lambda mechanism: attend(mechanism=mechanism),
    )


MECHANISMS = {
    "softmax": Case(
        SoftmaxAttention,
        arguments={"scoring": "dot", "dropout": 0.5, "flash_attention": True, "seed": 7},
        with_arguments=_DROPOUT,
        inputs=twice,
        wrap=lambda mechanism: attend(mechanism=mechanism),
    ),
    "local": _mechanism(
        attention.LocalAttention,
        arguments={"window": 2, "block_size": 4, "scoring": "dot", "dropout": 0.5, "seed": 7},
        neutral={"block_size"},
        window=3,
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
    "cosine": _scoring(attention.Cosine, temperature=0.5, epsilon=10.0),
    "bilinear": _scoring(attention.Bilinear, kernel_initializer="ones"),
    "additive": _scoring(attention.Additive, units=5, kernel_initializer="ones"),
    "location": _scoring(attention.Location, max_sequence_length=9, kernel_initializer="ones"),
}

ATTENTION_POSITIONS = {
    "rotary": Case(
        positions.Rotary,
        arguments={"max_wavelength": 50.0, "layout": "halves", "rotary_dim": 4},
        inputs=twice,
        wrap=lambda position: attend(position=position, num_key_value_heads=2),
    ),
}

EMBEDDING_POSITIONS = {
    "sinusoidal": Case(positions.Sinusoidal, arguments={"max_wavelength": 50.0, "layout": "halves"}),
    "learned": Case(positions.Learned, lambda: {"max_sequence_length": 10}, arguments={"initializer": "ones"}),
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
        arguments={**_FEEDFORWARD, "use_bias": False},
        with_arguments=_DROPOUT,
    ),
    "gated": Case(
        feedforward.GatedFeedForward,
        lambda: {"intermediate_dim": 16},
        arguments={**_FEEDFORWARD, "use_bias": True},
        with_arguments=_DROPOUT,
    ),
}


def _residual(cls):
    return Case(
        cls,
        arguments={"norm": "rms_norm"},
        wrap=lambda residual: blocks.EncoderBlock(attend(), feed_forward(), residual=residual),
    )


RESIDUALS = {
    "pre": _residual(blocks.PreNormResidual),
    "post": _residual(blocks.PostNormResidual),
    "sandwich": _residual(blocks.SandwichNormResidual),
    "sublayer": _residual(blocks.SublayerNormResidual),
}

MIXER_LAYERS = {
    "multi_head": Case(
        MultiHeadAttention,
        lambda: {"num_heads": 4, "key_dim": 6},
        arguments=_ATTENTION,
        with_arguments=_DROPOUT,
        inputs=twice,
    ),
}

_BLOCK = {"residual": "sandwich", "norm": "rms_norm", "dropout": 0.5, "seed": 7}

LAYERS = {
    "encoder_block": Case(
        blocks.EncoderBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward()},
        arguments=_BLOCK,
        with_arguments=_DROPOUT,
    ),
    "decoder_block": Case(
        blocks.DecoderBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward()},
        arguments=_BLOCK,
        with_arguments=_DROPOUT,
    ),
    "decoder_block_with_cross_attention": Case(
        blocks.DecoderBlock,
        lambda: {"mixer": attend(), "feedforward": feed_forward(), "cross_attention": attend()},
        arguments=_BLOCK,
        with_arguments=_DROPOUT,
        inputs=lambda: (tokens(), tokens(length=5, seed=1)),
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
    **{f"layer-{name}": case for name, case in LAYERS.items()},
}

# What attends: each must keep the laws of masks and caches.
MIXERS = {
    name: ALL[name] for name in ALL if name.startswith(("mechanism-", "mixer-", "scoring-", "attention-position-"))
}
