"""Texts of recordings while they are spoken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_transformer.generation import CTCStream
from keras_transformer.models import Chunkwise
from keras_transformer.tasks.speech.transcribe import blank_of
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

Step = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


class SpeechStream:
    """Transcribes recordings while they are spoken, chunk by chunk, several at the same time.

    The text is the one that `transcribe` gives for the whole recording: the most likely token of each frame, without
    repetitions and blanks. The model takes the same time and memory for every chunk, however much was said before it. A
    Hugging Face tokenizer decodes the whole text again for each new token: `finish` a recording now and then, at a pause.

    Args:
        model: `SpeechRecognizer` of a backbone that reads chunks, such as `models.StreamingWav2Vec2`, with a `tokenizer`.
        num_streams: int >= 1. Recordings that are read at the same time. Default 1.
        step: function of a dict of arrays to one: `Chunkwise(model).to_model()` in another runtime, such as
            `export.load(directory, "onnx")`. None for Keras.

    Attributes:
        chunk_samples: int. Samples of a chunk: text comes when so many are there.

    Raises:
        ValueError: no tokenizer, no speech recognizer, or one that cannot be read chunk by chunk: see `Chunkwise`; a
            `processor` that normalizes with statistics of the whole recording; `num_streams` below 1.

    Example:

    >>> stream = SpeechStream(model)  # doctest: +SKIP
    >>> for samples in microphone:  # doctest: +SKIP
    ...     print(stream.feed([samples])[0], end="", flush=True)
    >>> print(stream.finish()[0])  # doctest: +SKIP
    """

    def __init__(self, model: keras.Model, num_streams: int = 1, *, step: Step | None = None) -> None:
        blank_id = blank_of(model)
        if getattr(getattr(model, "processor", None), "normalize", False):
            raise ValueError(
                f"The processor of {model.name!r} normalizes whole recordings, which a stream does not have: train with "
                "SampleNormalization(normalize=False)."
            )
        self._steps = Chunkwise(model)
        self._tokenizer: Tokenizer = getattr(model, "tokenizer")  # noqa: B009
        self._ctc = CTCStream(num_streams, blank_id)
        self._run: Step = step or self._steps.to_model().predict_on_batch
        self._output = self._steps.output_name
        self.chunk_samples = self._steps.chunk_samples
        empty = self._steps.init_cache(1)
        self._empty = {name: keras.ops.convert_to_numpy(tensor)[0] for name, tensor in empty.items()}
        self._cache = {name: np.stack([array] * num_streams) for name, array in self._empty.items()}
        self._waiting = [np.zeros(0, "float32")] * num_streams
        self._has_begun = [False] * num_streams
        self._texts = [self._tokenizer.stream() for _ in range(num_streams)]

    def feed(self, samples: Sequence[ArrayLike]) -> list[str]:
        """Adds the next samples of each stream, and returns its new text.

        Args:
            samples: one float array `(n,)` for each stream, of any length, at the sample rate of the model; empty for none.

        Returns:
            list of str, "" where nothing was said, or where the samples do not fill a chunk.

        Raises:
            ValueError: another number of arrays, or an array of another rank.
        """
        if len(samples) != len(self._waiting):
            raise ValueError(f"Expected samples of {len(self._waiting)} streams. Received: {len(samples)}")
        rows = [np.asarray(each, "float32") for each in samples]
        if any(row.ndim != 1 for row in rows):
            raise ValueError(f"Expected arrays (n,). Received shapes: {[row.shape for row in rows]}")
        self._waiting = [np.concatenate(pair) for pair in zip(self._waiting, rows, strict=True)]
        new = [""] * len(rows)
        while any(counts := [self._whole_chunk(row) for row in range(len(rows))]):
            new = self._step(counts, new)
        return new

    def finish(self, row: int | None = None) -> list[str]:
        """Ends one recording, or all, and returns the rest of their texts. The next samples begin new recordings.

        Args:
            row: int: the stream to end; None for all.

        Returns:
            list of str, one for each stream.
        """
        rows = range(len(self._waiting)) if row is None else [row]
        new = [""] * len(self._waiting)
        # A recording that is shorter than what its cache begins with has no frame.
        counts = [
            len(rest) if number in rows and self._has_begun[number] else 0 for number, rest in enumerate(self._waiting)
        ]
        new = self._step(counts, new) if any(counts) else new
        for each in rows:
            new[each] += self._texts[each].finish()
            self._forget(each)
        return new

    def _whole_chunk(self, row: int) -> int:
        """The number of samples of a chunk if so many wait, else 0. The first samples of all go into the cache."""
        lead = self._steps.num_lead_samples
        if not self._has_begun[row] and len(self._waiting[row]) >= lead:
            first, self._waiting[row] = np.split(self._waiting[row], [lead])
            begun = self._steps.begin(first[None])
            for name, tensor in begun.items():
                self._cache[name][row] = keras.ops.convert_to_numpy(tensor)[0]
            self._has_begun[row] = True
        return self.chunk_samples if self._has_begun[row] and len(self._waiting[row]) >= self.chunk_samples else 0

    def _step(self, counts: Sequence[int], texts: Sequence[str]) -> list[str]:
        """Reads up to a chunk of each stream, `counts` samples, and returns its text with the new one behind it."""
        samples = np.zeros((len(counts), self.chunk_samples), "float32")
        for row, count in enumerate(counts):
            samples[row, :count] = self._waiting[row][:count]
            self._waiting[row] = self._waiting[row][count:]
        mask = np.arange(self.chunk_samples) < np.asarray(counts)[:, None]
        outputs = self._run({"samples": samples, "padding_mask": mask, **self._cache})
        self._cache = {name: np.array(outputs[name]) for name in self._cache}
        # A chunk may begin within a letter: streams without samples wait, they do not read a blank.
        tokens = self._ctc.push(outputs[self._output], np.asarray(counts) > 0)
        return [
            text + "".join(stream.push(token) for token in ids)
            for text, stream, ids in zip(texts, self._texts, tokens, strict=True)
        ]

    def _forget(self, row: int) -> None:
        self._waiting[row] = np.zeros(0, "float32")
        self._has_begun[row] = False
        self._texts[row] = self._tokenizer.stream()
        self._ctc.forget(row)
        for name, array in self._empty.items():
            self._cache[name][row] = array
