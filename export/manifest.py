"""`manifest.json`: what a bundle holds. Read and written without TensorFlow or Keras."""

import hashlib
import json
import math
import pathlib

from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.export.spec import ArraySpec

FILE = "manifest.json"
PROBES = "probes.npz"
SCHEMA = 1
_REQUIRED = {"schema": int, "producer": str, "signatures": dict, "artifacts": dict, "tolerance": float, "files": dict}
PRODUCER = "keras_transformer.export"


def read_manifest(directory):
    """Reads and checks the manifest of a bundle.

    Args:
        directory: path of the bundle.

    Returns:
        The manifest as a dict.

    Raises:
        InvalidBundleError: no bundle there, a manifest that cannot be read, or a file of it missing, of another size
            or outside the bundle.
    """
    directory = pathlib.Path(directory)
    path = directory / FILE
    if not directory.exists():
        raise InvalidBundleError(f"no such bundle: '{directory}'")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidBundleError(f"'{directory}' is not a bundle: it holds no {FILE}") from None
    except (OSError, ValueError) as error:
        raise InvalidBundleError(f"'{path}' cannot be read: {error}") from error
    _check_fields(path, manifest)
    _check_files(directory, manifest)
    return manifest


def signature_specs(manifest, name):
    """Input and output specs of one signature.

    Raises:
        InvalidBundleError: the bundle has no such signature.
    """
    if name not in manifest["signatures"]:
        raise InvalidBundleError(f"no signature '{name}'; the bundle has {', '.join(manifest['signatures'])}")
    record = manifest["signatures"][name]
    return [tuple(ArraySpec.from_dict(each) for each in record[side]) for side in ("inputs", "outputs")]


def file_records(directory):
    """Dict of relative path to size and sha256, over every file below a directory."""
    directory = pathlib.Path(directory)
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): _record(path) for path in paths}


def check_hashes(directory, manifest):
    """Compares every file with the hash in the manifest.

    Raises:
        InvalidBundleError: names the first file that differs.
    """
    for name, record in manifest["files"].items():
        if _record(pathlib.Path(directory, name))["sha256"] != record["sha256"]:
            raise InvalidBundleError(f"'{name}' was altered: its sha256 is not the manifest's")


def artifact_path(directory, manifest, format, signature):
    """Path of the file (or directory) that holds one signature in one format.

    Raises:
        InvalidBundleError: the bundle was written without that format.
    """
    if format not in manifest["artifacts"]:
        raise InvalidBundleError(f"the bundle has no {format} artifact; it has {', '.join(manifest['artifacts'])}")
    files = manifest["artifacts"][format]["signatures"]
    if signature not in files:
        raise InvalidBundleError(f"the {format} artifact has no signature '{signature}'; it has {', '.join(files)}")
    return pathlib.Path(directory, files[signature])


def _record(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def _check_fields(path, manifest):
    if not isinstance(manifest, dict) or manifest.get("producer") != PRODUCER:
        raise InvalidBundleError(f"'{path}' is not the manifest of a bundle")
    if manifest.get("schema") != SCHEMA:
        raise InvalidBundleError(f"'{path}' has schema {manifest.get('schema')}; this version reads schema {SCHEMA}")
    for field, kind in _REQUIRED.items():
        if not isinstance(manifest.get(field), kind):
            raise InvalidBundleError(f"'{path}' lacks the field '{field}'")
    if not math.isfinite(manifest["tolerance"]):
        raise InvalidBundleError(f"'{path}' has the tolerance {manifest['tolerance']}")
    try:
        for name in manifest["signatures"]:
            signature_specs(manifest, name)
        for artifact in manifest["artifacts"].values():
            for name, listed in artifact["signatures"].items():
                if not isinstance(listed, str) or name not in manifest["signatures"]:
                    raise TypeError(f"signature '{name}'")
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidBundleError(f"'{path}' is incomplete: {type(error).__name__} {error}") from error


def _check_files(directory, manifest):
    """Every file lies inside the bundle, exists and has its size; every artifact path holds listed files."""
    root = directory.resolve()
    for name, record in manifest["files"].items():
        path = (directory / name).resolve()
        if not path.is_relative_to(root) or pathlib.PurePosixPath(name).is_absolute():
            raise InvalidBundleError(f"'{name}' lies outside the bundle")
        if not path.is_file():
            raise InvalidBundleError(f"'{name}' is missing from the bundle")
        if not isinstance(record, dict) or path.stat().st_size != record.get("bytes"):
            raise InvalidBundleError(f"'{name}' does not have the size that the manifest gives")
    for artifact in manifest["artifacts"].values():
        for name in artifact["signatures"].values():
            if not any(file == name or file.startswith(f"{name}/") for file in manifest["files"]):
                raise InvalidBundleError(f"'{name}' is not among the files of the manifest")
