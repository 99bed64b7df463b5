"""Models that trained with the integers of their files: the ranges that they have learned, and their ordinary models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.calibrated import FullInt8
from keras_transformer.export.quantization.learned_ranges import LearnedRanges
from keras_transformer.export.quantization.precisions import Mode, Modes, parsed
from keras_transformer.export.quantization.ranges import RangeObserver
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.export.spec.functional import check_model
from keras_transformer.export.spec.names import output_names
from keras_transformer.export.spec.origin import outputs_of

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.quantization.calibration_data import Batch
    from keras_transformer.training.compression.integers.activation_quantizer import ActivationQuantizer
    from keras_transformer.utils.types import Tensor


def measured_ranges(model: keras.Model, batches: Sequence[Batch]) -> LearnedRanges:
    """The ranges of a model of `quantization_aware(model, "full_int8")`.

    Args:
        model: the model.
        batches: list of dicts of arrays by input name.

    Raises:
        QuantizationError: the model has no ranges, since it was not trained.
    """
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
    return LearnedRanges(list(found.values()), [computed(batch) for batch in batches], floats)


def is_trained_with_integers(model: object) -> TypeGuard[keras.Model]:
    """Whether a model is one of `quantization_aware(model, "full_int8")`."""
    from keras_transformer.training.compression.integers.model import IntegerAware

    return isinstance(model, IntegerAware)


def ordinary_model(model: keras.Model, quantize: Mode | Modes | None) -> tuple[keras.Model, Mode | Modes]:
    """The ordinary model of one that trained with integers, and the modes of its files, which know that one in float32.

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
    trained = float32_twin(model)
    modes: list[Mode] = list(_with_model(trained, quantize if isinstance(quantize, (list, tuple)) else [quantize]))
    return learned_model(trained), modes if isinstance(quantize, (list, tuple)) else modes[0]


def _with_model(model: keras.Model, modes: Sequence[Mode | None]) -> Iterator[FullInt8]:
    for mode in modes:
        quantization = parsed(mode)
        if not isinstance(quantization, FullInt8) or quantization.activation_bits != 8:
            raise QuantizationError(
                f"{model.name!r} has learned the ranges of 'full_int8', not {mode!r}", Remedy.LEARNED
            )
        yield dataclasses.replace(quantization, trained=model)
