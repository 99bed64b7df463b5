"""The verdict: every artifact of a bundle, in its own runtime, is compared with the Keras model on the kept probes."""

import pathlib
import time
from collections.abc import Iterable

from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.data.limits import limits_of
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import CEILING
from keras_transformer.export.data.report import Artifact, Report
from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.export.formats import get_format
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.export.verification.comparison import Limit
from keras_transformer.export.verification.outputs import compare_outputs
from keras_transformer.export.verification.quantized.outputs import verify_quantized_artifact
from keras_transformer.utils.types import Path


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
    artifacts: dict[str, Artifact] = {}
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
        limit = kept_limit(manifest, name, tolerance)
        parity, behavior = compare_outputs(directory, name, own, limit, manifest), None
    path = directory / next(iter(record.signatures.values()))
    count = sum(len(each) for each in own.values())
    figures = (record.size, time.perf_counter() - start, parity, count, record.float_size)
    known = record.known_differences
    return Artifact(name, str(path.resolve()), *figures, behavior=behavior, known_differences=known)


def _probes_of_format(manifest: Manifest, name: str, probes: dict[str, list[Probe]]) -> dict[str, list[Probe]]:
    """The probes of every signature of a format; a signature without probes would not be verified."""
    files = manifest.artifact(name).signatures
    get_format(name)
    for key in files:
        if not probes.get(key) or not all(probe.outputs for probe in probes[key]):
            raise InvalidBundleError(f"the bundle has no probe of signature '{key}'")
    return {key: probes[key] for key in files}
