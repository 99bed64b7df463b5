"""Runs every artifact in its own runtime on every probe and compares it with the Keras model."""

import pathlib
import statistics
import time

import numpy as np

from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.probe_files import read_probes, write_probes
from keras_transformer.export.errors import ExportError, InvalidBundleError, ParityError, UnknownFormatError
from keras_transformer.export.reporting.report import Artifact, Parity, Report
from keras_transformer.export.runtime import loading as runtime

__all__ = ["difference_and_scale", "read_probes", "verify_bundle", "verify_format", "write_probes"]

SCALE_FLOOR = 1e-6


def verify_bundle(directory, backends=None):
    """Proves a bundle again from the probes kept in it; needs neither Keras nor the model.

    Args:
        directory: path of the bundle.
        backends: names of the formats to run; all that the bundle has when None.

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
    kept = read_probes(directory)
    artifacts = {}
    for name in backends or manifest["artifacts"]:
        start = time.perf_counter()
        own = _own_probes(manifest, name, kept)
        record = manifest["artifacts"][name]
        parity = verify_format(directory, name, own, record.get("tolerance", manifest["tolerance"]), manifest)
        path = directory / _top(manifest, name)
        count = sum(len(probes) for probes in own.values())
        figures = (record["bytes"], time.perf_counter() - start, parity, count, record.get("float_bytes"))
        artifacts[name] = Artifact(name, str(path.resolve()), *figures)
    return Report(str(directory.resolve()), artifacts, manifest["tolerance"])


def _own_probes(manifest, name, kept):
    """The probes of every signature of a format; one without would be proven by nothing."""
    if name not in manifest["artifacts"]:
        raise InvalidBundleError(f"the bundle has no {name} artifact; it has {', '.join(manifest['artifacts'])}")
    if name not in runtime.ENGINES:
        raise UnknownFormatError(name, runtime.ENGINES)
    for key in manifest["artifacts"][name]["signatures"]:
        if not kept.get(key) or not all(probe.outputs for probe in kept[key]):
            raise InvalidBundleError(f"the bundle has no probe of signature '{key}'")
    return {key: kept[key] for key in manifest["artifacts"][name]["signatures"]}


def verify_format(directory, format, probes, tolerance, manifest, times=None):
    """Runs one artifact on probes.

    Args:
        directory: path of the bundle, complete or still being written.
        format: name of the format.
        probes: dict of signature name to a list of `Probe` with their outputs.
        tolerance: largest difference allowed, as a share of each output's scale.
        manifest: the bundle's manifest.
        times: dict to put the milliseconds of a call of each signature into, or None.

    Returns:
        A list of `Parity`.

    Raises:
        ParityError: names the output and gives the figures.
    """
    is_quantized = "quantization" in manifest["artifacts"][format]
    figures = {}
    for signature, cases in probes.items():
        try:
            model = runtime.open_artifact(directory, manifest, format, signature)
        except ExportError:
            raise
        except Exception as error:
            raise ParityError(format, "*", "loading", np.nan, 1.0, tolerance, f"cannot be loaded: {error}") from error
        with runtime.full_precision():
            compared = [
                each for probe in cases for each in _compare(model, format, signature, probe, tolerance, is_quantized)
            ]
        if times is not None:
            times[signature] = _milliseconds(model, cases[0].inputs)
        for each in compared:
            worst = figures.get((signature, each.output))
            if worst is None or each.ratio > worst.ratio:
                figures[signature, each.output] = each
    return list(figures.values())


def _compare(model, format, signature, probe, tolerance, is_quantized):
    def failed(output, detail=None, difference=np.nan, scale=1.0):
        return ParityError(format, output, probe.label, difference, scale, tolerance, detail)

    try:
        results = model(probe.inputs)
    except Exception as error:
        raise failed("*", f"cannot be computed: {' '.join(str(error).split())[:300]}") from error
    if set(results) != set(probe.outputs):
        raise failed(str(sorted(results)), f"is not the Keras model's {sorted(probe.outputs)}")
    parities = []
    for name, expected in probe.outputs.items():
        got = results[name]
        if _kind(got) != _kind(expected) or got.shape != expected.shape:
            raise failed(name, f"is {got.dtype} {got.shape}, Keras gives {expected.dtype} {expected.shape}")
        difference, scale = difference_and_scale(got, expected)
        allowed = tolerance * scale if expected.dtype.kind == "f" else 0
        if is_quantized and expected.dtype.kind != "f":
            continue  # A token is chosen by comparing logits: here it may well be another.
        if not difference <= allowed:
            raise failed(name, None, difference, scale)
        parities.append(Parity(signature, name, difference, scale, difference / scale))
    return parities


def _milliseconds(model, inputs, calls=10):
    """The median time of a call; those of the comparison have warmed the runtime up."""
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        model(inputs)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def _kind(array):
    return "text" if array.dtype.kind == "U" else array.dtype


def difference_and_scale(got, expected):
    """Largest absolute difference and the scale to judge it by, the largest absolute expected value.

    Infinities must stand where the reference has them; a NaN anywhere makes the difference NaN.
    """
    if expected.size == 0:
        return 0.0, 1.0
    if expected.dtype.kind == "U":
        return float(np.sum(got != expected)), 1.0
    if expected.dtype.kind == "c":
        raise TypeError("complex outputs cannot be compared")
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    scale = max(float(np.max(np.abs(expected[finite]), initial=0.0)), SCALE_FLOOR)
    if not np.array_equal(got[~finite], expected[~finite]):
        return float("nan"), scale
    return float(np.max(np.abs(got[finite] - expected[finite]), initial=0.0)), scale


def _top(manifest, format):
    return next(iter(manifest["artifacts"][format]["signatures"].values()))
