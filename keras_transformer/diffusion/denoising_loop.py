"""The loop from noise to data, in the graph."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.diffusion.denoising_trainer import check_denoiser
from keras_transformer.diffusion.processes.names import PROCESSES
from keras_transformer.diffusion.processes.process import NoiseProcess
from keras_transformer.diffusion.samplers.names import SAMPLERS
from keras_transformer.diffusion.samplers.sampler import Sampler
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, Shape, Tensor


@serializable
class DenoisingLoop(keras.layers.Layer):
    """The loop of a sampler: from noise to images, with one call of the denoiser for each step.

    With classifier-free guidance of scale g the prediction is `p(z, no class) + g (p(z, label) - p(z, no class))`; a call of
    the denoiser then has two rows for each image.

    Args:
        denoiser: `keras.Model` that takes "images", "times" and, if it has classes, "labels", such as `models.DiT`; or its
            config.
        process: a name in `PROCESSES`, an instance or its config: that of the training. Default "rectified_flow".
        sampler: a name in `SAMPLERS`, an instance or its config. Default "euler".
        num_steps: int >= 1. Default 50.
        guidance_scale: float. The scale g; 1 (the default) for no guidance.
        no_class: int, or None. The label of no class, that guidance needs: `num_classes` of the denoiser.
        data_range: pair of floats, or None. Range to which the predicted data are clipped at each step. Default None.

    Call arguments:
        noise: float `(B, height, width, channels)`, standard normal.
        labels: int `(B,)`, if the denoiser takes them.
        step_noise: float `(B, num_steps - 1, height, width, channels)`, standard normal, if the sampler draws new noise.

    Returns:
        Images `(B, height, width, channels)`, float32.

    Raises:
        ValueError: other inputs of the denoiser; guidance without labels or `no_class`; in a call, a missing input.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> denoiser = models.DiT(models.Size(1, 8, 2, 16), 4, 8, num_channels=1, num_classes=3)
    >>> loop = DenoisingLoop(denoiser, num_steps=2, guidance_scale=2.0, no_class=3)
    >>> tuple(loop(np.ones((1, 8, 8, 1)), np.array([2])).shape)
    (1, 8, 8, 1)

    Reference: Ho and Salimans, Classifier-Free Diffusion Guidance, arXiv 2207.12598, equation 6, with `g = 1 + w`.
    """

    def __init__(
        self,
        denoiser: keras.Model | Config,
        process: str | NoiseProcess | Config = "rectified_flow",
        sampler: str | Sampler | Config = "euler",
        num_steps: int = 50,
        guidance_scale: float = 1.0,
        no_class: int | None = None,
        data_range: tuple[float, float] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")  # Small steps would be lost in half precision.
        super().__init__(**kwargs)
        self.denoiser: keras.Model = resolve(denoiser, {}, keras.Model, argument="denoiser")
        check_denoiser(self.denoiser)
        self.process: NoiseProcess = resolve(process, PROCESSES, argument="process")
        self.sampler: Sampler = resolve(sampler, SAMPLERS, argument="sampler")
        self.num_steps = num_steps
        self.guidance_scale = guidance_scale
        self.no_class = no_class
        self.data_range = None if data_range is None else tuple(data_range)
        self.takes_labels = "labels" in self.denoiser.input
        if self.is_guided and (no_class is None or not self.takes_labels):
            raise ValueError(
                f"Guidance needs a denoiser with labels, and no_class. Received: guidance_scale={guidance_scale}, "
                f"no_class={no_class}, labels: {self.takes_labels}"
            )
        points = self.process.points(num_steps)
        factors = self.process.data_factors(points.alphas[:-1], points.sigmas[:-1])
        # Time, u, w, a, b, c, d of each step: see `NoiseProcess.data_factors` and `Sampler`.
        self._table = np.column_stack([points.times, *factors, self.sampler.coefficients(points)])

    @property
    def is_guided(self) -> bool:
        """Whether the denoiser is called with and without the labels."""
        return self.guidance_scale != 1.0

    @property
    def takes_step_noise(self) -> bool:
        """Whether the sampler draws new noise, which is an input."""
        return bool(np.any(self._table[:, 6]))

    def build(
        self, noise_shape: Shape, labels_shape: Shape | None = None, step_noise_shape: Shape | None = None
    ) -> None:
        """Does nothing: the denoiser is built."""

    def call(self, noise: Tensor, labels: Tensor | None = None, step_noise: Tensor | None = None) -> Tensor:
        for name, tensor, is_taken in (
            ("labels", labels, self.takes_labels),
            ("step_noise", step_noise, self.takes_step_noise),
        ):
            if is_taken != (tensor is not None):
                raise ValueError(f"{self.name} {'needs' if is_taken else 'takes no'} {name}.")
        table = ops.convert_to_tensor(self._table, self.compute_dtype)

        def advance(step: Tensor, state: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            time, *factors = ops.unstack(ops.take(table, step, axis=0), 7)
            own, predicted, kept, new, old, fresh = factors
            data = self._clipped(own * state + predicted * self._predict(state, time, labels))
            following = kept * state + new * data + old * before
            if step_noise is not None:  # The last step, which has none, reads that of the step before.
                drawn = ops.take(step_noise, ops.minimum(step, self.num_steps - 2), axis=1)
                following = following + fresh * drawn
            return step + 1, following, data

        start = ops.zeros((), "int32"), noise, ops.zeros_like(noise)
        return ops.while_loop(
            lambda step, *_: ops.less(step, self.num_steps), advance, start, maximum_iterations=self.num_steps
        )[1]

    def _predict(self, state: Tensor, time: Tensor, labels: Tensor | None) -> Tensor:
        """Returns the prediction, guided if there is guidance."""
        if self.is_guided:
            state = ops.concatenate([state, state], axis=0)
            labels = ops.concatenate([labels, ops.full_like(labels, self.no_class)], axis=0)
        inputs = {"images": state, "times": time + ops.zeros_like(state[:, 0, 0, 0])}
        inputs |= {} if labels is None else {"labels": labels}
        prediction = ops.cast(self.denoiser(inputs, training=False), self.compute_dtype)
        if not self.is_guided:
            return prediction
        conditional, unconditional = ops.split(prediction, 2, axis=0)
        return unconditional + self.guidance_scale * (conditional - unconditional)

    def _clipped(self, data: Tensor) -> Tensor:
        return data if self.data_range is None else ops.clip(data, *self.data_range)

    def compute_output_spec(
        self, noise: Tensor, labels: Tensor | None = None, step_noise: Tensor | None = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor(noise.shape, dtype=self.compute_dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "denoiser": serialize(self.denoiser),
            "process": keras.saving.serialize_keras_object(self.process),
            "sampler": keras.saving.serialize_keras_object(self.sampler),
            "num_steps": self.num_steps,
            "guidance_scale": self.guidance_scale,
            "no_class": self.no_class,
            "data_range": self.data_range,
        }
