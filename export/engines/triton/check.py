"""Verification of Triton models: runs the files with the names of the configuration, and compares them with Keras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import ExportError, InvalidBundleError, ParityError
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.verification.comparison import Limit, compare, parity_error

if TYPE_CHECKING:
    import onnxruntime

    from keras_transformer.export.data.export_spec import Probe
    from keras_transformer.utils.types import Path


_FORMAT = ONNX.name


class SignatureProof:
    """Compares a stateless model with its probes.

    Args:
        key: name of the signature.
        file_names: dict of output name in the manifest to its name in the file.
        limit: `Limit`.
    """

    def __init__(self, key: str, file_names: dict[str, str], limit: Limit) -> None:
        self._key, self._file_names, self._limit = key, file_names, limit

    def __call__(self, path: Path, probes: Mapping[str, Sequence[Probe]]) -> None:
        session = onnx_session(str(path), 1)
        for probe in _cases(probes, self._key):
            found = session.run([self._file_names[name] for name in probe.outputs], probe.inputs)
            for (name, expected), got in zip(probe.outputs.items(), found, strict=True):
                _compare(name, got, expected, probe.rounding.get(name), probe.label, self._limit)


class SequenceProof:
    """Compares a model with a server-side cache: each text in two requests, with an initial state of zeros.

    Args:
        logits: name of the logits in the file.
        states: dict of input name to output name and shape, without the batch.
        types: dict of input name to dtype.
        limit: `Limit`.
    """

    def __init__(self, logits: str, states: dict[str, Any], types: dict[str, str], limit: Limit) -> None:
        self._logits, self._states, self._types, self._limit = logits, states, types, limit

    def __call__(self, path: Path, probes: Mapping[str, Sequence[Probe]]) -> None:
        session, texts = onnx_session(str(path), 1), 0
        limit = min((shape[axis] for shape, axis in self._growing()), default=None)
        for probe in _cases(probes, "prefill"):
            for row, length in enumerate(probe.inputs["lengths"]):
                if limit is None or length <= limit:
                    got = self._read(session, probe.inputs["token_ids"][row : row + 1, :length])
                    expected = probe.outputs["logits"][row, -1]
                    label = f"{probe.label}, row {row}"
                    _compare("logits", got, expected, _rounding_of_row(probe, row), label, self._limit)
                    texts += 1
        if not texts:
            raise ExportError(f"max_length allows {limit} tokens, fewer than any probe of the bundle has")

    def _growing(self) -> list[tuple[Any, int]]:
        """Shape and axis of the states with a slot for each token."""
        return [(shape, axis) for _, shape, axis in self._states.values() if axis is not None]

    def _read(self, session: onnxruntime.InferenceSession, token_ids: np.ndarray) -> np.ndarray:
        """The logits of the last token, in a request after the preceding tokens."""
        states = {name: np.zeros((1, *shape), self._types[name]) for name, (_, shape, _) in self._states.items()}
        outputs = [self._logits, *(output for output, _, _ in self._states.values())]
        begin: int = 0
        logits: Any = None
        for piece in (token_ids[:, :-1], token_ids[:, -1:]):
            if piece.size:
                arrays = {"token_ids": piece, "cache_index": np.array([begin], "int32"), **states}
                results: list[np.ndarray] = session.run(outputs, arrays)
                logits, *new = results
                states = dict(zip(states, new, strict=True))
                begin += piece.shape[1]
        return logits[0, -1]


def _cases(probes: Mapping[str, Sequence[Probe]], key: str) -> Sequence[Probe]:
    if not probes.get(key):
        raise InvalidBundleError(f"the bundle has no probe of signature '{key}'")
    return probes[key]


def _rounding_of_row(probe: Probe, row: int) -> np.ndarray | None:
    """The rounding of the last logits of one row; a block of a small vocabulary has several rows."""
    rounding = probe.rounding.get("logits")
    return None if rounding is None else rounding[min(row, len(rounding) - 1), -1]


def _compare(
    name: str, got: np.ndarray, expected: np.ndarray, rounding: np.ndarray | None, label: str, limit: Limit
) -> None:
    if expected.dtype.kind == "U":
        got = np.asarray(got).astype(str)
    if limit.is_quantized and expected.dtype.kind != "f":
        return  # As in `verify`: tokens chosen by the logits may differ.
    if got.shape != expected.shape:
        raise ParityError(_FORMAT, name, label, np.nan, 1.0, 0.0, f"is {got.shape}, Keras returns {expected.shape}")
    found = compare(got, expected, rounding, limit)
    if not found.is_accepted:
        raise parity_error(_FORMAT, name, label, found)
