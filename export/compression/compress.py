"""`compress`: the best quantized bundle within a budget."""

from __future__ import annotations

import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.export.api import export
from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.compression.budget import Budget
from keras_transformer.export.compression.candidates import CANDIDATES, Candidate, measured_choices, rounded
from keras_transformer.export.compression.measuring import Metric
from keras_transformer.export.compression.results import FLOAT, Compression, Trial, lost
from keras_transformer.export.data.report import Report, readable_size
from keras_transformer.export.errors import ExportError, QuantizationError
from keras_transformer.export.formats import check_formats
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.quantization import WeightQuantizationError
from keras_transformer.quantization.choose_schemes import Choice, least_bytes, most_bytes, within
from keras_transformer.quantization.observation.calibration import as_batches
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    import keras

    from keras_transformer.quantization import WeightScheme

# Mixtures that are tried for a loss; each halves the range of sizes. For a size, files that are too large are written again.
_MIXTURES = _ATTEMPTS = 3


def compress(
    model: keras.Model,
    directory: Path,
    budget: int | str | None,
    data: Any,
    evaluation: Evaluation,
    *,
    max_loss: float | None = None,
    formats: str | Iterable[str] = ("onnx", "tflite"),
    candidates: Mapping[str, Candidate] = CANDIDATES,
    progress: Progress = True,
) -> Compression:
    """Tries several quantizations, measures the files of each in their own runtime, and keeps the best within a budget.

    Each candidate is exported and verified as `export` does it. The one with the best metric in the format where it is worst
    is kept, among equals the smallest; or, with `max_loss`, the smallest one that keeps to it. Weights that are rounded with
    data have the same integers in all formats.

    Args:
        model: a built Functional Keras model, in float32. Its weights change meanwhile, and are restored.
        directory: path of the bundle to write. An existing bundle is replaced.
        budget: int, or str such as "20MB" or "500 kB": bytes that the files of each format may have; None for any size, with
            `max_loss`.
        data: a batch, or an iterable of batches, as `fit` and `predict` take them: some thousands of tokens, or some hundred
            images, from the training data.
        evaluation: `Evaluation`, of data that is not in `data`: labels or a score, a text for a language model, or inputs
            alone, which measure the agreement with the float files. Its bounds are not applied.
        max_loss: float: how much worse than that of the float files the metric of each format may be, in its own unit: 0.002
            of an accuracy, 0.1 of a score in BLEU, 0.03 of the multiple of a perplexity. Mixtures of several sizes are then
            tried.
        formats: one or more keys of `FORMATS`. Default ONNX and TFLite.
        candidates: dict of name to `Candidate`. Default `CANDIDATES`: fp16, int8, weights of 8 and 4 bits that are rounded
            with GPTQ, those of 4 bits in blocks with trained scales too, and a mixture of 4 and 8 bits.
        progress: as for `export`.

    Returns:
        `Compression`: print it for a table; `plot()` shows the metric against the size.

    Raises:
        QuantizationError: the budget is no size, or smaller than the model can be; no data or no evaluation; every candidate
            is too large, loses too much, or is refused. What was at `directory` then stays.
        InvalidBundleError: the directory contains something that is not a bundle.

    Example:

    >>> import keras, numpy as np
    >>> from keras_transformer.export import Evaluation, compress
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(4)])
    >>> x = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")
    >>> options = {"formats": ["onnx"], "progress": False}
    >>> found = compress(model, "/tmp/keras_transformer_doctest", "20 kB", x, Evaluation([x]), **options)
    >>> found.metric, found.trials[0].candidate
    ('agreement', 'float32')
    """
    names, limit = check_formats(formats), Budget.of(budget, max_loss)
    if not isinstance(evaluation, Evaluation):
        raise QuantizationError(f"evaluation must be an Evaluation. Received: {type(evaluation).__name__}")
    if data is None:
        raise QuantizationError("compress needs data: some batches of the model's inputs")
    if not candidates:
        raise QuantizationError("there are no candidates to try")
    target = writing.check_target(directory)
    batches = _checked(model, data, limit)
    with tempfile.TemporaryDirectory() as name, Steps(len(candidates) + 1, progress) as steps:
        work = _Work(model, pathlib.Path(name), names, evaluation, steps)
        trials = work.floats()
        for each, candidate in candidates.items():
            trials += work.trial(each, candidate, batches, limit)
        chosen = limit.best(trials)
        with writing.replacing(target) as folder:
            shutil.copytree(work.folder(chosen), folder, dirs_exist_ok=True)
    return Compression(str(target), work.metric.name, limit.nbytes, chosen, trials, limit.loss)


def _checked(model: keras.Model, data: Any, budget: Budget) -> list[Any]:
    """The batches of the data, if it fits the model, and the model can fit the budget."""
    try:
        least = least_bytes(model)
        if not budget.allows(least):
            limit = readable_size(budget.nbytes or 0)
            raise QuantizationError(
                f"the smallest weights have {readable_size(least)}, more than the budget of {limit}"
            )
        return as_batches(model, data)
    except WeightQuantizationError as error:
        raise QuantizationError(str(error)) from error


class _Work:
    """The bundles of the candidates, in a temporary folder.

    Args:
        model: `keras.Model`.
        root: path of the folder.
        formats: list of names.
        evaluation: `Evaluation`.
        steps: `Steps`.
    """

    def __init__(
        self, model: keras.Model, root: pathlib.Path, formats: list[str], evaluation: Evaluation, steps: Steps
    ) -> None:
        self._model, self._root, self._formats, self._steps = model, root, formats, steps
        self._folders: dict[str, pathlib.Path] = {}
        self._floats: list[Trial] = []
        self._evaluation = evaluation
        self._choices: dict[str, list[Choice]] = {}
        self.metric = Metric(evaluation, self.folder(FLOAT))

    def folder(self, name: str) -> pathlib.Path:
        """The folder of a candidate."""
        return self._folders.setdefault(name, self._root / str(len(self._folders)))

    def floats(self) -> list[Trial]:
        """Writes and measures the float files."""
        self._steps.begin("writing float32")
        self._floats = self._measured(FLOAT, export(self._model, self.folder(FLOAT), self._formats, progress=False))
        return self._floats

    def trial(self, name: str, candidate: Candidate, batches: list[object], budget: Budget) -> list[Trial]:
        """Writes and measures the files of a candidate, or of several mixtures."""
        self._steps.begin(f"trying {name}")
        mode = candidate.mode
        if mode is not None:
            return self._tried(name, lambda: self._export(self._model, name, mode))
        if not isinstance(candidate.schemes, str):
            return self._tried(name, lambda: self._rounded(name, candidate, candidate.schemes, batches))
        if budget.loss is None and budget.nbytes is not None:
            size = budget.nbytes
            return self._tried(name, lambda: self._within(name, candidate, batches, size))
        return self._for_loss(name, candidate, batches, budget)

    def _tried(self, name: str, write: Callable[[], Report]) -> list[Trial]:
        """The figures of files; refused ones are a result, too."""
        try:
            return self._measured(name, write())
        except (ExportError, WeightQuantizationError) as error:
            reason = one_line(error)
            self._steps.note(f"{name}: refused: {reason}")
            return [Trial(name, each, 0, float("-inf"), None, reason) for each in self._formats]

    def _mixture(self, batches: list[Any], nbytes: int) -> dict[str, WeightScheme | None]:
        """The schemes by path that lose the least in some bytes."""
        if not self._choices:
            self._choices = measured_choices(self._model, batches, self._evaluation)
        return within(self._model, self._choices, nbytes)

    def _for_loss(self, name: str, candidate: Candidate, batches: list[object], budget: Budget) -> list[Trial]:
        """Mixtures that approach the smallest one with a loss."""
        low, high = least_bytes(self._model), most_bytes(self._model)
        high = min(high, budget.nbytes or high)
        # Two sizes may have the same schemes.
        trials: dict[frozenset[tuple[str, WeightScheme | None]], list[Trial]] = {}
        for _ in range(_MIXTURES):
            middle = (low + high) // 2
            schemes, each = self._mixture(batches, middle), f"{name}, {readable_size(middle)}"
            key = frozenset(schemes.items())
            if key not in trials:
                trials[key] = self._tried(each, functools.partial(self._rounded, each, candidate, schemes, batches))
            is_kept = lost(trials[key], self._floats) <= (budget.loss or 0.0)
            low, high = (low, middle) if is_kept else (middle, high)
        return [trial for each in trials.values() for trial in each]

    def _within(self, name: str, candidate: Candidate, batches: list[object], budget: int) -> Report:
        """Writes files with the schemes of a budget; again with smaller ones, if what a file has besides weights is too
        much."""
        limit, least = budget, least_bytes(self._model)
        report = self._rounded(name, candidate, self._mixture(batches, limit), batches)
        for attempt in range(_ATTEMPTS - 1):
            excess = max(artifact.size for artifact in report.artifacts.values()) - budget
            limit -= excess + budget // 1000 * attempt
            if excess <= 0 or limit < least:
                break
            report = self._rounded(name, candidate, self._mixture(batches, limit), batches)
        return report

    def _rounded(self, name: str, candidate: Candidate, schemes: Any, batches: list[object]) -> Report:
        with rounded(self._model, candidate, schemes, batches) as model:
            return self._export(model, name, "learned")

    def _export(self, model: keras.Model, name: str, quantize: str) -> Report:
        return export(model, self.folder(name), self._formats, quantize=quantize, progress=False)

    def _measured(self, name: str, report: Report) -> list[Trial]:
        folder, found = self.folder(name), []
        records = read_manifest(folder).artifacts
        for each in self._formats:
            times = [time for time in (records[each].milliseconds or {}).values() if time]
            score = self.metric(folder, each)
            found.append(Trial(name, each, report[each].size, score, max(times, default=None)))
            self._steps.note(f"{name}, {each}: {readable_size(found[-1].nbytes)}, {self.metric.name} {abs(score):.4g}")
        return found
