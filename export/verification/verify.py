"""Comparison of every artifact, in its own runtime, with the outputs of the Keras model on the probes."""

import concurrent.futures
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.probe_files import read_probes, write_probes
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import CEILING, Parity
from keras_transformer.export.data.report import Artifact, Report
from keras_transformer.export.errors import InvalidBundleError, ParityError
from keras_transformer.export.formats import get_format
from keras_transformer.export.quantization.behavior import limits_of
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.runtime.runtime_model import RuntimeModel
from keras_transformer.export.verification.comparison import Limit, compare, parity_error
from keras_transformer.export.verification.quantized import verify_quantized_artifact
from keras_transformer.export.verification.running import opened, results_on
from keras_transformer.export.verification.timing import milliseconds
from keras_transformer.utils.freed_memory import give_back
from keras_transformer.utils.types import Path

_CALLS_AT_ONCE = 2

__all__ = ["read_probes", "verify_bundle", "verify_format", "write_probes"]


def verify_bundle(
    directory: Path,
    backends: Iterable[str] | None = None,
    *,
    tolerance: float | None = None,
    progress: Progress = False,
) -> Report:
    """Verifies a bundle again with the probes kept in it; needs neither Keras nor the model.

    Args:
        directory: path of the bundle.
        backends: names of the formats to run; all that the bundle has when None.
        tolerance: largest difference allowed, as a share of each output's scale. By default what the rounding of the
            model explains, as measured by the export, but at most 1e-3 of a block's scale, and of quantized files what
            their mode allows. The tolerance in the manifest is not believed; that a file is quantized, and how, is. A number
            holds every file to it.
        progress: bool, or a function that is called with lines of text: see `Steps`.

    Returns:
        A `Report`.

    Raises:
        InvalidBundleError: the bundle is incomplete, or a file differs from its hash.
        ParityError: an artifact does not compute what the Keras model computed.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export, verify_bundle
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> list(verify_bundle("/tmp/keras_transformer_doctest").artifacts)
    ['onnx']
    """
    directory = pathlib.Path(directory)
    manifest = read_manifest(directory)
    check_hashes(directory, manifest)
    probes = read_probes(directory)
    names = list(backends or manifest.artifacts)
    artifacts = {}
    with Steps(len(names), progress) as steps:
        for name in names:
            steps.begin(f"verifying {name}")
            artifacts[name] = _verified(directory, manifest, name, probes, tolerance)
    # Of quantized files, what their mode allows, as in the report of the export.
    limits = [kept_limit(manifest, name, tolerance).tolerance for name in names]
    allowed = max((CEILING if limit is None else limit for limit in limits), default=CEILING)
    return Report(str(directory.resolve()), artifacts, allowed)


def kept_limit(manifest: Manifest, format: str, tolerance: float | None = None) -> Limit:
    """What a file of a bundle is held to after the export.

    Args:
        manifest: the bundle's manifest. Only the mode of a quantization is taken from it.
        format: name of the format.
        tolerance: largest difference allowed, as a share of each output's scale; by default that of the mode, or what the
            rounding of the model explains, up to a ceiling.

    Returns:
        A `Limit`.
    """
    mode = manifest.artifacts[format].quantization if format in manifest.artifacts else None
    if tolerance is None and mode is not None:
        tolerance = limits_of(mode).change
    return Limit(tolerance, CEILING, mode is not None)


def _verified(
    directory: pathlib.Path,
    manifest: Manifest,
    name: str,
    probes: dict[str, list[Probe]],
    tolerance: float | None,
) -> Artifact:
    start = time.perf_counter()
    own = _probes_of_format(manifest, name, probes)
    record = manifest.artifact(name)
    if record.quantization is not None:
        parity, behavior = verify_quantized_artifact(directory, name, own, manifest, tolerance)
    else:
        parity, behavior = _compared(directory, name, own, kept_limit(manifest, name, tolerance), manifest), None
    path = directory / next(iter(record.signatures.values()))
    count = sum(len(each) for each in own.values())
    figures = (record.size, time.perf_counter() - start, parity, count, record.float_size)
    return Artifact(name, str(path.resolve()), *figures, behavior=behavior)


def _probes_of_format(manifest: Manifest, name: str, probes: dict[str, list[Probe]]) -> dict[str, list[Probe]]:
    """The probes of every signature of a format; a signature without probes would not be verified."""
    files = manifest.artifact(name).signatures
    get_format(name)
    for key in files:
        if not probes.get(key) or not all(probe.outputs for probe in probes[key]):
            raise InvalidBundleError(f"the bundle has no probe of signature '{key}'")
    return {key: probes[key] for key in files}


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
    return _compared(directory, format, probes, Limit(tolerance), manifest, times)


def _compared(
    directory: pathlib.Path,
    format: str,
    probes: Mapping[str, Sequence[Probe]],
    limit: Limit,
    manifest: Manifest,
    times: dict[str, float] | None = None,
) -> list[Parity]:
    def compared(signature: str, model: RuntimeModel) -> list[Parity]:
        comparison = _Comparison(model, format, signature, limit)
        with full_precision():
            return [each for probe in probes[signature] for each in comparison.parities(probe)]

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


def _worst(found: Iterable[Parity]) -> list[Parity]:
    """The largest differences of each output."""
    worst: dict[tuple[str, str], Parity] = {}
    for each in found:
        key = each.signature, each.output
        worst[key] = each.joined(worst[key]) if key in worst else each
    return list(worst.values())


class _Comparison:
    """One signature of an artifact compared with the outputs of the probes."""

    def __init__(self, model: RuntimeModel, format: str, signature: str, limit: Limit) -> None:
        self._model = model
        self._format = format
        self._signature = signature
        self._limit = limit

    def parities(self, probe: Probe) -> Iterator[Parity]:
        """The `Parity` of each output on one probe."""
        results = results_on(self._model, self._format, probe)
        for name, expected in probe.outputs.items():
            result = results[name]
            if _kind(result) != _kind(expected) or result.shape != expected.shape:
                detail = f"is {result.dtype} {result.shape}, Keras returns {expected.dtype} {expected.shape}"
                raise ParityError(self._format, name, probe.label, np.nan, 1.0, 0.0, detail)
            found = compare(result, expected, probe.rounding.get(name), self._limit)
            if not found.is_accepted:
                raise parity_error(self._format, name, probe.label, found)
            yield Parity(self._signature, name, found.difference, found.scale, found.ratio, found.share)


def _kind(array: np.ndarray) -> Any:
    return "text" if array.dtype.kind == "U" else array.dtype
