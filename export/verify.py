"""Runs every artifact in its own runtime on every probe and compares it with the Keras model."""

import pathlib
import time

import numpy as np

from keras_transformer.export import runtime
from keras_transformer.export.errors import InvalidBundleError, ParityError
from keras_transformer.export.manifest import PROBES, check_hashes, read_manifest
from keras_transformer.export.report import Artifact, Parity, Report
from keras_transformer.export.spec import Probe

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
        own = {key: probes for key, probes in kept.items() if key in manifest["artifacts"][name]["signatures"]}
        parity = verify_format(directory, name, own, manifest["tolerance"], manifest)
        path = directory / _top(manifest, name)
        count = sum(len(probes) for probes in own.values())
        size = manifest["artifacts"][name]["bytes"]
        artifacts[name] = Artifact(name, str(path.resolve()), size, time.perf_counter() - start, parity, count)
    return Report(str(directory.resolve()), artifacts, manifest["tolerance"])


def verify_format(directory, format, probes, tolerance, manifest):
    """Runs one artifact on probes.

    Args:
        directory: path of the bundle, complete or still being written.
        format: name of the format.
        probes: dict of signature name to a list of `Probe` with their outputs.
        tolerance: largest difference allowed, as a share of each output's scale.
        manifest: the bundle's manifest.

    Returns:
        A list of `Parity`.

    Raises:
        ParityError: names the output and gives the figures.
    """
    figures = {}
    for signature, cases in probes.items():
        try:
            model = runtime.open_artifact(directory, manifest, format, signature)
        except InvalidBundleError:
            raise
        except Exception as error:
            raise ParityError(format, "*", "loading", np.nan, 1.0, tolerance, f"cannot be loaded: {error}") from error
        with runtime.full_precision():
            compared = [each for probe in cases for each in _compare(model, format, signature, probe, tolerance)]
        for each in compared:
            worst = figures.get((signature, each.output))
            if worst is None or each.ratio > worst.ratio:
                figures[signature, each.output] = each
    return list(figures.values())


def _compare(model, format, signature, probe, tolerance):
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
        if not difference <= allowed:
            raise failed(name, None, difference, scale)
        parities.append(Parity(signature, name, difference, scale, difference / scale))
    return parities


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


def write_probes(directory, probes, limit):
    """Keeps the probes, smallest first, up to `limit` bytes (at least one per signature), in `probes.npz`."""
    arrays, used = {}, 0
    for signature, cases in probes.items():
        for number, probe in enumerate(sorted(cases, key=_bytes)):
            used += _bytes(probe)
            if number and used > limit:
                break
            prefix = f"{signature}/{number}"
            arrays[f"{prefix}/label"] = np.array(probe.label)
            arrays.update({f"{prefix}/inputs/{name}": array for name, array in probe.inputs.items()})
            arrays.update({f"{prefix}/outputs/{name}": array for name, array in probe.outputs.items()})
    np.savez_compressed(pathlib.Path(directory, PROBES), **arrays)


def read_probes(directory):
    """Dict of signature name to the probes kept in a bundle.

    Raises:
        InvalidBundleError: they cannot be read.
    """
    found = {}
    try:
        with np.load(pathlib.Path(directory, PROBES), allow_pickle=False) as arrays:
            for key in arrays.files:
                signature, number, side, *name = key.split("/")
                probe = found.setdefault(signature, {}).setdefault(int(number), Probe({}, ""))
                if side == "label":
                    probe.label = str(arrays[key])
                else:
                    getattr(probe, side)[name[0]] = arrays[key]
    except Exception as error:
        raise InvalidBundleError(f"'{PROBES}' cannot be read: {error}") from error
    return {signature: [probes[number] for number in sorted(probes)] for signature, probes in found.items()}


def _bytes(probe):
    return sum(array.nbytes for array in (*probe.inputs.values(), *probe.outputs.values()))


def _top(manifest, format):
    return next(iter(manifest["artifacts"][format]["signatures"].values()))
