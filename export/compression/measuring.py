"""What the files of a candidate compute, as one number: the larger, the better."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.loading.load import load
from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.export.verification.quantized.float_predictions import FloatPredictions, token_rows

ACCURACY, AGREEMENT, PERPLEXITY = "accuracy", "agreement", "perplexity"


def metric_of(evaluation: Evaluation) -> str:
    """The name of the metric of an evaluation: its score if it has one, then perplexity, then agreement."""
    if evaluation.labels is not None or evaluation.score is not None:
        return ACCURACY
    return PERPLEXITY if len(evaluation.text) else AGREEMENT


class Metric:
    """Measures bundles against a float one, in the same runtime.

    Args:
        evaluation: `Evaluation`; its bounds are not applied.
        source: path of the float bundle.
    """

    def __init__(self, evaluation: Evaluation, source: pathlib.Path) -> None:
        self._evaluation, self._source = evaluation, source
        self.name = metric_of(evaluation)
        self._expected: dict[str, Any] = {}

    def __call__(self, folder: pathlib.Path, format: str) -> float:
        """The metric of the files of one format."""
        if self.name == PERPLEXITY:
            return -self._perplexity(folder, format)
        found = self._evaluation.measure(load(folder, format, check=False))
        if self.name == ACCURACY and found["score"] is not None:
            return found["score"]
        return float(np.mean(found["answers"] == self._float_answers(format)))

    def _float_answers(self, format: str) -> np.ndarray:
        if format not in self._expected:
            self._expected[format] = self._evaluation.measure(load(self._source, format, check=False))["answers"]
        return self._expected[format]

    def _perplexity(self, folder: pathlib.Path, format: str) -> float:
        """The perplexity as a multiple of that of the float files in the same runtime."""
        if folder == self._source:
            return 1.0
        if format not in self._expected:
            model = load(self._source, format, check=False)
            if not hasattr(model, "steps") or model.spec.is_encoder_decoder:
                raise QuantizationError("a text measures decoders only: pass inputs, labels or a score")
            tokens = token_rows(self._evaluation.text, model.tokenizer, model.spec)
            self._expected[format] = FloatPredictions.measure(model.steps, {}, tokens)
        return self._expected[format].compare(folder, read_manifest(folder), format).perplexity
