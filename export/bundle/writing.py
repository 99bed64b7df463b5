"""Writing a bundle: into a temporary folder, which replaces the target when it is complete and verified."""

import contextlib
import errno
import json
import os
import pathlib
import threading
from collections.abc import Collection, Iterator

from keras_transformer.export.data.manifest import FILE, PRODUCER
from keras_transformer.export.errors import ExportError, InvalidBundleError, OutOfSpaceError
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.atomic_write import FolderReplacement
from keras_transformer.utils.errors import library_exceptions, on_failure
from keras_transformer.utils.types import Path

# Bundles that this process is writing.
_active: list[FolderReplacement] = []
# TensorFlow's and ONNX's converters keep state for the whole process.
_one_at_a_time = threading.RLock()


def check_target(directory: Path, precisions: Collection[str] = ()) -> pathlib.Path:
    """Absolute path of the directory to write, if it may be written.

    It may be missing, empty, or a bundle with only its own files.

    Args:
        directory: path.
        precisions: names of the folders that may be in it, each with only a bundle: those of several precisions.

    Raises:
        InvalidBundleError: it contains other files, which an export does not delete.
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
    own = _own_names(target) | _own_folders(target, precisions)
    if present - own:
        foreign = sorted(present - own)[0]
        message = f"'{target}' contains '{foreign}', which is not part of a bundle: it is not replaced"
        raise InvalidBundleError(message, Remedy.DIRECTORY)
    return target


def _own_names(target: pathlib.Path) -> set[str]:
    """Names at the top of an existing bundle that an export wrote."""
    try:
        manifest = json.loads((target / FILE).read_text(encoding="utf-8"))
        if manifest["producer"] != PRODUCER:
            return set()
        return {FILE, *(name.split("/")[0] for name in manifest["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _own_folders(target: pathlib.Path, names: Collection[str]) -> set[str]:
    """Names, of those given, of the folders that contain a bundle and nothing else."""
    folders = [target / name for name in names if (target / name / FILE).is_file()]
    return {each.name for each in folders if {path.name for path in each.iterdir()} <= _own_names(each)}


@contextlib.contextmanager
def replacing(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Context with an empty directory next to `target`, which replaces `target` if the block completes.

    If the block ends early, through an interrupt too, the new directory is removed and the old bundle stays. One thread of
    a process is inside at a time; others wait.

    Args:
        target: absolute path, as `check_target` returns it.

    Yields:
        Path of the directory to fill.

    Raises:
        OutOfSpaceError: the disk is full.
    """
    replacement = FolderReplacement(target)
    with _one_at_a_time:
        _active.append(replacement)
        try:
            with on_failure(replacement.abandon):
                replacement.begin()
                yield _folder_of(replacement)
                replacement.commit()
        except library_exceptions(ExportError) as error:
            if is_out_of_space(error) and not isinstance(error, OutOfSpaceError):
                raise OutOfSpaceError(target) from error
            raise
        finally:
            _active.remove(replacement)


def _folder_of(replacement: FolderReplacement) -> pathlib.Path:
    return pathlib.Path(str(replacement.work))


def abandon_all() -> None:
    """Removes every directory being written and restores old bundles; for a process about to end."""
    for replacement in _active:
        replacement.abandon()


def is_out_of_space(error: BaseException | None) -> bool:
    """Whether an exception, or its cause, is that the disk is full, or a file larger than it may be."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if "No space left on device" in str(error) or "Disk quota exceeded" in str(error):
            return True
        error = error.__cause__
    return False


def bytes_in(folder: pathlib.Path) -> int:
    """Bytes of the files in a folder, at any depth."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
