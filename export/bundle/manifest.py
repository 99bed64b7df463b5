"""`manifest.json`: what a bundle holds. Read and written without TensorFlow or Keras."""

import hashlib
import json
import pathlib

from keras_transformer.export.bundle.manifest_checks import check_fields, check_files
from keras_transformer.export.errors import InvalidBundleError, one_line
from keras_transformer.export.formats import get_format
from keras_transformer.export.spec.export_spec import ArraySpec

FILE = "manifest.json"
PROBES = "probes.npz"
_MAX_BYTES = 2**26


def read_manifest(directory):
    """Reads and checks the manifest of a bundle.

    Args:
        directory: path of the bundle.

    Returns:
        The manifest as a dict.

    Raises:
        InvalidBundleError: no bundle there, a manifest that cannot be read, is incomplete or was written by a newer
            version, or a file of it missing, of another size or outside the bundle.
    """
    directory = pathlib.Path(directory)
    path = directory / FILE
    if not directory.exists():
        raise InvalidBundleError(f"no such bundle: '{directory}'")
    manifest = _read_json(directory, path)
    check_fields(path, manifest)
    check_files(directory, manifest)
    return manifest


def _read_json(directory, path):
    try:
        if not path.is_file():
            raise InvalidBundleError(f"'{directory}' is not a bundle: it holds no {FILE}")
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidBundleError(f"'{path}' cannot be read: it is larger than any manifest")
        text = path.read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidBundleError(f"'{path}' cannot be read: {one_line(error)}") from error


def _without_repetition(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it holds '{next(name for name in names if names.count(name) > 1)}' twice")
    return found


def _refuse_constant(name):
    raise ValueError(f"{name} is no number of JSON")


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


def files_of(manifest, format):
    """Names of the files that running one format reads: its own, its weights and the tokenizer."""
    own = set(manifest["artifacts"].get(format, {"signatures": {}})["signatures"].values())
    others = {path for each in manifest["artifacts"].values() for path in each["signatures"].values()} - own
    folders = own | ({manifest["tokenizer"]["path"]} if "tokenizer" in manifest else set())

    def is_read(name):
        is_weights = get_format(format).is_weights_file(name) and name not in others
        return name in own or is_weights or any(name.startswith(f"{folder}/") for folder in folders)

    return [name for name in manifest["files"] if is_read(name)]


def check_hashes(directory, manifest, names=None):
    """Compares files with their hashes in the manifest.

    Args:
        directory: path of the bundle.
        manifest: its manifest.
        names: names of the files; all of them when None.

    Raises:
        InvalidBundleError: names the first file that differs.
    """
    for name in manifest["files"] if names is None else names:
        try:
            found = _record(pathlib.Path(directory, name))["sha256"]
        except OSError as error:
            raise InvalidBundleError(f"'{name}' cannot be read: {error.strerror}") from error
        if found != manifest["files"][name]["sha256"]:
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
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
