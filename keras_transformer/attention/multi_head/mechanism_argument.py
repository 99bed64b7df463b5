"""The `mechanism` argument of `MultiHeadAttention`."""

from __future__ import annotations

from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms import MECHANISMS
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.utils.serialization import choice, resolve
from keras_transformer.utils.types import Config, DType


def resolve_mechanism(
    mechanism: str | Config | Mechanism, dropout: float, flash_attention: bool | None, seed: int | None, dtype: DType
) -> Mechanism:
    """Returns the mechanism of this name, with the given options, or this instance or config, which has its own.

    Raises:
        ValueError: an unknown name; an option that the mechanism does not have.
    """
    if not isinstance(mechanism, str):
        if dropout or flash_attention is not None:
            raise ValueError("With a mechanism instance, set dropout and flash_attention on the mechanism.")
        return resolve(mechanism, MECHANISMS, Mechanism, argument="mechanism")
    options = {"dropout": dropout, "seed": seed, "dtype": dtype}
    chosen = choice(mechanism, MECHANISMS, argument="mechanism")
    if chosen is SoftmaxAttention:
        options["flash_attention"] = flash_attention
    elif flash_attention:
        raise ValueError(f"flash_attention is for mechanism='softmax'. Received: {chosen.__name__}")
    return chosen(**options)
