"""Version directories of TensorFlow Serving: the SavedModel of a bundle as `DIR/VERSION/saved_model.pb`.

Next to it is `batching_params.pbtxt`, which `tensorflow_model_server --enable_batching
--enable_per_model_batching_parameters` reads; `--batching_parameters_file` takes the same file for all models of a server.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.bundle.writing import replacing
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.engines.triton.text_proto import text_proto
from keras_transformer.export.errors import ExportError, InvalidBundleError, ParityError
from keras_transformer.export.formats import files_of
from keras_transformer.export.saved_model.format import SAVED_MODEL
from keras_transformer.export.serving.batching import Batching, why_alone
from keras_transformer.export.verification.comparison import Limit, compare, parity_error
from keras_transformer.export.verification.verify import kept_limit
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import onnxruntime

    from keras_transformer.export.data.array_spec import ArraySpec
    from keras_transformer.export.data.export_spec import Probe
    from keras_transformer.utils.types import Path


BATCHING = "batching_params.pbtxt"
DEFAULT = "serving_default"
_FORMAT = SAVED_MODEL.name


def write_serving(
    bundle: Path, directory: Path, version: int = 1, default: str | None = None, batching: Batching | None = None
) -> pathlib.Path:
    """Writes the SavedModel of a bundle as one version of a model that TensorFlow Serving serves.

    The numbered folder appears atomically after verification, so that a server that watches the directory sees only
    complete versions. Every signature keeps its name; `serving_default` is an alias of one of them.

    Args:
        bundle: path of a bundle with a SavedModel.
        directory: path of the model's directory, the `base_path` of the server; created if necessary.
        version: int >= 1: the number of the version. Default 1.
        default: name of the signature that `serving_default` is an alias of. None for the first of the bundle.
        batching: `Batching`: how the server puts requests together; None for its defaults where requests can be put
            together, and for no file where they cannot: the server joins whole requests along their first axis, so that
            every signature must have the axis `batch` there and nowhere else one that varies.

    Returns:
        `pathlib.Path` of the version's folder.

    Raises:
        InvalidBundleError: no bundle there, or one without a SavedModel or without that signature.
        ExportError: the version exists already, or is no number; `batching` for a model that cannot be served so.
        ParityError: what was written does not compute what the Keras model computed.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export, write_serving
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["saved_model"])
    >>> import shutil; shutil.rmtree("/tmp/keras_transformer_serving", ignore_errors=True)
    >>> write_serving("/tmp/keras_transformer_doctest", "/tmp/keras_transformer_serving", version=3).name
    '3'
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ExportError(f"version must be a positive integer. Received: {version!r}")
    target = pathlib.Path(directory).resolve() / str(version)
    if target.exists() or target.is_symlink():
        raise ExportError(f"version {version} exists already: '{target}'")
    manifest = read_manifest(bundle)
    names = list(manifest.files_of(_FORMAT))
    source = manifest.path(bundle, _FORMAT, default or next(iter(names), "serve"))
    parameters = _batching_parameters(manifest, names, batching)
    check_hashes(bundle, manifest, files_of(manifest, _FORMAT))
    probes = read_probes(bundle)
    with replacing(target) as work:
        if default in (None, names[0]):
            shutil.copytree(source, work, dirs_exist_ok=True)
        else:
            _save_with_default(source, work, default)
        if parameters is not None:
            (work / BATCHING).write_text(text_proto(parameters), encoding="utf-8")
        with captured():
            _verify(work, names, default or names[0], probes, kept_limit(manifest, _FORMAT))
        if target.exists():
            raise ExportError(f"version {version} exists already: '{target}'")
    return target


def _batching_parameters(manifest: Manifest, names: Sequence[str], batching: Batching | None) -> JsonObject | None:
    """The fields of `BatchingParameters`, or None if requests cannot be batched."""
    for name in names:
        reason = _why_alone(*manifest.signature(name))
        if reason is not None:
            if batching is not None:
                raise ExportError(f"signature '{name}' computes one request at a time: {reason}")
            return None
    batching = batching or Batching()
    return {
        "max_batch_size": {"value": batching.max_batch_size},
        "batch_timeout_micros": {"value": batching.wait_microseconds},
        "max_enqueued_batches": {"value": -(-batching.max_waiting // batching.max_batch_size)},
        "allowed_batch_sizes": batching.sizes,
    }


def _why_alone(inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec]) -> str | None:
    """As `why_alone`; the server pads no axis but the first with values that mean nothing."""
    for spec in inputs:
        if any(spec.axes[1:]):
            return f"input '{spec.name}' varies in more than its first axis: {spec.describe()}"
    return why_alone(inputs, outputs)


def _save_with_default(source: pathlib.Path, work: pathlib.Path, default: str) -> None:
    """Saves the loaded model with another signature as `serving_default`."""
    from keras_transformer.export.saved_model.runtime import load_saved_model

    loaded = load_saved_model(str(source), 1)
    with captured():
        import tensorflow as tf

        signatures = dict(loaded.signatures)
        tf.saved_model.save(loaded, str(work), signatures={**signatures, DEFAULT: signatures[default]})


def _verify(
    path: pathlib.Path, names: Sequence[str], default: str, probes: Mapping[str, Sequence[Probe]], limit: Limit
) -> None:
    """Verifies the folder as a server loads it, as one graph with a session: runs every signature on its probes."""
    import tensorflow as tf

    with contextlib.suppress(ImportError):
        import tensorflow_text  # noqa: F401 Its ops are part of every TensorFlow Serving.
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        try:
            loaded = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], str(path))
        except library_exceptions() as error:
            raise InvalidBundleError(f"the SavedModel cannot be loaded: {_last_line(error)}") from error
        for name in (*names, DEFAULT):
            if name not in loaded.signature_def:
                raise InvalidBundleError(f"the SavedModel has no signature '{name}'")
            cases = probes.get(default if name == DEFAULT else name)
            if not cases:
                raise InvalidBundleError(f"the bundle has no probe of signature '{name}'")
            for probe in cases:
                _compare(session, loaded.signature_def[name], name, probe, limit)


def _last_line(error: Exception) -> str:
    """TensorFlow begins with where it happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "{{node" not in line]
    return one_line(lines[-1] if lines else error)


def _compare(session: onnxruntime.InferenceSession, signature: Any, name: str, probe: Probe, limit: Limit) -> None:
    feeds = {info.name: probe.inputs[key] for key, info in signature.inputs.items()}
    try:
        results = session.run({key: info.name for key, info in signature.outputs.items()}, feeds)
    except library_exceptions() as error:
        detail = f"cannot be computed: {_last_line(error)}"
        raise ParityError(_FORMAT, name, probe.label, np.nan, 1.0, 0.0, detail) from error
    for key, expected in probe.outputs.items():
        got = results[key]
        if expected.dtype.kind == "U":
            got = np.array([each.decode() for each in got.ravel()], str).reshape(got.shape)
        if got.shape != expected.shape:
            detail = f"is {got.shape}, Keras returns {expected.shape}"
            raise ParityError(_FORMAT, key, probe.label, np.nan, 1.0, 0.0, detail)
        if limit.is_quantized and expected.dtype.kind != "f":
            continue  # As in `verify`: tokens chosen by the logits may differ.
        found = compare(got, expected, probe.rounding.get(key), limit)
        if not found.is_accepted:
            raise parity_error(_FORMAT, key, probe.label, found)
