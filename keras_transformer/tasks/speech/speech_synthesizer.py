"""Speech synthesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.audio import FrameExpansion, HiFiGAN, Recording, StochasticDurationPredictor
from keras_transformer.backend.compilation.compiling import compiled
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.tasks.heads import check_backbone, check_count
from keras_transformer.tasks.text.text_model import TextModel
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, Tensor, Tensors

_Function = Callable[[Mapping[str, Tensor]], Any]
# Numbers of tokens and frames are rounded up to a multiple, so that JAX compiles few lengths.
_LENGTH = 32
_INPUTS = {"token_ids", "padding_mask", "speaking_rate", "frame_noise"}


@serializable
class SpeechSynthesizer(TextModel):
    """Speech synthesizer: texts to recordings, with `models.VITS` and its tokenizer.

    `speak` draws the noise that the model takes. The model itself, and its exported files, take token ids and noise, and
    give the same samples for the same noise in every runtime.

    Args:
        backbone: `keras.Model` of `models.VITS`.
        sample_rate: int >= 1. Of the recordings, in Hz. Default 16000.
        speaking_rate: float > 0. The rate of `speak` where it is given none. Default 1.
        name: str.
        trainable: bool. As of `keras.Model`; `fit` is for models of other tasks, since durations have no gradient.

    Attributes:
        tokenizer: `text.InterspersedCharacters` or another tokenizer, or None. Set it after construction.

    Returns:
        What `models.VITS` returns.

    Raises:
        ValueError: another backbone; a rate out of its range.

    Example:

    >>> from keras_transformer import audio, models, text
    >>> decoder = audio.HiFiGAN(8, (4,), (8,), (3,))
    >>> backbone = models.VITS(models.Size(1, 8, 2, 16), 8, latent_dim=4, num_flows=1, decoder=decoder)
    >>> model = SpeechSynthesizer(backbone, sample_rate=8000)
    >>> model.tokenizer = text.InterspersedCharacters({"_": 0, "a": 1, "b": 2, " ": 3})
    >>> recordings = model.speak(["ab a", "b"], seed=1)
    >>> [recording.sample_rate for recording in recordings], recordings[0].samples.dtype
    ([8000, 8000], dtype('float32'))
    """

    def __init__(
        self,
        backbone: keras.Model,
        sample_rate: int = 16_000,
        speaking_rate: float = 1.0,
        name: str = "speech_synthesizer",
        trainable: bool = True,
    ) -> None:
        check_backbone(backbone)
        inputs = backbone.input if isinstance(backbone.input, dict) else {}
        if not set(inputs) >= _INPUTS:
            raise ValueError(f"backbone must be a model of models.VITS, with the inputs {sorted(_INPUTS)}.")
        check_count("sample_rate", sample_rate)
        _check_rate(speaking_rate)
        super().__init__(backbone.input, backbone.output, name=name, trainable=trainable)
        self.backbone = backbone
        self.sample_rate = sample_rate
        self.speaking_rate = float(speaking_rate)
        self._steps: tuple[_Function, _Function] | None = None

    @property
    def num_speakers(self) -> int:
        """int: the number of speakers."""
        found = [each.input_dim for each in self.layers if each.name == "speaker_embedding"]
        return found[0] if found else 1

    @property
    def samples_per_frame(self) -> int:
        """int: the number of samples of a frame of noise."""
        return self._layer(HiFiGAN).samples_per_frame

    def speak(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[int]],
        speaker: int | Sequence[int] = 0,
        *,
        speaking_rate: float | None = None,
        noise_scale: float | None = None,
        duration_noise_scale: float | None = None,
        seed: int | None = None,
        batch_size: int = 8,
    ) -> list[Recording]:
        """Speaks texts. Each text gives with a seed what it gives alone.

        Args:
            texts: str or list of str; or list of lists of token ids.
            speaker: int, or an int for each text, in [0, `num_speakers`). Default 0.
            speaking_rate: float > 0; 2 is twice as fast. None for that of the model.
            noise_scale: float >= 0. How much the speech varies. None for that of the model.
            duration_noise_scale: float >= 0. How much the durations vary. None for that of the model.
            seed: int or None. Seed of the noise; without one, each call speaks in another way.
            batch_size: int >= 1. The largest number of texts that are processed together.

        Returns:
            List of `audio.Recording`, one for each text. A text without tokens has no samples.

        Raises:
            ValueError: no tokenizer for texts; a speaker, a rate or a scale out of range.
            TextError: a text that the tokenizer cannot read, such as one that has to be converted to phonemes.
        """
        rows = self._token_ids(texts)
        speakers = self._speakers(speaker, len(rows))
        rate = self.speaking_rate if speaking_rate is None else speaking_rate
        _check_rate(rate)
        factors = (
            _factor("noise_scale", noise_scale, self._layer(FrameExpansion).noise_scale),
            _factor("duration_noise_scale", duration_noise_scale, self._duration_noise_scale),
        )
        entropy = np.random.SeedSequence(seed).entropy
        spoken: list[np.ndarray] = [np.zeros(0, "float32")] * len(rows)
        # Texts of a similar length are processed together.
        order = sorted((index for index, row in enumerate(rows) if row), key=lambda index: len(rows[index]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            inputs = _padded([rows[index] for index in batch])
            inputs["speaking_rate"] = np.full(len(batch), rate, "float32")
            if self.num_speakers > 1:
                inputs["speaker"] = speakers[batch]
            for index, samples in zip(batch, self._speak(inputs, entropy, factors), strict=True):
                spoken[index] = samples
        return [Recording(samples, self.sample_rate) for samples in spoken]

    def _speak(self, inputs: dict[str, np.ndarray], seed: Any, factors: tuple[float, float]) -> list[np.ndarray]:
        """Returns the samples of each row."""
        if self._steps is None:
            self._steps = _steps(self)
        read, sound = self._steps
        # The noise of a row depends on the seed alone, not on other rows.
        rows, tokens = inputs["token_ids"].shape
        if "duration_noise" in self.input:
            inputs["duration_noise"] = _noise((seed, 0), rows, tokens, 2, factors[1])
        prior, counts = read(inputs)
        lengths = keras.ops.convert_to_numpy(counts).sum(axis=1)
        noise = _noise((seed, 1), rows, _rounded(int(lengths.max())), self.input["frame_noise"].shape[-1], factors[0])
        speaker = {name: array for name, array in inputs.items() if name == "speaker"}
        samples = keras.ops.convert_to_numpy(sound({"prior": prior, "counts": counts, "frame_noise": noise, **speaker}))
        return [row[: length * self.samples_per_frame] for row, length in zip(samples, lengths, strict=True)]

    def _token_ids(self, texts: Any) -> list[list[int]]:
        texts = [texts] if isinstance(texts, str) else list(texts)
        if not all(isinstance(each, str) for each in texts):
            rows = [[int(token) for token in row] for row in texts]
        elif self.tokenizer is None:
            raise ValueError(f"{self.name!r} has no tokenizer: set model.tokenizer, or pass token ids.")
        else:
            rows = self.tokenizer.encode(texts)
        size = self.get_layer("token_embedding").input_dim
        found = {token for row in rows for token in row if not 0 <= token < size}
        if found:
            raise ValueError(f"Token ids must be in [0, {size}), the vocabulary of the model. Received: {min(found)}")
        return rows

    def _speakers(self, speaker: int | Sequence[int] | np.ndarray, count: int) -> np.ndarray:
        given = np.asarray(speaker)
        valid = given.dtype.kind in "iu" and given.shape in ((), (count,))
        if not valid or np.any(given < 0) or np.any(given >= self.num_speakers):
            raise ValueError(
                f"speaker must be an int in [0, {self.num_speakers}), or one for each of {count} texts. "
                f"Received: {speaker!r}"
            )
        return np.broadcast_to(given, (count,)).astype("int32")

    @property
    def _duration_noise_scale(self) -> float:
        predictor = self.get_layer("duration_predictor")
        return predictor.noise_scale if isinstance(predictor, StochasticDurationPredictor) else 1.0

    def _layer(self, kind: type) -> keras.layers.Layer:
        return next(layer for layer in layers_in_order(self) if isinstance(layer, kind))

    def get_config(self) -> Config:
        return {
            "backbone": serialize(self.backbone),
            "sample_rate": self.sample_rate,
            "speaking_rate": self.speaking_rate,
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, object] | None = None) -> SpeechSynthesizer:
        return cls(**{**config, "backbone": resolve(config["backbone"], {}, keras.Model)})


def _check_rate(rate: object) -> None:
    if not isinstance(rate, (int, float)) or not 0 < rate < float("inf"):
        raise ValueError(f"speaking_rate must be a positive number. Received: {rate!r}")


def _factor(name: str, wanted: float | None, own: float) -> float:
    """Returns what noise is multiplied by for a scale other than that in the graph."""
    if wanted is None or wanted == own:
        return 1.0
    if wanted < 0 or not own:
        raise ValueError(f"{name} must not be negative, and the model's own, {own}, not 0. Received: {wanted}")
    return wanted / own


def _steps(model: keras.Model) -> tuple[_Function, _Function]:
    """Returns a model up to the numbers of frames, and the rest, which takes noise for each frame, as compiled functions."""
    known = {"prior": model.get_layer("prior").output, "counts": model.get_layer("frame_counts").output}
    noise = {name: model.input[name] for name in ("frame_noise", "speaker") if name in model.input}
    first = {name: tensor for name, tensor in model.input.items() if name != "frame_noise"}
    return _function(first, list(known.values())), _function(known | noise, model.output["samples"])


def _function(inputs: dict[str, keras.KerasTensor], outputs: Tensors) -> _Function:
    """Returns the compiled function of a dict of arrays from inner tensors of a model to others."""
    part = keras.Model(list(inputs.values()), outputs)
    # Numbers of rows, tokens and frames make no new trace.
    axes = {name: tuple(range(min(2, len(tensor.shape)))) for name, tensor in inputs.items()}
    run = compiled(
        lambda given: part([given[name] for name in inputs], training=False),
        part,
        False,
        dynamic_axes=lambda _: (axes,),
    )
    return lambda given: run({name: given[name] for name in inputs})


def _rounded(length: int) -> int:
    return -(-length // _LENGTH) * _LENGTH


def _noise(seed: tuple[int, int], rows: int, length: int, width: int, factor: float) -> np.ndarray:
    """Returns the same noise for all rows, `(B, length, width)`: that of a shorter length is its beginning."""
    noise = factor * np.random.default_rng(seed).standard_normal((length, width))
    return np.broadcast_to(noise.astype("float32"), (rows, length, width))


def _padded(rows: list[list[int]]) -> dict[str, np.ndarray]:
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(_rounded(int(lengths.max()))) < lengths[:, None]
    token_ids = np.zeros(mask.shape, "int32")
    token_ids[mask] = np.concatenate(rows)
    return {"token_ids": token_ids, "padding_mask": mask}
