"""Runs what Triton will run, by the names that it is told, and compares it with the Keras model."""

import numpy as np

from keras_transformer.export.errors import ExportError, InvalidBundleError, ParityError
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.verification.verify import difference_and_scale

_FORMAT = ONNX.name


class SignatureProof:
    """Compares a model that keeps nothing with its probes.

    Args:
        key: name of the signature.
        places: dict of output name in the manifest to that in the file.
        judge: the largest difference allowed, as a share of the scale; and whether whole numbers may differ at all.
    """

    def __init__(self, key, places, judge):
        self._key, self._places, self._judge = key, places, judge

    def __call__(self, path, probes):
        session = onnx_session(str(path), 1)
        for probe in _cases(probes, self._key):
            found = session.run([self._places[name] for name in probe.outputs], probe.inputs)
            for (name, expected), got in zip(probe.outputs.items(), found, strict=True):
                _compare(name, got, expected, probe.label, self._judge)


class SequenceProof:
    """Compares a model whose cache the server keeps: texts in two requests, each beginning with zeros, as the server has it.

    Args:
        logits: name of the logits in the file.
        states: dict of input name to output name and shape, without the batch.
        types: dict of input name to dtype.
        judge: as of `SignatureProof`.
    """

    def __init__(self, logits, states, types, judge):
        self._logits, self._states, self._types, self._judge = logits, states, types, judge

    def __call__(self, path, probes):
        session, texts = onnx_session(str(path), 1), 0
        room = min((shape[axis] for shape, axis in self._growing()), default=None)
        for probe in _cases(probes, "prefill"):
            for row, length in enumerate(probe.inputs["lengths"]):
                if room is None or length <= room:
                    got = self._read(session, probe.inputs["token_ids"][row : row + 1, :length])
                    expected = probe.outputs["logits"][row, -1]
                    _compare("logits", got, expected, f"{probe.label}, row {row}", self._judge)
                    texts += 1
        if not texts:
            raise ExportError(f"max_length leaves room for {room} tokens, fewer than any probe of the bundle has")

    def _growing(self):
        """Shape and axis of what has a slot for each token; a state of fixed size has none."""
        return [(shape, axis) for _, shape, axis in self._states.values() if axis is not None]

    def _read(self, session, token_ids):
        """The logits of the last token, read after those before it."""
        states = {name: np.zeros((1, *shape), self._types[name]) for name, (_, shape, _) in self._states.items()}
        outputs = [self._logits, *(output for output, _, _ in self._states.values())]
        begin, logits = 0, None
        for piece in (token_ids[:, :-1], token_ids[:, -1:]):
            if piece.size:
                arrays = {"token_ids": piece, "cache_index": np.array([begin], "int32"), **states}
                logits, *new = session.run(outputs, arrays)
                states = dict(zip(states, new, strict=True))
                begin += piece.shape[1]
        return logits[0, -1]


def _cases(probes, key):
    if not probes.get(key):
        raise InvalidBundleError(f"the bundle has no probe of signature '{key}'")
    return probes[key]


def _compare(name, got, expected, label, judge):
    tolerance, is_quantized = judge
    if expected.dtype.kind == "U":
        got = np.asarray(got).astype(str)
    if is_quantized and expected.dtype.kind != "f":
        return  # As in `verify`: a token that logits choose may be another.
    if got.shape != expected.shape:
        raise ParityError(_FORMAT, name, label, np.nan, 1.0, tolerance, f"is {got.shape}, Keras gives {expected.shape}")
    difference, scale = difference_and_scale(got, expected)
    if not difference <= (tolerance * scale if expected.dtype.kind == "f" else 0):
        raise ParityError(_FORMAT, name, label, difference, scale, tolerance)
