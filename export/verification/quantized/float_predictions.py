"""Measures the behavior of the quantized files of a language model on text, in their own runtime."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.bundle.writing import bytes_in
from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.limits import Behavior, limits_of
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import InvalidBundleError, QuantizationError
from keras_transformer.export.formats import get_format
from keras_transformer.export.loading.load import available_cores
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.verification.quantized.predictions import Predictions, check_behavior
from keras_transformer.export.verification.quantized.reading import LENGTH, ROWS, lengths_of, logits_of, rows_of, sample
from keras_transformer.generation import GenerationSpec
from keras_transformer.utils.errors import FILE_ERRORS, one_line
from keras_transformer.utils.types import Cache, Path

if TYPE_CHECKING:
    import tensorflow as tf

FILE = "predictions.npz"
_SOURCE = "source/"
_MAX_BYTES = 2**28
# Bytes of a bundle of which the signatures are loaded one after another.
_LARGE = 2**28


class FloatPredictions:
    """Rows of tokens, and what the float model predicts for them; kept in the bundle as `predictions.npz`.

    Args:
        predictions: `Predictions`.
        source: dict of arrays by name: the source of an encoder-decoder, of as many rows; empty for a decoder.
    """

    def __init__(self, predictions: Predictions, source: Mapping[str, np.ndarray]) -> None:
        self.predictions, self.source = predictions, dict(source)

    @classmethod
    def measure(
        cls,
        steps: RuntimeSteps,
        probes: Mapping[str, Sequence[Probe]],
        token_ids: np.ndarray | None = None,
    ) -> FloatPredictions:
        """Reads tokens with the float model.

        Args:
            steps: `RuntimeSteps` of float files, or of the model.
            probes: dict of signature name to its probes: those of "prefill" have a first token, where no tokens are given,
                and those of "encode" the source of an encoder-decoder.
            token_ids: int32 array `(B, T)`; None for a text that the model writes itself.
        """
        rows = ROWS if token_ids is None else len(token_ids)
        source: dict[str, np.ndarray] = {}
        if steps.spec.is_encoder_decoder:
            names = steps.spec.source_names
            source = dict(zip(names, rows_of(probes["encode"][-1].inputs, names, rows), strict=True))
        values = tuple(source.values()) or None
        if token_ids is None:
            first = np.concatenate([probe.inputs["token_ids"][:, 0] for probe in probes["prefill"]])
            length = min(LENGTH, steps.spec.max_length or LENGTH)
            token_ids = sample(steps, np.resize(first, rows), length, values)
        prompt, singles = lengths_of(token_ids.shape[1])
        return cls(Predictions.of(token_ids, logits_of(steps, token_ids, values, prompt, singles)), source)

    def compare(self, directory: pathlib.Path, manifest: Manifest, format: str) -> Behavior:
        """The behavior of the quantized files of a format."""
        steps = get_format(format).open_steps(directory, manifest, available_cores())
        steps.is_frugal = bytes_in(directory) > _LARGE
        token_ids = self.predictions.token_ids
        prompt, singles = lengths_of(token_ids.shape[1])
        parts = logits_of(steps, token_ids, tuple(self.source.values()) or None, prompt, singles)
        return self.predictions.compare(parts, singles)

    def write(self, directory: Path) -> None:
        """Writes them into a bundle."""
        arrays: dict[str, Any] = vars(self.predictions) | {_SOURCE + name: each for name, each in self.source.items()}
        np.savez_compressed(pathlib.Path(directory, FILE), **arrays)

    @classmethod
    def read(cls, directory: Path) -> FloatPredictions:
        """Reads those of a bundle.

        Raises:
            InvalidBundleError: they are missing or cannot be read.
        """
        path = pathlib.Path(directory, FILE)
        try:
            with zipfile.ZipFile(path) as file:
                if sum(entry.file_size for entry in file.infolist()) > _MAX_BYTES:
                    raise ValueError("it is larger than any export writes")
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            source = {name.removeprefix(_SOURCE): arrays.pop(name) for name in list(arrays) if name.startswith(_SOURCE)}
            return cls(Predictions(**arrays), source)
        except FILE_ERRORS as error:
            raise InvalidBundleError(f"'{FILE}' cannot be read: {one_line(error)}") from error


def checked_behavior(
    reference: FloatPredictions, directory: pathlib.Path, manifest: Manifest, format: str, mode: str
) -> dict[str, float]:
    """Measures the quantized files of a format, and holds them to the limits of their mode.

    Returns:
        dict of the figures of `Behavior`.

    Raises:
        QuantizationError: a figure exceeds its limit.
    """
    behavior = reference.compare(directory, manifest, format)
    check_behavior(f"{format}, {mode}", behavior, limits_of(mode))
    return vars(behavior)


def token_rows(text: Sequence[str | Sequence[int]], tokenizer: Any, spec: GenerationSpec) -> np.ndarray:
    """Rows of tokens from texts, or from sequences of token ids.

    Args:
        text: texts, which need a tokenizer, or sequences of ints. They are joined, and cut into rows.
        tokenizer: a tokenizer, or None.
        spec: `GenerationSpec`.

    Returns:
        int32 array `(B, T)`.

    Raises:
        QuantizationError: no tokenizer, a token outside the vocabulary, or less than two tokens.
    """
    if any(isinstance(each, str) for each in text) and tokenizer is None:
        raise QuantizationError("a text needs a tokenizer", Remedy.TOKENS)
    rows = [np.asarray(tokenizer.encode(each) if isinstance(each, str) else each).reshape(-1) for each in text]
    tokens = np.concatenate(rows).astype("int64") if rows else np.zeros(0, "int64")
    if len(tokens) < 2 or tokens.min() < 0 or tokens.max() >= spec.vocabulary_size:
        raise QuantizationError(f"text must have two tokens or more, of ids below {spec.vocabulary_size}")
    length = min(4 * LENGTH, spec.max_length or len(tokens), len(tokens))
    return tokens[: len(tokens) // length * length].reshape(-1, length).astype("int32")


class ModelSteps(RuntimeSteps):
    """Prefill and decode steps of the Keras model itself, by the functions of its signatures, called without a graph.

    See `RuntimeSteps`.

    Args:
        spec: the `ExportSpec` of a language model.
        manifest: the manifest of a bundle with its signatures.
    """

    def __init__(self, spec: ExportSpec, manifest: Manifest) -> None:
        super().__init__(pathlib.Path(), manifest, "Keras", num_threads=1)
        self._signatures = spec.signatures

    def _call(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> dict[str, tf.Tensor]:
        import tensorflow as tf

        tensors = {name: tf.convert_to_tensor(array) for name, array in {**cache, **arrays}.items()}
        with full_precision():
            return self._signatures[signature].function(tensors)

    def _array(self, array: np.ndarray) -> tf.Tensor:
        import tensorflow as tf

        return tf.convert_to_tensor(array)
