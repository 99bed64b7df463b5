"""Verification of quantized files: their outputs on the probes by row, and the predictions of language models on text.

The largest difference of a single value says little of a quantized file. The row-wise change of each output is limited, and
loosely, since random probes are no real inputs. What a language model predicts is judged by `predictions`, the distributions
over classes by `classes`.
"""

import collections
import pathlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.data.limits import change_limit, limits_of
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.errors import ParityError
from keras_transformer.export.formats import get_format
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.runtime.runtime_model import RuntimeModel
from keras_transformer.export.verification.comparison import sentinels
from keras_transformer.export.verification.quantized.classes import ClassChanges, check_classes
from keras_transformer.export.verification.running import milliseconds, opened, results_on
from keras_transformer.utils.freed_memory import give_back

# The figures of `Behavior`, or of `ClassChanges`, by name.
Figures = dict[str, float]
# Rows below this share of the output's own scale are judged by that: their values are mostly rounding.
_SMALLEST_ROW = 0.1
_FLOOR = 1e-6


def verify_quantized_artifact(
    directory: pathlib.Path,
    format: str,
    probes: Mapping[str, Sequence[Probe]],
    manifest: Manifest,
    tolerance: float | None = None,
) -> tuple[list[Parity], Figures | None]:
    """Verifies a quantized artifact of a bundle again. The limits are those of its mode, not of its manifest.

    Args:
        directory, format, probes, manifest: as for `verify_quantized`.
        tolerance: largest change of an output; None for that of the mode.

    Returns:
        `(parity, behavior)`: list of `Parity`, and the figures of a language model or a classifier, or None.

    Raises:
        ParityError: see `verify_quantized`.
        QuantizationError: a language model or a classifier behaves differently, or an unknown mode.
        InvalidBundleError: the bundle of a language model has no predictions of the float model.
    """
    from keras_transformer.export.verification.quantized.float_predictions import FloatPredictions, checked_behavior

    mode = str(manifest.artifact(format).quantization)
    limits, is_language = limits_of(mode), {"prefill", "decode"} <= set(manifest.signatures)
    is_judged = is_language and manifest.generation is not None and {"prefill", "decode"} <= set(probes)
    limit = change_limit(mode, is_judged_on_text=is_judged) if tolerance is None else tolerance
    parity, classes = verify_quantized(directory, format, probes, limit, manifest, is_judged_on_text=is_judged)
    if not is_judged:
        if classes is not None and not is_language:
            check_classes(f"{format}, {mode}", classes, limits)
        return parity, classes
    return parity, checked_behavior(FloatPredictions.read(directory), directory, manifest, format, mode)


def verify_quantized(
    directory: pathlib.Path,
    format: str,
    probes: Mapping[str, Sequence[Probe]],
    tolerance: float,
    manifest: Manifest,
    times: dict[str, float] | None = None,
    *,
    further: Mapping[str, Sequence[Probe]] = MappingProxyType({}),
    is_judged_on_text: bool = False,
) -> tuple[list[Parity], Figures | None]:
    """Runs a quantized artifact on probes.

    A trained language model may answer one token that stands alone with states that are a hundred times larger, or not, by a
    rounding. Where predictions on text decide, up to half of such probes of a signature may therefore differ from the float
    model's.

    Args:
        directory: path of the bundle, complete or still being written.
        format: name of the format.
        probes: dict of signature name to a list of `Probe` with the outputs of the float model.
        tolerance: largest change of an output, as `row_change` measures it.
        manifest: the bundle's manifest.
        times: dict that receives the milliseconds of a call of each signature, or None.
        further: dict of signature name to further probes, of other batches and lengths, whose classes are not counted: a
            bundle keeps none of them.
        is_judged_on_text: bool. Whether predictions on text decide.

    Returns:
        `(parity, classes)`: a list of `Parity`, whose `ratio` is the largest change of an output, and the change of the
        distributions over classes, see `ClassChanges.figures`.

    Raises:
        ParityError: a file fails, or an output has another shape or dtype, is not finite, or changes too much.
    """
    worst: dict[tuple[str, str], Parity] = {}
    classes = ClassChanges()
    for signature, cases in probes.items():
        model = opened(directory, manifest, format, signature, tolerance)
        alone = LoneRows(tolerance if is_judged_on_text else None)
        for number, probe in enumerate([*cases, *further.get(signature, ())]):
            counted = classes if number < len(cases) else None
            for name, difference, scale, change in _changes(model, format, probe, tolerance, counted, alone):
                if (signature, name) not in worst or change > worst[signature, name].ratio:
                    worst[signature, name] = Parity(signature, name, difference, scale, change)
        alone.check()
        if times is not None:
            times[signature] = milliseconds(model, cases[0].inputs)
        if not get_format(format).shares_loaded:
            del model  # The next runtime would hold the weights a second time.
            give_back()
    return list(worst.values()), classes.figures()


class LoneRows:
    """The outputs of one signature that have one row: of a token that stands alone.

    Args:
        tolerance: largest change of half of them; None to refuse every one beyond the limit.
    """

    def __init__(self, tolerance: float | None) -> None:
        self._tolerance = tolerance
        self._count: collections.Counter[str] = collections.Counter()
        self._beyond: dict[str, list[ParityError]] = collections.defaultdict(list)

    def takes(self, expected: np.ndarray, change: float, error: ParityError) -> bool:
        """Whether an output is one of these; a change beyond the limit then waits for `check`."""
        if self._tolerance is None or expected.size != expected.shape[-1] or not np.isfinite(change):
            return False
        self._count[error.output] += 1
        if change > self._tolerance:
            self._beyond[error.output].append(error)
        return True

    def check(self) -> None:
        """Raises the first error of an output of which more than half are beyond the limit."""
        for name, errors in self._beyond.items():
            if 2 * len(errors) > self._count[name]:
                raise errors[0]


def _changes(
    model: RuntimeModel, format: str, probe: Probe, tolerance: float, classes: ClassChanges | None, alone: LoneRows
) -> list[tuple[str, float, float, float]]:
    """`(name, largest difference, scale, change)` of each float output on one probe."""

    def refuse(name: str, detail: str | None, difference: float = np.nan, scale: float = 1.0) -> ParityError:
        return ParityError(format, name, probe.label, difference, scale, tolerance, detail)

    with full_precision():
        results = results_on(model, format, probe, tolerance)
    found: list[tuple[str, float, float, float]] = []
    for name, expected in probe.outputs.items():
        got = results[name]
        if got.dtype.kind != expected.dtype.kind or got.shape != expected.shape:
            raise refuse(name, f"is {got.dtype} {got.shape}, Keras returns {expected.dtype} {expected.shape}")
        if expected.dtype.kind != "f":
            continue  # A token is the most likely one, which quantization may change.
        change = row_change(got, expected)
        regular = ~sentinels(expected)
        with np.errstate(invalid="ignore"):
            difference = float(np.max(np.abs(got - expected), initial=0.0, where=regular))
        scale = max(float(np.max(np.abs(expected), initial=0.0, where=regular)), _FLOOR)
        place = "" if change <= tolerance else f" ({_worst(got, expected)})"
        detail = f"changes by {change:.3g} of its rows, root mean square{place}; tolerance {tolerance:.3g}"
        error = refuse(name, detail, difference, scale)
        if not alone.takes(expected, change, error) and not change <= tolerance:
            raise error
        if classes is not None:
            classes.add(name, got, expected)
        found.append((name, difference, scale, change))
    return found


def _worst(got: np.ndarray, expected: np.ndarray) -> str:
    """The value that differs most, and where it is: a fault in one place is no loss of precision."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(got.astype("float64") - expected)
    place = tuple(map(int, np.unravel_index(np.argmax(np.nan_to_num(difference, nan=np.inf)), expected.shape)))
    return f"at {list(place)} it is {got[place]:.3g}, {expected[place]:.3g} expected"


def row_change(got: np.ndarray, expected: np.ndarray) -> float:
    """The root mean square, over the rows of an output, of each row's relative difference.

    The relative difference of a row (the last axis) is the norm of the difference over the norm of the expected row.
    Sentinels (see `comparison.sentinels`) must be equal but for one percent, and do not count.

    Args:
        got: array of a runtime.
        expected: array of the float model, of the same shape.

    Returns:
        float; NaN where a value is not finite or a sentinel differs.

    Example:

    >>> round(row_change(np.array([[3.0, 5.0], [0.0, 1.0]]), np.array([[3.0, 4.0], [0.0, 1.0]])), 6)
    0.141421
    """
    if expected.size == 0:
        return 0.0
    got, expected = (each.astype("float64").reshape(-1, each.shape[-1] if each.ndim else 1) for each in (got, expected))
    regular = ~sentinels(expected)
    if not np.allclose(got[~regular], expected[~regular], rtol=0.01, atol=0):
        return float("nan")
    kept = np.where(regular, expected, 0.0)
    difference = np.square(np.where(regular, got - kept, 0.0)).mean(axis=1)
    size = np.square(kept).mean(axis=1)
    least = max(_SMALLEST_ROW**2 * float(size.mean()), _FLOOR**2)
    changes: np.ndarray = difference / np.maximum(size, least)
    return float(np.sqrt(changes.mean()))
