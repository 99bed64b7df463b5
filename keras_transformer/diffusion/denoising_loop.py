"""The loop from noise to data, in the graph."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.diffusion.denoising_trainer import condition_names
from keras_transformer.diffusion.processes import PROCESSES
from keras_transformer.diffusion.processes.process import NoiseProcess
from keras_transformer.diffusion.samplers import SAMPLERS
from keras_transformer.diffusion.samplers.sampler import Sampler
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class DenoisingLoop(keras.layers.Layer):
    """The loop of a sampler: from noise to images, with one call of the denoiser for each step.

    With classifier-free guidance of scale g the prediction is `p(z, no class) + g (p(z, label) - p(z, no class))`; a call of
    the denoiser then has two rows for each image. Conditions other than labels have the input "negative_NAME" in place of no
    class, such as "negative_text".

    Args:
        denoiser: `keras.Model` that takes "images", "times" and its conditions, such as `models.DiT`; or its config.
        process: a name in `PROCESSES`, an instance or its config: that of the training. Default "rectified_flow".
        sampler: a name in `SAMPLERS`, an instance or its config. Default "euler".
        num_steps: int >= 1. Default 50.
        guidance_scale: float. The scale g; 1 (the default) for no guidance.
        no_class: int, or None. The label of no class, that guidance needs: `num_classes` of the denoiser.
        data_range: pair of floats, or None. Range to which the predicted data are clipped at each step. Default None.

    Call arguments:
        inputs: dict of `input_names`: "noise", float `(B, height, width, channels)`, standard normal; the conditions of the
            denoiser, such as "labels", int `(B,)`; with guidance, "negative_NAME" of each but labels; "step_noise", float
            `(B, num_steps - 1, height, width, channels)`, standard normal, if the sampler draws new noise.

    Returns:
        Images `(B, height, width, channels)`, float32.

    Raises:
        ValueError: other inputs of the denoiser; guidance without a condition, or labels without `no_class`; in a call,
            other inputs than `input_names`.

    Example:

    >>> from keras import ops
    >>> from keras_transformer import models
    >>> denoiser = models.DiT(models.Size(1, 8, 2, 16), 4, 8, num_channels=1, num_classes=3)
    >>> loop = DenoisingLoop(denoiser, num_steps=2, guidance_scale=2.0, no_class=3)
    >>> loop.input_names
    ('noise', 'labels')
    >>> tuple(loop({"noise": ops.ones((1, 8, 8, 1)), "labels": ops.array([2])}).shape)
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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        kwargs.setdefault("dtype", "float32")  # Small steps would be lost in half precision.
        super().__init__(**kwargs)
        self.denoiser: keras.Model = resolve(denoiser, {}, keras.Model, argument="denoiser")
        self.conditions = condition_names(self.denoiser)
        self.process: NoiseProcess = resolve(process, PROCESSES, argument="process")
        self.sampler: Sampler = resolve(sampler, SAMPLERS, argument="sampler")
        self.num_steps = num_steps
        self.guidance_scale = guidance_scale
        self.no_class = no_class
        self.data_range = None if data_range is None else tuple(data_range)
        if self.is_guided and (not self.conditions or ("labels" in self.conditions and no_class is None)):
            raise ValueError(
                f"Guidance needs a denoiser with conditions, and no_class for labels. Received: "
                f"guidance_scale={guidance_scale}, no_class={no_class}, conditions: {self.conditions}"
            )
        points = self.process.points(num_steps)
        factors = self.process.data_factors(points.alphas[:-1], points.sigmas[:-1])
        # Time, u, w, a, b, c, d of each step: see `NoiseProcess.data_factors` and `Sampler`.
        self._table = np.column_stack([points.times, *factors, self.sampler.coefficients(points)])

    @property
    def is_guided(self) -> bool:
        """Whether the denoiser is called with and without its conditions."""
        return self.guidance_scale != 1.0

    @property
    def takes_step_noise(self) -> bool:
        """Whether the sampler draws new noise, which is an input."""
        return bool(np.any(self._table[:, 6]))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        negatives = (f"negative_{name}" for name in self.conditions if name != "labels" and self.is_guided)
        return ("noise", *self.conditions, *negatives, *(["step_noise"] if self.takes_step_noise else []))

    def build(self, inputs_shape: Shape) -> None:
        """Does nothing: the denoiser is built."""

    def call(self, inputs: dict[str, Tensor]) -> Tensor:
        if set(inputs) != set(self.input_names):
            raise ValueError(f"{self.name} takes {list(self.input_names)}. Received: {list(inputs)}")
        noise, step_noise = inputs["noise"], inputs.get("step_noise")
        table = ops.convert_to_tensor(self._table, self.compute_dtype)

        def advance(step: Tensor, state: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            time, *factors = ops.unstack(ops.take(table, step, axis=0), 7)
            own, predicted, kept, new, old, fresh = factors
            data = self._clipped(own * state + predicted * self._predict(state, time, inputs))
            following = kept * state + new * data + old * before
            if step_noise is not None:  # The last step, which has none, reads that of the step before.
                drawn = ops.take(step_noise, ops.minimum(step, self.num_steps - 2), axis=1)
                following = following + fresh * drawn
            return step + 1, following, data

        start = ops.zeros((), "int32"), noise, ops.zeros_like(noise)
        return ops.while_loop(
            lambda step, *_: ops.less(step, self.num_steps), advance, start, maximum_iterations=self.num_steps
        )[1]

    def _predict(self, state: Tensor, time: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Returns the prediction, guided if there is guidance."""
        conditions = {name: inputs[name] for name in self.conditions}
        if self.is_guided:
            state = ops.concatenate([state, state], axis=0)
            conditions = {name: self._with_negative(name, inputs) for name in conditions}
        times = time + ops.zeros_like(state[:, 0, 0, 0])
        prediction = self.denoiser({"images": state, "times": times, **conditions}, training=False)
        prediction = ops.cast(prediction, self.compute_dtype)
        if not self.is_guided:
            return prediction
        conditional, unconditional = ops.split(prediction, 2, axis=0)
        return unconditional + self.guidance_scale * (conditional - unconditional)

    def _with_negative(self, name, inputs):
        """Returns a condition with, after it, what stands for none."""
        condition = inputs[name]
        negative = ops.full_like(condition, self.no_class) if name == "labels" else inputs[f"negative_{name}"]
        return ops.concatenate([condition, negative], axis=0)

    def _clipped(self, data: Tensor) -> Tensor:
        return data if self.data_range is None else ops.clip(data, *self.data_range)

    def compute_output_spec(self, inputs: dict[str, Tensor]) -> keras.KerasTensor:
        return keras.KerasTensor(inputs["noise"].shape, dtype=self.compute_dtype)

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
