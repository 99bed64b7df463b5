"""What a mode of quantization may cost: how far a quantized model may be from the float one."""

from __future__ import annotations

import dataclasses

from keras_transformer.export.errors import QuantizationError

# Smaller weights are not quantized but in "full_int8": the operators that dequantize them would cost more.
SMALL = 2048


@dataclasses.dataclass(frozen=True)
class Behavior:
    """Figures of a quantized language model against the float one, over the same tokens.

    Args:
        perplexity: float. Perplexity of the quantized model as a multiple of the float model's.
        divergence: float. Mean Kullback-Leibler divergence of the quantized model's distributions from the float model's,
            in nats for each token.
        top_share: float. Share of the positions at which the most likely token is also the float model's.
        greedy_share: float. The same, of the positions that are read one token at a time, as when generating.
        tokens: int. Number of positions.
    """

    perplexity: float
    divergence: float
    top_share: float
    greedy_share: float
    tokens: int


@dataclasses.dataclass(frozen=True)
class Limits(Behavior):
    """The largest perplexity and divergence, and the smallest shares, that a mode may cost.

    Args:
        change: float. Largest change of an output on random probes, see `verification.quantized.outputs.row_change`.
        classes: float. Largest divergence of a classifier's distributions there, see
            `verification.quantized.classes`, in nats.
    """

    change: float = 1.0
    classes: float = 1.0


# On a text that the float model wrote, perplexity grows by the divergence on average, and varies around that.
# A file with one wrong layer is far outside, see `tests/export/test_behavior.py`. The classes of a ViT trained on digits
# diverge by 0.0005 nats in int8 and 0.02 in weight_int4; with the scales of one of its two layers moved, by 0.05 and 0.09.
LIMITS: dict[str, Limits] = {
    "fp16": Limits(1.01, 0.002, 0.98, 0.95, 0, change=0.02, classes=0.002),
    "int8": Limits(1.05, 0.025, 0.9, 0.85, 0, change=0.3, classes=0.03),
    "int8_static": Limits(1.1, 0.1, 0.8, 0.7, 0, change=0.5, classes=0.1),
    "full_int8": Limits(1.1, 0.1, 0.8, 0.7, 0, change=0.5, classes=0.1),
    "weight_int8": Limits(1.02, 0.02, 0.9, 0.8, 0, change=0.15, classes=0.02),
    "weight_int4": Limits(1.25, 0.2, 0.65, 0.55, 0, change=0.8, classes=0.2),
    "gguf": Limits(1.1, 0.05, 0.85, 0.8, 0, change=0.3, classes=0.05),
    "learned": Limits(1.1, 0.05, 0.85, 0.8, 0, change=0.3, classes=0.05),
    "ternary": Limits(1.02, 0.02, 0.9, 0.8, 0, change=0.1, classes=0.1),
}

# The largest change of a row on random tokens where predictions on text decide. Unrelated rows are 1.4 apart.
_RELATED = 1.0


def change_limit(mode: str, tolerance: float | None = None, *, is_judged_on_text: bool = False) -> float:
    """The largest change of an output on random probes.

    Args:
        mode: the mode of quantization.
        tolerance: the limit that was asked for; None, or that of the mode, for the default.
        is_judged_on_text: bool. Whether the file is a language model's, judged by what it predicts on text. Random tokens,
            and those at the end of an empty cache, then only show whether an output is related to that of the float model.

    Returns:
        float: see `verification.quantized.outputs.row_change`.

    Raises:
        QuantizationError: an unknown mode.

    Example:

    >>> change_limit("int8"), change_limit("int8", is_judged_on_text=True), change_limit("int8", 0.2, is_judged_on_text=True)
    (0.3, 1.0, 0.2)
    """
    default = limits_of(mode).change
    if tolerance is not None and tolerance != default:
        return tolerance
    return max(default, _RELATED) if is_judged_on_text else default


def limits_of(mode: str) -> Limits:
    """The limits of a mode of quantization. They are constants: a bundle cannot state what it is held to.

    Raises:
        QuantizationError: an unknown mode.

    Example:

    >>> limits_of("int8").divergence
    0.025
    """
    if mode not in LIMITS:
        raise QuantizationError(f"unknown quantization {mode!r}; valid: {', '.join(LIMITS)}")
    return LIMITS[mode]
