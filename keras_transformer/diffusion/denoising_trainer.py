"""Training of a denoiser."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.blocks.traced_once import TracedOnce
from keras_transformer.diffusion.processes import PROCESSES
from keras_transformer.diffusion.processes.process import NoiseProcess
from keras_transformer.utils.serialization import resolve
from keras_transformer.utils.types import Config, Shape, Tensor, Tensors


class DenoisingTrainer(TracedOnce, keras.Model):
    """Trains a denoiser: the mean squared error of what it predicts of images with noise, at random times.

    The weights are those of the denoiser, which is ready for use after training. With `use_ema=True` in the optimizer and
    `training.AveragedWeights` these are the averages, which sample better.

    Args:
        denoiser: `keras.Model` from a dict of "images", "times" and its conditions, such as "labels", to what the process
            has it predict, such as `models.DiT`.
        process: a name in `PROCESSES`, an instance or its config. Default "rectified_flow".
        seed: int or None. Seed of noise and times, as in Keras's layers.
        name: str.

    Call arguments:
        inputs: dict of "images", float `(B, height, width, channels)`, of about the scale of the noise, such as [-1, 1], and
            the conditions of the denoiser, such as "labels", int `(B,)`.

    Returns:
        The squared error of each row, float32 `(B,)`: the mean over its numbers.

    Raises:
        ValueError: a denoiser without "images" and "times"; an unknown process.

    Compile it with an optimizer and without a loss. `evaluate` draws the same noise in each call, and times in the middle of
    equal parts of their distribution, so that its losses can be compared.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> denoiser = models.DiT(models.Size(1, 8, 2, 16), 4, 8, num_channels=1, num_classes=3)
    >>> trainer = DenoisingTrainer(denoiser, "rectified_flow", seed=1)
    >>> trainer.compile("adam")
    >>> data = {"images": np.zeros((4, 8, 8, 1)), "labels": np.array([0, 1, 2, 0])}
    >>> history = trainer.fit(data, verbose=0)
    >>> trainer.evaluate(data, verbose=0) == trainer.evaluate(data, verbose=0)
    True

    Reference: Esser et al., arXiv 2403.03206, section 2 (flow matching); Ho et al., arXiv 2006.11239, algorithm 1.
    """

    def __init__(
        self,
        denoiser: keras.Model,
        process: str | NoiseProcess | Config = "rectified_flow",
        seed: int | None = None,
        name: str = "denoising_trainer",
    ) -> None:
        super().__init__(name=name)
        self._conditions = condition_names(denoiser)
        self.denoiser = denoiser
        self.process: NoiseProcess = resolve(process, PROCESSES, argument="process")
        self.seed = seed
        self._seeds = keras.random.SeedGenerator(seed)

    def build(self, input_shape: Shape) -> None:
        """Does nothing: the denoiser is built."""

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        images = ops.cast(inputs["images"], "float32")
        noise, quantiles = self._draw(images, training)
        times = self.process.times(quantiles)
        alpha, sigma = (ops.reshape(each, (-1, 1, 1, 1)) for each in self.process.coefficients(times))
        noised = {"images": alpha * images + sigma * noise, "times": times}
        conditions = {name: inputs[name] for name in self._conditions}
        prediction = ops.cast(self.denoiser({**noised, **conditions}, training=training), "float32")
        return ops.mean(ops.square(prediction - self.process.target(images, noise)), axis=(1, 2, 3))

    def _draw(self, images, training):
        """Returns noise and the quantiles of the times."""
        count = ops.shape(images)[0]
        if training:
            return (
                keras.random.normal(ops.shape(images), seed=self._seeds),
                keras.random.uniform((count,), seed=self._seeds),
            )
        middles = (ops.arange(count, dtype="float32") + 0.5) / ops.cast(count, "float32")
        return keras.random.normal(ops.shape(images), seed=0), middles

    def compute_loss(
        self,
        x: Tensors | None = None,
        y: Tensors | None = None,
        y_pred: keras.KerasTensor = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the mean error of the rows, plus the losses of layers."""
        del x, y, training
        errors = y_pred if sample_weight is None else y_pred * ops.cast(sample_weight, y_pred.dtype)
        return ops.mean(errors) + sum(self.losses) if self.losses else ops.mean(errors)


def condition_names(denoiser: keras.Model) -> tuple[str, ...]:
    """The names of the inputs of a denoiser beside "images" and "times".

    Raises:
        ValueError: a model without these two.
    """
    names = tuple(denoiser.input) if isinstance(denoiser.input, dict) else ()
    if not {"images", "times"} <= set(names):
        raise ValueError(
            f"A denoiser takes a dict of 'images', 'times' and its conditions, such as 'labels'. "
            f"{denoiser.name!r} takes {sorted(names) or denoiser.input}."
        )
    return tuple(name for name in names if name not in ("images", "times"))
