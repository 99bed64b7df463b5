"""Texts of recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.audio import AudioError, Recording, SampleNormalization, stack_recordings
from keras_transformer.generation import ctc_greedy
from keras_transformer.tasks.speech.speech_recognizer import BlankPadding
from keras_transformer.utils.types import ArrayLike


def transcribe(
    model: keras.Model,
    recordings: Iterable[Recording | ArrayLike],
    *,
    batch_size: int = 8,
    decode: Callable[[np.ndarray, int], list[list[int]]] = ctc_greedy,
) -> list[str]:
    """Transcribes recordings with a speech recognizer that was read from a checkpoint.

    Args:
        model: `SpeechRecognizer` with the attributes `tokenizer` and, for recordings that are normalized or made
            spectrograms, `processor`, which `checkpoints.from_huggingface` sets.
        recordings: list of `audio.Recording`, or of float arrays `(n,)` with the sample rate of the model.
        batch_size: int >= 1. Default 8.
        decode: function of logits `(B, T, V)` and the id of the blank to lists of token ids: `generation.ctc_greedy`, or one
            that calls `generation.ctc_beam_search`.

    Returns:
        list of str, one for each recording.

    Raises:
        ValueError: a model without a tokenizer, or that is no speech recognizer.
        AudioError: recordings of another sample rate than that of the processor.

    Example:

    >>> model = checkpoints.from_huggingface("facebook/wav2vec2-base-960h")  # doctest: +SKIP
    >>> transcribe(model, [audio.load_audio("speech.wav", sample_rate=16_000)])  # doctest: +SKIP
    """
    blank_id, tokenizer = blank_of(model), getattr(model, "tokenizer")  # noqa: B009
    processor, recordings = getattr(model, "processor", None), list(recordings)
    texts: list[str] = []
    for start in range(0, len(recordings), batch_size):
        batch = recordings[start : start + batch_size]
        _check_rates(batch, processor)
        samples, lengths = stack_recordings(batch)
        mask = np.arange(samples.shape[1]) < lengths[:, None]
        logits = model.predict(_inputs(processor, samples, mask), verbose=0)
        texts += tokenizer.decode(decode(logits, blank_id))
    return texts


def _inputs(processor: Any, samples: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the inputs of a model: samples, or spectrograms, and their padding mask."""
    if processor is None:
        return {"samples": samples, "padding_mask": mask}
    made = processor(samples, padding_mask=mask)
    if isinstance(processor, SampleNormalization):
        return {"samples": keras.ops.convert_to_numpy(made), "padding_mask": mask}
    return {
        name: keras.ops.convert_to_numpy(array) for name, array in zip(("features", "padding_mask"), made, strict=True)
    }


def blank_of(model: keras.Model) -> int:
    """Returns the id of the blank of a speech recognizer with a tokenizer.

    Raises:
        ValueError: a model without a tokenizer, or that is no speech recognizer.
    """
    heads = [layer for layer in getattr(model, "layers", []) if isinstance(layer, BlankPadding)]
    if getattr(model, "tokenizer", None) is None or not heads:
        raise ValueError(f"Expected a SpeechRecognizer with a tokenizer. Received: {model!r}")
    return heads[-1].blank_id


def _check_rates(recordings: Sequence[object], processor: Any) -> None:
    rates = {each.sample_rate for each in recordings if isinstance(each, Recording)}
    if processor is not None and rates - {processor.sample_rate}:
        raise AudioError(
            f"The model takes recordings of {processor.sample_rate} Hz: pass load_audio this sample_rate. Received: "
            f"{sorted(rates)} Hz"
        )
