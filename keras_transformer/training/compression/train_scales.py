"""Training of the scales of a quantized model, with the float model as its teacher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.observation.calibration import as_batches
from keras_transformer.quantization.quantized_weights import QuantizedWeights
from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.training.compression.aware_model import learned_model, quantization_aware
from keras_transformer.training.compression.distillation import Distillation
from keras_transformer.training.compression.distillation_losses import SoftLogits

_LOGITS = SoftLogits(temperature=1.0)


def train_scales(
    model: keras.Model,
    teacher: keras.Model,
    data: Any,
    *,
    learning_rate: float = 1e-3,
    epochs: int = 1,
    logits: SoftLogits = _LOGITS,
    verbose: int | str = "auto",
) -> keras.Model:
    """Trains the scales of a quantized model, so that its logits become those of the float model; the integers stay.

    The way to 4 bits for a language model: `quantize_weights` with "gptq", then one pass over some ten thousand tokens.
    Norms, biases and other float weights are trained too, with Adam and a rate that falls to zero by a cosine. It is
    `quantization_aware(..., step="scales_only")` in a `Distillation`.

    Args:
        model: `keras.Model` that `quantize_weights` has rounded. It is not changed.
        teacher: the float model, with the same inputs and outputs. It is not changed.
        data: a batch, or an iterable of batches, as `fit` and `predict` take them. Labels are not used.
        learning_rate: float: the rate at first. Default 1e-3.
        epochs: int: passes over the data. Default 1.
        logits: `SoftLogits`. Default those with temperature 1, which is the divergence of the probabilities themselves.
        verbose: that of `fit`. Default "auto".

    Returns:
        The trained model, for `export(..., quantize="learned")`: its `quantized_weights` have the integers of before.

    Raises:
        WeightQuantizationError: the model was not quantized, or the data does not fit it.
        ValueError: outputs that are not those of the teacher, or that are probabilities.

    Example:

    >>> from keras_transformer.quantization import WeightScheme, quantize_weights
    >>> x = keras.random.normal((64, 64), seed=0)
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")], name="model")
    >>> teacher = keras.models.clone_model(model)
    >>> teacher.set_weights(model.get_weights())
    >>> [before] = quantize_weights(model, WeightScheme(bits=3), "gptq", data=x).values()
    >>> [after] = train_scales(model, teacher, x, learning_rate=0.01, epochs=10, verbose=0).quantized_weights.values()
    >>> bool((after.codes == before.codes).all()), bool((after.scale == before.scale).all())
    (True, False)

    Reference: Kim et al., Memory-Efficient Fine-Tuning of Compressed Large Language Models via sub-4-bit Integer
    Quantization, arXiv 2305.14152, section 3. Deviations: a teacher in place of labels; float weights are trained too.
    """
    schemes = {path: _scheme(blocks) for path, blocks in QuantizedWeights.of(model).items()}
    graph = keras_private.functional(model)
    batches = [keras_private.pack_inputs(graph, list(batch.values())) for batch in as_batches(model, data)]
    student = quantization_aware(model, schemes, step="scales_only")
    trainer = Distillation(student, teacher, logits=logits, label_weight=0.0)
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, epochs * len(batches))
    # XLA's products are slower on CPUs.
    has_gpu = bool(keras.distribution.list_devices("gpu"))
    trainer.compile(keras.optimizers.Adam(schedule, beta_2=0.99), jit_compile="auto" if has_gpu else False)
    trainer.fit(_Batches(batches), epochs=epochs, shuffle=False, verbose=verbose)
    return learned_model(student)


def _scheme(blocks: Blocks) -> WeightScheme:
    """The scheme that has the integers of blocks; those of 2 and 3 bits are a part of those of 4."""
    block_size = None if blocks.has_whole_rows else blocks.codes.shape[2]
    return WeightScheme(blocks.bits, block_size, blocks.minimum is not None)


class _Batches(keras.utils.PyDataset):
    """Batches of inputs without labels."""

    def __init__(self, batches: Sequence[object]) -> None:
        super().__init__()
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple[object]:
        return (self._batches[index],)
