"""The ranges of activations that a model has learned, and what it computes with them.

`quantization_aware(model, "full_int8")` trains the ranges of what its layers read and return. The tensors of a file are
found by their numbers on the calibration data, as weights are: in any order of their axes, whatever their names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.calibrated import FullInt8
from keras_transformer.export.quantization.precisions import Mode, Modes, parsed
from keras_transformer.export.quantization.ranges import SAME, RangeObserver
from keras_transformer.export.remedies import Remedy

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.quantization.calibration_data import Batch
    from keras_transformer.training.compression.integers.activation_quantizer import ActivationQuantizer
    from keras_transformer.utils.types import Tensor

# What a float file and the model without its rounding may differ by, as a share of the largest output.
_ROUNDING = 1e-3


@dataclasses.dataclass(frozen=True)
class LearnedRanges:
    """The ranges of a trained model, by the numbers of the tensors on calibration data.

    Args:
        ranges: for each tensor, a `RangeObserver` of its numbers, and its least and largest number.
        outputs: for each batch, what the model computes with its rounding, by name.
        floats: the same without the rounding of activations.
    """

    ranges: Sequence[tuple[RangeObserver, tuple[float, float]]]
    outputs: Sequence[Mapping[str, np.ndarray]]
    floats: Sequence[Mapping[str, np.ndarray]]

    @classmethod
    def measure(cls, model: keras.Model, batches: Sequence[Batch]) -> LearnedRanges:
        """Those of a model of `quantization_aware(model, "full_int8")`.

        Args:
            model: the model.
            batches: list of dicts of arrays by input name.

        Raises:
            QuantizationError: the model has no ranges, since it was not trained.
        """
        from keras_transformer.export.spec.functional import check_model
        from keras_transformer.export.spec.names import output_names
        from keras_transformer.export.spec.origin import outputs_of
        from keras_transformer.training.compression.integers.model import as_ordinary, observed, quantizers_in

        every = quantizers_in(model)
        ends = {id(each): known for each in every if (known := each.range()) is not None}
        if len(ends) < len(every):
            raise QuantizationError(f"{model.name!r} was not trained: it has no ranges of activations", Remedy.TRAINED)
        with as_ordinary(model):
            names = output_names(check_model(model))
        found: dict[tuple[int, int], tuple[RangeObserver, tuple[float, float]]] = {}
        calls: dict[int, int] = {}

        def observe(quantizer: ActivationQuantizer, x: Tensor) -> None:
            key = id(quantizer), calls.get(id(quantizer), 0)
            calls[id(quantizer)] = key[1] + 1
            found.setdefault(key, (RangeObserver(), ends[key[0]]))[0].add(np.asarray(x))

        def computed(batch: Batch) -> dict[str, np.ndarray]:
            return dict(zip(names, outputs_of(model, Probe(batch, "")).values(), strict=True))

        floats = list[Mapping[str, np.ndarray]]()
        for batch in batches:
            calls.clear()
            with observed(model, observe):
                floats.append(computed(batch))
        return cls(list(found.values()), [computed(batch) for batch in batches], floats)

    def range_of(self, observer: RangeObserver) -> tuple[float, float] | None:
        """The range that was learned of a tensor with the numbers that an observer has seen; None if there is none.

        Files may have the numbers times a factor, such as that of queries, which is folded into their projection.
        """
        factors = ((observer.factor_of(known), ends) for known, ends in self.ranges)
        found = [(factor, ends) for factor, ends in factors if factor is not None]
        if not found:
            return None
        factor, (least, largest) = min(found, key=lambda each: abs(each[0] - 1))
        return (least, largest) if abs(factor - 1) < SAME else (factor * least, factor * largest)

    def expected(self, number: int, floats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What files compute of a batch, where the float file is that of the model.

        Args:
            number: of the batch.
            floats: what the float file computes of it.

        Raises:
            QuantizationError: the float file computes something else than the model without its rounding.
        """
        for name, expected in self.floats[number].items():
            scale = float(np.abs(expected).max(initial=0.0)) or 1.0
            if not np.allclose(floats[name], expected, rtol=0, atol=_ROUNDING * scale):
                raise QuantizationError(f"{name!r} of the float file is not what the trained model computes")
        return dict(self.outputs[number])


def range_of(
    observer: RangeObserver, method: str, bits: int = 8, learned: LearnedRanges | None = None
) -> tuple[float, float]:
    """The range of a tensor: the one that was learned, or that of a method.

    Args:
        observer: `RangeObserver` of the tensor.
        method: one of `ranges.RANGES`.
        bits: of the integers.
        learned: `LearnedRanges`, or None.
    """
    found = None if learned is None else learned.range_of(observer)
    return observer.range(method, bits) if found is None else found


def is_trained_with_integers(model: object) -> TypeGuard[keras.Model]:
    """Whether a model is one of `quantization_aware(model, "full_int8")`."""
    from keras_transformer.training.compression.integers.model import IntegerAware

    return isinstance(model, IntegerAware)


def ordinary_model(model: keras.Model, quantize: Mode | Modes | None) -> tuple[keras.Model, Mode | Modes]:
    """The ordinary model of one that trained with integers, and the modes of its files, which know the trained one.

    Args:
        model: the model that `export` was given.
        quantize: its precisions.

    Raises:
        QuantizationError: a precision is another one than `FullInt8` with activations of 8 bits, or Keras runs on another
            backend than TensorFlow.
    """
    import keras

    from keras_transformer.training.compression.aware_model import learned_model

    if keras.backend.backend() != "tensorflow":
        raise QuantizationError(
            f"{model.name!r} trained with integers: save it, and export it with Keras on TensorFlow"
        )
    modes: list[Mode] = list(_with_model(model, quantize if isinstance(quantize, (list, tuple)) else [quantize]))
    return learned_model(model), modes if isinstance(quantize, (list, tuple)) else modes[0]


def _with_model(model: keras.Model, modes: Sequence[Mode | None]) -> Iterator[FullInt8]:
    for mode in modes:
        quantization = parsed(mode)
        if not isinstance(quantization, FullInt8) or quantization.activation_bits != 8:
            raise QuantizationError(
                f"{model.name!r} has learned the ranges of 'full_int8', not {mode!r}", Remedy.LEARNED
            )
        yield dataclasses.replace(quantization, trained=model)
