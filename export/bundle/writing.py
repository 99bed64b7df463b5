"""Writing a bundle: beside its place first, then moved there in one step when it is complete and proven."""

import contextlib
import errno
import json
import os
import pathlib

from keras_transformer.export.bundle.manifest import FILE
from keras_transformer.export.bundle.manifest_checks import PRODUCER, SCHEMA
from keras_transformer.export.errors import ExportError, InvalidBundleError, OutOfSpaceError
from keras_transformer.utils.atomic_write import FolderReplacement
from keras_transformer.version import DISTRIBUTION, __version__

PROBE_BYTES = 16 * 2**20


def check_target(directory):
    """Absolute path of the directory to write, if it may be written.

    It may when nothing is there, or an empty directory, or a bundle with nothing in it that a bundle does not have.

    Raises:
        InvalidBundleError: something else lies there, which an export will not delete.
    """
    target = pathlib.Path(directory).resolve()
    if not target.exists():
        parent = next(each for each in target.parents if each.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise InvalidBundleError(f"cannot write '{target}': '{parent}' is not a writable directory")
        return target
    if not target.is_dir():
        raise InvalidBundleError(f"'{target}' is a file; a bundle is a directory")
    present = {path.name for path in target.iterdir()}
    if present - _own_names(target):
        foreign = sorted(present - _own_names(target))[0]
        raise InvalidBundleError(f"'{target}' holds '{foreign}', which is no part of a bundle: not replacing it")
    return target


def _own_names(target):
    """Names at the top of an existing bundle that an export wrote."""
    try:
        manifest = json.loads((target / FILE).read_text(encoding="utf-8"))
        if manifest["producer"] != PRODUCER:
            return set()
        return {FILE, *(name.split("/")[0] for name in manifest["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


@contextlib.contextmanager
def replacing(target):
    """Gives an empty directory beside `target`, and moves it to `target` if the block completes.

    Whatever ends the block early, an interrupt too, the new directory is removed and the old bundle stays.

    Args:
        target: absolute path, as `check_target` gives it.

    Yields:
        Path of the directory to fill.

    Raises:
        OutOfSpaceError: the disk filled up.
    """
    replacement = FolderReplacement(target)
    _active.append(replacement)
    try:
        replacement.begin()
        yield replacement.work
        replacement.commit()
    except BaseException as error:
        replacement.abandon()
        if is_out_of_space(error) and not isinstance(error, OutOfSpaceError):
            raise OutOfSpaceError(target) from error
        raise
    finally:
        _active.remove(replacement)


def abandon_all():
    """Removes every directory being written and puts old bundles back; for a process about to end."""
    for replacement in _active:
        replacement.abandon()


# What is being written by this process now.
_active = []


def is_out_of_space(error):
    """Whether an exception, or what caused it, says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "No space left on device" in str(error) or "Disk quota exceeded" in str(error):
            return True
        error = error.__cause__
    return False


def write_manifest(directory, manifest):
    """Writes `manifest.json`, last of all files."""
    text = json.dumps(manifest, indent=2, allow_nan=False)
    (directory / FILE).write_text(text + "\n", encoding="utf-8")


def new_manifest(spec, metadata):
    """The manifest of a bundle without artifacts yet."""
    signatures = {
        name: {
            "inputs": [each.to_dict() for each in signature.inputs],
            "outputs": [each.to_dict() for each in signature.outputs],
        }
        for name, signature in spec.signatures.items()
    }
    return {
        "schema": SCHEMA,
        "producer": PRODUCER,
        "signatures": signatures,
        "artifacts": {},
        **({"generation": spec.generation} if spec.generation else {}),
        "tolerance": float(spec.tolerance),
        "versions": _versions(),
        "metadata": metadata or {},
        "files": {},
    }


def check_metadata(metadata):
    """Refuses metadata that JSON cannot hold, before any work is done.

    Raises:
        ExportError: says what cannot be written.
    """
    try:
        json.dumps(metadata or {}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ExportError(f"metadata cannot be written as JSON: {error}") from error


def _versions():
    from importlib import metadata

    names = ("keras", "tensorflow", "numpy", "tf2onnx", "onnxscript", "onnx", "onnxruntime", "ai-edge-litert")
    found = {DISTRIBUTION: __version__}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
