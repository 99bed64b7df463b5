"""What a student takes from its teacher: softened logits, hidden states, attention maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from keras import ops

from keras_transformer.utils.types import Tensor

_LEAST = 1e-9


@dataclasses.dataclass(frozen=True)
class SoftLogits:
    """The divergence of the softened logits of student s from those of teacher t, `T² KL(softmax(t / T) || softmax(s / T))`.

    Args:
        weight: float > 0. Factor of this loss. Default 1.
        temperature: float > 0. T. Default 2.
        mask: str. The input whose True tokens count, for logits of each token; all tokens if there is no such input. Default
            "padding_mask".

    Raises:
        ValueError: a number that is not positive.

    Example:

    >>> SoftLogits(temperature=4.0).temperature
    4.0

    Reference: Hinton et al., Distilling the Knowledge in a Neural Network, arXiv 1503.02531, section 2. Deviation: the
    divergence instead of the cross-entropy; the gradients are the same, and the loss of a perfect student is 0.
    """

    weight: float = 1.0
    temperature: float = 2.0
    mask: str = "padding_mask"

    def __post_init__(self) -> None:
        _check_positive(weight=self.weight, temperature=self.temperature)

    def loss(self, student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
        """The loss of logits `(B, ..., V)`; the mask is `(B, T)` or None."""
        student, teacher = (ops.cast(x, "float32") / self.temperature for x in (student, teacher))
        soft = ops.softmax(teacher)
        divergence = ops.sum(soft * (ops.log_softmax(teacher) - ops.log_softmax(student)), axis=-1)
        return self.weight * self.temperature**2 * mean_of(divergence, mask)


@dataclasses.dataclass(frozen=True)
class _OfLayers:
    """A loss between pairs of layers."""

    layers: Mapping[str, str]
    weight: float = 1.0
    mask: str = "padding_mask"

    def __post_init__(self) -> None:
        _check_positive(weight=self.weight)
        if not self.layers:
            raise ValueError(f"{type(self).__name__} needs a layer of the student and one of the teacher, as a dict")


@dataclasses.dataclass(frozen=True)
class HiddenStates(_OfLayers):
    """The mean squared error of hidden states, `mean (s W - t)²`, with a learned W where the widths differ.

    Args:
        layers: dict of the name of a layer of the student to that of a layer of the teacher, such as blocks. Of a layer that
            is called several times the first output counts.
        weight: float > 0. Factor of the mean over the pairs. Default 1.
        mask: str. The input whose True tokens count; all tokens if there is no such input. Default "padding_mask".

    Raises:
        ValueError: no layers, or a weight that is not positive.

    Example:

    >>> HiddenStates({"encoder_block_0": "encoder_block_1"}).weight
    1.0

    Reference: Jiao et al., TinyBERT, arXiv 1909.10351, equation 8; Romero et al., FitNets, arXiv 1412.6550, equation 3 (W).
    Deviation: no W where the widths are equal.
    """

    def loss(self, student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
        """The loss of one pair, `(B, ..., D)`."""
        error = ops.square(ops.cast(student, "float32") - ops.cast(teacher, "float32"))
        return self.weight * mean_of(ops.mean(error, axis=-1), mask)


@dataclasses.dataclass(frozen=True)
class AttentionMaps(_OfLayers):
    """The divergence of the attention of the student from that of the teacher: `mean KL(t || s)` over heads and queries.

    Args:
        layers: dict of the name or path of an attention layer of the student, or of the block that contains it, to that of
            the teacher.
        weight: float > 0. Factor of the mean over the pairs. Default 1.
        mask: str. The input whose True queries count; all queries if there is no such input. Default "padding_mask".

    Raises:
        ValueError: no layers, or a weight that is not positive.

    Example:

    >>> AttentionMaps({"encoder_block_0": "encoder_block_1"}, weight=0.5).mask
    'padding_mask'

    Reference: Sun et al., MobileBERT, arXiv 2004.02984, section 3.4; Wang et al., MiniLM, arXiv 2002.10957, equation 2.
    Deviation: where the numbers of heads differ, their mean on both sides.
    """

    def loss(self, student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
        """The loss of one pair, `(B, N, T, S)`."""
        student, teacher = ops.cast(student, "float32"), ops.cast(teacher, "float32")
        if student.shape[1] != teacher.shape[1]:
            student, teacher = (ops.mean(x, axis=1, keepdims=True) for x in (student, teacher))
        # Masked keys have probability 0 on both sides and add nothing.
        logs = (ops.log(ops.maximum(x, _LEAST)) for x in (teacher, student))
        divergence = ops.sum(teacher * ops.subtract(*logs), axis=-1)
        return self.weight * mean_of(ops.mean(divergence, axis=1), mask)


def mean_of(losses: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of losses `(B, ...)`; of the True tokens of a mask `(B, T)` if they are `(B, T)`."""
    if mask is None or len(losses.shape) != len(mask.shape):
        return ops.mean(losses)
    counted = ops.cast(mask, losses.dtype)
    return ops.sum(losses * counted) / ops.maximum(ops.sum(counted), 1.0)


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name} must be positive. Received: {number!r}")
