"""Which encoder blocks can compute their first token alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.multi_head.multi_head_attention import MultiHeadAttention
from keras_transformer.feedforward import DenseFeedForward, GatedFeedForward

if TYPE_CHECKING:
    from keras_transformer.blocks.block import Block

# Feed-forwards whose output for a token depends on that token alone; no subclasses, which may override `call`.
_FEEDFORWARDS = (DenseFeedForward, GatedFeedForward)


def check_first_token(block: Block, has_other_arguments: bool) -> None:
    """Raises `ValueError`, with the reason, for an `EncoderBlock` that cannot compute its first token alone.

    Args:
        block: `EncoderBlock`.
        has_other_arguments: bool. Whether its call has other arguments than a padding mask.
    """
    residuals = (block.mixer_residual, block.feedforward_residual)
    norms = [norm for residual in residuals for norm in residual.norms.values()]
    reasons = {
        "it is called with more than a padding mask": has_other_arguments,
        f"its mixer is {type(block.mixer).__name__}, not MultiHeadAttention": type(block.mixer)
        is not MultiHeadAttention,
        "its attention is not softmax attention": type(getattr(block.mixer, "mechanism", None)) is not SoftmaxAttention,
        f"its feed-forward is {type(block.feedforward).__name__}": type(block.feedforward) not in _FEEDFORWARDS,
        "its residual scheme has several streams": any(residual.num_streams > 1 for residual in residuals),
        "a norm takes statistics of all tokens": any(isinstance(x, keras.layers.BatchNormalization) for x in norms),
    }
    reason = next((reason for reason, is_so in reasons.items() if is_so), None)
    if reason is not None:
        raise ValueError(f"{block.name!r} cannot compute the first token alone: {reason}.")
