"""The stage of the outputs: an artifact runs on the probes in its own runtime, and must compute what the model computed."""

from __future__ import annotations

import concurrent.futures
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.errors import ParityError
from keras_transformer.export.formats import get_format
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.runtime.runtime_model import RuntimeModel
from keras_transformer.export.verification.comparison import Limit, compare, parity_error
from keras_transformer.export.verification.running import milliseconds, opened, results_on
from keras_transformer.utils.freed_memory import give_back

_CALLS_AT_ONCE = 2


def verify_format(
    directory: pathlib.Path,
    format: str,
    probes: Mapping[str, Sequence[Probe]],
    tolerance: float | None,
    manifest: Manifest,
    times: dict[str, float] | None = None,
) -> list[Parity]:
    """Runs one artifact on probes, while it is being exported.

    Args:
        directory: path of the bundle, complete or still being written.
        format: name of the format.
        probes: dict of signature name to a list of `Probe` with their outputs.
        tolerance: largest difference allowed, as a share of each output's scale; None for what the rounding of the model
            explains.
        manifest: the bundle's manifest.
        times: dict that receives the milliseconds of a call of each signature, or None.

    Returns:
        A list of `Parity`.

    Raises:
        ParityError: an output differs; the message has its name and the difference.
    """
    return compare_outputs(directory, format, probes, Limit(tolerance), manifest, times)


def check_preprocessing(spec: ExportSpec) -> None:
    """Compares the whole model with the steps in front of its files and the part behind them, both in Keras.

    Raises:
        ParityError: an output differs.
    """
    for name, each in spec.preprocessed.items():
        for probe, part in zip(each.signature.probes, spec.signatures[name].probes, strict=True):
            for output, expected in probe.outputs.items():
                found = compare(part.outputs[output], expected)
                if not found.is_accepted:
                    raise parity_error("preprocessing", output, probe.label, found)


def compare_outputs(
    directory: pathlib.Path,
    format: str,
    probes: Mapping[str, Sequence[Probe]],
    limit: Limit,
    manifest: Manifest,
    times: dict[str, float] | None = None,
) -> list[Parity]:
    """Runs one artifact on probes, and holds each output to a `Limit`; see `verify_format`."""

    def compared(signature: str, model: RuntimeModel) -> list[Parity]:
        with full_precision():
            return [each for probe in probes[signature] for each in parities(model, format, signature, probe, limit)]

    def add_time(signature: str, model: RuntimeModel) -> None:
        if times is not None:
            times[signature] = milliseconds(model, probes[signature][0].inputs)

    found: list[Parity] = []
    if get_format(format).shares_loaded:
        # The file is loaded once. The first call of each signature optimizes its graph on one core.
        models = {signature: opened(directory, manifest, format, signature) for signature in probes}
        with concurrent.futures.ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            found += [each for part in pool.map(compared, models, models.values()) for each in part]
        for signature, model in models.items():
            add_time(signature, model)
        return _worst(found)
    for signature in probes:
        model = opened(directory, manifest, format, signature)
        found += compared(signature, model)
        add_time(signature, model)
        del model  # The next runtime would hold the weights a second time.
        give_back()
    return _worst(found)


def parities(model: RuntimeModel, format: str, signature: str, probe: Probe, limit: Limit) -> Iterator[Parity]:
    """The `Parity` of each output of a signature on one probe.

    Args:
        model: `RuntimeModel` of the signature.
        format: name of the format, for errors.
        signature: its name.
        probe: `Probe` with the outputs of the Keras model.
        limit: `Limit`.

    Raises:
        ParityError: an output is missing, has another shape or dtype, or differs by more than the limit.
    """
    results = results_on(model, format, probe)
    for name, expected in probe.outputs.items():
        result = results[name]
        if _kind(result) != _kind(expected) or result.shape != expected.shape:
            detail = f"is {result.dtype} {result.shape}, Keras returns {expected.dtype} {expected.shape}"
            raise ParityError(format, name, probe.label, np.nan, 1.0, 0.0, detail)
        found = compare(result, expected, probe.rounding.get(name), limit)
        if not found.is_accepted and probe.measure is not None:
            probe.rounding, probe.measure = probe.measure(), None
            found = compare(result, expected, probe.rounding.get(name), limit)
        if not found.is_accepted:
            raise parity_error(format, name, probe.label, found)
        yield Parity(signature, name, found.difference, found.scale, found.ratio, found.share)


def _worst(found: Iterable[Parity]) -> list[Parity]:
    """The largest differences of each output."""
    worst: dict[tuple[str, str], Parity] = {}
    for each in found:
        key = each.signature, each.output
        worst[key] = each.joined(worst[key]) if key in worst else each
    return list(worst.values())


def _kind(array: np.ndarray) -> str | np.dtype:
    return "text" if array.dtype.kind == "U" else array.dtype
